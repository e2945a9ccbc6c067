-- Lets what leaves go on.
-- Called by: proof/pg.rs.
-- Locks: the row of instance.
-- Index: none.
select postrider.resume_outbound()::text
