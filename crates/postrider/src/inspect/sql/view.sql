-- Jobs as they are, each with its attempts if $2 says so.
-- Called by: inspect/mod.rs.
-- Locks: none.
-- Index: job_pkey, done_pkey, attempt_pkey, ready_pkey, ready_moved, later_pkey, later_moved, parked_job, uniq_pkey, progress_pkey.
select * from postrider.job_views($1::bigint[], $2::text::boolean)
