-- Worker $1 says goodbye; what it holds all the same is handed back.
-- Called by: run/beat.rs, last.
-- Locks: the own worker row and leases.
-- Index: worker_pkey, lease_of_worker.
select postrider.leave($1::uuid)
