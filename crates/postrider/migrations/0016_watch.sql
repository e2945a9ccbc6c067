-- What an operator asks: how many are where, why one has not run, what fails, what needs somebody.
-- Locks: a narrow row for each failed attempt; while failures are grouped, their rows.
-- By hand on a large table: nothing.

-- Attempts that failed and are not grouped yet. Written by a trigger: an attempt that completes costs nothing, and one that fails waits for
-- no row that others write too.
create table postrider.failed (
    class smallint not null,
    id    bigint   not null,
    lease bigint   not null
) with (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 2000);

create function postrider.note_failed() returns trigger
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
    insert into postrider.failed (class, id, lease) values (new.class, new.id, new.lease);
    return null;
end $$;
create trigger attempt_failed after insert on postrider.attempt
    for each row when (new.outcome in (2, 3, 4)) execute function postrider.note_failed();

-- Failures of a kind that say the same but for numbers and names.
create table postrider.failure (
    kind        text collate "C" not null,
    fingerprint text        not null,
    says        text        not null,
    sample      text        not null,
    n           bigint      not null,
    discarded   bigint      not null,
    first_at    timestamptz not null,
    last_at     timestamptz not null,
    last_job    bigint      not null,
    primary key (kind, fingerprint)
);

-- Jobs that were given up after a failure, by ten minutes.
create table postrider.discarded (
    at   timestamptz not null,
    kind text collate "C" not null,
    n    bigint      not null,
    primary key (at, kind)
);

-- An error without what differs from one failure to the next: ids, hashes, numbers, what stands in quotes.
create function postrider.normal_error(error text) returns text
language plpgsql immutable set search_path = pg_catalog, pg_temp as $$
declare
    says text := left(coalesce(error, ''), 1000);
begin
    says := regexp_replace(says, '"[^"]*"|`[^`]*`|''[^'']*''', '<text>', 'g');
    says := regexp_replace(says, '[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}', '<uuid>', 'g');
    says := regexp_replace(says, '\m0[xX][0-9a-fA-F]+\M', '<hex>', 'g');
    -- a word of hex digits is a hash only if it has a digit
    says := regexp_replace(says, '\m(?=[a-fA-F]*[0-9])[0-9a-fA-F]*[a-fA-F][0-9a-fA-F]*\M', '<hex>', 'g');
    says := regexp_replace(says, '[0-9]+(\.[0-9]+)*', '<n>', 'g');
    return left(trim(regexp_replace(says, '\s+', ' ', 'g')), 200);
end $$;

-- Groups up to `most` failed attempts; one at a time, the second one leaves it to the first. A kind has two hundred groups at most, and
-- one for all others. Answers with how many it took.
create function postrider.group_failures(most int) returns int
language plpgsql set search_path = pg_catalog, pg_temp
set jit = off set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off as $$
declare
    grouped int;
begin
    if not pg_try_advisory_xact_lock(7305, 6) then
        return 0;
    end if;
    with taken as (
        delete from postrider.failed f where f.ctid = any (array(select o.ctid from postrider.failed o limit most)) returning f.*
    ), told as materialized (
        select j.kind, postrider.normal_error(a.error) as says, coalesce(a.error, '') as error, a.ended_at, a.id,
               exists (select from postrider.done d where d.class = a.class and d.id = a.id and d.lease = a.lease and d.state = 3) as last
          from taken t
          join postrider.attempt a on a.class = t.class and a.id = t.id and a.lease = t.lease
          join postrider.job j on j.class = t.class and j.id = t.id
    ), marked as materialized (
        select t.*, left(encode(sha256(convert_to(t.kind || E'\n' || t.says, 'UTF8')), 'hex'), 16) as fingerprint from told t
    ), strange as materialized (
        select s.kind, s.fingerprint, row_number() over (partition by s.kind order by s.fingerprint)
               + (select count(*) from postrider.failure f where f.kind = s.kind) as rank
          from (select distinct m.kind, m.fingerprint from marked m
                 where not exists (select from postrider.failure f where f.kind = m.kind and f.fingerprint = m.fingerprint)) s
    ), fitted as (
        select m.kind, case when s.rank > 200 then 'others' else m.fingerprint end as fingerprint,
               case when s.rank > 200 then '(other errors)' else m.says end as says, m.error, m.ended_at, m.id, m.last
          from marked m left join strange s on s.kind = m.kind and s.fingerprint = m.fingerprint
    ), noted as (
        insert into postrider.failure as f (kind, fingerprint, says, sample, n, discarded, first_at, last_at, last_job)
        select x.kind, x.fingerprint, min(x.says), left((array_agg(x.error order by x.ended_at desc, x.id desc))[1], 1000), count(*),
               count(*) filter (where x.last), min(x.ended_at), max(x.ended_at), (array_agg(x.id order by x.ended_at desc, x.id desc))[1]
          from fitted x group by x.kind, x.fingerprint
        on conflict (kind, fingerprint) do update
           set n = f.n + excluded.n, discarded = f.discarded + excluded.discarded, first_at = least(f.first_at, excluded.first_at),
               last_at = greatest(f.last_at, excluded.last_at),
               sample = case when excluded.last_at >= f.last_at then excluded.sample else f.sample end,
               last_job = case when excluded.last_at >= f.last_at then excluded.last_job else f.last_job end
    ), given_up as (
        insert into postrider.discarded as d (at, kind, n)
        select date_bin('10 minutes', m.ended_at, '2000-01-01'), m.kind, count(*) from marked m where m.last group by 1, 2
        on conflict (at, kind) do update set n = d.n + excluded.n
    )
    select count(*) into grouped from taken;
    return grouped;
end $$;

-- The groups of failures, the last seen first; what failed since the last look is grouped before.
create function postrider.failures(kind text default null, most int default 100) returns setof postrider.failure
language plpgsql security definer set search_path = pg_catalog, pg_temp set lock_timeout = '500ms' as $$
begin
    if current_setting('transaction_read_only') = 'off' then
        perform postrider.group_failures(10000);
    end if;
    return query select f.* from postrider.failure f where failures.kind is null or f.kind = failures.kind
                  order by f.last_at desc, f.kind, f.fingerprint limit least(most, 1000);
end $$;

-- A moment as it stands in a sentence.
create function postrider.said(at timestamptz) returns text
language sql immutable set search_path = pg_catalog, pg_temp
return to_char(at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"');

-- Why a job has not run, in words; null if there is no such job.
create function postrider.explain(id bigint) returns text
language plpgsql stable security definer set search_path = pg_catalog, pg_temp
set jit = off set enable_seqscan = off set enable_bitmapscan = off as $$
#variable_conflict use_column
declare
    j postrider.job;
    d postrider.done;
    l postrider.lease;
    y postrider.later;
    r postrider.ready;
    p postrider.parked;
begin
    select * into j from postrider.job x where x.class = (explain.id & 3)::smallint and x.id = explain.id;
    if not found then
        return coalesce(
            (select format('An operator deleted it at %s.', postrider.said(g.deleted_at)) from postrider.deleted g where g.id = explain.id),
            'It had ended by ' || postrider.said(postrider.gone_since(explain.id)) || ', and is not kept any longer.');
    end if;
    select * into d from postrider.done x where x.class = j.class and x.id = j.id;
    if found then
        return format('It %s at %s, in attempt %s of %s%s.', case d.state when 2 then 'completed' when 3 then 'was discarded' else 'was cancelled' end,
            postrider.said(d.finished_at), d.attempt, j.max_attempts, coalesce(': ' || d.reason, ''));
    end if;
    select * into l from postrider.lease x where j.id = any (x.open) limit 1;
    if found then
        return postrider.explain_running(j, l);
    end if;
    select * into y from postrider.later x where x.run_at = j.run_at and x.id = j.id;
    if not found then
        select * into y from postrider.later x where x.id = j.id and x.why <> 0;
    end if;
    if found then
        return case y.why
            when 0 then format('It was enqueued for later: it is due at %s.', postrider.said(y.run_at))
            when 1 then format('Attempt %s of %s failed%s; the next one is due at %s.', y.attempt, j.max_attempts, coalesce(
                (select ' (' || left(a.error, 200) || ')' from postrider.attempt a
                  where a.class = j.class and a.id = j.id order by a.lease desc limit 1), ''), postrider.said(y.run_at))
            else format('Its handler put it off: it is due again at %s.', postrider.said(y.run_at)) end
            || case when y.run_at <= clock_timestamp() then ' That is over: the next beat of a worker makes it ready.' else '' end;
    end if;
    select * into p from postrider.parked x where x.id = j.id;
    if found then
        if p.key like 'kind:%' and postrider.is_held(j.kind) then
            return postrider.explain_held();
        end if;
        return postrider.explain_parked(j, p);
    end if;
    select * into r from postrider.ready x
     where x.queue = j.queue and x.priority = j.priority and x.share = coalesce(j.share, 0) and x.pos = j.id
       and x.id = j.id;
    if not found then
        select * into r from postrider.ready x where x.id = j.id and x.pos <> x.id;
    end if;
    if found then
        return postrider.explain_ready(j, r);
    end if;
    return 'It is on its way from one place to another: look again.';
end $$;

create function postrider.explain_running(j postrider.job, l postrider.lease) returns text
language sql stable set search_path = pg_catalog, pg_temp
return format('It runs since %s: attempt %s of %s, under lease %s of worker %s%s%s%s.', postrider.said(l.claimed_at),
    l.attempts[array_position(l.ids, j.id)], j.max_attempts, l.id, l.worker,
    coalesce((select format(' (%s on %s, process %s)', w.app, w.host, w.pid) from postrider.worker w where w.id = l.worker),
        ', which is gone: another worker puts it back'),
    (select format('; %s %% done at %s%s', g.percent, postrider.said(g.at), coalesce(': ' || nullif(g.note, ''), ''))
       from postrider.progress g where g.id = j.id and g.lease = l.id),
    case when exists (select from postrider.cancellation c where c.id = j.id) then '; it is to be cancelled' end)
    || coalesce((select format(' It comes after job %s, which has the turn of its order key %L: its worker runs them one after the other.',
                               x.holder, j.order_key)
                   from postrider.lane x where x.queue = j.queue and x.key = 'order:' || j.order_key and j.id = any (x.line)), '');

-- Waits for something that is not time. Whoever parks jobs under another key says here what they wait for.
create function postrider.explain_parked(j postrider.job, p postrider.parked) returns text
language sql stable set search_path = pg_catalog, pg_temp
return case
    when p.key like 'kind:%' then format('No live worker of queue %s knows its kind %s: it waits until one does, and spends no attempt.', p.queue, j.kind)
    when p.key = 'strict:' then format('Its worker died %s times while it ran: it waits until it can run alone in queue %s.', p.losses, p.queue)
    when p.key like 'unique:%' then (
        select coalesce(min(format('Job %s, which is like it, runs: it comes after that one.', u.running)),
                        'A job like it ran: the next beat of a worker makes it ready.')
          from postrider.uniq u where u.hash = j.unique_hash and u.running is not null)
    when p.key like 'order:%' then coalesce(
        (select case when l.stopped_at is not null
                     then format('Its order key %L stopped at %s (%s): it waits until an operator lets that go on.', j.order_key,
                                 postrider.said(l.stopped_at), l.reason)
                     when l.holder is not null then format('Job %s has the turn of its order key %L: it comes after that one.', l.holder, j.order_key) end
           from postrider.lane l where l.queue = p.queue and l.key = p.key),
        format('Its order key %L is free: the next beat of a worker gives the turn to the oldest job that waits for it.', j.order_key))
    when p.key like 'limit:%' then coalesce(
        (select format('Its limit key %L is held until %s%s.', j.limit_key, postrider.said(c.held_until), coalesce(': ' || nullif(c.reason, ''), ''))
           from postrider.key_limit c
          where c.queue = p.queue and c.key in (j.limit_key, '') and c.held_until > clock_timestamp() order by c.key desc limit 1),
        format('Its limit key %L has no room: it waits until one of that key ends, or until more may start.', j.limit_key))
    else format('It waits in queue %s for %s.', p.queue, p.key) end;

-- Due, and not claimed.
create function postrider.explain_ready(j postrider.job, r postrider.ready) returns text
language plpgsql stable set search_path = pg_catalog, pg_temp
set jit = off set enable_seqscan = off set enable_bitmapscan = off as $$
declare
    paused timestamptz := (select q.paused_at from postrider.queue q where q.name = r.queue);
    ahead bigint := (select u.running from postrider.uniq u where u.hash = j.unique_hash and u.mode = 5 and u.running <> j.id);
    before bigint;
    others bigint;
    workers bigint;
    running bigint;
begin
    if paused is not null then
        return format('Queue %s is paused since %s.', r.queue, postrider.said(paused));
    elsif not exists (select from postrider.worker w where r.queue = any (w.queues)) then
        return format('No live worker works on queue %s.', r.queue);
    elsif not exists (select from postrider.worker w where r.queue = any (w.queues) and j.kind = any (w.kinds)) then
        return format('No live worker of queue %s knows its kind %s: it waits until one does, and spends no attempt.', r.queue, j.kind);
    elsif r.flags & 16 <> 0 and ahead is not null then
        return format('Job %s, which is like it, runs: it comes after that one.', ahead);
    end if;
    -- the shares of its priority are served in turn: what waits in another one is not before it
    select count(*) into before from (
        select from (select from postrider.ready x where x.queue = r.queue and x.priority < r.priority limit 10000) p
        union all
        select from (select from postrider.ready x where x.queue = r.queue and x.priority = r.priority and x.share = r.share and x.pos < r.pos
                      limit 10000) s limit 10000) b;
    select count(*) into others from generate_series(0, 63) s (share)
     where s.share <> r.share
       and (select true from postrider.ready x where x.queue = r.queue and x.priority = r.priority and x.share = s.share limit 1);
    select count(*) into workers from postrider.worker w where r.queue = any (w.queues);
    select coalesce(sum(cardinality(l.open)), 0) into running from postrider.lease l where l.queue = r.queue;
    return format('It is due. %s before it in %squeue %s%s, where %s run on %s: it starts when a slot is free and its turn has come.',
        case before when 0 then 'None is' when 10000 then '10000 or more are' else before || ' are' end,
        case when others > 0 then 'its share of ' else '' end, r.queue,
        case when others > 0 then format(', which takes turns with %s other%s', others, case when others > 1 then 's' end) end, running,
        case workers when 1 then 'one worker' else workers || ' workers' end);
end $$;

-- How many jobs are where, by kind, queue and state, as of some seconds ago. `more`: counting stopped at a bound, there are so many at least.
create table postrider.tally (
    kind  text collate "C" not null,
    queue text    not null,
    state text    not null,
    n     bigint  not null,
    more  boolean not null,
    at    timestamptz not null default clock_timestamp(),
    primary key (kind, queue, state)
);

-- Counts up to `most` jobs in each place where jobs wait or run, and of each class that many of the newest that have ended.
create function postrider.count_jobs(most int) returns table (kind text, queue text, state text, n bigint, more boolean)
language plpgsql stable set search_path = pg_catalog, pg_temp
set jit = off set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off
set enable_mergejoin = off as $$
#variable_conflict use_column
begin
    return query
    with recursive queues as (
        (select r.queue from postrider.ready r order by r.queue limit 1)
        union all
        select (select r.queue from postrider.ready r where r.queue > q.queue order by r.queue limit 1) from queues q where q.queue is not null
    ), seen as materialized (
        select r.id, r.attempt, 'ready' || q.queue as place
          from queues q cross join lateral (
            select x.id, x.attempt from postrider.ready x where x.queue = q.queue order by x.priority, x.share, x.pos limit most) r
         where q.queue is not null
        union all
        (select y.id, y.attempt, 'later' from postrider.later y order by y.run_at, y.id limit most)
        union all
        (select p.id, p.attempt, 'parked' from postrider.parked p order by p.queue, p.key, p.pos limit most)
    ), runs as materialized (
        select o.id from postrider.lease l cross join lateral unnest(l.open) o (id) limit most
    ), ended as materialized (
        select d.id, d.state, d.class
          from (values (1::smallint), (2::smallint), (3::smallint)) c (class)
         cross join lateral (
            select x.id, x.state, x.class from postrider.done x where x.class = c.class order by x.id desc limit most) d
    ), told as (
        select s.id, case when s.attempt > 0 then 'retryable' else 'pending' end as state, count(*) over (partition by s.place) >= most as more
          from seen s
        union all
        select r.id, 'running', count(*) over () >= most from runs r
        union all
        select e.id, postrider.end_name(e.state), count(*) over (partition by e.class) >= most from ended e
    )
    select j.kind, j.queue, t.state, count(*), bool_or(t.more)
      from told t join postrider.job j on j.class = (t.id & 3)::smallint and j.id = t.id
     group by 1, 2, 3
    union all
    -- a kind is there before anything of it is
    select k.name, k.queue, 'pending', 0, false from postrider.kind k;
end $$;

-- The same for everybody who looks: counted at most every ten seconds, by whoever comes first. Every declared kind is there.
create function postrider.overview() returns setof postrider.tally
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
    if current_setting('transaction_read_only') = 'off'
       and not exists (select from postrider.tally t where t.at > clock_timestamp() - interval '10 seconds')
       and pg_try_advisory_xact_lock(7305, 7)
    then
        delete from postrider.tally;
        insert into postrider.tally (kind, queue, state, n, more)
        select c.kind, c.queue, c.state, sum(c.n), bool_or(c.more) from postrider.count_jobs(10000) c group by 1, 2, 3;
    end if;
    return query select t.* from postrider.tally t order by t.kind, t.queue, t.state;
end $$;

-- The head of each line of a queue, and since when it has been due: a later attempt is due at the earliest when the one before it ended.
create function postrider.heads() returns table (queue text, id bigint, due_at timestamptz)
language plpgsql stable set search_path = pg_catalog, pg_temp
set jit = off set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off
set enable_mergejoin = off as $$
#variable_conflict use_column
begin
    return query
    with recursive line as (
        (select r.queue, r.priority, r.share, r.id, r.again_at from postrider.ready r order by r.queue, r.priority, r.share, r.pos limit 1)
        union all
        select n.queue, n.priority, n.share, n.id, n.again_at
          from line l cross join lateral (
            select r.queue, r.priority, r.share, r.id, r.again_at from postrider.ready r
             where (r.queue, r.priority, r.share) > (l.queue, l.priority, l.share)
             order by r.queue, r.priority, r.share, r.pos limit 1) n
    )
    select l.queue, l.id, greatest(coalesce(l.again_at, j.run_at, j.created_at), (
               select max(a.ended_at) from postrider.attempt a where a.class = j.class and a.id = j.id))
      from line l join postrider.job j on j.class = (l.id & 3)::smallint and j.id = l.id;
end $$;

create type postrider.alert as (name text, severity text, subject text, since timestamptz, says text, remedy text);

-- What needs somebody, the gravest first.
create function postrider.alerts() returns setof postrider.alert
language plpgsql security definer set search_path = pg_catalog, pg_temp set jit = off as $$
begin
    if current_setting('transaction_read_only') = 'off' then
        perform postrider.group_failures(10000);
    end if;
    return query
    select a.* from (
        select x.* from postrider.alerts_of_jobs() x
        union all
        select x.* from postrider.alerts_of_keeping() x
        union all
        select x.* from postrider.alerts_of_relay() x
        union all
        select x.* from postrider.alerts_of_components() x
        union all
        select x.* from postrider.alerts_of_server(interval '10 minutes') x) a
     order by a.severity, a.name, a.subject;
end $$;

create function postrider.alerts_of_jobs() returns setof postrider.alert
language plpgsql stable set search_path = pg_catalog, pg_temp
set jit = off set enable_seqscan = off set enable_bitmapscan = off as $$
declare
    now timestamptz := clock_timestamp();
begin
    return query
    select 'oldest_due', case when min(h.due_at) < now - interval '1 hour' then 'critical' else 'warning' end, 'queue ' || h.queue,
           min(h.due_at), format('a job of queue %s has been due since %s and was not claimed', h.queue, postrider.said(min(h.due_at))),
           'ask postrider.explain(id) of job ' || (array_agg(h.id order by h.due_at))[1] || '; start more workers, or give the queue more slots'
      from postrider.heads() h
     where not exists (select from postrider.queue q where q.name = h.queue and q.paused_at is not null)
     group by h.queue having min(h.due_at) < now - interval '5 minutes';
    return query
    select 'backlog', 'warning', 'queue ' || q.queue, null::timestamptz, format('10000 or more jobs of queue %s are due', q.queue),
           'start more workers, or give the queue more slots'
      from (select distinct h.queue from postrider.heads() h) q
     where (select count(*) from (select from postrider.ready r where r.queue = q.queue limit 10000) r) >= 10000;
    return query
    select 'suspects', 'warning', 'queue ' || p.queue, null::timestamptz,
           format('%s jobs of queue %s may have killed their workers, and wait to run alone', count(*), p.queue),
           'look at their last attempts; cancel what kills its worker'
      from (select x.queue from postrider.parked x
             where x.key = 'strict:' and x.key not like 'order:%' and x.key not like 'limit:%' limit 10000) p group by p.queue;
    return query
    select 'unknown_kind', 'warning', substr(p.key, 6), null::timestamptz,
           format('%s jobs of kind %s wait for a worker that knows it', count(*), substr(p.key, 6)),
           'start a worker with a handler for this kind, or cancel its jobs'
      from (select x.key from postrider.parked x
             where x.key >= 'kind:' and x.key < 'kind;' and x.key not like 'order:%' and x.key not like 'limit:%' limit 10000) p group by p.key;
    return query
    select 'discarded', case when sum(d.n) >= 100 then 'critical' else 'warning' end, 'kind ' || d.kind, min(d.at),
           format('%s jobs of kind %s were discarded in the last hour', sum(d.n), d.kind),
           'see postrider.failures(); retry them when the cause is gone'
      from postrider.discarded d where d.at > now - interval '70 minutes' group by d.kind;
end $$;

create function postrider.alerts_of_keeping() returns setof postrider.alert
language plpgsql stable set search_path = pg_catalog, pg_temp
set jit = off set enable_seqscan = off set enable_bitmapscan = off as $$
declare
    now timestamptz := clock_timestamp();
begin
    return query
    select 'pinned', 'warning', case p.class when 0 then 'events' else (array['short', 'standard', 'long'])[p.class] || ' jobs' end
               || ' of epoch ' || p.first, p.since,
           format('a partition that is old enough cannot be dropped: it is pinned by %s%s', p.by,
               case when p.kind is not null then format(', most of kind %s; %s were seen', p.kind, p.n) else '' end),
           'end or cancel them, or wait: it goes with the last of them'
      from postrider.pinned p where p.since < now - interval '1 hour';
    return query
    select 'duty_fails', case when d.failing_since < now - interval '1 day' then 'critical' else 'warning' end, d.name, d.failing_since,
           format('the duty %s fails: %s', d.name, d.error), 'the error says why'
      from postrider.duty d where d.failing_since is not null;
    return query
    select 'housekeeping', 'warning', 'housekeeping', max(d.done_at), 'no process has kept house for an hour',
           'start one process with housekeeping switched on'
      from postrider.duty d where d.name = 'usual' having max(d.done_at) < now - interval '1 hour';
    return query
    select 'epoch', 'critical', e.unit, e.started_at, format('the epoch of %ss is older than it should be: its partition grows', e.unit),
           'see the duty usual in postrider.duty'
      from postrider.epoch e
     where e.epoch = pg_sequence_last_value(case e.unit when 'event' then 'postrider.event_epoch' else 'postrider.job_epoch' end::regclass)
       and e.started_at < now - case e.unit when 'event' then interval '14 days' else interval '2 days' end;
    return query
    select 'relay', 'warning', 'relay', min(v.recorded_at), format('events wait for the relay since %s', postrider.said(min(v.recorded_at))),
           'start a process with the relay switched on, or look at its log'
      from (select * from postrider.cut order by no desc limit 1) c
     cross join lateral (select x.recorded_at, x.xid from postrider.event x where x.xid >= pg_snapshot_xmax(c.hi) order by x.xid, x.seq limit 1) v
    having min(v.recorded_at) < now - interval '1 minute';
    return query
    select 'clock', 'critical', 'clock of the server', null::timestamptz, format('the clock of the server went back: something happened at %s',
           postrider.said(max(t.at))), 'set the clock right; jobs that are due may come late until then'
      from (select c.at from (select * from postrider.cut order by no desc limit 1) c union all select w.beat_at from postrider.worker w) t
    having max(t.at) > now + interval '2 seconds';
    return query
    select 'silent_worker', 'warning', w.id::text, w.beat_at, format('worker %s (%s on %s) is silent, and nobody has put back what it ran', w.id, w.app, w.host),
           'another worker puts its jobs back: start one'
      from postrider.worker w where w.beat_at < now - interval '2 minutes';
end $$;

-- long: how old a transaction may be before it is told of.
create function postrider.alerts_of_server(long interval) returns setof postrider.alert
language plpgsql stable set search_path = pg_catalog, pg_temp set jit = off as $$
declare
    now timestamptz := clock_timestamp();
    used float8 := pg_notification_queue_usage();
begin
    if used >= 0.25 then
        return query select 'notify_queue', case when used >= 0.5 then 'critical' else 'warning' end, 'server', null::timestamptz,
            format('the notification queue of the server is %s %% full', round(used * 100)),
            'a session that listens stands still in a transaction: end it';
    end if;
    return query
    select 'long_transaction', case when s.xact_start < now - interval '1 hour' then 'critical' else 'warning' end,
           format('process %s', s.pid), s.xact_start, format('a transaction is open since %s (%s, %s): nothing that was removed since can be '
           'cleared away', postrider.said(s.xact_start), coalesce(nullif(s.application_name, ''), 'no name'), s.state), 'end it'
      from pg_stat_activity s
     where s.datname = current_database() and (s.backend_xmin is not null or s.backend_xid is not null)
       and s.backend_type = 'client backend' and s.xact_start < now - alerts_of_server.long and s.pid <> pg_backend_pid();
    return query
    select 'prepared_transaction', 'critical', x.gid, x.prepared, format('a prepared transaction waits since %s', postrider.said(x.prepared)),
           'commit it or roll it back'
      from pg_prepared_xacts x where x.database = current_database() and x.prepared < now - alerts_of_server.long;
    return query
    select 'replication_slot', 'warning', s.slot_name::text, null::timestamptz, format('replication slot %s is not in use and holds %s transactions back',
           s.slot_name, greatest(age(s.xmin), age(s.catalog_xmin))), 'drop the slot if nothing will come back for it'
      from pg_replication_slots s where not s.active and (s.xmin is not null or s.catalog_xmin is not null);
end $$;
