-- An attempt without an outcome for each job: ids $1, leases, attempts, subscriptions, events, triggers, ids sent, endpoints $8.
-- Called by: deliver/pg.rs, in the transaction of each claim.
-- Locks: none.
-- Index: a_subscription_has_one_endpoint, endpoint_health_pkey, delivery_attempt_pkey.
insert into postrider.delivery_attempt (class, id, lease, attempt, endpoint, event, trigger, sent_as)
select (j.id & 3)::smallint, j.id, j.lease, j.attempt, e.id, nullif(j.event, '')::uuid,
       case when j.trigger = 'auto' and h.in_flight = 1 then 'probe' else j.trigger end, nullif(j.sent_as, '')::uuid
  from unnest($1::text[]::bigint[], $2::bigint[], $3::bigint[], $4::bigint[], $5::text[], $6::text[], $7::text[], $8::bigint[])
       as j (id, lease, attempt, subscription, event, trigger, sent_as, endpoint)
  left join lateral (
        select x.id from postrider.endpoint x where x.subscription = j.subscription
        union all
        select y.id from postrider.endpoint y where y.id = j.endpoint) e on true
  left join postrider.endpoint_health h on h.endpoint = e.id
    on conflict do nothing
