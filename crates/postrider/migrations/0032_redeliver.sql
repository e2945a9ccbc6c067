-- What is delivered once more: one delivery, all that were given up, a part of the log; and a test.
-- Locks: what postrider.retry takes; the row of a replay while a step of it runs.
-- By hand on a large table: nothing.
--
-- A delivery that the relay did not make is a job without a subscription: its args name the endpoint, {"trigger", "endpoint", "as"}. So the
-- jobs of a subscription are those that its events became, and can be proven.

-- A part of the log that is delivered once more to one endpoint, but for what it took already. after_seq: how far it has come.
create table postrider.delivery_replay (
    id         bigint      generated always as identity primary key,
    endpoint   bigint      not null,
    from_at    timestamptz not null,
    to_at      timestamptz not null,
    types      text[],                               -- null: all that the endpoint gets
    predicate  jsonpath,
    per_second int         not null,
    state      text        not null default 'planned',
    planned    bigint      not null,
    made       bigint      not null default 0,
    after_seq  bigint      not null,
    stepped_at timestamptz,
    created_at timestamptz not null default clock_timestamp(),
    ended_at   timestamptz,
    constraint state_is_planned_running_paused_or_done check (state in ('planned', 'running', 'paused', 'done')),
    constraint a_replay_that_is_done_has_an_end check ((state = 'done') = (ended_at is not null))
);

create index delivery_replay_of_endpoint on postrider.delivery_replay (endpoint);

-- Makes deliveries of these events for an endpoint, in the order of the log; answers with their ids. A test is limited by nothing and tried once.
create function postrider.make_deliveries(endpoint bigint, seqs bigint[], trigger text, sent_as uuid default null) returns bigint[]
language plpgsql set search_path = pg_catalog, pg_temp
set jit = off set plan_cache_mode = force_generic_plan as $$
declare
    made bigint[];
begin
    with placed as materialized (
        select (pg_sequence_last_value('postrider.job_epoch'::regclass) << 46) | (nextval('postrider.job_number') << 2) | k.class as id,
               v.seq, v.owner, k.queue, k.priority, case when make_deliveries.trigger = 'test' then 1 else k.max_attempts end as max_attempts, k.class,
               case when k.fair then postrider.share_of(v.owner) end as share,
               case when s.order_by is not null and make_deliveries.trigger <> 'test' then postrider.event_key(s.name, v.subject) end as order_key,
               case when s.order_by is not null and make_deliveries.trigger <> 'test'
                    then postrider.order_rule(coalesce(s.order_policy, k.order_policy)) end as order_rule,
               case when make_deliveries.trigger <> 'test' then s.limit_key end as limit_key
          from (select x.seq, x.owner, x.subject from postrider.event x where x.seq = any (make_deliveries.seqs) order by x.seq offset 0) v
         cross join postrider.endpoint e
          join postrider.subscription s on s.id = e.subscription
          join postrider.kind k on k.name = s.kind
         where e.id = make_deliveries.endpoint and e.deleted_at is null
    ), jobs as (
        insert into postrider.job (class, id, kind, queue, priority, max_attempts, owner, event_seq, order_key, order_rule, limit_key, share, args)
        select p.class, p.id, 'webhook.deliver', p.queue, p.priority, p.max_attempts, p.owner, p.seq, p.order_key, p.order_rule, p.limit_key,
               p.share, json_strip_nulls(json_build_object('trigger', make_deliveries.trigger, 'endpoint', make_deliveries.endpoint,
                                                           'as', make_deliveries.sent_as))
          from placed p
    ), now_ready as (
        insert into postrider.ready (queue, priority, share, pos, id, flags, order_key)
        select p.queue, p.priority, coalesce(p.share, 0), p.id, p.id,
               case when p.limit_key is not null then 96 when p.order_key is not null then 32 else 0 end, p.order_key
          from placed p
    )
    select array_agg(p.id order by p.id) into made from placed p;
    if made is not null then
        perform postrider.wake('postrider_job');
    end if;
    return coalesce(made, '{}');
end $$;

-- Sends an endpoint an event that says that it is a test, whether it is enabled or not. Answers with the id of the delivery; null if there is no
-- such endpoint.
create function postrider.send_test(endpoint bigint) returns bigint
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    event uuid;
begin
    if not exists (select from postrider.endpoint e where e.id = send_test.endpoint and e.deleted_at is null) then
        return null;
    end if;
    event := postrider.tell_endpoint('postrider.endpoint.test', endpoint,
        json_build_object('endpoint', endpoint, 'test', true, 'message', 'a test that was asked for: nothing happened'));
    return (postrider.make_deliveries(endpoint, array[postrider.event_seq(event)], 'test'))[1];
end $$;

-- Delivers one delivery once more: with all its attempts, and under the id of its event, which a receiver that took it ignores; or, as_new, as
-- another one under a new id. effect: done, running (refused: it is being sent), waits (it will be sent anyway), gone, unknown. delivery: the
-- one that is sent.
create function postrider.redeliver(id bigint, as_new boolean default false, out effect text, out delivery bigint)
language plpgsql security definer set search_path = pg_catalog, pg_temp
set jit = off set enable_seqscan = off set enable_bitmapscan = off as $$
declare
    j postrider.job;
    of_endpoint bigint;
begin
    select * into j from postrider.job x where x.class = (redeliver.id & 3)::smallint and x.id = redeliver.id and x.kind = 'webhook.deliver';
    of_endpoint := coalesce((j.args ->> 'endpoint')::bigint, (select e.id from postrider.endpoint e where e.subscription = j.subscription));
    if j.id is null or not exists (select from postrider.endpoint e where e.id = of_endpoint and e.deleted_at is null) then
        effect := case when j.id is null and postrider.gone_since(redeliver.id) is not null then 'gone' else 'unknown' end;
    elsif as_new then
        delivery := (postrider.make_deliveries(of_endpoint, array[j.event_seq], 'manual', gen_random_uuid()))[1];
        effect := case when delivery is null then 'gone' else 'done' end;
    else
        select r.effect into effect from postrider.retry(array[redeliver.id]) r;
        effect := case effect when 'already' then 'waits' else effect end;
        if effect = 'done' then
            delivery := redeliver.id;
            update postrider.job x
               set args = json_strip_nulls(json_build_object('trigger', 'manual', 'endpoint', j.args -> 'endpoint', 'as', j.args -> 'as'))
             where x.class = j.class and x.id = j.id;
        end if;
    end if;
end $$;

-- Delivers once more what was given up for an endpoint, looking at so many jobs after an id. Answers with how many, and how far it looked: null
-- if there is no more.
create function postrider.redeliver_discarded(endpoint bigint, after bigint, looked_at int default 2000, out n bigint, out upto bigint)
language plpgsql security definer set search_path = pg_catalog, pg_temp
set jit = off set enable_seqscan = off set enable_bitmapscan = off as $$
declare
    ids bigint[];
    seen int;
    filter json := (select json_build_object('subscription', s.name, 'kind', 'webhook.deliver', 'states', '["discarded"]'::json)
                      from postrider.endpoint e join postrider.subscription s on s.id = e.subscription
                     where e.id = redeliver_discarded.endpoint and e.deleted_at is null);
begin
    n := 0;
    if filter is null then
        return;
    end if;
    select array_agg(f.id) filter (where f.state is not null), max(f.id) filter (where f.state is null) into ids, upto
      from postrider.find_jobs(filter, redeliver_discarded.after, 9223372036854775807, looked_at) f;
    select count(*) into n from unnest(ids) i cross join lateral (select r.effect from postrider.redeliver(i) r offset 0) d where d.effect = 'done';
end $$;

-- The next events of a replay's part of the log, so many of them at most, and which of them it would deliver.
create function postrider.walk_replay(r postrider.delivery_replay, most int) returns table (seq bigint, wanted boolean)
language plpgsql stable set search_path = pg_catalog, pg_temp
set jit = off set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_bitmapscan = off as $$
#variable_conflict use_column
begin
    return query
    select v.seq,
           v.recorded_at >= r.from_at and v.recorded_at < r.to_at
           and exists (
                select from postrider.endpoint e join postrider.route o on o.subscription = e.subscription
                 where e.id = r.endpoint and o.type = v.type and o.owner = any (array['', v.owner])
                   and (o.predicate is null or jsonb_path_match(v.data::jsonb, o.predicate, p.vars, true)))
           and (r.types is null or exists (select from unnest(r.types) t where v.type ~ postrider.pattern_regex(t)))
           and (r.predicate is null or coalesce(jsonb_path_match(v.data::jsonb, r.predicate, p.vars, true), false))
           and not exists (select from postrider.delivery_attempt a where a.endpoint = r.endpoint and a.event = v.id and a.outcome = 'delivered')
      from (select * from postrider.event x where x.seq > r.after_seq order by x.seq limit most) v
     cross join lateral (select jsonb_build_object('type', v.type, 'owner', v.owner, 'subject', v.subject) as vars) p
     order by v.seq;
end $$;

-- Plans a replay: what it would deliver is counted, and nothing is sent until postrider.start_replay. Refuses with PR005 (from, to, per_second,
-- predicate) and PR001 (types), and a beginning before the time for which it is known what was delivered. Answers with no row if there is no such
-- endpoint.
create function postrider.plan_replay(
    endpoint bigint, "from" timestamptz, "to" timestamptz, types text[] default null, predicate text default null, per_second int default 10
) returns setof postrider.delivery_replay
language plpgsql security definer set search_path = pg_catalog, pg_temp
set jit = off as $$
#variable_conflict use_column
declare
    r postrider.delivery_replay;
    step record;
    known interval := (select x.keep from postrider.retention x where x.what = 'standard');
begin
    if "from" is null or "to" is null or "from" >= "to" then
        perform postrider.refuse('PR005', 'to', 'the end is not after the beginning', 'give a from and a later to');
    elsif "from" < clock_timestamp() - known then
        perform postrider.refuse('PR005', 'from', format('what was delivered is known for %s only', known),
            'begin later, or deliver what is older by its deliveries');
    elsif per_second is null or per_second not between 1 and 1000 then
        perform postrider.refuse('PR005', 'per_second', format('%s is not 1 to 1000', per_second), 'leave it out for 10');
    end if;
    perform postrider.pattern_regex(t) from unnest(plan_replay.types) t;
    if not exists (select from postrider.endpoint e where e.id = plan_replay.endpoint and e.deleted_at is null) then
        return;
    end if;
    r.endpoint := plan_replay.endpoint;
    r.from_at := "from";
    r.to_at := least("to", clock_timestamp());
    r.types := plan_replay.types;
    r.predicate := postrider.check_predicate(plan_replay.predicate);
    r.planned := 0;
    -- an event may be numbered long before it is recorded
    r.after_seq := coalesce((select max(x.epoch) << 46 from postrider.epoch x
                              where x.unit = 'event' and x.started_at < "from" - interval '1 hour'), 0);
    insert into postrider.delivery_replay (endpoint, from_at, to_at, types, predicate, per_second, planned, after_seq)
    values (r.endpoint, r.from_at, r.to_at, r.types, r.predicate, plan_replay.per_second, 0, r.after_seq) returning * into r;
    loop
        select count(*) as looked, count(*) filter (where w.wanted) as wanted, max(w.seq) as last into step
          from postrider.walk_replay(r, 10000) w;
        r.planned := r.planned + step.wanted;
        exit when step.looked < 10000;
        r.after_seq := step.last;
    end loop;
    return query update postrider.delivery_replay x set planned = r.planned where x.id = r.id returning x.*;
end $$;

-- Starts a replay that is planned, or lets one go on that is paused. False if there is none like that.
create function postrider.start_replay(id bigint) returns boolean
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
    update postrider.delivery_replay r set state = 'running' where r.id = start_replay.id and r.state in ('planned', 'paused');
    if not found then
        return false;
    end if;
    perform postrider.drive_replay(id);
    return true;
end $$;

-- Has somebody step a replay until it is done.
create function postrider.drive_replay(id bigint) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    k postrider.kind;
    job bigint;
begin
    select * into k from postrider.kind x where x.name = 'webhook.replay';
    if not found then
        perform postrider.refuse('PR004', 'kind', 'webhook.replay was never declared', 'start a process that delivers');
    end if;
    job := (pg_sequence_last_value('postrider.job_epoch'::regclass) << 46) | (nextval('postrider.job_number') << 2) | k.class;
    insert into postrider.job (class, id, kind, queue, priority, max_attempts, args)
    values (k.class, job, k.name, k.queue, k.priority, k.max_attempts, json_build_object('replay', drive_replay.id));
    insert into postrider.ready (queue, priority, share, pos, id) values (k.queue, k.priority, 0, job, job);
    perform postrider.wake('postrider_job');
end $$;

-- Pauses a replay; what it made so far is delivered. False if it does not run.
create function postrider.pause_replay(id bigint) returns boolean
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
    update postrider.delivery_replay r set state = 'paused' where r.id = pause_replay.id and r.state = 'running';
    return found;
end $$;

-- Makes the next second's deliveries of a replay, unless a thousand wait for the endpoint already. Answers with its state; whoever is told
-- running comes again in a second. What is made and how far it has come are one.
create function postrider.step_replay(id bigint) returns text
language plpgsql security definer set search_path = pg_catalog, pg_temp
set jit = off set plan_cache_mode = force_generic_plan as $$
declare
    r postrider.delivery_replay;
    seqs bigint[];
    looked int;
    last bigint;
    now timestamptz := clock_timestamp();
begin
    select * into r from postrider.delivery_replay x where x.id = step_replay.id for no key update;
    if r.state is distinct from 'running' then
        return coalesce(r.state, 'done');
    elsif r.stepped_at > now - interval '900 milliseconds' then
        -- somebody else drives it as well
        return r.state;
    end if;
    if (select count(*) from (select from postrider.parked p where p.queue = 'webhook'
                                 and p.key = 'limit:' || postrider.endpoint_key(r.endpoint) limit 1000) waiting) < 1000 then
        select count(*), max(w.seq), array_agg(w.seq order by w.seq) filter (where w.wanted) into looked, last, seqs
          from postrider.walk_replay(r, 5000) w;
        if cardinality(seqs) > r.per_second then
            last := seqs[r.per_second];
            seqs := seqs[:r.per_second];
            looked := 5000;
        end if;
        if seqs is not null then
            perform postrider.make_deliveries(r.endpoint, seqs, 'replay');
        end if;
        if looked < 5000 then
            r.state := 'done';
        end if;
    end if;
    update postrider.delivery_replay x
       set state = r.state, made = x.made + coalesce(cardinality(seqs), 0), after_seq = coalesce(last, x.after_seq), stepped_at = now,
           ended_at = case when r.state = 'done' then now end
     where x.id = r.id;
    return r.state;
end $$;

-- The replays of an endpoint, the newest first.
create function postrider.replays(endpoint bigint) returns setof postrider.delivery_replay
language sql stable security definer set search_path = pg_catalog, pg_temp
as $$ select * from postrider.delivery_replay r where r.endpoint = replays.endpoint order by r.id desc limit 100 $$;

-- What deliveries need: for each endpoint that they go to and each secret of it that is valid now a row, or one without a secret; all as text.
-- asked: an array of deliveries, each with its id, when it was due in microseconds, its subscription, else its endpoint, its event unless somebody
-- wants it once more, and whether a replay made it. ids: those that go to this endpoint; taken: those of them that were delivered already, by
-- themselves or where there are replays by another one: whichever comes first of what waited and of what a replay made of it, the other one is left out.
create function postrider.load_deliveries(asked json)
returns table (endpoint text, url text, format text, timeout_ms text, max_attempts text, disabled text, deleted text, steps_ms text,
               on_4xx text, answer_contains text, headers_key text, headers text, enabled_us text, ids text, taken text,
               secret text, kind text, key_id text, sealed text)
language plpgsql stable security definer set search_path = pg_catalog, pg_temp
set jit = off set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off
set enable_mergejoin = off set enable_material = off as $$
#variable_conflict use_column
begin
    return query
    with wanted as materialized (
        select a.id, a.due_us, a.event, a.replay,
               coalesce((select x.id from postrider.endpoint x where x.subscription = a.subscription), a.endpoint) as endpoint
          from json_to_recordset(asked) a (id bigint, due_us bigint, subscription bigint, endpoint bigint, event uuid, replay boolean)
    ), known as materialized (
        select w.endpoint, json_agg(w.id::text) as ids, json_agg(w.id::text) filter (where t.taken) as taken
          from wanted w
         cross join lateral (
            -- by its id alone: by the index of times, all that was attempted since might be walked
            select exists (
                select from (select a.outcome, a.started_at from postrider.delivery_attempt a
                              where a.class = (w.id & 3)::smallint and a.id = w.id offset 0) a
                 where a.outcome = 'delivered' and a.started_at >= timestamptz 'epoch' + w.due_us * interval '1 microsecond')
                or w.event is not null
                and (w.replay or exists (select from postrider.delivery_replay r where r.endpoint = w.endpoint))
                and exists (
                select from postrider.delivery_attempt a
                 where a.endpoint = w.endpoint and a.event = w.event and a.outcome = 'delivered' and (w.replay or a.sent_as is null))
                as taken) t
         group by w.endpoint
    )
    select e.id::text, e.url, e.format::text, e.timeout_ms::text, e.max_attempts::text, (e.disabled_at is not null)::text,
           (e.deleted_at is not null)::text, array_to_json(e.steps_ms)::text, e.on_4xx, e.answer_contains, e.headers_key,
           encode(e.headers, 'base64'), ((extract(epoch from e.enabled_at) * 1000000)::bigint)::text, k.ids::text, k.taken::text,
           s.id::text, s.kind, s.key_id, encode(s.sealed, 'base64')
      from known k
      join postrider.endpoint e on e.id = k.endpoint
      left join postrider.endpoint_secret s
        on s.endpoint = e.id and s.valid_from <= clock_timestamp() and (s.valid_until is null or s.valid_until > clock_timestamp())
     order by e.id, s.valid_from desc, s.id;
end $$;
