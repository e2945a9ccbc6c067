-- Makes what was set aside due again: of event $1, of subscription $2, of all where null.
-- Called by: proof/pg.rs.
-- Locks: these rows of poison.
-- Index: poison_due, poison_pkey.
select postrider.requeue($1::text::uuid, $2::text)::text
