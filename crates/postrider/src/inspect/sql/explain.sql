-- Why a job has not run, in words.
-- Called by: run/native.rs.
-- Locks: none.
-- Index: job_pkey, done_pkey, attempt_pkey, ready_pkey, ready_moved, later_pkey, later_moved, parked_job, uniq_pkey.
select postrider.explain($1::bigint)
