-- What needs somebody, the gravest first.
-- Called by: inspect/mod.rs.
-- Locks: as failures.sql.
-- Index: ready_pkey, parked_pkey, job_pkey, attempt_pkey, event_cut, cut_pkey.
select name, severity, subject, ((extract(epoch from since) * 1000000)::bigint)::text, says, remedy from postrider.alerts()
