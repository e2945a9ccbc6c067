-- The id of this transaction.
-- Called by: jobs.rs, once for each call that enqueues.
-- Locks: none.
-- Index: none.
select pg_catalog.pg_current_xact_id()::text
