-- What keeps the relay going: an event that cannot become the job of a subscription is set aside, and a log that woke up in another cluster
-- is rebased.
-- Locks: rows of poison, by the relay and by whoever requeues them; nothing of the producers.
-- By hand on a large table: nothing.

-- Pairs of an event and a subscription whose job could not be made.
create table postrider.poison (
    event_seq    bigint      not null,
    subscription bigint      not null,
    cut          bigint      not null,              -- the pass that set it aside
    code         text        not null,              -- SQLSTATE; empty if another engine refused
    error        text        not null,
    since        timestamptz not null default clock_timestamp(),
    tries        smallint    not null default 1,
    tried_at     timestamptz not null default clock_timestamp(),
    retry_at     timestamptz,                       -- null: it stays aside until somebody requeues it
    ended_at     timestamptz,
    ended_as     text,
    reason       text,
    first_job    bigint,                            -- the id of its job lies between
    last_job     bigint,
    primary key (event_seq, subscription),
    constraint an_end_has_a_name check ((ended_at is null) = (ended_as is null)),
    constraint ended_as_is_made_gone_or_dropped check (ended_as in ('made', 'gone', 'dropped'))
);
create index poison_due on postrider.poison (retry_at) where ended_at is null;

-- Events from below the floor of an epoch that were no jobs yet when it started, and the pass that took them.
create table postrider.rebased (
    seq   bigint not null primary key,
    epoch int    not null,
    cut   bigint
);
create index rebased_by_cut on postrider.rebased (cut, seq);

-- Of those, what has a job already, or was set aside.
create table postrider.rebase_known (
    event_seq    bigint not null,
    subscription bigint not null,
    primary key (event_seq, subscription)
);

-- Whether an error is the server's state and none of what was to be written: connection, transaction state, rollback, resources, locks, operator,
-- system.
create function postrider.is_of_the_server(code text) returns boolean
language sql immutable set search_path = pg_catalog, pg_temp
return left(code, 2) in ('08', '25', '40', '53', '55', '57', '58');

-- When a pair that failed so often is tried again: what a deployment broke is often mended within an hour, and five tries reach a little further.
-- After them it stays aside.
create function postrider.poison_retry_at(tries int) returns timestamptz
language sql volatile set search_path = pg_catalog, pg_temp
return clock_timestamp() + (array['10 seconds', '1 minute', '10 minutes', '1 hour'])[tries]::interval;

create function postrider.set_aside(event_seq bigint, subscription bigint, cut bigint, code text, error text) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    insert into postrider.poison as p (event_seq, subscription, cut, code, error, retry_at)
    values (set_aside.event_seq, set_aside.subscription, set_aside.cut, set_aside.code, left(set_aside.error, 1000), postrider.poison_retry_at(1))
    on conflict on constraint poison_pkey do update
       set cut = excluded.cut, code = excluded.code, error = excluded.error, since = excluded.since, tries = 1, tried_at = excluded.tried_at,
           retry_at = excluded.retry_at, ended_at = null, ended_as = null, reason = null, first_job = null, last_job = null;
end $$;

-- Makes the jobs of a slice although some may not be possible: by halves, until the events are found, and of those the subscriptions. Each try is a
-- subtransaction. After a thousand that failed it stops behind the last whole event; upto says how far it came, one event at least.
-- below: events that may have jobs already, see postrider.rebase_known. subscriptions: only theirs.
create function postrider.make_each(
    no bigint, at timestamptz, s postrider.slice, below boolean, subscriptions bigint[] default null, out jobs int, out aside int, out upto int)
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    failed int := 0;
    first_of int[] := array[1];
    last_of int[] := array[cardinality(s.seqs)];
    depth int := 1;
    a int;
    b int;
    one record;
begin
    jobs := 0;
    aside := 0;
    upto := 0;
    while depth > 0 loop
        a := first_of[depth];
        b := last_of[depth];
        depth := depth - 1;
        if not below or not exists (select from postrider.rebase_known k where k.event_seq = any (s.seqs[a:b])) then
            begin
                jobs := jobs + postrider.fan_out(at, s.seqs[a:b], s.types[a:b], s.owners[a:b], subscriptions);
                upto := b;
                continue;
            exception when others then
                if postrider.is_of_the_server(sqlstate) then
                    raise;
                end if;
                failed := failed + 1;
            end;
        end if;
        if a = b then
            select * into one from postrider.make_one(no, at, s.seqs[a], s.types[a], s.owners[a], subscriptions);
            jobs := jobs + one.jobs;
            aside := aside + one.aside;
            failed := failed + one.failed;
            upto := a;
            exit when failed > 1000;
        else
            -- the left half on top: it comes first
            first_of[depth + 1] := (a + b) / 2 + 1;
            last_of[depth + 1] := b;
            first_of[depth + 2] := a;
            last_of[depth + 2] := (a + b) / 2;
            depth := depth + 2;
        end if;
    end loop;
end $$;

-- The same for one event, over its subscriptions.
create function postrider.make_one(
    no bigint, at timestamptz, seq bigint, type text, owner text, subscriptions bigint[], out jobs int, out aside int, out failed int)
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    subs bigint[] := array(
        select r.subscription from postrider.route r
         where r.type = make_one.type and r.owner = any (array['', make_one.owner])
           and case when make_one.subscriptions is null then not r.starting and not postrider.is_held_back(r.subscription)
                    else r.subscription = any (make_one.subscriptions) end
           and not exists (select from postrider.rebase_known k where k.event_seq = make_one.seq and k.subscription = r.subscription)
           and (make_one.subscriptions is not null or not exists (select from postrider.event_delay d where d.seq = make_one.seq))
         order by r.subscription);
    first_of int[] := array[1];
    last_of int[] := array[cardinality(subs)];
    depth int := least(cardinality(subs), 1);
    a int;
    b int;
    code text;
    error text;
begin
    jobs := 0;
    aside := 0;
    failed := 0;
    while depth > 0 loop
        a := first_of[depth];
        b := last_of[depth];
        depth := depth - 1;
        begin
            jobs := jobs + postrider.fan_out(at, array[seq], array[type], array[owner], subs[a:b]);
            continue;
        exception when others then
            if postrider.is_of_the_server(sqlstate) then
                raise;
            end if;
            failed := failed + 1;
            code := sqlstate;
            error := sqlerrm;
        end;
        if a = b then
            perform postrider.set_aside(seq, subs[a], no, code, error);
            aside := aside + 1;
        else
            first_of[depth + 1] := (a + b) / 2 + 1;
            last_of[depth + 1] := b;
            first_of[depth + 2] := a;
            last_of[depth + 2] := (a + b) / 2;
            depth := depth + 2;
        end if;
    end loop;
end $$;

-- What is matched for another engine, without the pairs that it refuses: those are set aside.
create function postrider.without_refused(no bigint, matched json, refused json, out matched_left json, out aside int)
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    r record;
begin
    aside := 0;
    for r in select (x ->> 'seq')::bigint as seq, (x ->> 'subscription')::bigint as subscription, x ->> 'error' as error
               from json_array_elements(refused) x
              where exists (select from json_array_elements(matched -> 'jobs') j
                             where j ->> 'seq' = x ->> 'seq' and j ->> 'subscription' = x ->> 'subscription')
    loop
        perform postrider.set_aside(r.seq, r.subscription, no, '', coalesce(r.error, ''));
        aside := aside + 1;
    end loop;
    matched_left := json_build_object('events', matched -> 'events', 'jobs', (
        select coalesce(json_agg(j), '[]') from json_array_elements(matched -> 'jobs') j
         where not exists (select from json_array_elements(refused) x
                            where j ->> 'seq' = x ->> 'seq' and j ->> 'subscription' = x ->> 'subscription')));
end $$;

-- Notes what came of one more try of a pair; error null: its job was made, or nothing is left to make it for.
create function postrider.poison_tried(p postrider.poison, made boolean, code text, error text, first_job bigint) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    update postrider.poison x
       set tried_at = clock_timestamp(), tries = x.tries + 1,
           code = coalesce(poison_tried.code, x.code), error = coalesce(left(poison_tried.error, 1000), x.error),
           retry_at = case when poison_tried.error is not null then postrider.poison_retry_at(x.tries + 1) end,
           ended_at = case when poison_tried.error is null then clock_timestamp() end,
           ended_as = case when poison_tried.error is null then case when made then 'made' else 'gone' end end,
           first_job = poison_tried.first_job, last_job = case when poison_tried.first_job is not null then postrider.job_position() | 3 end
     where x.event_seq = p.event_seq and x.subscription = p.subscription;
end $$;

-- Tries what was set aside and is due again, under the lock of the relay; answers with how many jobs it made.
create function postrider.retry_poison() returns int
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    p postrider.poison;
    e record;
    first_job bigint;
    made int;
    all_made int := 0;
begin
    for p in select x.* from postrider.poison x
              where x.ended_at is null and x.retry_at <= clock_timestamp()
              order by x.retry_at, x.event_seq, x.subscription limit 50 for update skip locked
    loop
        select v.type, v.owner into e from postrider.event v where v.seq = p.event_seq;
        first_job := postrider.job_position();
        begin
            made := postrider.fan_out(clock_timestamp(), array[p.event_seq], array[e.type], array[e.owner], array[p.subscription]);
            -- of some subscriptions one job stands for several events
            perform postrider.poison_tried(p, made > 0 or exists (select from postrider.route r where r.subscription = p.subscription), null, null, first_job);
            all_made := all_made + made;
        exception when others then
            if postrider.is_of_the_server(sqlstate) then
                -- no try of its own
                update postrider.poison x set retry_at = clock_timestamp() + interval '10 seconds'
                 where x.event_seq = p.event_seq and x.subscription = p.subscription;
            else
                perform postrider.poison_tried(p, false, sqlstate, sqlerrm, null);
            end if;
        end;
    end loop;
    return all_made;
end $$;

-- The same for another engine: what is due and no longer wanted by anybody ends, and the rest is told like `matched` of postrider.relay. The caller
-- makes its jobs, each by itself, and calls postrider.retried_elsewhere in the same transaction. Null: another relay is at it.
create function postrider.due_elsewhere() returns json
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    p postrider.poison;
    e record;
    told json;
    job json;
    jobs json[] := '{}';
    events json[] := '{}';
begin
    perform postrider.check_isolation();
    if not pg_try_advisory_xact_lock(7305, 1) then
        return null;
    end if;
    for p in select x.* from postrider.poison x
              where x.ended_at is null and x.retry_at <= clock_timestamp()
              order by x.retry_at, x.event_seq, x.subscription limit 50 for update skip locked
    loop
        select v.type, v.owner into e from postrider.event v where v.seq = p.event_seq;
        told := postrider.tell_matched(clock_timestamp(), array[p.event_seq], array[e.type], array[e.owner], array[p.subscription]);
        job := (select j from json_array_elements(told -> 'jobs') j where (j ->> 'subscription')::bigint = p.subscription);
        if job is null then
            perform postrider.poison_tried(p, false, null, null, null);
        else
            jobs := jobs || job;
            events := events || (told -> 'events' -> 0);
        end if;
    end loop;
    return json_build_object('jobs', array_to_json(jobs), 'events', array_to_json(events));
end $$;

-- tried: [{seq, subscription, error}], error null where the engine took it.
create function postrider.retried_elsewhere(tried json) returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    t record;
begin
    for t in select p, x ->> 'error' as error
               from json_array_elements(retried_elsewhere.tried) x
               join postrider.poison p on p.event_seq = (x ->> 'seq')::bigint and p.subscription = (x ->> 'subscription')::bigint
              where p.ended_at is null
    loop
        perform postrider.poison_tried(t.p, true, case when t.error is not null then '' end, t.error, null);
    end loop;
end $$;

-- Makes what was set aside due again, with a fresh allowance of tries: of one event, of one subscription, or all. The relay makes the jobs, each once.
-- Answers with how many pairs.
create function postrider.requeue(event uuid default null, subscription text default null) returns bigint
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    n bigint;
begin
    perform postrider.check_subscribed(requeue.subscription);
    update postrider.poison p set tries = 0, retry_at = clock_timestamp()
     where p.ended_at is null
       and (event is null or p.event_seq = postrider.event_seq(event))
       and (requeue.subscription is null
            or p.subscription = (select s.id from postrider.subscription s where s.name = requeue.subscription));
    get diagnostics n = row_count;
    if n > 0 then
        perform postrider.wake('postrider_event');
    end if;
    return n;
end $$;

-- Lets go of what was set aside: no job is made of it, and the reason stays. Answers with how many pairs.
create function postrider.drop_poison(reason text, event uuid default null, subscription text default null) returns bigint
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    n bigint;
begin
    if coalesce(trim(reason), '') = '' then
        perform postrider.refuse('PR005', 'reason', 'it is empty', 'say why no job is to be made of these events');
    end if;
    perform postrider.check_subscribed(drop_poison.subscription);
    update postrider.poison p set ended_at = clock_timestamp(), ended_as = 'dropped', reason = left(drop_poison.reason, 1000), retry_at = null
     where p.ended_at is null
       and (event is null or p.event_seq = postrider.event_seq(event))
       and (drop_poison.subscription is null
            or p.subscription = (select s.id from postrider.subscription s where s.name = drop_poison.subscription));
    get diagnostics n = row_count;
    return n;
end $$;

-- Starts a new epoch in a cluster whose positions are others than those of the last row: a dump that was restored, a copy that went back. Writers
-- are not held up. What the last row does not cover, or has a number above all that were ever taken, is turned into jobs first, but for pairs that have
-- one; from then on nothing below the floor is read, whatever its transaction's number comes to mean here.
create function postrider.start_rebase(last postrider.cut, epoch postrider.log_epoch) returns postrider.relayed
language plpgsql set search_path = pg_catalog, pg_temp set jit = off as $$
declare
    here bigint := (select c.system_identifier from pg_control_system() c);
    before bytea;
    done pg_snapshot := coalesce(last.lo, last.hi);
    highest bigint;
    mine xid8;
    new postrider.cut;
    behind boolean;
begin
    select coalesce(c.joined, c.hash) into before from postrider.cut c where c.no = last.from_no - 1;
    if last.hash is distinct from postrider.cut_hash(coalesce(before, '\x'), last)
       or pg_snapshot_xmax(last.hi) < pg_snapshot_xmax(done)
    then
        perform postrider.refuse('PR012', 'cut', format('row %s contradicts itself, so nobody can tell what was relayed', last.no),
            'restore the table postrider.cut from where it is whole; postrider.verify says which rows are');
    end if;
    behind := postrider.advance_drawn();
    -- the floor before the snapshot: whoever drew a number up to it is over in the snapshot, or open in it
    new.last_seq := (pg_sequence_last_value('postrider.event_epoch'::regclass) << 46)
                  | coalesce(pg_sequence_last_value('postrider.event_number'::regclass), 0);
    mine := pg_current_xact_id();
    select pg_current_snapshot() into new.hi;
    select greatest(max(c.last_seq), max(c.part_upto) filter (where c.backlog is not null), epoch.floor_seq) into highest from postrider.cut c;
    insert into postrider.rebased (seq, epoch)
    select v.seq, epoch.no + 1
      from postrider.event v
     where v.seq > highest and v.seq <= new.last_seq
    union
    select v.seq, epoch.no + 1
      from postrider.event v
     where v.xid >= pg_snapshot_xmin(done) and v.seq > epoch.floor_seq and v.seq <= highest
       and not pg_visible_in_snapshot(v.xid, done)
       and not (last.more and v.seq <= last.last_seq and pg_visible_in_snapshot(v.xid, last.hi))
    union
    -- what is left of a backlog is behind the position
    select v.seq, epoch.no + 1 from postrider.backlog b join postrider.event v on v.xid = any (b.xids) and v.seq > b.after
     where b.over_at is null and b.epoch = epoch.no
    union
    -- of a rebase that was not over
    select v.seq, epoch.no + 1 from postrider.event v where v.seq <= epoch.floor_seq and v.xid = any (epoch.late)
    union
    -- a copy without the state of its sequences gave out numbers again: what came after the last row shows by its time
    select v.seq, epoch.no + 1 from postrider.event v where behind and v.seq <= highest and v.recorded_at > last.at
    on conflict do nothing;
    update postrider.rebased r set epoch = start_rebase.epoch.no + 1 where r.cut is null;
    update postrider.backlog b set over_at = clock_timestamp() where b.over_at is null;
    perform postrider.note_known();

    insert into postrider.log_epoch (no, system_identifier, floor_seq, note, late)
    values (epoch.no + 1, here, new.last_seq, case when here <> epoch.system_identifier then 'another cluster' else 'this cluster went back' end,
            -- a snapshot ends behind the last transaction that is over: it does not list those open ones that began after that one
            array(select x from pg_snapshot_xip(new.hi) x
                  union select o::text::xid8 from generate_series(pg_snapshot_xmax(new.hi)::text::bigint, mine::text::bigint - 1) o));
    new.epoch := epoch.no + 1;
    new.more := false;
    new.jobs := 0;
    new.aside := 0;
    new.elsewhere := last.elsewhere;
    return row (postrider.note_cut(last, new), 0, 0, true, false, 'rebase', null, false, 0, null)::postrider.relayed;
end $$;

-- Which of the events that a rebase is to take have jobs, or were set aside. What the cuts up to the position made is of other events, so only
-- jobs behind it are looked at: a rebase does not read all jobs.
create function postrider.note_known() returns void
language sql set search_path = pg_catalog, pg_temp set jit = off
as $$
    -- the jobs first, once: joined the other way round, the index of all jobs would be walked for each event
    with behind as materialized (
        select j.event_seq, j.subscription
          from (values (1::smallint), (2::smallint), (3::smallint)) k (class)
         cross join lateral (
            select x.event_seq, x.subscription from postrider.job x
             where x.class = k.class and x.id > (select coalesce(max(c.last_job), 0) from postrider.cut c) offset 0) j
         where j.subscription is not null
    )
    insert into postrider.rebase_known (event_seq, subscription)
    select b.event_seq, b.subscription from behind b join postrider.rebased r on r.seq = b.event_seq and r.cut is null
    union
    select p.event_seq, p.subscription from postrider.poison p join postrider.rebased r on r.seq = p.event_seq and r.cut is null
    on conflict do nothing
$$;

-- What is left to take from below the floor, one row more than `most`; null if nothing is.
create function postrider.rest_of_rebase(epoch postrider.log_epoch, most int, now pg_snapshot) returns postrider.slice
language plpgsql set search_path = pg_catalog, pg_temp set jit = off as $$
declare
    s postrider.slice;
    before record;
    ended xid8[] := array(select x from unnest(epoch.late) x where pg_visible_in_snapshot(x, now));
begin
    if cardinality(ended) > 0 then
        -- they were open when the rebase began; transactions of the cluster before may have the same numbers, and are older
        select max(c.last_seq) as highest, max(c.at) as at into before from postrider.cut c where c.epoch < rest_of_rebase.epoch.no;
        insert into postrider.rebased (seq, epoch)
        select v.seq, epoch.no from postrider.event v
         where v.xid = any (ended) and v.seq <= epoch.floor_seq and (v.seq > before.highest or v.recorded_at > before.at)
        on conflict do nothing;
        if found then
            perform postrider.note_known();
        end if;
        update postrider.log_epoch l set late = array(select x from unnest(l.late) x where x <> all (ended)) where l.no = epoch.no;
    end if;
    select array_agg(e.seq), array_agg(e.type), array_agg(e.owner), array_agg(postrider.event_digest(
               sha256(convert_to(e.data::text, 'UTF8')), e.id, e.occurred_at, e.type, e.owner, e.subject, e.cause))
      into s.seqs, s.types, s.owners, s.digests
      from (select v.* from postrider.rebased r join postrider.event v on v.seq = r.seq where r.cut is null order by r.seq limit most + 1) e;
    if s.seqs is null then
        delete from postrider.rebase_known;
        update postrider.log_epoch l set done_at = coalesce(l.done_at, clock_timestamp()) where l.no = epoch.no;
    end if;
    return s;
end $$;

-- Moves every sequence past what was drawn from it: a copy may have the rows and not the sequences. True if one was behind.
create function postrider.advance_drawn() returns boolean
language plpgsql set search_path = pg_catalog, pg_temp set jit = off as $$
declare
    x record;
    drawn bigint;
    behind boolean := false;
begin
    for x in
        select * from (values
            ('event_epoch', 'select max(seq) >> 46 from postrider.event', false),
            ('event_number', 'select max(seq & 70368744177663) from (select seq from postrider.event order by seq desc limit 10000) e', true),
            ('job_epoch', 'select max(id) >> 46 from (values (1::smallint), (2::smallint), (3::smallint)) k (class) cross join lateral (
               select id from postrider.job j where j.class = k.class order by j.id desc limit 1) j', false),
            ('job_number', 'select max((id >> 2) & 17592186044415) from (
               select j.id from (values (1::smallint), (2::smallint), (3::smallint)) k (class) cross join lateral (
                   select id from postrider.job j where j.class = k.class order by j.id desc limit 10000) j
               union all select pos from postrider.ready union all select pos from postrider.parked) j', true),
            -- worth something only together with its worker: the newest tell enough
            ('lease_id', 'select max(lease) from (select id as lease from postrider.lease union all
               select d.lease from (values (1::smallint), (2::smallint), (3::smallint)) k (class) cross join lateral (
                   select lease from postrider.done d where d.class = k.class order by d.id desc limit 10000) d) l', true)) s (name, of, margin)
        union all
        select 'endpoint_id', 'select max(id) from postrider.endpoint', true where to_regclass('postrider.endpoint') is not null
        union all
        select c.relname, format('select max(%I) from %s', a.attname, d.refobjid::regclass), true
          from pg_depend d
          join pg_class c on c.oid = d.objid and c.relkind = 'S' and c.relnamespace = 'postrider'::regnamespace
          join pg_attribute a on a.attrelid = d.refobjid and a.attnum = d.refobjsubid
         where d.classid = 'pg_class'::regclass and d.deptype in ('i', 'a')
    loop
        execute x.of into drawn;
        if drawn > coalesce(pg_sequence_last_value(format('postrider.%I', x.name)::regclass), 0) then
            behind := true;
            -- numbers that were drawn and left no row may have been told to somebody
            perform setval(format('postrider.%I', x.name)::regclass, drawn + case when x.margin then 10000 else 0 end);
        end if;
    end loop;
    if behind then
        perform postrider.make_partitions(p.name) from postrider.partitioned p;
    end if;
    return behind;
end $$;
