-- What is wrong in the schema at this moment, one line for each finding; nothing if all is well.
-- Called by: interleave/judge.rs, after each order and after a storm.
-- Locks: none.
-- Index: none, it reads everything.
with job as materialized (
    -- read once: each look at a partitioned table costs as much as it has partitions
    select id, event_seq, subscription, unique_hash, unique_mode, queue, order_key, limit_key from postrider.job
), event as materialized (
    select seq from postrider.event
), place as materialized (
    select id, 'ready' as place, attempt, losses, null::smallint as ended_as from postrider.ready
    union all select id, 'later', attempt, losses, null from postrider.later
    union all select id, 'parked', attempt, losses, null from postrider.parked
    union all select o.id, 'leased', l.attempts[array_position(l.ids, o.id)], l.losses[array_position(l.ids, o.id)], null
                from postrider.lease l cross join unnest(l.open) o (id)
    union all select id, 'done', attempt, null, ended_as from postrider.done
), turn as materialized (
    -- whoever has the turn of an order key, wherever it is; those in line are leased along with it
    select id, queue, order_key, 'ready' as place from postrider.ready where flags & 2 <> 0
    union all select id, queue, order_key, 'later why ' || why || ', flags ' || flags from postrider.later where flags & 2 <> 0
    union all select id, queue, order_key, 'parked ' || key from postrider.parked where flags & 2 <> 0
    union all select u.id, l.queue, u.order_key, 'lease ' || l.id
                from postrider.lease l cross join unnest(l.ids, l.order_keys) u (id, order_key)
               where u.order_key is not null and u.id = any (l.open)
                 and not exists (select from postrider.lane x where x.queue = l.queue and x.key = 'order:' || u.order_key and u.id = any (x.line))
), history as (
    -- a completed attempt and one that runs leave no row; an attempt that ended by itself clears its job of its losses
    select id, count(*) filter (where outcome in (2, 4)) as failed, count(*) filter (where outcome = 3) as lost,
           count(*) filter (where outcome = 3 and lease > cleared) as losses,
           count(distinct attempt) filter (where outcome in (2, 4)) as numbers
      from (select t.id, lease, attempt, outcome,
                   coalesce(max(lease) filter (where outcome in (2, 4)) over (partition by t.id), 0) as cleared
              from postrider.attempt t
             -- what was before an operator let it run again is another life's
             where lease > coalesce((select max(r.lease) from postrider.revived r where r.id = t.id), 0)) a
     group by id
), counted as (
    select p.*, coalesce(h.lost, 0) as lost, coalesce(h.losses, 0) as losses_max,
           coalesce(h.failed, 0) + (p.place = 'leased' or coalesce(p.ended_as, 0) = 1)::int as least,
           -- a cancelled one may have been running without an outcome of its own
           (coalesce(p.ended_as, 0) = 5)::int as unsaid
      from place p left join history h using (id)
), compiled as (
    select t.name as type, s.owner, s.id as subscription, s.kind, k.queue, k.priority, k.max_attempts, k.class, s.delay_ms
      from postrider.subscription s
      join postrider.kind k on k.name = s.kind
      join postrider.event_type t on (not s.outward or t.exposure = 'public')
       and exists (select from unnest(s.types) p where t.name ~ postrider.pattern_regex(p))
     where s.removed_at is null
)
select format('job %s is in %s places: %s', j.id, count(p.place), string_agg(p.place, ', ' order by p.place))
  from job j left join place p using (id) group by j.id having count(p.place) <> 1
union all
select format('%s holds job %s, which does not exist', p.place, p.id)
  from place p where not exists (select from job j where j.id = p.id)
union all
select format('job %s is %s at attempt %s with %s losses, but its history says at least %s and at most %s losses',
              c.id, c.place, c.attempt, c.losses, c.least, c.losses_max)
  from counted c
 where c.attempt is null or c.attempt not between c.least and c.least + c.lost + c.unsaid or c.losses > c.losses_max
union all
select format('job %s failed twice under one number', h.id) from history h where h.failed <> h.numbers
union all
select format('lease %s is broken: ids %s, open %s', l.id, l.ids, l.open)
  from postrider.lease l
 where cardinality(l.open) = 0 or not l.open <@ l.ids
    or cardinality(l.open) <> (select count(distinct o) from unnest(l.open) o)
    or cardinality(l.ids) <> all (array[cardinality(l.positions), cardinality(l.attempts), cardinality(l.losses),
                                        cardinality(l.flags), cardinality(l.priorities), cardinality(l.shares)])
union all
select format('%s suspects of queue %s run or are about to at once', count(*), queue) from (
    select queue from postrider.ready r where r.flags & 8 <> 0
    union all
    select queue from postrider.lease l cross join unnest(l.ids, l.flags) u (id, f) where u.f & 8 <> 0 and u.id = any (l.open)) s
 group by queue having count(*) > 1
union all
select format('group %s of mode %s stands for job %s, which is %s', u.hash, u.mode, u.job, coalesce(p.place, 'gone'))
  from postrider.uniq u left join place p on p.id = u.job
 where u.mode in (1, 2, 5) and u.job is not null and coalesce(p.place, 'done') = 'done'
   and not exists (select from postrider.unsettled s where s.id = u.job)
union all
select format('group %s of mode %s says that job %s runs, which is %s', u.hash, u.mode, u.running, coalesce(p.place, 'gone'))
  from postrider.uniq u left join place p on p.id = u.running
 where u.running is not null and coalesce(p.place, 'done') = 'done'
   and not exists (select from postrider.unsettled s where s.id = u.running)
union all
select format('%s jobs of group %s, of which one may run, run at once', count(*), j.unique_hash)
  from place p join postrider.job j using (id) where p.place = 'leased' and j.unique_mode = 5
 group by j.unique_hash having count(*) > 1
union all
select format('job %s waits behind nobody', q.id)
  from postrider.parked q
 where q.key like 'unique:%' and not exists (
    select from postrider.uniq u where q.key = 'unique:' || encode(u.hash, 'hex') and u.running is not null)
   and not exists (select from postrider.unsettled s)
union all
select format('%s jobs of order key %s have its turn: %s', count(*), t.order_key, array_agg(t.id))
  from turn t group by t.queue, t.order_key having count(*) > 1
union all
select format('job %s (%s) has the turn of order key %s, and its lane says %s', t.id, t.place, t.order_key, coalesce(l.holder::text, 'nobody'))
  from turn t left join postrider.lane l on l.queue = t.queue and l.key = 'order:' || t.order_key
 where l.holder is distinct from t.id
   and not exists (select from postrider.lane_call c where c.queue = t.queue and c.key = 'order:' || t.order_key)
union all
select format('jobs of order key %s are in %s leases', u.order_key, count(distinct l.id))
  from postrider.lease l cross join unnest(l.ids, l.order_keys) u (id, order_key)
 where u.order_key is not null and u.id = any (l.open)
   and not exists (select from postrider.lane_call c where c.queue = l.queue and c.key = 'order:' || u.order_key)
 group by l.queue, u.order_key having count(distinct l.worker) > 1
union all
select format('lane %s is kept by job %s, which does not have its turn', l.key, l.holder)
  from postrider.lane l
 where l.holder is not null and not exists (select from turn t where t.id = l.holder)
   and not exists (select from postrider.lane_call c where c.queue = l.queue and c.key = l.key)
union all
select format('job %s waits behind %s, and nobody will wake it', p.id, p.key)
  from postrider.parked p left join postrider.lane l on l.queue = p.queue and l.key = p.key
 where p.key like 'order:%' and l.holder is null and l.stopped_at is null
   and not exists (select from postrider.lane_call c where c.queue = p.queue and c.key = p.key)
   and not exists (select from postrider.ready r where r.queue = p.queue and r.order_key = p.order_key and r.id < p.id)
union all
select format('job %s waits below the low-water mark of %s', p.id, p.key)
  from postrider.parked p join postrider.lane l on l.queue = p.queue and l.key = p.key
 where p.pos < l.low_parked and not exists (select from postrider.lane_call c where c.queue = p.queue and c.key = p.key)
union all
select format('%s jobs of limit key %s run at once, of which %s may', count(*), j.limit_key, k.most)
  from place p join job j using (id) join postrider.key_limit k on k.queue = j.queue and k.key = j.limit_key
 where p.place = 'leased' group by j.queue, j.limit_key, k.most having count(*) > k.most
union all
select format('job %s waits for room in %s, and nobody will wake it', p.id, p.key)
  from postrider.parked p left join postrider.lane l on l.queue = p.queue and l.key = p.key
 where p.key like 'limit:%' and l.due_at is null
   and not exists (select from postrider.lane_call c where c.queue = p.queue and c.key = p.key)
   and not exists (select from place x join job j using (id)
                    where x.place in ('leased', 'ready') and j.queue = p.queue and 'limit:' || j.limit_key = p.key)
union all
select format('event %s has %s jobs for subscription %s', j.event_seq, count(*), j.subscription)
  from job j where j.event_seq is not null group by j.event_seq, j.subscription having count(*) > 1
union all
select format('job %s is for event %s, which does not exist', j.id, j.event_seq)
  from job j
 where j.event_seq is not null and not exists (select from postrider.event e where e.seq = j.event_seq)
union all
select format('key %s stands for event %s, which does not exist', i.key, i.event_id)
  from postrider.idempotency i where not exists (select from event e where e.seq = postrider.event_seq(i.event_id))
union all
select format('cut %s counts %s events and %s jobs, the sum up to it is %s and %s', c.no, c.events_total, c.jobs_total, c.n, c.jobs)
  from (select no, events_total, jobs_total, sum(n) over (order by no) as n, sum(jobs) over (order by no) as jobs from postrider.cut) c
 where (c.events_total, c.jobs_total) is distinct from (c.n, c.jobs)
union all
select format('route %s of %L, subscription %s: %s', type, owner, subscription,
              case when r.kind is null then 'is missing' when c.kind is null then 'is left over' else 'is out of date' end)
  from compiled c full join postrider.route r using (type, owner, subscription)
 where (c.kind, c.queue, c.priority, c.max_attempts, c.class, c.delay_ms)
       is distinct from (r.kind, r.queue, r.priority, r.max_attempts, r.class, r.delay_ms)
