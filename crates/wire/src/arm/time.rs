//! Times as text: ISO 8601 durations (`PT2M`) and timestamps (`2026-11-30T02:31:38.143Z`).
//!
//! T1 a duration is exact to the millisecond; a day has 24 hours, months and years are refused because they have no length;
//! T2 a timestamp is shown in UTC with milliseconds; one without a zone is read as UTC.

use jiff::{SignedDuration, SpanRelativeTo, Timestamp, civil, tz::TimeZone};
use model::{Millis, Time};
use std::fmt::{self, Write as _};

/// Longest text that can be a time: the longest honest one has about forty characters.
const MAX_TEXT: usize = 64;

/// `PT2M` → 120,000 ms; `None` when it is not an ISO 8601 duration or is negative.
pub fn parse_duration(text: &str) -> Option<Millis> {
    if text.len() > MAX_TEXT || !text.starts_with(['P', 'p']) {
        return None;
    }
    let span: jiff::Span = text.parse().ok()?;
    let length: SignedDuration = span.to_duration(SpanRelativeTo::days_are_24_hours()).ok()?;
    u64::try_from(length.as_millis()).ok().map(Millis)
}

/// 120,000 ms → `PT2M`, as Python's isodate writes it: days, hours, minutes and seconds, each only when not zero.
pub fn duration(length: Millis) -> String {
    let (seconds, millis) = (length.0 / 1000, length.0 % 1000);
    let (days, hours, minutes, rest) = (
        seconds / 86_400,
        seconds / 3600 % 24,
        seconds / 60 % 60,
        seconds % 60,
    );
    let mut out = String::from("P");
    if days > 0 {
        put(&mut out, format_args!("{days}D"));
    }
    if length.0 == 0 || !length.0.is_multiple_of(86_400_000) {
        out.push('T');
    }
    if hours > 0 {
        put(&mut out, format_args!("{hours}H"));
    }
    if minutes > 0 {
        put(&mut out, format_args!("{minutes}M"));
    }
    if millis > 0 {
        let fraction = format!("{millis:03}");
        put(
            &mut out,
            format_args!("{rest}.{}S", fraction.trim_end_matches('0')),
        );
    } else if rest > 0 || length.0 == 0 {
        put(&mut out, format_args!("{rest}S"));
    }
    out
}

fn put(out: &mut String, text: fmt::Arguments<'_>) {
    out.write_fmt(text)
        .expect("writing to a String cannot fail");
}

/// `2026-11-30T02:31:38.143Z`.
pub fn stamp(time: Time) -> String {
    let millis = i64::try_from(time.0).unwrap_or(i64::MAX);
    Timestamp::from_millisecond(millis)
        .unwrap_or(Timestamp::MAX)
        .strftime("%Y-%m-%dT%H:%M:%S.%3fZ")
        .to_string()
}

/// A timestamp with or without a zone (T2); `None` when it is none or lies before 1970.
pub fn parse_stamp(text: &str) -> Option<Time> {
    if text.len() > MAX_TEXT {
        return None;
    }
    let text = text.trim();
    let at = text.parse::<Timestamp>().ok().or_else(|| {
        let local: civil::DateTime = text.parse().ok()?;
        TimeZone::UTC.to_timestamp(local).ok()
    })?;
    u64::try_from(at.as_millisecond()).ok().map(Time)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn durations_are_read_and_written() {
        for (text, ms) in [
            ("PT2M", 120_000),
            ("PT5M", 300_000),
            ("PT30S", 30_000),
            ("P1DT1H", 90_000_000),
            ("P2D", 172_800_000),
            ("PT0.5S", 500),
            ("PT0S", 0),
        ] {
            assert_eq!(parse_duration(text), Some(Millis(ms)), "{text}");
            assert_eq!(duration(Millis(ms)), text);
        }
        assert_eq!(parse_duration("PT120S"), Some(Millis(120_000)));
        assert_eq!(parse_duration("P1W"), Some(Millis(604_800_000)));
        for text in ["", "120", "2 minutes", "-PT2M", "PT", "P1Y", "P1M", "PT2"] {
            assert_eq!(parse_duration(text), None, "{text}");
        }
    }

    #[test]
    fn stamps_are_utc_with_milliseconds() {
        let time = Time(1_795_919_498_143);
        assert_eq!(stamp(time), "2026-11-29T02:31:38.143Z");
        assert_eq!(parse_stamp("2026-11-29T02:31:38.143Z"), Some(time));
        assert_eq!(parse_stamp("2026-11-29T02:31:38.143"), Some(time));
        assert_eq!(parse_stamp("2026-11-29T04:31:38.143+02:00"), Some(time));
        assert_eq!(stamp(Time(u64::MAX)).len(), 24);
        assert_eq!(parse_stamp("1969-01-01T00:00:00Z"), None);
    }

    proptest! {
        #[test]
        fn a_duration_survives_its_text(ms in 0_u64..10_000_000_000) {
            prop_assert_eq!(parse_duration(&duration(Millis(ms))), Some(Millis(ms)));
        }
        #[test]
        fn no_text_panics(text in "\\PC{0,30}") {
            let _ = (parse_duration(&text), parse_duration(&format!("P{text}")), parse_stamp(&text));
        }
    }

    #[test]
    fn reasons_show_the_same_time() {
        // From 1970 to 9999, at steps that meet every hour, weekday, month and leap year.
        for seconds in (0..253_402_300_799).step_by(9_999_991) {
            let time = Time(seconds * 1000);
            let shown = stamp(time)[..19].replace('T', " ");
            assert_eq!(time.to_string(), format!("{shown}Z"));
        }
    }
}
