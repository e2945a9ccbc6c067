-- One beat of worker $1 with its report $2; answers with what it is to know. It says something on channel $3, unless the queue fills up.
-- Called by: run/beat.rs, once a second, on its own thread and connection.
-- Locks: the own worker row; dead workers' rows and leases; due rows, skipping held ones.
-- Index: worker_pkey, lease_of_worker, later_pkey, parked_pkey, ready_pkey.
select postrider.tick($1::uuid, $2::text::json)::text,
       case when $3::text is not null and pg_notification_queue_usage() < 0.5 then pg_notify($3, '')::text end
