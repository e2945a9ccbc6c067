use std::time::Duration;

use postrider_contract::Retry;

/// What follows a failed attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// Again after this long.
    Retry(Duration),
    /// That was the last one.
    Exhausted,
}

/// The retry decision: pure, with `dice` in [0, 1) as an argument. The wait is what the policy says, up to 10 % later and never
/// earlier.
pub fn after_failure(retry: &Retry, attempt: i16, max_attempts: i16, dice: f64) -> Next {
    if attempt >= max_attempts {
        return Next::Exhausted;
    }
    let failures = u32::try_from(attempt.max(1)).unwrap_or(1);
    let wait = match retry {
        Retry::Backoff { first, most } => {
            let doubled = 2_u32.checked_pow(failures - 1).and_then(|factor| first.checked_mul(factor));
            doubled.unwrap_or(*most).min(*most)
        }
        Retry::Steps(steps) => {
            let index = usize::try_from(failures - 1).unwrap_or(0);
            steps.get(index).or(steps.last()).copied().unwrap_or_default()
        }
    };
    Next::Retry(wait.mul_f64(1.0 + 0.1 * dice.clamp(0.0, 1.0)))
}

pub(crate) const FIRST: Duration = Duration::from_millis(2);
const LAST: Duration = Duration::from_millis(512);

/// How long to wait before the next look that finds nothing: growing after the last work, which covers a wake-up that was muted or
/// lost, and then every `poll`. Without one: until there is a hint, a notification or a beat that saw work; only if nothing can be missed.
pub(crate) fn pause(quiet: u32, poll: Option<Duration>) -> Option<Duration> {
    let pause = FIRST.saturating_mul(2_u32.saturating_pow(quiet.min(16)));
    if pause > LAST { poll } else { Some(poll.map_or(pause, |poll| pause.min(poll))) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: fn(u64) -> Duration = Duration::from_secs;

    #[test]
    fn the_wait_doubles_from_the_first_to_the_most() {
        let retry = Retry::Backoff { first: S(1), most: S(10) };
        let waits: Vec<Next> = (1..=7).map(|attempt| after_failure(&retry, attempt, 7, 0.0)).collect();
        let expected = [S(1), S(2), S(4), S(8), S(10), S(10)].map(Next::Retry);
        assert_eq!(waits[..6], expected);
        assert_eq!(waits[6], Next::Exhausted);
    }

    #[test]
    fn the_dice_make_it_later_by_a_tenth_at_most_and_never_earlier() {
        let retry = Retry::Steps(vec![S(100)]);
        assert_eq!(after_failure(&retry, 1, 9, 0.0), Next::Retry(S(100)));
        assert_eq!(after_failure(&retry, 1, 9, 0.5), Next::Retry(S(105)));
        assert_eq!(after_failure(&retry, 1, 9, 7.0), Next::Retry(S(110)));
        assert_eq!(after_failure(&retry, 1, 9, -7.0), Next::Retry(S(100)));
    }

    #[test]
    fn steps_are_taken_in_turn_and_the_last_one_stays() {
        let retry = Retry::Steps(vec![S(5), S(300)]);
        let waits: Vec<Next> = (1..=4).map(|attempt| after_failure(&retry, attempt, 18, 0.0)).collect();
        assert_eq!(waits, [S(5), S(300), S(300), S(300)].map(Next::Retry));
        assert_eq!(after_failure(&Retry::Steps(vec![]), 1, 2, 0.9), Next::Retry(Duration::ZERO));
    }

    #[test]
    fn no_attempt_number_overflows() {
        let retry = Retry::Backoff { first: S(3600), most: S(86_400) };
        assert_eq!(after_failure(&retry, 32_000, i16::MAX, 0.0), Next::Retry(S(86_400)));
        assert_eq!(after_failure(&retry, -5, 3, 0.0), Next::Retry(S(3600)));
    }

    #[test]
    fn looks_get_rarer_and_end_when_nothing_can_be_missed() {
        let waits: Vec<_> = (0..9).map(|quiet| pause(quiet, None)).collect();
        assert_eq!(waits, [2, 4, 8, 16, 32, 64, 128, 256, 512].map(|ms| Some(Duration::from_millis(ms))));
        assert_eq!(pause(9, None), None);
        assert_eq!(pause(9, Some(S(1))), Some(S(1)));
        assert_eq!(pause(u32::MAX, Some(S(1))), Some(S(1)));
    }

    #[test]
    fn no_pause_is_longer_than_a_poll() {
        let poll = Duration::from_millis(10);
        let waits: Vec<_> = (0..4).map(|quiet| pause(quiet, Some(poll))).collect();
        assert_eq!(waits, [2, 4, 8, 10].map(|ms| Some(Duration::from_millis(ms))));
    }
}
