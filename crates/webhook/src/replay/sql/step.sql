-- Makes the next deliveries of the replay $1; its state after that.
-- Called by: replay/pg.rs, once a second while it runs.
-- Locks: the replay's row.
-- Index: delivery_replay_pkey, event_pkey, delivered_event, parked_pkey.
select postrider.step_replay($1::bigint)
