-- The operator's view of a job: where it is, why it waits, what became of it.
-- Locks: none.
-- By hand on a large table: nothing.

-- Jobs as they are, in the order of the ids, all as text; those that are not there are left out. The planner is pinned for the reason given
-- with postrider.claim: without it, a look at one job read all that waits.
create function postrider.job_views(ids bigint[], attempts boolean) returns table (
    id text, kind text, queue text, priority text, owner text, state text, waits text, waits_until_us text, behind text, attempt text,
    max_attempts text, args text, created_at_us text, started_at_us text, finished_at_us text, reason text, ended_as text, output text,
    percent text, note text, note_at_us text, lease text, history text,
    waits_why text, order_key text, limit_key text, tags text
)
language plpgsql stable security definer set search_path = pg_catalog, pg_temp
set jit = off set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off
set enable_mergejoin = off as $$
#variable_conflict use_column
begin
    return query
    with asked as (
        select j.*, i.o from unnest(job_views.ids) with ordinality i (id, o) join postrider.job j on j.class = (i.id & 3)::smallint and j.id = i.id
    ), waiting as (
        select a.id, r.attempt, 'due' as why, null::timestamptz as at, null::text as said, null::bigint as behind
          from asked a join postrider.ready r on r.queue = a.queue and r.priority = a.priority and r.share = coalesce(a.share, 0) and r.pos = a.id and r.id = a.id
        union all
        select a.id, r.attempt, 'due', null, null, null from asked a join postrider.ready r on r.id = a.id and r.pos <> r.id
        union all
        select a.id, y.attempt, (array['scheduled', 'backoff', 'snoozed'])[y.why + 1], y.run_at, null, null
          from asked a join postrider.later y on y.run_at = a.run_at and y.id = a.id
        union all
        select a.id, y.attempt, (array['scheduled', 'backoff', 'snoozed'])[y.why + 1], y.run_at, null, null
          from asked a join postrider.later y on y.id = a.id and y.why <> 0 and y.run_at is distinct from a.run_at
        union all
        select a.id, p.attempt, case when p.key like 'kind:%' then 'no_worker' when p.key = 'strict:' then 'suspect'
                    when p.key like 'unique:%' then 'behind' when l.stopped_at is not null then 'stopped' when l.holder is not null then 'turn'
                    when p.key like 'order:%' then 'due' when c.held_until > clock_timestamp() then 'held' else 'limited' end,
               c.held_until, coalesce(l.reason, c.reason), l.holder
          from asked a join postrider.parked p on p.id = a.id
          left join postrider.lane l on p.key like 'order:%' and l.queue = p.queue and l.key = p.key
          left join lateral (
                select k.held_until, k.reason from postrider.key_limit k
                 where p.key like 'limit:%' and k.queue = p.queue and k.key = any (array[substr(p.key, 7), ''])
                   and k.held_until > clock_timestamp() order by k.held_until desc limit 1) c on true
    )
    select j.id::text, j.kind::text, j.queue, j.priority::text, j.owner::text,
           case when d.id is not null then postrider.end_name(d.state) when l.id is not null then 'running'
                when w.attempt > 0 then 'retryable' else 'pending' end,
           case when w.why = 'due' and exists (select from postrider.queue q where q.name = j.queue and q.paused_at is not null) then 'paused'
                when w.why = 'due' and not exists (select from postrider.worker k where j.kind = any (k.kinds)) then 'no_worker'
                else w.why end,
           ((extract(epoch from w.at) * 1000000)::bigint)::text,
           coalesce(w.behind::text, (select coalesce(u.running, u.job)::text from postrider.uniq u where u.hash = j.unique_hash)),
           coalesce(d.attempt, l.attempt, w.attempt, 0)::text, j.max_attempts::text, j.args::text,
           ((extract(epoch from j.created_at) * 1000000)::bigint)::text,
           ((extract(epoch from coalesce(d.started_at, l.claimed_at)) * 1000000)::bigint)::text,
           ((extract(epoch from d.finished_at) * 1000000)::bigint)::text,
           coalesce(d.reason, case when d.id is null then (
                select a.error from postrider.attempt a where a.class = j.class and a.id = j.id order by a.lease desc limit 1) end),
           (array['completed', 'refused', 'exhausted', 'lost', 'cancelled'])[d.ended_as], d.output::text,
           p.percent::text, p.note, ((extract(epoch from p.at) * 1000000)::bigint)::text, l.id::text,
           case when job_views.attempts then (
                select json_agg(json_build_object('attempt', a.attempt,
                           'outcome', (array['completed', 'failed', 'lost', 'refused', 'cancelled'])[a.outcome],
                           'started_at', (extract(epoch from a.started_at) * 1000000)::bigint,
                           'ended_at', (extract(epoch from a.ended_at) * 1000000)::bigint, 'error', a.error) order by a.lease)
                  from postrider.attempt a where a.class = j.class and a.id = j.id)::text end,
           w.said, j.order_key::text, j.limit_key::text,
           (select json_agg(t.tag order by t.tag)::text from postrider.tag t where t.class = j.class and t.id = j.id)
      from asked j
      left join postrider.done d on d.class = j.class and d.id = j.id
      left join lateral (
            select x.id, x.claimed_at, x.attempts[array_position(x.ids, j.id)] as attempt
              from postrider.lease x where j.id = any (x.open) limit 1) l on d.id is null
      left join waiting w on w.id = j.id and d.id is null and l.id is null
      left join postrider.progress p on p.id = j.id and p.lease = l.id
     order by j.o;
end $$;

-- The whole bus at a glance, all as text. Counts stop at ten thousand, so that no backlog makes the look slow. oldest_us: for how long the
-- job that has waited longest at the head of a line has been due, whatever its queue, priority and share.
create function postrider.glance() returns table (
    events text, jobs text, ready text, later text, retrying text, parked text, running text, workers text, oldest_us text
)
language plpgsql stable security definer set search_path = pg_catalog, pg_temp
set jit = off set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off
set enable_mergejoin = off as $$
begin
    return query
    select c.events_total::text, c.jobs_total::text,
           (select count(*) from (select from postrider.ready limit 10000) x)::text,
           (select count(*) from (select from postrider.later limit 10000) x)::text,
           -- of what was moved there, which has an index
           (select count(*) filter (where x.why = 1) from (select y.why from postrider.later y where y.why <> 0 limit 10000) x)::text,
           (select count(*) from (select from postrider.parked limit 10000) x)::text,
           (select coalesce(sum(cardinality(l.open)), 0) from postrider.lease l)::text,
           (select count(*) from postrider.worker)::text,
           (select (extract(epoch from clock_timestamp() - min(h.due_at)) * 1000000)::bigint from postrider.heads() h)::text
      from (select * from postrider.cut order by no desc limit 1) c;
end $$;
