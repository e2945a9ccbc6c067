-- Holds everything that leaves, for reason $1.
-- Called by: proof/pg.rs.
-- Locks: the row of instance.
-- Index: none.
select postrider.pause_outbound($1::text)::text
