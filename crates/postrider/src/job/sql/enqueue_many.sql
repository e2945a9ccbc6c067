-- Enqueues an array of jobs; answers in its order, and tells the transaction's id and the moment of the answer.
-- Called by: job/mod.rs, in the caller's transaction, on any driver.
-- Locks: none.
-- Index: kind_pkey; writes job_pkey, ready_pkey or later_pkey.
select id::text, fresh::text, replaced::text, pg_current_xact_id()::text, (date_part('epoch', clock_timestamp()) * 1000000)::bigint::text,
       (date_part('epoch', until) * 1000000)::bigint::text
  from postrider.enqueue_many($1::text::json)
