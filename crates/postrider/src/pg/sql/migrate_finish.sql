-- Everything is private unless granted: other roles enter by the functions that they are given.
-- Called by: pg/migrate.rs, after the last migration.
-- Locks: catalogue rows.
-- Index: none.
revoke all on all tables in schema postrider from public;
revoke all on all sequences in schema postrider from public;
revoke execute on all functions in schema postrider from public;
