-- Cancels jobs.
-- Called by: job/act.rs, in the caller's transaction or in one of its own.
-- Locks: the rows where they wait, or the leases that they run under, waiting for neither.
-- Index: job_pkey, done_pkey, ready_pkey, ready_moved, later_pkey, later_moved, parked_job.
select id::text, effect, state from postrider.cancel($1::bigint[])
