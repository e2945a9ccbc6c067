-- The last $1 deliveries, newest first, among the last 10 000 jobs of their class; $2 is their kind.
-- Called by: endpoint/pg.rs, for a page.
-- Locks: none.
-- Index: job_pkey, done_pkey, delivery_attempt_pkey, a_subscription_has_one_endpoint.
select j.id::text, e.id::text, e.name,
       case when d.id is not null then (array['-', 'delivered', 'discarded', 'cancelled'])[d.state]
            when a.id is not null and a.outcome is null then 'sending' when e.disabled_at is not null then 'held'
            when a.id is null then 'waiting' else 'retrying' end,
       coalesce(a.made, 0)::text, a.status::text, coalesce(d.reason, a.reason),
       ((extract(epoch from j.created_at) * 1000000)::bigint)::text,
       ((extract(epoch from d.finished_at) * 1000000)::bigint)::text
  from (select * from (select * from postrider.job where class = 2 order by id desc limit 10000) l where l.kind = $2::text offset 0) j
  join lateral (
        select x.* from postrider.endpoint x where x.subscription = j.subscription
        union all
        select y.* from postrider.endpoint y where j.subscription is null and y.id = (j.args ->> 'endpoint')::bigint) e on true
  left join postrider.done d on d.class = j.class and d.id = j.id
  left join lateral (
        select x.id, x.outcome, x.status, x.reason, count(*) over () as made
          from postrider.delivery_attempt x where x.class = j.class and x.id = j.id
         order by x.lease desc limit 1) a on true
 order by j.id desc limit $1::bigint
