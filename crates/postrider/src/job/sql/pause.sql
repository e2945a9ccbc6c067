-- Pauses a queue or lets it go on.
-- Called by: job/act.rs.
-- Locks: the row of the queue.
-- Index: queue_pkey.
select postrider.pause($1::text, $2::text::boolean)::text
