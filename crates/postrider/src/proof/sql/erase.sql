-- Erases the data of event $1, for reason $2.
-- Called by: proof/pg.rs.
-- Locks: the row of the event.
-- Index: event_pkey, erased_pkey.
select postrider.erase($1::text::uuid, $2::text)::text
