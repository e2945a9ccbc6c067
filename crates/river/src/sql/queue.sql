-- Makes River's row of queue $1 if there is none, so that a queue which nobody has served yet can be paused.
-- Called by: jobs.rs, before a queue is paused.
-- Locks: the row.
-- Index: river_queue_pkey.
insert into river_queue (name, updated_at) values ($1, pg_catalog.now()) on conflict (name) do nothing
