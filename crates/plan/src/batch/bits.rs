//! A set of indices below a fixed number, one bit each: 125 KB for a million, whatever the order they came in.

use model::Ranges;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// The set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Bits {
    words: Vec<u64>,
    len: u32,
    ones: u32,
}

impl Bits {
    /// No index of `0..len`.
    pub fn new(len: u32) -> Self {
        Bits {
            words: vec![0; (len as usize).div_ceil(64)],
            len,
            ones: 0,
        }
    }
    /// Indices are below this.
    pub fn len(&self) -> u32 {
        self.len
    }
    /// Whether no index can be in.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
    /// How many are in.
    pub fn count(&self) -> u32 {
        self.ones
    }
    /// Whether `index` is in.
    pub fn contains(&self, index: u32) -> bool {
        self.words
            .get(index as usize / 64)
            .is_some_and(|w| w >> (index % 64) & 1 == 1)
    }
    /// Puts `start..end` in, as far as it is below `len`.
    pub fn insert_span(&mut self, start: u32, end: u32) {
        let end = end.min(self.len);
        let mut at = start;
        while at < end {
            let until = end.min((at / 64 + 1) * 64);
            let mask = (u64::MAX >> (64 - (until - at))) << (at % 64);
            let word = &mut self.words[at as usize / 64];
            self.ones += (mask & !*word).count_ones();
            *word |= mask;
            at = until;
        }
    }
    /// Puts all of `indices` in.
    pub fn extend(&mut self, indices: &Ranges) {
        for &(start, end) in indices.spans() {
            self.insert_span(start, end);
        }
    }
    /// The first run of indices from `from` on that are not in, at most `most` long.
    pub fn gap(&self, from: u32, most: u32) -> Option<(u32, u32)> {
        let start = self.next(from, 0)?;
        let end = self.next(start, u64::MAX).unwrap_or(self.len);
        Some((start, end.min(start.saturating_add(most))))
    }
    /// The first index from `from` on whose bit differs from those of `same`.
    fn next(&self, from: u32, same: u64) -> Option<u32> {
        let mut at = from;
        while at < self.len {
            // Looking for a zero: `same` is 0 and the word is inverted; looking for a one: it is not.
            let word = if same == 0 {
                !self.words[at as usize / 64]
            } else {
                self.words[at as usize / 64]
            };
            let rest = word >> (at % 64);
            if rest != 0 {
                let found = at + rest.trailing_zeros();
                return (found < self.len).then_some(found);
            }
            at = (at / 64 + 1) * 64;
        }
        None
    }
    /// The same as ranges.
    pub fn ranges(&self) -> Ranges {
        let (mut out, mut at) = (Ranges::new(), 0);
        while let Some(start) = self.next(at, u64::MAX) {
            let end = self.next(start, 0).unwrap_or(self.len);
            out.insert_span(start, end);
            at = end;
        }
        out
    }
}

// Stored as its length and ranges: short while work is done roughly in order.
impl Serialize for Bits {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        (self.len, self.ranges()).serialize(s)
    }
}
impl<'de> Deserialize<'de> for Bits {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        let (len, ranges) = <(u32, Ranges)>::deserialize(d)?;
        if ranges.spans().last().is_some_and(|&(_, end)| end > len) {
            return Err(de::Error::custom("a mini-batch lies beyond the last one"));
        }
        let mut bits = Bits::new(len);
        bits.extend(&ranges);
        Ok(bits)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_are_the_ranges_they_hold() {
        let mut seed = 7u32;
        let mut draw = |n: u32| {
            seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (seed >> 8) % n
        };
        for len in [1, 63, 64, 65, 200, 1000] {
            let (mut bits, mut ranges) = (Bits::new(len), Ranges::new());
            for _ in 0..40 {
                let start = draw(len);
                let end = (start + draw(90)).min(len);
                bits.insert_span(start, end);
                ranges.insert_span(start, end);
                assert_eq!(bits.ranges(), ranges);
                assert_eq!(bits.count(), ranges.len());
                assert!((0..len + 70).all(|i| bits.contains(i) == ranges.contains(i)));
                let from = draw(len);
                let first = (from..len).find(|&i| !ranges.contains(i));
                assert_eq!(bits.gap(from, 10).map(|g| g.0), first);
                if let Some((a, b)) = bits.gap(from, 10) {
                    assert!(b - a <= 10 && (a..b).all(|i| !ranges.contains(i)));
                    assert!(b - a == 10 || b == len || ranges.contains(b));
                }
            }
        }
    }
}
