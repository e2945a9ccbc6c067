-- Ends the session of whoever relays at this moment.
-- Called by: conformance/relay.rs, again and again.
-- Locks: none.
-- Index: none.
select pid::text, pg_terminate_backend(pid)::text
  from pg_locks
 where locktype = 'advisory' and classid = 7305 and objid = 1 and granted and pid <> pg_backend_pid()
   and database = (select oid from pg_database where datname = current_database())
