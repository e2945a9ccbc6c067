-- Removes jobs with their history.
-- Called by: job/act.rs, in the caller's transaction or in one of its own.
-- Locks: everything of these jobs.
-- Index: job_pkey, done_pkey, attempt_pkey, ready_pkey, ready_moved, later_pkey, later_moved, parked_job, uniq_pkey.
select id::text, effect, state from postrider.delete($1::bigint[])
