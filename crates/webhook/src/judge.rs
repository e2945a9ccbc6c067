use std::time::{Duration, UNIX_EPOCH};

use crate::failure::{Class, Failure};
use crate::guard::BLOCKED;
use crate::schedule::{age_max, wait_after};

/// The longest wait that an endpoint may ask for.
pub const RETRY_AFTER_MAX: Duration = Duration::from_hours(10);

/// What an attempt saw, and what a judgement depends on beside it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Seen<'a> {
    pub(crate) status: Option<u16>,
    pub(crate) failure: Option<&'a Failure>,
    /// The value of the answer's `retry-after`.
    pub(crate) retry_after: Option<&'a [u8]>,
    /// The attempt's number, counted from 1.
    pub(crate) attempt: i16,
    /// How long the delivery has existed.
    pub(crate) age: Duration,
    /// Now, in seconds since the epoch.
    pub(crate) now: i64,
}

/// What an attempt means for its delivery.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Judgement {
    /// The endpoint took it.
    Delivered,
    /// Try again on the schedule, and not before `not_before` from now if the endpoint asked for more; the attempt is spent.
    Failed { reason: String, not_before: Option<Duration> },
    /// The endpoint asked to wait; the attempt is not spent.
    Postponed { wait: Duration },
    /// Never again.
    Discarded { reason: String },
    /// Never again, and nothing else to this endpoint either.
    Gone { reason: String },
}

/// Judges an attempt. Pure: the clock, the dice and the table are elsewhere.
pub(crate) fn judge(seen: Seen<'_>) -> Judgement {
    let asked = seen.retry_after.and_then(|value| retry_after(value, seen.now));
    let failed = |reason: String| Judgement::Failed {
        reason,
        not_before: asked.filter(|asked| *asked > wait_after(seen.attempt) && seen.age < age_max()),
    };
    if let Some(failure) = seen.failure {
        return match failure.class {
            Class::Guard => Judgement::Discarded { reason: BLOCKED.to_owned() },
            _ => failed(failure.to_string()),
        };
    }
    match (seen.status, asked) {
        (Some(200..=299), _) => Judgement::Delivered,
        (Some(410), _) => Judgement::Gone { reason: "the endpoint answered 410: it is gone".to_owned() },
        (Some(429 | 503), Some(_)) if seen.age >= age_max() => {
            Judgement::Discarded { reason: "the endpoint asked to wait longer than a delivery is kept".to_owned() }
        }
        (Some(429 | 503), Some(asked)) => Judgement::Postponed { wait: asked.max(wait_after(seen.attempt)) },
        (Some(status @ 300..=399), _) => failed(format!("status {status}: a redirect, which is never followed")),
        (Some(status), _) => failed(format!("status {status}")),
        (None, _) => failed("no answer".to_owned()),
    }
}

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
    use proptest::prelude::*;

    use super::*;

    const NOW: i64 = 784_111_777; // Sun, 06 Nov 1994 08:49:37 GMT, the example of RFC 9110

    fn status(status: u16) -> Seen<'static> {
        Seen { status: Some(status), failure: None, retry_after: None, attempt: 1, age: Duration::ZERO, now: NOW }
    }

    fn failed(reason: &str) -> Judgement {
        Judgement::Failed { reason: reason.to_owned(), not_before: None }
    }

    #[test]
    fn each_status_has_its_judgement() {
        for code in [200, 201, 202, 204, 206, 299] {
            assert_eq!(judge(status(code)), Judgement::Delivered, "{code}");
        }
        for code in [300, 301, 302, 303, 304, 307, 308] {
            let Judgement::Failed { reason, not_before: None } = judge(status(code)) else { panic!("{code}") };
            assert!(reason.contains("redirect"), "{reason}");
        }
        for code in
            [400, 401, 403, 404, 405, 408, 413, 415, 422, 425, 429, 451, 500, 502, 503, 504, 599, 600, 999, 100, 199]
        {
            assert_eq!(judge(status(code)), failed(&format!("status {code}")));
        }
        assert!(matches!(judge(status(410)), Judgement::Gone { .. }));
        assert_eq!(judge(Seen { status: None, ..status(0) }), failed("no answer"));
    }

    #[test]
    fn every_class_of_failure_is_tried_again_but_a_blocked_address() {
        for class in Class::ALL {
            let failure = Failure::new(class, "because");
            // A status that came with a torn answer does not count.
            for code in [None, Some(200), Some(410)] {
                let judged = judge(Seen { status: code, failure: Some(&failure), ..status(0) });
                if class == Class::Guard {
                    assert_eq!(judged, Judgement::Discarded { reason: BLOCKED.to_owned() });
                } else {
                    assert_eq!(judged, failed(&format!("{}: because", class.as_str())));
                }
            }
        }
    }

    #[test]
    fn retry_after_frees_the_attempt_for_429_and_503_only_and_is_a_lower_bound() {
        let asking = |code, value: &'static str, attempt| {
            judge(Seen { retry_after: Some(value.as_bytes()), attempt, ..status(code) })
        };
        let postponed = |seconds| Judgement::Postponed { wait: Duration::from_secs(seconds) };
        for code in [429, 503] {
            assert_eq!(asking(code, "7", 1), postponed(7));
            assert_eq!(asking(code, "0", 1), postponed(5), "never sooner than the schedule");
            assert_eq!(asking(code, "7", 2), postponed(300), "never sooner than the schedule");
            assert_eq!(asking(code, "301", 2), postponed(301));
            assert_eq!(asking(code, "Sun, 06 Nov 1994 08:50:37 GMT", 1), postponed(60));
            assert_eq!(asking(code, "99999999999", 1), postponed(36_000), "capped at ten hours");
            for garbage in ["-5", "1e300", "NaN", "7, 9", "", "7.5", "soon"] {
                assert_eq!(asking(code, garbage, 1), failed(&format!("status {code}")), "{garbage:?}");
            }
        }
        let wait = |seconds| Some(Duration::from_secs(seconds));
        for code in [302, 400, 404, 500, 502] {
            for (value, attempt, expected) in [("7", 1, wait(7)), ("7", 2, None), ("301", 2, wait(301)), ("x", 1, None)]
            {
                let Judgement::Failed { not_before, .. } = asking(code, value, attempt) else { panic!("{code}") };
                assert_eq!(not_before, expected, "{code} {value} {attempt}");
            }
        }
        assert_eq!(asking(200, "7", 1), Judgement::Delivered);
    }

    #[test]
    fn an_endpoint_that_only_ever_asks_to_wait_is_given_up_after_the_schedules_length() {
        let asking = |age| judge(Seen { retry_after: Some(b"60"), age, ..status(429) });
        assert!(matches!(asking(age_max().saturating_sub(Duration::from_secs(1))), Judgement::Postponed { .. }));
        assert!(matches!(asking(age_max()), Judgement::Discarded { .. }));
        let failing = judge(Seen { retry_after: Some(b"60"), age: age_max(), ..status(500) });
        assert_eq!(failing, failed("status 500"), "from then on the schedule alone decides");
    }

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

    proptest! {
        #[test]
        fn no_value_makes_a_judgement_panic_or_wait_longer_than_ten_hours(
            value in prop_oneof![any::<Vec<u8>>(), "[ 0-9+:.,eE-]{0,40}".prop_map(String::into_bytes)],
            code in any::<u16>(), attempt in any::<i16>(), now in any::<i64>(), age in any::<u64>(),
        ) {
            let age = Duration::from_secs(age);
            let seen = Seen { status: Some(code), failure: None, retry_after: Some(&value), attempt, age, now };
            match judge(seen) {
                Judgement::Postponed { wait } => prop_assert!(wait <= RETRY_AFTER_MAX && wait >= wait_after(attempt)),
                Judgement::Failed { not_before: Some(wait), .. } => prop_assert!(wait <= RETRY_AFTER_MAX),
                _ => {}
            }
        }
    }
}
