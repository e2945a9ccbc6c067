-- The endpoint of subscription $1, or $5, for each valid secret; whether job $2, due since $3 µs, or any of event $4, was delivered.
-- Called by: deliver/pg.rs, once for each attempt.
-- Locks: none.
-- Index: a_subscription_has_one_endpoint, secret_of_endpoint, delivery_attempt_pkey, delivered_event.
select e.id::text, e.url, e.format::text, e.timeout_ms::text, e.max_attempts::text, (e.disabled_at is not null)::text,
       (e.deleted_at is not null)::text, s.id::text, s.key_id, encode(s.sealed, 'base64'), s.kind, array_to_json(e.steps_ms)::text, e.on_4xx,
       e.answer_contains, e.headers_key, encode(e.headers, 'base64'), ((extract(epoch from e.enabled_at) * 1000000)::bigint)::text,
       (exists (select from postrider.delivery_attempt a
                 where a.class = ($2::text::bigint & 3)::smallint and a.id = $2::text::bigint and a.outcome = 'delivered'
                   and a.started_at >= timestamptz 'epoch' + $3::bigint * interval '1 microsecond')
        or $4::text <> '' and exists (
            select from postrider.delivery_attempt a
             where a.endpoint = e.id and a.event = nullif($4::text, '')::uuid and a.outcome = 'delivered'))::text,
       (exists (select from postrider.scope_function))::text
  from postrider.endpoint e
  left join postrider.endpoint_secret s
    on s.endpoint = e.id and s.valid_from <= clock_timestamp() and (s.valid_until is null or s.valid_until > clock_timestamp())
 where e.id = (select x.id from postrider.endpoint x where x.subscription = $1::bigint
               union all select $5::bigint where $5::bigint <> 0 limit 1)
 order by s.valid_from desc, s.id
