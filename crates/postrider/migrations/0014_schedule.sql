-- Schedules: jobs that come by the clock. When one comes next stands in its row, so that no restart moves it.
-- Locks: ACCESS EXCLUSIVE on worker for the new column, for a moment. Firing locks one row of schedule and skips those that are held.
-- By hand on a large table: nothing.
--
-- What a cron expression means in a time zone is computed by the library. A row whose next_at is null waits for that.

-- the schedules that a process declares
alter table postrider.worker add column schedules text[] not null default '{}';

create table postrider.schedule (
    name            text collate "C" not null primary key,
    owner           text collate "C" not null default '',
    cron            text,
    every_ms        bigint,
    zone            text        not null default 'UTC',
    kind            text collate "C" not null references postrider.kind (name),
    args            json        not null default '{}',
    queue           text,
    priority        smallint,
    max_attempts    smallint,
    missed          text        not null default 'once',
    missed_most     smallint,
    overlap         text        not null default 'skip',
    run_at_start    boolean     not null default false,
    standing        boolean     not null default false,  -- declared in SQL: every process fires it, until it is dropped
    declared_by     text        not null,
    generation      bigint      not null default 0,
    seen_at         timestamptz not null default clock_timestamp(),
    paused_at       timestamptz,
    counted_from    timestamptz not null default clock_timestamp(),  -- due times before this are none
    next_at         timestamptz,
    problem         text,                               -- why nobody can tell when it comes next
    due_at          timestamptz,                        -- the last due time that has passed
    ran_at          timestamptz,
    started_at      timestamptz,                        -- when it last ran because a process started
    last_jobs       bigint[]    not null default '{}',  -- its last job, behind those that had not ended then
    runs            bigint      not null default 0,
    missed_runs     bigint      not null default 0,
    overlapped_runs bigint      not null default 0,
    constraint a_schedule_has_a_cron_expression_or_a_period check ((cron is null) <> (every_ms is null)),
    constraint a_period_is_a_second_to_ten_years check (every_ms between 1000 and 316224000000),
    constraint missed_is_skip_once_or_all check (missed in ('skip', 'once', 'all')),
    constraint all_says_how_many_at_most check ((missed = 'all') = (missed_most is not null)),
    constraint missed_most_is_1_to_100 check (missed_most between 1 and 100),
    constraint overlap_is_skip_or_queue check (overlap in ('skip', 'queue'))
);
create index schedule_due on postrider.schedule (next_at nulls first) where paused_at is null and problem is null;

-- The values of one field of a cron expression, all of them; null for *. Refuses with PR005 and the column. The library reads expressions in the
-- same way (its cron.rs); a test keeps the two equal.
create function postrider.check_cron_field(field text, word text, col int, lowest int, highest int, names text[]) returns int[]
language plpgsql immutable set search_path = pg_catalog, pg_temp as $$
declare
    item text;
    lone text;
    bounds text[];
    ends int[];
    step int;
    found int[] := '{}';
begin
    foreach item in array string_to_array(word, ',') loop
        lone := split_part(item, '/', 1);
        step := 1;
        if strpos(item, '/') > 0 then
            if substr(item, strpos(item, '/') + 1) !~ '^[0-9]{1,4}$' or substr(item, strpos(item, '/') + 1)::int not between 1 and highest then
                perform postrider.refuse('PR005', 'cron', format('column %s: %L is not a step of 1 to %s', col + length(lone) + 1, left(item, 80), highest),
                    'use */n or a-b/n');
            elsif lone !~ '^\*$|-' then
                perform postrider.refuse('PR005', 'cron', format('column %s: %L is not a range with a step', col, left(item, 80)), 'use */n or a-b/n');
            end if;
            step := substr(item, strpos(item, '/') + 1)::int;
        end if;
        if lone = '*' then
            if strpos(word, ',') > 0 then
                perform postrider.refuse('PR005', 'cron', format('column %s: * stands alone', col), 'use * or a list, not both');
            end if;
            return case when strpos(item, '/') > 0 then array(select generate_series(lowest, highest, step)) end;
        elsif field = 'day of the month' and upper(item) = 'L' then
            found := found || 28;
        else
            if field = 'day of the week' then
                -- the last one, or the n-th one, of a month
                lone := regexp_replace(lone, '^([^-]+)([lL]|#[1-5])$', '\1');
            end if;
            bounds := case when strpos(lone, '-') > 0 and lone !~ '[lL]$|#' then array[split_part(lone, '-', 1), substr(lone, strpos(lone, '-') + 1)] else array[lone] end;
            ends := array(
                select coalesce(array_position(names, upper(b)) + case field when 'month' then 0 else -1 end,
                                case when b ~ '^[0-9]{1,4}$' then b::int end)
                  from unnest(bounds) with ordinality u (b, o) order by o);
            for n in 1..cardinality(ends) loop
                if ends[n] is null or ends[n] not between lowest and highest then
                    perform postrider.refuse('PR005', 'cron', format('column %s: %L is not in %s to %s (%s)',
                        col + case n when 2 then length(bounds[1]) + 1 else 0 end, left(bounds[n], 80), lowest, highest, field),
                        'write minute, hour, day of the month, month, day of the week, such as 30 2 * * 1-5');
                end if;
            end loop;
            if field = 'day of the week' and cardinality(ends) = 2 and ends[2] = 0 and ends[1] > 0 then
                ends[2] := 7;
            end if;
            if ends[2] < ends[1] then
                perform postrider.refuse('PR005', 'cron', format('column %s: %L runs backwards', col, left(item, 80)), 'write the lower one first');
            end if;
            found := found || array(select generate_series(ends[1], coalesce(ends[2], ends[1]), step));
        end if;
        col := col + length(item) + 1;
    end loop;
    return found;
end $$;

-- Refuses what is not a cron expression with PR005 and its column.
create function postrider.check_cron(cron text) returns void
language plpgsql immutable set search_path = pg_catalog, pg_temp as $$
declare
    word record;
    n int := (select count(*) from regexp_split_to_table(check_cron.cron, '[ \t]') w where w <> '');
    col int := 1;
    day_column int;
    days int[];
    months int[];
    weekdays int[];
    found int[];
begin
    if octet_length(cron) > 200 then
        perform postrider.refuse('PR005', 'cron', 'column 201: it is longer than 200 bytes', 'use ranges and steps');
    elsif lower(btrim(cron, E' \t')) in ('@yearly', '@annually', '@monthly', '@weekly', '@daily', '@midnight', '@hourly') then
        return;
    elsif btrim(cron, E' \t') like '@%' then
        perform postrider.refuse('PR005', 'cron', format('column 1: %L is not a name of a schedule', left(cron, 80)),
            'use @hourly, @daily, @midnight, @weekly, @monthly, @yearly or @annually');
    elsif n <> 5 then
        perform postrider.refuse('PR005', 'cron', format('column %s: it has %s fields, not 5', case when n < 5 then length(cron) + 1 else
            1 + length(substring(cron from '^[ \t]*(?:[^ \t]+[ \t]+){5}')) end, n),
            'write minute, hour, day of the month, month, day of the week, such as 30 2 * * 1-5');
    end if;
    n := 0;
    for word in select w as text from regexp_split_to_table(cron, '[ \t]') w loop
        if word.text <> '' then
            n := n + 1;
            found := postrider.check_cron_field(
                (array['minute', 'hour', 'day of the month', 'month', 'day of the week'])[n], word.text, col,
                (array[0, 0, 1, 1, 0])[n], (array[59, 23, 31, 12, 7])[n],
                case n when 4 then array['JAN', 'FEB', 'MAR', 'APR', 'MAY', 'JUN', 'JUL', 'AUG', 'SEP', 'OCT', 'NOV', 'DEC']
                       when 5 then array['SUN', 'MON', 'TUE', 'WED', 'THU', 'FRI', 'SAT'] else '{}' end);
            case n when 3 then days := found; day_column := col;
                   when 4 then months := found;
                   when 5 then weekdays := found;
                   else null; end case;
        end if;
        col := col + length(word.text) + 1;
    end loop;
    if weekdays is null and not exists (
        select from unnest(coalesce(days, '{1}')) d, unnest(coalesce(months, '{1}')) m
         where d <= (array[31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31])[m])
    then
        perform postrider.refuse('PR005', 'cron', format('column %s: no such day ever comes', day_column), 'use a day that its month has');
    end if;
end $$;

-- Declares schedules, see postrider.declare. What the library has read already (attended) is not read again here, since it knows
-- time zones better; its processes fire what they declare. What is declared in SQL every process fires, until it is dropped.
create function postrider.declare_schedules(declarations json, app text, generation bigint, own boolean) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
declare
    attended boolean := coalesce((declarations ->> 'attended')::boolean, false);
    x record;
    s postrider.schedule;
    moved boolean;
begin
    for x in select j ->> 'name' as name, j ->> 'cron' as cron, (j ->> 'every_ms')::bigint as every_ms,
                    coalesce(j ->> 'zone', 'UTC') as zone, coalesce(j ->> 'kind', j ->> 'name') as kind,
                    -- the library sends them as text, so that their bytes are kept
                    coalesce((j ->> 'args_text')::json, j -> 'args', '{}') as args, coalesce(j ->> 'owner', '') as owner, j ->> 'queue' as queue, (j ->> 'priority')::smallint as priority,
                    (j ->> 'max_attempts')::smallint as max_attempts, coalesce(j ->> 'missed', 'once') as missed,
                    (j ->> 'missed_most')::smallint as missed_most, coalesce(j ->> 'overlap', 'skip') as overlap,
                    coalesce((j ->> 'run_at_start')::boolean, false) as run_at_start
               from json_array_elements(declarations -> 'schedules') j
    loop
        perform postrider.check_name('schedule', x.name, own);
        perform postrider.check_job(x.kind, x.args, x.queue, x.priority, x.max_attempts, x.owner);
        if (x.cron is null) = (x.every_ms is null) then
            perform postrider.refuse('PR005', 'cron', format('schedule %L has no cron expression, or a period as well', x.name),
                'give either cron or every_ms');
        elsif x.every_ms not between 1000 and 316224000000 then
            perform postrider.refuse('PR005', 'every', format('schedule %L comes every %s ms', x.name, x.every_ms),
                'use a second at least and ten years at most');
        elsif x.missed not in ('skip', 'once', 'all') or (x.missed = 'all') <> (x.missed_most is not null)
              or x.missed_most not between 1 and 100 then
            perform postrider.refuse('PR005', 'missed', format('schedule %L does not say what becomes of missed runs', x.name),
                'use skip, once, or all with missed_most from 1 to 100');
        elsif x.overlap not in ('skip', 'queue') then
            perform postrider.refuse('PR005', 'overlap', format('%L is not known', left(x.overlap, 80)), 'use skip or queue');
        end if;
        if not attended then
            -- not by a where: the planner would call it for a null
            if x.cron is not null then
                perform postrider.check_cron(x.cron);
            end if;
            if not exists (select from pg_timezone_names z where z.name = x.zone) then
                perform postrider.refuse('PR005', 'zone', format('schedule %L: %L is not a time zone that is known here', x.name, left(x.zone, 80)),
                    'use a name of the IANA time zone database, such as Europe/Berlin');
            end if;
        end if;
        select * into s from postrider.schedule e where e.name = x.name;
        moved := (s.cron, s.every_ms, s.zone) is distinct from (x.cron, x.every_ms, x.zone);
        if postrider.declaration_wins('schedule', x.name, declare_schedules.generation, s.generation,
            not moved and (s.owner, s.kind, s.args::text, s.queue, s.priority, s.max_attempts, s.missed, s.missed_most, s.overlap,
                           s.run_at_start)
            is not distinct from (x.owner, x.kind::text, x.args::text, x.queue, x.priority, x.max_attempts, x.missed, x.missed_most,
                                  x.overlap, x.run_at_start))
        then
            insert into postrider.schedule as e (name, owner, cron, every_ms, zone, kind, args, queue, priority, max_attempts, missed,
                missed_most, overlap, run_at_start, standing, declared_by, generation)
            values (x.name, x.owner, x.cron, x.every_ms, x.zone, x.kind, x.args, x.queue, x.priority, x.max_attempts, x.missed,
                x.missed_most, x.overlap, x.run_at_start, not attended, declare_schedules.app, declare_schedules.generation)
            -- what it has run stays known; only another rule for when it comes makes it count anew
            on conflict (name) do update set owner = excluded.owner, cron = excluded.cron, every_ms = excluded.every_ms,
                zone = excluded.zone, kind = excluded.kind, args = excluded.args, queue = excluded.queue, priority = excluded.priority,
                max_attempts = excluded.max_attempts, missed = excluded.missed, missed_most = excluded.missed_most,
                overlap = excluded.overlap, run_at_start = excluded.run_at_start, standing = excluded.standing,
                declared_by = excluded.declared_by, generation = excluded.generation, seen_at = clock_timestamp(), problem = null,
                next_at = case when moved then null else e.next_at end,
                counted_from = case when moved then clock_timestamp() else e.counted_from end;
        else
            update postrider.schedule e set seen_at = clock_timestamp(), problem = null where e.name = x.name;
        end if;
    end loop;
end $$;

-- In how many milliseconds the next schedule is due of those that a process fires: the ones that it declares and the standing ones.
create function postrider.schedule_due_in_ms(names text[]) returns bigint
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
begin
    return (select case when s.next_at is null then 0
                        else greatest(0, ceil(extract(epoch from s.next_at - clock_timestamp()) * 1000))::bigint end
              from postrider.schedule s
             where s.paused_at is null and s.problem is null and (s.standing or s.name = any (schedule_due_in_ms.names))
             order by s.next_at nulls first limit 1);
end $$;

-- Enqueues a job of a schedule for each moment, which becomes its due time; a null is now. The caller holds the row.
create function postrider.run_of_schedule(s postrider.schedule, moments timestamptz[]) returns bigint[]
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    moment timestamptz;
    made record;
    jobs bigint[] := '{}';
begin
    foreach moment in array moments loop
        select e.id, e.fresh into made from postrider.enqueue(s.kind, s.args, queue => s.queue, priority => s.priority,
            max_attempts => s.max_attempts, owner => s.owner) e;
        if made.fresh and moment is not null then
            update postrider.job j set run_at = moment where j.class = (made.id & 3)::smallint and j.id = made.id;
        end if;
        jobs := jobs || made.id;
    end loop;
    update postrider.schedule e
       set last_jobs = (postrider.jobs_open(e.last_jobs) || jobs)[greatest(1, cardinality(postrider.jobs_open(e.last_jobs) || jobs) - 99):],
           ran_at = clock_timestamp(), runs = e.runs + cardinality(jobs)
     where e.name = s.name;
    return jobs;
end $$;

-- Those of some jobs that have not ended. One that was deleted, or is forgotten, has.
create function postrider.jobs_open(jobs bigint[]) returns bigint[]
language sql stable set search_path = pg_catalog, pg_temp
return array(
    select i.id from unnest(jobs_open.jobs) with ordinality i (id, o)
     where exists (select from postrider.job j where j.class = (i.id & 3)::smallint and j.id = i.id)
       and not exists (select from postrider.done d where d.class = (i.id & 3)::smallint and d.id = i.id)
     order by i.o);

-- Takes what is due of a schedule: if it still comes next at `seen`, it comes next at `next`, and a job is enqueued for each moment of `due`,
-- in one transaction. So of many that computed the same, one fires. `passed` is its last due time that is over, `missed` how many nobody was
-- there for. Answers with fired, overlapped (the last run has not ended, and it says skip), moved (nothing was due), or gone (another one was first,
-- or holds the row).
create function postrider.fire_schedule(
    name text, seen timestamptz, next timestamptz, due timestamptz[], passed timestamptz, missed bigint
) returns text
language plpgsql security definer set search_path = pg_catalog, pg_temp
set jit = off set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_bitmapscan = off as $$
declare
    s postrider.schedule;
    outcome text := 'moved';
begin
    perform postrider.check_isolation();
    if exists (select from unnest(due) d where d > clock_timestamp()) then
        perform postrider.refuse('PR005', 'due', 'a due time is ahead of the database''s clock', 'take the time from the database');
    end if;
    select * into s from postrider.schedule e
     where e.name = fire_schedule.name and e.next_at is not distinct from fire_schedule.seen and e.paused_at is null
       for no key update skip locked;
    if not found then
        return 'gone';
    end if;
    if cardinality(due) > 0 then
        outcome := case when s.overlap = 'skip' and cardinality(postrider.jobs_open(s.last_jobs)) > 0 then 'overlapped' else 'fired' end;
    end if;
    if outcome = 'fired' then
        perform postrider.run_of_schedule(s, due);
    end if;
    update postrider.schedule e
       set next_at = fire_schedule.next, due_at = coalesce(passed, e.due_at), missed_runs = e.missed_runs + fire_schedule.missed,
           overlapped_runs = e.overlapped_runs + case outcome when 'overlapped' then cardinality(due) else 0 end
     where e.name = fire_schedule.name;
    return outcome;
end $$;

-- Writes down that nobody can tell when a schedule comes next, and why; until it is declared again.
create function postrider.give_up_schedule(name text, seen timestamptz, problem text) returns boolean
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
    update postrider.schedule e set problem = left(give_up_schedule.problem, 1000)
     where e.name = give_up_schedule.name and e.next_at is not distinct from give_up_schedule.seen;
    return found;
end $$;

-- Runs those of some schedules that run when a process starts, but those that did less than a minute ago, are paused, or have not ended
-- and say skip. Answers with how many.
create function postrider.start_schedules(names text[]) returns int
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    s postrider.schedule;
    started int := 0;
begin
    perform postrider.check_isolation();
    for s in select * from postrider.schedule e
              where e.name = any (names) and e.run_at_start and e.paused_at is null
                and coalesce(e.started_at < clock_timestamp() - interval '1 minute', true)
              order by e.name for no key update skip locked
    loop
        continue when s.overlap = 'skip' and cardinality(postrider.jobs_open(s.last_jobs)) > 0;
        update postrider.schedule e set started_at = clock_timestamp() where e.name = s.name;
        perform postrider.run_of_schedule(s, array[null::timestamptz]);
        started := started + 1;
    end loop;
    return started;
end $$;

-- Runs a schedule now, whatever else of it runs, also a paused one; answers with the job. When it comes next stays. Refuses with PR004 (schedule).
create function postrider.run_schedule(name text) returns bigint
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    s postrider.schedule;
begin
    select * into s from postrider.schedule e where e.name = run_schedule.name for no key update;
    if not found then
        perform postrider.refuse_schedule(name);
    end if;
    return (postrider.run_of_schedule(s, array[null::timestamptz]))[1];
end $$;

-- Pauses a schedule or lets it go on. What is due while it is paused is not missed: it is none. Refuses with PR004 (schedule).
create function postrider.pause_schedule(name text, paused boolean default true) returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
    update postrider.schedule e
       set paused_at = case when paused then coalesce(e.paused_at, clock_timestamp()) end,
           next_at = case when paused = (e.paused_at is not null) then e.next_at end,
           counted_from = case when paused or e.paused_at is null then e.counted_from else clock_timestamp() end
     where e.name = pause_schedule.name;
    if not found then
        perform postrider.refuse_schedule(name);
    end if;
end $$;

-- Forgets a schedule; its jobs stay. One that a process declares comes back when that starts again. Refuses with PR004 (schedule).
create function postrider.drop_schedule(name text) returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
    perform postrider.lock_declarations();
    delete from postrider.schedule e where e.name = drop_schedule.name;
    if not found then
        perform postrider.refuse_schedule(name);
    end if;
end $$;

create function postrider.refuse_schedule(name text) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    perform postrider.refuse('PR004', 'schedule', format('%L was never declared', left(name, 80)), coalesce(
        'did you mean ' || (select string_agg(n, ', ') from (
            select quote_literal(e.name) as n from postrider.schedule e
             where split_part(e.name, '.', 1) = split_part(refuse_schedule.name, '.', 1)
             order by abs(length(e.name) - length(refuse_schedule.name)), e.name limit 3) near),
        'declare it first'));
end $$;
