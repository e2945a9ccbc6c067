-- Whether there is a database of this name.
-- Called by: dev/business.rs, once at the start.
-- Locks: none.
-- Index: pg_database_datname_index.
select datname::text from pg_database where datname = $1::text
