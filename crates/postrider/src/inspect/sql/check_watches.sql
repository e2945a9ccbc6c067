-- Where watches are not as they were declared, and what gets past them.
-- Called by: inspect/mod.rs.
-- Locks: none.
-- Index: watch_pkey; reads pg_trigger whole.
select watch, relation, severity, problem, says, remedy from postrider.check_watches()
