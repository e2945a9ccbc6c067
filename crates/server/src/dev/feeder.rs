use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use postrider::{Arg, Recorder, Tx as _};
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
pub struct Feeder {
    /// The database that business rows and events share.
    pub pool: PgPool,
    /// Records events.
    pub recorder: Recorder,
    /// What to record, in this order.
    pub lines: Vec<Line>,
    /// Events per second.
    pub rate: f64,
    /// Whether to begin again after the last line.
    pub again: bool,
    /// What was seen.
    pub figures: Arc<Figures>,
}

impl Feeder {
    /// Records until it is told to stop, or through with the lines.
    pub async fn feed(self, stop: CancellationToken) -> anyhow::Result<()> {
        let mut pace = Pace::new(self.rate, system::now());
        loop {
            for line in &self.lines {
                let wait = pace.next(system::now());
                tokio::select! {
                    () = stop.cancelled() => return Ok(()),
                    () = tokio::time::sleep(wait), if !wait.is_zero() => {}
                    () = std::future::ready(()), if wait.is_zero() => {}
                }
                if !self.insist(line, &stop).await? {
                    return Ok(());
                }
            }
            if !self.again {
                return Ok(());
            }
            business::forget_old(&self.pool).await?;
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
    async fn record(&self, line: &Line) -> Result<EventId, postrider::Error> {
        let mut transaction = self.pool.begin().await?;
        transaction.run(&business::TOUCH, &[Arg::Text(&line.subject), Arg::Text(&line.r#type)]).await?;
        let event = NewEvent::new(line.r#type.as_str(), line.subject.as_str(), line.data.clone());
        let recorded = self.recorder.record(&mut *transaction, &event).await?;
        transaction.commit().await?;
        Ok(recorded.id)
    }
}

/// Says how long to wait before the next event.
#[derive(Debug)]
struct Pace {
    between: Duration,
    due: Instant,
}

impl Pace {
    fn new(rate: f64, now: Instant) -> Self {
        Self { between: Duration::from_secs_f64(1.0 / rate), due: now }
    }

    fn next(&mut self, now: Instant) -> Duration {
        let wait = self.due.saturating_duration_since(now);
        if now.saturating_duration_since(self.due) > BEHIND_MAX {
            self.due = now;
        }
        self.due += self.between;
        wait
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
        assert_eq!(pace.next(start), Duration::ZERO);
        assert_eq!(pace.next(start + ms(40)), ms(60));
        assert_eq!(pace.next(start + ms(250)), Duration::ZERO);
        // Half a second late: caught up without waiting. An hour late: from there on at the rate.
        assert_eq!(pace.next(start + ms(700)), Duration::ZERO);
        let late = start + Duration::from_hours(1);
        assert_eq!(pace.next(late), Duration::ZERO);
        assert_eq!(pace.next(late), ms(100));
    }
}
