use std::time::Duration;

use crate::failure::{Class, Failure};
use crate::guard::BLOCKED;
use crate::retry_after::retry_after;
use crate::schedule::{age_max, step_after, wait_after};

/// When to look again while it is our own side that cannot deliver.
const LOCAL_WAIT: Duration = Duration::from_mins(1);

const MOVED: &str = "; if the endpoint has moved, use this url: ";

/// What becomes of a delivery whose answer is 4xx and none of those that have a meaning of their own (408, 410, 425, 429).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum On4xx {
    /// It is tried again on the schedule.
    #[default]
    Retry,
    /// It is given up at once.
    Discard,
}

impl On4xx {
    /// Its name, as SQL and the wire spell it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Retry => "retry",
            Self::Discard => "discard",
        }
    }

    /// What a name means; whatever is none is the usual.
    pub(crate) fn of(name: &str) -> Self {
        if name == "discard" { Self::Discard } else { Self::Retry }
    }
}

/// What an endpoint says about its answers.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Rules<'a> {
    pub(crate) on_4xx: On4xx,
    /// A text that the kept beginning of a body has to contain, else an answer of 2xx is a failure.
    pub(crate) answer_contains: Option<&'a str>,
}

/// What an attempt saw, and what a judgement depends on beside it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Seen<'a> {
    pub(crate) status: Option<u16>,
    pub(crate) failure: Option<&'a Failure>,
    /// The value of the answer's `retry-after`.
    pub(crate) retry_after: Option<&'a [u8]>,
    /// Where a redirect says that the endpoint is.
    pub(crate) suggested: Option<&'a str>,
    /// The kept beginning of the answer's body.
    pub(crate) body: &'a [u8],
    pub(crate) rules: Rules<'a>,
    /// The endpoint's own schedule, instead of the usual one.
    pub(crate) steps: Option<&'a [Duration]>,
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
    /// Our own side could not deliver; the attempt is not spent, and the endpoint has no part in it.
    Held { reason: String, wait: Duration },
    /// Never again.
    Discarded { reason: String },
    /// Never again, and nothing else to this endpoint either.
    Gone { reason: String },
}

impl Seen<'_> {
    /// When the schedule would try again.
    fn scheduled(&self) -> Duration {
        self.steps.and_then(|steps| step_after(steps, self.attempt)).unwrap_or_else(|| wait_after(self.attempt))
    }
}

/// Judges an attempt. Pure: the clock, the dice and the table are elsewhere.
pub(crate) fn judge(seen: Seen<'_>) -> Judgement {
    let asked = seen.retry_after.and_then(|value| retry_after(value, seen.now));
    let failed = |reason: String| Judgement::Failed {
        reason,
        not_before: asked.filter(|asked| *asked > seen.scheduled() && seen.age < age_max()),
    };
    if let Some(failure) = seen.failure {
        return match failure.class {
            Class::Guard => Judgement::Discarded { reason: BLOCKED.to_owned() },
            Class::Local if seen.age < age_max() => {
                Judgement::Held { reason: failure.to_string(), wait: LOCAL_WAIT.max(seen.scheduled()) }
            }
            _ => failed(failure.to_string()),
        };
    }
    match (seen.status, asked) {
        (Some(status @ 200..=299), _) => match seen.rules.answer_contains {
            Some(text) if !contains(seen.body, text) => {
                failed(format!("status {status}, but the answer does not contain what the endpoint's rule asks for"))
            }
            _ => Judgement::Delivered,
        },
        (Some(410), _) => Judgement::Gone { reason: "the endpoint answered 410: it is gone".to_owned() },
        (Some(429 | 503), Some(_)) if seen.age >= age_max() => {
            Judgement::Discarded { reason: "the endpoint asked to wait longer than a delivery is kept".to_owned() }
        }
        (Some(429 | 503), Some(asked)) => Judgement::Postponed { wait: asked.max(seen.scheduled()) },
        (Some(status @ 300..=399), _) => failed(redirect(status, seen.suggested)),
        (Some(status @ 400..=499), _) if seen.rules.on_4xx == On4xx::Discard && !matches!(status, 408 | 425 | 429) => {
            Judgement::Discarded { reason: format!("status {status}, after which the endpoint is not tried again") }
        }
        (Some(status), _) => failed(format!("status {status}")),
        (None, _) => failed("no answer".to_owned()),
    }
}

fn redirect(status: u16, suggested: Option<&str>) -> String {
    let said = format!("status {status}: a redirect, which is never followed");
    suggested.map_or_else(|| said.clone(), |url| format!("{said}{MOVED}{url}"))
}

/// A reason for the log: without the url, in which a receiver may have a token.
pub(crate) fn logged(reason: &str) -> &str {
    reason.split_once(MOVED).map_or(reason, |(said, _)| said)
}

fn contains(body: &[u8], text: &str) -> bool {
    text.is_empty() || body.windows(text.len()).any(|window| window == text.as_bytes())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::retry_after::RETRY_AFTER_MAX;

    const NOW: i64 = 784_111_777; // Sun, 06 Nov 1994 08:49:37 GMT, the example of RFC 9110

    fn status(status: u16) -> Seen<'static> {
        Seen {
            status: Some(status),
            failure: None,
            retry_after: None,
            suggested: None,
            body: b"",
            rules: Rules::default(),
            steps: None,
            attempt: 1,
            age: Duration::ZERO,
            now: NOW,
        }
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
                let reason = format!("{}: because", class.as_str());
                let expected = match class {
                    Class::Guard => Judgement::Discarded { reason: BLOCKED.to_owned() },
                    Class::Local => Judgement::Held { reason, wait: Duration::from_mins(1) },
                    _ => failed(&reason),
                };
                assert_eq!(judged, expected);
            }
        }
    }

    #[test]
    fn what_is_our_own_trouble_is_held_until_a_delivery_is_as_old_as_its_schedule() {
        let failure = Failure::new(Class::Local, "because");
        let judged = |age, attempt| judge(Seen { status: None, failure: Some(&failure), age, attempt, ..status(0) });
        let held =
            |seconds| Judgement::Held { reason: "local: because".to_owned(), wait: Duration::from_secs(seconds) };
        assert_eq!(judged(Duration::ZERO, 1), held(60));
        assert_eq!(judged(Duration::ZERO, 2), held(300), "never sooner than the schedule");
        assert_eq!(judged(age_max(), 1), failed("local: because"));
    }

    #[test]
    fn an_endpoint_that_discards_4xx_gives_up_those_that_have_no_meaning_of_their_own() {
        let discards = Rules { on_4xx: On4xx::Discard, ..Rules::default() };
        let judged = |code| judge(Seen { rules: discards, ..status(code) });
        for code in [400, 401, 403, 404, 405, 413, 415, 422, 451, 499] {
            assert!(matches!(judged(code), Judgement::Discarded { .. }), "{code}");
        }
        for code in [302, 408, 425, 429, 500, 503] {
            assert!(matches!(judged(code), Judgement::Failed { .. }), "{code}");
        }
        assert!(matches!(judged(410), Judgement::Gone { .. }));
        assert_eq!(judged(204), Judgement::Delivered);
    }

    #[test]
    fn an_answer_without_what_the_rule_asks_for_is_a_failure() {
        let rules = Rules { answer_contains: Some("\"ok\":true"), ..Rules::default() };
        for (body, fits) in
            [(&b"{\"ok\":true}"[..], true), (b"{\"ok\":false}", false), (b"", false), (b"\xff\"ok\":true", true)]
        {
            let judged = judge(Seen { body, rules, ..status(200) });
            let reason = "status 200, but the answer does not contain what the endpoint's rule asks for";
            assert_eq!(judged, if fits { Judgement::Delivered } else { failed(reason) });
        }
        assert_eq!(judge(Seen { body: b"\"ok\":true", rules, ..status(500) }), failed("status 500"));
    }

    #[test]
    fn a_redirect_says_which_url_to_use() {
        let judged = judge(Seen { suggested: Some("https://new.example.com/"), ..status(308) });
        let expected = "status 308: a redirect, which is never followed; if the endpoint has moved, use this url: \
                        https://new.example.com/";
        assert_eq!(judged, failed(expected));
        assert_eq!(logged(expected), "status 308: a redirect, which is never followed");
        assert_eq!(logged("status 500"), "status 500");
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
    fn retry_after_is_never_sooner_than_the_endpoints_own_schedule() {
        let steps = [Duration::from_secs(1), Duration::from_hours(1)];
        let asking = |attempt| judge(Seen { retry_after: Some(b"7"), steps: Some(&steps), attempt, ..status(429) });
        for (attempt, seconds) in [(1, 7), (2, 3_600), (9, 3_600)] {
            assert_eq!(asking(attempt), Judgement::Postponed { wait: Duration::from_secs(seconds) }, "{attempt}");
        }
    }

    #[test]
    fn an_endpoint_that_only_ever_asks_to_wait_is_given_up_after_the_schedules_length() {
        let asking = |age| judge(Seen { retry_after: Some(b"60"), age, ..status(429) });
        assert!(matches!(asking(age_max().saturating_sub(Duration::from_secs(1))), Judgement::Postponed { .. }));
        assert!(matches!(asking(age_max()), Judgement::Discarded { .. }));
        let failing = judge(Seen { retry_after: Some(b"60"), age: age_max(), ..status(500) });
        assert_eq!(failing, failed("status 500"), "from then on the schedule alone decides");
    }

    proptest! {
        #[test]
        fn no_value_makes_a_judgement_panic_or_wait_longer_than_ten_hours(
            value in prop_oneof![any::<Vec<u8>>(), "[ 0-9+:.,eE-]{0,40}".prop_map(String::into_bytes)],
            code in any::<u16>(), attempt in any::<i16>(), now in any::<i64>(), age in any::<u64>(),
        ) {
            let age = Duration::from_secs(age);
            let seen = Seen { retry_after: Some(&value), attempt, age, now, ..status(code) };
            match judge(seen) {
                Judgement::Postponed { wait } => prop_assert!(wait <= RETRY_AFTER_MAX && wait >= wait_after(attempt)),
                Judgement::Failed { not_before: Some(wait), .. } => prop_assert!(wait <= RETRY_AFTER_MAX),
                _ => {}
            }
        }
    }
}
