-- Uniqueness: jobs that are alike are one job, for as long as their mode says.
-- Locks: rows of uniq. Producers wait for each other there; claim and finish never wait, they pass by what is held.
-- By hand on a large table: nothing.

-- One row for each group of jobs that are alike. job: the one that a duplicate is answered with; null while it has been claimed and its
-- mode lets the next one in. running: the one that was claimed.
-- mode: 1 while_waiting, 2 until_done, 3 for_ever, 4 within, 5 one_running_one_waiting, 6 an idempotency key.
create table postrider.uniq (
    hash    bytea    not null primary key,
    mode    smallint not null,
    job     bigint,
    running bigint,
    until   timestamptz
) with (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 2000);
create index uniq_expired on postrider.uniq (until) where until is not null;

-- who waits behind whom, in any queue. Not those in lanes: they are looked for by queue and position, and no plan may take this index for it
create index parked_behind on postrider.parked (key) where key not like 'order:%' and key not like 'limit:%';

-- jobs whose row of uniq was held by a producer when they were claimed or ended; the next beat looks again. Two who note the same job
-- leave a row each: with one row for both, each would wait for the other, and two with two jobs in a circle
create table postrider.unsettled (
    id bigint not null
);
create index unsettled_job on postrider.unsettled (id);

create function postrider.unique_mode_no(mode text) returns smallint
language sql immutable set search_path = pg_catalog, pg_temp
return array_position(array['while_waiting', 'until_done', 'for_ever', 'within', 'one_running_one_waiting'], mode)::smallint;

-- Checks the options of a job that may be one with a job like it, and its own retry schedule. Refuses with PR005.
create function postrider.check_alike(
    unique_mode text, unique_key text, unique_for interval, on_duplicate text, idempotency_key text, retry json
) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    if unique_mode is not null and unique_mode <> 'none' and postrider.unique_mode_no(unique_mode) is null then
        perform postrider.refuse('PR005', 'unique_mode', format('%L is not a mode', left(unique_mode, 80)),
            'use while_waiting, until_done, within, for_ever, one_running_one_waiting or none');
    elsif unique_key is not null and octet_length(unique_key) not between 1 and 200 then
        perform postrider.refuse('PR005', 'unique_key', 'a key is 1 to 200 bytes', 'use a shorter key, or a hash');
    elsif idempotency_key is not null and octet_length(idempotency_key) not between 1 and 200 then
        perform postrider.refuse('PR005', 'idempotency_key', 'a key is 1 to 200 bytes', 'use a shorter key');
    elsif (unique_mode = 'within') is distinct from (unique_for is not null) and (unique_mode is not null or unique_for is not null) then
        perform postrider.refuse('PR005', 'unique_for', 'a window belongs to the mode within, and that mode needs one',
            'give unique_mode within and unique_for together');
    elsif unique_for <= interval '0' or unique_for > interval '3660 days' then
        perform postrider.refuse('PR005', 'unique_for', 'it is not a window', 'use more than nothing and at most ten years');
    elsif on_duplicate is not null and on_duplicate not in ('keep', 'replace') then
        perform postrider.refuse('PR005', 'on_duplicate', format('%L is not known', left(on_duplicate, 80)), 'use keep or replace');
    end if;
    perform postrider.check_retry(retry);
end $$;

-- A retry schedule is {"first_ms", "most_ms"} or {"steps_ms": […]}. Refuses with PR005.
create function postrider.check_retry(retry json) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    ok boolean := retry is null;
begin
    if not ok and octet_length(retry::text) <= 4096 and json_typeof(retry) = 'object' then
        ok := case
            when retry ->> 'first_ms' is not null and retry ->> 'most_ms' is not null
                then retry ->> 'first_ms' ~ '^[0-9]{1,13}$' and retry ->> 'most_ms' ~ '^[0-9]{1,13}$'
            when json_typeof(retry -> 'steps_ms') = 'array' then
                (select count(*) > 0 and bool_and(s ~ '^[0-9]{1,13}$') from json_array_elements_text(retry -> 'steps_ms') s)
            else false end;
    end if;
    if not ok then
        perform postrider.refuse('PR005', 'retry', 'it is not a retry schedule',
            'send {"first_ms": 1000, "most_ms": 60000} or {"steps_ms": [1000, 5000]}');
    end if;
end $$;

-- What tells jobs apart. jsonb has one order of keys and one way to write a number.
create function postrider.unique_hash(mode smallint, kind text, owner text, key text, args json) returns bytea
language sql stable set search_path = pg_catalog, pg_temp
return substring(sha256(convert_to(concat_ws(E'\n', mode, case when mode = 6 then '' else kind end, owner,
    case when key is null then 'args' else 'key' end, coalesce(key, args::jsonb::text)), 'UTF8')) for 16);

-- The job that stands for all that are alike: `id` if it is the first, or the one that was there. Waits for a producer that is adding one and
-- has not committed. What it answers with cannot be claimed before the caller's transaction ends, in the modes where that matters: else a
-- change that the caller makes could be missed by the run that it counts on.
create function postrider.take_unique(hash bytea, mode smallint, id bigint, until timestamptz) returns bigint
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    u postrider.uniq;
begin
    loop
        select * into u from postrider.uniq x where x.hash = take_unique.hash;
        if not found then
            insert into postrider.uniq (hash, mode, job, until)
            values (take_unique.hash, take_unique.mode, take_unique.id, take_unique.until) on conflict do nothing;
            if found then
                return id;
            end if;
            continue;
        end if;
        if u.job is not null and (u.until is null or u.until > clock_timestamp()) then
            if mode in (1, 5) and not postrider.share_unique(hash, u.job) then
                continue;
            end if;
            return u.job;
        end if;
        update postrider.uniq x set job = take_unique.id, until = take_unique.until
         where x.hash = take_unique.hash and x.job is not distinct from u.job and x.until is not distinct from u.until;
        if found then
            return id;
        end if;
    end loop;
end $$;

-- Locks the row of a group, shared, if it still stands for that job. If it does not, nothing is locked: Postgres keeps the lock on a row
-- that has changed while one waited for it, and of two who hold it shared and want to change it each waits for the other.
create function postrider.share_unique(hash bytea, job bigint) returns boolean
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    perform 1 from postrider.uniq x where x.hash = share_unique.hash and x.job = share_unique.job for share;
    if not found then
        raise no_data_found;
    end if;
    return true;
exception when no_data_found then
    return false;
end $$;

-- Enqueues a job that may be one with a job like it. `new_id` was drawn for it. unique_mode: while_waiting, until_done, within (needs
-- unique_for), for_ever, one_running_one_waiting, or none against what the kind says; unique_key stands in for the args; on_duplicate
-- replace gives args and run_at to the job that waits; idempotency_key: the first job with it is the only one for 24 hours; key_taken: the
-- caller has entered that key for this job.
create function postrider.enqueue_alike(
    k postrider.kind, new_id bigint, args json, run_at timestamptz, owner text, unique_mode text, unique_key text, unique_for interval,
    on_duplicate text, idempotency_key text, retry json, order_key text, order_policy text, limit_key text,
    key_taken boolean default false
) returns table (id bigint, fresh boolean, replaced boolean, until timestamptz)
language plpgsql set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_variable
declare
    mode smallint;
    hash bytea;
    due timestamptz := case when run_at > clock_timestamp() then run_at end;
    flags smallint := 0;
    share smallint := case when k.fair then postrider.share_of(owner) end;
begin
    perform postrider.check_alike(unique_mode, unique_key, unique_for, on_duplicate, idempotency_key, retry);
    perform postrider.check_keys(order_key, order_policy, limit_key);
    limit_key := coalesce(limit_key, k.limit_key);
    if unique_mode is null then
        mode := postrider.unique_mode_no(k.unique_mode);
        unique_for := k.unique_for_ms * interval '1 millisecond';
    else
        mode := postrider.unique_mode_no(unique_mode);
    end if;
    if mode is null and (unique_key is not null or on_duplicate is not null) then
        perform postrider.refuse('PR005', 'unique_mode', 'unique_key and on_duplicate belong to a mode of uniqueness',
            'give unique_mode as well, here or with the kind');
    elsif mode = 5 and order_key is not null then
        perform postrider.refuse('PR005', 'order_key', 'one_running_one_waiting has an order of its own',
            'use another mode of uniqueness, or no order_key');
    end if;
    fresh := false;
    replaced := false;
    if idempotency_key is not null and not key_taken then
        id := postrider.take_unique(postrider.unique_hash(6::smallint, '', owner, idempotency_key, null), 6::smallint, new_id,
            clock_timestamp() + interval '24 hours');
        if id <> new_id then
            return next;
            return;
        end if;
    end if;
    if mode is not null then
        hash := postrider.unique_hash(mode, k.name, owner, unique_key, args);
        until := case mode when 4 then clock_timestamp() + unique_for end;
        id := postrider.take_unique(hash, mode, new_id, until);
        if id <> new_id then
            until := (select x.until from postrider.uniq x where x.hash = hash and mode = 4);
            if idempotency_key is not null then
                update postrider.uniq x set job = id
                 where x.hash = postrider.unique_hash(6::smallint, '', owner, idempotency_key, null);
            end if;
            replaced := coalesce(on_duplicate, 'keep') = 'replace' and postrider.replace_waiting(id, args, due);
            return next;
            return;
        end if;
        flags := case mode when 1 then 17 when 5 then 17 when 2 then 1 else 0 end;
    end if;
    id := new_id;
    fresh := true;
    flags := flags | case when limit_key is not null then 96 when order_key is not null then 32 else 0 end;
    insert into postrider.job (class, id, kind, queue, priority, max_attempts, owner, run_at, unique_hash, unique_mode, retry, args,
                               order_key, limit_key, order_rule, share)
    values (k.class, id, k.name, k.queue, k.priority, k.max_attempts, owner, due, hash, mode, retry, args, order_key, limit_key,
            case when order_key is not null then postrider.order_rule(coalesce(order_policy, k.order_policy)) end, share);
    if due is null then
        insert into postrider.ready (queue, priority, share, pos, id, flags, order_key)
        values (k.queue, k.priority, coalesce(share, 0), id, id, flags, order_key);
        perform postrider.wake('postrider_job');
    else
        insert into postrider.later (run_at, id, queue, priority, share, flags, order_key)
        values (due, id, k.queue, k.priority, coalesce(share, 0), flags, order_key);
    end if;
    return next;
end $$;

-- The array of postrider.enqueue_many, one by one. Ids follow the array. Idempotency keys are entered first, then groups of the alike, each
-- in the order of their hashes, so that two calls that cross do not wait for each other in a circle.
create function postrider.enqueue_many_alike(jobs json) returns table (id bigint, fresh boolean, replaced boolean, until timestamptz)
language plpgsql set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
declare
    x record;
    made record;
    k postrider.kind;
    ids bigint[] := '{}';
    fresh_ones boolean[] := '{}';
    replaced_ones boolean[] := '{}';
    untils timestamptz[] := '{}';
    numbers bigint[] := array(select nextval('postrider.job_number'::regclass) from json_array_elements(jobs));
    epoch bigint := pg_sequence_last_value('postrider.job_epoch'::regclass) << 46;
    -- of an item with an idempotency key: the first one of the call that has it, which answers for the others
    firsts int[] := '{}';
    last bytea;
    last_at int;
    tags text[];
begin
    -- before anything is hashed: what is not fit for a job is refused by name, and not by a cast
    perform postrider.check_job(t.kind, coalesce(t.job -> 'args', '{}'), t.queue, t.priority, t.max_attempts, coalesce(t.owner, ''))
       from rows from (
            json_to_recordset(jobs) as (kind text, queue text, priority int, max_attempts int, owner text),
            json_array_elements(jobs))
           with ordinality t (kind, queue, priority, max_attempts, owner, job, at);
    for x in
        select t.at::int as at, t.idempotency_key, epoch | (numbers[t.at] << 2) | d.class as new_id,
               postrider.unique_hash(6::smallint, '', coalesce(t.owner, ''), t.idempotency_key, null) as hash
          from rows from (json_to_recordset(jobs) as (kind text, owner text, idempotency_key text))
               with ordinality t (kind, owner, idempotency_key, at)
          join postrider.kind d on d.name = t.kind
         where t.idempotency_key is not null order by 4, 1
    loop
        perform postrider.check_alike(null, null, null, null, x.idempotency_key, null);
        if x.hash = last then
            firsts[x.at] := last_at;
            continue;
        end if;
        last := x.hash;
        last_at := x.at;
        firsts[x.at] := x.at;
        ids[x.at] := nullif(postrider.take_unique(x.hash, 6::smallint, x.new_id, clock_timestamp() + interval '24 hours'), x.new_id);
    end loop;
    for x in
        select t.*, coalesce(t.job -> 'args', '{}') as args, coalesce(t.owner, '') as of_owner, epoch | (numbers[t.at] << 2) as new_id
          from rows from (
                json_to_recordset(jobs) as (kind text, queue text, priority int, max_attempts int, run_at timestamptz, owner text,
                    unique_mode text, unique_key text, unique_for interval, on_duplicate text, idempotency_key text, retry json,
                    order_key text, order_policy text, limit_key text),
                json_array_elements(jobs))
               with ordinality t (kind, queue, priority, max_attempts, run_at, owner, unique_mode, unique_key, unique_for, on_duplicate,
                   idempotency_key, retry, order_key, order_policy, limit_key, job, at)
          left join postrider.kind d on d.name = t.kind
         where firsts[t.at] is null or (firsts[t.at] = t.at and ids[t.at] is null)
         order by case when postrider.unique_mode_no(coalesce(t.unique_mode, d.unique_mode)) is not null then
                  postrider.unique_hash(postrider.unique_mode_no(coalesce(t.unique_mode, d.unique_mode)), t.kind, coalesce(t.owner, ''),
                      t.unique_key, coalesce(t.job -> 'args', '{}')) end, t.at
    loop
        select * into k from postrider.kind d where d.name = x.kind;
        k.queue := coalesce(x.queue, k.queue);
        k.priority := coalesce(x.priority, k.priority);
        k.max_attempts := coalesce(x.max_attempts, k.max_attempts);
        select * into made
          from postrider.enqueue_alike(k, x.new_id | k.class, x.args, x.run_at, x.of_owner, x.unique_mode, x.unique_key, x.unique_for,
              x.on_duplicate, x.idempotency_key, x.retry, x.order_key, x.order_policy, x.limit_key, true);
        tags := postrider.tags_of(x.job);
        if made.fresh and tags is not null then
            perform postrider.put_tags(k.class, made.id, tags);
        end if;
        ids[x.at] := made.id;
        fresh_ones[x.at] := made.fresh;
        replaced_ones[x.at] := made.replaced;
        untils[x.at] := made.until;
    end loop;
    return query
    select ids[coalesce(firsts[n], n)], coalesce(fresh_ones[n], false), coalesce(replaced_ones[n], false), untils[coalesce(firsts[n], n)]
      from generate_subscripts(numbers, 1) n order by n;
end $$;

-- Whether no producer holds the group of a job that waits; then it is the caller's until the end of its transaction.
create function postrider.hold_group(id bigint) returns boolean
language plpgsql set search_path = pg_catalog, pg_temp
set jit = off set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off as $$
declare
    of_job bytea := (select j.unique_hash from postrider.job j where j.class = (hold_group.id & 3)::smallint and j.id = hold_group.id);
begin
    perform from postrider.uniq u where u.hash = of_job for no key update skip locked;
    return found or not exists (select from postrider.uniq u where u.hash = of_job);
end $$;

-- Lets whoever waits behind one of these groups be looked at again: the one that waits, and any that an operator's retry brought back beside
-- it, whatever their queues. The caller holds the rows of the groups, or nobody has one.
create function postrider.let_next_in(hashes bytea[]) returns void
language plpgsql set search_path = pg_catalog, pg_temp
set jit = off set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off
set enable_mergejoin = off as $$
begin
    with next_ones as (
        delete from postrider.parked p where p.ctid = any (array(
            select y.ctid from unnest(let_next_in.hashes) f (hash)
              join postrider.parked y on y.key = 'unique:' || encode(f.hash, 'hex') and y.key not like 'order:%' and y.key not like 'limit:%'))
        returning p.*
    )
    insert into postrider.ready (queue, priority, share, pos, id, attempt, losses, flags, order_key)
    select n.queue, n.priority, n.share, n.pos, n.id, n.attempt, n.losses, n.flags, n.order_key from next_ones n;
    if found then
        perform postrider.wake('postrider_job');
    end if;
end $$;

-- After jobs were claimed, ended or put off: what becomes of their groups. A row that a producer holds is left to the next beat.
create function postrider.settle_unique(ids bigint[]) returns void
language plpgsql set search_path = pg_catalog, pg_temp
set jit = off set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off
set enable_mergejoin = off as $$
declare
    freed bytea[];
begin
    insert into postrider.unsettled (id)
    select j.id from unnest(settle_unique.ids) i (id)
      join postrider.job j on j.class = (i.id & 3)::smallint and j.id = i.id
      join postrider.uniq u on u.hash = j.unique_hash and (u.job = j.id or u.running = j.id)
     where not exists (select from postrider.uniq x where x.hash = u.hash for no key update skip locked);
    -- whoever was not passed by is locked now, and stays as it is until the end of this transaction
    with mine as materialized (
        select u.hash, u.mode, j.id,
               exists (select from postrider.done d where d.class = j.class and d.id = j.id) as ended,
               exists (select from postrider.lease l where j.id = any (l.open)) as runs
          from unnest(settle_unique.ids) i (id)
          join postrider.job j on j.class = (i.id & 3)::smallint and j.id = i.id
          join postrider.uniq u on u.hash = j.unique_hash and (u.job = j.id or u.running = j.id)
         where not exists (select from postrider.unsettled s where s.id = j.id)
    ), ends as materialized (
        -- by group: the one that runs and the one behind it may both have ended by now
        select m.hash, array_agg(m.id) as ids from mine m where m.ended group by m.hash
    ), gone as (
        delete from postrider.uniq u using ends e
         where u.hash = e.hash
           and (u.mode = 2 or (u.mode in (1, 5) and coalesce(u.job = any (e.ids), true) and coalesce(u.running = any (e.ids), true)))
    ), left_over as (
        update postrider.uniq u
           set job = case when u.job = any (e.ids) then null else u.job end,
               running = case when u.running = any (e.ids) then null else u.running end
          from ends e
         where u.hash = e.hash and u.mode in (1, 5)
           and not (coalesce(u.job = any (e.ids), true) and coalesce(u.running = any (e.ids), true))
    ), again as (
        update postrider.uniq u set job = m.id, running = null from mine m
         where u.hash = m.hash and not m.ended and not m.runs and u.mode = 1 and u.running = m.id and u.job is null
    )
    select array_agg(m.hash) into freed from mine m where m.ended and m.mode = 5;
    if freed is not null then
        perform postrider.let_next_in(freed);
    end if;
end $$;

-- Which of these jobs, about to wait for another attempt, have been overtaken: another one like them waits already, and stands for them.
create function postrider.superseded(ids bigint[]) returns bigint[]
language sql stable set search_path = pg_catalog, pg_temp
set jit = off set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off
return array(
    select j.id from unnest(superseded.ids) i (id)
      join postrider.job j on j.class = (i.id & 3)::smallint and j.id = i.id
      join postrider.uniq u on u.hash = j.unique_hash and u.mode = 1 and u.job <> j.id);
