-- Our statements need READ COMMITTED, whatever the database or the role has as its default.
-- Called by: pg/link.rs, once for each connection of our own.
-- Locks: none.
-- Index: none.
set default_transaction_isolation = 'read committed'
