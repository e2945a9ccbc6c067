use std::time::UNIX_EPOCH;

use postrider::Timestamp;
use postrider_contract::signature::TOLERANCE;

/// How far the clock of whoever sent the header `date` is ahead of ours, in seconds, below zero if it is behind: 0 if it may have been written
/// within the attempt. `None` if it is no date.
pub(super) fn clock_skew(date: &str, started_at: Timestamp, ended_at: Timestamp) -> Option<i64> {
    let date = httpdate::parse_http_date(date.trim_matches([' ', '\t'])).ok()?;
    // what lies before 1970 was written by a clock that says nothing
    let date = i64::try_from(date.duration_since(UNIX_EPOCH).ok()?.as_secs()).ok()?;
    // a date has whole seconds
    Some(date - date.clamp(started_at.as_secs(), ended_at.as_secs().max(started_at.as_secs())))
}

/// What such a clock means for signatures; `None` while it means nothing.
pub(super) fn clock_note(skew_s: i64) -> Option<String> {
    let (off, tolerated) = (skew_s.unsigned_abs(), TOLERANCE.as_secs());
    let side = if skew_s > 0 { "ahead of" } else { "behind" };
    (off > tolerated).then(|| {
        format!(
            "the receiver's clock is {off} s {side} ours: a verifier of Standard Webhooks refuses signatures that are more than {tolerated} s \
             away from its clock"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 784 111 777 is Sun, 06 Nov 1994 08:49:37 GMT, the example of RFC 9110.
    fn skew(date: &str) -> Option<i64> {
        clock_skew(date, Timestamp::from_micros(784_111_777_900_000), Timestamp::from_micros(784_111_792_000_001))
    }

    #[test]
    fn a_date_within_the_attempt_is_no_skew_and_any_other_counts_from_its_nearer_end() {
        for (date, expected) in [
            ("Sun, 06 Nov 1994 08:49:37 GMT", Some(0)),
            (" Sun, 06 Nov 1994 08:49:52 GMT", Some(0)),
            ("Sun, 06 Nov 1994 08:49:36 GMT", Some(-1)),
            ("Sun, 06 Nov 1994 08:49:53 GMT", Some(1)),
            ("Sunday, 06-Nov-94 08:59:52 GMT", Some(600)),
            ("Sun Nov  6 08:39:37 1994", Some(-600)),
            ("Thu, 01 Jan 1970 00:00:00 GMT", Some(-784_111_777)),
            ("Fri, 31 Dec 9999 23:59:59 GMT", Some(253_402_300_799 - 784_111_792)),
            ("Sun, 06 Nov 1994", None),
            ("784111777", None),
            ("soon", None),
            ("", None),
        ] {
            assert_eq!(skew(date), expected, "{date:?}");
        }
    }

    #[test]
    fn a_clock_is_worth_a_word_when_it_is_more_than_300_seconds_off() {
        assert_eq!((clock_note(0), clock_note(300), clock_note(-300)), (None, None, None));
        assert!(clock_note(301).unwrap().starts_with("the receiver's clock is 301 s ahead of ours: "));
        assert!(clock_note(-301).unwrap().starts_with("the receiver's clock is 301 s behind ours: "));
        assert!(clock_note(i64::MIN).is_some());
    }
}
