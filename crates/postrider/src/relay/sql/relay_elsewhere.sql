-- One pass of the relay over at most $1 events for another engine, which makes the jobs that are told in the same transaction; $2: pairs that it refuses.
-- Called by: relay/elsewhere.rs, first in its transaction.
-- Locks: the advisory lock of relays, until the pass commits.
-- Index: event_cut, event_pkey, route_pkey, cut_pkey.
select n, jobs, more, open_writers, why, starting, aside, retry_in_ms, matched::text from postrider.relay($1::int, true, false, $2::text::json)
