-- Saves an endpoint named $1 of owner $2 at url $3 for types $4, with its subscription of kind $5; timeout $6 ms, $7 attempts.
-- Called by: endpoint/pg.rs, once for each new endpoint.
-- Locks: what postrider.put_subscription takes.
-- Index: an_owner_names_an_endpoint_once.
with fresh as materialized (
    select nextval('postrider.endpoint_id') as id
), subscribed as materialized (
    select f.id, postrider.put_subscription('webhook.endpoint-' || f.id, $4::text[], $5::text, $2::text, 0, true, 'webhook')
           as subscription
      from fresh f
)
insert into postrider.endpoint (id, subscription, name, owner, url, types, timeout_ms, max_attempts)
select s.id, s.subscription, $1::text, $2::text, $3::text, $4::text[], $6::bigint, $7::bigint from subscribed s
returning id::text
