-- Claim and finish: the two hot statements of a job's life, for workers in any language.
-- Locks: lease rows in the order of their ids, then ready rows, skipping what others hold.
-- By hand on a large table: nothing.
--
-- The planner is pinned in these functions: their plans must not depend on statistics of tables that are empty one second and
-- hold a million rows the next.

create type postrider.claimed as (
    lease bigint, id bigint, attempt smallint, kind text, queue text, priority smallint, share smallint, pos bigint,
    max_attempts smallint, owner text, created_at timestamptz, args json, subscription bigint,
    event_id uuid, event_type text, event_owner text, event_subject text, event_cause uuid,
    occurred_at timestamptz, recorded_at timestamptz, data json
);

-- Leases up to `most` jobs of a queue to a worker and answers with them. The probes are looked at in their order: one for
-- each (priority, share), from its low-water position on. `call` counts the worker's claims, see postrider.tick.
-- Jobs of a kind that is not among `kinds` are parked, with no attempt spent, until a worker comes that knows it. A job that
-- may have killed a worker (flag 4) gets a lease of its own.
-- One row whose lease is null: nothing was leased, but there is more to look at; call again.
create function postrider.claim(
    worker uuid, call bigint, queue text, kinds text[], most int, priorities smallint[], shares smallint[], positions bigint[]
) returns setof postrider.claimed
language plpgsql security definer set search_path = pg_catalog, pg_temp
set jit = off set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off
set enable_mergejoin = off as $$
#variable_conflict use_column
begin
    if current_setting('transaction_isolation') <> 'read committed' then
        perform postrider.check_isolation();
    end if;
    return query
    with picked as (
        delete from postrider.ready r
         where r.ctid = any (array(
            select x.place
              from unnest(claim.priorities, claim.shares, claim.positions) with ordinality p (priority, share, pos, o)
             cross join lateral (
                select y.ctid as place from postrider.ready y
                 where y.queue = claim.queue and y.priority = p.priority and y.share = p.share and y.pos >= p.pos
                 order by y.pos limit claim.most for update skip locked) x
             limit claim.most))
        returning r.*
    ), known as materialized (
        select p.id, (p.attempt + 1)::smallint as attempt, p.losses, p.flags, p.priority, p.share, p.pos, p.order_key,
               case when p.flags & 12 <> 0 then p.pos else 0 end as batch,
               coalesce(j.kind, '?') as kind, j.max_attempts, j.owner, j.created_at, j.args, j.subscription, j.event_seq,
               coalesce(j.kind = any (claim.kinds), false) as mine
          from picked p
          left join postrider.job j on j.class = (p.id & 3)::smallint and j.id = p.id
    ), unknown as (
        insert into postrider.parked (queue, key, pos, id, priority, share, attempt, losses, flags, order_key)
        select claim.queue, 'kind:' || k.kind, k.pos, k.id, k.priority, k.share, (k.attempt - 1)::smallint, k.losses, k.flags,
               k.order_key
          from known k where not k.mine
        returning 1
    ), batches as materialized (
        select b.batch, nextval('postrider.lease_id') as lease from (select distinct k.batch from known k where k.mine) b
    ), granted as (
        insert into postrider.lease (id, worker, call, queue, ids, positions, attempts, losses, flags, priorities, shares,
                                     order_keys, open)
        select b.lease, claim.worker, claim.call, claim.queue, array_agg(k.id), array_agg(k.pos), array_agg(k.attempt),
               array_agg(k.losses), array_agg(k.flags), array_agg(k.priority), array_agg(k.share),
               case when count(k.order_key) > 0 then array_agg(k.order_key) end, array_agg(k.id)
          from batches b join known k on k.batch = b.batch and k.mine
         group by b.lease
    )
    select b.lease, k.id, k.attempt, k.kind, claim.queue, k.priority, k.share, k.pos, k.max_attempts, k.owner, k.created_at,
           k.args, k.subscription, e.id, e.type, e.owner, e.subject, e.cause, e.occurred_at, e.recorded_at, e.data
      from known k
      join batches b on b.batch = k.batch
      left join postrider.event e on e.seq = k.event_seq
     where k.mine
    union all
    select null, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null,
           null, null
     where exists (select from unknown) and not exists (select from batches);
end $$;

-- Ends attempts. Each outcome names the lease that it was given under; what that lease does not hold open any more is dropped,
-- so a stale worker changes nothing and the same outcome sent twice changes nothing the second time. Answers with what counted.
-- An attempt that ended by itself clears its job of the losses that it was suspected for.
-- outcomes: 1 completed; 2 failed, again after delay_ms; 3 snoozed, again after delay_ms, no attempt spent; 4 refused by its
-- handler; 5 failed for the last time; 6 released, again at once, no attempt spent.
create function postrider.finish(
    worker uuid, leases bigint[], ids bigint[], outcomes smallint[], delays_ms bigint[], reasons text[]
) returns table (lease bigint, id bigint)
language plpgsql security definer set search_path = pg_catalog, pg_temp
set jit = off set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_bitmapscan = off set enable_nestloop = off
set enable_mergejoin = off as $$
#variable_conflict use_column
begin
    if current_setting('transaction_isolation') <> 'read committed' then
        perform postrider.check_isolation();
    end if;
    if exists (select from unnest(finish.outcomes) o where o not between 1 and 6 or o is null) then
        perform postrider.refuse('PR005', 'outcomes', 'an outcome is not one of 1 to 6', 'see postrider.finish');
    end if;
    -- the lock before the look: the next statement's snapshot sees what the last holder left
    perform 1 from postrider.lease l
      where l.id = any (finish.leases) and l.worker = finish.worker order by l.id for no key update;
    return query
    with told as (
        select distinct on (u.lease, u.id) u.*
          from unnest(finish.leases, finish.ids, finish.outcomes, finish.delays_ms, finish.reasons)
               as u (lease, id, outcome, delay_ms, reason)
         order by u.lease, u.id
    ), held as materialized (
        -- arrays are read once and joined by hash: looked up for each outcome, a batch would cost its square
        select l.id as lease, l.claimed_at, l.queue, unnest(l.ids) as id, unnest(l.positions) as pos, unnest(l.attempts) as attempt,
               unnest(l.losses) as losses, unnest(l.flags) as flags, unnest(l.priorities) as priority, unnest(l.shares) as share,
               unnest(l.order_keys) as order_key
          from postrider.lease l where l.id = any (finish.leases) and l.worker = finish.worker
    ), open as materialized (
        select l.id as lease, unnest(l.open) as id
          from postrider.lease l where l.id = any (finish.leases) and l.worker = finish.worker
    ), live as materialized (
        select t.*, h.claimed_at, h.queue, h.pos, h.attempt, h.losses, h.flags, h.priority, h.share, h.order_key
          from told t
          join open o on o.lease = t.lease and o.id = t.id
          join held h on h.lease = t.lease and h.id = t.id
    ), ended as (
        insert into postrider.done (class, id, started_at, lease, state, ended_as, fault_side, attempt, reason)
        select (v.id & 3)::smallint, v.id, v.claimed_at, v.lease, case v.outcome when 1 then 2 else 3 end,
               case v.outcome when 1 then 1 when 4 then 2 else 3 end, case v.outcome when 1 then null else 2 end, v.attempt,
               case v.outcome when 1 then null else v.reason end
          from live v where v.outcome in (1, 4, 5)
    ), waits as (
        insert into postrider.later (run_at, id, queue, priority, share, attempt, losses, flags, why, lease, order_key)
        select clock_timestamp() + greatest(coalesce(v.delay_ms, 0), 0) * interval '1 millisecond', v.id, v.queue, v.priority,
               v.share, (v.attempt - case v.outcome when 3 then 1 else 0 end)::smallint, 0, v.flags & ~12::smallint,
               case v.outcome when 2 then 1 else 2 end, v.lease, v.order_key
          from live v where v.outcome in (2, 3)
    ), released as (
        insert into postrider.ready (queue, priority, share, pos, id, attempt, losses, flags, order_key)
        select v.queue, v.priority, v.share, v.pos, v.id, (v.attempt - 1)::smallint, v.losses, v.flags, v.order_key
          from live v where v.outcome = 6
    ), kept as (
        insert into postrider.attempt (class, id, lease, attempt, outcome, started_at, error)
        select (v.id & 3)::smallint, v.id, v.lease, v.attempt, case v.outcome when 4 then 4 else 2 end, v.claimed_at, v.reason
          from live v where v.outcome in (2, 4, 5)
    ), rest as materialized (
        select o.lease, array_agg(o.id) filter (where v.id is null) as ids, count(v.id) as n
          from open o left join live v on v.lease = o.lease and v.id = o.id
         group by o.lease
    ), shrunk as (
        update postrider.lease l set open = (select r.ids from rest r where r.lease = l.id)
         where l.id = any (array(select r.lease from rest r where r.n > 0 and r.ids is not null))
    ), closed as (
        delete from postrider.lease l where l.id = any (array(select r.lease from rest r where r.n > 0 and r.ids is null))
    )
    select v.lease, v.id from live v;
end $$;
