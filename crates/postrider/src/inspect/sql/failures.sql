-- The groups of failures of a kind, or of all; what failed since the last look is grouped before.
-- Called by: inspect/mod.rs.
-- Locks: the rows of failed and failure, one at a time in the database.
-- Index: failure_pkey, attempt_pkey, job_pkey, done_pkey.
select kind::text, fingerprint, says, sample, n::text, discarded::text, ((extract(epoch from first_at) * 1000000)::bigint)::text,
       ((extract(epoch from last_at) * 1000000)::bigint)::text, last_job::text
  from postrider.failures($1::text, $2::int)
