-- Forgets which events were counted more than a day ago.
-- Called by: dev/business.rs, once a round of the feeder.
-- Locks: the rows that go.
-- Index: counted_old.
delete from demo.counted where counted_at < clock_timestamp() - interval '1 day'
