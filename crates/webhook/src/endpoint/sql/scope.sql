-- The scope function, and what it failed with.
-- Called by: endpoint/pg.rs.
-- Locks: none.
-- Index: none, there is one row.
select postrider.scope_name(), ((extract(epoch from f.declared_at) * 1000000)::bigint)::text, f.failures::text,
       ((extract(epoch from f.failed_at) * 1000000)::bigint)::text, f.error
  from postrider.scope_function f
