-- How endpoints do: what fails most of the time cools down behind one probe at a time, what never succeeds is disabled, and what is enabled
-- makes up for what was held. Each change of it is told as an event.
-- Locks: the row of endpoint_health first, then other rows of the endpoint.
-- By hand on a large table: nothing.
--
-- The rules. After five failures since the last success one delivery at a time is sent. An endpoint is failing when at least half of at least 20 attempts in an hour failed. From then on
-- nothing is sent for five minutes after each failure; it is not failing any more when less than a quarter of the attempts of the hour failed. It is
-- warned at 50, 75 and 90 percent, and at 100 disabled, of both: five days without any success, and twelve attempts that failed since the last one.

-- Declares what Postrider tells of endpoints, once there is one. Whoever wants it names it: a pattern such as ** does not reach it.
create function postrider.declare_endpoint_types() returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    if exists (select from postrider.event_type t where t.name = 'postrider.endpoint.test') then
        return;
    end if;
    perform postrider.lock_declarations();
    insert into postrider.event_type (name, description, exposure, declared_by)
    values ('postrider.endpoint.failing', 'most attempts of an endpoint fail: it cools down', 'public', 'webhook'),
           ('postrider.endpoint.warned', 'an endpoint has not taken anything for long, and will be disabled', 'public', 'webhook'),
           ('postrider.endpoint.disabled', 'an endpoint was disabled: its deliveries are held', 'public', 'webhook'),
           ('postrider.endpoint.enabled', 'an endpoint was enabled', 'public', 'webhook'),
           ('postrider.delivery.exhausted', 'a delivery was given up', 'public', 'webhook'),
           ('postrider.endpoint.test', 'a test that an endpoint''s owner asked for', 'internal', 'webhook')
    on conflict (name) do nothing;
    perform postrider.compile_routes('{}', array(select t.name from postrider.event_type t where t.declared_by = 'webhook'));
end $$;

-- Records an event of Postrider's own, whose type nobody else may record; about an endpoint, and its owner's.
create function postrider.tell_endpoint(type text, id bigint, says json) returns uuid
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    at timestamptz := clock_timestamp();
    whose text := (select e.owner from postrider.endpoint e where e.id = tell_endpoint.id);
    new_seq bigint;
    new_id uuid;
    tx xid8 := pg_current_xact_id();
begin
    -- after the transaction has its number, see postrider.event
    new_seq := (pg_sequence_last_value('postrider.event_epoch'::regclass) << 46) | nextval('postrider.event_number'::regclass);
    new_id := postrider.event_id(at, new_seq);
    insert into postrider.event (xid, seq, id, recorded_at, occurred_at, type, owner, subject, data)
    values (tx, new_seq, new_id, at, at, tell_endpoint.type, whose, 'endpoint/' || tell_endpoint.id, says);
    perform postrider.wake('postrider_event');
    return new_id;
end $$;

-- Sends nothing to an endpoint until then, unless it waits longer already.
create function postrider.cool_endpoint(id bigint, until timestamptz, reason text) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    if not exists (select from postrider.key_limit l where l.queue = 'webhook' and l.key = postrider.endpoint_key(cool_endpoint.id)
                      and l.held_until >= cool_endpoint.until) then
        perform postrider.hold('webhook', postrider.endpoint_key(cool_endpoint.id), cool_endpoint.until, cool_endpoint.reason);
    end if;
end $$;

-- The pace at which an endpoint makes up for what waits, one start in so many milliseconds: twice the rate of its best five minutes of the last
-- hour, if it took enough of it to tell, else one in a second.
create function postrider.endpoint_pace(id bigint) returns bigint
language sql stable set search_path = pg_catalog, pg_temp
return (select case when sum(w.delivered) >= 10 then least(10000, greatest(10, 150000 / max(w.delivered))) else 1000 end
          from postrider.endpoint_window w
         where w.endpoint = endpoint_pace.id and w.slot > clock_timestamp() - interval '1 hour');

-- The last attempts of an endpoint, newest first.
create function postrider.endpoint_evidence(id bigint) returns json
language sql stable set search_path = pg_catalog, pg_temp
return (select coalesce(json_agg(json_build_object('delivery', a.id::text, 'at', a.ended_at, 'status', a.status, 'failure', a.failure,
                                                   'reason', left(a.reason, 300)) order by a.started_at desc), '[]')
          from (select * from postrider.delivery_attempt x
                 where x.endpoint = endpoint_evidence.id and x.outcome is not null and x.trigger <> 'test'
                 order by x.started_at desc limit 5) a);

-- Disables an endpoint: what is to be delivered to it is held from now on; what runs goes on. The first reason stays. False if there is nothing to
-- disable.
create function postrider.disable_endpoint(id bigint, reason text) returns boolean
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    evidence json := postrider.endpoint_evidence(id);
begin
    if coalesce(reason, '') = '' then
        perform postrider.refuse('PR005', 'reason', 'there is none', 'say why: whoever wonders later reads it');
    elsif not postrider.lock_endpoint(id) then
        return false;
    end if;
    update postrider.endpoint e
       set disabled_at = clock_timestamp(), disabled_reason = left(disable_endpoint.reason, 1000), disabled_evidence = evidence
     where e.id = disable_endpoint.id and e.disabled_at is null;
    if not found then
        return false;
    end if;
    update postrider.endpoint_health h set pace_ms = coalesce(h.pace_ms, postrider.endpoint_pace(h.endpoint)) where h.endpoint = disable_endpoint.id;
    -- not infinity: it is told in microseconds
    perform postrider.hold('webhook', postrider.endpoint_key(id), '9999-01-01Z', 'the endpoint is disabled: ' || left(reason, 900));
    perform postrider.tell_endpoint('postrider.endpoint.disabled', id,
        json_build_object('endpoint', id, 'reason', left(reason, 1000), 'attempts', evidence));
    return true;
end $$;

-- Enables an endpoint again: its marks are taken away, and what was held goes out, one delivery at a time until one succeeds, then paced. False if
-- there is nothing to enable.
create function postrider.enable_endpoint(id bigint) returns boolean
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
    if not postrider.lock_endpoint(id) then
        return false;
    end if;
    update postrider.endpoint e
       set disabled_at = null, disabled_reason = null, disabled_evidence = null, enabled_at = clock_timestamp()
     where e.id = enable_endpoint.id and e.disabled_at is not null;
    if not found then
        return false;
    end if;
    update postrider.endpoint_health h
       set failing_since = null, silent_since = null, failed = 0, warned = 0, in_flight = 1
     where h.endpoint = enable_endpoint.id;
    delete from postrider.endpoint_window w where w.endpoint = enable_endpoint.id;
    perform postrider.apply_endpoint_limit(id);
    perform postrider.hold('webhook', postrider.endpoint_key(id), null);
    perform postrider.tell_endpoint('postrider.endpoint.enabled', id, json_build_object('endpoint', id));
    return true;
end $$;

-- Takes an endpoint at its operator's word that it is well: all marks are taken away, also that it asked to wait, and what waits for it goes out as
-- fast as it may. False if it is not there, or disabled.
create function postrider.resume_endpoint(id bigint) returns boolean
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
    if not postrider.lock_endpoint(id)
       or not exists (select from postrider.endpoint e where e.id = resume_endpoint.id and e.disabled_at is null) then
        return false;
    end if;
    update postrider.endpoint_health h
       set failing_since = null, silent_since = null, failed = 0, warned = 0, in_flight = null, pace_ms = null
     where h.endpoint = resume_endpoint.id;
    delete from postrider.endpoint_window w where w.endpoint = resume_endpoint.id;
    perform postrider.apply_endpoint_limit(id);
    perform postrider.hold('webhook', postrider.endpoint_key(id), null);
    return true;
end $$;

-- Finishes attempts as they are told, each once, and notes what follows for their endpoints. asked_ms: the endpoint asked to be left alone for so
-- long. gone: it said that it is not there any more. given_up: the delivery was its last attempt. Answers by the number of each: ended; none, if
-- no such attempt is open; busy, if its endpoint is in somebody's hands: nothing was done then, so that the others need not wait.
create function postrider.finish_attempts(told json) returns table (n text, became text)
language plpgsql security definer set search_path = pg_catalog, pg_temp set lock_timeout = '50ms'
set jit = off set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off
set enable_mergejoin = off as $$
#variable_conflict use_column
declare
    -- one look for each: joined, all that ever was attempted might be walked
    theirs bigint[] := array(
        select coalesce((select d.endpoint from postrider.delivery_attempt d
                          where d.class = ((t.one ->> 'id')::bigint & 3)::smallint and d.id = (t.one ->> 'id')::bigint
                            and d.lease = (t.one ->> 'lease')::bigint), 0)
          from json_array_elements(told) with ordinality t (one, o) order by t.o);
    locked bigint[];
    busy bigint[];
    x record;
begin
    locked := array(select h.endpoint from postrider.endpoint_health h where h.endpoint = any (theirs) order by h.endpoint for no key update skip locked);
    busy := array(select h.endpoint from postrider.endpoint_health h where h.endpoint = any (theirs) and h.endpoint <> all (locked));
    for x in
        select case when u.well then 0 else u.endpoint end as endpoint, json_agg(u.one order by u.o) as told, array_agg(u.one ->> 'n') as ns from (
            select t.one, t.o, e.endpoint, bool_and(t.one ->> 'outcome' = 'delivered') over (partition by e.endpoint)
                   and not exists (select from postrider.endpoint_health h where h.endpoint = e.endpoint and (
                       h.silent_since is not null or h.failing_since is not null or h.in_flight is not null or h.pace_ms is not null)) as well
              from json_array_elements(told) with ordinality t (one, o)
             cross join lateral (select theirs[t.o::int] as endpoint) e
             where e.endpoint <> all (busy)) u
         group by 1 order by 1
    loop
        if x.endpoint = 0 then
            return query select f.n, f.became from postrider.finish_some(x.told) f;
            continue;
        end if;
        begin
            return query select f.n, f.became from postrider.finish_some(x.told) f;
        exception when lock_not_available then
            -- a limit or a hold of it is somebody's
            return query select m, 'busy' from unnest(x.ns) m;
        end;
    end loop;
    return query
    select t.one ->> 'n', 'busy' from json_array_elements(told) with ordinality t (one, o) where theirs[t.o::int] = any (busy);
end $$;

-- The part of postrider.finish_attempts that is about endpoints whose rows are locked.
create function postrider.finish_some(told json) returns table (n text, became text)
language plpgsql set search_path = pg_catalog, pg_temp
set jit = off set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off
set enable_mergejoin = off as $$
#variable_conflict use_column
declare
    ended postrider.delivery_attempt[] := '{}';
    asked bigint[] := '{}';
    gone boolean[] := '{}';
    given_up boolean[] := '{}';
    t record;
    a postrider.delivery_attempt;
    e record;
    i int;
begin
    for t in
        select * from json_to_recordset(told) t (n text, id bigint, lease bigint, outcome text, reason text, status smallint, failure text,
               excerpt text, headers text, sha256 text, peer text, dns_us bigint, connect_us bigint, tls_us bigint, first_byte_us bigint,
               total_us bigint, asked_ms bigint, gone boolean, given_up boolean)
    loop
        update postrider.delivery_attempt d
           set ended_at = clock_timestamp(), outcome = t.outcome, reason = t.reason, status = t.status, failure = t.failure,
               excerpt = t.excerpt, headers = t.headers::json, request_sha256 = decode(t.sha256, 'base64'), peer = t.peer,
               dns_us = t.dns_us, connect_us = t.connect_us, tls_us = t.tls_us, first_byte_us = t.first_byte_us, total_us = t.total_us
         where d.class = (t.id & 3)::smallint and d.id = t.id and d.lease = t.lease and d.ended_at is null
        returning d.* into a;
        n := t.n;
        became := case when found then 'ended' else 'none' end;
        if found then
            ended := ended || a;
            asked := asked || t.asked_ms;
            gone := gone || t.gone;
            given_up := given_up || t.given_up;
        end if;
        return next;
    end loop;
    for e in
        -- a test is about itself alone
        select (ended[x.i]).endpoint as id, array_agg(x.i order by x.i) as which, bool_and((ended[x.i]).outcome = 'delivered') as well,
               count(*) filter (where (ended[x.i]).outcome = 'delivered') as delivered,
               count(*) filter (where (ended[x.i]).outcome = 'failed' or gone[x.i]) as failed
          from generate_series(1, cardinality(ended)) x (i)
         where (ended[x.i]).endpoint is not null and (ended[x.i]).trigger <> 'test' group by 1 order by 1
    loop
        if e.delivered + e.failed > 0 then
            insert into postrider.endpoint_window as w (endpoint, slot, delivered, failed)
            values (e.id, to_timestamp(floor(extract(epoch from clock_timestamp()) / 300) * 300), e.delivered, e.failed)
            on conflict (endpoint, slot) do update set delivered = w.delivered + excluded.delivered, failed = w.failed + excluded.failed;
        end if;
        if not e.well or exists (
            select from postrider.endpoint_health h where h.endpoint = e.id
               and (h.silent_since is not null or h.failing_since is not null or h.in_flight is not null or h.pace_ms is not null)) then
            foreach i in array e.which loop
                perform postrider.note_attempt(ended[i], asked[i], gone[i], given_up[i]);
            end loop;
        end if;
    end loop;
end $$;

-- Notes what follows for its endpoint from how an attempt ended, which is counted already; the row of endpoint_health is locked.
create function postrider.note_attempt(a postrider.delivery_attempt, asked_ms bigint, gone boolean, given_up boolean) returns void
language plpgsql set search_path = pg_catalog, pg_temp
set jit = off set plan_cache_mode = force_generic_plan as $$
declare
    h postrider.endpoint_health;
    of_type text;
begin
    select * into h from postrider.endpoint_health x where x.endpoint = a.endpoint;
    if not found then
        return;
    end if;
    if asked_ms > 0 then
        perform postrider.cool_endpoint(a.endpoint, clock_timestamp() + asked_ms * interval '1 millisecond', 'the endpoint asked to wait');
    end if;
    if given_up then
        select e.type into of_type from postrider.event e where e.seq = postrider.event_seq(a.event);
        -- else one that tells of itself would be told of for ever
        if of_type not like 'postrider.%' then
            perform postrider.tell_endpoint('postrider.delivery.exhausted', a.endpoint, json_build_object('endpoint', a.endpoint,
                'delivery', a.id::text, 'event', a.event, 'type', of_type, 'attempts', a.attempt, 'reason', left(a.reason, 1000)));
        end if;
    end if;
    if gone then
        perform postrider.disable_endpoint(a.endpoint, a.reason);
    elsif a.outcome = 'delivered' then
        perform postrider.note_success(h);
    elsif a.outcome = 'failed' then
        perform postrider.note_failure(h);
    end if;
end $$;

-- An endpoint took something: more and more of it may run again.
create function postrider.note_success(h postrider.endpoint_health) returns void
language plpgsql set search_path = pg_catalog, pg_temp
set jit = off set plan_cache_mode = force_generic_plan as $$
declare
    hour record;
    most smallint;
begin
    if h.silent_since is null and h.failing_since is null and h.in_flight is null and h.pace_ms is null then
        return;
    end if;
    if h.failing_since is not null then
        select sum(w.failed) as failed, sum(w.delivered + w.failed) as n into hour from postrider.endpoint_window w
         where w.endpoint = h.endpoint and w.slot > clock_timestamp() - interval '1 hour';
        if hour.failed * 4 < hour.n then
            h.failing_since := null;
        end if;
    end if;
    if h.failing_since is null then
        select e.max_in_flight into most from postrider.endpoint e where e.id = h.endpoint;
        h.in_flight := case when h.in_flight + 1 < most then h.in_flight + 1 end;
        if h.in_flight is null and not exists (
            select from postrider.parked p where p.queue = 'webhook' and p.key = 'limit:' || postrider.endpoint_key(h.endpoint)) then
            h.pace_ms := null;
        end if;
    end if;
    update postrider.endpoint_health x
       set failing_since = h.failing_since, silent_since = null, failed = 0, warned = 0, in_flight = h.in_flight, pace_ms = h.pace_ms
     where x.endpoint = h.endpoint;
    perform postrider.apply_endpoint_limit(h.endpoint);
end $$;

-- An endpoint failed: what that makes of it.
create function postrider.note_failure(h postrider.endpoint_health) returns void
language plpgsql set search_path = pg_catalog, pg_temp
set jit = off set plan_cache_mode = force_generic_plan as $$
declare
    now timestamptz := clock_timestamp();
    hour record;
    share numeric;
    step smallint;
begin
    h.silent_since := coalesce(h.silent_since, now);
    h.failed := h.failed + 1;
    if h.failing_since is null then
        select sum(w.failed) as failed, sum(w.delivered + w.failed) as n into hour from postrider.endpoint_window w
         where w.endpoint = h.endpoint and w.slot > now - interval '1 hour';
        if hour.n >= 20 and hour.failed * 2 >= hour.n then
            h.failing_since := now;
            h.pace_ms := coalesce(h.pace_ms, postrider.endpoint_pace(h.endpoint));
            perform postrider.tell_endpoint('postrider.endpoint.failing', h.endpoint, json_build_object('endpoint', h.endpoint,
                'failed', hour.failed, 'of', hour.n, 'attempts', postrider.endpoint_evidence(h.endpoint)));
        end if;
    end if;
    if h.failing_since is not null or h.in_flight is not null then
        h.in_flight := 1;
        -- later by a tenth at most: endpoints that failed together are not tried together for ever
        perform postrider.cool_endpoint(h.endpoint, now + interval '5 minutes' * (1 + random() * 0.1), 'most attempts fail: it cools down');
    end if;
    share := least(extract(epoch from now - h.silent_since) / 432000, h.failed / 12.0);
    step := case when share >= 1 then 100 when share >= 0.9 then 90 when share >= 0.75 then 75 when share >= 0.5 then 50 else 0 end;
    if step between h.warned + 1 and 90 then
        perform postrider.tell_endpoint('postrider.endpoint.warned', h.endpoint, json_build_object('endpoint', h.endpoint, 'percent', step,
            'silent_since', h.silent_since, 'failed', h.failed, 'disabled_at', h.silent_since + interval '5 days'));
    end if;
    update postrider.endpoint_health x
       set failing_since = h.failing_since, silent_since = h.silent_since, failed = h.failed, warned = greatest(h.warned, step),
           in_flight = h.in_flight, pace_ms = h.pace_ms
     where x.endpoint = h.endpoint;
    perform postrider.apply_endpoint_limit(h.endpoint);
    if step = 100 then
        perform postrider.disable_endpoint(h.endpoint, format('nothing was delivered for five days, and %s attempts failed', h.failed));
    end if;
end $$;
