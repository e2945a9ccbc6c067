use std::time::Duration;

use super::Pass;
use crate::error::Error;
use crate::job;

/// What the relay does next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Next {
    /// Take more at once.
    Again,
    /// Look again after this long, or when woken.
    After(Duration),
    /// Wait for a hint: a notification, or a beat that saw new events.
    Hint,
}

/// After work, the relay looks again at growing distances, which covers a wake-up that was muted or lost; then it sleeps until
/// there is a hint. `quiet` counts the passes since the last work; while nothing is heard of notifications it looks every `poll` and
/// never sleeps. What was set aside and is due again is a hint of its own.
pub(super) fn next(pass: Pass, quiet: u32, listening: bool, poll: Duration) -> Next {
    if pass.more {
        return Next::Again;
    }
    let sure = listening && !pass.open_writers;
    let pause = job::idle_pause(quiet, (!sure).then_some(poll));
    [pause, pass.retry_in].into_iter().flatten().min().map_or(Next::Hint, Next::After)
}

/// Whether the next pass is made with care: after one that failed for a reason that does not pass by itself, and while such passes find
/// something.
pub(super) fn careful(was: bool, pass: &Result<Pass, Error>) -> bool {
    match pass {
        Ok(pass) => was && pass.aside > 0 && pass.more,
        Err(failure) => !failure.is_transient() || was,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const IDLE: Pass =
        Pass { events: 0, jobs: 0, more: false, open_writers: false, busy: false, aside: 0, retry_in: None };

    const POLL: Duration = Duration::from_secs(1);

    #[test]
    fn the_relay_waits_for_a_hint_when_nothing_can_be_missed() {
        assert_eq!(next(IDLE, 0, true, POLL), Next::After(Duration::from_millis(2)));
        assert_eq!(next(IDLE, 9, true, POLL), Next::Hint);
    }

    #[test]
    fn the_relay_never_sleeps_while_a_writer_is_open_or_nothing_is_heard() {
        assert_eq!(next(Pass { open_writers: true, ..IDLE }, 99, true, POLL), Next::After(POLL));
        assert_eq!(next(IDLE, 99, false, POLL), Next::After(POLL));
    }

    #[test]
    fn the_relay_comes_back_when_what_was_set_aside_is_due() {
        let due = Some(Duration::from_secs(7));
        assert_eq!(next(Pass { retry_in: due, ..IDLE }, 99, true, POLL), Next::After(Duration::from_secs(7)));
        assert_eq!(next(Pass { retry_in: due, ..IDLE }, 99, false, POLL), Next::After(POLL));
    }

    #[test]
    fn a_pass_is_made_with_care_after_one_that_failed_for_good_and_while_care_finds_something() {
        let found = Pass { aside: 1, more: true, ..IDLE };
        assert!(careful(false, &Err(Error::LeaseLost)) && careful(true, &Ok(found)));
        assert!(!careful(true, &Ok(IDLE)) && !careful(false, &Ok(found)));
        let passes = Error::Timeout { statement: "", limit: POLL };
        assert!(!careful(false, &Err(passes)));
    }

    #[test]
    fn an_open_window_is_taken_further_at_once() {
        assert_eq!(next(Pass { more: true, ..IDLE }, 99, true, POLL), Next::Again);
    }
}
