-- The newest $2 events of type $1 that were taken although their data did not fit.
-- Called by: record/catalogue.rs.
-- Locks: none.
-- Index: type_mismatch_of_type, event_pkey.
select event::text, version::text, problem, ((extract(epoch from recorded_at) * 1000000)::bigint)::text
  from postrider.mismatches($1::text, $2::int)
