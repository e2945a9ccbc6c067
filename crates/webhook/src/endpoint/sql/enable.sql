-- Enables the endpoint $1.
-- Called by: endpoint/pg.rs.
-- Locks: the endpoint's row.
-- Index: endpoint_pkey.
update postrider.endpoint set disabled_at = null, disabled_reason = null
 where id = $1::bigint and disabled_at is not null and deleted_at is null
returning id::text
