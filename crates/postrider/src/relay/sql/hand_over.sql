-- One slice of what was recorded before a new subscription, twice $1 events at most, and its take-over when nothing is left; $2: what cannot become a job is set aside.
-- Called by: relay/task.rs, after each pass while a subscription starts.
-- Locks: the advisory lock of relays, until the pass commits.
-- Index: event_pkey, event_cut, route_pkey, cut_pkey.
select n, jobs, more, open_writers, why, starting, aside, retry_in_ms from postrider.hand_over($1::int, false, $2::boolean)
