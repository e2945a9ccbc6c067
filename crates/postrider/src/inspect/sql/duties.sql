-- When the duties of housekeeping were last done, and what went wrong.
-- Called by: inspect/mod.rs.
-- Locks: none.
-- Index: none; the table is small.
select name, ((extract(epoch from done_at) * 1000000)::bigint)::text, took_ms::text, told::text,
       ((extract(epoch from failing_since) * 1000000)::bigint)::text, error
  from postrider.duty order by name
