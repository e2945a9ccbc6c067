-- Starts the replay $1, or lets it go on.
-- Called by: replay/pg.rs.
-- Locks: the replay's row.
-- Index: delivery_replay_pkey.
select postrider.start_replay($1::bigint)::text
