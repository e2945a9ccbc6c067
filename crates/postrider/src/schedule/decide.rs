//! What a look at a schedule comes to, as a function of its row and of the database's time. All in microseconds since 1970.

use std::time::Duration;

use jiff::Timestamp as Instant;
use jiff::tz::TimeZone;
use postrider_contract::{Code, Missed, Refused, Timestamp, When};

use super::cron::Cron;

/// A due time that is older than this when somebody comes was missed.
const LATE: i64 = 10_000_000;
/// Due times in one look: what lies behind them is the next one's.
const PASSED_MOST: usize = 10_000;
/// Due times that one look may run.
pub(super) const RUNS_MOST: usize = 100;
const PERIOD_LEAST: Duration = Duration::from_secs(1);
const PERIOD_MOST: Duration = Duration::from_hours(3_660 * 24);

/// When a schedule is due.
#[derive(Debug, Clone)]
pub(super) enum Times {
    Cron(Box<Cron>, TimeZone),
    Every(i64),
}

impl Times {
    /// Reads and checks it; what is wrong with it is all told. `name` is the schedule's.
    pub(super) fn read(name: &str, when: &When, zone: &str) -> Result<Self, Vec<Refused>> {
        match when {
            When::Every(period) if (PERIOD_LEAST..=PERIOD_MOST).contains(period) => {
                // a period is whole milliseconds, as its row holds it
                let ms = i64::try_from(period.as_millis()).unwrap_or(i64::MAX);
                Ok(Self::Every(ms.saturating_mul(1_000)))
            }
            When::Every(period) => {
                let message = format!("schedule {name:?} comes every {period:?}");
                Err(vec![option("every", message, "use a second at least and ten years at most")])
            }
            When::Cron(text) => {
                let cron = Cron::parse(text).map_err(|malformed| {
                    let message = format!("schedule {name:?}, column {}: {}", malformed.column, malformed.what);
                    option(
                        "cron",
                        message,
                        "write minute, hour, day of the month, month, day of the week, such as 30 2 * * 1-5",
                    )
                });
                let zone = zone_named(zone).ok_or_else(|| {
                    let message = format!("schedule {name:?}: {zone:?} is not a time zone that is known here");
                    option("zone", message, "use a name of the IANA time zone database, such as Europe/Berlin")
                });
                match (cron, zone) {
                    (Ok(cron), Ok(zone)) => Ok(Self::Cron(Box::new(cron), zone)),
                    (cron, zone) => Err(cron.err().into_iter().chain(zone.err()).collect()),
                }
            }
        }
    }

    /// The first due time after this one; a period is counted from `anchor`, which is one.
    pub(super) fn after(&self, anchor: i64, time: i64) -> Option<i64> {
        match self {
            Self::Every(period) => {
                let passed = time.saturating_sub(anchor).div_euclid(*period).max(0);
                anchor.checked_add(passed.checked_add(1)?.checked_mul(*period)?)
            }
            Self::Cron(cron, zone) => {
                let time = Instant::from_microsecond(time).ok()?;
                cron.after(time, zone).map(Instant::as_microsecond)
            }
        }
    }

    /// The due times from this one on.
    pub(super) fn from(&self, first: i64) -> impl Iterator<Item = i64> {
        std::iter::successors(Some(first), |last| self.after(*last, *last))
    }
}

/// A zone by its own name; another spelling of it is not one.
fn zone_named(name: &str) -> Option<TimeZone> {
    TimeZone::get(name).ok().filter(|zone| zone.iana_name() == Some(name))
}

fn option(field: &str, message: String, remedy: &str) -> Refused {
    Refused::new(Code::Option, field, message, remedy)
}

/// What is wrong with when a schedule is due; all of it.
pub(crate) fn refuse_times(name: &str, when: &When, zone: &str) -> Vec<Refused> {
    Times::read(name, when, zone).err().unwrap_or_default()
}

/// The next due times after a moment: at most `most` of them, fewer if there are no more. A period is counted from the moment. Refuses
/// what is not a schedule, with the column of what is wrong in a cron expression.
pub fn next_runs(when: &When, zone: &str, after: Timestamp, most: usize) -> Result<Vec<Timestamp>, Refused> {
    let times = Times::read("", when, zone).map_err(|mut refused| refused.swap_remove(0))?;
    let first = times.after(after.as_micros(), after.as_micros());
    Ok(first.into_iter().flat_map(|first| times.from(first)).take(most).map(Timestamp::from_micros).collect())
}

/// A row as it was read.
#[derive(Debug, Clone, Copy)]
pub(super) struct Row {
    /// When it comes next, if that was computed.
    pub(super) next: Option<i64>,
    /// From when on due times count.
    pub(super) counted_from: i64,
    /// Its last due time that has passed.
    pub(super) due: Option<i64>,
    pub(super) missed: Missed,
}

impl Row {
    /// When it comes first after what is written down.
    pub(super) fn first(&self, times: &Times) -> Option<i64> {
        self.next.or_else(|| times.after(self.due.unwrap_or(self.counted_from), self.counted_from))
    }
}

/// What is to be written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Look {
    /// Due times that are to run.
    pub(super) runs: Vec<i64>,
    /// How many are not, since nobody was there in time.
    pub(super) missed: usize,
    /// The last one that has passed.
    pub(super) due: Option<i64>,
    /// When it comes next.
    pub(super) next: i64,
}

/// What becomes of a schedule at `now`; `None` if it never comes again.
pub(super) fn look(times: &Times, row: &Row, now: i64) -> Option<Look> {
    let mut passed: Vec<i64> = times.from(row.first(times)?).take_while(|due| *due <= now).take(PASSED_MOST).collect();
    let next = match passed.last() {
        Some(last) => times.after(*last, *last)?,
        None => row.first(times)?,
    };
    if next <= now {
        // too many for one look: the last of them are looked at again together with those that follow
        let kept = passed.split_off(passed.len().saturating_sub(RUNS_MOST));
        return Some(Look {
            runs: Vec::new(),
            missed: passed.len(),
            due: passed.last().copied(),
            next: *kept.first()?,
        });
    }
    let on_time = passed.iter().rev().take_while(|due| **due > now - LATE).count();
    let runs = match row.missed {
        Missed::Skip => on_time,
        Missed::Once => on_time.max(1),
        Missed::All(most) => on_time.max(usize::from(most)),
    };
    let due = passed.last().copied();
    let runs = passed.split_off(passed.len().saturating_sub(runs.min(RUNS_MOST)));
    Some(Look { runs, missed: passed.len(), due, next })
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: i64 = 60_000_000;

    fn every_minute() -> Times {
        Times::read("a", &When::Every(Duration::from_mins(1)), "UTC").unwrap()
    }

    fn row(next: i64, missed: Missed) -> Row {
        Row { next: Some(next), counted_from: 0, due: None, missed }
    }

    #[test]
    fn d7_what_was_missed_is_run_as_its_policy_says() {
        let now = 5 * MINUTE + 30_000_000;
        for (missed, runs, lost) in [
            (Missed::Skip, vec![], 5),
            (Missed::Once, vec![5 * MINUTE], 4),
            (Missed::All(3), vec![3 * MINUTE, 4 * MINUTE, 5 * MINUTE], 2),
            (Missed::All(9), (1..=5).map(|n| n * MINUTE).collect(), 0),
        ] {
            let told = look(&every_minute(), &row(MINUTE, missed), now).unwrap();
            assert_eq!(told, Look { runs, missed: lost, due: Some(5 * MINUTE), next: 6 * MINUTE }, "{missed:?}");
        }
        // one that is on time is run whatever the policy, and is the one run of those before it
        for (missed, runs) in [(Missed::Skip, 1), (Missed::Once, 1), (Missed::All(3), 3)] {
            let told = look(&every_minute(), &row(MINUTE, missed), 5 * MINUTE + 9_000_000).unwrap();
            assert_eq!((told.runs.len(), told.missed), (runs, 5 - runs), "{missed:?}");
        }
    }

    #[test]
    fn a_look_is_bounded_and_the_next_one_goes_on() {
        let second = Times::read("a", &When::Every(Duration::from_secs(1)), "UTC").unwrap();
        let now = 25_000 * 1_000_000;
        let (mut next, mut missed, mut runs) = (1_000_000, 0, Vec::new());
        for _ in 0..5 {
            let told = look(&second, &row(next, Missed::All(100)), now).unwrap();
            (next, missed) = (told.next, missed + told.missed);
            runs.extend(told.runs);
        }
        assert_eq!((runs.len(), missed, next), (100, 24_900, now + 1_000_000));
        assert_eq!((runs.first(), runs.last()), (Some(&(24_901 * 1_000_000)), Some(&now)));
    }

    #[test]
    fn a_period_keeps_its_phase_over_a_change_of_what_it_is_counted_from() {
        let times = every_minute();
        assert_eq!(
            Row { next: None, counted_from: 7, due: None, missed: Missed::Once }.first(&times),
            Some(7 + MINUTE)
        );
        let ran = Row { next: None, counted_from: 10 * MINUTE + 5, due: Some(MINUTE / 2), missed: Missed::Once };
        assert_eq!(ran.first(&times), Some(10 * MINUTE + MINUTE / 2));
        let soon = Row { next: None, counted_from: MINUTE, due: Some(MINUTE / 2), missed: Missed::Once };
        assert_eq!(soon.first(&times), Some(MINUTE + MINUTE / 2));
    }
}
