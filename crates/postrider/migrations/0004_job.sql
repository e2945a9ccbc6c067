-- Jobs: a job's state is where its id is. The wide row is written once; what moves is narrow.
-- Locks: none that matter, everything here is new.
-- By hand on a large table: nothing.
--
-- A job's id is epoch << 46 | number << 2 | class. So it tells its partition: class = id & 3.

create table postrider.job (
    class        smallint    not null,
    id           bigint      not null,
    kind         text collate "C" not null,
    queue        text        not null,
    priority     smallint    not null,
    max_attempts smallint    not null,
    owner        text collate "C" not null default '',
    created_at   timestamptz not null default clock_timestamp(),
    run_at       timestamptz,
    order_key    text,
    limit_key    text,
    order_rule   smallint,           -- see postrider.order_rule
    share        smallint,           -- null is 0
    unique_hash  bytea,
    unique_mode  smallint,
    retry        json,
    subscription bigint,
    event_seq    bigint,
    args         json        not null default '{}',
    primary key (class, id)
) partition by range (class, id);

-- The flags of a job that has to wait for something: one that was let go alone in its queue (8) gives that up, to be alone once more (128).
create function postrider.flags_of_waiting(flags smallint) returns smallint
language sql immutable set search_path = pg_catalog, pg_temp
return case when flags & 8 = 0 then flags else flags & ~8::smallint | 128::smallint end;

-- claimable now; pos = id if it was ready when it was made. again_at: when it
-- became due, if it had to wait for a time.
-- flags: 1 its uniqueness ends or moves when it ends, 2 it has the turn of its order key, 4 suspected of killing its worker: a lease of its
-- own, 8 alone in its queue, 16 its uniqueness has a say when it is claimed, 32 it has an order key or a limit key, 64 a limit key, 128 was
-- let go alone in its queue and had to wait for something else: alone once more.
create table postrider.ready (
    queue     text     not null,
    priority  smallint not null,
    share     smallint not null,
    pos       bigint   not null,
    id        bigint   not null,
    attempt   smallint not null default 0,
    losses    smallint not null default 0,
    flags     smallint not null default 0,
    order_key text,
    again_at  timestamptz,
    primary key (queue, priority, share, pos)
) with (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 2000, autovacuum_vacuum_cost_delay = 1,
        autovacuum_vacuum_insert_scale_factor = 1);
create index ready_moved on postrider.ready (id) where pos <> id;
create index ready_strict on postrider.ready (queue) where flags & 8 <> 0;
-- these two by an expression, so that no plan takes the primary key for them
create index ready_keyed on postrider.ready (queue, priority, share, (pos + 0)) where flags & 32 <> 0;
create index ready_turned on postrider.ready (queue, priority, share, (pos + 0)) where flags & 2 <> 0;
create index ready_turn on postrider.ready (queue, order_key, id) where flags & 34 = 32 and pos = id;
create index ready_turn_moved on postrider.ready (queue, order_key, id) where flags & 34 = 32 and pos <> id;

-- scheduled, retrying, snoozed; why: 0 scheduled, 1 retrying, 2 snoozed
create table postrider.later (
    run_at    timestamptz not null,
    id        bigint      not null,
    queue     text        not null,
    priority  smallint    not null,
    share     smallint    not null,
    attempt   smallint    not null default 0,
    losses    smallint    not null default 0,
    flags     smallint    not null default 0,
    why       smallint    not null default 0,
    lease     bigint,
    order_key text,
    primary key (run_at, id)
) with (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 2000, autovacuum_vacuum_cost_delay = 1);
create index later_moved on postrider.later (id) where why <> 0;

-- waits for something that is not time; key: 'kind:<name>' no live worker knows the kind, 'strict:' runs when nothing like it
-- does, 'unique:<hash>' behind one like it, 'order:<key>' behind others of its order key, 'limit:<key>' until its limit has room
create table postrider.parked (
    queue     text     not null,
    key       text collate "C" not null,
    pos       bigint   not null,
    id        bigint   not null,
    priority  smallint not null,
    share     smallint not null,
    attempt   smallint not null default 0,
    losses    smallint not null default 0,
    flags     smallint not null default 0,
    order_key text,
    primary key (queue, key, pos)
);
create index parked_job on postrider.parked (id);

-- a process that works; the only row that is updated in place, once a second
create table postrider.worker (
    id         uuid        not null primary key,
    app        text        not null,
    version    text        not null,
    host       text        not null,
    pid        int         not null,
    queues     text[]      not null,
    kinds      text[]      not null,
    started_at timestamptz not null default clock_timestamp(),
    beat       bigint      not null default 1,
    beat_at    timestamptz not null default clock_timestamp()
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.02);

-- running: one row for a claimed batch. `open` is what of it has not ended: the one truth about who runs what. The id is never
-- given twice, and is worth something only together with the worker, since sequences can go back after an asynchronous failover.
create sequence postrider.lease_id;
create table postrider.lease (
    id         bigint      not null primary key,
    worker     uuid        not null,
    call       bigint,
    claimed_at timestamptz not null default clock_timestamp(),
    queue      text        not null,
    ids        bigint[]    not null,
    positions  bigint[]    not null,
    attempts   smallint[]  not null,
    losses     smallint[]  not null,
    flags      smallint[]  not null,
    priorities smallint[]  not null,
    shares     smallint[]  not null,
    order_keys text[],
    special    boolean     not null default false,  -- something of it needs more than the common way when it ends
    open       bigint[]    not null,
    limit_keys text[]
) with (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 500);
create index lease_of_worker on postrider.lease (worker);
create index lease_limited on postrider.lease (queue) where limit_keys is not null;

-- state: 2 completed, 3 discarded, 4 cancelled.
-- ended_as: 1 completed, 2 refused (by its handler), 3 exhausted (attempts), 4 lost (with its worker), 5 cancelled.
-- fault_side: 1 producer, 2 consumer, 3 platform, 4 outside.
create table postrider.done (
    class       smallint    not null,
    id          bigint      not null,
    finished_at timestamptz not null default clock_timestamp(),
    started_at  timestamptz,
    lease       bigint,
    state       smallint    not null,
    ended_as    smallint    not null,
    fault_side  smallint,
    attempt     smallint    not null,
    reason      text,
    output      json,
    primary key (class, id),
    constraint a_completed_job_has_no_reason check (state <> 2 or reason is null)
) partition by range (class, id);

-- every attempt that ended in another way than completed; outcome: 2 failed, 3 lost, 4 refused
create table postrider.attempt (
    class      smallint    not null,
    id         bigint      not null,
    lease      bigint      not null,
    attempt    smallint    not null,
    outcome    smallint    not null,
    started_at timestamptz not null,
    ended_at   timestamptz not null default clock_timestamp(),
    error      text,
    primary key (class, id, lease)
) partition by range (class, id);

insert into postrider.partitioned (name, unit) values ('job', 'job'), ('done', 'job'), ('attempt', 'job');
select postrider.make_partitions(name) from postrider.partitioned where unit = 'job';

-- Checks in full what a job is asked for; true if it may pass. Refuses with PR001 (kind, queue, owner), PR002 and PR003 (args),
-- PR004 (kind), PR005 (priority, max_attempts).
create function postrider.check_job(
    kind text, args json, queue text, priority int, max_attempts int, owner text
) returns boolean
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    if not exists (select from postrider.kind k where k.name = check_job.kind) then
        perform postrider.check_name('kind', kind, true);
        perform postrider.refuse('PR004', 'kind', format('%L was never declared', kind), coalesce(
            'did you mean ' || (select string_agg(n, ', ') from (
                select quote_literal(e.name) as n from postrider.kind e
                 where split_part(e.name, '.', 1) = split_part(check_job.kind, '.', 1)
                 order by abs(length(e.name) - length(check_job.kind)), e.name limit 3) near),
            'declare it first: postrider.declare'));
    end if;
    perform postrider.check_name('kind', kind);
    if queue is not null then
        perform postrider.check_name('queue', queue, true);
    end if;
    if priority not between 1 and 4 then
        perform postrider.refuse('PR005', 'priority', format('%s is not a priority', priority), 'use 1 (first) to 4 (last)');
    end if;
    if max_attempts not between 1 and 1000 then
        perform postrider.refuse('PR005', 'max_attempts', format('%s is out of range', max_attempts), 'use 1 to 1000');
    end if;
    perform postrider.check_owner(owner);
    perform postrider.check_json('args', args);
    return true;
end $$;

-- Puts one job into the caller's transaction. Refuses as postrider.check_job does; writes nothing then. A run_at in the past means
-- now. until: the end of the window of the mode within; a duplicate is told that of the first one. One simple statement after the other: as
-- a single one with three writes it cost twice as much. For unique_mode and what follows it see postrider.enqueue_alike; order_key,
-- order_policy and limit_key are of lanes and limits; tags: up to 10, which a list finds it by.
create function postrider.enqueue(
    kind text, args json default '{}', queue text default null, priority int default null, max_attempts int default null,
    run_at timestamptz default null, owner text default '', unique_mode text default null, unique_key text default null,
    unique_for interval default null, on_duplicate text default null, idempotency_key text default null, retry json default null,
    order_key text default null, order_policy text default null, limit_key text default null, tags text[] default null
) returns table (id bigint, fresh boolean, replaced boolean, until timestamptz)
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_variable
declare
    k postrider.kind;
    now_ms bigint;
begin
    select * into k from postrider.kind where name = enqueue.kind;
    -- whatever a cheap look does not clear is checked in full, which refuses it or lets it pass
    if k.name is null or kind like 'postrider.%' or kind like 'webhook.%' or owner <> '' or owner is null
       or queue is not null or priority is not null or max_attempts is not null or args is null
       or octet_length(args::text) > 4096 or position('\u' in args::text) > 0 or args::text ~ '[eE][-+]?[0-9]{5}'
       or (octet_length(args::text) > 257 and length(args::text) - length(translate(args::text, '[{', '')) > 128)
    then
        perform postrider.check_job(kind, args, queue, priority, max_attempts, owner);
        k.queue := coalesce(queue, k.queue);
        k.priority := coalesce(priority, k.priority);
        k.max_attempts := coalesce(max_attempts, k.max_attempts);
    end if;
    id := (pg_sequence_last_value('postrider.job_epoch'::regclass) << 46) | (nextval('postrider.job_number'::regclass) << 2) | k.class;
    replaced := false;
    if tags is not null then
        perform postrider.check_tags(tags);
    end if;
    if k.fair or coalesce(k.unique_mode, unique_mode, unique_key, on_duplicate, idempotency_key, retry::text, unique_for::text, order_key,
                          order_policy, limit_key, k.limit_key) is not null then
        select a.id, a.fresh, a.replaced, a.until into id, fresh, replaced, until from postrider.enqueue_alike(k, id, args, run_at, owner, unique_mode,
            unique_key, unique_for, on_duplicate, idempotency_key, retry, order_key, order_policy, limit_key) a;
        if fresh and tags is not null then
            perform postrider.put_tags(k.class, id, tags);
        end if;
        return next;
        return;
    end if;
    if run_at is null or run_at <= clock_timestamp() then
        insert into postrider.job (class, id, kind, queue, priority, max_attempts, owner, args)
        values (k.class, id, kind, k.queue, k.priority, k.max_attempts, owner, args);
        insert into postrider.ready (queue, priority, share, pos, id) values (k.queue, k.priority, 0, id, id);
        now_ms := (date_part('epoch', clock_timestamp()) * 1000)::bigint;
        if coalesce(pg_sequence_last_value('postrider.wake_job'::regclass), 0) not between now_ms - 5 and now_ms then
            perform postrider.wake('postrider_job');
        end if;
    else
        insert into postrider.job (class, id, kind, queue, priority, max_attempts, owner, run_at, args)
        values (k.class, id, kind, k.queue, k.priority, k.max_attempts, owner, run_at, args);
        insert into postrider.later (run_at, id, queue, priority, share) values (run_at, id, k.queue, k.priority, 0);
    end if;
    fresh := true;
    if tags is not null then
        perform postrider.put_tags(k.class, id, tags);
    end if;
    return next;
end $$;

-- Enqueues in the order of the array; each element is an object with the named arguments of postrider.enqueue. One statement for
-- all of them: a call for each cost five times as much. Those that may be one with a job like them go one by one.
create function postrider.enqueue_many(jobs json) returns table (id bigint, fresh boolean, replaced boolean, until timestamptz)
language plpgsql security definer set search_path = pg_catalog, pg_temp set plan_cache_mode = force_generic_plan as $$
#variable_conflict use_column
declare
    stray text;
    epoch bigint := pg_sequence_last_value('postrider.job_epoch'::regclass) << 46;
    ids bigint[];
    due boolean;
begin
    perform postrider.check_escapes('args', jobs::text);
    if json_typeof(jobs) is distinct from 'array' then
        perform postrider.refuse('PR003', 'jobs', 'it is not an array', 'send an array of objects with kind and args');
    end if;
    select k into stray from json_array_elements(jobs) j cross join lateral json_object_keys(j) k
     where k not in ('kind', 'args', 'queue', 'priority', 'max_attempts', 'run_at', 'owner', 'unique_mode', 'unique_key',
                     'unique_for', 'on_duplicate', 'idempotency_key', 'retry', 'order_key', 'order_policy', 'limit_key', 'tags') limit 1;
    if found then
        perform postrider.refuse('PR005', stray, 'it is not an option of a job', 'use kind, args, queue, priority, max_attempts, '
            'run_at, owner, unique_mode, unique_key, unique_for, on_duplicate, idempotency_key, retry, order_key, order_policy, limit_key, tags');
    end if;
    if exists (
        select from json_to_recordset(jobs) as t (kind text, unique_mode text, unique_key text, unique_for text, on_duplicate text,
                                                  idempotency_key text, retry json, order_key text, order_policy text, limit_key text,
                                                  tags json)
          left join postrider.kind k on k.name = t.kind
         where k.fair or coalesce(k.unique_mode, t.unique_mode, t.unique_key, t.unique_for, t.on_duplicate, t.idempotency_key, t.retry::text,
                                  t.order_key, t.order_policy, t.limit_key, k.limit_key, t.tags::text) is not null)
    then
        return query select * from postrider.enqueue_many_alike(jobs);
        return;
    end if;
    with asked as materialized (
        -- each element beside its fields: a field of type json would take a null for nothing
        select t.kind, coalesce(t.job -> 'args', '{}') as args, t.queue, t.priority, t.max_attempts,
               case when t.run_at > clock_timestamp() then t.run_at end as run_at, coalesce(t.owner, '') as owner, t.at
          from rows from (
                json_to_recordset(jobs) as (kind text, queue text, priority int, max_attempts int, run_at timestamptz, owner text),
                json_array_elements(jobs))
               with ordinality t (kind, queue, priority, max_attempts, run_at, owner, job, at)
    ), allowed as (
        select a.at, k.class, a.kind, coalesce(a.queue, k.queue) as queue, coalesce(a.priority::smallint, k.priority) as priority,
               coalesce(a.max_attempts::smallint, k.max_attempts) as max_attempts, a.owner, a.run_at, a.args
          from asked a
          left join postrider.kind k on k.name = a.kind
         -- whatever a cheap look does not clear is checked in full, which refuses it or lets it pass
         where (k.name is not null and k.name not like 'postrider.%' and k.name not like 'webhook.%' and a.queue is null
                and a.priority is null and a.max_attempts is null and a.owner = ''
                and octet_length(a.args::text) <= 4096 and position('\u' in a.args::text) = 0
                and a.args::text !~ '[eE][-+]?[0-9]{5}'
                and (octet_length(a.args::text) <= 257 or length(a.args::text) - length(translate(a.args::text, '[{', '')) <= 128))
            or postrider.check_job(a.kind, a.args, a.queue, a.priority, a.max_attempts, a.owner)
         order by a.at offset 0
    ), placed as materialized (
        select epoch | (nextval('postrider.job_number') << 2) | a.class as id, a.* from allowed a
    ), job as (
        insert into postrider.job (class, id, kind, queue, priority, max_attempts, owner, run_at, args)
        select p.class, p.id, p.kind, p.queue, p.priority, p.max_attempts, p.owner, p.run_at, p.args from placed p
    ), now as (
        insert into postrider.ready (queue, priority, share, pos, id)
        select p.queue, p.priority, 0, p.id, p.id from placed p where p.run_at is null
    ), for_later as (
        insert into postrider.later (run_at, id, queue, priority, share)
        select p.run_at, p.id, p.queue, p.priority, 0 from placed p where p.run_at is not null
    )
    select array_agg(p.id order by p.at), bool_or(p.run_at is null) into ids, due from placed p;
    if due then
        perform postrider.wake('postrider_job');
    end if;
    return query select i, true, false, null::timestamptz from unnest(ids) i;
end $$;

-- What became of a transaction whose commit was not answered: committed, aborted, in progress, or unknown. What it wrote is the
-- evidence: an event, or a job with a moment after it was enqueued. Without evidence only the transaction's id can tell, and a server
-- that crashed gives the ids of transactions that had not reached the disk (and their numbers of events and jobs) to others.
create function postrider.resolve(
    xid text, event_id uuid default null, job_id bigint default null, told_at timestamptz default null
) returns text
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    asked xid8;
    status text;
    writer xid8;
    enqueued_at timestamptz;
begin
    if xid is null or xid !~ '^[0-9]{1,19}$' then
        perform postrider.refuse('PR005', 'xid', 'it is not a transaction id', 'pass what pg_current_xact_id() told');
    end if;
    perform postrider.check_isolation();
    asked := xid::xid8;
    begin
        status := pg_xact_status(asked);
    exception when invalid_parameter_value then
        -- an id that this server has not given out, or lost again
        status := null;
    end;
    -- first the status, then the evidence, in a statement that sees everything that had ended by then
    if status = 'in progress' then
        return status;
    end if;
    if event_id is not null then
        select e.xid into writer from postrider.event e
         where e.seq = postrider.event_seq(resolve.event_id) and e.id = resolve.event_id;
        if writer = asked then
            return 'committed';
        elsif not found then
            return case when postrider.has_partition('event', postrider.event_seq(event_id)) then 'aborted' else 'unknown' end;
        end if;
        -- another transaction's event, met by its idempotency key, is no evidence
    elsif job_id is not null then
        if told_at is null then
            perform postrider.refuse('PR005', 'told_at', 'a job is evidence only with it',
                'pass clock_timestamp() as the statement that enqueued the job told it');
        end if;
        select j.created_at into enqueued_at from postrider.job j where j.class = (job_id & 3)::smallint and j.id = job_id;
        if enqueued_at is null then
            select g.created_at into enqueued_at from postrider.deleted g where g.id = job_id;
        end if;
        return case when enqueued_at <= told_at then 'committed'
                    when enqueued_at is not null or postrider.has_partition('job', job_id) then 'aborted' else 'unknown' end;
    end if;
    return coalesce(status, 'unknown');
end $$;
