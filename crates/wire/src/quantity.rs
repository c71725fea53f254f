//! Exact Kubernetes quantities: `700m`, `1500Mi`, `0.2G`, `1e3`.
//!
//! A value is a whole number of nano-units in an `i128`; the text is kept as it was written. The real `resource.Quantity`
//! (through kubectl) is the oracle of the table in the tests.
//!
//! Q1 no float touches a value: what is written is what is compared;
//! Q2 digits below a nano-unit round away from zero, as Kubernetes does;
//! Q3 the text of a quantity is never rewritten; `canonical` is the form that Kubernetes would store.
//!
//! Different from kubectl on purpose: a suffix without digits (`Ki`, `m`) is an error, where kubectl reads 0, and a magnitude
//! above the range of `i128` nano-units (1.7e29) is an error, where kubectl keeps an arbitrary-precision number.

use model::{Bytes, MilliCpu};
use std::{cmp::Ordering, fmt::Write as _, str::FromStr};

/// Nano-units in one unit.
const NANO: i128 = 1_000_000_000;
/// Kubernetes caps quantities with a binary suffix at the largest signed 64-bit number.
const BINARY_CAP: i128 = i64::MAX as i128 * NANO;
/// A longer text is refused before it is looked at: the longest honest quantity has about forty characters.
const MAX_TEXT: usize = 256;
/// Powers of ten above this cannot be represented in any case; it keeps the loops short.
const MAX_EXPONENT: i32 = 10_000;

/// How the text spelled its scale; decides the canonical form.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Scale {
    /// `m`, nothing, `k`, `M`, …
    Decimal,
    /// `Ki`, `Mi`, …
    Binary,
    /// `1e3`
    Exponent,
}

/// A quantity as it was written, with its exact value.
#[derive(Clone, Debug)]
pub struct Quantity {
    text: String,
    nano: i128,
    scale: Scale,
}

/// Why a text is not a quantity, or not one that fits its use.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum QuantityError {
    /// Nothing was written.
    #[error("a quantity is empty")]
    Empty,
    /// There are no digits before the suffix.
    #[error("`{}` is not a quantity: it has no digits", .0.escape_debug())]
    NoDigits(String),
    /// The suffix is not one of Kubernetes'.
    #[error(
        "`{}` is not a quantity: the suffix is one of n u m k M G T P E, Ki Mi Gi Ti Pi Ei, or an exponent such as e3",
        .0.escape_debug()
    )]
    Suffix(String),
    /// The value is outside what can be counted.
    #[error("the quantity `{}` is too large", .0.escape_debug())]
    TooLarge(String),
    /// The value is below zero where an amount is wanted.
    #[error("the quantity `{0}` is negative")]
    Negative(String),
}

impl Quantity {
    /// The text as it was written (Q3).
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The exact value in billionths of a unit.
    pub fn nano(&self) -> i128 {
        self.nano
    }

    /// Is it exactly zero?
    pub fn is_zero(&self) -> bool {
        self.nano == 0
    }

    /// Thousandths of a core, rounded up (Kubernetes' `MilliValue`).
    pub fn milli_cpu(&self) -> Result<MilliCpu, QuantityError> {
        self.whole(NANO / 1000).map(MilliCpu)
    }

    /// Whole bytes, rounded up (Kubernetes' `Value`).
    pub fn bytes(&self) -> Result<Bytes, QuantityError> {
        self.whole(NANO).map(Bytes)
    }

    /// A number of devices: a whole number, nothing else.
    pub fn count(&self) -> Result<u64, QuantityError> {
        if self.nano % NANO != 0 {
            return Err(QuantityError::Suffix(self.text.clone()));
        }
        self.whole(NANO)
    }

    /// The form that Kubernetes stores: the largest suffix that keeps the value whole.
    pub fn canonical(&self) -> String {
        if self.nano == 0 {
            return "0".into();
        }
        let magnitude = self.nano.unsigned_abs();
        let unit = NANO.unsigned_abs();
        let binary = self.scale == Scale::Binary
            && magnitude >= 1024 * unit
            && magnitude.is_multiple_of(unit);
        let mut out = String::from(if self.nano < 0 { "-" } else { "" });
        if binary {
            let (digits, power) = strip(magnitude / unit, 1024, 6);
            let suffix = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"][power];
            let _ = write!(out, "{digits}{suffix}");
        } else if self.scale == Scale::Exponent {
            let (digits, power) = strip(magnitude, 1000, usize::MAX);
            let exponent =
                3 * i64::try_from(power).expect("an i128 holds fewer than 39 digits") - 9;
            let _ = if exponent == 0 {
                write!(out, "{digits}")
            } else {
                write!(out, "{digits}e{exponent}")
            };
        } else {
            let (digits, power) = strip(magnitude, 1000, 9);
            let suffix = ["n", "u", "m", "", "k", "M", "G", "T", "P", "E"][power];
            let _ = write!(out, "{digits}{suffix}");
        }
        out
    }

    fn whole(&self, nano_per_unit: i128) -> Result<u64, QuantityError> {
        if self.nano < 0 {
            return Err(QuantityError::Negative(self.text.clone()));
        }
        let rounded_up = self.nano / nano_per_unit + i128::from(self.nano % nano_per_unit != 0);
        u64::try_from(rounded_up).map_err(|_| QuantityError::TooLarge(self.text.clone()))
    }
}

/// Divides by `base` while nothing is lost, at most `most` times.
fn strip(mut value: u128, base: u128, most: usize) -> (u128, usize) {
    let mut power = 0;
    while power < most && value.is_multiple_of(base) {
        value /= base;
        power += 1;
    }
    (value, power)
}

impl FromStr for Quantity {
    type Err = QuantityError;

    fn from_str(text: &str) -> Result<Self, QuantityError> {
        if text.is_empty() {
            return Err(QuantityError::Empty);
        }
        if text.len() > MAX_TEXT {
            return Err(QuantityError::TooLarge(format!(
                "{}…",
                text.chars().take(16).collect::<String>()
            )));
        }
        let (negative, unsigned) = match text.as_bytes()[0] {
            b'-' => (true, &text[1..]),
            b'+' => (false, &text[1..]),
            _ => (false, text),
        };
        let (int, rest) = digits(unsigned);
        let (fraction, suffix) = match rest.strip_prefix('.') {
            Some(after) => digits(after),
            None => ("", rest),
        };
        if int.is_empty() && fraction.is_empty() {
            return Err(QuantityError::NoDigits(text.into()));
        }
        let (scale, factor) =
            suffix_of(suffix).ok_or_else(|| QuantityError::Suffix(text.into()))?;
        let magnitude = match factor {
            Factor::Ten(exponent) => decimal(int, fraction, exponent),
            Factor::Two(bits) => binary(int, fraction, bits),
        };
        let nano = magnitude.ok_or_else(|| QuantityError::TooLarge(text.into()))?;
        Ok(Quantity {
            text: text.into(),
            nano: if negative { -nano } else { nano },
            scale,
        })
    }
}

/// Equal when the values are equal, however they were written.
impl PartialEq for Quantity {
    fn eq(&self, other: &Self) -> bool {
        self.nano == other.nano
    }
}
impl Eq for Quantity {}
impl PartialOrd for Quantity {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Quantity {
    fn cmp(&self, other: &Self) -> Ordering {
        self.nano.cmp(&other.nano)
    }
}

enum Factor {
    Ten(i32),
    Two(u32),
}

fn digits(text: &str) -> (&str, &str) {
    text.split_at(text.bytes().take_while(u8::is_ascii_digit).count())
}

fn suffix_of(suffix: &str) -> Option<(Scale, Factor)> {
    const DECIMAL: [(&str, i32); 10] = [
        ("n", -9),
        ("u", -6),
        ("m", -3),
        ("", 0),
        ("k", 3),
        ("M", 6),
        ("G", 9),
        ("T", 12),
        ("P", 15),
        ("E", 18),
    ];
    const BINARY: [(&str, u32); 6] = [
        ("Ki", 10),
        ("Mi", 20),
        ("Gi", 30),
        ("Ti", 40),
        ("Pi", 50),
        ("Ei", 60),
    ];
    if let Some((_, exponent)) = DECIMAL.iter().find(|(s, _)| *s == suffix) {
        return Some((Scale::Decimal, Factor::Ten(*exponent)));
    }
    if let Some((_, bits)) = BINARY.iter().find(|(s, _)| *s == suffix) {
        return Some((Scale::Binary, Factor::Two(*bits)));
    }
    let exponent = suffix.strip_prefix(['e', 'E'])?;
    let (sign, number) = match exponent.as_bytes().first()? {
        b'-' => (-1, &exponent[1..]),
        b'+' => (1, &exponent[1..]),
        _ => (1, exponent),
    };
    if number.is_empty() || !number.bytes().all(|c| c.is_ascii_digit()) {
        return None;
    }
    let magnitude = number
        .parse::<i32>()
        .unwrap_or(MAX_EXPONENT)
        .min(MAX_EXPONENT);
    Some((Scale::Exponent, Factor::Ten(sign * magnitude)))
}

/// `int.fraction × 10^exponent` in nano-units, rounded away from zero (Q2); `None` above the range.
fn decimal(int: &str, fraction: &str, exponent: i32) -> Option<i128> {
    let all = format!("{int}{fraction}");
    let significant = all.trim_start_matches('0');
    if significant.is_empty() {
        return Some(0);
    }
    let power = exponent - i32::try_from(fraction.len()).ok()? + 9;
    let (kept, dropped) = match usize::try_from(-power) {
        Ok(cut) if cut >= significant.len() => ("", significant),
        Ok(cut) => significant.split_at(significant.len() - cut),
        Err(_) => (significant, ""),
    };
    let mut value: i128 = if kept.is_empty() {
        0
    } else {
        kept.parse().ok()?
    };
    for _ in 0..power.max(0) {
        value = value.checked_mul(10)?;
    }
    value.checked_add(i128::from(dropped.bytes().any(|c| c != b'0')))
}

/// `int.fraction × 2^bits` in nano-units, rounded away from zero (Q2) and capped as Kubernetes caps it.
fn binary(int: &str, fraction: &str, bits: u32) -> Option<i128> {
    let all = format!("{int}{fraction}");
    let significant = all.trim_start_matches('0');
    if significant.is_empty() {
        return Some(0);
    }
    let scaled = significant.parse::<i128>().ok()?.checked_mul(1 << bits)?;
    let places = u32::try_from(fraction.len()).ok()?;
    let nano = if places <= 9 {
        scaled.checked_mul(10i128.pow(9 - places))?
    } else {
        let divisor = 10i128.checked_pow(places - 9)?;
        scaled / divisor + i128::from(scaled % divisor != 0)
    };
    Some(nano.min(BINARY_CAP))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn q(text: &str) -> Quantity {
        text.parse().unwrap()
    }

    /// What kubectl 1.32 prints for the same text.
    #[test]
    fn canonical_forms_are_those_of_kubectl() {
        for (text, canonical) in [
            ("100m", "100m"),
            ("0.1", "100m"),
            ("1e3", "1e3"),
            ("1500Mi", "1500Mi"),
            ("2Gi", "2Gi"),
            ("0.2G", "200M"),
            ("1.5Gi", "1536Mi"),
            ("0.5Mi", "512Ki"),
            ("-1", "-1"),
            ("+1", "1"),
            ("0.0000000001", "1n"),
            ("0.9999999999", "1"),
            ("1E", "1E"),
            ("1Ei", "1Ei"),
            ("1000m", "1"),
            ("1024Mi", "1Gi"),
            ("0", "0"),
            ("0Ki", "0"),
            (".5", "500m"),
            ("5.", "5"),
            ("12e6", "12e6"),
            ("1200", "1200"),
            ("1000", "1k"),
            ("0.5Ki", "512"),
            ("99999999999Ei", "9223372036854775807"),
        ] {
            assert_eq!(q(text).canonical(), canonical, "{text}");
            assert_eq!(q(text).text(), text);
        }
    }

    #[test]
    fn what_is_not_a_quantity_says_why() {
        for (text, message) in [
            ("", "a quantity is empty"),
            ("Ki", "`Ki` is not a quantity: it has no digits"),
            ("m", "`m` is not a quantity: it has no digits"),
            (".", "`.` is not a quantity: it has no digits"),
            ("-", "`-` is not a quantity: it has no digits"),
            ("NaN", "`NaN` is not a quantity: it has no digits"),
            (" 1", "` 1` is not a quantity: it has no digits"),
            ("1e400", "the quantity `1e400` is too large"),
            (
                "99999999999999999999999999999999999999999Ei",
                "the quantity `99999999999999999999999999999999999999999Ei` is too large",
            ),
        ] {
            assert_eq!(text.parse::<Quantity>().unwrap_err().to_string(), message);
        }
        for text in [
            "1Ki5", "1K", "1ki", "1 Gi", "1_000", "1 ", "1GB", "1e", "1e+", "1Ee3", "1\n", "１",
        ] {
            assert!(text.parse::<Quantity>().is_err(), "{text:?}");
        }
    }

    #[test]
    fn values_become_the_integers_of_the_model() {
        assert_eq!(q("700m").milli_cpu(), Ok(MilliCpu(700)));
        assert_eq!(q("0.1").milli_cpu(), Ok(MilliCpu(100)));
        assert_eq!(q("1e3").milli_cpu(), Ok(MilliCpu(1_000_000)));
        assert_eq!(q("1n").milli_cpu(), Ok(MilliCpu(1)));
        assert_eq!(q("0.2G").bytes(), Ok(Bytes(200_000_000)));
        assert_eq!(q("0.2Gi").bytes(), Ok(Bytes(214_748_365)));
        assert_eq!(q("1.5Gi").bytes(), Ok(Bytes(1_610_612_736)));
        assert_eq!(q("-1").bytes(), Err(QuantityError::Negative("-1".into())));
        assert_eq!(
            q("1e25").bytes(),
            Err(QuantityError::TooLarge("1e25".into()))
        );
        assert_eq!(q("2").count(), Ok(2));
        assert!(q("500m").count().is_err());
    }

    #[test]
    fn order_is_by_value() {
        assert_eq!(q("1000m"), q("1"));
        assert!(q("0.5G") < q("0.5Gi"));
        assert!(q("-2") < q("-1"));
    }

    proptest! {
        #[test]
        fn never_panics(text in "\\PC{0,40}") {
            let _ = text.parse::<Quantity>();
        }

        #[test]
        fn canonical_keeps_the_value(text in "[+-]?[0-9]{0,12}\\.?[0-9]{0,12}(n|u|m|k|M|G|T|Ki|Mi|Gi|Ti|e[0-9]|e-[0-9])?") {
            if let Ok(value) = text.parse::<Quantity>() {
                let again: Quantity = value.canonical().parse().unwrap();
                prop_assert_eq!(&again, &value);
                prop_assert_eq!(again.canonical(), value.canonical());
            }
        }

        #[test]
        fn whole_numbers_are_themselves(n in 0u64..1_000_000_000_000) {
            prop_assert_eq!(q(&n.to_string()).bytes(), Ok(Bytes(n)));
            prop_assert_eq!(q(&format!("{n}m")).milli_cpu(), Ok(MilliCpu(n)));
            prop_assert_eq!(q(&format!("{n}Ki")).bytes(), Ok(Bytes(n * 1024)));
        }
    }
}
