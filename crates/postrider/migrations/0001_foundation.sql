-- The ground that the other migrations stand on: refusals, partitions that never run out, wake-ups.
-- Locks: none that matter, everything here is new.
-- By hand on a large table: nothing.

-- Refuses a value. The SQLSTATE is the code, the column is the field, the hint is the remedy.
create function postrider.refuse(code text, field text, message text, remedy text) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    raise exception using errcode = refuse.code, message = refuse.field || ': ' || refuse.message,
        column = refuse.field, hint = refuse.remedy;
end $$;

create function postrider.check_name(field text, name text, reserved boolean default false) returns void
language plpgsql immutable set search_path = pg_catalog, pg_temp as $$
begin
    if name is null or octet_length(name) > 200 or name !~ '^[a-z0-9_-]+(\.[a-z0-9_-]+)*$' then
        perform postrider.refuse('PR001', field, format('%L is not a name', left(name, 80)),
            'use lower-case segments of a-z, 0-9, _ and -, joined by single dots, 200 bytes at most');
    end if;
    if not reserved and (name like 'postrider.%' or name like 'webhook.%') then
        perform postrider.refuse('PR007', field, format('%L is reserved', name),
            'choose a name that does not begin with postrider. or webhook.');
    end if;
end $$;

create function postrider.check_owner(owner text) returns void
language plpgsql immutable set search_path = pg_catalog, pg_temp as $$
begin
    if owner is null or octet_length(owner) > 200 or owner ~ '[\u0001-\u001f\u007f-\u009f]' then
        perform postrider.refuse('PR001', 'owner', 'an owner is at most 200 bytes of text without control characters',
            'leave it empty for the instance itself');
    end if;
end $$;

-- Whether every string of a JSON text can be held: without NUL and without half of a surrogate pair. Before anything else looks into it:
-- a look at one field reads them all, and fails in its own words.
create function postrider.check_escapes(field text, txt text) returns void
language plpgsql immutable set search_path = pg_catalog, pg_temp as $$
declare
    bare text;
begin
    if position('\u' in txt) > 0 then
        bare := replace(txt, '\\', 'xx');
        if position('\u0000' in bare) > 0 then
            perform postrider.refuse('PR003', field, 'a string has \u0000', 'remove NUL: Postgres cannot hold it');
        end if;
        bare := regexp_replace(bare, '\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}', 'x', 'g');
        if bare ~ '\\u[dD][89a-fA-F]' then
            perform postrider.refuse('PR003', field, 'a string has half of a surrogate pair',
                'send both halves, or the character itself');
        end if;
    end if;
end $$;

-- The gate that every payload passes, the same as postrider_contract::check_json: size, depth, NUL, surrogates, numbers.
-- Each expensive look is taken only when a cheap one asks for it.
create function postrider.check_json(field text, data json) returns void
language plpgsql immutable set search_path = pg_catalog, pg_temp as $$
declare
    txt text := data::text;
    bare text;
    depth int := 0;
begin
    if data is null then
        perform postrider.refuse('PR003', field, 'it is null', 'send one JSON value; {} when there is nothing to say');
    end if;
    if octet_length(txt) > 262144 then
        perform postrider.refuse('PR002', field, format('it has %s bytes, the limit is 262144', octet_length(txt)),
            'keep the payload elsewhere and send its address');
    end if;
    perform postrider.check_escapes(field, txt);
    -- one level costs two bytes, and no more levels than opening brackets
    if octet_length(txt) > 257 and length(txt) - length(translate(txt, '[{', '')) > 128 then
        bare := regexp_replace(txt, '"([^"\\]|\\.)*"', '', 'g');
        bare := regexp_replace(bare, '[^][{}]+', '', 'g');
        while bare <> '' loop
            depth := depth + 1;
            if depth > 128 then
                perform postrider.refuse('PR003', field, 'it is nested deeper than 128 levels', 'flatten the payload');
            end if;
            -- what is innermost now has one level less around it
            bare := regexp_replace(bare, '(\[\]|\{\})+', '', 'g');
        end loop;
    end if;
    if txt ~ '[0-9][eE][-+]?[0-9]{5}|[0-9.]{200}' then
        bare := regexp_replace(txt, '"([^"\\]|\\.)*"', '""', 'g');
        if bare ~ '[0-9][eE][-+]?0*[1-9][0-9]{4}'
           or exists (select from regexp_matches(bare, '-?[0-9.]{200,}', 'g') m where length(m[1]) > 4096) then
            perform postrider.refuse('PR003', field, 'a number is too long or its exponent too large',
                'use at most 4096 characters and an exponent within 9999, or send it as a string');
        end if;
    end if;
end $$;

create function postrider.check_isolation() returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    if current_setting('transaction_isolation') <> 'read committed' then
        perform postrider.refuse('PR010', 'transaction', 'it needs READ COMMITTED',
            'call it in a transaction of its own with the default isolation level');
    end if;
end $$;

-- Ids carry an epoch in their upper bits, and partitions are ranges of ids. The epoch is the last value of a sequence, which
-- moves on only when the partitions of the next epoch exist: a producer can never meet a missing partition.
create sequence postrider.event_epoch minvalue 0 maxvalue 65535 start 0;
create sequence postrider.job_epoch minvalue 0 maxvalue 65535 start 0;
create sequence postrider.event_number minvalue 1 maxvalue 70368744177663;
-- ids and positions of jobs
create sequence postrider.job_number minvalue 1 maxvalue 17592186044415;
-- pg_sequence_last_value knows only what was given out
select setval('postrider.event_epoch', 0, true), setval('postrider.job_epoch', 0, true);

create table postrider.epoch (
    unit       text        not null,
    epoch      bigint      not null,
    started_at timestamptz not null default clock_timestamp(),
    primary key (unit, epoch),
    constraint unit_is_event_or_job check (unit in ('event', 'job'))
);
insert into postrider.epoch (unit, epoch) values ('event', 0), ('job', 0);

create table postrider.partitioned (
    name text not null primary key,
    unit text not null,
    constraint unit_is_event_or_job check (unit in ('event', 'job'))
);

-- Makes what is missing of one table's partitions, for the current epoch and the next two. ATTACH keeps writers going, which
-- CREATE … PARTITION OF would not. But it has a price: a connection that reads a table's partitions for the first time just while
-- an ATTACH commits may miss the new one, and goes on without it until it hears of the next change of that table (seen on
-- PostgreSQL 15: nearly once for each ATTACH with twelve connections that come and go). So a partition is not written to before
-- another one was attached after it: hence two.
create function postrider.make_partitions(name text) returns int
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    of_unit text := (select p.unit from postrider.partitioned p where p.name = make_partitions.name);
    current bigint := case of_unit when 'event' then pg_sequence_last_value('postrider.event_epoch'::regclass)
                                   else pg_sequence_last_value('postrider.job_epoch'::regclass) end;
    part record;
    made int := 0;
begin
    for part in
        select format('%s_e%s', make_partitions.name, e) as child,
               format('from (%s) to (%s)', e << 46, (e + 1) << 46) as bounds
          from generate_series(current, current + 2) e where of_unit = 'event'
        union all
        -- the long class keeps ninety days: one partition a week is enough for it
        select distinct format('%s_c%s_e%s', make_partitions.name, c, e / w * w),
               format('from (%s, %s) to (%s, %s)', c, (e / w * w) << 46, c, (e / w * w + w) << 46)
          from generate_series(current, current + 2) e, (values (1, 1), (2, 1), (3, 7)) class (c, w)
         where of_unit = 'job'
    loop
        continue when to_regclass('postrider.' || quote_ident(part.child)) is not null;
        execute format('create table postrider.%I (like postrider.%I including all)', part.child, make_partitions.name);
        execute format('alter table postrider.%I attach partition postrider.%I for values %s',
            make_partitions.name, part.child, part.bounds);
        made := made + 1;
    end loop;
    return made;
end $$;

-- Whether what has this id may still be there: retention drops whole partitions.
create function postrider.has_partition(unit text, id bigint) returns boolean
language sql stable set search_path = pg_catalog, pg_temp
return to_regclass(case unit when 'event' then format('postrider.event_e%s', id >> 46)
    else format('postrider.job_c%s_e%s', id & 3, case id & 3 when 3 then (id >> 46) / 7 * 7 else id >> 46 end) end) is not null;

-- Moves a unit to its next epoch when the current one is as old as it may get. The order matters: what the new epoch writes
-- into was committed by an earlier call, since setval is seen at once and by everybody, also when this call rolls back.
create function postrider.advance_epoch(unit text) returns boolean
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    current bigint;
    started timestamptz;
    kept_for interval := case unit when 'event' then interval '7 days' else interval '1 day' end;
begin
    if not pg_try_advisory_xact_lock(7305, 3) then
        return false;
    end if;
    current := case unit when 'event' then pg_sequence_last_value('postrider.event_epoch'::regclass)
                         else pg_sequence_last_value('postrider.job_epoch'::regclass) end;
    insert into postrider.epoch (unit, epoch) values (advance_epoch.unit, current) on conflict do nothing;
    select e.started_at into started from postrider.epoch e where e.unit = advance_epoch.unit and e.epoch = current;
    perform postrider.make_partitions(p.name) from postrider.partitioned p where p.unit = advance_epoch.unit;
    if started > clock_timestamp() - kept_for then
        return false;
    end if;
    -- the partitions of the next epoch and of the one after it must have been there before this transaction
    if exists (
        select from postrider.partitioned p cross join generate_series(current + 1, current + 2) e cross join lateral (
            select case when p.unit = 'event' then array[format('%s_e%s', p.name, e)]
                        else array[format('%s_c1_e%s', p.name, e), format('%s_c2_e%s', p.name, e),
                                   format('%s_c3_e%s', p.name, e / 7 * 7)] end) x (children)
         cross join lateral unnest(x.children) child
          left join pg_class c on c.relname = child and c.relnamespace = 'postrider'::regnamespace
         where p.unit = advance_epoch.unit and (c.oid is null or c.xmin::text = pg_current_xact_id_if_assigned()::xid::text))
    then
        return false;
    end if;
    if unit = 'event' then
        perform setval('postrider.event_epoch', current + 1);
    else
        perform setval('postrider.job_epoch', current + 1);
    end if;
    insert into postrider.epoch (unit, epoch) values (advance_epoch.unit, current + 1);
    perform postrider.make_partitions(p.name) from postrider.partitioned p where p.unit = advance_epoch.unit;
    return true;
end $$;

-- Wakes sleepers on a channel, at most once in 5 ms over all producers. The throttle is a sequence, which no transaction
-- holds: a producer that is slow or rolls back mutes the others for 5 ms only. A wake-up is a hint, so it gives way: it is left
-- out while the server's notification queue fills up (a full one would fail the caller's commit) and where the caller says
-- `set local postrider.wake = 'off'` (a NOTIFY makes PREPARE TRANSACTION fail).
create sequence postrider.wake_event;
create sequence postrider.wake_job;

create function postrider.wake(channel text) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    now_ms bigint := (extract(epoch from clock_timestamp()) * 1000)::bigint;
    clock regclass := case channel when 'postrider_event' then 'postrider.wake_event'::regclass
                                   else 'postrider.wake_job'::regclass end;
    last_ms bigint := pg_sequence_last_value(clock);
begin
    -- a clock that went back may not mute everybody until it has caught up
    if last_ms between now_ms - 5 and now_ms or coalesce(current_setting('postrider.wake', true), '') = 'off' then
        return;
    end if;
    perform setval(clock, now_ms);
    if pg_notification_queue_usage() < 0.5 then
        perform pg_notify(channel, '');
    end if;
end $$;
