use postrider_contract::Unique;

/// What an engine can do beyond enqueuing, claiming and retrying. What it cannot do it refuses, typed; it never does something else.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "each is a capability of its own")]
pub struct Capabilities {
    /// Its name, such as `native`.
    pub engine: &'static str,
    /// The modes of uniqueness that it has, by name.
    pub unique: &'static [&'static str],
    /// A duplicate may replace what waits.
    pub replace: bool,
    /// An idempotency key answers with the first job.
    pub idempotency: bool,
    /// Jobs of an owner other than the instance.
    pub owners: bool,
    /// A retry schedule given with the job.
    pub retry_per_job: bool,
    /// The cancellation of a running job reaches its handler.
    pub cancel_running: bool,
    /// Acts by filter.
    pub filters: bool,
    /// Jobs can be deleted.
    pub delete: bool,
    /// Queues can be paused.
    pub pause: bool,
    /// A handler may leave an output.
    pub output: bool,
    /// A handler may tell its progress.
    pub progress: bool,
    /// A handler may end its attempt in a transaction of its own.
    pub transactional_completion: bool,
    /// A worker that is dead is told from one that is busy, whatever the length of its jobs, and what one that was taken for dead still writes
    /// does not count.
    pub leases: bool,
    /// A kind that no live worker knows waits without spending attempts.
    pub unknown_kinds_wait: bool,
    /// Such a kind is shown as one: its jobs wait for `NoWorker`.
    pub no_worker_shown: bool,
    /// A low priority is not starved for ever.
    pub aging: bool,
    /// An attempt that holds its thread past its time is told as failed while it still does.
    pub stuck_told: bool,
    /// Snoozing is bounded by the age of the job.
    pub max_age: bool,
    /// What has ended is kept for the time of its class, and an id whose time is over is told from one that never was.
    pub tells_gone: bool,
    /// Says in words why a job has not run, and finds jobs by their args.
    pub explains: bool,
    /// Counts jobs by kind, queue and state, up to a bound.
    pub counts: bool,
    /// Schedules that are declared: jobs that come by the clock.
    pub schedules: bool,
    /// Jobs of one order key run one after the other, and lanes can be worked on.
    pub order_keys: bool,
    /// Limits of how many jobs of one key run at a time or start in a period, changed live, and holds.
    pub limits: bool,
    /// Jobs of a fair kind are claimed owner by owner in turn.
    pub fair_share: bool,
    /// Jobs have tags, and are found by them.
    pub tags: bool,
}

impl Capabilities {
    /// Whether it has this mode of uniqueness.
    pub fn has_unique(&self, unique: Unique) -> bool {
        self.unique.contains(&unique.name())
    }
}
