-- The subscriptions by name after $1, at most $2.
-- Called by: inspect/subscription.rs.
-- Locks: none.
-- Index: subscription_name_key, subscription_start_pkey.
select name, owner, array_to_json(types)::text, kind, state, delay_ms::text, coalesce(predicate, ''), coalesce(order_by, ''),
       coalesce(order_policy, ''), coalescing::text, outward::text, declared_by,
       ((extract(epoch from created_at) * 1000000)::bigint)::text, ((extract(epoch from seen_at) * 1000000)::bigint)::text, started_events::text
  from postrider.subscriptions($1::text, $2::int)
