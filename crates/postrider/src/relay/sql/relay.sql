-- One pass of the relay over at most $1 events; $2: what cannot become a job is set aside.
-- Called by: relay/task.rs, alone in its transaction.
-- Locks: the advisory lock of relays, until the pass commits.
-- Index: event_cut, event_pkey, route_pkey, cut_pkey.
select n, jobs, more, open_writers, why, starting, aside, retry_in_ms from postrider.relay($1::int, false, $2::boolean)
