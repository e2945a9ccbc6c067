-- Retention: what has ended goes after the time of its class, a span of epochs at once, so that its disk is free again.
-- Locks: SHARE ROW EXCLUSIVE on one old partition of jobs or events, once, for as long as it takes to give it a trigger; later, with no
-- other lock that a writer waits for, ACCESS EXCLUSIVE on the partitioned tables for as long as it takes to exchange that partition. No lock
-- is waited for longer than 50 ms.
-- By hand on a large table: nothing.

-- How long what has ended is kept, by class; and the events.
create table postrider.retention (
    what        text     not null primary key,
    keep        interval not null,
    declared_by text     not null default '',
    generation  bigint   not null default -1,
    constraint what_is_a_class_or_event check (what in ('short', 'standard', 'long', 'event')),
    constraint keep_is_a_second_to_ten_years check (keep between interval '1 second' and interval '3660 days')
);
insert into postrider.retention (what, keep)
values ('short', interval '1 day'), ('standard', interval '7 days'), ('long', interval '90 days'), ('event', interval '30 days');

-- Spans of epochs [first, until) of a class whose partitions are gone. What of them lives on is in a partition `_k` of the same span.
-- ended_by: everything in it that is gone had ended by then; null if nothing was in it.
create table postrider.retired (
    class      smallint    not null,
    first      bigint      not null,
    until      bigint      not null,
    retired_at timestamptz not null default clock_timestamp(),
    ended_by   timestamptz,
    swept      boolean     not null default false,  -- nothing beside the partitions speaks of its jobs any more
    primary key (class, first)
);

-- Spans that are old enough and cannot go, and why. class 0: events.
create table postrider.pinned (
    class     smallint    not null,
    first     bigint      not null,
    since     timestamptz not null default clock_timestamp(),
    look_at   timestamptz not null,                 -- not before
    by        text        not null,
    kind      text,
    n         bigint      not null,
    primary key (class, first)
);

-- Spans under retirement that were written to since the last look at them, class 0: events. A row for each transaction, so that no writer
-- waits for another, and none relies on a row that a look is just removing.
create table postrider.written (
    class smallint not null,
    first bigint   not null,
    xid   xid8     not null default pg_current_xact_id()
);
create index written_span on postrider.written (class, first, xid);

create function postrider.note_written() returns trigger
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
    insert into postrider.written (class, first)
    select tg_argv[0]::smallint, tg_argv[1]::bigint
     where not exists (
        select from postrider.written w
         where w.class = tg_argv[0]::smallint and w.first = tg_argv[1]::bigint and w.xid = pg_current_xact_id());
    return null;
end $$;

-- Has it noted from now on who writes to an old partition: late commits, retries, replacements. What is written before it commits, or was
-- under way, is there for the next look; what comes after that is noted. So a look needs no lock, and who drops the partition, which nobody
-- may use then, knows whether the look still holds. A lock on the partition would do as well, but whoever waits for the partition holds the
-- partitioned table already, which is waited for next: a circle. True if it was not watched before; raises lock_not_available.
create function postrider.watch_writes(child text, class smallint, first bigint) returns boolean
language plpgsql set search_path = pg_catalog, pg_temp set lock_timeout = '50ms' as $$
begin
    if exists (select from pg_trigger t where t.tgrelid = format('postrider.%I', child)::regclass and t.tgname = 'note_written') then
        return false;
    end if;
    execute format('create trigger note_written after insert or update on postrider.%I
        for each row execute function postrider.note_written(%s, %s)', child, class, first);
    return true;
end $$;

-- Forgets what was written to a span: the look that follows sees it.
create function postrider.forget_written(class smallint, first bigint) returns void
language sql set search_path = pg_catalog, pg_temp
as $$ delete from postrider.written w where w.class = forget_written.class and w.first = forget_written.first $$;

create function postrider.was_written(class smallint, first bigint) returns boolean
language sql set search_path = pg_catalog, pg_temp
as $$ select exists (select from postrider.written w where w.class = was_written.class and w.first = was_written.first) $$;

-- Says how long a class (short, standard, long) or events (event) are kept. As with other declarations a higher generation wins, and an
-- equal one must say the same.
create function postrider.keep_for(what text, keep interval, declared_by text default '', generation bigint default 0) returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    r postrider.retention;
begin
    perform postrider.lock_declarations();
    select * into r from postrider.retention x where x.what = keep_for.what;
    if not found then
        perform postrider.refuse('PR005', 'what', format('%L is not kept', left(what, 80)), 'use short, standard, long or event');
    elsif keep is null or keep not between interval '1 second' and interval '3660 days' then
        perform postrider.refuse('PR005', 'keep', format('%s is out of range', keep), 'use a second at least and ten years at most');
    elsif postrider.declaration_wins('retention', what, generation, r.generation, keep = r.keep) then
        update postrider.retention x
           set keep = keep_for.keep, declared_by = keep_for.declared_by, generation = keep_for.generation
         where x.what = keep_for.what;
    end if;
end $$;

-- By when a job had ended that was there once and whose time is over; null for every other id. It cannot tell an id that was given out
-- and never committed from one that was there.
create function postrider.gone_since(id bigint) returns timestamptz
language sql stable set search_path = pg_catalog, pg_temp
return (select r.ended_by from postrider.retired r
         where r.class = (gone_since.id & 3)::smallint and r.first <= gone_since.id >> 46 and gone_since.id >> 46 < r.until
           and (gone_since.id >> 2) & 17592186044415 between 1 and coalesce(pg_sequence_last_value('postrider.job_number'::regclass), 0)
           and not exists (select from postrider.job j where j.class = (gone_since.id & 3)::smallint and j.id = gone_since.id));

-- The partitions of jobs, as spans of epochs. kept: it holds what lived on of spans that are retired. closed_at: since when no id is
-- given out in it; null if some still are.
create function postrider.job_spans() returns table (class smallint, first bigint, until bigint, kept boolean, suffix text, closed_at timestamptz)
language sql stable set search_path = pg_catalog, pg_temp
as $$
    select s.*, (select e.started_at from postrider.epoch e where e.unit = 'job' and e.epoch = s.until)
      from (
        select m[1]::smallint, m[3]::bigint,
               case m[2] when 'k' then m[4]::bigint else m[3]::bigint + case m[1] when '3' then 7 else 1 end end as until,
               m[2] = 'k', substr(c.relname, 4)
          from pg_inherits i
          join pg_class c on c.oid = i.inhrelid
         cross join lateral regexp_match(c.relname, '^job_c([123])_([ek])([0-9]+)(?:_([0-9]+))?$') m
         where i.inhparent = 'postrider.job'::regclass and m is not null) s (class, first, until, kept, suffix)
$$;

-- One step of retention; call it again while it tells `again`. Each step is whole: a kill in its middle leaves nothing of it.
create function postrider.retire() returns json
language plpgsql set search_path = pg_catalog, pg_temp set jit = off set lock_timeout = '50ms' as $$
declare
    s record;
    told json;
    pruned int;
    current bigint := pg_sequence_last_value('postrider.job_epoch'::regclass);
begin
    perform postrider.check_isolation();
    pruned := postrider.prune_kept();
    if pruned > 0 then
        return json_build_object('again', true, 'pruned', pruned);
    end if;
    for s in
        select p.*, r.keep
          from postrider.job_spans() p
          join postrider.retention r on r.what = (array['short', 'standard', 'long'])[p.class]
         where p.until <= current and not exists (
            select from postrider.pinned x
             where x.class = p.class and x.first = p.first and x.look_at > clock_timestamp())
         order by p.closed_at nulls first, p.class, p.first
    loop
        -- a transaction that drew an id before the epoch was over may still be on its way to its insert: it gets an hour
        if postrider.has_rows('job' || s.suffix) then
            continue when s.kept or coalesce(s.closed_at > clock_timestamp() - greatest(s.keep, interval '1 hour'), true);
        else
            continue when not s.kept and coalesce(s.closed_at > clock_timestamp() - interval '1 day', true);
        end if;
        told := postrider.retire_span(s.class, s.first, s.until, s.suffix, s.keep);
        return told;
    end loop;
    return postrider.retire_events();
end $$;

create function postrider.has_rows(child text) returns boolean
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    found_one boolean;
begin
    execute format('select exists (select from postrider.%I)', child) into found_one;
    return found_one;
end $$;

-- What is over in the partitions that hold what lived on: row by row, they are small. The rows of `done` are locked as an act locks them.
create function postrider.prune_kept() returns int
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    s record;
    t text;
    ids bigint[];
    latest timestamptz;
    pruned int := 0;
begin
    for s in select p.*, r.keep from postrider.job_spans() p
               join postrider.retention r on r.what = (array['short', 'standard', 'long'])[p.class] where p.kept
    loop
        execute format('select array_agg(x.id), max(x.finished_at) from (
            select d.id, d.finished_at from postrider.%I d
             where d.finished_at < $1 and not exists (select from postrider.unsettled u where u.id = d.id)
             limit 1000 for update skip locked) x', 'done' || s.suffix)
           into ids, latest using clock_timestamp() - s.keep;
        continue when ids is null;
        for t in select p.name from postrider.partitioned p where p.unit = 'job' order by p.name loop
            execute format('delete from postrider.%I x where x.class = $1 and x.id = any ($2)', t || s.suffix) using s.class, ids;
        end loop;
        update postrider.retired r set ended_by = greatest(r.ended_by, latest), swept = false
         where r.class = s.class and r.first >= s.first and r.until <= s.until;
        pruned := pruned + cardinality(ids);
    end loop;
    return pruned;
end $$;

-- Notes what keeps a span, and when to look again.
create function postrider.pin(class smallint, first bigint, by text, kind text, n bigint, rest interval) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    insert into postrider.pinned as p (class, first, by, kind, n, look_at)
    values (pin.class, pin.first, pin.by, pin.kind, pin.n, clock_timestamp() + pin.rest)
    on conflict on constraint pinned_pkey
    do update set by = excluded.by, kind = excluded.kind, n = excluded.n, look_at = excluded.look_at;
end $$;

-- Looks whether a span can go, and lets it go. Live jobs and those that have not been over for long enough, or whose group does not know
-- yet that they are over, are moved aside if they are few; if they are many they pin the span.
create function postrider.retire_span(class smallint, first bigint, until bigint, suffix text, keep interval) returns json
language plpgsql set search_path = pg_catalog, pg_temp set jit = off set lock_timeout = '50ms' as $$
declare
    most int := 2000;
    old_enough timestamptz := clock_timestamp() - keep;
    live bigint[];
    fresh bigint[];
    n_fresh bigint;
    gone_by timestamptz;
    pinned_by text;
    most_kind text;
begin
    begin
        if postrider.watch_writes('job' || suffix, class, first) then
            return json_build_object('span', suffix, 'watched', true, 'again', true);
        end if;
    exception when lock_not_available then
        perform postrider.pin(class, first, 'a transaction that has written to it and is still open', null, 1, interval '5 minutes');
        return json_build_object('span', suffix, 'held', true, 'again', true);
    end;
    perform postrider.forget_written(class, first);
    execute format('select array_agg(x.id) from (
        select j.id from postrider.%I j
         where not exists (select from postrider.%I d where d.class = j.class and d.id = j.id) limit $1) x', 'job' || suffix, 'done' || suffix)
       into live using most + 1;
    execute format('select count(*) filter (where d.finished_at >= $1 or u.id is not null), max(d.finished_at) filter (where d.finished_at < $1)
                      from postrider.%I d left join (select distinct o.id from postrider.unsettled o) u on u.id = d.id', 'done' || suffix)
       into n_fresh, gone_by using old_enough;
    live := coalesce(live, '{}');
    if cardinality(live) + n_fresh > most then
        pinned_by := case when cardinality(live) > most then 'live jobs' else 'jobs that have not been over for long enough' end;
        if cardinality(live) > most then
            execute format('select j.kind from postrider.%I j where j.class = $1 and j.id = any ($2) group by j.kind
                             order by count(*) desc, j.kind limit 1', 'job' || suffix) into most_kind using class, live;
        end if;
        perform postrider.pin(class, first, pinned_by, most_kind, cardinality(live) + n_fresh, interval '1 hour');
        return json_build_object('span', suffix, 'pinned', pinned_by, 'again', true);
    end if;
    execute format('select array_agg(d.id) from postrider.%I d
                     where d.finished_at >= $1 or exists (select from postrider.unsettled u where u.id = d.id)', 'done' || suffix)
       into fresh using old_enough;
    for n in 1..5 loop
        begin
            if not postrider.exchange_span(class, first, until, suffix, live || coalesce(fresh, '{}')) then
                return json_build_object('span', suffix, 'written', true, 'again', true);
            end if;
            insert into postrider.retired (class, first, until, ended_by)
            values (retire_span.class, retire_span.first, retire_span.until, gone_by) on conflict do nothing;
            update postrider.retired r set swept = false
             where r.class = retire_span.class and r.first >= retire_span.first and r.until <= retire_span.until;
            delete from postrider.pinned p where p.class = retire_span.class and p.first = retire_span.first;
            return json_build_object('span', suffix, 'kept', cardinality(live) + n_fresh, 'again', true);
        exception when lock_not_available then
            -- everybody who came meanwhile has waited for us; they go first
            perform pg_sleep(0.2);
        end;
    end loop;
    perform postrider.pin(class, first, 'transactions that use jobs for long', null, 1, interval '5 minutes');
    return json_build_object('span', suffix, 'held', true, 'again', false);
end $$;

-- Drops the partitions of a span; these jobs of it live on in a partition of what was kept before, which grows over the span, or in one
-- of their own. The partitioned tables are ours from the first lock on, and everybody waits: nothing is looked for from there on. False if
-- the span was written to since it was looked at.
create function postrider.exchange_span(class smallint, first bigint, until bigint, suffix text, ids bigint[]) returns boolean
language plpgsql set search_path = pg_catalog, pg_temp set lock_timeout = '50ms'
set jit = off set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off as $$
declare
    tables text[] := array(select p.name from postrider.partitioned p where p.unit = 'job' order by p.name);
    t text;
    before text;  -- the partition that grows
    grown text;
    span_first bigint := exchange_span.first;
begin
    if cardinality(ids) > 0 then
        -- the nearest one before it, if nothing that is there lies between
        select p.suffix, p.first into before, span_first
          from (select x.* from postrider.job_spans() x
                 where x.class = exchange_span.class and x.first < exchange_span.first order by x.first desc limit 1) p
         where p.kept and pg_relation_size(format('postrider.%I', 'job' || p.suffix)::regclass) < 16777216;
        span_first := coalesce(span_first, exchange_span.first);
        grown := format('_c%s_k%s_%s', class, span_first, until);
    end if;
    foreach t in array tables loop
        execute format('lock table only postrider.%I in access exclusive mode', t);
        -- the others are not so long in coming as the first one may be
        set local lock_timeout = '10ms';
    end loop;
    if postrider.was_written(class, first) then
        return false;
    end if;
    foreach t in array tables loop
        if grown is not null then
            if before is not null then
                execute format('alter table postrider.%I detach partition postrider.%I', t, t || before);
                execute format('alter table postrider.%I rename to %I', t || before, t || grown);
            else
                execute format('create table postrider.%I (like postrider.%I including all)', t || grown, t);
            end if;
            execute format('insert into postrider.%I select x.* from unnest($2) i (id) join postrider.%I x on x.class = $1 and x.id = i.id',
                t || grown, t || suffix) using class, ids;
        end if;
        execute format('alter table postrider.%I detach partition postrider.%I', t, t || suffix);
        execute format('drop table postrider.%I', t || suffix);
        if grown is not null then
            execute format('alter table postrider.%I attach partition postrider.%I for values from (%s, %s) to (%s, %s)',
                t, t || grown, class, span_first << 46, class, until << 46);
        end if;
    end loop;
    return true;
end $$;

-- What speaks of jobs and attempts that are over and gone, in bounded batches: stones of deleted jobs whose span is retired (an answer
-- about them is `unknown` without them too), progress that no beat came to clear away, and failures of long ago.
create function postrider.forget_leftovers() returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    r record;
    n int;
begin
    for r in select x.class, x.first, x.until from postrider.retired x where not x.swept order by x.first limit 100 loop
        delete from postrider.deleted g where g.ctid = any (array(
            select o.ctid from postrider.deleted o
             where o.id >= r.first << 46 and o.id < r.until << 46 and (o.id & 3) = r.class limit 10000 for update skip locked));
        get diagnostics n = row_count;
        if n < 10000 then
            update postrider.retired x set swept = true where x.class = r.class and x.first = r.first;
        end if;
    end loop;
    delete from postrider.progress p where p.ctid = any (array(
        select o.ctid from postrider.progress o
         where not exists (select from postrider.lease l where l.id = o.lease and o.id = any (l.open)) limit 10000 for update skip locked));
    delete from postrider.failure f where f.ctid = any (array(
        select o.ctid from postrider.failure o where o.last_at < clock_timestamp() - interval '30 days' limit 10000 for update skip locked));
    delete from postrider.discarded d where d.at < clock_timestamp() - interval '1 day';
end $$;
