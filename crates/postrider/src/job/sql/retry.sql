-- Lets jobs run again.
-- Called by: job/act.rs, in the caller's transaction or in one of its own.
-- Locks: the rows of how they ended, or of later.
-- Index: job_pkey, done_pkey, later_pkey, later_moved.
select id::text, effect, state from postrider.retry($1::bigint[])
