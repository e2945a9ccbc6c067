-- The endpoint $1, or all of them if it is 0, without deleted ones.
-- Called by: endpoint/pg.rs, for lists and single looks.
-- Locks: none.
-- Index: endpoint_pkey.
select id::text, name, owner::text, url, array_to_json(types)::text, timeout_ms::text, max_attempts::text,
       ((extract(epoch from created_at) * 1000000)::bigint)::text,
       ((extract(epoch from disabled_at) * 1000000)::bigint)::text, disabled_reason
  from postrider.endpoint
 where ($1::bigint = 0 or id = $1::bigint) and deleted_at is null
 order by id limit 1000
