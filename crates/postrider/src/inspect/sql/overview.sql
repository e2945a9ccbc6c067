-- The whole bus at a glance; counts stop at 10 000, so that no backlog makes the look slow.
-- Called by: inspect/mod.rs.
-- Locks: none.
-- Index: cut_pkey, ready_pkey, later_pkey, later_moved, parked_pkey, worker_pkey.
select events, jobs, ready, later, retrying, parked, running, workers, oldest_us from postrider.glance()
