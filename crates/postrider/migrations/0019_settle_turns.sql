-- What becomes of a lane when jobs of it have ended, were put off or put back: who has the turn now, who has room.
-- Locks: lanes, not waited for by a finish: who does not get one leaves a call; rows of later and parked, skipping what others hold.
-- By hand on a large table: nothing.
-- The planner is pinned, as in postrider.finish.

-- Whether a job that has the turn of a lane still has it: an end gives it up, and so does a failure if the policy says so, which may stop the
-- lane too. The lane is locked.
create function postrider.judge_turn(lane_key text, who bigint, out keeps boolean, out stop text)
language plpgsql set search_path = pg_catalog, pg_temp
set jit = off set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off
set enable_mergejoin = off as $$
declare
    h record;
begin
    -- where it is, in one look: between two it could move
    select j.id, j.order_rule, d.state, d.reason, y.run_at, y.why, y.attempt, y.flags & 2 = 0 as unmarked,
           d.id is null and (y.id is not null
               or exists (select from postrider.lease x where j.id = any (x.open))
               or exists (select from postrider.ready r where r.queue = j.queue and r.priority = j.priority
                             and r.share = coalesce(j.share, 0) and r.id = j.id and r.flags & 2 <> 0)
               or exists (select from postrider.parked p where p.id = j.id and p.flags & 2 <> 0)) as keeps
      into h
      from postrider.job j
      left join postrider.done d on d.class = j.class and d.id = j.id
      left join postrider.later y on y.id = j.id and y.why <> 0
     where j.class = (who & 3)::smallint and j.id = who;
    keeps := coalesce(h.keeps, false);
    if not keeps then
        if h.state = 3 and h.order_rule > 0 then
            stop := format('job %s was discarded: %s', h.id, coalesce(h.reason, 'no reason given'));
        end if;
        return;
    end if;
    keeps := h.why is null or h.order_rule = 0 or h.order_rule > 0 and (h.why <> 1 or h.attempt < h.order_rule);
    if keeps and h.unmarked is not true then
        return;
    end if;
    perform from postrider.later y where y.run_at = h.run_at and y.id = h.id for update skip locked;
    if not found then
        -- somebody moves it just now
        perform postrider.call_lanes(j) from postrider.job j where j.class = (h.id & 3)::smallint and j.id = h.id;
        keeps := true;
    elsif keeps then
        -- it got the turn in its line; whoever meets it from now on must see that
        update postrider.later y set flags = y.flags | 2 where y.run_at = h.run_at and y.id = h.id;
    elsif h.order_rule > 0 then
        stop := format('job %s failed %s times: %s', h.id, h.attempt, coalesce((
            select a.error from postrider.attempt a where a.class = (h.id & 3)::smallint and a.id = h.id
             order by a.lease desc limit 1), 'no reason given'));
        with taken as (
            delete from postrider.later y where y.run_at = h.run_at and y.id = h.id returning y.*
        )
        insert into postrider.parked (queue, key, pos, id, priority, share, attempt, losses, flags, order_key)
        select t.queue, lane_key, t.id, t.id, t.priority, t.share, t.attempt, t.losses, t.flags & ~2, t.order_key from taken t;
    else
        update postrider.later y set flags = y.flags & ~2 where y.run_at = h.run_at and y.id = h.id;
    end if;
end $$;

-- Who has the turn of a lane now: whoever had it, or the first one of its line that has not given it up. The lane is locked.
create function postrider.judge_holder(l postrider.lane) returns void
language plpgsql set search_path = pg_catalog, pg_temp
set jit = off set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off
set enable_mergejoin = off as $$
declare
    members bigint[] := array[l.holder] || coalesce(l.line, '{}');
    who bigint;
    keeps boolean := false;
    stop text;
begin
    loop
        -- whoever has ended and stops nothing is passed over, many in one look
        select m.id into who from unnest(members) m (id)
          left join postrider.done d on d.class = (m.id & 3)::smallint and d.id = m.id
         where d.id is null or d.state = 3 order by m.id limit 1;
        exit when who is null;
        select t.keeps, t.stop into keeps, stop from postrider.judge_turn(l.key, who) t;
        exit when keeps or stop is not null;
        members := array(select m from unnest(members) m where m > who order by m);
    end loop;
    if who = l.holder and keeps then
        return;
    end if;
    update postrider.lane x
       set holder = case when keeps then who end, since = clock_timestamp(),
           line = case when keeps then nullif(array(select m from unnest(members) m where m > who order by m), '{}') end,
           stopped_at = case when stop is not null then clock_timestamp() else x.stopped_at end,
           reason = coalesce(left(stop, 1000), x.reason), stopped_by = case when stop is not null then who else x.stopped_by end,
           low_parked = least(x.low_parked, l.holder), changes = (x.changes + 1) & 63, gen = x.gen + (x.changes = 63)::int
     where x.ctid = (select y.ctid from postrider.lane y where y.queue = l.queue and y.key = l.key order by y.gen desc limit 1);
end $$;

-- Looks at lanes: takes the turn from whoever has given it up, lets the next one go, and those that have room. Lanes that are somebody
-- else's are called, and true is answered; waits: not at once. lows: without the lock nothing was parked below these.
create function postrider.settle_lanes(queue text, keys text[], lows bigint[] default null, waits boolean default true) returns boolean
language plpgsql set search_path = pg_catalog, pg_temp
set jit = off set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off
set enable_mergejoin = off as $$
#variable_conflict use_column
declare
    got text[] := postrider.lock_lanes(settle_lanes.queue, settle_lanes.keys, settle_lanes.waits);
    k text;
    l postrider.lane;
    room record;
    head postrider.ready;
    moved boolean := false;
    called boolean;
begin
    insert into postrider.lane_call (queue, key, low)
    select settle_lanes.queue, x.key, coalesce(x.low, 9223372036854775807) from unnest(settle_lanes.keys, settle_lanes.lows) x (key, low)
     where x.key <> all (got);
    called := found;
    if lows is not null then
        update postrider.lane l
           set low_parked = least(l.low_parked, c.low), low_ready = least(l.low_ready, c.low), cleared = least(l.cleared, c.low)
          from (select x.low, (select y.ctid from postrider.lane y where y.queue = settle_lanes.queue and y.key = x.key
                                order by y.gen desc limit 1) as place
                  from unnest(settle_lanes.keys, settle_lanes.lows) x (key, low) where x.key = any (got) offset 0) c
         where l.ctid = c.place and c.low < greatest(l.low_parked, l.low_ready, l.cleared);
    end if;
    with idle as (
        -- most keys have one job at a time: when it has ended, and stops nothing, there is nothing to look for
        delete from postrider.lane x
         where x.ctid = any (array(
            -- a look for each: joined, they would be planned as walks over the queue
            select (select y.ctid from postrider.lane y where y.queue = settle_lanes.queue and y.key = g.key order by y.gen desc limit 1)
              from unnest(got) g (key)))
           and x.stopped_at is null and x.line is null and x.window_at is null
           and (x.key like 'limit:%'
                or (select d.state from postrider.done d where d.class = (x.holder & 3)::smallint and d.id = x.holder) in (2, 4))
           and (select p.pos from postrider.parked p where p.queue = x.queue and p.key = x.key and p.pos >= x.low_parked
                 order by p.pos limit 1) is null
        returning x.key
    )
    select array(select g from unnest(got) g where g <> all (array(select i.key from idle i))) into got;
    for room in select * from postrider.rooms_of(settle_lanes.queue, array(select g from unnest(got) g where g like 'limit:%')) loop
        moved := postrider.let_in(settle_lanes.queue, room.key, room.free, room.again, room.per_from) or moved;
    end loop;
    foreach k in array got loop
        continue when k like 'limit:%';
        select * into l from postrider.lane x where x.queue = settle_lanes.queue and x.key = k order by x.gen desc limit 1;
        if l.holder is not null then
            perform postrider.judge_holder(l);
        end if;
        if (select r.id from postrider.ready r where r.queue = settle_lanes.queue and r.order_key = substr(k, 7) and r.flags & 34 = 32
               and r.pos = r.id and r.id between l.line[1] and l.line[cardinality(l.line)] order by r.id limit 1) is not null
        then
            -- some of the line were given back: they wait with the others of their key
            update postrider.lane x set cleared = least(x.cleared, l.line[1])
             where x.ctid = (select y.ctid from postrider.lane y where y.queue = settle_lanes.queue and y.key = k order by y.gen desc limit 1);
            perform postrider.clear_ready(settle_lanes.queue, k, 1000);
        end if;
        head := postrider.next_turn(settle_lanes.queue, k);
        if head.id is not null then
            -- a new position: at its old one, claims would have to walk what was moved out of the way of others
            head.pos := (pg_sequence_last_value('postrider.job_epoch'::regclass) << 46) | (nextval('postrider.job_number') << 2);
            insert into postrider.ready select head.*;
            moved := true;
        else
            delete from postrider.lane x
             where x.ctid = (select y.ctid from postrider.lane y where y.queue = settle_lanes.queue and y.key = k order by y.gen desc limit 1)
               and x.holder is null and x.stopped_at is null
               and not exists (select from postrider.parked p
                                where p.queue = settle_lanes.queue and p.key = k and p.pos >= x.low_parked);
        end if;
    end loop;
    if moved then
        perform postrider.wake('postrider_job');
    end if;
    return called;
end $$;

-- Moves as many of a limit key as have room, see postrider.rooms_of, to where they can be claimed, which counts them again. The lane is locked.
create function postrider.let_in(lane_queue text, lane_key text, free int, again timestamptz, per_from timestamptz) returns boolean
language plpgsql set search_path = pg_catalog, pg_temp
set jit = off set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_bitmapscan = off as $$
declare
    l record;
    n int;
    lowest bigint;
begin
    select x.*, x.ctid as place into l from postrider.lane x where x.queue = lane_queue and x.key = lane_key order by x.gen desc limit 1;
    with freed as (
        delete from postrider.parked p where p.ctid = any (array(
            select x.ctid from postrider.parked x
             where x.queue = lane_queue and x.key = lane_key and x.pos >= l.low_parked
             order by x.pos limit least(let_in.free, 1000) for update skip locked))
        returning p.*
    ), again as (
        -- new positions: at their old ones, claims would pass them by for what came after them
        insert into postrider.ready (queue, priority, share, pos, id, attempt, losses, flags, order_key)
        select f.queue, f.priority, f.share, (pg_sequence_last_value('postrider.job_epoch'::regclass) << 46) | (nextval('postrider.job_number') << 2),
               f.id, f.attempt, f.losses, f.flags, f.order_key
          from (select * from freed order by pos offset 0) f returning 1
    )
    select count(*) into n from again;
    select p.pos into lowest from postrider.parked p
     where p.queue = lane_queue and p.key = lane_key and p.pos >= l.low_parked order by p.pos limit 1;
    if lowest is null and (let_in.per_from is null or let_in.per_from is distinct from l.window_at) then
        delete from postrider.lane x where x.ctid = l.place;
    else
        update postrider.lane x
           set low_parked = coalesce(lowest, x.low_parked), changes = (x.changes + 1) & 63, gen = x.gen + (x.changes = 63)::int,
               due_at = case when lowest is not null and n < coalesce(let_in.free, n + 1) then clock_timestamp() else let_in.again end
         where x.ctid = l.place;
    end if;
    return n > 0;
end $$;

-- After jobs were ended, put off or put back: what becomes of their lanes.
create function postrider.settle_turns(ids bigint[]) returns void
language plpgsql set search_path = pg_catalog, pg_temp
set jit = off set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off
set enable_mergejoin = off as $$
declare
    x record;
begin
    for x in
        select j.queue, array_agg(distinct k.key order by k.key) as keys
          from unnest(settle_turns.ids) i (id)
          join postrider.job j on j.class = (i.id & 3)::smallint and j.id = i.id
         cross join lateral (values ('order:' || j.order_key), ('limit:' || j.limit_key)) k (key)
         where k.key is not null group by j.queue order by j.queue
    loop
        -- whoever has one is a claim, most of the time, and looks at what was called once it has ended
        if postrider.settle_lanes(x.queue, x.keys, null, false) then
            perform postrider.wake_for_lanes();
        end if;
    end loop;
end $$;

-- Looks at the lanes that were called, and at those whose time has come. True if some of them are still somebody's.
create function postrider.settle_lanes_called() returns boolean
language plpgsql set search_path = pg_catalog, pg_temp
set jit = off set enable_seqscan = off set enable_bitmapscan = off as $$
declare
    x record;
    called boolean := false;
begin
    for x in
        with taken as (
            delete from postrider.lane_call c where c.ctid = any (array(
                select o.ctid from postrider.lane_call o limit 1000 for update skip locked)) returning c.queue, c.key, c.low
        ), called as (
            select u.queue, u.key, min(u.low) as low from (
                select * from taken
                union all
                select d.queue, d.key, 9223372036854775807 from (
                    select l.queue, l.key from postrider.lane l where l.due_at <= clock_timestamp() order by l.due_at limit 1000) d) u
             group by u.queue, u.key
        )
        select t.queue, array_agg(t.key order by t.key) as keys, array_agg(t.low order by t.key) as lows from called t
         group by t.queue order by t.queue
    loop
        called := postrider.settle_lanes(x.queue, x.keys, x.lows) or called;
    end loop;
    return called;
end $$;
