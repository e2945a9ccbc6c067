-- How many jobs match a filter, up to a last one, and how far was looked.
-- Called by: job/act.rs, before an act by filter.
-- Locks: none.
-- Index: job_pkey.
select count(*) filter (where state is not null)::text, max(id) filter (where state is null)::text
  from postrider.find_jobs($1::text::json, 0, $2::bigint, $3::int)
