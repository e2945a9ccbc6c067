-- Lanes: jobs of one order key run one after the other; of one limit key so many at a time, or so many in a period.
-- Locks: lanes, waited for 20 ms at most: who does not get one leaves a call, and the next claim or a beat does what was to be done.
-- By hand on a large table: nothing.
--
-- Producers take no lock. What a claim finds is parked behind its key, and under the lock of the lane the oldest one gets the turn: it
-- keeps it through its retries, and hands it on when it has ended. Slots of a limit are counted, from the leases that are open.

-- key: 'order:<key>' or 'limit:<key>'. A lane is there while somebody has its turn, waits in it, or may not run.
-- holder: the job that has the turn. line: jobs that were leased along with it, to run after it one by one: the turn goes on to them first.
-- low_parked, low_ready: no waiting job has a lower id, so that no look walks what is gone, which a long transaction elsewhere keeps; cleared:
-- up to there `ready` was looked through for those that may be moved out of the way. stopped_by: the job for which it stopped. window_at,
-- used: starts in the period that runs. due_at: when it is to be looked at again. gen goes up with every 64th change, and a look begins at
-- the highest: a long transaction elsewhere keeps each version that the row ever had, and by its key alone all of them would be walked.
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
    changes    smallint    not null default 0,
    gen        int         not null default 0,
    primary key (queue, key),
    constraint a_stopped_lane_says_why check ((stopped_at is null) = (reason is null)),
    constraint a_line_has_a_head check (line is null or holder is not null)
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 2000, autovacuum_vacuum_cost_delay = 1);
create index lane_newest on postrider.lane (queue, key, gen);
create index lane_due on postrider.lane (due_at) where due_at is not null;
create index lane_stopped on postrider.lane (queue, key) where stopped_at is not null;

-- lanes that somebody is to look at: two who call one leave a row each, so that neither waits for the other. low: without the lock nothing
-- was parked below this one
create table postrider.lane_call (
    queue text   not null,
    key   text collate "C" not null,
    low   bigint not null default 0
);
create index lane_call_key on postrider.lane_call (queue, key);

-- Has somebody who claims look at the lanes that were called; if nobody hears it, a beat does.
create function postrider.wake_for_lanes() returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    if coalesce(current_setting('postrider.wake', true), '') <> 'off' and pg_notification_queue_usage() < 0.5 then
        perform pg_notify('postrider_lane', '');
    end if;
end $$;

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
    if found then
        perform postrider.wake_for_lanes();
    end if;
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
-- waits here, 20 ms if at all, or come before one that it has: two who have what the other one waits for would wait for nothing.
create function postrider.lock_lanes(queue text, keys text[], waits boolean default true) returns text[]
language plpgsql set search_path = pg_catalog, pg_temp
set jit = off set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off
set enable_mergejoin = off as $$
declare
    rest text[] := keys;
    got text[] := '{}';
    now_got text[];
begin
    for n in 1..10 loop
        -- a look for each: asked for all at once, those of the whole queue might be walked, and what is gone of them
        select array_agg(l.key) into now_got
          from unnest(rest) r (key)
         cross join lateral (
            select x.key from postrider.lane x where x.queue = lock_lanes.queue and x.key = r.key
             order by x.gen desc limit 1 for update skip locked) l;
        got := got || now_got;
        rest := array(select r from unnest(rest) r where r <> all (got));
        exit when rest = '{}';
        -- whoever finds one that is there need not try to make it, which waits for whoever changes it
        now_got := postrider.make_lanes(lock_lanes.queue, array(
            select r from unnest(rest) r
             where waits or (select y.gen from postrider.lane y where y.queue = lock_lanes.queue and y.key = r order by y.gen desc limit 1) is null));
        got := got || now_got;
        rest := array(select r from unnest(rest) r where r <> all (got));
        exit when rest = '{}' or not waits or (select min(r) from unnest(rest) r) < (select max(g) from unnest(got) g);
        perform pg_sleep(0.002);
    end loop;
    return got;
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

-- Has somebody look at the lanes that a limit or a hold is about; also at one that is not seen yet: a claim may be making it, and park what it
-- found by what held before.
create function postrider.call_limits(queue text, key text) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    insert into postrider.lane_call (queue, key, low)
    select l.queue, l.key, 9223372036854775807 from postrider.lane l
     where l.queue = call_limits.queue and l.key like 'limit:%' and call_limits.key = ''
    union all
    select call_limits.queue, 'limit:' || call_limits.key, 9223372036854775807 where call_limits.key <> '';
    perform postrider.wake_for_lanes();
end $$;

-- The lanes of a queue in the order of their keys, after one, or one alone; all as text. head: the job that has the turn, or for which the
-- lane stopped. depth: how many wait in it, those of an order key also if no claim has looked at them yet, but not those that wait for a
-- time; counted up to 1000.
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
                select from (select from postrider.parked p where p.queue = l.queue and p.key = l.key and p.pos >= l.low_parked limit 1000) w
                union all
                select from (select from postrider.ready r where r.queue = l.queue and r.order_key = substr(l.key, 7) and l.key like 'order:%'
                                and r.flags & 34 = 32 and r.pos = r.id and r.id >= l.low_ready limit 1000) a
                union all
                select from (select from postrider.ready r where r.queue = l.queue and r.order_key = substr(l.key, 7) and l.key like 'order:%'
                                and r.flags & 34 = 32 and r.pos <> r.id limit 1000) m
                limit 1000) d),
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
