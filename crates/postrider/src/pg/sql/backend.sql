-- Which session of the server this is.
-- Called by: pg/pooler.rs, when a bus is built.
-- Locks: none.
-- Index: none.
select pg_backend_pid()
