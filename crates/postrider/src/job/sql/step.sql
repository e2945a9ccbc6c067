-- The next jobs of a plan; the row without a state tells how far was looked.
-- Called by: job/act.rs, once for each batch.
-- Locks: none.
-- Index: job_pkey.
select id::text, state from postrider.find_jobs($1::text::json, $2::bigint, $3::bigint, $4::int)
