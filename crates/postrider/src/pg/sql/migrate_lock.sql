-- One migrator at a time.
-- Called by: pg/migrate.rs, first in each transaction.
-- Locks: the advisory lock of migrations, until the transaction ends.
-- Index: none.
select pg_advisory_xact_lock(7305, 0)
