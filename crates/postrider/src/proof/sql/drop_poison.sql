-- Lets go of what was set aside, for reason $1: of event $2, of subscription $3, of all where null.
-- Called by: proof/pg.rs.
-- Locks: these rows of poison.
-- Index: poison_due, poison_pkey.
select postrider.drop_poison($1::text, $2::text::uuid, $3::text)::text
