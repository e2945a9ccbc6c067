-- The secrets of the endpoint $1 that are valid now, the newest first, sealed.
-- Called by: endpoint/pg.rs, for a list and for the public keys.
-- Locks: none.
-- Index: secret_of_endpoint.
select s.id::text, s.kind, ((extract(epoch from s.valid_from) * 1000000)::bigint)::text,
       ((extract(epoch from s.valid_until) * 1000000)::bigint)::text, s.key_id, encode(s.sealed, 'base64')
  from postrider.endpoint_secret s
 where s.endpoint = $1::bigint and s.valid_from <= clock_timestamp() and (s.valid_until is null or s.valid_until > clock_timestamp())
 order by s.valid_from desc, s.id
