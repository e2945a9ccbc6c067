-- Whether the server only reads: a standby that was not promoted.
-- Called by: http/ask.rs, at most once a second.
-- Locks: none.
-- Index: none.
select pg_is_in_recovery()::text
