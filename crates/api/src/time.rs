//! Times as text for signatures and blobs; ARM's form is `wire`'s.

use jiff::{Timestamp, fmt::rfc2822};
use model::Time;
use std::time::{SystemTime, UNIX_EPOCH};

/// The wall clock. Used for expiry of signatures and for what a client is shown, never for decisions.
pub(crate) fn now() -> Time {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    Time(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}

fn stamp(time: Time) -> Timestamp {
    i64::try_from(time.0)
        .ok()
        .and_then(|ms| Timestamp::from_millisecond(ms).ok())
        .unwrap_or(Timestamp::MAX)
}

/// `2026-11-30T02:31:38Z`
pub(crate) fn seconds(time: Time) -> String {
    format!("{:.0}", stamp(time))
}

/// `Mon, 30 Nov 2026 02:31:38 GMT`
pub(crate) fn http(time: Time) -> String {
    rfc2822::DateTimePrinter::new()
        .timestamp_to_rfc9110_string(&stamp(time))
        .unwrap_or_else(|_| "Thu, 01 Jan 1970 00:00:00 GMT".to_owned())
}

/// Reads a time of an HTTP header.
pub(crate) fn parse_http(text: &str) -> Option<Time> {
    let time = rfc2822::parse(text.trim()).ok()?.timestamp();
    u64::try_from(time.as_millisecond()).ok().map(Time)
}

/// Reads a time as `wire` does.
pub(crate) use wire::arm::time::parse_stamp as parse;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_read_back() {
        let time = Time(1_796_005_898_143);
        assert_eq!(seconds(time), "2026-11-30T02:31:38Z");
        assert_eq!(http(time), "Mon, 30 Nov 2026 02:31:38 GMT");
        assert_eq!(parse_http(&http(time)), Some(Time(1_796_005_898_000)));
        assert_eq!(parse_http("yesterday"), None);
        assert_eq!(parse("2026-11-30T02:31:38.143Z"), Some(time));
        assert_eq!(parse("2026-11-30T02:31:38"), Some(Time(1_796_005_898_000)));
        assert_eq!(
            parse("2026-11-30T04:31:38+02:00"),
            Some(Time(1_796_005_898_000))
        );
        assert_eq!(parse("yesterday"), None);
        assert_eq!(seconds(Time(u64::MAX)), format!("{:.0}", Timestamp::MAX));
    }
}
