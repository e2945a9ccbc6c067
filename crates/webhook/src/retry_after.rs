use std::time::{Duration, UNIX_EPOCH};

/// The longest wait that an endpoint may ask for.
pub const RETRY_AFTER_MAX: Duration = Duration::from_hours(10);

/// How long a `retry-after` asks to wait: whole seconds or an HTTP date; cut to [`RETRY_AFTER_MAX`]. Anything else asks
/// for nothing.
pub(crate) fn retry_after(value: &[u8], now: i64) -> Option<Duration> {
    let text = std::str::from_utf8(value).ok()?.trim_matches([' ', '\t']);
    let seconds = if !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit()) {
        // Digits that do not fit are a very long time.
        text.parse().unwrap_or(u64::MAX)
    } else {
        let date = httpdate::parse_http_date(text).ok()?.duration_since(UNIX_EPOCH).ok()?.as_secs();
        date.saturating_sub(u64::try_from(now).unwrap_or_default())
    };
    Some(Duration::from_secs(seconds).min(RETRY_AFTER_MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: i64 = 784_111_777; // Sun, 06 Nov 1994 08:49:37 GMT, the example of RFC 9110

    #[test]
    fn retry_after_is_seconds_or_a_date_and_nothing_else() {
        let hours = |h: u64| Some(Duration::from_hours(h));
        let seconds = |s: u64| Some(Duration::from_secs(s));
        for (value, expected) in [
            ("0", seconds(0)),
            ("7", seconds(7)),
            (" 120\t", seconds(120)),
            ("007", seconds(7)),
            ("36000", hours(10)),
            ("36001", hours(10)),
            ("99999999999", hours(10)),
            ("184467440737095516160", hours(10)),
            ("Sun, 06 Nov 1994 08:49:44 GMT", seconds(7)),
            ("Sunday, 06-Nov-94 08:49:44 GMT", seconds(7)),
            ("Sun Nov  6 08:49:44 1994", seconds(7)),
            ("Sun, 06 Nov 1994 08:49:37 GMT", seconds(0)),
            ("Thu, 01 Jan 1970 00:00:00 GMT", seconds(0)),
            ("Fri, 31 Dec 9999 23:59:59 GMT", hours(10)),
            ("", None),
            ("-1", None),
            ("-5", None),
            ("+7", None),
            ("1e300", None),
            ("NaN", None),
            ("Infinity", None),
            ("7, 9", None),
            ("7 9", None),
            ("7s", None),
            ("0x10", None),
            ("٧", None),
            ("1994-11-06T08:49:44Z", None),
            ("Sun, 32 Nov 1994 08:49:44 GMT", None),
            ("Sun, 06 Nov 1994 25:49:44 GMT", None),
        ] {
            assert_eq!(retry_after(value.as_bytes(), NOW), expected, "{value:?}");
        }
        assert_eq!(retry_after(b"\xff\xfe", NOW), None);
        assert_eq!(retry_after(b"Sun, 06 Nov 1994 08:49:44 GMT", i64::MIN), hours(10));
        assert_eq!(retry_after(b"7", i64::MAX), seconds(7));
    }
}
