-- What became of a transaction whose commit was not answered.
-- Called by: record/mod.rs.
-- Locks: none.
-- Index: none.
select postrider.resolve($1::text)
