-- The newest jobs that match a filter, before one.
-- Called by: inspect/mod.rs.
-- Locks: none.
-- Index: job_pkey.
select id::text from postrider.list_jobs($1::text::json, $2::bigint, $3::int, 10000) id order by id desc
