-- Disables the endpoint $1 for the reason $2; the first reason stays.
-- Called by: endpoint/pg.rs, for an operator and for an answer of 410.
-- Locks: the endpoint's row.
-- Index: endpoint_pkey.
update postrider.endpoint set disabled_at = clock_timestamp(), disabled_reason = $2::text
 where id = $1::bigint and disabled_at is null and deleted_at is null
returning id::text
