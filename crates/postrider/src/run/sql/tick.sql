-- One beat of worker $1 with its report $2; answers with what it is to know.
-- Called by: run/beat.rs, once a second, on its own thread and connection.
-- Locks: the own worker row; dead workers' rows and leases; due rows, skipping held ones.
-- Index: worker_pkey, lease_of_worker, later_pkey, parked_pkey, ready_pkey.
select postrider.tick($1::uuid, $2::text::json)::text
