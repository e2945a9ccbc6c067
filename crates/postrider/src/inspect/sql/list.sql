-- The newest jobs that match a filter, before one; the row without an id tells how far was looked, if there is more.
-- Called by: run/native.rs.
-- Locks: none.
-- Index: job_pkey.
select id::text, looked::text from postrider.list_jobs($1::text::json, $2::bigint, $3::int, 10000)
