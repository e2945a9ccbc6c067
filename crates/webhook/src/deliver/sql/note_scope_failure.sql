-- Notes that the scope function failed with $1.
-- Called by: deliver/pg.rs.
-- Locks: the row of scope_function.
-- Index: none, there is one row.
select postrider.note_scope_failure($1::text)::text
