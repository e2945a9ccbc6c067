-- How a claim takes jobs with keys: whoever has the turn and room is leased, the others are parked out of the way.
-- Locks: lanes, none of which is waited for; rows of ready and parked, skipping what others hold.
-- By hand on a large table: nothing.
-- The planner is pinned, as in postrider.claim.

-- Moves up to so many that wait in `ready` behind an order key to where they are out of the way of others. The lane is locked.
create function postrider.clear_ready(lane_queue text, lane_key text, most int) returns void
language plpgsql set search_path = pg_catalog, pg_temp
set jit = off set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off
set enable_mergejoin = off as $$
declare
    l record;
    lowest bigint;
    highest bigint;
begin
    select x.*, x.ctid as place into l from postrider.lane x where x.queue = lane_queue and x.key = lane_key order by x.gen desc limit 1;
    with away as (
        delete from postrider.ready r where r.ctid = any (array(
            select x.ctid from postrider.ready x
             where x.queue = lane_queue and x.order_key = substr(lane_key, 7) and x.flags & 34 = 32 and x.pos = x.id
               and x.id >= greatest(l.low_ready, l.cleared)
             order by x.id limit clear_ready.most for update skip locked))
        returning r.*
    ), waiting as (
        insert into postrider.parked (queue, key, pos, id, priority, share, attempt, losses, flags, order_key)
        select w.queue, lane_key, w.id, w.id, w.priority, w.share, w.attempt, w.losses,
               postrider.flags_of_waiting(w.flags), w.order_key from away w
        returning id
    )
    select min(w.id), max(w.id) into lowest, highest from waiting w;
    update postrider.lane x set low_parked = least(x.low_parked, lowest), cleared = greatest(x.cleared, highest)
     where x.ctid = l.place and highest is not null;
end $$;

-- Gives the turn of an order key to the oldest job that waits for it, takes it from where it is parked and answers with it; all null if
-- somebody has the turn, the lane is stopped, nobody waits, or an older one is in the hands of somebody who will ask for it. The lane is
-- locked, and this looks after that.
create function postrider.next_turn(lane_queue text, lane_key text) returns postrider.ready
language plpgsql set search_path = pg_catalog, pg_temp
set jit = off set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_bitmapscan = off as $$
declare
    l record;
    head postrider.ready;
    oldest bigint;
    of_key text := substr(lane_key, 7);
    before bigint;
begin
    select x.*, x.ctid as place into l from postrider.lane x where x.queue = lane_queue and x.key = lane_key order by x.gen desc limit 1;
    if l.holder is not null or l.stopped_at is not null then
        return null;
    end if;
    select p.pos into oldest from postrider.parked p
     where p.queue = lane_queue and p.key = lane_key and p.pos >= l.low_parked order by p.pos limit 1;
    if oldest is null then
        return null;
    end if;
    perform from postrider.parked p where p.queue = lane_queue and p.key = lane_key and p.pos = oldest for update skip locked;
    if not found then
        -- somebody acts on it and may yet leave it: nobody goes before it
        insert into postrider.lane_call (queue, key) values (lane_queue, lane_key);
        return null;
    end if;
    before := least(
        (select r.id from postrider.ready r where r.queue = lane_queue and r.order_key = of_key and r.flags & 34 = 32 and r.pos = r.id
            and r.id >= l.low_ready and r.id < oldest order by r.id limit 1),
        (select r.id from postrider.ready r where r.queue = lane_queue and r.order_key = of_key and r.flags & 34 = 32 and r.pos <> r.id
            and r.id < oldest order by r.id limit 1));
    if before is not null then
        update postrider.lane x set low_ready = before where x.ctid = l.place and x.low_ready < before
           and not exists (select from postrider.ready r where r.queue = lane_queue and r.order_key = of_key and r.id = before
                              and r.flags & 34 = 32 and r.pos <> r.id);
    else
        delete from postrider.parked p where p.queue = lane_queue and p.key = lane_key and p.pos = oldest
        returning p.queue, p.priority, p.share, p.pos, p.id, p.attempt, p.losses, (p.flags | 2)::smallint, p.order_key into head;
        update postrider.lane x
           set holder = head.id, since = clock_timestamp(), low_parked = oldest, low_ready = greatest(l.low_ready, oldest),
               changes = (x.changes + 1) & 63, gen = x.gen + (x.changes = 63)::int
         where x.ctid = l.place;
    end if;
    return head;
end $$;

-- The jobs that come next after the one that has the turn, taken from where they are parked, to be leased along with it: as many as fit in
-- a lease with others and need nothing but the turn, and none that an older one is to go before. The lane is locked, and this looks after that.
create function postrider.line_up(lane_queue text, lane_key text, head bigint, kinds text[], most int) returns postrider.ready[]
language plpgsql set search_path = pg_catalog, pg_temp
set jit = off set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off
set enable_mergejoin = off as $$
declare
    l record;
    of_key text := substr(lane_key, 7);
    asks bigint;
    next_ones bigint[];
    got bigint[];
    lined postrider.ready[];
begin
    select x.*, x.ctid as place into l from postrider.lane x where x.queue = lane_queue and x.key = lane_key order by x.gen desc limit 1;
    if l.holder is distinct from head or l.stopped_at is not null then
        return null;
    end if;
    next_ones := array(
        select n.pos from (
            select p.pos, count(*) filter (where p.flags & 220 <> 0 or p.pos < head or not j.kind = any (line_up.kinds))
                       over (order by p.pos) as unfit
              from (select x.pos, x.id, x.flags from postrider.parked x
                     where x.queue = lane_queue and x.key = lane_key and x.pos >= l.low_parked
                     order by x.pos limit line_up.most) p
              join postrider.job j on j.class = (p.id & 3)::smallint and j.id = p.id) n
         where n.unfit = 0 order by n.pos);
    -- bounded, or it would walk all that has been moved from there
    asks := least(
        (select r.id from postrider.ready r where r.queue = lane_queue and r.order_key = of_key and r.flags & 34 = 32 and r.pos = r.id
            and r.id between l.low_ready and next_ones[cardinality(next_ones)] order by r.id limit 1),
        (select r.id from postrider.ready r where r.queue = lane_queue and r.order_key = of_key and r.flags & 34 = 32 and r.pos <> r.id
            and r.id <= next_ones[cardinality(next_ones)] order by r.id limit 1));
    if asks is not null then
        next_ones := array(select n from unnest(next_ones) n where n < asks order by n);
    end if;
    if next_ones = '{}' then
        return null;
    end if;
    got := array(select p.pos from postrider.parked p
                  where p.queue = lane_queue and p.key = lane_key and p.pos between next_ones[1] and next_ones[cardinality(next_ones)]
                  order by p.pos limit cardinality(next_ones) for update skip locked);
    -- somebody acts on one and may yet leave it: nobody goes before it
    next_ones := array(select n.pos from unnest(next_ones, got) with ordinality n (pos, ours, o)
                        where n.o < coalesce((select min(m.o) from unnest(next_ones, got) with ordinality m (pos, ours, o)
                                               where m.pos is distinct from m.ours), n.o + 1) order by n.o);
    with taken as (
        delete from postrider.parked p where p.ctid = any (array(
            select x.ctid from postrider.parked x
             where x.queue = lane_queue and x.key = lane_key and x.pos between next_ones[1] and next_ones[cardinality(next_ones)]
               and x.pos = any (next_ones) order by x.pos limit cardinality(next_ones)))
        returning p.*
    )
    select array_agg(row (t.queue, t.priority, t.share, t.pos, t.id, t.attempt, t.losses, t.flags, t.order_key, null)::postrider.ready)
      into lined from taken t;
    if lined is not null then
        update postrider.lane x
           set line = next_ones, low_parked = next_ones[cardinality(next_ones)], changes = (x.changes + 1) & 63,
               gen = x.gen + (x.changes = 63)::int
         where x.ctid = l.place;
    end if;
    return lined;
end $$;

-- How many more of each limit key may start now, null for any number; and when to look again. The lanes are locked, and this looks after that.
create function postrider.rooms_of(queue text, keys text[]) returns table (key text, free int, again timestamptz, per_from timestamptz)
language plpgsql set search_path = pg_catalog, pg_temp
set jit = off set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off
set enable_mergejoin = off as $$
#variable_conflict use_column
declare
    now timestamptz := clock_timestamp();
begin
    return query
    with rule as materialized (
        select k.key, substr(k.key, 7) as of_key, greatest(own.held_until, other.held_until) as held_until,
               case when own.most is null and own.starts is null then other.most else own.most end as most,
               case when own.most is null and own.starts is null then other.starts else own.starts end as starts,
               case when own.most is null and own.starts is null then other.per else own.per end as per
          from unnest(rooms_of.keys) k (key)
          left join lateral (select * from postrider.key_limit x
                              where x.queue = rooms_of.queue and x.key = substr(k.key, 7) offset 0) own on true
          left join lateral (select * from postrider.key_limit x where x.queue = rooms_of.queue and x.key = '' offset 0) other on true
    ), running as materialized (
        select u.key, count(*)::int as n from postrider.lease x cross join unnest(x.ids, x.limit_keys) u (id, key)
         where x.queue = rooms_of.queue and x.limit_keys is not null
           and u.key = any (array(select r.of_key from rule r where r.most is not null)) and u.id = any (x.open)
         group by u.key
    ), timed as (
        select r.*, l.window_at, l.used, case when l.window_at + r.per > now then l.window_at else now end as from_at
          from rule r
          left join lateral (select x.window_at, x.used from postrider.lane x where x.queue = rooms_of.queue and x.key = r.key
                              order by x.gen desc limit 1) l on r.starts is not null
    )
    select t.key,
           case when t.held_until > now then 0
                else least(case when t.most is not null
                                then greatest(0, t.most - coalesce((select n.n from running n where n.key = t.of_key), 0)) end,
                           case when t.starts is not null
                                then greatest(0, t.starts - case when t.from_at = t.window_at then t.used else 0 end) end) end,
           case when t.held_until > now then t.held_until when t.starts is not null then t.from_at + t.per end,
           case when t.held_until > now then null when t.starts is not null then t.from_at end
      from timed t;
end $$;

-- Picks as postrider.claim does, where jobs with keys are among those that wait: answers with those that are to be leased. Jobs without
-- keys are picked as they are; the others are parked, and whoever has the turn and room comes along, with up to in_line of those that
-- come after it. moved: something was parked.
create function postrider.take_turns(
    queue text, most int, priorities smallint[], shares smallint[], positions bigint[], kinds text[], in_line int,
    turned bigint[], out turns postrider.ready[], out moved boolean
)
language plpgsql set search_path = pg_catalog, pg_temp
set jit = off set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off
set enable_mergejoin = off as $$
#variable_conflict use_column
declare
    picked postrider.ready[];
    asking postrider.ready[];
    going postrider.ready[];
    free postrider.ready[];
    got text[];
    k record;
    head postrider.ready;
begin
    with taken as (
        delete from postrider.ready r
         where r.ctid = any (array(
            select x.place
              from unnest(take_turns.priorities, take_turns.shares, take_turns.positions, take_turns.turned)
                   with ordinality p (priority, share, pos, turned, o)
             cross join lateral (
                -- whoever has the turn of a key waits apart, wherever the others begin, and goes in turn with them
                select u.place from (
                    select h.place, row_number() over () as n, 0 as then_by from (
                        select y.ctid as place from postrider.ready y
                         where y.queue = take_turns.queue and y.priority = p.priority and y.share = p.share
                           and y.pos + 0 >= coalesce(p.turned, 0) and y.flags & 2 <> 0 and (y.flags & 16 = 0 or postrider.hold_group(y.id))
                         order by y.pos + 0 limit take_turns.most for update skip locked) h
                    union all
                    select o.place, row_number() over (), 1 from (
                        select y.ctid as place from postrider.ready y
                         where y.queue = take_turns.queue and y.priority = p.priority and y.share = p.share and y.pos >= p.pos
                           and y.flags & 2 = 0 and (y.flags & 16 = 0 or postrider.hold_group(y.id))
                         order by y.pos limit take_turns.most for update skip locked) o) u
                 order by u.n, u.then_by limit take_turns.most) x
             where not exists (select from postrider.queue q where q.name = take_turns.queue and q.paused_at is not null)
             limit take_turns.most))
        returning r.*
    )
    select array_agg(row (t.*)::postrider.ready) into picked from taken t;
    select array_agg(u) filter (where u.flags & 32 = 0),
           array_agg(u) filter (where u.flags & 32 <> 0 and (u.flags & 2 <> 0 or u.order_key is null)),
           array_agg(u) filter (where u.flags & 34 = 32 and u.order_key is not null)
      into turns, going, asking from unnest(picked) u;
    if asking is not null then
        got := postrider.lock_lanes(take_turns.queue, array(select distinct 'order:' || a.order_key from unnest(asking) a));
        select t.asking, t.free into asking, free from postrider.take_free(take_turns.queue, asking, got) t;
        going := going || free;
        moved := asking is not null;
        insert into postrider.parked (queue, key, pos, id, priority, share, attempt, losses, flags, order_key)
        select a.queue, 'order:' || a.order_key, a.id, a.id, a.priority, a.share, a.attempt, a.losses,
               postrider.flags_of_waiting(a.flags), a.order_key
          from unnest(asking) a;
        insert into postrider.lane_call (queue, key, low)
        select take_turns.queue, 'order:' || a.order_key, min(a.id) from unnest(asking) a where 'order:' || a.order_key <> all (got) group by 2;
        if found then
            perform postrider.wake_for_lanes();
        end if;
        for k in
            select 'order:' || a.order_key as key, min(a.id) as lowest, count(*) as n, count(*) over () as keys from unnest(asking) a
             where 'order:' || a.order_key = any (got) group by 1 order by 1
        loop
            update postrider.lane l set low_parked = k.lowest
             where l.low_parked > k.lowest
               and l.ctid = (select x.ctid from postrider.lane x where x.queue = take_turns.queue and x.key = k.key order by x.gen desc limit 1);
            if k.n > 1 or k.n = take_turns.most then
                -- many of one key, as far as one can see: the rest of them may not be in the way of others either. In all about a
                -- thousand, or whoever is to be started by this claim would wait for it
                perform postrider.clear_ready(take_turns.queue, k.key, greatest(50, 1000 / k.keys)::int);
            end if;
            head := postrider.next_turn(take_turns.queue, k.key);
            if head.id is not null then
                going := going || head;
            end if;
        end loop;
    end if;
    moved := coalesce(moved, false);
    turns := turns || array(select g from unnest(going) g where g.flags & 64 = 0);
    if take_turns.in_line > 0 then
        turns := turns || postrider.take_lines(take_turns.queue, going, take_turns.kinds, take_turns.in_line, got);
    end if;
    going := array(select g from unnest(going) g where g.flags & 64 <> 0);
    if going <> '{}' then
        select turns || t.may, moved or t.parked into turns, moved from postrider.take_room(take_turns.queue, going) t;
    end if;
end $$;

-- Of jobs that ask for the turn of their order keys, those that nobody is to go before have it at once: most keys have one job at a time.
-- got: the lanes that are locked.
create function postrider.take_free(queue text, inout asking postrider.ready[], got text[], out free postrider.ready[])
language plpgsql set search_path = pg_catalog, pg_temp
set jit = off set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off
set enable_mergejoin = off as $$
#variable_conflict use_column
declare
    given bigint[];
begin
    with alone as materialized (
        select min(a.id) as id, a.order_key, 'order:' || a.order_key as key from unnest(take_free.asking) a
         where 'order:' || a.order_key = any (take_free.got) group by a.order_key having count(*) = 1
    ), turned as (
        update postrider.lane l
           set holder = a.id, since = clock_timestamp(), low_ready = greatest(l.low_ready, a.id), changes = (l.changes + 1) & 63,
               gen = l.gen + (l.changes = 63)::int
          -- each a look of its own: joined, they would be planned as walks over the queue
          from (select x.*, (select y.ctid from postrider.lane y where y.queue = take_free.queue and y.key = x.key
                              order by y.gen desc limit 1) as place
                  from alone x offset 0) a
         where l.ctid = a.place and l.holder is null and l.stopped_at is null
           and (select p.pos from postrider.parked p where p.queue = take_free.queue and p.key = l.key and p.pos >= l.low_parked
                 order by p.pos limit 1) < a.id is not true
           and (select r.id from postrider.ready r where r.queue = take_free.queue and r.order_key = a.order_key and r.flags & 34 = 32
                   and r.pos = r.id and r.id >= l.low_ready order by r.id limit 1) < a.id is not true
           and (select r.id from postrider.ready r where r.queue = take_free.queue and r.order_key = a.order_key and r.flags & 34 = 32
                   and r.pos <> r.id order by r.id limit 1) < a.id is not true
        returning a.id
    )
    select array_agg(t.id) into given from turned t;
    select array_agg(a) filter (where (a.id = any (given)) is not true),
           array_agg(row (a.queue, a.priority, a.share, a.pos, a.id, a.attempt, a.losses, a.flags | 2, a.order_key, a.again_at)::postrider.ready)
               filter (where a.id = any (given))
      into asking, free from unnest(take_free.asking) a;
end $$;

-- Those that come after these jobs in their order, up to so many in all. got: the lanes that are locked already.
create function postrider.take_lines(queue text, going postrider.ready[], kinds text[], most int, got text[]) returns postrider.ready[]
language plpgsql set search_path = pg_catalog, pg_temp
set jit = off set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off
set enable_mergejoin = off as $$
#variable_conflict use_column
declare
    k record;
    lined postrider.ready[];
    heads postrider.ready[] := array(
        -- whoever runs in a lease of its own runs alone, and a limit may let in fewer
        select g from unnest(take_lines.going) g
         where g.order_key is not null and g.flags & 222 = 2
           -- behind it only: before it lies what has been moved from there
           and (select true from postrider.parked p
                 where p.queue = take_lines.queue and p.key = 'order:' || g.order_key and p.pos > g.id limit 1));
begin
    got := got || postrider.lock_lanes(take_lines.queue, array(
        select 'order:' || h.order_key from unnest(heads) h where ('order:' || h.order_key = any (take_lines.got)) is not true));
    for k in
        select h.id, 'order:' || h.order_key as key from unnest(heads) h where 'order:' || h.order_key = any (got) order by 2
    loop
        exit when coalesce(cardinality(lined), 0) >= take_lines.most;
        lined := lined || postrider.line_up(take_lines.queue, k.key, k.id, take_lines.kinds, take_lines.most - coalesce(cardinality(lined), 0));
    end loop;
    return lined;
end $$;

-- Which of these jobs, whose turn it is, have room in their limits; the others are parked with their turn.
create function postrider.take_room(queue text, going postrider.ready[], out may postrider.ready[], out parked boolean)
language plpgsql set search_path = pg_catalog, pg_temp
set jit = off set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off
set enable_mergejoin = off as $$
#variable_conflict use_column
declare
    keys text[];
    got text[];
    x record;
    none bigint[] := '{}';
    few int;
begin
    parked := false;
    keys := array(
        select 'limit:' || j.limit_key from unnest(going) with ordinality g
          left join postrider.job j on j.class = (g.id & 3)::smallint and j.id = g.id order by g.ordinality);
    got := postrider.lock_lanes(take_room.queue, array(select distinct k from unnest(keys) k where k is not null order by 1));
    for x in
        with asked as materialized (
            select keys[g.ordinality::int] as key, array_agg(g.id order by g.id) as ids, count(*)::int as n from unnest(going) with ordinality g
             where keys[g.ordinality::int] is not null group by 1
        )
        select a.key, a.ids, a.n, r.free, r.again, r.per_from from asked a left join postrider.rooms_of(take_room.queue, got) r on r.key = a.key
         order by a.key
    loop
        if x.key <> all (got) then
            none := none || x.ids;
            insert into postrider.lane_call (queue, key, low) values (take_room.queue, x.key, x.ids[1]);
            perform postrider.wake_for_lanes();
            continue;
        end if;
        few := least(x.free, x.n);
        if x.per_from is not null and coalesce(few, x.n) > 0 then
            update postrider.lane l
               set used = coalesce(few, x.n) + case when l.window_at = x.per_from then l.used else 0 end,
                   window_at = x.per_from, due_at = x.again, changes = (l.changes + 1) & 63, gen = l.gen + (l.changes = 63)::int
             where l.ctid = (select y.ctid from postrider.lane y where y.queue = take_room.queue and y.key = x.key order by y.gen desc limit 1);
        end if;
        if few < x.n then
            none := none || x.ids[few + 1:];
            update postrider.lane l
               set low_parked = least(l.low_parked, x.ids[few + 1]), due_at = coalesce(x.again, l.due_at),
                   changes = (l.changes + 1) & 63, gen = l.gen + (l.changes = 63)::int
             where l.ctid = (select y.ctid from postrider.lane y where y.queue = take_room.queue and y.key = x.key order by y.gen desc limit 1);
        end if;
        -- nothing waits, nothing is counted: whoever comes next makes it again
        if x.free is null then
            delete from postrider.lane l
             where l.ctid = (select y.ctid from postrider.lane y where y.queue = take_room.queue and y.key = x.key order by y.gen desc limit 1)
               and l.due_at is null
               and not exists (select from postrider.parked p
                                where p.queue = take_room.queue and p.key = x.key and p.pos >= l.low_parked);
        end if;
    end loop;
    insert into postrider.parked (queue, key, pos, id, priority, share, attempt, losses, flags, order_key)
    select g.queue, keys[g.ordinality::int], g.id, g.id, g.priority, g.share, g.attempt, g.losses, postrider.flags_of_waiting(g.flags), g.order_key
      from unnest(going) with ordinality g where g.id = any (none);
    parked := found;
    select array_agg(g) into may from unnest(going) g where g.id <> all (none);
end $$;
