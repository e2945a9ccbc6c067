-- Lanes: jobs of one order key run one after the other; of one limit key so many at a time, or so many in a period.
-- Locks: lanes, never waited for: who does not get one leaves a call, and a beat does what was to be done.
-- By hand on a large table: nothing.
--
-- Producers take no lock. What a claim finds is parked behind its key, and under the lock of the lane the oldest one gets the turn: it
-- keeps it through its retries, and hands it on when it has ended. Slots of a limit are counted, from the leases that are open.

-- key: 'order:<key>' or 'limit:<key>'. A lane is there while somebody has its turn, waits in it, or may not run.
-- holder: the job that has the turn. line: jobs that were leased along with it, to run after it one by one: the turn goes on to them first.
-- low_parked, low_ready: no waiting job has a lower id, so that no look walks what is gone, which a
-- long transaction elsewhere keeps; cleared: up to there `ready` was looked through for those that may be moved out of the way. stopped_by: the job for which it stopped. window_at, used: starts in the period that runs. due_at: when it is to be looked at again.
create table postrider.lane (
    queue      text        not null,
    key        text collate "C" not null,
    holder     bigint,
    line       bigint[],
    since      timestamptz not null default clock_timestamp(),
    low_parked bigint      not null default 0,
    low_ready  bigint      not null default 0,
    cleared    bigint      not null default 0,
    stopped_at timestamptz,
    reason     text,
    stopped_by bigint,
    window_at  timestamptz,
    used       int         not null default 0,
    due_at     timestamptz,
    primary key (queue, key),
    constraint a_stopped_lane_says_why check ((stopped_at is null) = (reason is null)),
    constraint a_line_has_a_head check (line is null or holder is not null)
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 2000, autovacuum_vacuum_cost_delay = 1);
create index lane_due on postrider.lane (due_at) where due_at is not null;
create index lane_stopped on postrider.lane (queue, key) where stopped_at is not null;

-- lanes that somebody is to look at: two who call one leave a row each, so that neither waits for the other
create table postrider.lane_call (
    queue text not null,
    key   text collate "C" not null
);
create index lane_call_key on postrider.lane_call (queue, key);

-- limits and holds; key '' is every limit key of the queue that has no limit of its own
create table postrider.key_limit (
    queue      text        not null,
    key        text collate "C" not null,
    most       int,
    starts     int,
    per        interval,
    held_until timestamptz,
    reason     text,
    changed_at timestamptz not null default clock_timestamp(),
    primary key (queue, key),
    constraint most_is_not_negative check (most >= 0),
    constraint a_rate_has_starts_and_a_period check ((starts is null) = (per is null) and starts > 0 and per > interval '0')
);

-- Which of 64 shares an owner's jobs wait in.
create function postrider.share_of(owner text) returns smallint
language sql immutable set search_path = pg_catalog, pg_temp
return (hashtextextended(owner, 0) & 63)::smallint;

-- What happens to a lane whose head fails, as a number: 0 block, -1 skip, n park after n failures. Refuses with PR005.
create function postrider.order_rule(policy text) returns smallint
language plpgsql immutable set search_path = pg_catalog, pg_temp as $$
begin
    if policy = 'block' then
        return 0;
    elsif policy = 'skip' then
        return -1;
    elsif policy ~ '^park:[1-9][0-9]{0,2}$' then
        return substr(policy, 6)::smallint;
    end if;
    perform postrider.refuse('PR005', 'order_policy', format('%L is not a policy', left(policy, 80)),
        'use block, skip, or park:3 to stop after 3 failures');
end $$;

-- Refuses with PR005.
create function postrider.check_keys(order_key text, order_policy text, limit_key text) returns void
language plpgsql immutable set search_path = pg_catalog, pg_temp as $$
begin
    if octet_length(order_key) not between 1 and 200 then
        perform postrider.refuse('PR005', 'order_key', 'a key is 1 to 200 bytes', 'use a shorter key, or a hash');
    elsif octet_length(limit_key) not between 1 and 200 then
        perform postrider.refuse('PR005', 'limit_key', 'a key is 1 to 200 bytes', 'use a shorter key, or a hash');
    elsif order_policy is not null then
        if order_key is null then
            perform postrider.refuse('PR005', 'order_policy', 'a policy belongs to an order key', 'give order_key as well');
        end if;
        perform postrider.order_rule(order_policy);
    end if;
end $$;

-- Has somebody look at the lanes of a job soon: with the next beat.
create function postrider.call_lanes(j postrider.job) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    insert into postrider.lane_call (queue, key)
    select j.queue, k.key from (values ('order:' || j.order_key), ('limit:' || j.limit_key)) k (key) where k.key is not null;
end $$;

-- Makes lanes that are not there, and with that locks them. Whom another one is making is not waited for long; none is made then.
create function postrider.make_lanes(queue text, keys text[]) returns text[]
language plpgsql set search_path = pg_catalog, pg_temp set lock_timeout = '50ms' as $$
#variable_conflict use_column
declare
    made text[];
begin
    with new as (
        insert into postrider.lane (queue, key)
        select make_lanes.queue, k from unnest(make_lanes.keys) k order by k
            on conflict do nothing returning key
    )
    select array_agg(n.key) into made from new n;
    return coalesce(made, '{}');
exception when lock_not_available then
    return '{}';
end $$;

-- Locks lanes, and makes those that are not there. Answers with those that it has; the others are somebody else's for longer than one
-- waits here, 20 ms.
create function postrider.lock_lanes(queue text, keys text[]) returns text[]
language plpgsql set search_path = pg_catalog, pg_temp
set jit = off set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off
set enable_mergejoin = off as $$
declare
    rest text[] := keys;
    got text[] := '{}';
    now_got text[];
begin
    for n in 1..10 loop
        -- not joined: then all lanes of the queue might be walked for it
        select array_agg(l.key) into now_got from (
            select x.key from postrider.lane x where x.queue = lock_lanes.queue and x.key = any (rest) for update skip locked) l;
        got := got || now_got;
        rest := array(select r from unnest(rest) r where r <> all (got));
        exit when rest = '{}';
        now_got := postrider.make_lanes(lock_lanes.queue, rest);
        got := got || now_got;
        rest := array(select r from unnest(rest) r where r <> all (got));
        exit when rest = '{}';
        perform pg_sleep(0.002);
    end loop;
    return got;
end $$;

-- Moves what waits in `ready` behind an order key to where it is out of the way of others, a thousand at a time. The lane is locked.
create function postrider.clear_ready(lane_queue text, lane_key text) returns void
language plpgsql set search_path = pg_catalog, pg_temp
set jit = off set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off
set enable_mergejoin = off as $$
declare
    l postrider.lane;
    lowest bigint;
    highest bigint;
begin
    select * into l from postrider.lane x where x.queue = lane_queue and x.key = lane_key;
    with away as (
        delete from postrider.ready r where r.ctid = any (array(
            select x.ctid from postrider.ready x
             where x.queue = lane_queue and x.order_key = substr(lane_key, 7) and x.flags & 34 = 32 and x.pos = x.id
               and x.id >= greatest(l.low_ready, l.cleared)
             order by x.id limit 1000 for update skip locked))
        returning r.*
    ), waiting as (
        insert into postrider.parked (queue, key, pos, id, priority, share, attempt, losses, flags, order_key)
        select w.queue, lane_key, w.id, w.id, w.priority, w.share, w.attempt, w.losses,
               postrider.flags_of_waiting(w.flags), w.order_key from away w
        returning id
    )
    select min(w.id), max(w.id) into lowest, highest from waiting w;
    update postrider.lane x set low_parked = least(x.low_parked, lowest), cleared = greatest(x.cleared, highest)
     where x.queue = lane_queue and x.key = lane_key and highest is not null;
end $$;

-- Gives the turn of an order key to the oldest job that waits for it, takes it from where it is parked and answers with it; all null if
-- somebody has the turn, the lane is stopped, nobody waits, or an older one is in the hands of somebody who will ask for it. The lane is
-- locked, and this looks after that.
create function postrider.next_turn(lane_queue text, lane_key text) returns postrider.ready
language plpgsql set search_path = pg_catalog, pg_temp
set jit = off set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_bitmapscan = off as $$
declare
    l postrider.lane;
    head postrider.ready;
    oldest bigint;
    of_key text := substr(lane_key, 7);
    before bigint;
begin
    select * into l from postrider.lane x where x.queue = lane_queue and x.key = lane_key;
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
        update postrider.lane x set low_ready = before where x.queue = lane_queue and x.key = lane_key and x.low_ready < before
           and not exists (select from postrider.ready r where r.queue = lane_queue and r.order_key = of_key and r.id = before
                              and r.flags & 34 = 32 and r.pos <> r.id);
    else
        delete from postrider.parked p where p.queue = lane_queue and p.key = lane_key and p.pos = oldest
        returning p.queue, p.priority, p.share, p.pos, p.id, p.attempt, p.losses, (p.flags | 2)::smallint, p.order_key into head;
        update postrider.lane x
           set holder = head.id, since = clock_timestamp(), low_parked = oldest, low_ready = greatest(l.low_ready, oldest)
         where x.queue = lane_queue and x.key = lane_key;
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
    l postrider.lane;
    of_key text := substr(lane_key, 7);
    asks bigint;
    next_ones bigint[];
    got bigint[];
    lined postrider.ready[];
begin
    select * into l from postrider.lane x where x.queue = lane_queue and x.key = lane_key;
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
             order by x.pos limit cardinality(next_ones)))
        returning p.*
    )
    select array_agg(row (t.queue, t.priority, t.share, t.pos, t.id, t.attempt, t.losses, t.flags, t.order_key)::postrider.ready)
      into lined from taken t;
    if lined is not null then
        update postrider.lane x set line = next_ones, low_parked = next_ones[cardinality(next_ones)]
         where x.queue = lane_queue and x.key = lane_key;
    end if;
    return lined;
end $$;

-- How many more of a limit key may start now, null for any number; and when to look again. The lane is locked, and this looks after that.
create function postrider.room_of(lane_queue text, lane_key text, out free int, out again timestamptz, out per_from timestamptz)
language plpgsql set search_path = pg_catalog, pg_temp
set jit = off set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_bitmapscan = off as $$
declare
    of_key text := substr(lane_key, 7);
    own postrider.key_limit;
    other postrider.key_limit;
    l postrider.lane;
    now timestamptz := clock_timestamp();
begin
    select * into own from postrider.key_limit x where x.queue = lane_queue and x.key = of_key;
    select * into other from postrider.key_limit x where x.queue = lane_queue and x.key = '';
    if greatest(own.held_until, other.held_until) > now then
        free := 0;
        again := greatest(own.held_until, other.held_until);
        return;
    end if;
    if own.most is null and own.starts is null then
        own := other;
    end if;
    if own.most is not null then
        free := greatest(0, own.most - (
            select count(*) from postrider.lease x cross join unnest(x.ids, x.limit_keys) u (id, key)
             where x.queue = lane_queue and x.limit_keys is not null and u.key = of_key and u.id = any (x.open)));
    end if;
    if own.starts is not null then
        select * into l from postrider.lane x where x.queue = lane_queue and x.key = lane_key;
        per_from := case when l.window_at + own.per > now then l.window_at else now end;
        free := least(free, greatest(0, own.starts - case when per_from = l.window_at then l.used else 0 end));
        again := per_from + own.per;
    end if;
end $$;

-- Picks as postrider.claim does, where jobs with keys are among those that wait: answers with those that are to be leased. Jobs without
-- keys are picked as they are; the others are parked, and whoever has the turn and room comes along, with up to in_line of those that
-- come after it. moved: something was parked.
create function postrider.take_turns(
    queue text, most int, priorities smallint[], shares smallint[], positions bigint[], kinds text[], in_line int,
    out turns postrider.ready[], out moved boolean
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
              from unnest(take_turns.priorities, take_turns.shares, take_turns.positions) with ordinality p (priority, share, pos, o)
             cross join lateral (
                -- whoever has the turn of a key waits apart, wherever the others begin, and goes in turn with them
                select u.place from (
                    select h.place, row_number() over () as n from (
                        select y.ctid as place from postrider.ready y
                         where y.queue = take_turns.queue and y.priority = p.priority and y.share = p.share and y.flags & 2 <> 0
                           and (y.flags & 16 = 0 or postrider.hold_group(y.id))
                         order by y.id limit take_turns.most for update skip locked) h
                    union all
                    select o.place, row_number() over () from (
                        select y.ctid as place from postrider.ready y
                         where y.queue = take_turns.queue and y.priority = p.priority and y.share = p.share and y.pos >= p.pos
                           and y.flags & 2 = 0 and (y.flags & 16 = 0 or postrider.hold_group(y.id))
                         order by y.pos limit take_turns.most for update skip locked) o) u
                 order by u.n limit take_turns.most) x
             where not exists (select from postrider.queue q where q.name = take_turns.queue and q.paused_at is not null)
             limit take_turns.most))
        returning r.*
    )
    select array_agg(row (t.*)::postrider.ready) into picked from taken t;
    select array_agg(u) filter (where u.flags & 32 = 0),
           array_agg(u) filter (where u.flags & 32 <> 0 and (u.flags & 2 <> 0 or u.order_key is null)),
           array_agg(u) filter (where u.flags & 34 = 32 and u.order_key is not null)
      into turns, going, asking from unnest(picked) u;
    moved := asking is not null;
    if moved then
        got := postrider.lock_lanes(take_turns.queue, array(select distinct 'order:' || a.order_key from unnest(asking) a));
        select t.asking, t.free into asking, free from postrider.take_free(take_turns.queue, asking, got) t;
        going := going || free;
        insert into postrider.parked (queue, key, pos, id, priority, share, attempt, losses, flags, order_key)
        select a.queue, 'order:' || a.order_key, a.id, a.id, a.priority, a.share, a.attempt, a.losses,
               postrider.flags_of_waiting(a.flags), a.order_key
          from unnest(asking) a;
        insert into postrider.lane_call (queue, key)
        select distinct take_turns.queue, 'order:' || a.order_key from unnest(asking) a where 'order:' || a.order_key <> all (got);
        for k in
            select 'order:' || a.order_key as key, min(a.id) as lowest, count(*) as n from unnest(asking) a
             where 'order:' || a.order_key = any (got) group by 1 order by 1
        loop
            update postrider.lane l set low_parked = k.lowest
             where l.queue = take_turns.queue and l.key = k.key and l.low_parked > k.lowest;
            if k.n > 1 or k.n = take_turns.most then
                -- many of one key, as far as one can see: the rest of them may not be in the way of others either
                perform postrider.clear_ready(take_turns.queue, k.key);
            end if;
            head := postrider.next_turn(take_turns.queue, k.key);
            if head.id is not null then
                going := going || head;
            end if;
        end loop;
    end if;
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
        update postrider.lane l set holder = a.id, since = clock_timestamp(), low_ready = greatest(l.low_ready, a.id)
          -- each a look of its own: joined, they would be planned as walks over the queue
          from (select x.*, (select y.ctid from postrider.lane y where y.queue = take_free.queue and y.key = x.key) as place
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
           array_agg(row (a.queue, a.priority, a.share, a.pos, a.id, a.attempt, a.losses, a.flags | 2, a.order_key)::postrider.ready)
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
           and (select true from postrider.parked p where p.queue = take_lines.queue and p.key = 'order:' || g.order_key limit 1));
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
    limited text[];
    got text[];
    k text;
    ids bigint[];
    none bigint[] := '{}';
    room record;
    few int;
begin
    parked := false;
    limited := array(
        select 'limit:' || j.limit_key from unnest(going) g
          join postrider.job j on j.class = (g.id & 3)::smallint and j.id = g.id where j.limit_key is not null group by 1 order by 1);
    got := postrider.lock_lanes(take_room.queue, limited);
    foreach k in array limited loop
        ids := array(select j.id from unnest(going) g join postrider.job j on j.class = (g.id & 3)::smallint and j.id = g.id
                      where j.limit_key = substr(k, 7) order by j.id);
        if k <> all (got) then
            none := none || ids;
            insert into postrider.lane_call (queue, key) values (take_room.queue, k);
            continue;
        end if;
        select * into room from postrider.room_of(take_room.queue, k);
        few := least(room.free, cardinality(ids));
        if room.per_from is not null and coalesce(few, cardinality(ids)) > 0 then
            update postrider.lane l
               set used = coalesce(few, cardinality(ids)) + case when l.window_at = room.per_from then l.used else 0 end,
                   window_at = room.per_from, due_at = room.again
             where l.queue = take_room.queue and l.key = k;
        end if;
        if few < cardinality(ids) then
            none := none || ids[few + 1:];
            update postrider.lane l set low_parked = least(l.low_parked, ids[few + 1]), due_at = coalesce(room.again, l.due_at)
             where l.queue = take_room.queue and l.key = k;
        end if;
        -- nothing waits, nothing is counted: whoever comes next makes it again
        if room.free is null then
            delete from postrider.lane l where l.queue = take_room.queue and l.key = k and l.due_at is null
               and not exists (select from postrider.parked p where p.queue = take_room.queue and p.key = k);
        end if;
    end loop;
    insert into postrider.parked (queue, key, pos, id, priority, share, attempt, losses, flags, order_key)
    select g.queue, 'limit:' || j.limit_key, g.id, g.id, g.priority, g.share, g.attempt, g.losses,
           postrider.flags_of_waiting(g.flags), g.order_key
      from unnest(going) g join postrider.job j on j.class = (g.id & 3)::smallint and j.id = g.id where g.id = any (none);
    parked := found;
    select array_agg(g) into may from unnest(going) g where g.id <> all (none);
end $$;

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
           low_parked = least(x.low_parked, l.holder)
     where x.queue = l.queue and x.key = l.key;
end $$;

-- Looks at lanes: takes the turn from whoever has given it up, lets the next one go, and those that have room. Lanes that are somebody
-- else's are called. from_start: what was parked without the lock may lie below the low-water marks.
create function postrider.settle_lanes(queue text, keys text[], from_start boolean default false) returns void
language plpgsql set search_path = pg_catalog, pg_temp
set jit = off set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off
set enable_mergejoin = off as $$
#variable_conflict use_column
declare
    got text[] := postrider.lock_lanes(settle_lanes.queue, settle_lanes.keys);
    k text;
    l postrider.lane;
    head postrider.ready;
    moved boolean := false;
begin
    insert into postrider.lane_call (queue, key) select settle_lanes.queue, x from unnest(settle_lanes.keys) x where x <> all (got);
    if from_start then
        update postrider.lane l set low_parked = 0, low_ready = 0, cleared = 0 where l.queue = settle_lanes.queue and l.key = any (got);
    end if;
    with idle as (
        -- most keys have one job at a time: when it has ended, and stops nothing, there is nothing to look for
        delete from postrider.lane x
         where x.queue = settle_lanes.queue and x.key = any (array(select g from unnest(got) g where g like 'order:%'))
           and x.stopped_at is null and x.line is null
           and (select d.state from postrider.done d where d.class = (x.holder & 3)::smallint and d.id = x.holder) in (2, 4)
           and (select p.pos from postrider.parked p where p.queue = x.queue and p.key = x.key and p.pos >= x.low_parked
                 order by p.pos limit 1) is null
        returning x.key
    )
    select array(select g from unnest(got) g where g <> all (array(select i.key from idle i))) into got;
    foreach k in array got loop
        if k like 'limit:%' then
            moved := postrider.let_in(settle_lanes.queue, k) or moved;
            continue;
        end if;
        select * into l from postrider.lane x where x.queue = settle_lanes.queue and x.key = k;
        if l.holder is not null then
            perform postrider.judge_holder(l);
        end if;
        head := postrider.next_turn(settle_lanes.queue, k);
        if head.id is not null then
            -- a new position: at its old one, claims would have to walk what was moved out of the way of others
            head.pos := (pg_sequence_last_value('postrider.job_epoch'::regclass) << 46) | (nextval('postrider.job_number') << 2);
            insert into postrider.ready select head.*;
            moved := true;
        else
            delete from postrider.lane x where x.queue = settle_lanes.queue and x.key = k and x.holder is null and x.stopped_at is null
               and not exists (select from postrider.parked p
                                where p.queue = settle_lanes.queue and p.key = k and p.pos >= x.low_parked);
        end if;
    end loop;
    if moved then
        perform postrider.wake('postrider_job');
    end if;
end $$;

-- Moves as many of a limit key as have room to where they can be claimed, which counts them again. The lane is locked.
create function postrider.let_in(lane_queue text, lane_key text) returns boolean
language plpgsql set search_path = pg_catalog, pg_temp
set jit = off set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_bitmapscan = off as $$
declare
    room record;
    l postrider.lane;
    n int;
    lowest bigint;
begin
    select * into l from postrider.lane x where x.queue = lane_queue and x.key = lane_key;
    select * into room from postrider.room_of(lane_queue, lane_key);
    with freed as (
        delete from postrider.parked p where p.ctid = any (array(
            select x.ctid from postrider.parked x
             where x.queue = lane_queue and x.key = lane_key and x.pos >= l.low_parked
             order by x.pos limit least(room.free, 1000) for update skip locked))
        returning p.*
    ), again as (
        insert into postrider.ready (queue, priority, share, pos, id, attempt, losses, flags, order_key)
        select f.queue, f.priority, f.share, f.pos, f.id, f.attempt, f.losses, f.flags, f.order_key from freed f returning 1
    )
    select count(*) into n from again;
    select p.pos into lowest from postrider.parked p
     where p.queue = lane_queue and p.key = lane_key and p.pos >= l.low_parked order by p.pos limit 1;
    if lowest is null and (room.per_from is null or room.per_from is distinct from l.window_at) then
        delete from postrider.lane x where x.queue = lane_queue and x.key = lane_key;
    else
        update postrider.lane x
           set low_parked = coalesce(lowest, x.low_parked),
               due_at = case when lowest is not null and n < coalesce(room.free, n + 1) then clock_timestamp() else room.again end
         where x.queue = lane_queue and x.key = lane_key;
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
        perform postrider.settle_lanes(x.queue, x.keys);
    end loop;
end $$;

-- Looks at the lanes that were called, and at those whose time has come.
create function postrider.settle_lanes_called() returns void
language plpgsql set search_path = pg_catalog, pg_temp
set jit = off set enable_seqscan = off set enable_bitmapscan = off as $$
declare
    x record;
begin
    for x in
        with taken as (
            delete from postrider.lane_call c where c.ctid = any (array(
                select o.ctid from postrider.lane_call o limit 1000 for update skip locked)) returning c.queue, c.key
        )
        select t.queue, array_agg(distinct t.key order by t.key) as keys from (
            select * from taken
            union all
            select * from (select l.queue, l.key from postrider.lane l where l.due_at <= clock_timestamp() order by l.due_at limit 1000) d) t
         group by t.queue order by t.queue
    loop
        perform postrider.settle_lanes(x.queue, x.keys, true);
    end loop;
end $$;

-- How many jobs of a limit key run at a time, and how many start in a period, in a queue and over all processes. Key '' is for every
-- limit key of the queue that has no limit of its own; nothing at all takes the limit away. It holds for the next claims.
create function postrider.set_limit(
    queue text, key text, most int default null, starts int default null, per interval default null
) returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_variable
begin
    perform postrider.check_name('queue', queue, true);
    perform postrider.check_keys(null, null, nullif(key, ''));
    if most not between 0 and 1000000 then
        perform postrider.refuse('PR005', 'most', format('%s is out of range', most), 'use 0 to 1000000');
    elsif (starts is null) <> (per is null) then
        perform postrider.refuse('PR005', 'starts', 'a rate is a number of starts and a period', 'give starts and per together');
    elsif starts not between 1 and 1000000 or per not between interval '10 milliseconds' and interval '366 days' then
        perform postrider.refuse('PR005', 'starts', 'it is not a rate', 'use 1 to 1000000 starts in 10 ms to a year');
    end if;
    insert into postrider.key_limit as l (queue, key, most, starts, per) values (queue, key, most, starts, per)
        on conflict on constraint key_limit_pkey do update
       set most = excluded.most, starts = excluded.starts, per = excluded.per, changed_at = clock_timestamp();
    perform postrider.call_limits(queue, key);
end $$;

-- Gives nothing of a limit key until then, and says why; key '' is every limit key of the queue. Null, or a moment that is over, lets it go
-- on. What runs goes on running.
create function postrider.hold(queue text, key text, until timestamptz, reason text default '') returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_variable
begin
    perform postrider.check_name('queue', queue, true);
    perform postrider.check_keys(null, null, nullif(key, ''));
    insert into postrider.key_limit as l (queue, key, held_until, reason) values (queue, key, until, left(reason, 1000))
        on conflict on constraint key_limit_pkey do update
       set held_until = excluded.held_until, reason = excluded.reason, changed_at = clock_timestamp();
    perform postrider.call_limits(queue, key);
end $$;

create function postrider.call_limits(queue text, key text) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    insert into postrider.lane_call (queue, key)
    select l.queue, l.key from postrider.lane l
     where l.queue = call_limits.queue and l.key like 'limit:%' and (call_limits.key = '' or l.key = 'limit:' || call_limits.key);
end $$;

-- The lanes of a queue in the order of their keys, after one, or one alone; all as text. head: the job that has the turn, or for which the
-- lane stopped. depth is counted up to 1000.
create function postrider.lanes(queue text, after text, most int, only_key text default null, only_stopped boolean default false)
returns table (key text, depth text, head text, head_state text, since_us text, stopped_us text, reason text, held_us text)
language plpgsql stable security definer set search_path = pg_catalog, pg_temp
set jit = off set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off
set enable_mergejoin = off as $$
#variable_conflict use_column
begin
    return query
    select l.key::text,
           (select count(*)::text from (
                select from postrider.parked p where p.queue = l.queue and p.key = l.key and p.pos >= l.low_parked limit 1000) d),
           j.id::text, postrider.state_of(j), ((extract(epoch from l.since) * 1000000)::bigint)::text,
           ((extract(epoch from l.stopped_at) * 1000000)::bigint)::text, coalesce(l.reason, c.reason),
           ((extract(epoch from c.held_until) * 1000000)::bigint)::text
      from (
        select * from (
            select x.* from postrider.lane x
             where not lanes.only_stopped and lanes.only_key is null and x.queue = lanes.queue and x.key > lanes.after
             order by x.key limit lanes.most) every
        union all
        select * from (
            select x.* from postrider.lane x
             where lanes.only_stopped and lanes.only_key is null and x.queue = lanes.queue and x.key > lanes.after and x.stopped_at is not null
             order by x.key limit lanes.most) stopped
        union all
        select x.* from postrider.lane x where x.queue = lanes.queue and x.key = lanes.only_key) l
      left join postrider.job j on j.class = (coalesce(l.holder, l.stopped_by) & 3)::smallint and j.id = coalesce(l.holder, l.stopped_by)
      left join postrider.key_limit c on l.key like 'limit:%' and c.queue = l.queue and c.key = substr(l.key, 7)
                                     and c.held_until > clock_timestamp()
     order by l.key;
end $$;

-- What an operator does to a lane whose head is in the way. act: release (a stopped lane goes on in its order), retry (its head runs again
-- at once, and the lane goes on), skip (its head ends as cancelled, and the lane goes on). Answers done, running (the head runs: nothing
-- was done), busy (somebody works on it: try again) or unknown (nobody is in the way there).
create function postrider.act_on_lane(queue text, order_key text, act text) returns text
language plpgsql security definer set search_path = pg_catalog, pg_temp
set jit = off set enable_seqscan = off set enable_bitmapscan = off as $$
declare
    of_key text := 'order:' || order_key;
    l postrider.lane;
    head bigint;
begin
    perform postrider.check_isolation();
    if act is null or act not in ('release', 'retry', 'skip') then
        perform postrider.refuse('PR005', 'act', format('%L is not an act', left(act, 80)), 'use release, retry or skip');
    elsif not exists (select from postrider.lane x where x.queue = act_on_lane.queue and x.key = of_key) then
        return 'unknown';
    elsif postrider.lock_lanes(queue, array[of_key]) = '{}' then
        return 'busy';
    end if;
    select * into l from postrider.lane x where x.queue = act_on_lane.queue and x.key = of_key;
    head := coalesce(l.holder, l.stopped_by);
    if head is null or act = 'release' and l.stopped_at is null then
        return 'unknown';
    elsif act <> 'release' and exists (select from postrider.lease x where head = any (x.open)) then
        return 'running';
    elsif act = 'retry' then
        perform postrider.retry(array[head]);
    elsif act = 'skip' then
        perform postrider.cancel_within(array[head], 'skipped', 1);
    end if;
    update postrider.lane x set stopped_at = null, reason = null, stopped_by = null, low_parked = 0, low_ready = 0, cleared = 0
     where x.queue = act_on_lane.queue and x.key = of_key;
    perform postrider.settle_lanes(queue, array[of_key]);
    return 'done';
end $$;
