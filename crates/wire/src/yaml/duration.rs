//! Seconds as ISO 8601, in the form that Azure's SDK sends: `PT2M`, `PT1M30S`, `P1DT1H`.

use std::fmt::Write as _;

/// The ISO 8601 form of a number of seconds.
pub fn iso8601(seconds: u64) -> String {
    let (days, rest) = (seconds / 86_400, seconds % 86_400);
    let mut out = String::from("P");
    if days > 0 {
        let _ = write!(out, "{days}D");
    }
    if rest > 0 || days == 0 {
        out.push('T');
        for (amount, unit) in [(rest / 3600, 'H'), (rest % 3600 / 60, 'M')] {
            if amount > 0 {
                let _ = write!(out, "{amount}{unit}");
            }
        }
        if rest % 60 > 0 || seconds == 0 {
            let _ = write!(out, "{}S", rest % 60);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    #[test]
    fn seconds_are_written_as_the_sdk_writes_them() {
        for (seconds, text) in [
            (0, "PT0S"),
            (30, "PT30S"),
            (120, "PT2M"),
            (90, "PT1M30S"),
            (3600, "PT1H"),
            (86_400, "P1D"),
            (90_000, "P1DT1H"),
            (90_061, "P1DT1H1M1S"),
        ] {
            assert_eq!(super::iso8601(seconds), text);
        }
    }
}
