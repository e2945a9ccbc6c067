-- Writes an attempt without an outcome for each claimed job: ids $1, leases $2, attempts $3, subscriptions $4, events $5.
-- Called by: deliver/pg.rs, in the transaction of each claim.
-- Locks: none.
-- Index: a_subscription_has_one_endpoint, delivery_attempt_pkey.
insert into postrider.delivery_attempt (class, id, lease, attempt, endpoint, event, trigger)
select (j.id & 3)::smallint, j.id, j.lease, j.attempt, e.id, nullif(j.event, '')::uuid, 'auto'
  from unnest($1::text[]::bigint[], $2::bigint[], $3::bigint[], $4::bigint[], $5::text[])
       as j (id, lease, attempt, subscription, event)
  left join postrider.endpoint e on e.subscription = j.subscription
    on conflict do nothing
