-- Declares the scope function $1, or takes it away.
-- Called by: endpoint/pg.rs.
-- Locks: the row of scope_function.
-- Index: none, there is one row.
select postrider.set_scope($1::text)::text
