use postrider_contract::{JobId, Missed, Overlap, Timestamp, When};
use sqlx::PgPool;

use super::decide::{Row, Times};
use super::pg;
use crate::error::Error;
use crate::pg::borrow;

/// Due times that a view tells.
const AHEAD: usize = 5;

/// A schedule as an operator sees it.
#[expect(clippy::struct_excessive_bools, reason = "they are facts, each by itself")]
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ScheduleView {
    /// Its name.
    pub name: String,
    /// When it is due.
    pub when: When,
    /// The zone whose wall clock a cron expression means.
    pub zone: String,
    /// The kind of its jobs.
    pub kind: String,
    /// Whose its jobs are.
    pub owner: String,
    /// What becomes of due times that nobody was there for.
    pub missed: Missed,
    /// What becomes of a due time while the run before it has not ended.
    pub overlap: Overlap,
    /// Whether it also runs when a process that declares it starts.
    pub run_at_start: bool,
    /// An operator paused it.
    pub paused: bool,
    /// No process that is alive declares it: it does not come.
    pub orphaned: bool,
    /// Declared in SQL: every process fires it, until it is forgotten.
    pub standing: bool,
    /// Why nobody can tell when it comes next.
    pub problem: Option<String>,
    /// Its next five due times; none while it is paused, orphaned or has a problem.
    pub next: Vec<Timestamp>,
    /// Its last due time that has passed.
    pub due_at: Option<Timestamp>,
    /// When it last made a job.
    pub ran_at: Option<Timestamp>,
    /// That job.
    pub last_job: Option<JobId>,
    /// How many jobs it made, also those asked for by hand.
    pub runs: u64,
    /// Due times that were not run, since nobody was there in time.
    pub missed_runs: u64,
    /// Due times that were not run, since the run before had not ended.
    pub overlapped_runs: u64,
    /// The application that declared it.
    pub declared_by: String,
}

impl ScheduleView {
    /// Fills in when it comes next. A row that this process cannot read, it can at least show.
    pub(super) fn look_ahead(&mut self, row: &Row) {
        if self.paused || self.orphaned || self.problem.is_some() {
            return;
        }
        let Ok(times) = Times::read(&self.name, &self.when, &self.zone) else { return };
        let first = row.first(&times);
        let next = first.into_iter().flat_map(|first| times.from(first)).take(AHEAD);
        self.next = next.map(Timestamp::from_micros).collect();
    }
}

/// What an operator does with schedules, and sees of them.
#[derive(Debug, Clone)]
pub struct Schedules {
    pool: PgPool,
}

impl Schedules {
    /// Over a pool.
    pub fn new(pool: PgPool) -> Self {
        Self { pool }
    }

    /// All of them, by name.
    pub async fn list(&self) -> Result<Vec<ScheduleView>, Error> {
        let mut connection = borrow(&self.pool).await?;
        let mut all: Vec<ScheduleView> = Vec::new();
        loop {
            let after = all.last().map_or(String::new(), |view| view.name.clone());
            let page = pg::list(&mut connection, &after).await?;
            if page.is_empty() {
                return Ok(all);
            }
            all.extend(page);
        }
    }

    /// Runs one now, whatever else of it runs, also if it is paused; when it comes next stays. Refuses an unknown name.
    pub async fn run(&self, name: &str) -> Result<JobId, Error> {
        pg::run(&mut borrow(&self.pool).await?, name).await
    }

    /// Pauses one or lets it go on. What is due meanwhile is not missed: it is none. Refuses an unknown name.
    pub async fn pause(&self, name: &str, paused: bool) -> Result<(), Error> {
        pg::pause(&mut borrow(&self.pool).await?, name, paused).await
    }

    /// Forgets one; its jobs stay. One that an application declares comes back with its next start. Refuses an unknown name.
    pub async fn forget(&self, name: &str) -> Result<(), Error> {
        pg::forget(&mut borrow(&self.pool).await?, name).await
    }
}
