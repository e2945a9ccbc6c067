-- Enqueues one job, and tells the transaction's id and the moment of the answer.
-- Called by: job/mod.rs, in the caller's transaction, on any driver.
-- Locks: none.
-- Index: kind_pkey; writes job_pkey, ready_pkey or later_pkey.
select id::text, fresh::text, replaced::text, pg_current_xact_id()::text, (date_part('epoch', clock_timestamp()) * 1000000)::bigint::text,
       (date_part('epoch', until) * 1000000)::bigint::text
  from postrider.enqueue($1::text, $2::text::json, $3::text, $4::text::int, $5::text::int, $6::text::timestamptz, $7::text)
