-- What became of a transaction whose commit was not answered, by what it wrote.
-- Called by: record/mod.rs.
-- Locks: none.
-- Index: event_pkey or job_pkey.
select postrider.resolve($1::text, $2::text::uuid, $3::text::bigint, $4::text::timestamptz)
