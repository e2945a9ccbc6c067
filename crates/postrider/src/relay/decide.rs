use std::time::Duration;

use super::Pass;
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
/// there is a hint. `quiet` counts the passes since the last work; while nothing is heard of notifications it never sleeps.
pub(super) fn next(pass: Pass, quiet: u32, listening: bool) -> Next {
    if pass.more {
        return Next::Again;
    }
    job::idle_pause(quiet, listening && !pass.open_writers).map_or(Next::Hint, Next::After)
}

#[cfg(test)]
mod tests {
    use super::*;

    const IDLE: Pass = Pass { events: 0, jobs: 0, more: false, open_writers: false, busy: false };

    const LAST: Duration = Duration::from_millis(512);

    #[test]
    fn the_relay_waits_for_a_hint_when_nothing_can_be_missed() {
        assert_eq!(next(IDLE, 0, true), Next::After(Duration::from_millis(2)));
        assert_eq!(next(IDLE, 9, true), Next::Hint);
    }

    #[test]
    fn the_relay_never_sleeps_while_a_writer_is_open_or_nothing_is_heard() {
        assert_eq!(next(Pass { open_writers: true, ..IDLE }, 99, true), Next::After(LAST));
        assert_eq!(next(IDLE, 99, false), Next::After(LAST));
    }

    #[test]
    fn an_open_window_is_taken_further_at_once() {
        assert_eq!(next(Pass { more: true, ..IDLE }, 99, true), Next::Again);
    }
}
