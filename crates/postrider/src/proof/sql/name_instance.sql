-- Names this database $1.
-- Called by: proof/pg.rs.
-- Locks: the row of instance, rows of stranger.
-- Index: none.
select postrider.name_instance($1::text)::text
