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
/// there is a hint. `quiet` counts the passes since the last work; while nothing is heard of notifications it looks every `poll` and
/// never sleeps.
pub(super) fn next(pass: Pass, quiet: u32, listening: bool, poll: Duration) -> Next {
    if pass.more {
        return Next::Again;
    }
    let sure = listening && !pass.open_writers;
    job::idle_pause(quiet, (!sure).then_some(poll)).map_or(Next::Hint, Next::After)
}

#[cfg(test)]
mod tests {
    use super::*;

    const IDLE: Pass = Pass { events: 0, jobs: 0, more: false, open_writers: false, busy: false };

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
    fn an_open_window_is_taken_further_at_once() {
        assert_eq!(next(Pass { more: true, ..IDLE }, 99, true, POLL), Next::Again);
    }
}
