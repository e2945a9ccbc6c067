use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::time::Duration;

use postrider_contract::{Class, Refused};

use super::Builder;
use super::check::option;
use crate::error::Error;
use crate::pg::{Arg, Statement, Tx};

pub(super) const KEEP_FOR: Statement = crate::statement!("../sql/keep_for.sql");

/// How long something may be kept.
const RANGE: RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_hours(3_660 * 24);

/// How long what is over is kept, as far as the application says so.
#[derive(Debug, Clone, Default)]
pub(super) struct Kept(BTreeMap<&'static str, Duration>);

impl Kept {
    pub(super) fn refusals(&self) -> impl Iterator<Item = Refused> {
        self.0.iter().filter(|(_, time)| !RANGE.contains(time)).map(|(what, time)| {
            let message = format!("{what}: {time:?} is out of range");
            option("keep", message, "use a second at least and ten years at most")
        })
    }

    pub(super) async fn declare(&self, tx: &mut dyn Tx, app: &str, generation: i64) -> Result<(), Error> {
        for (what, time) in &self.0 {
            let time = i64::try_from(time.as_millis()).unwrap_or(i64::MAX);
            tx.run(&KEEP_FOR, &[Arg::Text(what), Arg::Int(time), Arg::Text(app), Arg::Int(generation)]).await?;
        }
        Ok(())
    }
}

impl Builder {
    /// How long jobs of a class are kept after they have ended, at least. They go with the partition of the day on which they were enqueued, of
    /// the class long of the week. Default: a day, a week, ninety days.
    #[must_use]
    pub fn keep(mut self, class: Class, time: Duration) -> Self {
        let name = match class {
            Class::Short => "short",
            Class::Standard => "standard",
            Class::Long => "long",
        };
        self.kept.0.insert(name, time);
        self
    }

    /// How long events are kept, at least; while a job that was made of them is kept, they are too. Default: thirty days.
    #[must_use]
    pub fn keep_events(mut self, time: Duration) -> Self {
        self.kept.0.insert("event", time);
        self
    }
}
