-- The beat of a worker, once a second, and everything that the beat carries: hand-backs, rescues, promotions, hints.
-- Locks: the own worker row; then, skipping what is held: dead worker rows, leases in the order of their ids, due rows, parked rows.
-- By hand on a large table: nothing.
--
-- The planner is pinned here for the reason given with postrider.claim: without it, a rescue read the whole job table for each lease
-- until that table was first analyzed.

-- Puts what a lease still holds open back to where it waits, and forgets the lease. Modes: 'back' = nothing happened, the
-- attempt is given back; 'lost' = the process died. A loss is counted apart from attempts: whoever was in flight gets the
-- attempt back and runs in a lease of its own next time; lost again, it runs when no other such job of its queue does; only a loss that
-- nothing else can have caused spends an attempt. A job lost at its last attempt, or alone and as often as it may be tried,
-- is discarded as lost. One that is to be cancelled ends so.
create function postrider.put_back(lease_id bigint, lost boolean, isolated boolean) returns int
language plpgsql set search_path = pg_catalog, pg_temp
set jit = off set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off
set enable_mergejoin = off as $$
declare
    moved int;
    special bigint[];
begin
    with gone as (
        delete from postrider.lease l where l.id = put_back.lease_id returning l.*
    ), each as materialized (
        select g.id as lease, g.queue, g.claimed_at, o.id, g.positions[i] as pos, g.attempts[i] as attempt,
               g.losses[i] as losses, g.flags[i] as flags, g.priorities[i] as priority, g.shares[i] as share,
               g.order_keys[i] as order_key, j.max_attempts,
               put_back.isolated or g.flags[i] & 8 <> 0 as alone, c.cancelled, c.reason
          from gone g
         cross join unnest(g.open) o (id)
         cross join lateral (select array_position(g.ids, o.id) as i) at
          join postrider.job j on j.class = (o.id & 3)::smallint and j.id = o.id
         cross join lateral (select count(*) > 0 as cancelled, min(x.reason) as reason
                               from postrider.cancellation x where x.id = o.id) c
    ), judged as materialized (
        select e.*, e.cancelled or put_back.lost and (e.attempt >= e.max_attempts
                 or (e.alone and greatest(e.attempt, e.losses + 1) >= e.max_attempts)) as ends,
               put_back.lost and not e.alone and e.losses >= 1 as strict
          from each e
    ), ended as (
        insert into postrider.done (class, id, started_at, lease, state, ended_as, fault_side, attempt, reason)
        select (v.id & 3)::smallint, v.id, v.claimed_at, v.lease, case when v.cancelled then 4 else 3 end,
               case when v.cancelled then 5 else 4 end, case when not v.cancelled then 3 end, v.attempt,
               case when v.cancelled then coalesce(v.reason, 'cancelled')
                    else 'worker lost' || case when v.losses > 0 then ' ×' || (v.losses + 1) else '' end end
          from judged v where v.ends
    ), ready as (
        insert into postrider.ready (queue, priority, share, pos, id, attempt, losses, flags, order_key)
        select v.queue, v.priority, v.share, v.pos, v.id,
               (v.attempt - case when put_back.lost and v.alone then 0 else 1 end)::smallint,
               (v.losses + put_back.lost::int)::smallint,
               (case when put_back.lost then v.flags | 4 else v.flags end)::smallint, v.order_key
          from judged v where not v.ends and not v.strict and not (put_back.lost and v.flags & 8 <> 0)
    ), parked as (
        insert into postrider.parked (queue, key, pos, id, priority, share, attempt, losses, flags, order_key)
        select v.queue, 'strict:', v.pos, v.id, v.priority, v.share,
               (v.attempt - case when v.alone then 0 else 1 end)::smallint, (v.losses + 1)::smallint, (v.flags | 4)::smallint,
               v.order_key
          from judged v where not v.ends and (v.strict or (put_back.lost and v.flags & 8 <> 0))
    ), kept as (
        insert into postrider.attempt (class, id, lease, attempt, outcome, started_at, error)
        select (v.id & 3)::smallint, v.id, v.lease, v.attempt, 3, v.claimed_at, 'worker lost'
          from judged v where put_back.lost
    ), forgotten as (
        delete from postrider.cancellation c where c.id = any (array(select v.id from judged v where v.cancelled))
    )
    select count(*), array_agg(v.id) filter (where v.flags & 49 <> 0) into moved, special from judged v;
    if special is not null then
        perform postrider.settle_unique(special);
        perform postrider.settle_turns(special);
    end if;
    return moved;
end $$;

-- The same, although some of its jobs may be such that they cannot be put back: those stay leased, one by one, and keep nobody else.
create function postrider.put_back_each(lease_id bigint, lost boolean, isolated boolean) returns int
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    l postrider.lease;
    moved int := 0;
    own bigint;
    x bigint;
begin
    begin
        return postrider.put_back(lease_id, lost, isolated);
    exception when others then
        select * into l from postrider.lease y where y.id = lease_id;
        raise warning 'postrider: % of worker % cannot be put back: %', l.open, l.worker, sqlerrm;
    end;
    if cardinality(l.open) > 1 then
        foreach x in array l.open loop
            own := postrider.part(l.worker, lease_id, x, l.call);
            begin
                moved := moved + postrider.put_back(own, lost, isolated);
            exception when others then
                null;
            end;
        end loop;
    end if;
    return moved;
end $$;

-- Forgets a worker that another one has watched not beating, and puts its jobs back. The beat is the fence: a worker that beat
-- meanwhile is left alone. beat -1 means that the worker has leases but no row.
create function postrider.rescue(dead uuid, seen_beat bigint) returns int
language plpgsql set search_path = pg_catalog, pg_temp
set jit = off set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off
set enable_mergejoin = off as $$
declare
    l record;
    n_open bigint;
    moved int := 0;
    started timestamptz := clock_timestamp();
begin
    if seen_beat = -1 then
        if exists (select from postrider.worker w where w.id = dead) then
            return 0;
        end if;
    else
        -- a held row is being beaten on: its worker lives (and two that take each other for dead may not wait for each other)
        delete from postrider.worker w where w.ctid = any (array(
            select v.ctid from postrider.worker v where v.id = dead and v.beat = seen_beat for update skip locked));
        if not found then
            return 0;
        end if;
    end if;
    select coalesce(sum(cardinality(x.open)), 0) into n_open from postrider.lease x where x.worker = dead;
    for l in select x.id from postrider.lease x where x.worker = dead order by x.id for update skip locked loop
        moved := moved + postrider.put_back_each(l.id, true, n_open = 1);
        -- a beat may not take so long that its own worker is taken for dead; what is left has no worker, and is next time's
        exit when clock_timestamp() > started + interval '300 ms';
    end loop;
    return moved;
end $$;

-- Moves due jobs to where they can be claimed, in the order of becoming due.
create function postrider.promote(most int) returns int
language plpgsql set search_path = pg_catalog, pg_temp
set jit = off set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_bitmapscan = off as $$
declare
    moved int;
    until timestamptz := clock_timestamp();
begin
    with due as (
        delete from postrider.later x where x.ctid = any (array(
            select y.ctid from postrider.later y where y.run_at <= until order by y.run_at, y.id limit most
               for update skip locked))
        returning x.*
    ), placed as (
        select d.*, pg_sequence_last_value('postrider.job_epoch'::regclass) << 46 as epoch, nextval('postrider.job_number') as number
          from (select * from due order by run_at, id offset 0) d
    ), moved_rows as (
        insert into postrider.ready (queue, priority, share, pos, id, attempt, losses, flags, order_key, again_at)
        select p.queue, p.priority, p.share, p.epoch | (p.number << 2), p.id, p.attempt, p.losses, p.flags, p.order_key, p.run_at
          from placed p returning 1
    )
    select count(*) into moved from moved_rows;
    return moved;
end $$;

-- Releases what waits for a kind that this worker knows, and of each queue the next of the strict ones if no other is about to run.
create function postrider.unpark(queues text[], kinds text[]) returns int
language plpgsql set search_path = pg_catalog, pg_temp
set jit = off set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_bitmapscan = off as $$
declare
    q text;
    n int;
    moved int := 0;
begin
    kinds := postrider.without_held(kinds);
    foreach q in array queues loop
        continue when not exists (select from postrider.parked p where p.queue = q and p.key >= 'kind:' and p.key < 'kind;')
                  and not exists (select from postrider.parked p where p.queue = q and p.key = 'strict:');
        with free as (
            -- what another worker is releasing is passed by: two that name queues or kinds in another order may not wait in a circle
            delete from postrider.parked p where p.ctid = any (array(
                select o.place from unnest(kinds) k (kind) cross join lateral (
                    select x.ctid as place from postrider.parked x where x.queue = q and x.key = 'kind:' || k.kind for update skip locked) o))
            returning p.*
        ), again as (
            insert into postrider.ready (queue, priority, share, pos, id, attempt, losses, flags, order_key)
            select f.queue, f.priority, f.share, f.pos, f.id, f.attempt, f.losses, f.flags, f.order_key from free f returning 1
        )
        select count(*) into n from again;
        moved := moved + n;
        continue when not exists (select from postrider.parked p where p.queue = q and p.key = 'strict:');
        -- the lock before the look: the next statement's snapshot sees whom the last holder let go
        continue when not pg_try_advisory_xact_lock(7305, 4);
        if not exists (select from postrider.ready r where r.queue = q and r.flags & 8 <> 0)
           and not exists (select from postrider.lease l where l.queue = q and 8 = any (
                select f & 8 from unnest(l.ids, l.flags) u (id, f) where u.id = any (l.open)))
        then
            with head as (
                delete from postrider.parked p where p.queue = q and p.key = 'strict:' and p.pos = (
                    select min(m.pos) from postrider.parked m where m.queue = q and m.key = 'strict:')
                returning p.*
            )
            insert into postrider.ready (queue, priority, share, pos, id, attempt, losses, flags, order_key)
            select h.queue, h.priority, h.share, h.pos, h.id, h.attempt, h.losses, (h.flags | 12)::smallint, h.order_key
              from head h;
            get diagnostics n = row_count;
            moved := moved + n;
        end if;
    end loop;
    return moved;
end $$;

-- One beat. The report:
--   app, version, host, pid, queues, kinds, schedules: who the worker is
--   held: the leases that it knows; settled: the last of its claim calls up to which every reply has arrived or is given up.
--     A lease of a settled call that is not held was never received: it is handed back with its attempts.
--   dead: [{worker, beat}] workers that it has watched not beating
--   progress: [{id, lease, percent, note}] what its handlers told since the last beat
-- The answer:
--   lost: held leases that exist no more; their handlers are to be cancelled
--   cancel: [{lease, id}] attempts whose job is to be cancelled
--   handed_back, rescued, promoted, unparked: how many jobs
--   others: [{worker, beat}] to be watched; ready: queues that have work; event_number: the last one drawn;
--   due_in_ms: when the next waiting job becomes due; schedule_due_in_ms: when a schedule does that the worker fires
create function postrider.tick(worker uuid, report json) returns json
language plpgsql security definer set search_path = pg_catalog, pg_temp
set jit = off set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off
set enable_mergejoin = off as $$
declare
    me uuid := worker;
    queues text[] := array(select json_array_elements_text(report -> 'queues'));
    kinds text[] := array(select json_array_elements_text(report -> 'kinds'));
    held bigint[] := array(select json_array_elements_text(report -> 'held')::bigint);
    settled bigint := (report ->> 'settled')::bigint;
    handed_back int := 0;
    rescued int := 0;
    promoted int := 0;
    unparked int;
    called boolean := false;
    n int;
    x record;
begin
    perform postrider.check_isolation();
    update postrider.worker w set beat = w.beat + 1, beat_at = clock_timestamp() where w.id = me;
    if not found then
        -- a first beat, or a worker that was taken for dead: what it held is told as lost below; sent again when its reply was lost,
        -- it may meet itself
        insert into postrider.worker as w (id, app, version, host, pid, queues, kinds, schedules)
        values (me, coalesce(report ->> 'app', ''), coalesce(report ->> 'version', ''), coalesce(report ->> 'host', ''),
                coalesce((report ->> 'pid')::int, 0), queues, kinds,
                array(select json_array_elements_text(coalesce(report -> 'schedules', '[]'))))
        on conflict (id) do update set beat = w.beat + 1, beat_at = clock_timestamp();
    end if;

    for x in select l.id from postrider.lease l
              where l.worker = me and l.call <= settled and l.id <> all (held) order by l.id for update skip locked
    loop
        handed_back := handed_back + postrider.put_back_each(x.id, false, false);
    end loop;
    for x in select (d ->> 'worker')::uuid as id, (d ->> 'beat')::bigint as beat
               from json_array_elements(coalesce(report -> 'dead', '[]')) d order by 1
    loop
        rescued := rescued + postrider.rescue(x.id, x.beat);
    end loop;
    for i in 1..20 loop
        n := postrider.promote(1000);
        promoted := promoted + n;
        exit when n < 1000;
    end loop;
    unparked := postrider.unpark(queues, kinds);
    perform postrider.note_progress(me, report -> 'progress');
    if exists (select from postrider.unsettled) or exists (select from postrider.cancellation) then
        perform postrider.settle_left_over();
    end if;
    if exists (select from postrider.lane_call) or exists (select from postrider.lane l where l.due_at <= clock_timestamp()) then
        called := postrider.settle_lanes_called();
    end if;
    if handed_back + rescued + promoted + unparked > 0 then
        perform postrider.wake('postrider_job');
    end if;

    return json_build_object(
        'lost', (select coalesce(json_agg(h), '[]') from unnest(held) h
                  where not exists (select from postrider.lease l where l.id = h and l.worker = me)),
        'cancel', case when exists (select from postrider.cancellation) then (
            select json_agg(json_build_object('lease', r.lease, 'id', r.id)) from (
                select distinct l.id as lease, c.id
                  from postrider.cancellation c join postrider.lease l on l.worker = me and c.id = any (l.open)) r) end,
        'handed_back', handed_back, 'rescued', rescued, 'promoted', promoted, 'unparked', unparked,
        'others', (select coalesce(json_agg(json_build_object('worker', o.id, 'beat', o.beat)), '[]') from (
            select w.id, w.beat from postrider.worker w where w.id <> me
            union all
            select distinct l.worker, -1 from postrider.lease l
             where l.worker <> me and not exists (select from postrider.worker w where w.id = l.worker)) o),
        'ready', (select coalesce(json_agg(q), '[]') from unnest(queues) q
                   -- from the newest on: what is gone lies below what waits
                   where (select true from postrider.ready r where r.queue = q
                           order by r.priority desc, r.share desc, r.pos desc limit 1)),
        'event_number', (select last_value from postrider.event_number),
        'due_in_ms', (select greatest(0, ceil(extract(epoch from d.at - clock_timestamp()) * 1000))::bigint
                        from (select least((select y.run_at from postrider.later y order by y.run_at limit 1),
                                           (select l.due_at from postrider.lane l where l.due_at is not null order by l.due_at limit 1),
                                           case when called then clock_timestamp() + interval '100 milliseconds' end) as at) d
                       where d.at is not null),
        'schedule_due_in_ms', case when exists (select from postrider.schedule) then postrider.schedule_due_in_ms(
            array(select json_array_elements_text(coalesce(report -> 'schedules', '[]')))) end);
end $$;

-- Says goodbye: the worker has ended everything it held. What it holds all the same is handed back.
create function postrider.leave(worker uuid) returns int
language plpgsql security definer set search_path = pg_catalog, pg_temp
set jit = off set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off
set enable_mergejoin = off as $$
declare
    me uuid := worker;
    x record;
    handed_back int := 0;
begin
    perform postrider.check_isolation();
    for x in select l.id from postrider.lease l where l.worker = me order by l.id for update loop
        handed_back := handed_back + postrider.put_back_each(x.id, false, false);
    end loop;
    delete from postrider.worker w where w.id = me;
    if handed_back > 0 then
        perform postrider.wake('postrider_job');
    end if;
    return handed_back;
end $$;
