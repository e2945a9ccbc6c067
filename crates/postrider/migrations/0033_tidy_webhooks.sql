-- What endpoints need of housekeeping, and what an operator is told of them.
-- Locks: rows of what is over, skipping what others hold; jobs that are cancelled, as postrider.cancel does.
-- By hand on a large table: nothing.
--
-- Attempts leave with the partitions of their jobs, see postrider.retire.

create index endpoint_window_over on postrider.endpoint_window (slot);
create index endpoint_secret_over on postrider.endpoint_secret (valid_until) where valid_until is not null;
create index endpoint_disabled on postrider.endpoint (id) where disabled_at is not null and deleted_at is null;

-- Jobs that were given up. Of most deliveries among them the attempt has told; not of those that were lost with their worker, or put off until they
-- were too old, or whose last attempt could not be written.
create index given_up on postrider.done (finished_at, id) where state = 3;

-- Which of them were looked at, those of the last minutes before the latest: what ended before it may be seen after it.
create table postrider.end_seen (
    finished_at timestamptz not null,
    id          bigint      not null,
    primary key (finished_at, id)
);

-- Tells of deliveries that were given up and not told of, once each, and writes to their last attempt why its outcome stays open. Looks at so
-- many at most; answers with how many.
create function postrider.tell_exhausted(most int) returns int
language plpgsql set search_path = pg_catalog, pg_temp
set jit = off set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off
set enable_mergejoin = off as $$
declare
    latest timestamptz := (select s.finished_at from postrider.end_seen s order by s.finished_at desc limit 1);
    -- who ends a job commits at once
    since timestamptz := coalesce(latest - interval '10 minutes', '-infinity');
    ends postrider.done[];
    x record;
begin
    delete from postrider.end_seen s where s.finished_at < since;
    ends := array(
        select d from postrider.done d
         where d.class = 2 and d.state = 3 and d.finished_at >= since
           and not exists (select from postrider.end_seen s where s.finished_at = d.finished_at and s.id = d.id)
         order by d.finished_at, d.id limit most);
    insert into postrider.end_seen (finished_at, id) select u.finished_at, u.id from unnest(ends) u;
    for x in
        select d.class, d.id, d.lease, d.attempt, d.reason, e.id as endpoint, v.id as event, v.type, a.outcome
          from unnest(ends) d
          join postrider.job j on j.class = d.class and j.id = d.id and j.kind = 'webhook.deliver'
          join postrider.event v on v.seq = j.event_seq
         cross join lateral (
                select y.* from postrider.endpoint y where y.subscription = j.subscription
                union all
                select y.* from postrider.endpoint y where j.subscription is null and y.id = (j.args ->> 'endpoint')::bigint) e
          left join postrider.delivery_attempt a on a.class = d.class and a.id = d.id and a.lease = d.lease
         where e.deleted_at is null and a.trigger is distinct from 'test' and v.type not like 'postrider.%'
           -- what was taken was not given up, and of some the attempt has told
           and (a.outcome in ('delivered', 'discarded')
                or a.outcome = 'failed' and a.attempt >= least(e.max_attempts, j.max_attempts)) is not true
         order by d.finished_at, d.id
    loop
        update postrider.delivery_attempt a
           set reason = left(x.reason, 900) || ': whether the request was taken is not known'
         where a.class = x.class and a.id = x.id and a.lease = x.lease and a.outcome is null;
        perform postrider.tell_endpoint('postrider.delivery.exhausted', x.endpoint, json_build_object('endpoint', x.endpoint,
            'delivery', x.id::text, 'event', x.event, 'type', x.type, 'attempts', x.attempt, 'reason', left(x.reason, 1000)));
    end loop;
    return cardinality(ends);
end $$;

-- Lets lanes go on that stopped for endpoints that are deleted, so many at most: whoever waits there ends when its turn comes.
create function postrider.release_deleted(most int) returns void
language plpgsql set search_path = pg_catalog, pg_temp
set jit = off set enable_seqscan = off set enable_bitmapscan = off as $$
declare
    x record;
begin
    for x in
        select substr(l.key, 7) as order_key from postrider.lane l
          join postrider.endpoint e on e.id = substring(l.key from '^order:webhook\.endpoint-([0-9]{1,18}):')::bigint
         where l.queue = 'webhook' and l.stopped_at is not null and e.deleted_at is not null limit most
    loop
        perform postrider.act_on_lane('webhook', x.order_key, 'release');
    end loop;
end $$;

-- The endpoints that were deleted and for which something may wait for its time still.
alter table postrider.endpoint add column cleared_at timestamptz;
create index endpoint_uncleared on postrider.endpoint (id) where deleted_at is not null and cleared_at is null;

-- Ends what waits for its time for endpoints that are deleted, so many deliveries at most: a retry would wait for hours to end so. What was under way when
-- its endpoint was deleted may fail and wait afterwards: an endpoint is looked at for longer than an attempt takes.
create function postrider.clear_deleted(most int) returns void
language plpgsql set search_path = pg_catalog, pg_temp
set jit = off set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off
set enable_mergejoin = off as $$
declare
    x record;
    waiting bigint[];
begin
    for x in
        -- who waits was tried within the longest wait that there is
        select e.id, e.deleted_at, e.deleted_at - greatest(interval '11 hours', (select max(s) from unnest(e.steps_ms) s) * interval '1.2 milliseconds') as tried_since
          from postrider.endpoint e where e.deleted_at is not null and e.cleared_at is null order by e.id limit 100 for no key update skip locked
    loop
        waiting := array(
            select distinct a.id from postrider.delivery_attempt a
             where a.endpoint = x.id and a.started_at >= x.tried_since
               and (select true from postrider.later y where y.id = a.id and y.why <> 0 limit 1) limit most);
        if waiting <> '{}' then
            perform postrider.cancel_within(waiting, 'the endpoint was deleted', 1);
            most := most - cardinality(waiting);
            exit when most <= 0;
        elsif x.deleted_at < clock_timestamp() - interval '5 minutes' then
            update postrider.endpoint e set cleared_at = clock_timestamp() where e.id = x.id;
        end if;
    end loop;
end $$;

-- Forgets secrets that ended and attempts that no rule counts any more; ends deliveries that were held for as long as events are kept, a thousand
-- at a time, and those that wait for endpoints that are deleted; tells of those that were given up and not told of; and has replays go on that nobody drives.
create or replace function postrider.duties_of_components() returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    now timestamptz := clock_timestamp();
    kept interval := (select r.keep from postrider.retention r where r.what = 'event');
    old bigint[];
    x record;
begin
    delete from postrider.endpoint_secret s where s.ctid = any (array(
        select o.ctid from postrider.endpoint_secret o where o.valid_until < now for update skip locked));
    delete from postrider.endpoint_window w where w.ctid = any (array(
        select o.ctid from postrider.endpoint_window o where o.slot < now - interval '2 hours' limit 10000 for update skip locked));
    -- the oldest of each come first: ids grow
    select array_agg(h.id) into old
      from (select p.id from postrider.endpoint e
             cross join lateral (
                select y.id from postrider.parked y
                 where y.queue = 'webhook' and y.key = 'limit:' || postrider.endpoint_key(e.id) order by y.pos limit 1000) p
              join postrider.job j on j.class = (p.id & 3)::smallint and j.id = p.id
             where e.disabled_at is not null and e.deleted_at is null and j.created_at < now - kept limit 1000) h;
    if old is not null then
        perform postrider.cancel_within(old, 'its endpoint was disabled for as long as events are kept', 1);
    end if;
    perform postrider.release_deleted(1000);
    perform postrider.clear_deleted(5000);
    for pass in 1..10 loop
        exit when postrider.tell_exhausted(1000) < 1000;
    end loop;
    for x in select r.id from postrider.delivery_replay r
              where r.state = 'running' and coalesce(r.stepped_at, r.created_at) < now - interval '5 minutes'
                and exists (select from postrider.kind k where k.name = 'webhook.replay') for update skip locked
    loop
        perform postrider.drive_replay(x.id);
    end loop;
end $$;

-- Endpoints that need somebody.
create or replace function postrider.alerts_of_components() returns setof postrider.alert
language plpgsql stable set search_path = pg_catalog, pg_temp
set jit = off as $$
begin
    return query
    select 'endpoint_disabled', 'critical', 'endpoint ' || e.id, e.disabled_at,
           format('endpoint %s (%s) is disabled: %s; what is to be delivered to it is held', e.id, e.name, left(e.disabled_reason, 300)),
           'enable it when its owner has put it right: what was held is sent then'
      from postrider.endpoint e where e.disabled_at is not null and e.deleted_at is null order by e.id limit 100;
    return query
    select 'endpoint_failing', 'warning', 'endpoint ' || e.id, h.failing_since,
           format('most attempts of endpoint %s (%s) fail: its deliveries wait behind one probe at a time', e.id, e.name),
           'see its last attempts, and send it a test'
      from postrider.endpoint_health h join postrider.endpoint e on e.id = h.endpoint
     where h.failing_since is not null and e.disabled_at is null order by e.id limit 100;
    return query
    select 'endpoint_silent', 'warning', 'endpoint ' || e.id, h.silent_since,
           format('endpoint %s (%s) took nothing since %s: %s attempts failed; after five days it is disabled', e.id, e.name,
                  postrider.said(h.silent_since), h.failed), 'see its last attempts, and send it a test'
      from postrider.endpoint_health h join postrider.endpoint e on e.id = h.endpoint
     where h.warned >= 50 and e.disabled_at is null order by e.id limit 100;
    return query
    select 'scope_function_fails', 'critical', format('function %I.%I', f.schema, f.name), f.failed_at,
           format('the scope function %I.%I failed to say of %s deliveries whether they may be sent, last with %s: they are given up', f.schema, f.name,
                  f.failures, split_part(f.error, ':', 1)), 'put it right, and redeliver what was discarded'
      from postrider.scope_function f where f.failed_at > clock_timestamp() - interval '1 hour';
end $$;

-- Numbers about endpoints for whoever gathers them: how many there are in each state, how many deliveries are held (counted up to 10 000), what
-- attempts of the last hour came to, and of how many deliveries a scope function failed to say whether they may be sent.
create function postrider.webhook_figures() returns table (name text, unit text, attribute text, value bigint)
language sql stable security definer set search_path = pg_catalog, pg_temp
as $$
    select 'postrider.webhook.endpoints', '{endpoint}', s.state, count(e.id)
      from (values ('enabled'), ('failing'), ('disabled')) s (state)
      left join (
        select x.id, case when x.disabled_at is not null then 'disabled' when h.failing_since is not null then 'failing' else 'enabled' end as state
          from postrider.endpoint x join postrider.endpoint_health h on h.endpoint = x.id where x.deleted_at is null) e on e.state = s.state
     group by s.state
    union all
    select 'postrider.webhook.held', '{delivery}', '', count(*)
      from (select from postrider.endpoint e
             join postrider.parked p on p.queue = 'webhook' and p.key = 'limit:' || postrider.endpoint_key(e.id)
            where e.disabled_at is not null and e.deleted_at is null limit 10000) h
    union all
    select 'postrider.webhook.attempts', '{attempt}', v.outcome, v.n
      from (select coalesce(sum(w.delivered), 0)::bigint as delivered, coalesce(sum(w.failed), 0)::bigint as failed
              from postrider.endpoint_window w where w.slot > clock_timestamp() - interval '1 hour') t
     cross join lateral (values ('delivered', t.delivered), ('failed', t.failed)) v (outcome, n)
    union all
    select 'postrider.webhook.scope_failures', '{delivery}', '', f.failures from postrider.scope_function f
     order by 1, 3
$$;
