-- The endpoint of subscription $1, once for each of its valid secrets, the newest first.
-- Called by: deliver/pg.rs, once for each attempt.
-- Locks: none.
-- Index: a_subscription_has_one_endpoint, secret_of_endpoint.
select e.id::text, e.url, e.format::text, e.timeout_ms::text, e.max_attempts::text, (e.disabled_at is not null)::text,
       (e.deleted_at is not null)::text, s.id::text, s.key_id, encode(s.sealed, 'base64')
  from postrider.endpoint e
  left join postrider.endpoint_secret s
    on s.endpoint = e.id and s.kind = 'v1' and s.valid_from <= clock_timestamp()
   and (s.valid_until is null or s.valid_until > clock_timestamp())
 where e.subscription = $1::bigint
 order by s.valid_from desc, s.id
