-- By when a job had ended that was there once and is kept no longer; null for any other id.
-- Called by: run/native.rs and run/wait.rs, for an id that is not found.
-- Locks: none.
-- Index: retired_pkey, job_pkey.
select ((extract(epoch from postrider.gone_since($1::bigint)) * 1000000)::bigint)::text
