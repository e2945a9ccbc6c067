-- Acts on jobs from outside: cancel, retry, delete, replace, pause; and what a handler tells while it runs.
-- Locks: groups of alike jobs in the order of their hashes, then waiting rows; leases in the order of their ids, never waiting for one
-- while a group is held.
-- By hand on a large table: nothing.

create table postrider.queue (
    name      text        not null primary key,
    paused_at timestamptz
);

-- jobs that run and are to end as cancelled; two who ask at once leave a row each, so that neither waits for the other
create table postrider.cancellation (
    id           bigint      not null,
    requested_at timestamptz not null default clock_timestamp(),
    reason       text
);
create index cancellation_of_job on postrider.cancellation (id);

create table postrider.progress (
    id      bigint      not null primary key,
    lease   bigint      not null,
    percent smallint    not null,
    note    text        not null,
    at      timestamptz not null default clock_timestamp(),
    constraint percent_is_0_to_100 check (percent between 0 and 100)
) with (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 500);

-- jobs that an operator removed: resolve must not take their absence for a commit that never came
create table postrider.deleted (
    id         bigint      not null primary key,
    created_at timestamptz not null,
    deleted_at timestamptz not null default clock_timestamp()
);

create type postrider.waiting as (
    queue text, priority smallint, share smallint, pos bigint, id bigint, attempt smallint, losses smallint, flags smallint,
    order_key text, why smallint
);

-- Takes a job from where it waits, wherever that is, if it has been tried at most so often; all null if it does not wait, or if somebody
-- else is taking it.
create function postrider.take_waiting(j postrider.job, tried_most int default 32767) returns postrider.waiting
language plpgsql set search_path = pg_catalog, pg_temp
set jit = off set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_bitmapscan = off as $$
declare
    w postrider.waiting;
begin
    delete from postrider.ready r where r.ctid = any (array(
        select x.ctid from postrider.ready x
         where x.queue = j.queue and x.priority = j.priority and x.share = coalesce(j.share, 0) and x.pos = j.id and x.id = j.id
           and x.attempt <= tried_most for update skip locked))
    returning r.queue, r.priority, r.share, r.pos, r.id, r.attempt, r.losses, r.flags, r.order_key, null::smallint into w;
    if w.id is null then
        delete from postrider.ready r where r.ctid = any (array(
            select x.ctid from postrider.ready x where x.id = j.id and x.pos <> x.id and x.attempt <= tried_most for update skip locked))
        returning r.queue, r.priority, r.share, r.pos, r.id, r.attempt, r.losses, r.flags, r.order_key, null::smallint into w;
    end if;
    if w.id is null then
        w := postrider.take_later(j, tried_most);
    end if;
    if w.id is null then
        delete from postrider.parked p where p.ctid = any (array(
            select x.ctid from postrider.parked x where x.id = j.id and x.attempt <= tried_most for update skip locked))
        returning p.queue, p.priority, p.share, p.pos, p.id, p.attempt, p.losses, p.flags, p.order_key, null::smallint into w;
    end if;
    if w.flags & 32 <> 0 then
        -- others may have waited for it
        perform postrider.call_lanes(j);
    end if;
    return w;
end $$;

-- The same for one that waits for its time.
create function postrider.take_later(j postrider.job, tried_most int default 32767) returns postrider.waiting
language plpgsql set search_path = pg_catalog, pg_temp
set jit = off set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_bitmapscan = off as $$
declare
    w postrider.waiting;
begin
    delete from postrider.later y where y.ctid = any (array(
        select x.ctid from postrider.later x
         where x.run_at = j.run_at and x.id = j.id and x.attempt <= tried_most for update skip locked))
    returning y.queue, y.priority, y.share, y.id, y.id, y.attempt, y.losses, y.flags, y.order_key, y.why into w;
    if w.id is null then
        delete from postrider.later y where y.ctid = any (array(
            select x.ctid from postrider.later x where x.id = j.id and x.why <> 0 and x.attempt <= tried_most for update skip locked))
        returning y.queue, y.priority, y.share, y.id, y.id, y.attempt, y.losses, y.flags, y.order_key, y.why into w;
    end if;
    return w;
end $$;

-- Puts a job where it can be claimed, behind everything that is there.
create function postrider.make_ready(w postrider.waiting) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    insert into postrider.ready (queue, priority, share, pos, id, attempt, losses, flags, order_key)
    values (w.queue, w.priority, w.share, (pg_sequence_last_value('postrider.job_epoch'::regclass) << 46)
            | (nextval('postrider.job_number'::regclass) << 2), w.id, w.attempt, w.losses, w.flags, w.order_key);
    perform postrider.wake('postrider_job');
end $$;

-- Gives a job that waits for its first attempt the args and the time of a duplicate. False if it has started.
create function postrider.replace_waiting(id bigint, args json, run_at timestamptz) returns boolean
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    j postrider.job;
    w postrider.waiting;
begin
    select * into j from postrider.job x where x.class = (replace_waiting.id & 3)::smallint and x.id = replace_waiting.id;
    w := postrider.take_waiting(j, 0);
    if w.id is null then
        return false;
    end if;
    -- it stands behind again, and so gives up the turn that it may have
    w.flags := w.flags & ~2;
    update postrider.job x set args = replace_waiting.args, run_at = replace_waiting.run_at where x.class = j.class and x.id = j.id;
    if run_at is null then
        perform postrider.make_ready(w);
    else
        insert into postrider.later (run_at, id, queue, priority, share, attempt, losses, flags, why, order_key)
        values (replace_waiting.run_at, w.id, w.queue, w.priority, w.share, w.attempt, w.losses, w.flags, 0, w.order_key);
    end if;
    return true;
end $$;

-- The name of a state of postrider.done.
create function postrider.end_name(state smallint) returns text
language sql immutable set search_path = pg_catalog, pg_temp
return (array['-', 'completed', 'discarded', 'cancelled'])[state];

-- Where a job is; null if it is nowhere, which it can be for one look while it moves.
create function postrider.state_of(j postrider.job) returns text
language sql stable set search_path = pg_catalog, pg_temp
set jit = off set enable_seqscan = off set enable_bitmapscan = off
return coalesce(
    (select postrider.end_name(d.state) from postrider.done d where d.class = j.class and d.id = j.id),
    (select 'running' from postrider.lease l where j.id = any (l.open) limit 1),
    (select case when r.attempt > 0 then 'retryable' else 'pending' end from postrider.ready r
      where r.queue = j.queue and r.priority = j.priority and r.share = coalesce(j.share, 0) and r.pos = j.id and r.id = j.id),
    (select case when r.attempt > 0 then 'retryable' else 'pending' end from postrider.ready r where r.id = j.id and r.pos <> r.id),
    (select case when y.attempt > 0 then 'retryable' else 'pending' end from postrider.later y where y.run_at = j.run_at and y.id = j.id),
    (select case when y.attempt > 0 then 'retryable' else 'pending' end from postrider.later y where y.id = j.id and y.why <> 0),
    (select case when p.attempt > 0 then 'retryable' else 'pending' end from postrider.parked p where p.id = j.id));

-- Cancels: a job that waits never runs; one that runs is to end as cancelled, which its worker learns with its next beat. effect: done,
-- requested (also if somebody else keeps it for so long that a later beat has to do it), already (it has ended: as state tells), gone (it had
-- ended, and is not kept any longer), unknown.
create function postrider.cancel(ids bigint[], reason text default null) returns table (id bigint, effect text, state text)
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
    perform postrider.check_isolation();
    return query select c.id, c.effect, c.state from postrider.cancel_within(ids, nullif(left(cancel.reason, 1000), ''), 30) c;
end $$;

-- The same; looks so often, 10 ms apart, for what somebody else is moving.
create function postrider.cancel_within(ids bigint[], reason text, looks int) returns table (id bigint, effect text, state text)
language plpgsql set search_path = pg_catalog, pg_temp
set jit = off set enable_seqscan = off set enable_bitmapscan = off as $$
#variable_conflict use_column
declare
    rest bigint[] := array(select distinct i from unnest(cancel_within.ids) i order by i);
    held bigint[];
    told bigint[];
    ended bigint[] := '{}';
    j postrider.job;
    w postrider.waiting;
    x bigint;
begin
    for n in 1..looks loop
        -- who holds a lease may wait for what we hold: we do not wait for it. The last time the request is noted without it; should the
        -- attempt end just now, a later beat carries it out
        held := array(select l.id from postrider.lease l where l.open && rest order by l.id for no key update skip locked);
        told := array(select o.id from postrider.lease l cross join unnest(l.open) o (id)
                       where (l.id = any (held) or n = looks) and o.id = any (rest));
        perform postrider.note_cancellation(told, cancel_within.reason);
        return query select t, 'requested', 'running' from unnest(told) t;
        rest := array(select r from unnest(rest) r where r <> all (told) order by r);
        foreach x in array rest loop
            select * into j from postrider.job q where q.class = (x & 3)::smallint and q.id = x;
            if not found then
                return query select x, case when postrider.gone_since(x) is null then 'unknown' else 'gone' end, null::text;
            elsif exists (select from postrider.done d where d.class = j.class and d.id = x) then
                return query select x, 'already', postrider.end_name(d.state) from postrider.done d where d.class = j.class and d.id = x;
            else
                w := postrider.take_waiting(j);
                continue when w.id is null;
                insert into postrider.done (class, id, state, ended_as, attempt, reason)
                values (j.class, x, 4, 5, w.attempt, coalesce(cancel_within.reason, 'cancelled'));
                ended := ended || x;
                return query select x, 'done', 'cancelled';
            end if;
            rest := array_remove(rest, x);
        end loop;
        exit when rest = '{}' or n = looks;
        -- it moves just now
        perform pg_sleep(0.01);
    end loop;
    perform postrider.note_cancellation(rest, cancel_within.reason);
    return query select r, 'requested', 'running' from unnest(rest) r;
    perform postrider.settle_unique(ended);
end $$;

create function postrider.note_cancellation(ids bigint[], reason text) returns void
language sql set search_path = pg_catalog, pg_temp
begin atomic
    insert into postrider.cancellation (id, reason)
    select i, note_cancellation.reason from unnest(note_cancellation.ids) i
     where not exists (select from postrider.cancellation c
                        where c.id = i and (c.reason is not null or note_cancellation.reason is null));
end;

-- Lets jobs run again: one that has ended starts anew with all its attempts and keeps its history; one that waits for its time runs now.
-- effect: done, running (refused), already (it waits to be claimed), gone, unknown.
create function postrider.retry(ids bigint[]) returns table (id bigint, effect text, state text)
language plpgsql security definer set search_path = pg_catalog, pg_temp
set jit = off set enable_seqscan = off set enable_bitmapscan = off as $$
#variable_conflict use_column
declare
    j postrider.job;
    d postrider.done;
    w postrider.waiting;
    x bigint;
    revived bigint[] := '{}';
begin
    perform postrider.check_isolation();
    for x in select distinct i from unnest(retry.ids) i order by i loop
        select * into j from postrider.job q where q.class = (x & 3)::smallint and q.id = x;
        if not found then
            return query select x, case when postrider.gone_since(x) is null then 'unknown' else 'gone' end, null::text;
            continue;
        end if;
        delete from postrider.done o where o.class = j.class and o.id = x returning o.* into d;
        if found then
            -- how it ended becomes history, unless its last attempt is there already
            insert into postrider.attempt (class, id, lease, attempt, outcome, started_at, ended_at, error)
            values (d.class, x, coalesce(d.lease, nextval('postrider.lease_id')), d.attempt,
                    case d.state when 2 then 1 when 4 then 5 else 2 end, coalesce(d.started_at, d.finished_at), d.finished_at, d.reason)
            on conflict do nothing;
            -- a new life: its age is counted from here
            update postrider.job q set run_at = clock_timestamp() where q.class = j.class and q.id = x;
            w := row (j.queue, j.priority, coalesce(j.share, 0), null, x, 0, 0,
                      case j.unique_mode when 1 then 17 when 5 then 17 when 2 then 1 else 0 end
                      | case when j.limit_key is not null then 96 when j.order_key is not null then 32 else 0 end,
                      j.order_key, null);
            perform postrider.make_ready(w);
            if j.unique_mode in (1, 2, 5) then
                revived := revived || x;
            end if;
            return query select x, 'done', 'pending';
            continue;
        end if;
        w := postrider.take_later(j);
        if w.id is not null then
            perform postrider.make_ready(w);
            return query select x, 'done', case when w.attempt > 0 then 'retryable' else 'pending' end;
        else
            return query select x, case s when 'running' then 'running' else 'already' end, s
              from (select coalesce(postrider.state_of(j), 'running')) y (s);
        end if;
    end loop;
    -- each stands for those like it again if no other one does; it runs in any case
    insert into postrider.uniq (hash, mode, job)
    select distinct on (q.unique_hash) q.unique_hash, q.unique_mode, q.id
      from unnest(revived) r (id) join postrider.job q on q.class = (r.id & 3)::smallint and q.id = r.id
     order by q.unique_hash, q.id
        on conflict do nothing;
end $$;

-- Removes jobs and their history; what was one with them is free again. effect: done, running (refused), gone, unknown.
create function postrider.delete(ids bigint[]) returns table (id bigint, effect text, state text)
language plpgsql security definer set search_path = pg_catalog, pg_temp
set jit = off set enable_seqscan = off set enable_bitmapscan = off as $$
#variable_conflict use_column
declare
    j postrider.job;
    x bigint;
begin
    perform postrider.check_isolation();
    perform 1 from postrider.uniq u
     where u.hash = any (array(select q.unique_hash from unnest(delete.ids) i (id)
                                 join postrider.job q on q.class = (i.id & 3)::smallint and q.id = i.id))
     order by u.hash for update;
    for x in select distinct i from unnest(delete.ids) i order by i loop
        select * into j from postrider.job q where q.class = (x & 3)::smallint and q.id = x;
        if not found then
            return query select x, case when postrider.gone_since(x) is null then 'unknown' else 'gone' end, null::text;
            continue;
        end if;
        begin
            perform postrider.take_for_ever(j);
        exception when lock_not_available then
            return query select x, 'running', 'running';
            continue;
        end;
        delete from postrider.done d where d.class = j.class and d.id = x;
        update postrider.uniq u set job = nullif(u.job, x), running = nullif(u.running, x)
         where u.hash = j.unique_hash and (u.job = x or u.running = x);
        delete from postrider.uniq u where u.hash = j.unique_hash and u.job is null and u.running is null;
        if j.unique_mode = 5 then
            -- its end may not be settled yet, and after this nobody could: who comes behind it may not wait for one that is gone
            perform postrider.let_next_in(array[j.unique_hash]);
        end if;
        insert into postrider.deleted (id, created_at) values (x, j.created_at) on conflict do nothing;
        delete from postrider.attempt a where a.class = j.class and a.id = x;
        delete from postrider.tag t where t.class = j.class and t.id = x;
        delete from postrider.cancellation c where c.id = x;
        delete from postrider.job q where q.class = j.class and q.id = x;
        return query select x, 'done', null::text;
    end loop;
end $$;

-- Ends a job that waits, or locks the end of one that has ended, and with it the row of its group: then nobody else can act on it. What
-- runs, or is held by another act, is left alone with lock_not_available: nobody waits here.
create function postrider.take_for_ever(j postrider.job) returns void
language plpgsql set search_path = pg_catalog, pg_temp
set jit = off set enable_seqscan = off set enable_bitmapscan = off as $$
declare
    w postrider.waiting := postrider.take_waiting(j);
begin
    if w.id is not null then
        insert into postrider.done (class, id, state, ended_as, attempt, reason) values (j.class, j.id, 4, 5, w.attempt, 'deleted');
    else
        perform 1 from postrider.done d where d.class = j.class and d.id = j.id for update skip locked;
        if not found then
            raise lock_not_available;
        end if;
    end if;
    -- a retry may have made it the one of its group since the groups were locked, and a producer may count on it by now
    perform 1 from postrider.uniq u where u.hash = j.unique_hash and (u.job = j.id or u.running = j.id) for update nowait;
end $$;

-- Pauses a queue, or lets it go on.
create function postrider.pause(queue text, paused boolean default true) returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
    perform postrider.check_name('queue', queue, true);
    insert into postrider.queue as q (name, paused_at) values (pause.queue, case when paused then clock_timestamp() end)
    on conflict (name) do update set paused_at = case when paused then coalesce(q.paused_at, clock_timestamp()) end;
    if not paused then
        perform postrider.wake('postrider_job');
    end if;
end $$;

-- What handlers told since the last beat; what is said of attempts that have ended goes.
create function postrider.note_progress(worker uuid, progress json) returns void
language plpgsql set search_path = pg_catalog, pg_temp
set jit = off set enable_seqscan = off set enable_bitmapscan = off as $$
begin
    if json_array_length(coalesce(progress, '[]')) > 0 then
        insert into postrider.progress as p (id, lease, percent, note)
        select (t ->> 'id')::bigint, l.id, (t ->> 'percent')::smallint, left(t ->> 'note', 1000)
          from json_array_elements(progress) t
          join postrider.lease l on l.id = (t ->> 'lease')::bigint and l.worker = note_progress.worker
                                and (t ->> 'id')::bigint = any (l.open)
         order by 1
        on conflict (id) do update set lease = excluded.lease, percent = excluded.percent, note = excluded.note, at = clock_timestamp();
    end if;
    if exists (select from postrider.progress) then
        delete from postrider.progress p where p.ctid = any (array(
            select o.ctid from postrider.progress o
             where not exists (select from postrider.lease l where l.id = o.lease and o.id = any (l.open))
             limit 1000 for update skip locked));
    end if;
end $$;

-- What could not be done when it was due: groups of alike jobs that a producer held, cancellations that met the end of an attempt.
create function postrider.settle_left_over() returns void
language plpgsql set search_path = pg_catalog, pg_temp
set jit = off set enable_seqscan = off set enable_bitmapscan = off as $$
declare
    late bigint[];
    x record;
begin
    with taken as (
        delete from postrider.unsettled u where u.ctid = any (array(
            select o.ctid from postrider.unsettled o limit 1000 for update skip locked)) returning u.id
    )
    select array_agg(t.id) into late from taken t;
    if late is not null then
        perform postrider.settle_unique(late);
    end if;
    for x in
        with taken as (
            delete from postrider.cancellation c where c.ctid = any (array(
                select o.ctid from postrider.cancellation o
                 where o.requested_at < clock_timestamp() - interval '1 second'
                   and not exists (select from postrider.lease l where o.id = any (l.open))
                 limit 100 for update skip locked)) returning c.id, c.reason
        )
        select t.id, min(t.reason) as reason from taken t group by t.id order by t.id
    loop
        perform postrider.cancel_within(array[x.id], x.reason, 1);
    end loop;
end $$;
