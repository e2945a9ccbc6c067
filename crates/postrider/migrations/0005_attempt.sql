-- Claim and finish: the two hot statements of a job's life, for workers in any language.
-- Locks: lease rows in the order of their ids, lanes, then ready rows, skipping what others hold.
-- By hand on a large table: nothing.
--
-- The planner is pinned in these functions: their plans must not depend on statistics of tables that are empty one second and
-- hold a million rows the next.

create type postrider.claimed as (
    lease bigint, id bigint, attempt smallint, kind text, queue text, priority smallint, share smallint, pos bigint,
    max_attempts smallint, owner text, created_at timestamptz, args json, subscription bigint,
    event_id uuid, event_type text, event_version smallint, event_traceparent text, event_owner text, event_subject text, event_cause uuid,
    occurred_at timestamptz, recorded_at timestamptz, data json, claimed_at timestamptz, due_at timestamptz, retry json,
    order_key text, limit_key text, more boolean
);

-- Leases up to `most` jobs of a queue to a worker and answers with them. The probes are looked at in their order: one for
-- each (priority, share), from its low-water position on. `call` counts the worker's claims, see postrider.tick.
-- Jobs of a kind that is not among `kinds` are parked, with no attempt spent, until a worker comes that knows it. A job that
-- may have killed a worker (flag 4) gets a lease of its own. A job whose group of alike ones has a say (flag 16) goes back where it was
-- while a producer holds that group, and is parked behind the one of its group that runs, if only one may. One that was let go alone in its
-- queue (flag 8) and has to wait for something else gives that up for flag 128, and waits for it again first. A paused queue gives nothing.
-- Where jobs with keys wait (flag 32), postrider.take_turns picks the jobs.
-- in_line: up to so many jobs more, each of which comes after one of the others in its order. Whoever asks for them runs those of one key one
-- after the other, by their ids, and gives back those that are left as soon as one of them does not complete.
-- turned: the low-water positions of those that have the turn of an order key, which have positions of their own; null for none.
-- more: something was moved out of the way, so there may be more than was looked at. If nothing was leased then, that is told by one row
-- whose lease is null: call again.
create function postrider.claim(
    worker uuid, call bigint, queue text, kinds text[], most int, priorities smallint[], shares smallint[], positions bigint[],
    in_line int default 0, turned bigint[] default null
) returns setof postrider.claimed
language plpgsql security definer set search_path = pg_catalog, pg_temp
set jit = off set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off
set enable_mergejoin = off as $$
#variable_conflict use_column
declare
    turns postrider.ready[];
    moved boolean := false;
begin
    if current_setting('transaction_isolation') <> 'read committed' then
        perform postrider.check_isolation();
    end if;
    if exists (select from postrider.instance i where i.outbound_paused_at is not null) then
        claim.kinds := postrider.without_held(claim.kinds);
    end if;
    if exists (
        select from unnest(claim.priorities, claim.shares, claim.positions, claim.turned) p (priority, share, pos, turned)
         where (select true from postrider.ready r where r.queue = claim.queue and r.priority = p.priority and r.share = p.share
                   and r.pos + 0 >= p.pos and r.flags & 32 <> 0 order by r.pos + 0 limit 1)
            or (select true from postrider.ready r where r.queue = claim.queue and r.priority = p.priority and r.share = p.share
                   and r.pos + 0 >= coalesce(p.turned, 0) and r.flags & 2 <> 0 order by r.pos + 0 limit 1))
    then
        select t.turns, t.moved into turns, moved
          from postrider.take_turns(claim.queue, claim.most, claim.priorities, claim.shares, claim.positions, claim.kinds, claim.in_line,
               claim.turned) t;
        claim.most := 0;
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
                   -- what a producer holds is passed by: it may not keep the slots from what waits behind it
                   and (y.flags & 16 = 0 or postrider.hold_group(y.id)) and y.flags & 32 = 0
                 order by y.pos limit claim.most for update skip locked) x
             where not exists (select from postrider.queue q where q.name = claim.queue and q.paused_at is not null)
             limit claim.most))
        returning r.*
    ), found as materialized (
        select p.*, coalesce(j.kind, '?') as kind, j.max_attempts, j.owner, j.created_at, j.args, j.subscription, j.event_seq,
               j.retry, j.unique_hash, coalesce(j.run_at, j.created_at) as due_at, j.limit_key
          from (select * from picked union all select * from unnest(turns)) p
          left join postrider.job j on j.class = (p.id & 3)::smallint and j.id = p.id
    ), gate as materialized (
        -- the row as its last holder left it
        select f.id, f.pos, u.hash, u.mode, u.job, u.running
          from found f join postrider.uniq u on u.hash = f.unique_hash
         where f.flags & 16 <> 0
           for no key update of u skip locked
    ), turn as materialized (
        select g.id, g.hash, g.mode, g.job,
               -- the one that is not over goes before the one behind it, wherever both stand now
               g.mode = 1 or case when g.running is null then g.pos = min(g.pos) over (partition by g.hash)
                                  else g.running = g.id end as goes
          from gate g
    ), known as materialized (
        select f.id, (f.attempt + 1)::smallint as attempt, f.losses, f.flags, f.priority, f.share, f.pos, f.order_key,
               case when f.flags & 12 <> 0 then f.pos else 0 end as batch,
               f.kind, f.max_attempts, f.owner, f.created_at, f.args, f.subscription, f.event_seq, f.retry, f.unique_hash, f.due_at,
               f.limit_key,
               case when not coalesce(f.kind = any (claim.kinds), false) then 'unknown'
                    when f.flags & 128 <> 0 then 'strict'
                    when f.flags & 16 = 0 then 'mine'
                    when t.goes then 'mine'
                    when t.id is not null then 'behind'
                    when exists (select from postrider.uniq u where u.hash = f.unique_hash) then 'held'
                    else 'mine' end as verdict
          from found f left join turn t on t.id = f.id
    ), parked as (
        insert into postrider.parked (queue, key, pos, id, priority, share, attempt, losses, flags, order_key)
        select claim.queue,
               case k.verdict when 'unknown' then 'kind:' || k.kind when 'strict' then 'strict:'
                              else 'unique:' || encode(k.unique_hash, 'hex') end,
               k.pos, k.id, k.priority, k.share, (k.attempt - 1)::smallint, k.losses,
               case k.verdict when 'strict' then k.flags & ~128::smallint else postrider.flags_of_waiting(k.flags) end,
               k.order_key
          from known k where k.verdict in ('unknown', 'strict', 'behind')
        returning 1
    ), held as (
        insert into postrider.ready (queue, priority, share, pos, id, attempt, losses, flags, order_key)
        select claim.queue, k.priority, k.share, k.pos, k.id, (k.attempt - 1)::smallint, k.losses, k.flags, k.order_key
          from known k where k.verdict = 'held'
    ), called as (
        -- it had been let in and does not run: another one may
        insert into postrider.lane_call (queue, key)
        select claim.queue, 'limit:' || k.limit_key from known k where k.limit_key is not null and k.verdict in ('unknown', 'strict', 'behind')
    ), started as (
        update postrider.uniq u set job = nullif(u.job, t.id), running = t.id
          from turn t join known k on k.id = t.id and k.verdict = 'mine'
         where u.hash = t.hash and (t.mode = 5 or t.job = t.id)
    ), batches as materialized (
        select b.batch, nextval('postrider.lease_id') as lease
          from (select distinct k.batch from known k where k.verdict = 'mine') b
    ), granted as (
        insert into postrider.lease (id, worker, call, queue, ids, positions, attempts, losses, flags, priorities, shares,
                                     order_keys, limit_keys, special, open)
        select b.lease, claim.worker, claim.call, claim.queue, array_agg(k.id), array_agg(k.pos), array_agg(k.attempt),
               array_agg(k.losses), array_agg(k.flags), array_agg(k.priority), array_agg(k.share),
               case when count(k.order_key) > 0 then array_agg(k.order_key) end,
               case when count(k.limit_key) > 0 then array_agg(k.limit_key) end, bool_or(k.flags & 49 <> 0 or k.attempt > 20),
               array_agg(k.id)
          from batches b join known k on k.batch = b.batch and k.verdict = 'mine'
         group by b.lease
    )
    select b.lease, k.id, k.attempt, k.kind, claim.queue, k.priority, k.share, k.pos, k.max_attempts, k.owner, k.created_at,
           k.args, k.subscription, e.id, e.type, e.version, e.traceparent, e.owner, e.subject, e.cause, e.occurred_at, e.recorded_at, e.data, clock_timestamp(),
           k.due_at, k.retry, k.order_key, k.limit_key, moved or exists (select from parked)
      from known k
      join batches b on b.batch = k.batch
      left join postrider.event e on e.seq = k.event_seq
     where k.verdict = 'mine'
    union all
    select null, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null,
           null, null, null, null, null, null, null, true
     where (moved or exists (select from parked)) and not exists (select from batches);
end $$;

-- Ends attempts. Each outcome names the lease that it was given under; what that lease does not hold open any more is dropped,
-- so a stale worker changes nothing and the same outcome sent twice changes nothing the second time. Answers with what counted.
-- An attempt that ended by itself clears its job of the losses that it was suspected for. A job that is to be cancelled ends as cancelled
-- unless it completed; one that would wait for another attempt while another one like it waits for its first ends for that one.
-- outcomes: 1 completed; 2 failed, again after delay_ms; 3 snoozed, again after delay_ms, no attempt spent; 4 refused by its
-- handler; 5 failed for the last time; 6 released, again at once, no attempt spent; 7 snoozed for too long.
create function postrider.finish(
    worker uuid, leases bigint[], ids bigint[], outcomes smallint[], delays_ms bigint[], reasons text[], outputs text[] default null
) returns table (lease bigint, id bigint)
language plpgsql security definer set search_path = pg_catalog, pg_temp
set jit = off set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_bitmapscan = off set enable_nestloop = off
set enable_mergejoin = off as $$
#variable_conflict use_column
declare
    special boolean;
    alike boolean;
    cancelled bigint[];
    overtaken bigint[];
begin
    if current_setting('transaction_isolation') <> 'read committed' then
        perform postrider.check_isolation();
    end if;
    if exists (select from unnest(finish.outcomes) o where o not between 1 and 7 or o is null) then
        perform postrider.refuse('PR005', 'outcomes', 'an outcome is not one of 1 to 7', 'see postrider.finish');
    end if;
    -- the lock before the look: the next statement's snapshot sees what the last holder left. Here and below the worker is asked for in
    -- a way that has no index: by its own one, all that it ever held might be walked
    select bool_or(h.special), bool_or(h.special and exists (select from unnest(h.flags) f where f & 17 <> 0)) into special, alike from (
        select l.special, l.flags from postrider.lease l
         where l.id = any (finish.leases) and (l.worker = finish.worker) is true order by l.id for no key update) h;
    if exists (select from postrider.cancellation) then
        cancelled := array(select c.id from postrider.cancellation c where c.id = any (finish.ids));
    end if;
    if alike then
        overtaken := postrider.superseded(finish.ids);
    end if;
    return query
    with told as (
        select distinct on (u.lease, u.id) u.lease, u.id, u.delay_ms, u.reason, u.output, u.outcome as said,
               case when u.outcome <> 1 and u.id = any (cancelled) then 8
                    when u.outcome in (2, 3) and u.id = any (overtaken) then 9 else u.outcome end as outcome
          from unnest(finish.leases, finish.ids, finish.outcomes, finish.delays_ms, finish.reasons, finish.outputs)
               as u (lease, id, outcome, delay_ms, reason, output)
         order by u.lease, u.id
    ), held as materialized (
        -- arrays are read once and joined by hash: looked up for each outcome, a batch would cost its square
        select l.id as lease, l.claimed_at, l.queue, unnest(l.ids) as id, unnest(l.positions) as pos, unnest(l.attempts) as attempt,
               unnest(l.losses) as losses, unnest(l.flags) as flags, unnest(l.priorities) as priority, unnest(l.shares) as share,
               unnest(l.order_keys) as order_key
          from postrider.lease l where l.id = any (finish.leases) and (l.worker = finish.worker) is true
    ), open as materialized (
        select l.id as lease, unnest(l.open) as id
          from postrider.lease l where l.id = any (finish.leases) and (l.worker = finish.worker) is true
    ), live as materialized (
        select t.*, h.claimed_at, h.queue, h.pos, h.attempt, h.losses, h.flags, h.priority, h.share, h.order_key
          from told t
          join open o on o.lease = t.lease and o.id = t.id
          join held h on h.lease = t.lease and h.id = t.id
    ), ended as (
        insert into postrider.done (class, id, started_at, lease, state, ended_as, fault_side, attempt, reason, output)
        select (v.id & 3)::smallint, v.id, v.claimed_at, v.lease,
               case v.outcome when 1 then 2 when 8 then 4 when 9 then 4 else 3 end,
               case v.outcome when 1 then 1 when 4 then 2 when 8 then 5 when 9 then 5 else 3 end,
               case when v.outcome in (1, 8, 9) then null else 2 end, v.attempt,
               case v.outcome when 1 then null when 9 then 'overtaken: another job like it waits'
                    when 8 then coalesce((select min(c.reason) from postrider.cancellation c where c.id = v.id), 'cancelled')
                    else v.reason end,
               case v.outcome when 1 then v.output::json end
          from live v where v.outcome in (1, 4, 5, 7, 8, 9)
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
        select (v.id & 3)::smallint, v.id, v.lease, v.attempt, case v.said when 4 then 4 else 2 end, v.claimed_at, v.reason
          from live v where v.said in (2, 4, 5)
    ), forgotten as (
        delete from postrider.cancellation c
         where c.id = any (array(select v.id from live v where v.outcome in (1, 8) and v.id = any (cancelled)))
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
    if special then
        perform postrider.after_special(finish.ids, alike);
    end if;
end $$;

-- What jobs need when they have ended or been put off that are not like most: their groups of alike ones, and a bound for their history.
-- Of many attempts the first ten and the last ten are kept.
create function postrider.after_special(ids bigint[], alike boolean) returns void
language plpgsql set search_path = pg_catalog, pg_temp
set jit = off set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off as $$
begin
    if alike then
        perform postrider.settle_unique(ids);
    end if;
    perform postrider.settle_turns(ids);
    delete from postrider.attempt a using (
        -- what somebody else is removing is left to him
        select x.class, x.id, x.lease from unnest(after_special.ids) i (id)
          join postrider.attempt x on x.class = (i.id & 3)::smallint and x.id = i.id
         where x.attempt > 10 and x.attempt <= (
            select max(m.attempt) from postrider.attempt m where m.class = x.class and m.id = x.id) - 10
           for update of x skip locked) o
     where a.class = o.class and a.id = o.id and a.lease = o.lease;
end $$;

-- Takes one job out of a lease into one of its own, so that the attempt can end in a transaction of the application without holding
-- the rest of the batch. Answers with the new lease; null if the worker has lost the job. `call` as with postrider.claim.
create function postrider.part(worker uuid, lease bigint, id bigint, call bigint) returns bigint
language plpgsql security definer set search_path = pg_catalog, pg_temp
set jit = off set enable_seqscan = off set enable_bitmapscan = off as $$
#variable_conflict use_column
declare
    l postrider.lease;
    i int;
    own bigint;
begin
    perform postrider.check_isolation();
    select * into l from postrider.lease x
     where x.id = part.lease and x.worker = part.worker and part.id = any (x.open) for no key update;
    if not found then
        return null;
    end if;
    i := array_position(l.ids, part.id);
    own := nextval('postrider.lease_id');
    insert into postrider.lease (id, worker, call, claimed_at, queue, ids, positions, attempts, losses, flags, priorities, shares,
                                 order_keys, limit_keys, special, open)
    values (own, part.worker, part.call, l.claimed_at, l.queue, array[part.id], array[l.positions[i]], array[l.attempts[i]],
            array[l.losses[i]], array[l.flags[i]], array[l.priorities[i]], array[l.shares[i]],
            case when l.order_keys is not null then array[l.order_keys[i]] end,
            case when l.limit_keys is not null then array[l.limit_keys[i]] end, l.special, array[part.id]);
    if cardinality(l.open) = 1 then
        delete from postrider.lease x where x.id = part.lease;
    else
        update postrider.lease x set open = array_remove(l.open, part.id) where x.id = part.lease;
    end if;
    return own;
end $$;
