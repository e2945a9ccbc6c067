use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use futures_util::future::try_join_all;
use postrider::{Arg, Error, Recorder, Tx as _};
use postrider_contract::{EventId, NewEvent};
use sqlx::PgPool;
use tokio_util::sync::CancellationToken;
use tracing::warn;

use super::business;
use super::events::Line;
use super::figures::Figures;
use crate::system;

/// Further behind than this, the feeder does not catch up but goes on at its rate: after an outage no wave follows.
const BEHIND_MAX: Duration = Duration::from_secs(1);
/// The wait after a failure that may pass by itself.
const PAUSE: Duration = Duration::from_millis(500);

/// Records events at a rate, each in one transaction with the business row that it is about.
#[derive(Debug)]
pub(super) struct Feeder {
    /// The database that business rows and events share.
    pub(super) pool: PgPool,
    /// Records events.
    pub(super) recorder: Recorder,
    /// What to record, in this order.
    pub(super) lines: Vec<Line>,
    /// Events per second.
    pub(super) rate: f64,
    /// Whether to begin again after the last line.
    pub(super) again: bool,
    /// What was seen.
    pub(super) figures: Arc<Figures>,
}

impl Feeder {
    /// Records until it is told to stop, or through with the lines. At high rates several transactions are open at a time, or
    /// the wait for each commit would be the limit.
    pub(super) async fn feed(self, stop: CancellationToken) -> anyhow::Result<()> {
        let pace = Mutex::new(Pace::new(self.rate, system::now()));
        let lanes = (0..lanes(self.rate)).map(|_| self.lane(&pace, &stop));
        try_join_all(lanes).await?;
        Ok(())
    }

    async fn lane(&self, pace: &Mutex<Pace>, stop: &CancellationToken) -> anyhow::Result<()> {
        loop {
            let (number, wait) = pace.lock().unwrap_or_else(PoisonError::into_inner).next(system::now());
            if stop.run_until_cancelled(tokio::time::sleep(wait)).await.is_none() {
                return Ok(());
            }
            let Some(line) =
                self.lines.get(number % self.lines.len()).filter(|_| self.again || number < self.lines.len())
            else {
                return Ok(());
            };
            if number > 0 && number.is_multiple_of(self.lines.len()) {
                business::forget_old(&self.pool).await?;
            }
            if !self.insist(line, stop).await? {
                return Ok(());
            }
        }
    }

    /// Records one line, again and again while the database is away; false if told to stop meanwhile. A commit whose answer
    /// was lost may have happened, so that its event is recorded twice: the demonstration does not mind.
    async fn insist(&self, line: &Line, stop: &CancellationToken) -> anyhow::Result<bool> {
        loop {
            match self.record(line).await {
                Ok(id) => {
                    self.figures.committed(id, system::now());
                    return Ok(true);
                }
                Err(error) if error.is_transient() => {
                    warn!("an event of type {} was not recorded, trying again: {error}", line.r#type);
                    tokio::select! {
                        () = stop.cancelled() => return Ok(false),
                        () = tokio::time::sleep(PAUSE) => {}
                    }
                }
                Err(error) => return Err(error).with_context(|| format!("an event of type {}", line.r#type)),
            }
        }
    }

    /// The business row and the event commit together or not at all.
    async fn record(&self, line: &Line) -> Result<EventId, Error> {
        let mut transaction = self.pool.begin().await.map_err(Error::Connection)?;
        transaction.run(&business::TOUCH, &[Arg::Text(&line.subject), Arg::Text(&line.r#type)]).await?;
        let event = NewEvent::new(line.r#type.as_str(), line.subject.as_str(), line.data.clone());
        let recorded = self.recorder.record(&mut *transaction, &event).await?;
        transaction.commit().await.map_err(Error::Connection)?;
        Ok(recorded.id)
    }
}

/// Transactions that are open at a time: a commit on a slow disk takes some 20 ms.
fn lanes(rate: f64) -> usize {
    [50.0, 100.0, 200.0].iter().filter(|step| rate > **step).count() + 1
}

/// Says which event is next, and how long to wait before it.
#[derive(Debug)]
struct Pace {
    between: Duration,
    due: Instant,
    number: usize,
}

impl Pace {
    fn new(rate: f64, now: Instant) -> Self {
        Self { between: Duration::from_secs_f64(1.0 / rate), due: now, number: 0 }
    }

    fn next(&mut self, now: Instant) -> (usize, Duration) {
        let wait = self.due.saturating_duration_since(now);
        if now.saturating_duration_since(self.due) > BEHIND_MAX {
            self.due = now;
        }
        self.due += self.between;
        self.number += 1;
        (self.number - 1, wait)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pace_keeps_the_rate_and_makes_up_for_a_second_at_most() {
        let ms = Duration::from_millis;
        let start = system::now();
        let mut pace = Pace::new(10.0, start);
        assert_eq!(pace.next(start), (0, Duration::ZERO));
        assert_eq!(pace.next(start + ms(40)), (1, ms(60)));
        assert_eq!(pace.next(start + ms(250)), (2, Duration::ZERO));
        // Half a second late: caught up without waiting. An hour late: from there on at the rate.
        assert_eq!(pace.next(start + ms(700)), (3, Duration::ZERO));
        let late = start + Duration::from_hours(1);
        assert_eq!(pace.next(late), (4, Duration::ZERO));
        assert_eq!(pace.next(late), (5, ms(100)));
    }
}
