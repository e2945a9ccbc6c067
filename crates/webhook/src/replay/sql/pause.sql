-- Pauses the replay $1.
-- Called by: replay/pg.rs.
-- Locks: the replay's row.
-- Index: delivery_replay_pkey.
select postrider.pause_replay($1::bigint)::text
