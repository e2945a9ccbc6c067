-- The schema that all migrations make, without partitions, as pg_dump of PostgreSQL 15 says it.
-- Written by: cargo run -p xtask -- regenerate

--
-- Name: postrider; Type: SCHEMA; Schema: -; Owner: -
--

CREATE SCHEMA postrider;


--
-- Name: alert; Type: TYPE; Schema: postrider; Owner: -
--

CREATE TYPE postrider.alert AS (
	name text,
	severity text,
	subject text,
	since timestamp with time zone,
	says text,
	remedy text
);


--
-- Name: claimed; Type: TYPE; Schema: postrider; Owner: -
--

CREATE TYPE postrider.claimed AS (
	lease bigint,
	id bigint,
	attempt smallint,
	kind text,
	queue text,
	priority smallint,
	share smallint,
	pos bigint,
	max_attempts smallint,
	owner text,
	created_at timestamp with time zone,
	args json,
	subscription bigint,
	event_id uuid,
	event_type text,
	event_version smallint,
	event_traceparent text,
	event_owner text,
	event_subject text,
	event_cause uuid,
	occurred_at timestamp with time zone,
	recorded_at timestamp with time zone,
	data json,
	claimed_at timestamp with time zone,
	due_at timestamp with time zone,
	retry json,
	order_key text,
	limit_key text,
	more boolean
);


--
-- Name: fanout; Type: TYPE; Schema: postrider; Owner: -
--

CREATE TYPE postrider.fanout AS (
	state text,
	jobs bigint[],
	aside text[]
);


--
-- Name: log_position; Type: TYPE; Schema: postrider; Owner: -
--

CREATE TYPE postrider.log_position AS (
	epoch integer,
	lo pg_snapshot,
	hi pg_snapshot,
	more boolean,
	last_seq bigint
);


--
-- Name: pass; Type: TYPE; Schema: postrider; Owner: -
--

CREATE TYPE postrider.pass AS (
	most integer,
	elsewhere boolean,
	careful boolean,
	below boolean,
	refused json
);


--
-- Name: relayed; Type: TYPE; Schema: postrider; Owner: -
--

CREATE TYPE postrider.relayed AS (
	no bigint,
	n integer,
	jobs integer,
	more boolean,
	open_writers boolean,
	why text,
	matched json,
	starting boolean,
	aside integer,
	retry_in_ms bigint
);


--
-- Name: slice; Type: TYPE; Schema: postrider; Owner: -
--

CREATE TYPE postrider.slice AS (
	seqs bigint[],
	types text[],
	owners text[],
	digests bytea[]
);


--
-- Name: table_key; Type: TYPE; Schema: postrider; Owner: -
--

CREATE TYPE postrider.table_key AS (
	columns text[],
	equals text[]
);


--
-- Name: verified; Type: TYPE; Schema: postrider; Owner: -
--

CREATE TYPE postrider.verified AS (
	first_no bigint,
	last_no bigint,
	cuts bigint,
	committed bigint,
	fanned_out bigint,
	jobs bigint,
	missing bigint,
	twice bigint,
	broken bigint,
	altered bigint,
	unchecked_events bigint,
	unchecked_jobs bigint,
	findings text[]
);


--
-- Name: waiting; Type: TYPE; Schema: postrider; Owner: -
--

CREATE TYPE postrider.waiting AS (
	queue text,
	priority smallint,
	share smallint,
	pos bigint,
	id bigint,
	attempt smallint,
	losses smallint,
	flags smallint,
	order_key text,
	why smallint
);


SET default_tablespace = '';

SET default_table_access_method = heap;

--
-- Name: watch; Type: TABLE; Schema: postrider; Owner: -
--

CREATE TABLE postrider.watch (
    name text NOT NULL COLLATE pg_catalog."C",
    relation text NOT NULL,
    relid oid NOT NULL,
    key_columns text[] NOT NULL,
    columns text[],
    operations text[] NOT NULL,
    types json NOT NULL,
    condition text,
    subject text,
    data text,
    owner text,
    declared_by text NOT NULL,
    generation bigint DEFAULT 0 NOT NULL,
    created_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    seen_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL
);


--
-- Name: watch_plan; Type: TYPE; Schema: postrider; Owner: -
--

CREATE TYPE postrider.watch_plan AS (
	state text,
	wanted postrider.watch,
	probe text,
	table_owner text,
	queries text[],
	statements text[]
);


--
-- Name: act_on_lane(text, text, text); Type: FUNCTION; Schema: postrider; Owner: -
--

CREATE FUNCTION postrider.act_on_lane(queue text, order_key text, act text) RETURNS text
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET jit TO 'off'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    AS $$
declare
    of_key text := 'order:' || order_key;
    l postrider.lane;
    head bigint;
begin
    perform postrider.check_isolation();
    if act is null or act not in ('release', 'retry', 'skip') then
        perform postrider.refuse('PR005', 'act', format('%L is not an act', left(act, 80)), 'use release, retry or skip');
    elsif not exists (select from postrider.lane x where x.queue = act_on_lane.queue and x.key = of_key) then
        return 'unknown';
    elsif postrider.lock_lanes(queue, array[of_key]) = '{}' then
        return 'busy';
    end if;
    select * into l from postrider.lane x where x.queue = act_on_lane.queue and x.key = of_key;
    head := coalesce(l.holder, l.stopped_by);
    if head is null or act = 'release' and l.stopped_at is null then
        return 'unknown';
    elsif act <> 'release' and exists (select from postrider.lease x where head = any (x.open)) then
        return 'running';
    elsif act = 'retry' then
        perform postrider.retry(array[head]);
    elsif act = 'skip' then
        perform postrider.cancel_within(array[head], 'skipped', 1);
    end if;
    update postrider.lane x set stopped_at = null, reason = null, stopped_by = null, low_parked = 0, low_ready = 0, cleared = 0
     where x.queue = act_on_lane.queue and x.key = of_key;
    perform postrider.settle_lanes(queue, array[of_key]);
    return 'done';
end $$;


--
-- Name: advance_drawn(); Type: FUNCTION; Schema: postrider; Owner: -
--

CREATE FUNCTION postrider.advance_drawn() RETURNS boolean
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET jit TO 'off'
    AS $$
declare
    x record;
    drawn bigint;
    behind boolean := false;
begin
    for x in
        select * from (values
            ('event_epoch', 'select max(seq) >> 46 from postrider.event', false),
            ('event_number', 'select max(seq & 70368744177663) from (select seq from postrider.event order by seq desc limit 10000) e', true),
            ('job_epoch', 'select max(id) >> 46 from (values (1::smallint), (2::smallint), (3::smallint)) k (class) cross join lateral (
               select id from postrider.job j where j.class = k.class order by j.id desc limit 1) j', false),
            ('job_number', 'select max((id >> 2) & 17592186044415) from (
               select j.id from (values (1::smallint), (2::smallint), (3::smallint)) k (class) cross join lateral (
                   select id from postrider.job j where j.class = k.class order by j.id desc limit 10000) j
               union all select pos from postrider.ready union all select pos from postrider.parked) j', true),
            -- worth something only together with its worker: the newest tell enough
            ('lease_id', 'select max(lease) from (select id as lease from postrider.lease union all
               select d.lease from (values (1::smallint), (2::smallint), (3::smallint)) k (class) cross join lateral (
                   select lease from postrider.done d where d.class = k.class order by d.id desc limit 10000) d) l', true)) s (name, of, margin)
        union all
        select 'endpoint_id', 'select max(id) from postrider.endpoint', true where to_regclass('postrider.endpoint') is not null
        union all
        select c.relname, format('select max(%I) from %s', a.attname, d.refobjid::regclass), true
          from pg_depend d
          join pg_class c on c.oid = d.objid and c.relkind = 'S' and c.relnamespace = 'postrider'::regnamespace
          join pg_attribute a on a.attrelid = d.refobjid and a.attnum = d.refobjsubid
         where d.classid = 'pg_class'::regclass and d.deptype in ('i', 'a')
    loop
        execute x.of into drawn;
        if drawn > coalesce(pg_sequence_last_value(format('postrider.%I', x.name)::regclass), 0) then
            behind := true;
            -- numbers that were drawn and left no row may have been told to somebody
            perform setval(format('postrider.%I', x.name)::regclass, drawn + case when x.margin then 10000 else 0 end);
        end if;
    end loop;
    if behind then
        perform postrider.make_partitions(p.name) from postrider.partitioned p;
    end if;
    return behind;
end $$;


--
-- Name: advance_epoch(text); Type: FUNCTION; Schema: postrider; Owner: -
--

CREATE FUNCTION postrider.advance_epoch(unit text) RETURNS boolean
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
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


--
-- Name: after_special(bigint[], boolean); Type: FUNCTION; Schema: postrider; Owner: -
--

CREATE FUNCTION postrider.after_special(ids bigint[], alike boolean) RETURNS void
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET jit TO 'off'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    AS $$
begin
    if alike then
        perform postrider.settle_unique(ids);
    end if;
    perform postrider.settle_turns(ids);
    delete from postrider.attempt a using (
        -- what somebody else is removing is left to him
        select x.class, x.id, x.lease from unnest(after_special.ids) i (id)
          join postrider.attempt x on x.class = (i.id & 3)::smallint and x.id = i.id
         where x.attempt > 10 and x.attempt <= (
            select max(m.attempt) from postrider.attempt m where m.class = x.class and m.id = x.id) - 10
           for update of x skip locked) o
     where a.class = o.class and a.id = o.id and a.lease = o.lease;
end $$;


--
-- Name: alerts(); Type: FUNCTION; Schema: postrider; Owner: -
--

CREATE FUNCTION postrider.alerts() RETURNS SETOF postrider.alert
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET jit TO 'off'
    AS $$
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


--
-- Name: alerts_of_components(); Type: FUNCTION; Schema: postrider; Owner: -
--

CREATE FUNCTION postrider.alerts_of_components() RETURNS SETOF postrider.alert
    LANGUAGE plpgsql STABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET jit TO 'off'
    AS $$
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


--
-- Name: alerts_of_jobs(); Type: FUNCTION; Schema: postrider; Owner: -
--

CREATE FUNCTION postrider.alerts_of_jobs() RETURNS SETOF postrider.alert
    LANGUAGE plpgsql STABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET jit TO 'off'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    AS $$
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


--
-- Name: alerts_of_keeping(); Type: FUNCTION; Schema: postrider; Owner: -
--

CREATE FUNCTION postrider.alerts_of_keeping() RETURNS SETOF postrider.alert
    LANGUAGE plpgsql STABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET jit TO 'off'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    AS $$
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


--
-- Name: alerts_of_relay(); Type: FUNCTION; Schema: postrider; Owner: -
--

CREATE FUNCTION postrider.alerts_of_relay() RETURNS SETOF postrider.alert
    LANGUAGE plpgsql STABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET jit TO 'off'
    AS $$
begin
    return query
    select 'poison', case when bool_or(p.retry_at is null) then 'critical' else 'warning' end, 'subscription ' || coalesce(min(s.name), p.subscription::text),
           min(p.since), format('%s events could not become jobs of subscription %s and were set aside: %s', count(*),
           coalesce(min(s.name), p.subscription::text), max(p.error)),
           'mend what the error says, then postrider.requeue(); or let go of them with postrider.drop_poison(reason)'
      from postrider.poison p left join postrider.subscription s on s.id = p.subscription
     where p.ended_at is null group by p.subscription;
    return query
    select 'rebased', 'warning', 'epoch ' || l.no, l.started_at, format('the log began epoch %s at %s: %s; %s events that it had not relayed were turned into jobs',
           l.no, postrider.said(l.started_at), l.note, (select count(*) from postrider.rebased r where r.epoch = l.no)),
           'see that this copy is meant to work: postrider.pause_outbound() holds what leaves it'
      from postrider.log_epoch l where l.no > 1 and l.started_at > clock_timestamp() - interval '1 day';
    return query
    select 'huge_transaction', 'warning', 'transaction ' || b.xids[1], b.opened_at,
           format('a transaction of very many events is being turned into jobs since %s: %s events of it so far%s', postrider.said(b.opened_at),
                  b.events, coalesce('; these wait for it, since they keep an order: ' || (
                      select string_agg(s.name, ', ' order by s.name) from postrider.subscription_start g join postrider.held h on h.start = g.id
                        join postrider.subscription s on s.id = h.subscription where g.over_at is null), '')),
           'nothing is needed: everybody else''s events come by turns with it'
      from postrider.backlog b where b.over_at is null and b.opened_at < clock_timestamp() - interval '1 minute';
    return query
    select 'watch', case w.severity when 'critical' then 'critical' else 'warning' end, 'watch ' || w.watch, null::timestamptz, w.says, w.remedy
      from postrider.check_watches() w where w.severity <> 'hole';
    return query
    select 'outbound_held', 'critical', 'outbound', i.outbound_paused_at,
           format('outbound work is paused since %s%s', postrider.said(i.outbound_paused_at), coalesce(': ' || nullif(i.reason, ''), '')),
           'postrider.resume_outbound() lets it go on'
      from postrider.instance i where i.outbound_paused_at is not null;
    return query
    select 'outbound_held', 'critical', 'instance ' || s.name, s.seen_at,
           format('application %s is configured for instance %s and this database is %s: it holds its outbound work', s.app, s.name, i.name),
           'give it the database that it is meant for; or, if this copy is to be one of its own, postrider.name_instance(name)'
      from postrider.stranger s cross join postrider.instance i;
end $$;


--
-- Name: alerts_of_server(interval); Type: FUNCTION; Schema: postrider; Owner: -
--

CREATE FUNCTION postrider.alerts_of_server(long interval) RETURNS SETOF postrider.alert
    LANGUAGE plpgsql STABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET jit TO 'off'
    AS $$
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


--
-- Name: cut; Type: TABLE; Schema: postrider; Owner: -
--

CREATE TABLE postrider.cut (
    no bigint NOT NULL,
    from_no bigint NOT NULL,
    epoch integer NOT NULL,
    hi pg_snapshot NOT NULL,
    lo pg_snapshot,
    r_first bigint,
    r_last bigint,
    more boolean NOT NULL,
    at timestamp with time zone NOT NULL,
    n integer NOT NULL,
    jobs integer NOT NULL,
    aside integer NOT NULL,
    elsewhere boolean NOT NULL,
    events_total bigint NOT NULL,
    jobs_total bigint NOT NULL,
    first_seq bigint,
    last_seq bigint,
    first_job bigint,
    last_job bigint,
    digest bytea,
    joined bytea,
    hash bytea NOT NULL,
    apart xid8[],
    backlog bigint,
    start bigint,
    part_after bigint,
    part_upto bigint,
    CONSTRAINT a_window_is_open_as_a_whole CHECK ((more = (lo IS NOT NULL)))
);


--
-- Name: append_cut(postrider.cut, postrider.cut, postrider.slice, postrider.pass, postrider.relayed); Type: FUNCTION; Schema: postrider; Owner: -
--

CREATE FUNCTION postrider.append_cut(last postrider.cut, new postrider.cut, s postrider.slice, how postrider.pass, answer postrider.relayed) RETURNS postrider.relayed
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET jit TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    AS $$
declare
    n int := coalesce(cardinality(s.seqs), 0);
    over boolean := n > how.most;
    made record;
begin
    if over then
        n := how.most;
        s := row (s.seqs[1:n], s.types[1:n], s.owners[1:n], s.digests[1:n]);
    end if;
    new.no := last.no + 1;
    new.from_no := new.no;
    new.epoch := (select max(l.no) from postrider.log_epoch l);
    -- not before the last row's, so that delayed jobs keep their order
    new.at := greatest(clock_timestamp(), last.at);
    new.jobs := 0;
    new.aside := 0;
    new.elsewhere := how.elsewhere;
    new.first_job := postrider.job_position();
    if n > 0 and how.elsewhere then
        answer.matched := postrider.tell_matched(new.at, s.seqs, s.types, s.owners);
        if how.refused is not null then
            select x.matched_left, x.aside into answer.matched, new.aside from postrider.without_refused(new.no, answer.matched, how.refused) x;
        end if;
        new.jobs := json_array_length(answer.matched -> 'jobs');
    elsif n > 0 and (how.careful or how.below) then
        select * into made from postrider.make_each(new.no, new.at, s, how.below);
        new.jobs := made.jobs;
        new.aside := made.aside;
        -- so much was too much: the slice ends earlier
        over := over or made.upto < n;
        n := made.upto;
        s := row (s.seqs[1:n], s.types[1:n], s.owners[1:n], s.digests[1:n]);
    elsif n > 0 then
        new.jobs := postrider.fan_out(new.at, s.seqs, s.types, s.owners);
    end if;
    new.last_job := postrider.job_position() | 3;
    if new.backlog is not null then
        -- the position stays
        new.part_upto := s.seqs[n];
        update postrider.backlog b
           set after = coalesce(new.part_upto, b.after), events = b.events + n, over_at = case when not over then clock_timestamp() end
         where b.id = new.backlog;
    elsif how.below then
        new.lo := null;
        new.more := false;
        update postrider.rebased r set cut = new.no where r.seq = any (s.seqs);
    elsif not over then
        new.lo := null;
        new.r_first := null;
        new.r_last := null;
        new.more := false;
    else
        new.more := true;
        new.r_first := last.r_first;
        new.r_last := last.r_last;
        if not last.more then
            select min(v.first), max(v.last) into new.r_first, new.r_last
              from postrider.xid_gaps(pg_snapshot_xmax(new.lo), pg_snapshot_xmax(new.hi), new.apart) g
             cross join lateral (
                -- not along the numbers: the first of them may be far
                select min(seq + 0) as first, max(seq + 0) as last from postrider.event
                 where xid > g.above and xid < g.below and seq > new.last_seq and pg_visible_in_snapshot(xid, new.hi)) v;
        end if;
    end if;
    new.n := n;
    new.first_seq := s.seqs[1];
    if new.backlog is null then
        new.last_seq := coalesce(s.seqs[n], new.last_seq);
    end if;
    new.events_total := last.events_total + n;
    new.jobs_total := last.jobs_total + new.jobs;
    new.digest := case when n > 0 then (select sha256(string_agg(d, null)) from unnest(s.digests) d) end;
    new.hash := postrider.cut_hash(coalesce(last.joined, last.hash), new);
    insert into postrider.cut select new.*;
    if new.jobs > 0 and not how.elsewhere then
        perform postrider.wake('postrider_job');
    end if;
    answer.no := new.no;
    answer.n := n;
    answer.jobs := new.jobs;
    answer.aside := new.aside;
    -- there may be more from below the floor: the next pass looks
    answer.more := over or how.below;
    answer.why := 'done';
    return answer;
end $$;


--
-- Name: apply_endpoint_limit(bigint); Type: FUNCTION; Schema: postrider; Owner: -
--

CREATE FUNCTION postrider.apply_endpoint_limit(id bigint) RETURNS void
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
declare
    e record;
    new_most int;
    new_starts int;
    new_per interval;
begin
    select p.max_in_flight, p.rate_starts, p.rate_per, h.in_flight, h.pace_ms, h.failed into e
      from postrider.endpoint p join postrider.endpoint_health h on h.endpoint = p.id where p.id = apply_endpoint_limit.id;
    -- one that hangs would else take all of its slots again and again
    new_most := least(e.in_flight, e.max_in_flight, case when e.failed >= 5 then 1 end);
    new_starts := e.rate_starts;
    new_per := e.rate_per;
    if e.pace_ms is not null and (new_starts is null or extract(epoch from new_per) * 1000 / new_starts < e.pace_ms) then
        -- a beat looks once a second at who may start
        new_starts := greatest(1, 1000 / e.pace_ms);
        new_per := greatest(e.pace_ms, 1000) * interval '1 millisecond';
    end if;
    if not exists (
        select from postrider.key_limit l
         where l.queue = 'webhook' and l.key = postrider.endpoint_key(id)
           and (l.most, l.starts, l.per) is not distinct from (new_most, new_starts, new_per))
    then
        perform postrider.set_limit('webhook', postrider.endpoint_key(id), new_most, new_starts, new_per);
    end if;
end $$;


--
-- Name: array_error(jsonb, jsonb, text); Type: FUNCTION; Schema: postrider; Owner: -
--

CREATE FUNCTION postrider.array_error(schema jsonb, value jsonb, at text) RETURNS text
    LANGUAGE plpgsql IMMUTABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
declare
    problem text;
    v jsonb;
    n int := 0;
begin
    if jsonb_array_length(value) < coalesce((schema -> 'minItems')::int, 0) then
        return at || ' has fewer items than ' || (schema ->> 'minItems');
    elsif jsonb_array_length(value) > (schema -> 'maxItems')::int then
        return at || ' has more items than ' || (schema ->> 'maxItems');
    elsif schema -> 'uniqueItems' = 'true' and
          (select count(*) <> count(distinct e) from jsonb_array_elements(value) e) then
        return at || ' has an item twice';
    end if;
    if schema ? 'items' then
        for v in select e from jsonb_array_elements(value) e loop
            problem := postrider.schema_error(schema -> 'items', v, at || '/' || n);
            if problem is not null then
                return problem;
            end if;
            n := n + 1;
        end loop;
    end if;
    return null;
end $$;


--
-- Name: ask_scope(json, text, text, text, json); Type: FUNCTION; Schema: postrider; Owner: -
--

CREATE FUNCTION postrider.ask_scope(labels json, owner text, type text, subject text, data json, OUT inside boolean, OUT error text) RETURNS record
    LANGUAGE plpgsql STABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $_$
declare
    called text := postrider.scope_name();
begin
    if called is null then
        inside := true;
        return;
    end if;
    execute format('select %s($1, $2, $3, $4, $5)', called) into inside using labels, owner, type, subject, data;
    if inside is null then
        error := 'null: it said neither yes nor no';
    end if;
exception when others then
    if left(sqlstate, 2) in ('08', '40', '53', '55', '57', '58') then
        raise;
    end if;
    inside := null;
    error := left(format('%s: %s', sqlstate, sqlerrm), 1000);
end $_$;


--
-- Name: subscription; Type: TABLE; Schema: postrider; Owner: -
--

CREATE TABLE postrider.subscription (
    id bigint NOT NULL,
    name text NOT NULL COLLATE pg_catalog."C",
    owner text DEFAULT ''::text NOT NULL COLLATE pg_catalog."C",
    types text[] NOT NULL,
    kind text NOT NULL COLLATE pg_catalog."C",
    delay_ms bigint DEFAULT 0 NOT NULL,
    outward boolean DEFAULT false NOT NULL,
    predicate jsonpath,
    order_by text,
    order_policy text,
    coalescing boolean DEFAULT false NOT NULL,
    limit_key text,
    declared_by text NOT NULL,
    generation bigint DEFAULT 0 NOT NULL,
    created_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    seen_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    removed_at timestamp with time zone,
    CONSTRAINT a_policy_belongs_to_an_order CHECK (((order_policy IS NULL) OR (order_by IS NOT NULL))),
    CONSTRAINT delay_is_not_negative CHECK ((delay_ms >= 0)),
    CONSTRAINT order_is_by_subject_owner_or_all CHECK ((order_by = ANY (ARRAY['subject'::text, 'owner'::text, 'all'::text])))
);


--
-- Name: asked_subscription(json); Type: FUNCTION; Schema: postrider; Owner: -
--

CREATE FUNCTION postrider.asked_subscription(filter json) RETURNS bigint
    LANGUAGE sql STABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    RETURN CASE WHEN ((filter ->> 'subscription'::text) IS NOT NULL) THEN COALESCE((SELECT s.id FROM postrider.subscription s WHERE (s.name = (asked_subscription.filter ->> 'subscription'::text))), (0)::bigint) ELSE NULL::bigint END;


--
-- Name: asked_tags(json); Type: FUNCTION; Schema: postrider; Owner: -
--

CREATE FUNCTION postrider.asked_tags(filter json) RETURNS text[]
    LANGUAGE sql IMMUTABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    RETURN ARRAY(SELECT json_array_elements_text(COALESCE((filter -> 'tags'::text), '[]'::json)) AS json_array_elements_text);


--
-- Name: await_fanout(uuid); Type: FUNCTION; Schema: postrider; Owner: -
--

CREATE FUNCTION postrider.await_fanout(event uuid) RETURNS postrider.fanout
    LANGUAGE plpgsql STABLE SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET jit TO 'off'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    AS $$
declare
    v record;
    d postrider.event_delay;
    c postrider.cut;
    told postrider.fanout;
    low bigint;
    high bigint;
    middle bigint;
begin
    told := row ('unknown', '{}', '{}');
    select e.seq, e.xid, e.type, e.owner into v from postrider.event e where e.seq = postrider.event_seq(event) and e.id = event;
    if not found then
        return told;
    end if;
    told.state := 'waiting';
    select * into d from postrider.event_delay x where x.seq = v.seq;
    if d.ended_as = 'cancelled' then
        told.state := 'cancelled';
        return told;
    elsif d.seq is not null and d.ended_at is null then
        return told;
    end if;
    select coalesce(array_agg(coalesce(s.name, p.subscription::text) order by s.name), '{}') into told.aside
      from postrider.poison p left join postrider.subscription s on s.id = p.subscription
     where p.event_seq = v.seq and p.ended_at is null;
    if d.ended_as = 'delivered' then
        told.state := case when d.first_job is null then 'elsewhere' else 'done' end;
        told.jobs := postrider.jobs_between(v.seq, array[d.first_job], array[d.last_job]);
        return told;
    end if;
    if not postrider.is_relayed(v.seq, v.xid) or postrider.is_owed(v.seq, v.xid, v.type, v.owner) then
        return told;
    end if;
    told.state := 'done';
    -- the first row that covers it: what a row covers, the rows after it in its epoch cover too
    select max(l.no) into c.epoch from postrider.log_epoch l where l.floor_seq < v.seq;
    select min(x.no), max(x.no) into low, high from postrider.cut x where x.epoch = c.epoch;
    while low < high loop
        select max(x.no) into middle from postrider.cut x where x.no <= (low + high) / 2;
        select * into c from postrider.cut x where x.no = middle;
        if pg_visible_in_snapshot(v.xid, coalesce(c.lo, c.hi)) or c.more and v.seq <= c.last_seq and pg_visible_in_snapshot(v.xid, c.hi) then
            high := middle;
        else
            select min(x.no) into low from postrider.cut x where x.no > middle;
        end if;
    end loop;
    select * into c from postrider.cut x
     where x.no = coalesce((select y.no from postrider.rebased r join postrider.cut y on r.cut between y.from_no and y.no where r.seq = v.seq),
                           (select y.no from postrider.backlog b join postrider.cut y on y.backlog = b.id and y.part_upto >= v.seq and y.part_after < v.seq
                             where b.epoch = c.epoch and v.xid = any (b.xids) order by y.part_upto limit 1),
                           low);
    if c.elsewhere then
        told.state := 'elsewhere';
        return told;
    end if;
    select postrider.jobs_between(v.seq, array_agg(x.first), array_agg(x.last)) into told.jobs
      from (select c.first_job as first, c.last_job as last
            -- of those that kept an order behind a huge transaction
            union select y.first_job, y.last_job from postrider.subscription_start b
                    join postrider.cut y on y.start = b.id and y.part_upto >= v.seq and y.part_after < v.seq
                   where b.subscription is null) x;
    return told;
end $$;


--
-- Name: job; Type: TABLE; Schema: postrider; Owner: -
--

CREATE TABLE postrider.job (
    class smallint NOT NULL,
    id bigint NOT NULL,
    kind text NOT NULL COLLATE pg_catalog."C",
    queue text NOT NULL,
    priority smallint NOT NULL,
    max_attempts smallint NOT NULL,
    owner text DEFAULT ''::text NOT NULL COLLATE pg_catalog."C",
    created_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    run_at timestamp with time zone,
    order_key text,
    limit_key text,
    order_rule smallint,
    share smallint,
    unique_hash bytea,
    unique_mode smallint,
    retry json,
    subscription bigint,
    event_seq bigint,
    args json DEFAULT '{}'::json NOT NULL
)
PARTITION BY RANGE (class, id);


--
-- Name: call_lanes(postrider.job); Type: FUNCTION; Schema: postrider; Owner: -
--

CREATE FUNCTION postrider.call_lanes(j postrider.job) RETURNS void
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
begin
    insert into postrider.lane_call (queue, key)
    select j.queue, k.key from (values ('order:' || j.order_key), ('limit:' || j.limit_key)) k (key) where k.key is not null;
    if found then
        perform postrider.wake_for_lanes();
    end if;
end $$;


--
-- Name: call_limits(text, text); Type: FUNCTION; Schema: postrider; Owner: -
--

CREATE FUNCTION postrider.call_limits(queue text, key text) RETURNS void
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
begin
    insert into postrider.lane_call (queue, key, low)
    select l.queue, l.key, 9223372036854775807 from postrider.lane l
     where l.queue = call_limits.queue and l.key like 'limit:%' and call_limits.key = ''
    union all
    select call_limits.queue, 'limit:' || call_limits.key, 9223372036854775807 where call_limits.key <> '';
    perform postrider.wake_for_lanes();
end $$;


--
-- Name: cancel(bigint[], text); Type: FUNCTION; Schema: postrider; Owner: -
--

CREATE FUNCTION postrider.cancel(ids bigint[], reason text DEFAULT NULL::text) RETURNS TABLE(id bigint, effect text, state text)
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
begin
    perform postrider.check_isolation();
    return query select c.id, c.effect, c.state from postrider.cancel_within(ids, nullif(left(cancel.reason, 1000), ''), 30) c;
end $$;


--
-- Name: cancel_event(uuid, text); Type: FUNCTION; Schema: postrider; Owner: -
--

CREATE FUNCTION postrider.cancel_event(event uuid, reason text DEFAULT NULL::text) RETURNS text
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
declare
    v record;
    d postrider.event_delay;
    became postrider.fanout;
    says text := coalesce(nullif(left(reason, 1000), ''), 'the event was cancelled');
begin
    perform postrider.check_isolation();
    select e.seq, e.xid, e.type, e.owner into v from postrider.event e where e.seq = postrider.event_seq(event) and e.id = event;
    if not found then
        return 'unknown';
    end if;
    select * into d from postrider.event_delay x where x.seq = v.seq for update;
    if not found and v.xid = pg_current_xact_id_if_assigned() then
        insert into postrider.event_delay (seq, ended_at, ended_as, reason) values (v.seq, clock_timestamp(), 'cancelled', says);
        return 'cancelled';
    elsif d.ended_as = 'cancelled' then
        return 'cancelled';
    elsif d.seq is not null and d.ended_at is null then
        update postrider.event_delay x set ended_at = clock_timestamp(), ended_as = 'cancelled', reason = says where x.seq = v.seq;
        return 'cancelled';
    end if;
    became := postrider.await_fanout(event);
    if became.state = 'waiting' then
        perform postrider.refuse('PR005', 'event', 'the relay has not come to it yet', 'try again when it has: see postrider.await_fanout');
    elsif became.state <> 'done' or became.jobs = '{}' and became.aside = '{}'
          -- one of its jobs may stand for others, or another one for it
          or exists (select from postrider.route r where r.type = v.type and r.owner = any (array['', v.owner]) and r.coalescing)
    then
        return 'delivered';
    end if;
    begin
        if exists (select from postrider.cancel_within(became.jobs, says, 30) c where c.effect <> 'done')
           or exists (select from unnest(became.jobs) i join postrider.done x on x.class = (i & 3)::smallint and x.id = i where x.attempt > 0)
        then
            -- what was cancelled so far is taken back
            raise sqlstate 'PR999';
        end if;
    exception when sqlstate 'PR999' then
        return 'delivered';
    end;
    if became.aside <> '{}' then
        perform postrider.drop_poison(says, event);
    end if;
    return 'cancelled';
end $$;


--
-- Name: cancel_within(bigint[], text, integer); Type: FUNCTION; Schema: postrider; Owner: -
--

CREATE FUNCTION postrider.cancel_within(ids bigint[], reason text, looks integer) RETURNS TABLE(id bigint, effect text, state text)
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET jit TO 'off'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    AS $$
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


--
-- Name: cause_of(text); Type: FUNCTION; Schema: postrider; Owner: -
--

CREATE FUNCTION postrider.cause_of(said text) RETURNS uuid
    LANGUAGE plpgsql IMMUTABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $_$
begin
    if said !~* '^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$' then
        perform postrider.refuse('PR005', 'cause', format('%L, set as postrider.cause, is not the id of an event', left(said, 80)),
            'set it to an id that postrider.record answered, or to nothing');
    end if;
    return said::uuid;
end $_$;


--
-- Name: check_alike(text, text, interval, text, text, json); Type: FUNCTION; Schema: postrider; Owner: -
--

CREATE FUNCTION postrider.check_alike(unique_mode text, unique_key text, unique_for interval, on_duplicate text, idempotency_key text, retry json) RETURNS void
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
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


--
-- Name: check_cron(text); Type: FUNCTION; Schema: postrider; Owner: -
--

CREATE FUNCTION postrider.check_cron(cron text) RETURNS void
    LANGUAGE plpgsql IMMUTABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
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


--
-- Name: check_cron_field(text, text, integer, integer, integer, text[]); Type: FUNCTION; Schema: postrider; Owner: -
--

CREATE FUNCTION postrider.check_cron_field(field text, word text, col integer, lowest integer, highest integer, names text[]) RETURNS integer[]
    LANGUAGE plpgsql IMMUTABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $_$
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
end $_$;


--
-- Name: check_endpoint(json); Type: FUNCTION; Schema: postrider; Owner: -
--

CREATE FUNCTION postrider.check_endpoint(fields json) RETURNS void
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
declare
    stray text;
    wrong record;
begin
    select k into stray from json_object_keys(fields) k
     where k not in ('name', 'owner', 'url', 'types', 'predicate', 'order_by', 'order_policy', 'labels', 'max_in_flight', 'rate_starts',
                     'rate_per_ms', 'format', 'schedule', 'steps_ms', 'timeout_ms', 'max_attempts', 'on_4xx', 'answer_contains', 'header_names') limit 1;
    if found then
        perform postrider.refuse('PR005', stray, 'it is not a field of an endpoint', 'see postrider.put_endpoint');
    end if;
    select w.field, w.says, w.remedy into wrong from (values
        ('name', octet_length(fields ->> 'name') between 1 and 200 and fields ->> 'name' !~ '[\u0001-\u001f\u007f-\u009f]',
         'a name is 1 to 200 bytes of text without control characters', 'say what the endpoint is, for example billing'),
        ('url', octet_length(fields ->> 'url') between 1 and 2048, 'it has no url, or too long a one', 'use https://…'),
        ('order_by', fields ->> 'order_by' is null or fields ->> 'order_by' = 'subject', 'deliveries are in the order of their subjects or of none',
         'use subject, or leave it out'),
        ('labels', json_typeof(fields -> 'labels') = 'object' and octet_length((fields -> 'labels')::text) <= 4096,
         'labels are names and texts, at most 4096 bytes', 'use {"team": "billing"}'),
        ('max_in_flight', (fields ->> 'max_in_flight')::int between 1 and 32, 'it is not 1 to 32', 'leave it out for 5'),
        ('rate', (fields ->> 'rate_starts' is null) = (fields ->> 'rate_per_ms' is null), 'a rate is a number of starts and a period',
         'give both'),
        ('schedule', fields ->> 'steps_ms' is null or json_array_length(fields -> 'steps_ms') between 1 and 50,
         'a schedule is 1 to 50 waits', 'use the name of a schedule, or a list of waits'),
        ('timeout', (fields ->> 'timeout_ms')::int between 1000 and 60000, 'it is not 1 s to 60 s', 'leave it out for 15 s'),
        ('max_attempts', (fields ->> 'max_attempts')::int between 1 and 18, 'it is not 1 to 18', 'leave it out for all of them'),
        ('on_4xx', fields ->> 'on_4xx' in ('retry', 'discard'), 'it is not retry or discard', 'leave it out for retry')
    ) w (field, fine, says, remedy) where w.fine is not true limit 1;
    if found then
        perform postrider.refuse('PR005', wrong.field, wrong.says, wrong.remedy);
    end if;
end $$;


--
-- Name: check_escapes(text, text); Type: FUNCTION; Schema: postrider; Owner: -
--

CREATE FUNCTION postrider.check_escapes(field text, txt text) RETURNS void
    LANGUAGE plpgsql IMMUTABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
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


--
-- Name: check_event(text, text, json, integer); Type: FUNCTION; Schema: postrider; Owner: -
--

CREATE FUNCTION postrider.check_event(type text, subject text, data json, INOUT version integer, OUT mismatch text) RETURNS record
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
declare
    t record;
    compiled jsonb;
begin
    select e.subject, e.subject_fits, e.validation, e.version into t from postrider.event_type e where e.name = check_event.type;
    if subject !~ t.subject_fits then
        perform postrider.refuse('PR008', 'subject',
            format('%L does not fit %s, the form of the subjects of %s', left(subject, 80), t.subject, type),
            'a name in braces stands for one or more characters other than a slash');
    end if;
    if version is null then
        version := t.version;
        if version is null or t.validation = 'off' then
            return;
        end if;
    end if;
    -- out of its row as it is, or each look into it would unpack it again
    select v.compiled || case when jsonb_typeof(v.compiled) = 'object' then '{}'::jsonb end into compiled
      from postrider.type_version v where v.type = check_event.type and v.version = check_event.version;
    if not found then
        perform postrider.refuse('PR005', 'version', format('%s has no version %s', type, version),
            'declare it first, or leave the version out for the newest');
    end if;
    if t.validation = 'off' then
        return;
    end if;
    mismatch := postrider.schema_error(compiled, data::jsonb);
    if mismatch is not null then
        mismatch := left(regexp_replace(mismatch, '^ ', 'it '), 500);
        if t.validation = 'enforce' then
            perform postrider.refuse('PR008', 'data', format('%s (%s, version %s)', mismatch, type, version),
                'send what the schema of the type says, or declare a new version of it');
        end if;
    end if;
end $$;


--
-- Name: check_instance(text, text); Type: FUNCTION; Schema: postrider; Owner: -
--

CREATE FUNCTION postrider.check_instance(name text, app text) RETURNS boolean
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
begin
    perform postrider.check_name('instance', check_instance.name, true);
    update postrider.instance i set name = check_instance.name where i.name = '';
    if exists (select from postrider.instance i where i.name = check_instance.name) then
        return false;
    end if;
    insert into postrider.stranger as s (name, app) values (check_instance.name, check_instance.app)
    on conflict on constraint stranger_pkey do update set seen_at = excluded.seen_at;
    return true;
end $$;


--
-- Name: check_isolation(); Type: FUNCTION; Schema: postrider; Owner: -
--

CREATE FUNCTION postrider.check_isolation() RETURNS void
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
begin
    if current_setting('transaction_isolation') <> 'read committed' then
        perform postrider.refuse('PR010', 'transaction', 'it needs READ COMMITTED',
            'call it in a transaction of its own with the default isolation level');
    end if;
end $$;


--
-- Name: check_job(text, json, text, integer, integer, text); Type: FUNCTION; Schema: postrider; Owner: -
--

CREATE FUNCTION postrider.check_job(kind text, args json, queue text, priority integer, max_attempts integer, owner text) RETURNS boolean
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
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


--
-- Name: check_json(text, json); Type: FUNCTION; Schema: postrider; Owner: -
--

CREATE FUNCTION postrider.check_json(field text, data json) RETURNS void
    LANGUAGE plpgsql IMMUTABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
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


--
-- Name: check_keys(text, text, text); Type: FUNCTION; Schema: postrider; Owner: -
--

CREATE FUNCTION postrider.check_keys(order_key text, order_policy text, limit_key text) RETURNS void
    LANGUAGE plpgsql IMMUTABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
begin
    if octet_length(order_key) not between 1 and 200 then
        perform postrider.refuse('PR005', 'order_key', 'a key is 1 to 200 bytes', 'use a shorter key, or a hash');
    elsif octet_length(limit_key) not between 1 and 200 then
        perform postrider.refuse('PR005', 'limit_key', 'a key is 1 to 200 bytes', 'use a shorter key, or a hash');
    elsif order_policy is not null then
        if order_key is null then
            perform postrider.refuse('PR005', 'order_policy', 'a policy belongs to an order key', 'give order_key as well');
        end if;
        perform postrider.order_rule(order_policy);
    end if;
end $$;


--
-- Name: check_name(text, text, boolean); Type: FUNCTION; Schema: postrider; Owner: -
--

CREATE FUNCTION postrider.check_name(field text, name text, reserved boolean DEFAULT false) RETURNS void
    LANGUAGE plpgsql IMMUTABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $_$
begin
    if name is null or octet_length(name) > 200 or name !~ '^[a-z0-9_-]+(\.[a-z0-9_-]+)*$' then
        perform postrider.refuse('PR001', field, format('%L is not a name', left(name, 80)),
            'use lower-case segments of a-z, 0-9, _ and -, joined by single dots, 200 bytes at most');
    end if;
    if not reserved and (name like 'postrider.%' or name like 'webhook.%') then
        perform postrider.refuse('PR007', field, format('%L is reserved', name),
            'choose a name that does not begin with postrider. or webhook.');
    end if;
end $_$;


--
-- Name: check_owner(text); Type: FUNCTION; Schema: postrider; Owner: -
--

CREATE FUNCTION postrider.check_owner(owner text) RETURNS void
    LANGUAGE plpgsql IMMUTABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
begin
    if owner is null or octet_length(owner) > 200 or owner ~ '[\u0001-\u001f\u007f-\u009f]' then
        perform postrider.refuse('PR001', 'owner', 'an owner is at most 200 bytes of text without control characters',
            'leave it empty for the instance itself');
    end if;
end $$;


--
-- Name: check_predicate(text); Type: FUNCTION; Schema: postrider; Owner: -
--

CREATE FUNCTION postrider.check_predicate(predicate text) RETURNS jsonpath
    LANGUAGE plpgsql IMMUTABLE STRICT
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $_$
declare
    compiled jsonpath;
    stray text;
begin
    if octet_length(predicate) > 4000 then
        perform postrider.refuse('PR005', 'predicate', 'it is longer than 4000 bytes', 'decide the rest in the handler');
    end if;
    begin
        compiled := predicate::jsonpath;
    exception when others then
        perform postrider.refuse('PR005', 'predicate', format('it is not an SQL/JSON path: %s', sqlerrm),
            'write a path that is true or false, such as $.total > 100');
    end;
    -- as it is written back, names and texts stand in quotes, and before those of variables stands a dollar sign
    select m[2] into stray from regexp_matches(compiled::text, '(\$?)"((?:\\.|[^"\\])*)"', 'g') m
     where m[1] = '$' and m[2] not in ('type', 'owner', 'subject') limit 1;
    if stray is not null then
        perform postrider.refuse('PR005', 'predicate', format('it names a variable that is not there: $%s', stray),
            'use $type, $owner and $subject; $ is the data');
    end if;
    begin
        perform jsonb_path_match('{}', compiled, '{"type": "", "owner": "", "subject": ""}');
    exception
        when singleton_sql_json_item_required then
            perform postrider.refuse('PR005', 'predicate', 'it selects something, and is neither true nor false',
                'compare something: $.total > 100, or exists($.items[*] ? (@.price > 5))');
        when others then
            -- what it asks of this one document cannot be answered; of others it may be
            null;
    end;
    return compiled;
end $_$;


--
-- Name: check_retry(json); Type: FUNCTION; Schema: postrider; Owner: -
--

CREATE FUNCTION postrider.check_retry(retry json) RETURNS void
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $_$
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
end $_$;


--
-- Name: check_same(uuid, text, text, json); Type: FUNCTION; Schema: postrider; Owner: -
--

CREATE FUNCTION postrider.check_same(known_id uuid, type text, subject text, data json) RETURNS void
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
begin
    if exists (select from postrider.event e where e.seq = postrider.event_seq(known_id)
                  and (e.type, e.subject, e.data::text) is distinct from (check_same.type, check_same.subject, check_same.data::text))
    then
        perform postrider.refuse('PR006', 'idempotency_key', format('the key was used for another event, %s', known_id),
            'use a key for one event only, and send that one unchanged');
    end if;
end $$;


--
-- Name: check_start(text); Type: FUNCTION; Schema: postrider; Owner: -
--

CREATE FUNCTION postrider.check_start(start text) RETURNS timestamp with time zone
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $_$
declare
    since timestamptz;
begin
    if start is null or start = 'now' then
        return null;
    elsif start = 'beginning' then
        return '-infinity';
    end if;
    if start ~ '^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,6})?(Z|[+-][0-9]{2}:[0-9]{2})$' then
        begin
            since := start::timestamptz;
        exception when others then
            since := null;
        end;
    end if;
    if since is null then
        perform postrider.refuse('PR005', 'start', format('%L is not a start', left(start, 80)),
            'use now, beginning, or a time such as 2026-01-31T12:00:00Z');
    elsif since > clock_timestamp() then
        perform postrider.refuse('PR005', 'start', 'it lies in the future', 'use now; a subscription can have a delay');
    end if;
    return since;
end $_$;


--
-- Name: check_subscribed(text); Type: FUNCTION; Schema: postrider; Owner: -
--

CREATE FUNCTION postrider.check_subscribed(subscription text) RETURNS void
    LANGUAGE plpgsql STABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
begin
    if subscription is not null and not exists (select from postrider.subscription s where s.name = check_subscribed.subscription) then
        perform postrider.refuse('PR004', 'subscription', format('%L was never declared', left(subscription, 80)),
            'use the name of a subscription, or null for all of them');
    end if;
end $$;


--
-- Name: check_tags(text[]); Type: FUNCTION; Schema: postrider; Owner: -
--

CREATE FUNCTION postrider.check_tags(tags text[]) RETURNS void
    LANGUAGE plpgsql IMMUTABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
begin
    if cardinality(tags) > 10 then
        perform postrider.refuse('PR005', 'tags', format('%s are too many', cardinality(tags)), 'use 10 tags at most');
    elsif exists (select from unnest(tags) t where t is null or octet_length(t) not between 1 and 100 or t ~ '[\u0001-\u001f\u007f-\u009f]') then
        perform postrider.refuse('PR005', 'tags', 'a tag is 1 to 100 bytes of text without control characters', 'use shorter ones');
    end if;
end $$;


--
-- Name: check_type(json, text, text, text); Type: FUNCTION; Schema: postrider; Owner: -
--

CREATE FUNCTION postrider.check_type(said json, exposure text, validation text, subject text) RETURNS void
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $_$
declare
    stray text;
begin
    select k into stray from json_object_keys(said) k
     where k not in ('name', 'description', 'exposure', 'subject', 'validation', 'versions', 'deprecated') limit 1;
    if found then
        perform postrider.refuse('PR005', stray, 'it is not an option of a type',
            'use name, description, exposure, subject, validation, versions, deprecated');
    elsif exposure not in ('internal', 'public') then
        perform postrider.refuse('PR005', 'exposure', format('%L is not an exposure', exposure), 'use internal or public');
    elsif validation not in ('off', 'warn', 'enforce') then
        perform postrider.refuse('PR005', 'validation', format('%L is not a validation', validation), 'use off, warn or enforce');
    end if;
    perform postrider.subject_regex(subject);
    if coalesce(json_typeof(said -> 'versions'), 'null') not in ('array', 'null') then
        perform postrider.refuse('PR005', 'versions', 'it is not an array', 'give an array of {version, schema, example}');
    elsif json_typeof(said -> 'versions') = 'array' then
        perform postrider.check_version(said ->> 'name', v) from json_array_elements(said -> 'versions') v;
        if (select count(*) <> count(distinct v ->> 'version') from json_array_elements(said -> 'versions') v) then
            perform postrider.refuse('PR006', 'versions', format('%s has a version twice', said ->> 'name'), 'declare it once');
        end if;
    end if;
    if coalesce(json_typeof(said -> 'deprecated'), 'null') not in ('object', 'null') then
        perform postrider.refuse('PR005', 'deprecated', 'it is not an object', 'give {on, note, replaced_by}');
    elsif json_typeof(said -> 'deprecated') = 'object' then
        select k into stray from json_object_keys(said -> 'deprecated') k where k not in ('on', 'note', 'replaced_by') limit 1;
        if found or coalesce(said -> 'deprecated' ->> 'on', '') !~ '^\d{4}-(0[1-9]|1[0-2])-(0[1-9]|[12]\d|3[01])$' then
            perform postrider.refuse('PR005', 'deprecated', 'it does not say since when',
                'give {on: "2026-01-31", note, replaced_by}, the first of them at least');
        end if;
    end if;
end $_$;


--
-- Name: check_version(text, json); Type: FUNCTION; Schema: postrider; Owner: -
--

CREATE FUNCTION postrider.check_version(type text, said json) RETURNS void
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $_$
declare
    stray text;
begin
    if json_typeof(said) <> 'object' then
        perform postrider.refuse('PR005', 'versions', format('a version of %s is not an object', type), 'give {version, schema, example}');
    end if;
    select k into stray from json_object_keys(said) k where k not in ('version', 'schema', 'example', 'breaking') limit 1;
    if found then
        perform postrider.refuse('PR005', stray, 'it is not an option of a version', 'use version, schema, example, breaking');
    elsif coalesce(said ->> 'version', '') !~ '^[1-9][0-9]{0,4}$' or length(said ->> 'version') = 5 and said ->> 'version' > '32767' then
        perform postrider.refuse('PR005', 'version', format('%s has a version that is no number of one', type), 'use 1 to 32767');
    elsif coalesce(said ->> 'breaking', 'true') not in ('true', 'false') then
        perform postrider.refuse('PR005', 'breaking', 'it is neither true nor false', 'use true or false');
    elsif said -> 'schema' is null or said -> 'example' is null then
        perform postrider.refuse('PR005', case when said -> 'schema' is null then 'schema' else 'example' end,
            format('version %s of %s has none', said ->> 'version', type), 'give a schema, and an example that fits it');
    end if;
    perform postrider.check_json('schema', said -> 'schema');
    perform postrider.check_json('example', said -> 'example');
    if octet_length(said ->> 'schema') > 65536 then
        perform postrider.refuse('PR002', 'schema', format('it has %s bytes, the limit is 65536', octet_length(said ->> 'schema')),
            'describe less: an event is thin');
    end if;
end $_$;


--
-- Name: check_watched(oid); Type: FUNCTION; Schema: postrider; Owner: -
--

CREATE FUNCTION postrider.check_watched(relation oid) RETURNS void
    LANGUAGE plpgsql STABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $_$
declare
    c pg_class;
begin
    select * into c from pg_class p where p.oid = check_watched.relation;
    if c.oid is null then
        perform postrider.refuse('PR005', 'relation', 'there is no such table', 'create the table first, and name it with its schema');
    elsif c.relkind not in ('r', 'p') or c.relpersistence = 't' or c.relnamespace::regnamespace::text in ('pg_catalog', 'information_schema') then
        perform postrider.refuse('PR005', 'relation', format('%s is not a table that lasts', c.oid::regclass),
            'watch a table; of a view, watch the tables under it');
    elsif c.relnamespace = 'postrider'::regnamespace then
        perform postrider.refuse('PR005', 'relation', format('%s belongs to Postrider', c.oid::regclass), 'watch a table of your own');
    elsif c.relispartition then
        perform postrider.refuse('PR005', 'relation', format('%s is a partition', c.oid::regclass),
            format('watch the table that it is a partition of, %s', pg_partition_root(c.oid)));
    elsif (postrider.watch_key(c.oid)).columns is null then
        perform postrider.refuse('PR005', 'relation', format('%s has no primary key', c.oid::regclass),
            format('give it one, such as: alter table %s add primary key (id)', c.oid::regclass));
    elsif not has_schema_privilege(c.relowner, c.relnamespace, 'create') then
        perform postrider.refuse('PR005', 'relation',
            format('%s, who owns %s, may not create a function in its schema', c.relowner::regrole, c.oid::regclass),
            format('grant create on schema %s to %s', c.relnamespace::regnamespace, c.relowner::regrole));
    elsif not has_schema_privilege(c.relowner, 'postrider', 'usage')
        or not has_function_privilege(c.relowner, 'postrider.record_rows(text[], text[], text[], json[], json[], boolean)', 'execute')
    then
        perform postrider.refuse('PR005', 'relation',
            format('%s, who owns %s, may not record events', c.relowner::regrole, c.oid::regclass),
            format('grant usage on schema postrider to %1$s; grant execute on function postrider.record_rows to %1$s', c.relowner::regrole));
    end if;
end $_$;


--
-- Name: check_watches(); Type: FUNCTION; Schema: postrider; Owner: -
--

CREATE FUNCTION postrider.check_watches() RETURNS TABLE(watch text, relation text, severity text, problem text, says text, remedy text)
    LANGUAGE plpgsql STABLE SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
declare
    w postrider.watch;
    c pg_class;
    label text;
begin
    for w in select * from postrider.watch v order by v.name loop
        watch := w.name;
        relation := w.relation;
        label := postrider.watch_label(w.name);
        severity := 'critical';
        select * into c from pg_class v where v.oid = coalesce(to_regclass(w.relation), w.relid);
        if c.oid is null then
            return query select watch, relation, severity, 'gone', 'the table is not there any more',
                format('end the watch: postrider.unwatch(%L)', w.name);
            continue;
        end if;
        w.relid := c.oid;
        return query select watch, relation, f.severity, f.problem, f.says, f.remedy from postrider.watch_faults(w, c, label) f;
        return query select watch, relation, 'hole', f.problem, f.says, f.remedy from postrider.watch_holes(c) f;
    end loop;
    return query
        select ''::text, t.tgrelid::regclass::text, 'warning', 'orphan', format('trigger %I belongs to no watch', t.tgname),
               format('drop trigger %I on %s', t.tgname, t.tgrelid::regclass)
          from pg_trigger t join pg_proc f on f.oid = t.tgfoid
         where f.proname like 'postrider\_watch\_%' and not exists (
               select from postrider.watch v where postrider.watch_label(v.name) = f.proname
                  and t.tgrelid = coalesce(to_regclass(v.relation), v.relid));
end $$;


--
-- Name: claim(uuid, bigint, text, text[], integer, smallint[], smallint[], bigint[], integer, bigint[]); Type: FUNCTION; Schema: postrider; Owner: -
--

CREATE FUNCTION postrider.claim(worker uuid, call bigint, queue text, kinds text[], most integer, priorities smallint[], shares smallint[], positions bigint[], in_line integer DEFAULT 0, turned bigint[] DEFAULT NULL::bigint[]) RETURNS SETOF postrider.claimed
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET jit TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    AS $$
#variable_conflict use_column
declare
    turns postrider.ready[];
    moved boolean := false;
begin
    if current_setting('transaction_isolation') <> 'read committed' then
        perform postrider.check_isolation();
    end if;
    if exists (select from postrider.instance i where i.outbound_paused_at is not null) then
        claim.kinds := postrider.without_held(claim.kinds);
    end if;
    if exists (
        select from unnest(claim.priorities, claim.shares, claim.positions, claim.turned) p (priority, share, pos, turned)
         where (select true from postrider.ready r where r.queue = claim.queue and r.priority = p.priority and r.share = p.share
                   and r.pos + 0 >= p.pos and r.flags & 32 <> 0 order by r.pos + 0 limit 1)
            or (select true from postrider.ready r where r.queue = claim.queue and r.priority = p.priority and r.share = p.share
                   and r.pos + 0 >= coalesce(p.turned, 0) and r.flags & 2 <> 0 order by r.pos + 0 limit 1))
    then
        select t.turns, t.moved into turns, moved
          from postrider.take_turns(claim.queue, claim.most, claim.priorities, claim.shares, claim.positions, claim.kinds, claim.in_line,
               claim.turned) t;
        claim.most := 0;
    end if;
    return query
    with picked as (
        delete from postrider.ready r
         where r.ctid = any (array(
            select x.place
              from unnest(claim.priorities, claim.shares, claim.positions) with ordinality p (priority, share, pos, o)
             cross join lateral (
                select y.ctid as place from postrider.ready y
                 where y.queue = claim.queue and y.priority = p.priority and y.share = p.share and y.pos >= p.pos
                   -- what a producer holds is passed by: it may not keep the slots from what waits behind it
                   and (y.flags & 16 = 0 or postrider.hold_group(y.id)) and y.flags & 32 = 0
                 order by y.pos limit claim.most for update skip locked) x
             where not exists (select from postrider.queue q where q.name = claim.queue and q.paused_at is not null)
             limit claim.most))
        returning r.*
    ), found as materialized (
        select p.*, coalesce(j.kind, '?') as kind, j.max_attempts, j.owner, j.created_at, j.args, j.subscription, j.event_seq,
               j.retry, j.unique_hash, coalesce(j.run_at, j.created_at) as due_at, j.limit_key
          from (select * from picked union all select * from unnest(turns)) p
          left join postrider.job j on j.class = (p.id & 3)::smallint and j.id = p.id
    ), gate as materialized (
        -- the row as its last holder left it
        select f.id, f.pos, u.hash, u.mode, u.job, u.running
          from found f join postrider.uniq u on u.hash = f.unique_hash
         where f.flags & 16 <> 0
           for no key update of u skip locked
    ), turn as materialized (
        select g.id, g.hash, g.mode, g.job,
               -- the one that is not over goes before the one behind it, wherever both stand now
               g.mode = 1 or case when g.running is null then g.pos = min(g.pos) over (partition by g.hash)
                                  else g.running = g.id end as goes
          from gate g
    ), known as materialized (
        select f.id, (f.attempt + 1)::smallint as attempt, f.losses, f.flags, f.priority, f.share, f.pos, f.order_key,
               case when f.flags & 12 <> 0 then f.pos else 0 end as batch,
               f.kind, f.max_attempts, f.owner, f.created_at, f.args, f.subscription, f.event_seq, f.retry, f.unique_hash, f.due_at,
               f.limit_key,
               case when not coalesce(f.kind = any (claim.kinds), false) then 'unknown'
                    when f.flags & 128 <> 0 then 'strict'
                    when f.flags & 16 = 0 then 'mine'
                    when t.goes then 'mine'
                    when t.id is not null then 'behind'
                    when exists (select from postrider.uniq u where u.hash = f.unique_hash) then 'held'
                    else 'mine' end as verdict
          from found f left join turn t on t.id = f.id
    ), parked as (
        insert into postrider.parked (queue, key, pos, id, priority, share, attempt, losses, flags, order_key)
        select claim.queue,
               case k.verdict when 'unknown' then 'kind:' || k.kind when 'strict' then 'strict:'
                              else 'unique:' || encode(k.unique_hash, 'hex') end,
               k.pos, k.id, k.priority, k.share, (k.attempt - 1)::smallint, k.losses,
               case k.verdict when 'strict' then k.flags & ~128::smallint else postrider.flags_of_waiting(k.flags) end,
               k.order_key
          from known k where k.verdict in ('unknown', 'strict', 'behind')
        returning 1
    ), held as (
        insert into postrider.ready (queue, priority, share, pos, id, attempt, losses, flags, order_key)
        select claim.queue, k.priority, k.share, k.pos, k.id, (k.attempt - 1)::smallint, k.losses, k.flags, k.order_key
          from known k where k.verdict = 'held'
    ), called as (
        -- it had been let in and does not run: another one may
        insert into postrider.lane_call (queue, key)
        select claim.queue, 'limit:' || k.limit_key from known k where k.limit_key is not null and k.verdict in ('unknown', 'strict', 'behind')
    ), started as (
        update postrider.uniq u set job = nullif(u.job, t.id), running = t.id
          from turn t join known k on k.id = t.id and k.verdict = 'mine'
         where u.hash = t.hash and (t.mode = 5 or t.job = t.id)
    ), batches as materialized (
        select b.batch, nextval('postrider.lease_id') as lease
          from (select distinct k.batch from known k where k.verdict = 'mine') b
    ), granted as (
        insert into postrider.lease (id, worker, call, queue, ids, positions, attempts, losses, flags, priorities, shares,
                                     order_keys, limit_keys, special, open)
        select b.lease, claim.worker, claim.call, claim.queue, array_agg(k.id), array_agg(k.pos), array_agg(k.attempt),
               array_agg(k.losses), array_agg(k.flags), array_agg(k.priority), array_agg(k.share),
               case when count(k.order_key) > 0 then array_agg(k.order_key) end,
               case when count(k.limit_key) > 0 then array_agg(k.limit_key) end, bool_or(k.flags & 49 <> 0 or k.attempt > 20),
               array_agg(k.id)
          from batches b join known k on k.batch = b.batch and k.verdict = 'mine'
         group by b.lease
    )
    select b.lease, k.id, k.attempt, k.kind, claim.queue, k.priority, k.share, k.pos, k.max_attempts, k.owner, k.created_at,
           k.args, k.subscription, e.id, e.type, e.version, e.traceparent, e.owner, e.subject, e.cause, e.occurred_at, e.recorded_at, e.data, clock_timestamp(),
           k.due_at, k.retry, k.order_key, k.limit_key, moved or exists (select from parked)
      from known k
      join batches b on b.batch = k.batch
      left join postrider.event e on e.seq = k.event_seq
     where k.verdict = 'mine'
    union all
    select null, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null,
           null, null, null, null, null, null, null, true
     where (moved or exists (select from parked)) and not exists (select from batches);
end $$;


--
-- Name: clear_deleted(integer); Type: FUNCTION; Schema: postrider; Owner: -
--

CREATE FUNCTION postrider.clear_deleted(most integer) RETURNS void
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET jit TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    AS $$
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


--
-- Name: clear_ready(text, text, integer); Type: FUNCTION; Schema: postrider; Owner: -
--

CREATE FUNCTION postrider.clear_ready(lane_queue text, lane_key text, most integer) RETURNS void
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET jit TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    AS $$
declare
    l record;
    lowest bigint;
    highest bigint;
begin
    select x.*, x.ctid as place into l from postrider.lane x where x.queue = lane_queue and x.key = lane_key order by x.gen desc limit 1;
    with away as (
        delete from postrider.ready r where r.ctid = any (array(
            select x.ctid from postrider.ready x
             where x.queue = lane_queue and x.order_key = substr(lane_key, 7) and x.flags & 34 = 32 and x.pos = x.id
               and x.id >= greatest(l.low_ready, l.cleared)
             order by x.id limit clear_ready.most for update skip locked))
        returning r.*
    ), waiting as (
        insert into postrider.parked (queue, key, pos, id, priority, share, attempt, losses, flags, order_key)
        select w.queue, lane_key, w.id, w.id, w.priority, w.share, w.attempt, w.losses,
               postrider.flags_of_waiting(w.flags), w.order_key from away w
        returning id
    )
    select min(w.id), max(w.id) into lowest, highest from waiting w;
    update postrider.lane x set low_parked = least(x.low_parked, lowest), cleared = greatest(x.cleared, highest)
     where x.ctid = l.place and highest is not null;
end $$;


--
-- Name: coalesce_events(timestamp with time zone, bigint[], text[], text[], bigint[]); Type: FUNCTION; Schema: postrider; Owner: -
--

CREATE FUNCTION postrider.coalesce_events(at timestamp with time zone, seqs bigint[], types text[], owners text[], subscriptions bigint[]) RETURNS integer
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET jit TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    AS $$
declare
    m record;
    new_id bigint;
    of_job bigint;
    made int := 0;
begin
    for m in
        select l.*, postrider.unique_hash(1::smallint, l.kind, l.owner, 'subscription:' || l.subscription || ':' || l.subject, null) as hash
          from (select distinct on (t.subscription, t.owner, t.subject) t.*
                  from postrider.matches(coalesce_events.at, coalesce_events.seqs, coalesce_events.types, coalesce_events.owners,
                                         coalesce_events.subscriptions) t
                 where t.coalescing order by t.subscription, t.owner, t.subject, t.seq desc) l
         order by hash
    loop
        new_id := (pg_sequence_last_value('postrider.job_epoch'::regclass) << 46) | (nextval('postrider.job_number') << 2) | m.class;
        of_job := postrider.take_unique(m.hash, 1::smallint, new_id, null);
        continue when of_job <> new_id and postrider.refer_to(of_job, m.seq);
        insert into postrider.job (class, id, kind, queue, priority, max_attempts, owner, run_at, subscription, event_seq,
                                   order_key, order_rule, limit_key, share, unique_hash, unique_mode)
        select m.class, new_id, m.kind, m.queue, m.priority, m.max_attempts, m.owner, m.run_at, m.subscription, m.seq,
               m.order_key, m.order_rule, m.limit_key, m.share, case when of_job = new_id then m.hash end,
               case when of_job = new_id then 1 end;
        insert into postrider.ready (queue, priority, share, pos, id, flags, order_key)
        select m.queue, m.priority, coalesce(m.share, 0), new_id, new_id, f.flags, m.order_key
          from postrider.flags_of_event_job(of_job = new_id, m.order_key, m.limit_key) f (flags) where m.run_at is null;
        insert into postrider.later (run_at, id, queue, priority, share, flags, order_key)
        select m.run_at, new_id, m.queue, m.priority, coalesce(m.share, 0), f.flags, m.order_key
          from postrider.flags_of_event_job(of_job = new_id, m.order_key, m.limit_key) f (flags) where m.run_at is not null;
        made := made + 1;
    end loop;
    return made;
end $$;


--
-- Name: compile_keyword(text, jsonb, text); Type: FUNCTION; Schema: postrider; Owner: -
--

CREATE FUNCTION postrider.compile_keyword(k text, v jsonb, at text) RETURNS jsonb
    LANGUAGE plpgsql IMMUTABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $_$
declare
    made text;
    kind text := jsonb_typeof(v);
begin
    if k = 'type' then
        if kind = 'string' then
            v := jsonb_build_array(v);
        end if;
        if jsonb_typeof(v) <> 'array' or v = '[]'
           or not v <@ '["object", "array", "string", "number", "integer", "boolean", "null"]' then
            perform postrider.refuse_schema(at, 'is not a type',
                'use object, array, string, number, integer, boolean, null, or some of them in an array');
        end if;
    elsif k = 'enum' then
        if kind <> 'array' or v = '[]' then
            perform postrider.refuse_schema(at, 'is not a list of values', 'give an array of at least one');
        end if;
    elsif k = 'required' then
        if kind <> 'array' or exists (select from jsonb_array_elements(v) e where jsonb_typeof(e) <> 'string') then
            perform postrider.refuse_schema(at, 'is not a list of names', 'give an array of strings');
        end if;
    elsif k in ('minimum', 'maximum', 'exclusiveMinimum', 'exclusiveMaximum', 'multipleOf') then
        if kind <> 'number' or k = 'multipleOf' and v <= '0' then
            perform postrider.refuse_schema(at, 'is not a number that it can be', 'give a number, for multipleOf one above 0');
        end if;
    elsif k in ('minLength', 'maxLength', 'minItems', 'maxItems', 'minProperties', 'maxProperties') then
        if kind <> 'number' or v < '0' or v > '1000000000' then
            perform postrider.refuse_schema(at, 'is not a count', 'give an integer from 0 to 1000000000');
        elsif v::numeric % 1 <> 0 then
            perform postrider.refuse_schema(at, 'is not a count', 'give an integer from 0 to 1000000000');
        end if;
    elsif k = 'uniqueItems' then
        if kind <> 'boolean' then
            perform postrider.refuse_schema(at, 'is neither true nor false', 'give true or false');
        end if;
    elsif k = 'pattern' then
        made := case when kind = 'string' then postrider.schema_pattern(v #>> '{}') end;
        if made is null then
            perform postrider.refuse_schema(at, 'is not a pattern that can be checked',
                'use literals, ., classes, \d, \w, groups, |, ^, $, *, +, ? and {m,n} up to 255, all bounds multiplied up to 10000');
        end if;
        v := to_jsonb(made);
    elsif k <> 'const' then
        perform postrider.refuse_schema(at, 'is a keyword that is not supported', 'leave it out: what is not checked must not look as if it were');
    end if;
    return v;
end $_$;


--
-- Name: compile_parts(jsonb, jsonb, text, text[], integer); Type: FUNCTION; Schema: postrider; Owner: -
--

CREATE FUNCTION postrider.compile_parts(root jsonb, parts jsonb, at text, seen text[], level integer) RETURNS jsonb
    LANGUAGE plpgsql IMMUTABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
declare
    made jsonb;
begin
    if jsonb_typeof(parts) = 'array' then
        select jsonb_agg(postrider.compile_schema(root, p, at || '/' || (n - 1), seen, level + 1) order by n) into made
          from jsonb_array_elements(parts) with ordinality u (p, n);
    elsif jsonb_typeof(parts) = 'object' then
        select coalesce(jsonb_object_agg(p.key,
                   postrider.compile_schema(root, p.value, at || '/' || replace(replace(p.key, '~', '~0'), '/', '~1'), seen, level + 1)), '{}')
          into made from jsonb_each(parts) p;
    else
        perform postrider.refuse_schema(at, 'holds no schemas', 'give an object of them');
    end if;
    return made;
end $$;


--
-- Name: compile_reference(jsonb, jsonb, text, text[], integer); Type: FUNCTION; Schema: postrider; Owner: -
--

CREATE FUNCTION postrider.compile_reference(root jsonb, reference jsonb, at text, seen text[], level integer) RETURNS jsonb
    LANGUAGE plpgsql IMMUTABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $_$
declare
    name text := reference #>> '{}';
    made jsonb;
begin
    if jsonb_typeof(reference) <> 'string' or name !~ '^#/\$defs/[A-Za-z0-9_.-]+$' or root -> '$defs' -> substr(name, 9) is null then
        perform postrider.refuse_schema(at, 'leads nowhere', 'refer to a part of this schema: #/$defs/name');
    elsif name = any (seen) then
        perform postrider.refuse_schema(at, 'leads back to itself', 'data of an event has an end: write the levels out that it may have');
    end if;
    made := postrider.compile_schema(root, root -> '$defs' -> substr(name, 9), name, seen || name, level + 1);
    if octet_length(made::text) > 131072 then
        perform postrider.refuse_schema(at, 'becomes larger than 131072 bytes where it is put in', 'refer to it less often');
    end if;
    return made;
end $_$;


--
-- Name: compile_routes(bigint[], text[]); Type: FUNCTION; Schema: postrider; Owner: -
--

CREATE FUNCTION postrider.compile_routes(subscriptions bigint[], types text[]) RETURNS void
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET jit TO 'off'
    AS $$
declare
    ids bigint[] := subscriptions;
    names text[] := array(select e.name from postrider.event_type e);
begin
    -- these for all types, then all for these types, apart: one statement that said `or` would walk all of them for each that is put
    delete from postrider.route r where r.subscription = any (compile_routes.subscriptions);
    delete from postrider.route r where r.type = any (compile_routes.types);
    for pass in 1..2 loop
        insert into postrider.route (type, owner, subscription, kind, queue, priority, max_attempts, class, delay_ms, limit_key, fair,
                                     predicate, order_by, order_rule, order_name, coalescing, starting, reads)
        select t.name, s.owner, s.id, s.kind, k.queue, k.priority, k.max_attempts, k.class, s.delay_ms, coalesce(s.limit_key, k.limit_key), k.fair,
               s.predicate, s.order_by, case when s.order_by is not null then postrider.order_rule(coalesce(s.order_policy, k.order_policy)) end,
               case when s.order_by is not null then s.name end, s.coalescing,
               exists (select from postrider.subscription_start b where b.subscription = s.id and b.over_at is null),
               s.predicate is not null or s.coalescing or s.order_by is not distinct from 'subject'
          from postrider.subscription s
          join postrider.kind k on k.name = s.kind
          join postrider.event_type t on t.name = any (names)
         where s.id = any (ids) and s.removed_at is null
           and (not s.outward or t.exposure = 'public')
           -- what Postrider tells of itself goes to whoever names it, and not to whoever wants everything
           and exists (select from unnest(s.types) u where t.name ~ postrider.pattern_regex(u)
                          and (u like 'postrider.%' or t.name not like 'postrider.%'))
            on conflict do nothing;
        exit when types = '{}';
        ids := array(select e.id from postrider.subscription e where e.removed_at is null);
        names := types;
    end loop;
end $$;


--
-- Name: compile_schema(jsonb, jsonb, text, text[], integer); Type: FUNCTION; Schema: postrider; Owner: -
--

CREATE FUNCTION postrider.compile_schema(root jsonb, schema jsonb, at text DEFAULT '#'::text, seen text[] DEFAULT '{}'::text[], level integer DEFAULT 0) RETURNS jsonb
    LANGUAGE plpgsql IMMUTABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $_$
declare
    made jsonb := '{}';
    aim jsonb;
    k text;
    v jsonb;
begin
    if jsonb_typeof(schema) = 'boolean' then
        return schema;
    elsif jsonb_typeof(schema) <> 'object' then
        perform postrider.refuse_schema(at, 'is not a schema', 'give an object, or true or false');
    elsif level > 32 then
        perform postrider.refuse_schema(at, 'is nested deeper than 32 levels', 'flatten it');
    end if;
    for k, v in select e.key, e.value from jsonb_each(schema) e loop
        if k in ('title', 'description', 'default', 'examples', 'deprecated', 'readOnly', 'writeOnly', '$comment', 'format')
           or at = '#' and k = '$id' then
            continue;
        elsif at = '#' and k = '$schema' then
            if v <> '"https://json-schema.org/draft/2020-12/schema"' then
                perform postrider.refuse_schema('#/$schema', 'is another dialect', 'use https://json-schema.org/draft/2020-12/schema');
            end if;
        elsif at = '#' and k = '$defs' then
            perform postrider.compile_parts(root, v, '#/$defs', array['#'], level);
        elsif k = '$ref' then
            aim := postrider.compile_reference(root, v, at || '/$ref', seen, level);
        elsif k in ('additionalProperties', 'items', 'not') then
            made := made || jsonb_build_object(k, postrider.compile_schema(root, v, at || '/' || k, seen, level + 1));
        elsif k = 'properties' or k in ('allOf', 'anyOf', 'oneOf') then
            if jsonb_typeof(v) <> (case k when 'properties' then 'object' else 'array' end) or v = '[]' then
                perform postrider.refuse_schema(at || '/' || k, 'holds no schemas', 'properties is an object, the others an array of at least one');
            end if;
            made := made || jsonb_build_object(k, postrider.compile_parts(root, v, at || '/' || k, seen, level));
        else
            made := made || jsonb_build_object(k, postrider.compile_keyword(k, v, at || '/' || k));
        end if;
    end loop;
    if aim is not null then
        made := case when made = '{}' then aim
                     else made || jsonb_build_object('allOf', coalesce(made -> 'allOf', '[]') || jsonb_build_array(aim)) end;
    end if;
    return made;
end $_$;


--
-- Name: cool_endpoint(bigint, timestamp with time zone, text); Type: FUNCTION; Schema: postrider; Owner: -
--

CREATE FUNCTION postrider.cool_endpoint(id bigint, until timestamp with time zone, reason text) RETURNS void
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
begin
    if not exists (select from postrider.key_limit l where l.queue = 'webhook' and l.key = postrider.endpoint_key(cool_endpoint.id)
                      and l.held_until >= cool_endpoint.until) then
        perform postrider.hold('webhook', postrider.endpoint_key(cool_endpoint.id), cool_endpoint.until, cool_endpoint.reason);
    end if;
end $$;


--
-- Name: count_jobs(integer); Type: FUNCTION; Schema: postrider; Owner: -
--

CREATE FUNCTION postrider.count_jobs(most integer) RETURNS TABLE(kind text, queue text, state text, n bigint, more boolean)
    LANGUAGE plpgsql STABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET jit TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    AS $$
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


--
-- Name: count_relayed(); Type: FUNCTION; Schema: postrider; Owner: -
--

CREATE FUNCTION postrider.count_relayed() RETURNS bigint
    LANGUAGE sql STABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET jit TO 'off'
    AS $$
    select count(*)
      from (select * from postrider.cut order by no desc limit 1) c
      join postrider.log_epoch l on l.no = c.epoch
     cross join postrider.event e
     where case when e.seq <= l.floor_seq
                then e.xid <> all (l.late) and not exists (select from postrider.rebased r where r.seq = e.seq and r.cut is null)
                else (pg_visible_in_snapshot(e.xid, coalesce(c.lo, c.hi)) or c.more and e.seq <= c.last_seq and pg_visible_in_snapshot(e.xid, c.hi))
                     and not exists (select from postrider.backlog b where b.over_at is null and e.xid = any (b.xids) and e.seq > b.after) end
$$;


--
-- Name: cut_hash(bytea, postrider.cut); Type: FUNCTION; Schema: postrider; Owner: -
--

CREATE FUNCTION postrider.cut_hash(previous bytea, c postrider.cut) RETURNS bytea
    LANGUAGE sql IMMUTABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    RETURN sha256(convert_to(concat_ws('|'::text, encode(previous, 'hex'::text), (c).no, (c).from_no, (c).epoch, ((c).hi)::text, ((c).lo)::text, ((c).more)::text, (c).n, (c).jobs, (c).aside, ((c).elsewhere)::text, (c).events_total, (c).jobs_total, (c).first_seq, (c).last_seq, encode((c).digest, 'hex'::text), encode((c).joined, 'hex'::text), ('apart '::text || ((c).apart)::text), ('backlog '::text || (c).backlog), ('start '::text || (c).start), (c).part_after, (c).part_upto), 'UTF8'::name));


--
-- Name: declaration_wins(text, text, bigint, bigint, boolean); Type: FUNCTION; Schema: postrider; Owner: -
--

CREATE FUNCTION postrider.declaration_wins(what text, name text, mine bigint, theirs bigint, same boolean) RETURNS boolean
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
begin
    if theirs is null or mine > theirs then
        return true;
    end if;
    if mine = theirs and not same then
        perform postrider.refuse('PR006', what, format('%L is already declared in another way with generation %s', name, mine),
            'declare the same, or raise the generation of the application');
    end if;
    return false;
end $$;


--
-- Name: declare(json); Type: FUNCTION; Schema: postrider; Owner: -
--

CREATE FUNCTION postrider.declare(declarations json) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
declare
    app text := coalesce(declarations ->> 'app', '');
    gen bigint := coalesce((declarations ->> 'generation')::bigint, 0);
    -- the library declares kinds of its own components, whose names are reserved
    own boolean := coalesce((declarations ->> 'own')::boolean, false);
    x record;
    k postrider.kind;
    new_types text[];
    new_kinds text[] := '{}';
begin
    perform postrider.lock_declarations();
    new_types := postrider.declare_types(coalesce(declarations -> 'types', '[]'), app, gen, own);

    for x in select j ->> 'name' as name, coalesce(j ->> 'queue', 'default') as queue,
                    coalesce((j ->> 'priority')::smallint, 2::smallint) as priority,
                    coalesce((j ->> 'max_attempts')::smallint, 10::smallint) as max_attempts,
                    coalesce((j ->> 'timeout_ms')::bigint, 60000) as timeout_ms,
                    coalesce(j -> 'retry', '{}') as retry,
                    array_position(array['short', 'standard', 'long'], coalesce(j ->> 'class', 'standard'))::smallint as class,
                    j ->> 'unique_mode' as unique_mode, (j ->> 'unique_for_ms')::bigint as unique_for_ms,
                    coalesce((j ->> 'max_age_ms')::bigint, 604800000) as max_age_ms,
                    coalesce(j ->> 'order_policy', 'block') as order_policy, coalesce((j ->> 'fair')::boolean, false) as fair,
                    case when json_typeof(j -> 'limit') = 'object' then j -> 'limit' end as cap
               from json_array_elements(coalesce(declarations -> 'kinds', '[]')) j
    loop
        perform postrider.check_name('kind', x.name, own);
        perform postrider.check_name('queue', x.queue, true);
        if x.priority not between 1 and 4 then
            perform postrider.refuse('PR005', 'priority', format('%s is not a priority', x.priority), 'use 1 (first) to 4 (last)');
        elsif x.max_attempts not between 1 and 1000 then
            perform postrider.refuse('PR005', 'max_attempts', format('%s is out of range', x.max_attempts), 'use 1 to 1000');
        elsif x.timeout_ms < 1 then
            perform postrider.refuse('PR005', 'timeout_ms', format('%s is out of range', x.timeout_ms), 'use 1 or more milliseconds');
        elsif x.max_age_ms < 1 then
            perform postrider.refuse('PR005', 'max_age_ms', format('%s is out of range', x.max_age_ms), 'use 1 or more milliseconds');
        elsif x.class is null then
            perform postrider.refuse('PR005', 'class', 'it is not a retention class', 'use short, standard or long');
        end if;
        perform postrider.check_alike(x.unique_mode, null, x.unique_for_ms * interval '1 millisecond', null, null,
            nullif(x.retry::text, '{}')::json);
        perform postrider.order_rule(x.order_policy);
        select * into k from postrider.kind e where e.name = x.name;
        if postrider.declaration_wins('kind', x.name, gen, k.generation,
            (k.queue, k.priority, k.max_attempts, k.timeout_ms, k.retry::text, k.class, k.unique_mode, k.unique_for_ms, k.max_age_ms,
             k.order_policy, k.fair, k.cap::text)
            is not distinct from (x.queue, x.priority, x.max_attempts, x.timeout_ms, x.retry::text, x.class, x.unique_mode,
                                  x.unique_for_ms, x.max_age_ms, x.order_policy, x.fair, x.cap::text))
        then
            insert into postrider.kind as e (name, queue, priority, max_attempts, timeout_ms, retry, class, unique_mode,
                                             unique_for_ms, max_age_ms, order_policy, cap, limit_key, fair, declared_by, generation)
            values (x.name, x.queue, x.priority, x.max_attempts, x.timeout_ms, x.retry, x.class, x.unique_mode, x.unique_for_ms,
                    x.max_age_ms, x.order_policy, x.cap, case when x.cap is not null then 'kind:' || x.name end, x.fair, app, gen)
            on conflict (name) do update set queue = excluded.queue, priority = excluded.priority,
                max_attempts = excluded.max_attempts, timeout_ms = excluded.timeout_ms, retry = excluded.retry,
                class = excluded.class, unique_mode = excluded.unique_mode, unique_for_ms = excluded.unique_for_ms,
                max_age_ms = excluded.max_age_ms, order_policy = excluded.order_policy, cap = excluded.cap,
                limit_key = excluded.limit_key, fair = excluded.fair, declared_by = excluded.declared_by,
                generation = excluded.generation, seen_at = clock_timestamp();
            if k.cap is not null or x.cap is not null then
                perform postrider.set_limit(x.queue, 'kind:' || x.name, (x.cap ->> 'most')::int, (x.cap ->> 'starts')::int,
                    (x.cap ->> 'per_ms')::bigint * interval '1 millisecond');
            end if;
            new_kinds := new_kinds || x.name;
        else
            update postrider.kind e set seen_at = clock_timestamp() where e.name = x.name;
        end if;
    end loop;

    perform postrider.declare_subscriptions(coalesce(declarations -> 'subscriptions', '[]'), app, gen, own);
    perform postrider.compile_routes(
        array(select e.id from postrider.subscription e where e.kind = any (new_kinds)), new_types);
    if declarations -> 'schedules' is not null then
        perform postrider.declare_schedules(declarations, app, gen, own);
    end if;
end $$;


--
-- Name: declare_endpoint_types(); Type: FUNCTION; Schema: postrider; Owner: -
--

CREATE FUNCTION postrider.declare_endpoint_types() RETURNS void
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
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


--
-- Name: declare_schedules(json, text, bigint, boolean); Type: FUNCTION; Schema: postrider; Owner: -
--

CREATE FUNCTION postrider.declare_schedules(declarations json, app text, generation bigint, own boolean) RETURNS void
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
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


--
-- Name: declare_subscriptions(json, text, bigint, boolean); Type: FUNCTION; Schema: postrider; Owner: -
--

CREATE FUNCTION postrider.declare_subscriptions(declared json, app text, generation bigint, own boolean) RETURNS void
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
declare
    x record;
    s postrider.subscription;
begin
    for x in select j ->> 'name' as name, array(select json_array_elements_text(coalesce(j -> 'types', '[]'))) as types,
                    coalesce(j ->> 'kind', j ->> 'name') as kind, coalesce(j ->> 'owner', '') as owner,
                    coalesce((j ->> 'delay_ms')::bigint, 0) as delay_ms, j ->> 'predicate' as predicate, j ->> 'order_by' as order_by,
                    j ->> 'order_policy' as order_policy, coalesce((j ->> 'coalescing')::boolean, false) as coalescing,
                    coalesce(j ->> 'start', 'now') as start
               from json_array_elements(declared) j
    loop
        perform postrider.check_name('subscription', x.name, own);
        select * into s from postrider.subscription e where e.name = x.name and e.removed_at is null;
        if postrider.declaration_wins('subscription', x.name, declare_subscriptions.generation, s.generation,
            (s.types, s.kind, s.owner, s.delay_ms, s.predicate::text, s.order_by, s.order_policy, s.coalescing)
            is not distinct from (x.types, x.kind::text, x.owner, x.delay_ms, postrider.check_predicate(x.predicate)::text, x.order_by,
                                  x.order_policy, x.coalescing))
        then
            perform postrider.put_subscription(x.name, x.types, x.kind, x.owner, x.delay_ms, false, app,
                declare_subscriptions.generation, x.predicate, x.order_by, x.order_policy, x.coalescing, x.start);
        else
            update postrider.subscription e set seen_at = clock_timestamp() where e.name = x.name;
        end if;
    end loop;
end $$;


--
-- Name: declare_types(json, text, bigint, boolean); Type: FUNCTION; Schema: postrider; Owner: -
--

CREATE FUNCTION postrider.declare_types(types json, app text, gen bigint, own boolean) RETURNS text[]
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
declare
    x record;
    t postrider.event_type;
    numbers int[];
    routed text[] := '{}';
begin
    for x in select j as said, j ->> 'name' as name, coalesce(j ->> 'description', '') as description,
                    coalesce(j ->> 'exposure', 'internal') as exposure, j ->> 'subject' as subject,
                    coalesce(j ->> 'validation', 'off') as validation,
                    case when json_typeof(j -> 'versions') = 'array' then j -> 'versions' else '[]' end as versions,
                    case when json_typeof(j -> 'deprecated') = 'object' then j -> 'deprecated' end as deprecated
               from json_array_elements(types) j
    loop
        perform postrider.check_name('type', x.name, own);
        perform postrider.check_type(x.said, x.exposure, x.validation, x.subject);
        select * into t from postrider.event_type e where e.name = x.name;
        numbers := array(select (v ->> 'version')::int from json_array_elements(x.versions) v order by 1);
        if postrider.declaration_wins('type', x.name, gen, t.generation,
            (t.description, t.exposure, t.subject, t.validation, t.versions, t.deprecated_on, t.deprecated_note, t.replaced_by)
            is not distinct from (x.description, x.exposure, x.subject, x.validation, numbers, (x.deprecated ->> 'on')::date,
                                  coalesce(x.deprecated ->> 'note', ''), x.deprecated ->> 'replaced_by'))
        then
            if x.validation <> 'off' and numbers = '{}' then
                perform postrider.refuse('PR005', 'validation', format('%s has nothing to validate by', x.name),
                    'declare a version with a schema, or use off');
            end if;
            insert into postrider.event_type as e (name, description, exposure, subject, subject_fits, validation, version, versions,
                                                   deprecated_on, deprecated_note, replaced_by, declared_by, generation)
            values (x.name, x.description, x.exposure, x.subject, postrider.subject_regex(x.subject), x.validation,
                    numbers[cardinality(numbers)], numbers,
                    (x.deprecated ->> 'on')::date, coalesce(x.deprecated ->> 'note', ''), x.deprecated ->> 'replaced_by', app, gen)
            on conflict (name) do update set description = excluded.description, exposure = excluded.exposure,
                subject = excluded.subject, subject_fits = excluded.subject_fits, validation = excluded.validation,
                version = excluded.version, versions = excluded.versions, deprecated_on = excluded.deprecated_on,
                deprecated_note = excluded.deprecated_note, replaced_by = excluded.replaced_by,
                declared_by = excluded.declared_by, generation = excluded.generation, seen_at = clock_timestamp();
            if t.name is null or t.exposure <> x.exposure then
                routed := routed || x.name;
            end if;
            perform postrider.declare_versions(x.name, x.versions, app);
        else
            update postrider.event_type e set seen_at = clock_timestamp() where e.name = x.name;
            if gen = t.generation then
                perform postrider.declare_versions(x.name, x.versions, app);
            end if;
        end if;
    end loop;
    for x in select e.name, e.replaced_by from postrider.event_type e
              where e.replaced_by is not null and e.name in (select j ->> 'name' from json_array_elements(types) j)
                and not exists (select from postrider.event_type r where r.name = e.replaced_by and r.name <> e.name)
    loop
        perform postrider.refuse('PR004', 'replaced_by', format('%L, for %s, was never declared', x.replaced_by, x.name),
            'name another type that is declared, or in the same call');
    end loop;
    return routed;
end $$;


--
-- Name: declare_versions(text, json, text); Type: FUNCTION; Schema: postrider; Owner: -
--

CREATE FUNCTION postrider.declare_versions(type text, versions json, app text) RETURNS void
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
declare
    x record;
    v postrider.type_version;
    made jsonb;
    problem text;
begin
    for x in select (j ->> 'version')::int as version, j -> 'schema' as schema, j -> 'example' as example,
                    coalesce((j ->> 'breaking')::boolean, false) as breaking
               from json_array_elements(versions) j order by 1
    loop
        select * into v from postrider.type_version o where o.type = declare_versions.type and o.version = x.version;
        if found then
            if (v.schema::jsonb, v.example::jsonb) is distinct from (x.schema::jsonb, x.example::jsonb) then
                perform postrider.refuse('PR006', 'versions', format('version %s of %s is already declared in another way', x.version, type),
                    'events follow it: declare a new version');
            end if;
            continue;
        end if;
        made := postrider.compile_schema(x.schema::jsonb, x.schema::jsonb);
        problem := postrider.schema_error(made, x.example::jsonb);
        if problem is not null then
            perform postrider.refuse('PR008', 'example', format('%s (%s, version %s)', regexp_replace(problem, '^ ', 'it '), type, x.version),
                'give an example that fits the schema');
        end if;
        select * into v from postrider.type_version o where o.type = declare_versions.type order by o.version desc limit 1;
        if v.version > x.version then
            perform postrider.refuse('PR006', 'versions', format('%s has version %s, and never had version %s', type, v.version, x.version),
                'give a new version a higher number');
        elsif found and not x.breaking then
            problem := postrider.schema_narrowed(v.compiled, made);
            if problem is not null then
                perform postrider.refuse('PR006', 'versions',
                    format('version %s of %s is not compatible with version %s: %s', x.version, type, v.version,
                        regexp_replace(problem, '^ ', 'it ')),
                    'keep what was, or say breaking: true');
            end if;
        end if;
        insert into postrider.type_version (type, version, schema, example, breaking, compiled, declared_by)
        values (declare_versions.type, x.version, x.schema, x.example, x.breaking, made, app);
    end loop;
end $$;


--
-- Name: delay_event(bigint, timestamp with time zone); Type: FUNCTION; Schema: postrider; Owner: -
--

CREATE FUNCTION postrider.delay_event(seq bigint, deliver_at timestamp with time zone) RETURNS void
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
begin
    -- its partition is kept until then
    if deliver_at > clock_timestamp() + interval '366 days' then
        perform postrider.refuse('PR005', 'deliver_at', 'it is more than 366 days ahead', 'record it nearer to its time, for example by a schedule');
    end if;
    insert into postrider.event_delay (seq, deliver_at) values (delay_event.seq, delay_event.deliver_at);
end $$;


--
-- Name: delete(bigint[]); Type: FUNCTION; Schema: postrider; Owner: -
--

CREATE FUNCTION postrider.delete(ids bigint[]) RETURNS TABLE(id bigint, effect text, state text)
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET jit TO 'off'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    AS $$
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


--
-- Name: disable_endpoint(bigint, text); Type: FUNCTION; Schema: postrider; Owner: -
--

CREATE FUNCTION postrider.disable_endpoint(id bigint, reason text) RETURNS boolean
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
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


--
-- Name: drive_replay(bigint); Type: FUNCTION; Schema: postrider; Owner: -
--

CREATE FUNCTION postrider.drive_replay(id bigint) RETURNS void
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
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


--
-- Name: drop_endpoint(bigint); Type: FUNCTION; Schema: postrider; Owner: -
--

CREATE FUNCTION postrider.drop_endpoint(id bigint) RETURNS boolean
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
declare
    of_subscription bigint;
begin
    if not postrider.lock_endpoint(id) then
        return false;
    end if;
    update postrider.endpoint e set deleted_at = clock_timestamp(), headers = null, headers_key = null where e.id = drop_endpoint.id
    returning e.subscription into of_subscription;
    perform postrider.drop_subscription(of_subscription);
    delete from postrider.endpoint_secret s where s.endpoint = drop_endpoint.id;
    delete from postrider.endpoint_window w where w.endpoint = drop_endpoint.id;
    delete from postrider.key_limit l where l.queue = 'webhook' and l.key = postrider.endpoint_key(drop_endpoint.id);
    delete from postrider.endpoint_health h where h.endpoint = drop_endpoint.id;
    perform postrider.call_limits('webhook', postrider.endpoint_key(drop_endpoint.id));
    return true;
end $$;


--
-- Name: drop_events(bigint, text); Type: FUNCTION; Schema: postrider; Owner: -
--

CREATE FUNCTION postrider.drop_events(epoch bigint, child text) RETURNS json
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET jit TO 'off'
    SET lock_timeout TO '50ms'
    AS $$
begin
    for n in 1..5 loop
        begin
            lock table only postrider.event in access exclusive mode;
            if postrider.was_written(0::smallint, epoch) then
                delete from postrider.event_done d where d.epoch = drop_events.epoch;
                return json_build_object('span', child, 'written', true, 'again', true);
            end if;
            execute format('alter table postrider.event detach partition postrider.%I', child);
            execute format('drop table postrider.%I', child);
            delete from postrider.event_done d where d.epoch = drop_events.epoch;
            delete from postrider.poison p where p.event_seq >= drop_events.epoch << 46 and p.event_seq < (drop_events.epoch + 1) << 46;
            delete from postrider.event_delay d where d.seq >= drop_events.epoch << 46 and d.seq < (drop_events.epoch + 1) << 46;
            delete from postrider.rebased r where r.seq >= drop_events.epoch << 46 and r.seq < (drop_events.epoch + 1) << 46;
            delete from postrider.erased x where x.seq >= drop_events.epoch << 46 and x.seq < (drop_events.epoch + 1) << 46;
            delete from postrider.pinned p where p.class = 0 and p.first = drop_events.epoch;
            return json_build_object('span', child, 'again', true);
        exception when lock_not_available then
            perform pg_sleep(0.2);
        end;
    end loop;
    return json_build_object('span', child, 'held', true, 'again', false);
end $$;


--
-- Name: drop_poison(text, uuid, text); Type: FUNCTION; Schema: postrider; Owner: -
--

CREATE FUNCTION postrider.drop_poison(reason text, event uuid DEFAULT NULL::uuid, subscription text DEFAULT NULL::text) RETURNS bigint
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
declare
    n bigint;
begin
    if coalesce(trim(reason), '') = '' then
        perform postrider.refuse('PR005', 'reason', 'it is empty', 'say why no job is to be made of these events');
    end if;
    perform postrider.check_subscribed(drop_poison.subscription);
    update postrider.poison p set ended_at = clock_timestamp(), ended_as = 'dropped', reason = left(drop_poison.reason, 1000), retry_at = null
     where p.ended_at is null
       and (event is null or p.event_seq = postrider.event_seq(event))
       and (drop_poison.subscription is null
            or p.subscription = (select s.id from postrider.subscription s where s.name = drop_poison.subscription));
    get diagnostics n = row_count;
    return n;
end $$;


--
-- Name: drop_schedule(text); Type: FUNCTION; Schema: postrider; Owner: -
--

CREATE FUNCTION postrider.drop_schedule(name text) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
begin
    perform postrider.lock_declarations();
    delete from postrider.schedule e where e.name = drop_schedule.name;
    if not found then
        perform postrider.refuse_schedule(name);
    end if;
end $$;


--
-- Name: drop_subscription(bigint); Type: FUNCTION; Schema: postrider; Owner: -
--

CREATE FUNCTION postrider.drop_subscription(id bigint) RETURNS boolean
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
begin
    perform postrider.lock_declarations();
    update postrider.subscription s set removed_at = clock_timestamp() where s.id = drop_subscription.id and s.removed_at is null;
    if not found then
        return false;
    end if;
    update postrider.subscription_start b set over_at = clock_timestamp()
     where b.subscription = drop_subscription.id and b.over_at is null;
    delete from postrider.held h where h.subscription = drop_subscription.id;
    delete from postrider.route r where r.subscription = drop_subscription.id;
    return true;
end $$;


--
-- Name: traceparent_dropped; Type: SEQUENCE; Schema: postrider; Owner: -
--

CREATE SEQUENCE postrider.traceparent_dropped
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;


--
-- Name: dropped_traceparents(); Type: FUNCTION; Schema: postrider; Owner: -
--

CREATE FUNCTION postrider.dropped_traceparents() RETURNS bigint
    LANGUAGE sql STABLE SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    RETURN COALESCE(pg_sequence_last_value('postrider.traceparent_dropped'::regclass), (0)::bigint);


--
-- Name: due_elsewhere(); Type: FUNCTION; Schema: postrider; Owner: -
--

CREATE FUNCTION postrider.due_elsewhere() RETURNS json
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
declare
    p postrider.poison;
    e record;
    told json;
    job json;
    jobs json[] := '{}';
    events json[] := '{}';
begin
    perform postrider.check_isolation();
    if not pg_try_advisory_xact_lock(7305, 1) then
        return null;
    end if;
    for p in select x.* from postrider.poison x
              where x.ended_at is null and x.retry_at <= clock_timestamp()
              order by x.retry_at, x.event_seq, x.subscription limit 50 for update skip locked
    loop
        select v.type, v.owner into e from postrider.event v where v.seq = p.event_seq;
        told := postrider.tell_matched(clock_timestamp(), array[p.event_seq], array[e.type], array[e.owner], array[p.subscription]);
        job := (select j from json_array_elements(told -> 'jobs') j where (j ->> 'subscription')::bigint = p.subscription);
        if job is null then
            perform postrider.poison_tried(p, false, null, null, null);
        else
            jobs := jobs || job;
            events := events || (told -> 'events' -> 0);
        end if;
    end loop;
    return json_build_object('jobs', array_to_json(jobs), 'events', array_to_json(events));
end $$;


--
-- Name: duties_of_components(); Type: FUNCTION; Schema: postrider; Owner: -
--

CREATE FUNCTION postrider.duties_of_components() RETURNS void
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
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


--
-- Name: duty_failed(text, text); Type: FUNCTION; Schema: postrider; Owner: -
--

CREATE FUNCTION postrider.duty_failed(duty text, error text) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET lock_timeout TO '500ms'
    AS $$
begin
    insert into postrider.duty as d (name, failing_since, error)
    values (duty_failed.duty, clock_timestamp(), left(duty_failed.error, 1000))
    on conflict (name) do update set failing_since = coalesce(d.failing_since, clock_timestamp()), error = excluded.error;
end $$;


--
-- Name: enable_endpoint(bigint); Type: FUNCTION; Schema: postrider; Owner: -
--

CREATE FUNCTION postrider.enable_endpoint(id bigint) RETURNS boolean
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
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


--
-- Name: end_name(smallint); Type: FUNCTION; Schema: postrider; Owner: -
--

CREATE FUNCTION postrider.end_name(state smallint) RETURNS text
    LANGUAGE sql IMMUTABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    RETURN (ARRAY['-'::text, 'completed'::text, 'discarded'::text, 'cancelled'::text])[state];


--
-- Name: delivery_attempt; Type: TABLE; Schema: postrider; Owner: -
--

CREATE TABLE postrider.delivery_attempt (
    class smallint NOT NULL,
    id bigint NOT NULL,
    lease bigint NOT NULL,
    attempt smallint NOT NULL,
    endpoint bigint,
    event uuid,
    sent_as uuid,
    trigger text NOT NULL,
    started_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    ended_at timestamp with time zone,
    outcome text,
    reason text,
    status smallint,
    failure text,
    excerpt text,
    headers json,
    request_sha256 bytea,
    peer text,
    dns_us bigint,
    connect_us bigint,
    tls_us bigint,
    first_byte_us bigint,
    total_us bigint,
    CONSTRAINT an_attempt_has_an_outcome_once_it_ended CHECK (((ended_at IS NULL) = (outcome IS NULL))),
    CONSTRAINT outcome_is_delivered_failed_postponed_discarded_or_skipped CHECK ((outcome = ANY (ARRAY['delivered'::text, 'failed'::text, 'postponed'::text, 'discarded'::text, 'skipped'::text]))),
    CONSTRAINT trigger_is_auto_manual_replay_test_probe_or_pull CHECK ((trigger = ANY (ARRAY['auto'::text, 'manual'::text, 'replay'::text, 'test'::text, 'probe'::text, 'pull'::text])))
)
PARTITION BY RANGE (class, id);


--
-- Name: endpoint_evidence(bigint); Type: FUNCTION; Schema: postrider; Owner: -
--

CREATE FUNCTION postrider.endpoint_evidence(id bigint) RETURNS json
    LANGUAGE sql STABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    RETURN (SELECT COALESCE(json_agg(json_build_object('delivery', (a.id)::text, 'at', a.ended_at, 'status', a.status, 'failure', a.failure, 'reason', "left"(a.reason, 300)) ORDER BY a.started_at DESC), '[]'::json) AS "coalesce" FROM (SELECT x.class, x.id, x.lease, x.attempt, x.endpoint, x.event, x.sent_as, x.trigger, x.started_at, x.ended_at, x.outcome, x.reason, x.status, x.failure, x.excerpt, x.headers, x.request_sha256, x.peer, x.dns_us, x.connect_us, x.tls_us, x.first_byte_us, x.total_us FROM postrider.delivery_attempt x WHERE ((x.endpoint = endpoint_evidence.id) AND (x.outcome IS NOT NULL) AND (x.trigger <> 'test'::text)) ORDER BY x.started_at DESC LIMIT 5) a);


--
-- Name: endpoint_key(bigint); Type: FUNCTION; Schema: postrider; Owner: -
--

CREATE FUNCTION postrider.endpoint_key(endpoint bigint) RETURNS text
    LANGUAGE sql IMMUTABLE STRICT
    SET search_path TO 'pg_catalog', 'pg_temp'
    RETURN ('endpoint:'::text || endpoint);


--
-- Name: endpoint_window; Type: TABLE; Schema: postrider; Owner: -
--

CREATE TABLE postrider.endpoint_window (
    endpoint bigint NOT NULL,
    slot timestamp with time zone NOT NULL,
    delivered integer DEFAULT 0 NOT NULL,
    failed integer DEFAULT 0 NOT NULL
)
WITH (fillfactor='50', autovacuum_vacuum_scale_factor='0.02', autovacuum_vacuum_threshold='500');


--
-- Name: endpoint_pace(bigint); Type: FUNCTION; Schema: postrider; Owner: -
--

CREATE FUNCTION postrider.endpoint_pace(id bigint) RETURNS bigint
    LANGUAGE sql STABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    RETURN (SELECT CASE WHEN (sum(w.delivered) >= 10) THEN LEAST(10000, GREATEST(10, (150000 / max(w.delivered)))) ELSE 1000 END AS "case" FROM postrider.endpoint_window w WHERE ((w.endpoint = endpoint_pace.id) AND (w.slot > (clock_timestamp() - '01:00:00'::interval))));


--
-- Name: endpoints(bigint, text, bigint, integer); Type: FUNCTION; Schema: postrider; Owner: -
--

CREATE FUNCTION postrider.endpoints(id bigint DEFAULT NULL::bigint, owner text DEFAULT NULL::text, after bigint DEFAULT 0, most integer DEFAULT 100) RETURNS SETOF json
    LANGUAGE plpgsql STABLE SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET jit TO 'off'
    AS $$
begin
    return query
    select json_build_object('id', e.id, 'revision', e.revision, 'name', e.name, 'owner', e.owner, 'url', e.url, 'types', e.types,
        'predicate', s.predicate::text, 'order_policy', case when s.order_by is not null then coalesce(s.order_policy, 'block') end,
        'labels', e.labels, 'max_in_flight', e.max_in_flight, 'rate_starts', e.rate_starts,
        'rate_per_ms', (extract(epoch from e.rate_per) * 1000)::bigint, 'format', e.format, 'schedule', e.schedule, 'steps_ms', e.steps_ms,
        'timeout_ms', e.timeout_ms, 'max_attempts', e.max_attempts, 'on_4xx', e.on_4xx, 'answer_contains', e.answer_contains,
        'header_names', e.header_names, 'headers', encode(e.headers, 'base64'), 'headers_key', e.headers_key,
        'created_us', (extract(epoch from e.created_at) * 1000000)::bigint,
        'disabled_us', (extract(epoch from e.disabled_at) * 1000000)::bigint, 'disabled_reason', e.disabled_reason,
        'disabled_evidence', e.disabled_evidence, 'failing_us', (extract(epoch from h.failing_since) * 1000000)::bigint,
        'silent_us', (extract(epoch from h.silent_since) * 1000000)::bigint, 'failed', h.failed, 'in_flight', h.in_flight,
        'pace_ms', h.pace_ms, 'warned', h.warned,
        'held_until_us', case when e.disabled_at is null and l.held_until > clock_timestamp()
                              then (extract(epoch from l.held_until) * 1000000)::bigint end,
        'held_reason', l.reason)
      from postrider.endpoint e
      join postrider.subscription s on s.id = e.subscription
      join postrider.endpoint_health h on h.endpoint = e.id
      left join postrider.key_limit l on l.queue = 'webhook' and l.key = postrider.endpoint_key(e.id)
     where e.deleted_at is null and e.id > endpoints.after and e.id = coalesce(endpoints.id, e.id) and e.owner = coalesce(endpoints.owner, e.owner)
     order by e.id limit endpoints.most;
end $$;


--
-- Name: endpoints_for(text, text, json, text); Type: FUNCTION; Schema: postrider; Owner: -
--

CREATE FUNCTION postrider.endpoints_for(type text, subject text, data json, owner text) RETURNS TABLE(id bigint, name text, url text, state text, labels json)
    LANGUAGE plpgsql STABLE SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
#variable_conflict use_column
begin
    if not exists (select from postrider.event_type t where t.name = endpoints_for.type) then
        perform postrider.refuse_type(endpoints_for.type);
    end if;
    perform postrider.check_owner(endpoints_for.owner);
    perform postrider.check_json('data', data);
    return query
    select e.id, e.name, e.url,
           case when e.disabled_at is not null then 'disabled' when h.failing_since is not null then 'failing' else 'enabled' end, e.labels
      from postrider.route r
      join postrider.endpoint e on e.subscription = r.subscription
      join postrider.endpoint_health h on h.endpoint = e.id
     where r.type = endpoints_for.type and r.owner = any (array['', endpoints_for.owner])
       and (r.predicate is null or jsonb_path_match(data::jsonb, r.predicate, jsonb_build_object(
            'type', endpoints_for.type, 'owner', endpoints_for.owner, 'subject', endpoints_for.subject), true))
     order by e.id;
end $$;


--
-- Name: enqueue(text, json, text, integer, integer, timestamp with time zone, text, text, text, interval, text, text, json, text, text, text, text[]); Type: FUNCTION; Schema: postrider; Owner: -
--

CREATE FUNCTION postrider.enqueue(kind text, args json DEFAULT '{}'::json, queue text DEFAULT NULL::text, priority integer DEFAULT NULL::integer, max_attempts integer DEFAULT NULL::integer, run_at timestamp with time zone DEFAULT NULL::timestamp with time zone, owner text DEFAULT ''::text, unique_mode text DEFAULT NULL::text, unique_key text DEFAULT NULL::text, unique_for interval DEFAULT NULL::interval, on_duplicate text DEFAULT NULL::text, idempotency_key text DEFAULT NULL::text, retry json DEFAULT NULL::json, order_key text DEFAULT NULL::text, order_policy text DEFAULT NULL::text, limit_key text DEFAULT NULL::text, tags text[] DEFAULT NULL::text[]) RETURNS TABLE(id bigint, fresh boolean, replaced boolean, until timestamp with time zone)
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
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


--
-- Name: kind; Type: TABLE; Schema: postrider; Owner: -
--

CREATE TABLE postrider.kind (
    name text NOT NULL COLLATE pg_catalog."C",
    queue text NOT NULL,
    priority smallint NOT NULL,
    max_attempts smallint NOT NULL,
    timeout_ms bigint NOT NULL,
    retry json NOT NULL,
    class smallint NOT NULL,
    unique_mode text,
    unique_for_ms bigint,
    max_age_ms bigint NOT NULL,
    order_policy text DEFAULT 'block'::text NOT NULL,
    cap json,
    limit_key text,
    fair boolean DEFAULT false NOT NULL,
    declared_by text NOT NULL,
    generation bigint DEFAULT 0 NOT NULL,
    seen_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    CONSTRAINT class_is_short_standard_or_long CHECK (((class >= 1) AND (class <= 3))),
    CONSTRAINT max_attempts_is_1_to_1000 CHECK (((max_attempts >= 1) AND (max_attempts <= 1000))),
    CONSTRAINT priority_is_1_to_4 CHECK (((priority >= 1) AND (priority <= 4))),
    CONSTRAINT within_has_a_window CHECK (((NOT (unique_mode IS DISTINCT FROM 'within'::text)) = (unique_for_ms IS NOT NULL)))
);


--
-- Name: enqueue_alike(postrider.kind, bigint, json, timestamp with time zone, text, text, text, interval, text, text, json, text, text, text, boolean); Type: FUNCTION; Schema: postrider; Owner: -
--

CREATE FUNCTION postrider.enqueue_alike(k postrider.kind, new_id bigint, args json, run_at timestamp with time zone, owner text, unique_mode text, unique_key text, unique_for interval, on_duplicate text, idempotency_key text, retry json, order_key text, order_policy text, limit_key text, key_taken boolean DEFAULT false) RETURNS TABLE(id bigint, fresh boolean, replaced boolean, until timestamp with time zone)
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
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


--
-- Name: enqueue_many(json); Type: FUNCTION; Schema: postrider; Owner: -
--

CREATE FUNCTION postrider.enqueue_many(jobs json) RETURNS TABLE(id bigint, fresh boolean, replaced boolean, until timestamp with time zone)
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET plan_cache_mode TO 'force_generic_plan'
    AS $$
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


--
-- Name: enqueue_many_alike(json); Type: FUNCTION; Schema: postrider; Owner: -
--

CREATE FUNCTION postrider.enqueue_many_alike(jobs json) RETURNS TABLE(id bigint, fresh boolean, replaced boolean, until timestamp with time zone)
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
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


--
-- Name: backlog; Type: TABLE; Schema: postrider; Owner: -
--

CREATE TABLE postrider.backlog (
    id bigint NOT NULL,
    epoch integer NOT NULL,
    opened_no bigint NOT NULL,
    xids xid8[] NOT NULL,
    types text[],
    after bigint NOT NULL,
    last_seq bigint NOT NULL,
    events bigint DEFAULT 0 NOT NULL,
    opened_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    over_at timestamp with time zone
);


--
-- Name: log_epoch; Type: TABLE; Schema: postrider; Owner: -
--

CREATE TABLE postrider.log_epoch (
    no integer NOT NULL,
    system_identifier bigint NOT NULL,
    floor_seq bigint NOT NULL,
    started_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    note text NOT NULL,
    late xid8[] DEFAULT '{}'::xid8[] NOT NULL,
    done_at timestamp with time zone
);


--
-- Name: epoch_end(integer); Type: FUNCTION; Schema: postrider; Owner: -
--

CREATE FUNCTION postrider.epoch_end(epoch integer) RETURNS bigint
    LANGUAGE sql STABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    RETURN CASE WHEN (EXISTS (SELECT FROM postrider.log_epoch l WHERE (l.no = (epoch_end.epoch + 1)))) THEN COALESCE((SELECT GREATEST(max(c.last_seq), (SELECT max(b.last_seq) AS max FROM postrider.backlog b WHERE (b.epoch = epoch_end.epoch))) AS "greatest" FROM postrider.cut c WHERE (c.epoch = epoch_end.epoch)), (0)::bigint) ELSE '9223372036854775807'::bigint END;


--
-- Name: erase(uuid, text); Type: FUNCTION; Schema: postrider; Owner: -
--

CREATE FUNCTION postrider.erase(event uuid, reason text) RETURNS boolean
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
declare
    v record;
begin
    if coalesce(trim(reason), '') = '' then
        perform postrider.refuse('PR005', 'reason', 'it is empty', 'say why the data is erased');
    end if;
    select e.seq, e.xid, e.data into v from postrider.event e where e.seq = postrider.event_seq(event) and e.id = event for update;
    if not found then
        perform postrider.refuse('PR004', 'event', format('there is no event %s', event), 'look whether its transaction has committed, and how long events are kept');
    end if;
    if not postrider.is_relayed(v.seq, v.xid) then
        perform postrider.refuse('PR005', 'event', 'the relay has not come to it yet', 'try again when it has: see postrider.await_fanout');
    end if;
    insert into postrider.erased (seq, data_sha256, reason)
    values (v.seq, sha256(convert_to(v.data::text, 'UTF8')), left(erase.reason, 1000)) on conflict do nothing;
    if not found then
        return false;
    end if;
    update postrider.event e set data = '{}' where e.seq = v.seq;
    return true;
end $$;


--
-- Name: event_digest(bytea, uuid, timestamp with time zone, text, text, text, uuid); Type: FUNCTION; Schema: postrider; Owner: -
--

CREATE FUNCTION postrider.event_digest(data_sha256 bytea, id uuid, occurred_at timestamp with time zone, type text, owner text, subject text, cause uuid) RETURNS bytea
    LANGUAGE sql STABLE
    RETURN (((data_sha256 || uuid_send(id)) || timestamptz_send(occurred_at)) || convert_to(concat_ws('
'::text, type, owner, subject, cause, ''), 'UTF8'::name));


--
-- Name: event_id(timestamp with time zone, bigint); Type: FUNCTION; Schema: postrider; Owner: -
--

CREATE FUNCTION postrider.event_id(recorded_at timestamp with time zone, seq bigint) RETURNS uuid
    LANGUAGE plpgsql IMMUTABLE STRICT
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
declare
    us bigint := (extract(epoch from recorded_at) * 1000000)::bigint;
begin
    -- RFC 9562, method 3: the sub-millisecond part in rand_a keeps ids of one millisecond in order
    return (lpad(to_hex(us / 1000), 12, '0') || '7' || lpad(to_hex(us % 1000 * 4096 / 1000), 3, '0')
        || to_hex(seq | (-9223372036854775808)))::uuid;
end $$;


--
-- Name: event_key(text, text); Type: FUNCTION; Schema: postrider; Owner: -
--

CREATE FUNCTION postrider.event_key(name text, part text) RETURNS text
    LANGUAGE sql IMMUTABLE
    RETURN CASE WHEN ((octet_length(name) + octet_length(part)) < 200) THEN ((name || ':'::text) || part) ELSE ((name || ':#'::text) || md5(part)) END;


--
-- Name: event_pinned_by(bigint); Type: FUNCTION; Schema: postrider; Owner: -
--

CREATE FUNCTION postrider.event_pinned_by(epoch bigint) RETURNS text
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $_$
declare
    s record;
    needed boolean;
    subs text;
begin
    -- their jobs are still to be made, if somebody mends what keeps them from it
    select string_agg(distinct coalesce(b.name, x.subscription::text), ', ') into subs
      from (select p.subscription from postrider.poison p
             where p.ended_at is null and p.event_seq >= event_pinned_by.epoch << 46 and p.event_seq < (event_pinned_by.epoch + 1) << 46 limit 1000) x
      left join postrider.subscription b on b.id = x.subscription;
    if subs is not null then
        return 'events that were set aside for subscription ' || left(subs, 200);
    end if;
    if exists (select from postrider.event_delay d where d.ended_at is null
                  and d.seq >= event_pinned_by.epoch << 46 and d.seq < (event_pinned_by.epoch + 1) << 46)
    then
        return 'events that are to be delivered later';
    end if;
    select string_agg(x.name, ', ' order by x.name) into subs
      from postrider.subscription_start b join postrider.subscription x on x.id = any (postrider.walkers(b))
     where b.over_at is null and b.after < (event_pinned_by.epoch + 1) << 46;
    if subs is not null then
        return 'events that are to be walked for the new subscription ' || left(subs, 200);
    end if;
    for s in select p.* from postrider.job_spans() p order by p.kept, p.first loop
        if s.kept then
            execute format('select exists (select from postrider.%I j where j.event_seq >= $1 << 46 and j.event_seq < ($1 + 1) << 46)',
                'job' || s.suffix) into needed using epoch;
        else
            needed := s.first <= (select d.job_epoch from postrider.event_done d where d.epoch = event_pinned_by.epoch)
                  and postrider.has_rows('job' || s.suffix);
        end if;
        if needed then
            return 'jobs that were made of its events: they are in job' || s.suffix;
        end if;
    end loop;
    return null;
end $_$;


--
-- Name: event_seq(uuid); Type: FUNCTION; Schema: postrider; Owner: -
--

CREATE FUNCTION postrider.event_seq(id uuid) RETURNS bigint
    LANGUAGE sql IMMUTABLE STRICT
    SET search_path TO 'pg_catalog', 'pg_temp'
    RETURN (((('x'::text || "right"(replace((id)::text, '-'::text, ''::text), 16)))::bit(64))::bigint & '4611686018427387903'::bigint);


--
-- Name: events_of_cut(postrider.cut, postrider.cut); Type: FUNCTION; Schema: postrider; Owner: -
--

CREATE FUNCTION postrider.events_of_cut(c postrider.cut, before postrider.cut, OUT n bigint, OUT digest bytea) RETURNS record
    LANGUAGE plpgsql STABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET jit TO 'off'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    AS $$
declare
    lo pg_snapshot := case when c.more then c.lo when before.more then before.lo else before.hi end;
    floor bigint := (select l.floor_seq from postrider.log_epoch l where l.no = c.epoch);
    roof bigint := coalesce((select l.floor_seq from postrider.log_epoch l where l.no = c.epoch + 1), 9223372036854775807);
    after bigint := case when before.more then before.last_seq else floor end;
    upto bigint := case when c.more then c.last_seq else roof end;
    sliced boolean := c.more or before.more;
    r_first bigint := greatest(after + 1, case when c.more then c.r_first else before.r_first end);
    r_last bigint := least(upto, case when c.more then c.r_last else before.r_last end);
begin
    select count(*), sha256(string_agg(postrider.event_digest(
               coalesce(x.data_sha256, sha256(convert_to(e.data::text, 'UTF8'))), e.id, e.occurred_at, e.type, e.owner, e.subject, e.cause),
               null order by e.seq))
      into n, digest
      from (
        -- by the transactions first: a span of numbers can be the whole log
        select v.* from postrider.backlog b cross join unnest(b.xids) x (xid) cross join lateral (
                select e.* from postrider.event e where e.xid = x.xid and e.seq > c.part_after and e.seq <= c.part_upto offset 0) v
         where b.id = c.backlog
        union all
        select v.* from postrider.rebased r join postrider.event v on v.seq = r.seq
         where c.backlog is null and c.last_seq <= floor and r.epoch = c.epoch and r.cut between c.from_no and c.no
        union all
        select v.* from pg_snapshot_xip(lo) open cross join lateral (
                select e.* from postrider.event e where e.xid = open and e.seq > after and e.seq <= upto offset 0) v
         where c.backlog is null and (c.apart is null or open <> all (c.apart)) and c.last_seq > floor and pg_visible_in_snapshot(open, c.hi)
        union all
        select v.* from postrider.xid_gaps(pg_snapshot_xmax(lo), pg_snapshot_xmax(c.hi), c.apart) g cross join lateral (
                select e.* from postrider.event e
                 where e.xid > g.above and e.xid < g.below and pg_visible_in_snapshot(e.xid, c.hi) and e.seq + 0 > floor and e.seq + 0 <= roof offset 0) v
         where c.backlog is null and c.last_seq > floor and not sliced
        union all
        select v.* from postrider.event v
         where c.backlog is null and (c.apart is null or v.xid <> all (c.apart)) and c.last_seq > floor and sliced
           and v.seq >= r_first and v.seq <= r_last
           and not pg_visible_in_snapshot(v.xid, lo) and v.xid <> all (array(select pg_snapshot_xip(lo)))
           and pg_visible_in_snapshot(v.xid, c.hi)) e
      left join postrider.erased x on x.seq = e.seq
     -- what an unfinished window of this epoch left is of the epoch that came after
     where not exists (select from postrider.rebased r where r.seq = e.seq and r.epoch > c.epoch);
end $$;


--
-- Name: exchange_span(smallint, bigint, bigint, text, bigint[]); Type: FUNCTION; Schema: postrider; Owner: -
--

CREATE FUNCTION postrider.exchange_span(class smallint, first bigint, until bigint, suffix text, ids bigint[]) RETURNS boolean
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET lock_timeout TO '50ms'
    SET jit TO 'off'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    AS $_$
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
end $_$;


--
-- Name: explain(bigint); Type: FUNCTION; Schema: postrider; Owner: -
--

CREATE FUNCTION postrider.explain(id bigint) RETURNS text
    LANGUAGE plpgsql STABLE SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET jit TO 'off'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    AS $$
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


--
-- Name: said(timestamp with time zone); Type: FUNCTION; Schema: postrider; Owner: -
--

CREATE FUNCTION postrider.said(at timestamp with time zone) RETURNS text
    LANGUAGE sql IMMUTABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    RETURN to_char((at AT TIME ZONE 'UTC'::text), 'YYYY-MM-DD"T"HH24:MI:SS"Z"'::text);


--
-- Name: instance; Type: TABLE; Schema: postrider; Owner: -
--

CREATE TABLE postrider.instance (
    one boolean DEFAULT true NOT NULL,
    name text DEFAULT ''::text NOT NULL,
    outbound_paused_at timestamp with time zone,
    reason text,
    CONSTRAINT there_is_one_instance CHECK (one)
);


--
-- Name: explain_held(); Type: FUNCTION; Schema: postrider; Owner: -
--

CREATE FUNCTION postrider.explain_held() RETURNS text
    LANGUAGE sql STABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    RETURN (SELECT format('Outbound work is paused since %s%s: it waits until postrider.resume_outbound(), and spends no attempt.'::text, postrider.said(i.outbound_paused_at), COALESCE(((' ('::text || NULLIF(i.reason, ''::text)) || ')'::text), ''::text)) AS format FROM postrider.instance i);


--
-- Name: key_limit; Type: TABLE; Schema: postrider; Owner: -
--

CREATE TABLE postrider.key_limit (
    queue text NOT NULL,
    key text NOT NULL COLLATE pg_catalog."C",
    most integer,
    starts integer,
    per interval,
    held_until timestamp with time zone,
    reason text,
    changed_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    CONSTRAINT a_rate_has_starts_and_a_period CHECK ((((starts IS NULL) = (per IS NULL)) AND (starts > 0) AND (per > '00:00:00'::interval))),
    CONSTRAINT most_is_not_negative CHECK ((most >= 0))
);


--
-- Name: lane; Type: TABLE; Schema: postrider; Owner: -
--

CREATE TABLE postrider.lane (
    queue text NOT NULL,
    key text NOT NULL COLLATE pg_catalog."C",
    holder bigint,
    line bigint[],
    since timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    low_parked bigint DEFAULT 0 NOT NULL,
    low_ready bigint DEFAULT 0 NOT NULL,
    cleared bigint DEFAULT 0 NOT NULL,
    stopped_at timestamp with time zone,
    reason text,
    stopped_by bigint,
    window_at timestamp with time zone,
    used integer DEFAULT 0 NOT NULL,
    due_at timestamp with time zone,
    changes smallint DEFAULT 0 NOT NULL,
    gen integer DEFAULT 0 NOT NULL,
    CONSTRAINT a_line_has_a_head CHECK (((line IS NULL) OR (holder IS NOT NULL))),
    CONSTRAINT a_stopped_lane_says_why CHECK (((stopped_at IS NULL) = (reason IS NULL)))
)
WITH (fillfactor='50', autovacuum_vacuum_scale_factor='0.02', autovacuum_vacuum_threshold='2000', autovacuum_vacuum_cost_delay='1');


--
-- Name: parked; Type: TABLE; Schema: postrider; Owner: -
--

CREATE TABLE postrider.parked (
    queue text NOT NULL,
    key text NOT NULL COLLATE pg_catalog."C",
    pos bigint NOT NULL,
    id bigint NOT NULL,
    priority smallint NOT NULL,
    share smallint NOT NULL,
    attempt smallint DEFAULT 0 NOT NULL,
    losses smallint DEFAULT 0 NOT NULL,
    flags smallint DEFAULT 0 NOT NULL,
    order_key text
);


--
-- Name: uniq; Type: TABLE; Schema: postrider; Owner: -
--

CREATE TABLE postrider.uniq (
    hash bytea NOT NULL,
    mode smallint NOT NULL,
    job bigint,
    running bigint,
    until timestamp with time zone
)
WITH (fillfactor='80', autovacuum_vacuum_scale_factor='0.02', autovacuum_vacuum_threshold='2000');


--
-- Name: explain_parked(postrider.job, postrider.parked); Type: FUNCTION; Schema: postrider; Owner: -
--

CREATE FUNCTION postrider.explain_parked(j postrider.job, p postrider.parked) RETURNS text
    LANGUAGE sql STABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    RETURN CASE WHEN ((p).key ~~ 'kind:%'::text) THEN format('No live worker of queue %s knows its kind %s: it waits until one does, and spends no attempt.'::text, (p).queue, (j).kind) WHEN ((p).key = 'strict:'::text) THEN format('Its worker died %s times while it ran: it waits until it can run alone in queue %s.'::text, (p).losses, (p).queue) WHEN ((p).key ~~ 'unique:%'::text) THEN (SELECT COALESCE(min(format('Job %s, which is like it, runs: it comes after that one.'::text, u.running)), 'A job like it ran: the next beat of a worker makes it ready.'::text) AS "coalesce" FROM postrider.uniq u WHERE ((u.hash = (explain_parked.j).unique_hash) AND (u.running IS NOT NULL))) WHEN ((p).key ~~ 'order:%'::text) THEN COALESCE((SELECT CASE WHEN (l.stopped_at IS NOT NULL) THEN format('Its order key %L stopped at %s (%s): it waits until an operator lets that go on.'::text, (explain_parked.j).order_key, postrider.said(l.stopped_at), l.reason) WHEN (l.holder IS NOT NULL) THEN format('Job %s has the turn of its order key %L: it comes after that one.'::text, l.holder, (explain_parked.j).order_key) ELSE NULL::text END AS "case" FROM postrider.lane l WHERE ((l.queue = (explain_parked.p).queue) AND (l.key = (explain_parked.p).key))), format('Its order key %L is free: the next beat of a worker gives the turn to the oldest job that waits for it.'::text, (j).order_key)) WHEN ((p).key ~~ 'limit:%'::text) THEN COALESCE((SELECT format('Its limit key %L is held until %s%s.'::text, (explain_parked.j).limit_key, postrider.said(c.held_until), COALESCE((': '::text || NULLIF(c.reason, ''::text)), ''::text)) AS format FROM postrider.key_limit c WHERE ((c.queue = (explain_parked.p).queue) AND (c.key = ANY (ARRAY[(explain_parked.j).limit_key, ''::text])) AND (c.held_until > clock_timestamp())) ORDER BY c.key DESC LIMIT 1), format('Its limit key %L has no room: it waits until one of that key ends, or until more may start.'::text, (j).limit_key)) ELSE format('It waits in queue %s for %s.'::text, (p).queue, (p).key) END;


--
-- Name: ready; Type: TABLE; Schema: postrider; Owner: -
--

CREATE TABLE postrider.ready (
    queue text NOT NULL,
    priority smallint NOT NULL,
    share smallint NOT NULL,
    pos bigint NOT NULL,
    id bigint NOT NULL,
    attempt smallint DEFAULT 0 NOT NULL,
    losses smallint DEFAULT 0 NOT NULL,
    flags smallint DEFAULT 0 NOT NULL,
    order_key text,
    again_at timestamp with time zone
)
WITH (autovacuum_vacuum_scale_factor='0.02', autovacuum_vacuum_threshold='2000', autovacuum_vacuum_cost_delay='1', autovacuum_vacuum_insert_scale_factor='1');


--
-- Name: explain_ready(postrider.job, postrider.ready); Type: FUNCTION; Schema: postrider; Owner: -
--

CREATE FUNCTION postrider.explain_ready(j postrider.job, r postrider.ready) RETURNS text
    LANGUAGE plpgsql STABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET jit TO 'off'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    AS $$
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


--
-- Name: cancellation; Type: TABLE; Schema: postrider; Owner: -
--

CREATE TABLE postrider.cancellation (
    id bigint NOT NULL,
    requested_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    reason text
);


--
-- Name: lease; Type: TABLE; Schema: postrider; Owner: -
--

CREATE TABLE postrider.lease (
    id bigint NOT NULL,
    worker uuid NOT NULL,
    call bigint,
    claimed_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    queue text NOT NULL,
    ids bigint[] NOT NULL,
    positions bigint[] NOT NULL,
    attempts smallint[] NOT NULL,
    losses smallint[] NOT NULL,
    flags smallint[] NOT NULL,
    priorities smallint[] NOT NULL,
    shares smallint[] NOT NULL,
    order_keys text[],
    special boolean DEFAULT false NOT NULL,
    open bigint[] NOT NULL,
    limit_keys text[]
)
WITH (fillfactor='70', autovacuum_vacuum_scale_factor='0.02', autovacuum_vacuum_threshold='500');


--
-- Name: progress; Type: TABLE; Schema: postrider; Owner: -
--

CREATE TABLE postrider.progress (
    id bigint NOT NULL,
    lease bigint NOT NULL,
    percent smallint NOT NULL,
    note text NOT NULL,
    at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    CONSTRAINT percent_is_0_to_100 CHECK (((percent >= 0) AND (percent <= 100)))
)
WITH (fillfactor='70', autovacuum_vacuum_scale_factor='0.02', autovacuum_vacuum_threshold='500');


--
-- Name: worker; Type: TABLE; Schema: postrider; Owner: -
--

CREATE TABLE postrider.worker (
    id uuid NOT NULL,
    app text NOT NULL,
    version text NOT NULL,
    host text NOT NULL,
    pid integer NOT NULL,
    queues text[] NOT NULL,
    kinds text[] NOT NULL,
    started_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    beat bigint DEFAULT 1 NOT NULL,
    beat_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    schedules text[] DEFAULT '{}'::text[] NOT NULL
)
WITH (fillfactor='50', autovacuum_vacuum_scale_factor='0.02');


--
-- Name: explain_running(postrider.job, postrider.lease); Type: FUNCTION; Schema: postrider; Owner: -
--

CREATE FUNCTION postrider.explain_running(j postrider.job, l postrider.lease) RETURNS text
    LANGUAGE sql STABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    RETURN (format('It runs since %s: attempt %s of %s, under lease %s of worker %s%s%s%s.'::text, postrider.said((l).claimed_at), (l).attempts[array_position((l).ids, (j).id)], (j).max_attempts, (l).id, (l).worker, COALESCE((SELECT format(' (%s on %s, process %s)'::text, w.app, w.host, w.pid) AS format FROM postrider.worker w WHERE (w.id = (explain_running.l).worker)), ', which is gone: another worker puts it back'::text), (SELECT format('; %s %% done at %s%s'::text, g.percent, postrider.said(g.at), COALESCE((': '::text || NULLIF(g.note, ''::text)), ''::text)) AS format FROM postrider.progress g WHERE ((g.id = (explain_running.j).id) AND (g.lease = (explain_running.l).id))), CASE WHEN (EXISTS (SELECT FROM postrider.cancellation c WHERE (c.id = (explain_running.j).id))) THEN '; it is to be cancelled'::text ELSE NULL::text END) || COALESCE((SELECT format(' It comes after job %s, which has the turn of its order key %L: its worker runs them one after the other.'::text, x.holder, (explain_running.j).order_key) AS format FROM postrider.lane x WHERE ((x.queue = (explain_running.j).queue) AND (x.key = ('order:'::text || (explain_running.j).order_key)) AND ((explain_running.j).id = ANY (x.line)))), ''::text));


--
-- Name: failure; Type: TABLE; Schema: postrider; Owner: -
--

CREATE TABLE postrider.failure (
    kind text NOT NULL COLLATE pg_catalog."C",
    fingerprint text NOT NULL,
    says text NOT NULL,
    sample text NOT NULL,
    n bigint NOT NULL,
    discarded bigint NOT NULL,
    first_at timestamp with time zone NOT NULL,
    last_at timestamp with time zone NOT NULL,
    last_job bigint NOT NULL
);


--
-- Name: failures(text, integer); Type: FUNCTION; Schema: postrider; Owner: -
--

CREATE FUNCTION postrider.failures(kind text DEFAULT NULL::text, most integer DEFAULT 100) RETURNS SETOF postrider.failure
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET lock_timeout TO '500ms'
    AS $$
begin
    if current_setting('transaction_read_only') = 'off' then
        perform postrider.group_failures(10000);
    end if;
    return query select f.* from postrider.failure f where failures.kind is null or f.kind = failures.kind
                  order by f.last_at desc, f.kind, f.fingerprint limit least(most, 1000);
end $$;


--
-- Name: fan_out(timestamp with time zone, bigint[], text[], text[], bigint[]); Type: FUNCTION; Schema: postrider; Owner: -
--

CREATE FUNCTION postrider.fan_out(at timestamp with time zone, seqs bigint[], types text[], owners text[], subscriptions bigint[] DEFAULT NULL::bigint[]) RETURNS integer
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET jit TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    AS $$
declare
    made int;
begin
    with matched as materialized (
        -- the ordered subquery first, nextval outside of it, so that ids follow seq
        select (pg_sequence_last_value('postrider.job_epoch'::regclass) << 46) | (nextval('postrider.job_number') << 2) | t.class as id, t.*,
               case when t.limit_key is not null then 96 when t.order_key is not null then 32 else 0 end as flags
          from postrider.matches(fan_out.at, fan_out.seqs, fan_out.types, fan_out.owners, fan_out.subscriptions) t
         where not t.coalescing
    ), jobs as (
        insert into postrider.job (class, id, kind, queue, priority, max_attempts, owner, run_at, subscription, event_seq,
                                   order_key, order_rule, limit_key, share)
        select m.class, m.id, m.kind, m.queue, m.priority, m.max_attempts, m.owner, m.run_at, m.subscription, m.seq,
               m.order_key, m.order_rule, m.limit_key, m.share
          from matched m
    ), now_ready as (
        insert into postrider.ready (queue, priority, share, pos, id, flags, order_key)
        select m.queue, m.priority, coalesce(m.share, 0), m.id, m.id, m.flags, m.order_key from matched m where m.run_at is null
    ), for_later as (
        insert into postrider.later (run_at, id, queue, priority, share, flags, order_key)
        select m.run_at, m.id, m.queue, m.priority, coalesce(m.share, 0), m.flags, m.order_key from matched m where m.run_at is not null
    )
    select count(*) into made from matched;
    if exists (select from postrider.route r where r.coalescing) then
        made := made + postrider.coalesce_events(fan_out.at, fan_out.seqs, fan_out.types, fan_out.owners, fan_out.subscriptions);
    end if;
    return made;
end $$;


--
-- Name: find_jobs(json, bigint, bigint, integer); Type: FUNCTION; Schema: postrider; Owner: -
--

CREATE FUNCTION postrider.find_jobs(filter json, after bigint, upto bigint, looked_at integer) RETURNS TABLE(id bigint, state text)
    LANGUAGE plpgsql STABLE SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET jit TO 'off'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    AS $$
#variable_conflict use_column
declare
    j postrider.job;
    s text;
    last bigint;
    states text[] := array(select json_array_elements_text(coalesce(filter -> 'states', '[]')));
    subscription bigint := postrider.asked_subscription(filter);
    tags text[] := postrider.asked_tags(filter);
begin
    for j in
        select q.* from (values (1::smallint), (2::smallint), (3::smallint)) c (class)
         cross join lateral (
            select x.* from postrider.job x where x.class = c.class and x.id > find_jobs.after and x.id <= find_jobs.upto
             order by x.id limit find_jobs.looked_at) q
         order by q.id limit find_jobs.looked_at
    loop
        last := j.id;
        continue when not postrider.fits(j, filter, subscription, tags);
        s := postrider.state_of(j);
        continue when cardinality(states) > 0 and (s is null or s <> all (states));
        return query select j.id, s;
    end loop;
    return query select last, null::text where last is not null;
end $$;


--
-- Name: finish(uuid, bigint[], bigint[], smallint[], bigint[], text[], text[]); Type: FUNCTION; Schema: postrider; Owner: -
--

CREATE FUNCTION postrider.finish(worker uuid, leases bigint[], ids bigint[], outcomes smallint[], delays_ms bigint[], reasons text[], outputs text[] DEFAULT NULL::text[]) RETURNS TABLE(lease bigint, id bigint)
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET jit TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_nestloop TO 'off'
    SET enable_mergejoin TO 'off'
    AS $$
#variable_conflict use_column
declare
    special boolean;
    alike boolean;
    cancelled bigint[];
    overtaken bigint[];
begin
    if current_setting('transaction_isolation') <> 'read committed' then
        perform postrider.check_isolation();
    end if;
    if exists (select from unnest(finish.outcomes) o where o not between 1 and 7 or o is null) then
        perform postrider.refuse('PR005', 'outcomes', 'an outcome is not one of 1 to 7', 'see postrider.finish');
    end if;
    -- the lock before the look: the next statement's snapshot sees what the last holder left. Here and below the worker is asked for in
    -- a way that has no index: by its own one, all that it ever held might be walked
    select bool_or(h.special), bool_or(h.special and exists (select from unnest(h.flags) f where f & 17 <> 0)) into special, alike from (
        select l.special, l.flags from postrider.lease l
         where l.id = any (finish.leases) and (l.worker = finish.worker) is true order by l.id for no key update) h;
    if exists (select from postrider.cancellation) then
        cancelled := array(select c.id from postrider.cancellation c where c.id = any (finish.ids));
    end if;
    if alike then
        overtaken := postrider.superseded(finish.ids);
    end if;
    return query
    with told as (
        select distinct on (u.lease, u.id) u.lease, u.id, u.delay_ms, u.reason, u.output, u.outcome as said,
               case when u.outcome <> 1 and u.id = any (cancelled) then 8
                    when u.outcome in (2, 3) and u.id = any (overtaken) then 9 else u.outcome end as outcome
          from unnest(finish.leases, finish.ids, finish.outcomes, finish.delays_ms, finish.reasons, finish.outputs)
               as u (lease, id, outcome, delay_ms, reason, output)
         order by u.lease, u.id
    ), held as materialized (
        -- arrays are read once and joined by hash: looked up for each outcome, a batch would cost its square
        select l.id as lease, l.claimed_at, l.queue, unnest(l.ids) as id, unnest(l.positions) as pos, unnest(l.attempts) as attempt,
               unnest(l.losses) as losses, unnest(l.flags) as flags, unnest(l.priorities) as priority, unnest(l.shares) as share,
               unnest(l.order_keys) as order_key
          from postrider.lease l where l.id = any (finish.leases) and (l.worker = finish.worker) is true
    ), open as materialized (
        select l.id as lease, unnest(l.open) as id
          from postrider.lease l where l.id = any (finish.leases) and (l.worker = finish.worker) is true
    ), live as materialized (
        select t.*, h.claimed_at, h.queue, h.pos, h.attempt, h.losses, h.flags, h.priority, h.share, h.order_key
          from told t
          join open o on o.lease = t.lease and o.id = t.id
          join held h on h.lease = t.lease and h.id = t.id
    ), ended as (
        insert into postrider.done (class, id, started_at, lease, state, ended_as, fault_side, attempt, reason, output)
        select (v.id & 3)::smallint, v.id, v.claimed_at, v.lease,
               case v.outcome when 1 then 2 when 8 then 4 when 9 then 4 else 3 end,
               case v.outcome when 1 then 1 when 4 then 2 when 8 then 5 when 9 then 5 else 3 end,
               case when v.outcome in (1, 8, 9) then null else 2 end, v.attempt,
               case v.outcome when 1 then null when 9 then 'overtaken: another job like it waits'
                    when 8 then coalesce((select min(c.reason) from postrider.cancellation c where c.id = v.id), 'cancelled')
                    else v.reason end,
               case v.outcome when 1 then v.output::json end
          from live v where v.outcome in (1, 4, 5, 7, 8, 9)
    ), waits as (
        insert into postrider.later (run_at, id, queue, priority, share, attempt, losses, flags, why, lease, order_key)
        select clock_timestamp() + greatest(coalesce(v.delay_ms, 0), 0) * interval '1 millisecond', v.id, v.queue, v.priority,
               v.share, (v.attempt - case v.outcome when 3 then 1 else 0 end)::smallint, 0, v.flags & ~12::smallint,
               case v.outcome when 2 then 1 else 2 end, v.lease, v.order_key
          from live v where v.outcome in (2, 3)
    ), released as (
        insert into postrider.ready (queue, priority, share, pos, id, attempt, losses, flags, order_key)
        select v.queue, v.priority, v.share, v.pos, v.id, (v.attempt - 1)::smallint, v.losses, v.flags, v.order_key
          from live v where v.outcome = 6
    ), kept as (
        insert into postrider.attempt (class, id, lease, attempt, outcome, started_at, error)
        select (v.id & 3)::smallint, v.id, v.lease, v.attempt, case v.said when 4 then 4 else 2 end, v.claimed_at, v.reason
          from live v where v.said in (2, 4, 5)
    ), forgotten as (
        delete from postrider.cancellation c
         where c.id = any (array(select v.id from live v where v.outcome in (1, 8) and v.id = any (cancelled)))
    ), rest as materialized (
        select o.lease, array_agg(o.id) filter (where v.id is null) as ids, count(v.id) as n
          from open o left join live v on v.lease = o.lease and v.id = o.id
         group by o.lease
    ), shrunk as (
        update postrider.lease l set open = (select r.ids from rest r where r.lease = l.id)
         where l.id = any (array(select r.lease from rest r where r.n > 0 and r.ids is not null))
    ), closed as (
        delete from postrider.lease l where l.id = any (array(select r.lease from rest r where r.n > 0 and r.ids is null))
    )
    select v.lease, v.id from live v;
    if special then
        perform postrider.after_special(finish.ids, alike);
    end if;
end $$;


--
-- Name: finish_attempts(json); Type: FUNCTION; Schema: postrider; Owner: -
--

CREATE FUNCTION postrider.finish_attempts(told json) RETURNS TABLE(n text, became text)
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET lock_timeout TO '50ms'
    SET jit TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    AS $$
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


--
-- Name: finish_some(json); Type: FUNCTION; Schema: postrider; Owner: -
--

CREATE FUNCTION postrider.finish_some(told json) RETURNS TABLE(n text, became text)
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET jit TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    AS $$
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


--
-- Name: fire_schedule(text, timestamp with time zone, timestamp with time zone, timestamp with time zone[], timestamp with time zone, bigint); Type: FUNCTION; Schema: postrider; Owner: -
--

CREATE FUNCTION postrider.fire_schedule(name text, seen timestamp with time zone, next timestamp with time zone, due timestamp with time zone[], passed timestamp with time zone, missed bigint) RETURNS text
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET jit TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    AS $$
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


--
-- Name: first_cut(integer); Type: FUNCTION; Schema: postrider; Owner: -
--

CREATE FUNCTION postrider.first_cut(epoch integer) RETURNS postrider.cut
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
declare
    c postrider.cut;
begin
    c.no := 1;
    c.from_no := 1;
    c.epoch := first_cut.epoch;
    c.hi := pg_current_snapshot();
    c.more := false;
    c.at := clock_timestamp();
    c.n := 0;
    c.jobs := 0;
    c.aside := 0;
    c.elsewhere := false;
    c.events_total := 0;
    c.jobs_total := 0;
    c.hash := postrider.cut_hash('\x', c);
    return c;
end $$;


--
-- Name: first_of_key(text, text, uuid); Type: FUNCTION; Schema: postrider; Owner: -
--

CREATE FUNCTION postrider.first_of_key(owner text, key text, new_id uuid) RETURNS uuid
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
declare
    known_id uuid;
begin
    if key = '' or octet_length(key) > 200 then
        perform postrider.refuse('PR005', 'idempotency_key', 'a key is 1 to 200 bytes', 'use a shorter key');
    end if;
    loop
        select i.event_id into known_id from postrider.idempotency i
         where i.owner = first_of_key.owner and i.key = first_of_key.key and i.until > clock_timestamp();
        if found then
            return known_id;
        end if;
        delete from postrider.idempotency i
         where i.owner = first_of_key.owner and i.key = first_of_key.key and i.until <= clock_timestamp();
        insert into postrider.idempotency (owner, key, event_id, until)
        values (first_of_key.owner, first_of_key.key, new_id, clock_timestamp() + interval '24 hours')
        on conflict do nothing;
        if found then
            return new_id;
        end if;
    end loop;
end $$;


--
-- Name: fits(postrider.job, json, bigint, text[]); Type: FUNCTION; Schema: postrider; Owner: -
--

CREATE FUNCTION postrider.fits(j postrider.job, filter json, subscription bigint, tags text[]) RETURNS boolean
    LANGUAGE plpgsql STABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
begin
    return (j.kind <> (filter ->> 'kind') or j.queue <> (filter ->> 'queue') or j.owner <> (filter ->> 'owner')
            or j.order_key is distinct from coalesce(filter ->> 'order_key', j.order_key)
            or j.limit_key is distinct from coalesce(filter ->> 'limit_key', j.limit_key)
            or j.created_at < (filter ->> 'from')::timestamptz or j.created_at >= (filter ->> 'to')::timestamptz
            or j.subscription is distinct from coalesce(subscription, j.subscription)
            or tags <> '{}' and exists (
                select from unnest(tags) a
                 where not exists (select from postrider.tag t where t.class = j.class and t.id = j.id and t.tag = a))
            or not j.args::jsonb @> nullif((filter -> 'args')::jsonb, 'null')) is not true;
end $$;


--
-- Name: flags_of_event_job(boolean, text, text); Type: FUNCTION; Schema: postrider; Owner: -
--

CREATE FUNCTION postrider.flags_of_event_job(stands_for_others boolean, order_key text, limit_key text) RETURNS smallint
    LANGUAGE sql IMMUTABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    RETURN ((CASE WHEN stands_for_others THEN 17 ELSE 0 END | CASE WHEN (limit_key IS NOT NULL) THEN 96 WHEN (order_key IS NOT NULL) THEN 32 ELSE 0 END))::smallint;


--
-- Name: flags_of_waiting(smallint); Type: FUNCTION; Schema: postrider; Owner: -
--

CREATE FUNCTION postrider.flags_of_waiting(flags smallint) RETURNS smallint
    LANGUAGE sql IMMUTABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    RETURN CASE WHEN (((flags)::integer & 8) = 0) THEN flags ELSE ((flags & (~ (8)::smallint)) | (128)::smallint) END;


--
-- Name: follow(uuid, text); Type: FUNCTION; Schema: postrider; Owner: -
--

CREATE FUNCTION postrider.follow(cause uuid, INOUT traceparent text, OUT depth integer) RETURNS record
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $_$
declare
    most text := coalesce(current_setting('postrider.depth_max', true), '');
    before record;
begin
    depth := 0;
    if traceparent <> '' and (traceparent !~ '^[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$' or traceparent like 'ff-%'
                              or substr(traceparent, 4, 32) = repeat('0', 32) or substr(traceparent, 37, 16) = repeat('0', 16))
    then
        perform nextval('postrider.traceparent_dropped');
        traceparent := null;
    end if;
    traceparent := nullif(traceparent, '');
    if cause is not null then
        select e.depth, e.traceparent into before from postrider.event e where e.seq = postrider.event_seq(follow.cause) and e.id = follow.cause;
        depth := coalesce(before.depth, 0) + 1;
        traceparent := coalesce(traceparent, before.traceparent);
        if depth > (case when most ~ '^[1-9][0-9]{0,3}$' then most::int else 32 end) then
            perform postrider.refuse('PR009', 'cause', format('the chain of events that caused each other would be %s long', depth),
                'end the loop: what handles one of them records the next; or raise the limit, the setting postrider.depth_max');
        end if;
    end if;
end $_$;


--
-- Name: forget_leftovers(); Type: FUNCTION; Schema: postrider; Owner: -
--

CREATE FUNCTION postrider.forget_leftovers() RETURNS void
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
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


--
-- Name: forget_mismatches(); Type: FUNCTION; Schema: postrider; Owner: -
--

CREATE FUNCTION postrider.forget_mismatches() RETURNS integer
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
declare
    first_seq bigint := (select min(e.seq) from postrider.event e);
    forgotten int;
begin
    delete from postrider.type_mismatch m where m.seq = any (array(
        select o.seq from postrider.type_mismatch o where o.seq < first_seq order by o.seq limit 10000 for update skip locked));
    get diagnostics forgotten = row_count;
    return forgotten;
end $$;


--
-- Name: forget_watch(text); Type: FUNCTION; Schema: postrider; Owner: -
--

CREATE FUNCTION postrider.forget_watch(name text) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
declare
    table_owner oid := (select c.relowner from pg_class c where c.oid = (postrider.plan_unwatch(name)).relation);
begin
    perform postrider.lock_declarations();
    if cardinality((postrider.plan_unwatch(name)).statements) > 0
       or not pg_has_role(coalesce(nullif(current_setting('role'), 'none'), session_user), table_owner, 'usage')
    then
        perform postrider.refuse('PR005', 'name', format('the watch %L still stands, or is not yours', name),
            'end it by postrider.unwatch, as the owner of the table');
    end if;
    delete from postrider.watch w where w.name = forget_watch.name;
end $$;


--
-- Name: forget_written(smallint, bigint); Type: FUNCTION; Schema: postrider; Owner: -
--

CREATE FUNCTION postrider.forget_written(class smallint, first bigint) RETURNS void
    LANGUAGE sql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$ delete from postrider.written w where w.class = forget_written.class and w.first = forget_written.first $$;


--
-- Name: give_up_schedule(text, timestamp with time zone, text); Type: FUNCTION; Schema: postrider; Owner: -
--

CREATE FUNCTION postrider.give_up_schedule(name text, seen timestamp with time zone, problem text) RETURNS boolean
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
begin
    update postrider.schedule e set problem = left(give_up_schedule.problem, 1000)
     where e.name = give_up_schedule.name and e.next_at is not distinct from give_up_schedule.seen;
    return found;
end $$;


--
-- Name: glance(); Type: FUNCTION; Schema: postrider; Owner: -
--

CREATE FUNCTION postrider.glance() RETURNS TABLE(events text, jobs text, ready text, later text, retrying text, parked text, running text, workers text, oldest_us text)
    LANGUAGE plpgsql STABLE SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET jit TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    AS $$
begin
    return query
    select c.events_total::text, c.jobs_total::text,
           (select count(*) from (select from postrider.ready limit 10000) x)::text,
           (select count(*) from (select from postrider.later limit 10000) x)::text,
           -- of what was moved there, which has an index
           (select count(*) filter (where x.why = 1) from (select y.why from postrider.later y where y.why <> 0 limit 10000) x)::text,
           (select count(*) from (select from postrider.parked limit 10000) x)::text,
           (select coalesce(sum(cardinality(l.open)), 0) from postrider.lease l)::text,
           (select count(*) from postrider.worker)::text,
           (select (extract(epoch from clock_timestamp() - min(h.due_at)) * 1000000)::bigint from postrider.heads() h)::text
      from (select * from postrider.cut order by no desc limit 1) c;
end $$;


--
-- Name: job_number; Type: SEQUENCE; Schema: postrider; Owner: -
--

CREATE SEQUENCE postrider.job_number
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    MAXVALUE 17592186044415
    CACHE 1;


--
-- Name: retired; Type: TABLE; Schema: postrider; Owner: -
--

CREATE TABLE postrider.retired (
    class smallint NOT NULL,
    first bigint NOT NULL,
    until bigint NOT NULL,
    retired_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    ended_by timestamp with time zone,
    swept boolean DEFAULT false NOT NULL
);


--
-- Name: gone_since(bigint); Type: FUNCTION; Schema: postrider; Owner: -
--

CREATE FUNCTION postrider.gone_since(id bigint) RETURNS timestamp with time zone
    LANGUAGE sql STABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    RETURN (SELECT r.ended_by FROM postrider.retired r WHERE ((r.class = ((gone_since.id & (3)::bigint))::smallint) AND (r.first <= (gone_since.id >> 46)) AND ((gone_since.id >> 46) < r.until) AND ((((gone_since.id >> 2) & '17592186044415'::bigint) >= 1) AND (((gone_since.id >> 2) & '17592186044415'::bigint) <= COALESCE(pg_sequence_last_value('postrider.job_number'::regclass), (0)::bigint))) AND (NOT (EXISTS (SELECT FROM postrider.job j WHERE ((j.class = ((gone_since.id & (3)::bigint))::smallint) AND (j.id = gone_since.id)))))));


--
-- Name: group_failures(integer); Type: FUNCTION; Schema: postrider; Owner: -
--

CREATE FUNCTION postrider.group_failures(most integer) RETURNS integer
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET jit TO 'off'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    AS $$
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


--
-- Name: hand_over(integer, boolean, boolean, json); Type: FUNCTION; Schema: postrider; Owner: -
--

CREATE FUNCTION postrider.hand_over(most integer, elsewhere boolean DEFAULT false, careful boolean DEFAULT false, refused json DEFAULT NULL::json) RETURNS postrider.relayed
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET jit TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    AS $$
declare
    b postrider.subscription_start;
    last postrider.cut;
    new postrider.cut;
    made record;
    now_at postrider.log_position;
    answer postrider.relayed := row (null, 0, 0, true, false, 'busy', null, true, 0, null);
    seqs bigint[];
    types text[];
    owners text[];
    last_seen bigint;
    looked int;
    over boolean;
    taken boolean;
    walkers bigint[];
begin
    perform postrider.check_isolation();
    if not pg_try_advisory_xact_lock(7305, 1) then
        return answer;
    end if;
    select * into last from postrider.cut order by no desc limit 1;
    now_at := row (last.epoch, last.lo, last.hi, last.more, last.last_seq);
    -- whoever changes a subscription just now is not waited for
    select * into b from postrider.subscription_start x where x.over_at is null order by x.walked_at, x.id limit 1 for update skip locked;
    if b.id is null then
        answer.why := 'idle';
        answer.more := false;
        answer.starting := false;
        return answer;
    end if;
    answer.why := 'done';
    walkers := postrider.walkers(b);
    if b.upto is null then
        b.upto := now_at;
        b.after := postrider.walk_from(b);
    end if;
    select max(w.seq), count(*), array_agg(w.seq order by w.seq) filter (where w.wanted), array_agg(w.type order by w.seq) filter (where w.wanted),
           array_agg(w.owner order by w.seq) filter (where w.wanted)
      into last_seen, looked, seqs, types, owners
      from postrider.walk(b, case when careful then 512 else 2 * most end) w;
    new := last;
    new.elsewhere := elsewhere;
    new.aside := 0;
    new.first_job := postrider.job_position();
    if seqs is not null and elsewhere then
        answer.matched := postrider.tell_matched(greatest(clock_timestamp(), last.at), seqs, types, owners, walkers);
        if refused is not null then
            select x.matched_left, x.aside into answer.matched, new.aside from postrider.without_refused(last.no + 1, answer.matched, refused) x;
        end if;
        answer.jobs := json_array_length(answer.matched -> 'jobs');
    elsif seqs is not null and careful then
        select * into made from postrider.make_each(last.no + 1, greatest(clock_timestamp(), last.at), row (seqs, types, owners, null), false,
                                                    walkers);
        answer.jobs := made.jobs;
        new.aside := made.aside;
        if made.upto < cardinality(seqs) then
            last_seen := seqs[made.upto];
            looked := greatest(512, 2 * most);
        end if;
    elsif seqs is not null then
        answer.jobs := postrider.fan_out(greatest(clock_timestamp(), last.at), seqs, types, owners, walkers);
    end if;
    answer.n := coalesce(cardinality(seqs), 0);
    answer.aside := new.aside;
    if answer.jobs + new.aside > 0 then
        new.jobs := answer.jobs;
        new.last_job := postrider.job_position() | 3;
        new.backlog := null;
        new.start := b.id;
        new.part_after := b.after;
        new.part_upto := last_seen;
        perform postrider.note_cut(last, new);
    end if;
    -- fewer than were asked for: so far the log was walked to its end
    over := looked < (case when careful then 512 else 2 * most end);
    -- a backlog that is not over would bring those that were walked a second time
    taken := over and b.upto::text = now_at::text and not exists (select from postrider.backlog x where x.over_at is null);
    update postrider.subscription_start x
       set done = case when over then b.upto else b.done end, upto = case when over then null else b.upto end,
           after = case when over then 0 else last_seen end, events = x.events + answer.n, jobs = x.jobs + answer.jobs,
           walked_at = clock_timestamp(), over_at = case when taken then clock_timestamp() end
     where x.id = b.id;
    if taken then
        update postrider.route r set starting = false where r.subscription = b.subscription;
        answer.starting := exists (select from postrider.subscription_start x where x.over_at is null);
        answer.more := answer.starting;
    end if;
    if answer.jobs > 0 and not elsewhere then
        perform postrider.wake('postrider_job');
    end if;
    return answer;
end $$;


--
-- Name: has_partition(text, bigint); Type: FUNCTION; Schema: postrider; Owner: -
--

CREATE FUNCTION postrider.has_partition(unit text, id bigint) RETURNS boolean
    LANGUAGE sql STABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    RETURN (to_regclass(CASE unit WHEN 'event'::text THEN format('postrider.event_e%s'::text, (id >> 46)) ELSE format('postrider.job_c%s_e%s'::text, (id & (3)::bigint), CASE (id & (3)::bigint) WHEN 3 THEN (((id >> 46) / 7) * 7) ELSE (id >> 46) END) END) IS NOT NULL);


--
-- Name: has_rows(text); Type: FUNCTION; Schema: postrider; Owner: -
--

CREATE FUNCTION postrider.has_rows(child text) RETURNS boolean
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
declare
    found_one boolean;
begin
    execute format('select exists (select from postrider.%I)', child) into found_one;
    return found_one;
end $$;


--
-- Name: heads(); Type: FUNCTION; Schema: postrider; Owner: -
--

CREATE FUNCTION postrider.heads() RETURNS TABLE(queue text, id bigint, due_at timestamp with time zone)
    LANGUAGE plpgsql STABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET jit TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    AS $$
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


--
-- Name: hold(text, text, timestamp with time zone, text); Type: FUNCTION; Schema: postrider; Owner: -
--

CREATE FUNCTION postrider.hold(queue text, key text, until timestamp with time zone, reason text DEFAULT ''::text) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
#variable_conflict use_variable
begin
    perform postrider.check_name('queue', queue, true);
    perform postrider.check_keys(null, null, nullif(key, ''));
    insert into postrider.key_limit as l (queue, key, held_until, reason) values (queue, key, until, left(reason, 1000))
        on conflict on constraint key_limit_pkey do update
       set held_until = excluded.held_until, reason = excluded.reason, changed_at = clock_timestamp();
    perform postrider.call_limits(queue, key);
end $$;


--
-- Name: hold_group(bigint); Type: FUNCTION; Schema: postrider; Owner: -
--

CREATE FUNCTION postrider.hold_group(id bigint) RETURNS boolean
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET jit TO 'off'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    AS $$
declare
    of_job bytea := (select j.unique_hash from postrider.job j where j.class = (hold_group.id & 3)::smallint and j.id = hold_group.id);
begin
    perform from postrider.uniq u where u.hash = of_job for no key update skip locked;
    return found or not exists (select from postrider.uniq u where u.hash = of_job);
end $$;


--
-- Name: housekeep(text); Type: FUNCTION; Schema: postrider; Owner: -
--

CREATE FUNCTION postrider.housekeep(duty text DEFAULT 'usual'::text) RETURNS json
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET lock_timeout TO '500ms'
    AS $$
declare
    started timestamptz := clock_timestamp();
    told json;
begin
    if not pg_try_advisory_xact_lock(7305, 5) then
        return json_build_object('busy', true, 'advanced', '[]'::json, 'keys_forgotten', 0);
    end if;
    if duty = 'usual' then
        told := postrider.usual_duties();
    elsif duty = 'retire' then
        told := postrider.retire();
    elsif duty = 'failures' then
        select json_build_object('grouped', g, 'again', g >= 10000) into told from postrider.group_failures(10000) g;
    else
        perform postrider.refuse('PR005', 'duty', format('%L is not a duty', left(duty, 80)), 'use usual, retire or failures');
    end if;
    insert into postrider.duty as d (name, done_at, took_ms, told)
    values (housekeep.duty, clock_timestamp(), (extract(epoch from clock_timestamp() - started) * 1000)::bigint, told)
    on conflict (name) do update set done_at = excluded.done_at, took_ms = excluded.took_ms, told = excluded.told,
        failing_since = null, error = null;
    return told;
end $$;


--
-- Name: huge_transactions(postrider.cut, bigint, integer); Type: FUNCTION; Schema: postrider; Owner: -
--

CREATE FUNCTION postrider.huge_transactions(w postrider.cut, floor_seq bigint, most integer) RETURNS xid8[]
    LANGUAGE plpgsql STABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET jit TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    AS $$
declare
    huge xid8[];
    part record;
    above xid8 := (pg_snapshot_xmax(w.lo)::text::bigint - 1)::text::xid8;
begin
    select array_agg(x.open order by x.open) into huge
      from pg_snapshot_xip(w.lo) x (open)
     where pg_visible_in_snapshot(x.open, w.hi)
       and exists (select from postrider.event v where v.xid = x.open and v.seq > floor_seq order by v.seq offset most limit 1);
    loop
        select sum(g.n) as n, max(g.xid) as last, array_agg(g.xid order by g.xid) filter (where g.n > most) as huge
          into part
          from (select c.xid, count(*) as n
                  from (select v.xid from postrider.event v
                         where v.xid > above and v.xid < pg_snapshot_xmax(w.hi) and v.seq > floor_seq
                         order by v.xid limit 2 * most) c
                 group by c.xid) g;
        huge := huge || part.huge;
        exit when coalesce(part.n, 0) < 2 * most;
        -- the last one may be cut off
        if part.last <> all (coalesce(part.huge, '{}'))
           and exists (select from postrider.event v where v.xid = part.last and v.seq > floor_seq order by v.seq offset most limit 1)
        then
            huge := huge || part.last;
        end if;
        above := part.last;
    end loop;
    return (select array_agg(x order by x) from unnest(huge) x where pg_visible_in_snapshot(x, w.hi));
end $$;


--
-- Name: is_among(jsonb, jsonb); Type: FUNCTION; Schema: postrider; Owner: -
--

CREATE FUNCTION postrider.is_among(value jsonb, list jsonb) RETURNS boolean
    LANGUAGE plpgsql IMMUTABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
begin
    if jsonb_typeof(value) in ('object', 'array') then
        return exists (select from jsonb_array_elements(list) e where e = is_among.value);
    end if;
    return list @> value;
end $$;


--
-- Name: is_behind(postrider.log_position, bigint, bigint, xid8, bigint); Type: FUNCTION; Schema: postrider; Owner: -
--

CREATE FUNCTION postrider.is_behind(p postrider.log_position, floor_seq bigint, ceiling_seq bigint, xid xid8, seq bigint) RETURNS boolean
    LANGUAGE sql IMMUTABLE
    RETURN (((p).epoch IS NOT NULL) AND ((seq <= floor_seq) OR ((seq <= ceiling_seq) AND CASE WHEN (p).more THEN (pg_visible_in_snapshot(xid, (p).lo) OR ((seq <= (p).last_seq) AND pg_visible_in_snapshot(xid, (p).hi))) ELSE pg_visible_in_snapshot(xid, (p).hi) END)));


--
-- Name: is_outbound(text); Type: FUNCTION; Schema: postrider; Owner: -
--

CREATE FUNCTION postrider.is_outbound(kind text) RETURNS boolean
    LANGUAGE sql IMMUTABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    RETURN ((kind ~~ 'webhook.%'::text) OR (kind ~~ 'http.%'::text));


--
-- Name: is_held(text); Type: FUNCTION; Schema: postrider; Owner: -
--

CREATE FUNCTION postrider.is_held(kind text) RETURNS boolean
    LANGUAGE sql STABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    RETURN (postrider.is_outbound(kind) AND (EXISTS (SELECT FROM postrider.instance i WHERE (i.outbound_paused_at IS NOT NULL))));


--
-- Name: held; Type: TABLE; Schema: postrider; Owner: -
--

CREATE TABLE postrider.held (
    subscription bigint NOT NULL,
    start bigint NOT NULL
);


--
-- Name: subscription_start; Type: TABLE; Schema: postrider; Owner: -
--

CREATE TABLE postrider.subscription_start (
    id bigint NOT NULL,
    subscription bigint,
    since timestamp with time zone NOT NULL,
    done postrider.log_position,
    upto postrider.log_position,
    after bigint DEFAULT 0 NOT NULL,
    events bigint DEFAULT 0 NOT NULL,
    jobs bigint DEFAULT 0 NOT NULL,
    asked_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    walked_at timestamp with time zone DEFAULT '-infinity'::timestamp with time zone NOT NULL,
    over_at timestamp with time zone
);


--
-- Name: is_held_back(bigint); Type: FUNCTION; Schema: postrider; Owner: -
--

CREATE FUNCTION postrider.is_held_back(subscription bigint) RETURNS boolean
    LANGUAGE sql STABLE
    BEGIN ATOMIC
 SELECT (( SELECT (EXISTS ( SELECT
                    FROM postrider.held)) AS "exists") AND (EXISTS ( SELECT
            FROM (postrider.held h
              JOIN postrider.subscription_start b ON ((b.id = h.start)))
           WHERE ((h.subscription = is_held_back.subscription) AND (b.over_at IS NULL)))));
END;


--
-- Name: is_of_the_server(text); Type: FUNCTION; Schema: postrider; Owner: -
--

CREATE FUNCTION postrider.is_of_the_server(code text) RETURNS boolean
    LANGUAGE sql IMMUTABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    RETURN ("left"(code, 2) = ANY (ARRAY['08'::text, '25'::text, '40'::text, '53'::text, '55'::text, '57'::text, '58'::text]));


--
-- Name: is_owed(bigint, xid8, text, text); Type: FUNCTION; Schema: postrider; Owner: -
--

CREATE FUNCTION postrider.is_owed(seq bigint, xid xid8, type text, owner text) RETURNS boolean
    LANGUAGE plpgsql STABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET jit TO 'off'
    AS $$
declare
    b postrider.subscription_start;
begin
    for b in select x.* from postrider.subscription_start x where x.over_at is null and x.subscription is null loop
        if exists (select from postrider.route r
                    where r.type = is_owed.type and r.owner = any (array['', is_owed.owner]) and r.subscription = any (postrider.walkers(b)))
           and exists (select from postrider.log_epoch l
                    where l.no = (b.done).epoch
                      and not postrider.is_behind(b.done, l.floor_seq, postrider.epoch_end(l.no), is_owed.xid, is_owed.seq))
           and not ((b.upto).epoch is not null and is_owed.seq <= b.after and exists (
                   select from postrider.log_epoch l
                    where l.no = (b.upto).epoch
                      and postrider.is_behind(b.upto, l.floor_seq, postrider.epoch_end(l.no), is_owed.xid, is_owed.seq)))
        then
            return true;
        end if;
    end loop;
    return false;
end $$;


--
-- Name: rebased; Type: TABLE; Schema: postrider; Owner: -
--

CREATE TABLE postrider.rebased (
    seq bigint NOT NULL,
    epoch integer NOT NULL,
    cut bigint
);


--
-- Name: is_relayed(bigint, xid8); Type: FUNCTION; Schema: postrider; Owner: -
--

CREATE FUNCTION postrider.is_relayed(seq bigint, xid xid8) RETURNS boolean
    LANGUAGE sql STABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    RETURN (SELECT ((NOT (EXISTS (SELECT FROM postrider.backlog b WHERE ((b.over_at IS NULL) AND (is_relayed.xid = ANY (b.xids)) AND (is_relayed.seq > b.after))))) AND CASE WHEN (is_relayed.seq <= l.floor_seq) THEN (((l.done_at IS NOT NULL) OR (NOT (EXISTS (SELECT FROM postrider.rebased r WHERE ((r.seq = is_relayed.seq) AND (r.cut IS NULL)))))) AND (NOT (is_relayed.xid = ANY (l.late)))) ELSE (pg_visible_in_snapshot(is_relayed.xid, COALESCE(c.lo, c.hi)) OR (c.more AND (is_relayed.seq <= c.last_seq) AND pg_visible_in_snapshot(is_relayed.xid, c.hi))) END) FROM ((SELECT cut.no, cut.from_no, cut.epoch, cut.hi, cut.lo, cut.r_first, cut.r_last, cut.more, cut.at, cut.n, cut.jobs, cut.aside, cut.elsewhere, cut.events_total, cut.jobs_total, cut.first_seq, cut.last_seq, cut.first_job, cut.last_job, cut.digest, cut.joined, cut.hash, cut.apart, cut.backlog, cut.start, cut.part_after, cut.part_upto FROM postrider.cut ORDER BY cut.no DESC LIMIT 1) c JOIN postrider.log_epoch l ON ((l.no = c.epoch))));


--
-- Name: job_epoch; Type: SEQUENCE; Schema: postrider; Owner: -
--

CREATE SEQUENCE postrider.job_epoch
    START WITH 0
    INCREMENT BY 1
    MINVALUE 0
    MAXVALUE 65535
    CACHE 1;


--
-- Name: job_position(); Type: FUNCTION; Schema: postrider; Owner: -
--

CREATE FUNCTION postrider.job_position() RETURNS bigint
    LANGUAGE sql
    SET search_path TO 'pg_catalog', 'pg_temp'
    RETURN ((pg_sequence_last_value('postrider.job_epoch'::regclass) << 46) | (COALESCE(pg_sequence_last_value('postrider.job_number'::regclass), (0)::bigint) << 2));


--
-- Name: job_spans(); Type: FUNCTION; Schema: postrider; Owner: -
--

CREATE FUNCTION postrider.job_spans() RETURNS TABLE(class smallint, first bigint, until bigint, kept boolean, suffix text, closed_at timestamp with time zone)
    LANGUAGE sql STABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $_$
    select s.*, (select e.started_at from postrider.epoch e where e.unit = 'job' and e.epoch = s.until)
      from (
        select m[1]::smallint, m[3]::bigint,
               case m[2] when 'k' then m[4]::bigint else m[3]::bigint + case m[1] when '3' then 7 else 1 end end as until,
               m[2] = 'k', substr(c.relname, 4)
          from pg_inherits i
          join pg_class c on c.oid = i.inhrelid
         cross join lateral regexp_match(c.relname, '^job_c([123])_([ek])([0-9]+)(?:_([0-9]+))?$') m
         where i.inhparent = 'postrider.job'::regclass and m is not null) s (class, first, until, kept, suffix)
$_$;


--
-- Name: job_views(bigint[], boolean); Type: FUNCTION; Schema: postrider; Owner: -
--

CREATE FUNCTION postrider.job_views(ids bigint[], attempts boolean) RETURNS TABLE(id text, kind text, queue text, priority text, owner text, state text, waits text, waits_until_us text, behind text, attempt text, max_attempts text, args text, created_at_us text, started_at_us text, finished_at_us text, reason text, ended_as text, output text, percent text, note text, note_at_us text, lease text, history text, waits_why text, order_key text, limit_key text, tags text)
    LANGUAGE plpgsql STABLE SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET jit TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    AS $$
#variable_conflict use_column
begin
    return query
    with asked as (
        select j.*, i.o from unnest(job_views.ids) with ordinality i (id, o) join postrider.job j on j.class = (i.id & 3)::smallint and j.id = i.id
    ), waiting as (
        select a.id, r.attempt, 'due' as why, null::timestamptz as at, null::text as said, null::bigint as behind
          from asked a join postrider.ready r on r.queue = a.queue and r.priority = a.priority and r.share = coalesce(a.share, 0) and r.pos = a.id and r.id = a.id
        union all
        select a.id, r.attempt, 'due', null, null, null from asked a join postrider.ready r on r.id = a.id and r.pos <> r.id
        union all
        select a.id, y.attempt, (array['scheduled', 'backoff', 'snoozed'])[y.why + 1], y.run_at, null, null
          from asked a join postrider.later y on y.run_at = a.run_at and y.id = a.id
        union all
        select a.id, y.attempt, (array['scheduled', 'backoff', 'snoozed'])[y.why + 1], y.run_at, null, null
          from asked a join postrider.later y on y.id = a.id and y.why <> 0 and y.run_at is distinct from a.run_at
        union all
        select a.id, p.attempt, case when p.key like 'kind:%' then 'no_worker' when p.key = 'strict:' then 'suspect'
                    when p.key like 'unique:%' then 'behind' when l.stopped_at is not null then 'stopped' when l.holder is not null then 'turn'
                    when p.key like 'order:%' then 'due' when c.held_until > clock_timestamp() then 'held' else 'limited' end,
               c.held_until, coalesce(l.reason, c.reason), l.holder
          from asked a join postrider.parked p on p.id = a.id
          left join postrider.lane l on p.key like 'order:%' and l.queue = p.queue and l.key = p.key
          left join lateral (
                select k.held_until, k.reason from postrider.key_limit k
                 where p.key like 'limit:%' and k.queue = p.queue and k.key = any (array[substr(p.key, 7), ''])
                   and k.held_until > clock_timestamp() order by k.held_until desc limit 1) c on true
    )
    select j.id::text, j.kind::text, j.queue, j.priority::text, j.owner::text,
           case when d.id is not null then postrider.end_name(d.state) when l.id is not null then 'running'
                when w.attempt > 0 then 'retryable' else 'pending' end,
           case when w.why = 'due' and exists (select from postrider.queue q where q.name = j.queue and q.paused_at is not null) then 'paused'
                when w.why = 'due' and not exists (select from postrider.worker k where j.kind = any (k.kinds)) then 'no_worker'
                else w.why end,
           ((extract(epoch from w.at) * 1000000)::bigint)::text,
           coalesce(w.behind::text, (select coalesce(u.running, u.job)::text from postrider.uniq u where u.hash = j.unique_hash)),
           coalesce(d.attempt, l.attempt, w.attempt, 0)::text, j.max_attempts::text, j.args::text,
           ((extract(epoch from j.created_at) * 1000000)::bigint)::text,
           ((extract(epoch from coalesce(d.started_at, l.claimed_at)) * 1000000)::bigint)::text,
           ((extract(epoch from d.finished_at) * 1000000)::bigint)::text,
           coalesce(d.reason, case when d.id is null then (
                select a.error from postrider.attempt a where a.class = j.class and a.id = j.id order by a.lease desc limit 1) end),
           (array['completed', 'refused', 'exhausted', 'lost', 'cancelled'])[d.ended_as], d.output::text,
           p.percent::text, p.note, ((extract(epoch from p.at) * 1000000)::bigint)::text, l.id::text,
           case when job_views.attempts then (
                select json_agg(json_build_object('attempt', a.attempt,
                           'outcome', (array['completed', 'failed', 'lost', 'refused', 'cancelled'])[a.outcome],
                           'started_at', (extract(epoch from a.started_at) * 1000000)::bigint,
                           'ended_at', (extract(epoch from a.ended_at) * 1000000)::bigint, 'error', a.error) order by a.lease)
                  from postrider.attempt a where a.class = j.class and a.id = j.id)::text end,
           w.said, j.order_key::text, j.limit_key::text,
           (select json_agg(t.tag order by t.tag)::text from postrider.tag t where t.class = j.class and t.id = j.id)
      from asked j
      left join postrider.done d on d.class = j.class and d.id = j.id
      left join lateral (
            select x.id, x.claimed_at, x.attempts[array_position(x.ids, j.id)] as attempt
              from postrider.lease x where j.id = any (x.open) limit 1) l on d.id is null
      left join waiting w on w.id = j.id and d.id is null and l.id is null
      left join postrider.progress p on p.id = j.id and p.lease = l.id
     order by j.o;
end $$;


--
-- Name: poison; Type: TABLE; Schema: postrider; Owner: -
--

CREATE TABLE postrider.poison (
    event_seq bigint NOT NULL,
    subscription bigint NOT NULL,
    cut bigint NOT NULL,
    code text NOT NULL,
    error text NOT NULL,
    since timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    tries smallint DEFAULT 1 NOT NULL,
    tried_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    retry_at timestamp with time zone,
    ended_at timestamp with time zone,
    ended_as text,
    reason text,
    first_job bigint,
    last_job bigint,
    CONSTRAINT an_end_has_a_name CHECK (((ended_at IS NULL) = (ended_as IS NULL))),
    CONSTRAINT ended_as_is_made_gone_or_dropped CHECK ((ended_as = ANY (ARRAY['made'::text, 'gone'::text, 'dropped'::text])))
);


--
-- Name: jobs_between(bigint, bigint[], bigint[]); Type: FUNCTION; Schema: postrider; Owner: -
--

CREATE FUNCTION postrider.jobs_between(seq bigint, first bigint[], last bigint[]) RETURNS bigint[]
    LANGUAGE sql STABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET jit TO 'off'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    RETURN (SELECT COALESCE(array_agg(j.id ORDER BY j.id), '{}'::bigint[]) AS "coalesce" FROM (((SELECT u.first, u.last FROM UNNEST(jobs_between.first, jobs_between.last) u(first, last) UNION SELECT p.first_job, p.last_job FROM postrider.poison p WHERE ((p.event_seq = jobs_between.seq) AND (p.ended_as = 'made'::text))) x CROSS JOIN (VALUES ((1)::smallint), ((2)::smallint), ((3)::smallint)) k(class)) JOIN postrider.job j ON (((j.class = k.class) AND (j.id > (x.first | (3)::bigint)) AND (j.id <= x.last) AND (j.event_seq = jobs_between.seq)))));


--
-- Name: jobs_of_cut(postrider.cut); Type: FUNCTION; Schema: postrider; Owner: -
--

CREATE FUNCTION postrider.jobs_of_cut(c postrider.cut, OUT n bigint, OUT gone boolean) RETURNS record
    LANGUAGE plpgsql STABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET jit TO 'off'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    AS $$
begin
    select count(*) into n
      from (values (1::smallint), (2::smallint), (3::smallint)) k (class)
      join postrider.job j on j.class = k.class and j.id > (c.first_job | 3) and j.id <= c.last_job
     where j.event_seq is not null and j.subscription is not null
       and not exists (select from postrider.poison p where p.event_seq = j.event_seq and p.subscription = j.subscription
                          and j.id > (p.first_job | 3) and j.id <= p.last_job);
    gone := exists (select from postrider.retired r where r.first <= c.last_job >> 46 and r.until > c.first_job >> 46)
         or exists (select from postrider.deleted d where d.id > c.first_job and d.id <= c.last_job);
end $$;


--
-- Name: done; Type: TABLE; Schema: postrider; Owner: -
--

CREATE TABLE postrider.done (
    class smallint NOT NULL,
    id bigint NOT NULL,
    finished_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    started_at timestamp with time zone,
    lease bigint,
    state smallint NOT NULL,
    ended_as smallint NOT NULL,
    fault_side smallint,
    attempt smallint NOT NULL,
    reason text,
    output json,
    CONSTRAINT a_completed_job_has_no_reason CHECK (((state <> 2) OR (reason IS NULL)))
)
PARTITION BY RANGE (class, id);


--
-- Name: jobs_open(bigint[]); Type: FUNCTION; Schema: postrider; Owner: -
--

CREATE FUNCTION postrider.jobs_open(jobs bigint[]) RETURNS bigint[]
    LANGUAGE sql STABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    RETURN ARRAY(SELECT i.id FROM unnest(jobs_open.jobs) WITH ORDINALITY i(id, o) WHERE ((EXISTS (SELECT FROM postrider.job j WHERE ((j.class = ((i.id & (3)::bigint))::smallint) AND (j.id = i.id)))) AND (NOT (EXISTS (SELECT FROM postrider.done d WHERE ((d.class = ((i.id & (3)::bigint))::smallint) AND (d.id = i.id)))))) ORDER BY i.o);


--
-- Name: join_cuts(integer); Type: FUNCTION; Schema: postrider; Owner: -
--

CREATE FUNCTION postrider.join_cuts(most integer DEFAULT 5000) RETURNS integer
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET jit TO 'off'
    AS $$
declare
    rows postrider.cut[];
    whole int := 0;
    g record;
    e record;
    before postrider.cut;
    c postrider.cut;
    went int := 0;
    mark bigint;
begin
    select j.no into mark from postrider.joined_cuts j for update;
    select array_agg(q.x order by (q.x).no) into rows from (
        select y from postrider.cut y where y.no > mark and y.at < date_trunc('minute', clock_timestamp() - interval '1 hour') order by y.no limit most) q (x);
    for i in reverse coalesce(cardinality(rows), 0)..1 loop
        if not (rows[i]).more then
            whole := i;
            exit;
        end if;
    end loop;
    -- the last minute may go on behind the rows that were looked at
    for g in
        select min(r.o)::int as first, max(r.o)::int as last, sum(r.n)::int as n, sum(r.jobs)::int as jobs, sum(r.aside)::int as aside,
               min(r.first_seq) as first_seq, max(r.last_seq) as last_seq, min(r.first_job) as first_job, max(r.last_job) as last_job
          from (select u.*, date_trunc('minute', max(u.at) filter (where not u.more) over (partition by u.slices)) as minute
                  from (select t.*, count(*) filter (where not t.more) over (order by t.no desc) as slices
                          from unnest(rows[1:whole]) with ordinality t (no, from_no, epoch, hi, lo, r_first, r_last, more, at, n, jobs, aside, elsewhere,
                               events_total, jobs_total, first_seq, last_seq, first_job, last_job, digest, joined, hash, apart, backlog, start,
                               part_after, part_upto, o)) u) r
          join postrider.log_epoch l on l.no = r.epoch
         where r.last_seq > l.floor_seq and r.n > 0 and r.backlog is null and r.apart is null
         group by r.epoch, r.elsewhere, r.minute having count(*) > 1 and max(r.no) - min(r.from_no) = sum(r.no - r.from_no + 1) - 1
         order by 1
    loop
        select * into before from postrider.cut x where x.no < (rows[g.first]).no order by x.no desc limit 1;
        c := rows[g.last];
        c.from_no := (rows[g.first]).from_no;
        c.n := g.n;
        c.jobs := g.jobs;
        c.aside := g.aside;
        c.first_seq := g.first_seq;
        c.last_seq := g.last_seq;
        c.first_job := g.first_job;
        c.last_job := g.last_job;
        select * into e from postrider.events_of_cut(c, before) x;
        -- what is not whole stays as it is, for postrider.verify to tell
        continue when e.n <> g.n or before.more;
        c.digest := e.digest;
        c.joined := coalesce(c.joined, c.hash);
        c.hash := postrider.cut_hash(coalesce(before.joined, before.hash, '\x'), c);
        delete from postrider.cut x where x.no >= (rows[g.first]).no and x.no <= c.no;
        insert into postrider.cut select c.*;
        went := went + g.last - g.first;
    end loop;
    if whole > 0 then
        update postrider.joined_cuts j set no = (rows[whole]).no;
    end if;
    return went;
end $$;


--
-- Name: judge_holder(postrider.lane); Type: FUNCTION; Schema: postrider; Owner: -
--

CREATE FUNCTION postrider.judge_holder(l postrider.lane) RETURNS void
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET jit TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    AS $$
declare
    members bigint[] := array[l.holder] || coalesce(l.line, '{}');
    who bigint;
    keeps boolean := false;
    stop text;
begin
    loop
        -- whoever has ended and stops nothing is passed over, many in one look
        select m.id into who from unnest(members) m (id)
          left join postrider.done d on d.class = (m.id & 3)::smallint and d.id = m.id
         where d.id is null or d.state = 3 order by m.id limit 1;
        exit when who is null;
        select t.keeps, t.stop into keeps, stop from postrider.judge_turn(l.key, who) t;
        exit when keeps or stop is not null;
        members := array(select m from unnest(members) m where m > who order by m);
    end loop;
    if who = l.holder and keeps then
        return;
    end if;
    update postrider.lane x
       set holder = case when keeps then who end, since = clock_timestamp(),
           line = case when keeps then nullif(array(select m from unnest(members) m where m > who order by m), '{}') end,
           stopped_at = case when stop is not null then clock_timestamp() else x.stopped_at end,
           reason = coalesce(left(stop, 1000), x.reason), stopped_by = case when stop is not null then who else x.stopped_by end,
           low_parked = least(x.low_parked, l.holder), changes = (x.changes + 1) & 63, gen = x.gen + (x.changes = 63)::int
     where x.ctid = (select y.ctid from postrider.lane y where y.queue = l.queue and y.key = l.key order by y.gen desc limit 1);
end $$;


--
-- Name: judge_turn(text, bigint); Type: FUNCTION; Schema: postrider; Owner: -
--

CREATE FUNCTION postrider.judge_turn(lane_key text, who bigint, OUT keeps boolean, OUT stop text) RETURNS record
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET jit TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    AS $$
declare
    h record;
begin
    -- where it is, in one look: between two it could move
    select j.id, j.order_rule, d.state, d.reason, y.run_at, y.why, y.attempt, y.flags & 2 = 0 as unmarked,
           d.id is null and (y.id is not null
               or exists (select from postrider.lease x where j.id = any (x.open))
               or exists (select from postrider.ready r where r.queue = j.queue and r.priority = j.priority
                             and r.share = coalesce(j.share, 0) and r.id = j.id and r.flags & 2 <> 0)
               or exists (select from postrider.parked p where p.id = j.id and p.flags & 2 <> 0)) as keeps
      into h
      from postrider.job j
      left join postrider.done d on d.class = j.class and d.id = j.id
      left join postrider.later y on y.id = j.id and y.why <> 0
     where j.class = (who & 3)::smallint and j.id = who;
    keeps := coalesce(h.keeps, false);
    if not keeps then
        if h.state = 3 and h.order_rule > 0 then
            stop := format('job %s was discarded: %s', h.id, coalesce(h.reason, 'no reason given'));
        end if;
        return;
    end if;
    keeps := h.why is null or h.order_rule = 0 or h.order_rule > 0 and (h.why <> 1 or h.attempt < h.order_rule);
    if keeps and h.unmarked is not true then
        return;
    end if;
    perform from postrider.later y where y.run_at = h.run_at and y.id = h.id for update skip locked;
    if not found then
        -- somebody moves it just now
        perform postrider.call_lanes(j) from postrider.job j where j.class = (h.id & 3)::smallint and j.id = h.id;
        keeps := true;
    elsif keeps then
        -- it got the turn in its line; whoever meets it from now on must see that
        update postrider.later y set flags = y.flags | 2 where y.run_at = h.run_at and y.id = h.id;
    elsif h.order_rule > 0 then
        stop := format('job %s failed %s times: %s', h.id, h.attempt, coalesce((
            select a.error from postrider.attempt a where a.class = (h.id & 3)::smallint and a.id = h.id
             order by a.lease desc limit 1), 'no reason given'));
        with taken as (
            delete from postrider.later y where y.run_at = h.run_at and y.id = h.id returning y.*
        )
        insert into postrider.parked (queue, key, pos, id, priority, share, attempt, losses, flags, order_key)
        select t.queue, lane_key, t.id, t.id, t.priority, t.share, t.attempt, t.losses, t.flags & ~2, t.order_key from taken t;
    else
        update postrider.later y set flags = y.flags & ~2 where y.run_at = h.run_at and y.id = h.id;
    end if;
end $$;


--
-- Name: keep_for(text, interval, text, bigint); Type: FUNCTION; Schema: postrider; Owner: -
--

CREATE FUNCTION postrider.keep_for(what text, keep interval, declared_by text DEFAULT ''::text, generation bigint DEFAULT 0) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
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


--
-- Name: lanes(text, text, integer, text, boolean); Type: FUNCTION; Schema: postrider; Owner: -
--

CREATE FUNCTION postrider.lanes(queue text, after text, most integer, only_key text DEFAULT NULL::text, only_stopped boolean DEFAULT false) RETURNS TABLE(key text, depth text, head text, head_state text, since_us text, stopped_us text, reason text, held_us text)
    LANGUAGE plpgsql STABLE SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET jit TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    AS $$
#variable_conflict use_column
begin
    return query
    select l.key::text,
           (select count(*)::text from (
                select from (select from postrider.parked p where p.queue = l.queue and p.key = l.key and p.pos >= l.low_parked limit 1000) w
                union all
                select from (select from postrider.ready r where r.queue = l.queue and r.order_key = substr(l.key, 7) and l.key like 'order:%'
                                and r.flags & 34 = 32 and r.pos = r.id and r.id >= l.low_ready limit 1000) a
                union all
                select from (select from postrider.ready r where r.queue = l.queue and r.order_key = substr(l.key, 7) and l.key like 'order:%'
                                and r.flags & 34 = 32 and r.pos <> r.id limit 1000) m
                limit 1000) d),
           j.id::text, postrider.state_of(j), ((extract(epoch from l.since) * 1000000)::bigint)::text,
           ((extract(epoch from l.stopped_at) * 1000000)::bigint)::text, coalesce(l.reason, c.reason),
           ((extract(epoch from c.held_until) * 1000000)::bigint)::text
      from (
        select * from (
            select x.* from postrider.lane x
             where not lanes.only_stopped and lanes.only_key is null and x.queue = lanes.queue and x.key > lanes.after
             order by x.key limit lanes.most) every
        union all
        select * from (
            select x.* from postrider.lane x
             where lanes.only_stopped and lanes.only_key is null and x.queue = lanes.queue and x.key > lanes.after and x.stopped_at is not null
             order by x.key limit lanes.most) stopped
        union all
        select x.* from postrider.lane x where x.queue = lanes.queue and x.key = lanes.only_key) l
      left join postrider.job j on j.class = (coalesce(l.holder, l.stopped_by) & 3)::smallint and j.id = coalesce(l.holder, l.stopped_by)
      left join postrider.key_limit c on l.key like 'limit:%' and c.queue = l.queue and c.key = substr(l.key, 7)
                                     and c.held_until > clock_timestamp()
     order by l.key;
end $$;


--
-- Name: leave(uuid); Type: FUNCTION; Schema: postrider; Owner: -
--

CREATE FUNCTION postrider.leave(worker uuid) RETURNS integer
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET jit TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    AS $$
declare
    me uuid := worker;
    x record;
    handed_back int := 0;
begin
    perform postrider.check_isolation();
    for x in select l.id from postrider.lease l where l.worker = me order by l.id for update loop
        handed_back := handed_back + postrider.put_back_each(x.id, false, false);
    end loop;
    delete from postrider.worker w where w.id = me;
    if handed_back > 0 then
        perform postrider.wake('postrider_job');
    end if;
    return handed_back;
end $$;


--
-- Name: let_in(text, text, integer, timestamp with time zone, timestamp with time zone); Type: FUNCTION; Schema: postrider; Owner: -
--

CREATE FUNCTION postrider.let_in(lane_queue text, lane_key text, free integer, again timestamp with time zone, per_from timestamp with time zone) RETURNS boolean
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET jit TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    AS $$
declare
    l record;
    n int;
    lowest bigint;
begin
    select x.*, x.ctid as place into l from postrider.lane x where x.queue = lane_queue and x.key = lane_key order by x.gen desc limit 1;
    with freed as (
        delete from postrider.parked p where p.ctid = any (array(
            select x.ctid from postrider.parked x
             where x.queue = lane_queue and x.key = lane_key and x.pos >= l.low_parked
             order by x.pos limit least(let_in.free, 1000) for update skip locked))
        returning p.*
    ), again as (
        -- new positions: at their old ones, claims would pass them by for what came after them
        insert into postrider.ready (queue, priority, share, pos, id, attempt, losses, flags, order_key)
        select f.queue, f.priority, f.share, (pg_sequence_last_value('postrider.job_epoch'::regclass) << 46) | (nextval('postrider.job_number') << 2),
               f.id, f.attempt, f.losses, f.flags, f.order_key
          from (select * from freed order by pos offset 0) f returning 1
    )
    select count(*) into n from again;
    select p.pos into lowest from postrider.parked p
     where p.queue = lane_queue and p.key = lane_key and p.pos >= l.low_parked order by p.pos limit 1;
    if lowest is null and (let_in.per_from is null or let_in.per_from is distinct from l.window_at) then
        delete from postrider.lane x where x.ctid = l.place;
    else
        update postrider.lane x
           set low_parked = coalesce(lowest, x.low_parked), changes = (x.changes + 1) & 63, gen = x.gen + (x.changes = 63)::int,
               due_at = case when lowest is not null and n < coalesce(let_in.free, n + 1) then clock_timestamp() else let_in.again end
         where x.ctid = l.place;
    end if;
    return n > 0;
end $$;


--
-- Name: let_next_in(bytea[]); Type: FUNCTION; Schema: postrider; Owner: -
--

CREATE FUNCTION postrider.let_next_in(hashes bytea[]) RETURNS void
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET jit TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    AS $$
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


--
-- Name: line_up(text, text, bigint, text[], integer); Type: FUNCTION; Schema: postrider; Owner: -
--

CREATE FUNCTION postrider.line_up(lane_queue text, lane_key text, head bigint, kinds text[], most integer) RETURNS postrider.ready[]
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET jit TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    AS $$
declare
    l record;
    of_key text := substr(lane_key, 7);
    asks bigint;
    next_ones bigint[];
    got bigint[];
    lined postrider.ready[];
begin
    select x.*, x.ctid as place into l from postrider.lane x where x.queue = lane_queue and x.key = lane_key order by x.gen desc limit 1;
    if l.holder is distinct from head or l.stopped_at is not null then
        return null;
    end if;
    next_ones := array(
        select n.pos from (
            select p.pos, count(*) filter (where p.flags & 220 <> 0 or p.pos < head or not j.kind = any (line_up.kinds))
                       over (order by p.pos) as unfit
              from (select x.pos, x.id, x.flags from postrider.parked x
                     where x.queue = lane_queue and x.key = lane_key and x.pos >= l.low_parked
                     order by x.pos limit line_up.most) p
              join postrider.job j on j.class = (p.id & 3)::smallint and j.id = p.id) n
         where n.unfit = 0 order by n.pos);
    -- bounded, or it would walk all that has been moved from there
    asks := least(
        (select r.id from postrider.ready r where r.queue = lane_queue and r.order_key = of_key and r.flags & 34 = 32 and r.pos = r.id
            and r.id between l.low_ready and next_ones[cardinality(next_ones)] order by r.id limit 1),
        (select r.id from postrider.ready r where r.queue = lane_queue and r.order_key = of_key and r.flags & 34 = 32 and r.pos <> r.id
            and r.id <= next_ones[cardinality(next_ones)] order by r.id limit 1));
    if asks is not null then
        next_ones := array(select n from unnest(next_ones) n where n < asks order by n);
    end if;
    if next_ones = '{}' then
        return null;
    end if;
    got := array(select p.pos from postrider.parked p
                  where p.queue = lane_queue and p.key = lane_key and p.pos between next_ones[1] and next_ones[cardinality(next_ones)]
                  order by p.pos limit cardinality(next_ones) for update skip locked);
    -- somebody acts on one and may yet leave it: nobody goes before it
    next_ones := array(select n.pos from unnest(next_ones, got) with ordinality n (pos, ours, o)
                        where n.o < coalesce((select min(m.o) from unnest(next_ones, got) with ordinality m (pos, ours, o)
                                               where m.pos is distinct from m.ours), n.o + 1) order by n.o);
    with taken as (
        delete from postrider.parked p where p.ctid = any (array(
            select x.ctid from postrider.parked x
             where x.queue = lane_queue and x.key = lane_key and x.pos between next_ones[1] and next_ones[cardinality(next_ones)]
               and x.pos = any (next_ones) order by x.pos limit cardinality(next_ones)))
        returning p.*
    )
    select array_agg(row (t.queue, t.priority, t.share, t.pos, t.id, t.attempt, t.losses, t.flags, t.order_key, null)::postrider.ready)
      into lined from taken t;
    if lined is not null then
        update postrider.lane x
           set line = next_ones, low_parked = next_ones[cardinality(next_ones)], changes = (x.changes + 1) & 63,
               gen = x.gen + (x.changes = 63)::int
         where x.ctid = l.place;
    end if;
    return lined;
end $$;


--
-- Name: list_jobs(json, bigint, integer, integer); Type: FUNCTION; Schema: postrider; Owner: -
--

CREATE FUNCTION postrider.list_jobs(filter json, before bigint, most integer, looked_at integer) RETURNS TABLE(id bigint, looked bigint)
    LANGUAGE plpgsql STABLE SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET jit TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    AS $$
#variable_conflict use_column
declare
    j postrider.job;
    n int := 0;
    seen int;
    done int := 0;
    part int := most;
    place bigint := before;
    states text[] := array(select json_array_elements_text(coalesce(filter -> 'states', '[]')));
    subscription bigint := postrider.asked_subscription(filter);
    tags text[] := postrider.asked_tags(filter);
begin
    -- part by part: what an operator asks for is mostly among the first
    loop
        seen := 0;
        for j in
            select q.* from (values (1::smallint), (2::smallint), (3::smallint)) c (class)
             cross join lateral (
                select x.* from postrider.job x
                 where tags = '{}' and x.class = c.class and x.id < place order by x.id desc limit part) q
            union all
            select x.* from (
                select q.class, q.id from (values (1::smallint), (2::smallint), (3::smallint)) c (class)
                 cross join lateral (
                    select t.class, t.id from postrider.tag t
                     where tags <> '{}' and t.class = c.class and t.tag = tags[1] and t.id < place order by t.id desc limit part) q
                 order by q.id desc limit part) f
              join postrider.job x on x.class = f.class and x.id = f.id
             order by id desc limit part
        loop
            seen := seen + 1;
            place := j.id;
            continue when not postrider.fits(j, filter, subscription, tags);
            continue when cardinality(states) > 0 and not coalesce(postrider.state_of(j) = any (states), false);
            return query select j.id, null::bigint;
            n := n + 1;
            exit when n >= most;
        end loop;
        done := done + seen;
        -- fewer than were asked for: there are no more
        if n < most and seen < part then
            return;
        end if;
        exit when n >= most or done >= looked_at;
        part := least(part * 4, 2000, looked_at - done);
    end loop;
    return query select null::bigint, place;
end $$;


--
-- Name: load_deliveries(json); Type: FUNCTION; Schema: postrider; Owner: -
--

CREATE FUNCTION postrider.load_deliveries(asked json) RETURNS TABLE(endpoint text, url text, format text, timeout_ms text, max_attempts text, disabled text, deleted text, steps_ms text, on_4xx text, answer_contains text, headers_key text, headers text, enabled_us text, ids text, taken text, secret text, kind text, key_id text, sealed text)
    LANGUAGE plpgsql STABLE SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET jit TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    SET enable_material TO 'off'
    AS $$
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


--
-- Name: lock_declarations(); Type: FUNCTION; Schema: postrider; Owner: -
--

CREATE FUNCTION postrider.lock_declarations() RETURNS void
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
begin
    perform pg_advisory_xact_lock(7305, 2);
end $$;


--
-- Name: lock_endpoint(bigint); Type: FUNCTION; Schema: postrider; Owner: -
--

CREATE FUNCTION postrider.lock_endpoint(id bigint) RETURNS boolean
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
begin
    perform from postrider.endpoint_health h where h.endpoint = lock_endpoint.id for no key update;
    return found;
end $$;


--
-- Name: lock_lanes(text, text[], boolean); Type: FUNCTION; Schema: postrider; Owner: -
--

CREATE FUNCTION postrider.lock_lanes(queue text, keys text[], waits boolean DEFAULT true) RETURNS text[]
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET jit TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    AS $$
declare
    rest text[] := keys;
    got text[] := '{}';
    now_got text[];
begin
    for n in 1..10 loop
        -- a look for each: asked for all at once, those of the whole queue might be walked, and what is gone of them
        select array_agg(l.key) into now_got
          from unnest(rest) r (key)
         cross join lateral (
            select x.key from postrider.lane x where x.queue = lock_lanes.queue and x.key = r.key
             order by x.gen desc limit 1 for update skip locked) l;
        got := got || now_got;
        rest := array(select r from unnest(rest) r where r <> all (got));
        exit when rest = '{}';
        -- whoever finds one that is there need not try to make it, which waits for whoever changes it
        now_got := postrider.make_lanes(lock_lanes.queue, array(
            select r from unnest(rest) r
             where waits or (select y.gen from postrider.lane y where y.queue = lock_lanes.queue and y.key = r order by y.gen desc limit 1) is null));
        got := got || now_got;
        rest := array(select r from unnest(rest) r where r <> all (got));
        exit when rest = '{}' or not waits or (select min(r) from unnest(rest) r) < (select max(g) from unnest(got) g);
        perform pg_sleep(0.002);
    end loop;
    return got;
end $$;


--
-- Name: make_deliveries(bigint, bigint[], text, uuid); Type: FUNCTION; Schema: postrider; Owner: -
--

CREATE FUNCTION postrider.make_deliveries(endpoint bigint, seqs bigint[], trigger text, sent_as uuid DEFAULT NULL::uuid) RETURNS bigint[]
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET jit TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    AS $$
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


--
-- Name: make_each(bigint, timestamp with time zone, postrider.slice, boolean, bigint[]); Type: FUNCTION; Schema: postrider; Owner: -
--

CREATE FUNCTION postrider.make_each(no bigint, at timestamp with time zone, s postrider.slice, below boolean, subscriptions bigint[] DEFAULT NULL::bigint[], OUT jobs integer, OUT aside integer, OUT upto integer) RETURNS record
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
declare
    failed int := 0;
    first_of int[] := array[1];
    last_of int[] := array[cardinality(s.seqs)];
    depth int := 1;
    a int;
    b int;
    one record;
begin
    jobs := 0;
    aside := 0;
    upto := 0;
    while depth > 0 loop
        a := first_of[depth];
        b := last_of[depth];
        depth := depth - 1;
        if not below or not exists (select from postrider.rebase_known k where k.event_seq = any (s.seqs[a:b])) then
            begin
                jobs := jobs + postrider.fan_out(at, s.seqs[a:b], s.types[a:b], s.owners[a:b], subscriptions);
                upto := b;
                continue;
            exception when others then
                if postrider.is_of_the_server(sqlstate) then
                    raise;
                end if;
                failed := failed + 1;
            end;
        end if;
        if a = b then
            select * into one from postrider.make_one(no, at, s.seqs[a], s.types[a], s.owners[a], subscriptions);
            jobs := jobs + one.jobs;
            aside := aside + one.aside;
            failed := failed + one.failed;
            upto := a;
            exit when failed > 1000;
        else
            -- the left half on top: it comes first
            first_of[depth + 1] := (a + b) / 2 + 1;
            last_of[depth + 1] := b;
            first_of[depth + 2] := a;
            last_of[depth + 2] := (a + b) / 2;
            depth := depth + 2;
        end if;
    end loop;
end $$;


--
-- Name: make_lanes(text, text[]); Type: FUNCTION; Schema: postrider; Owner: -
--

CREATE FUNCTION postrider.make_lanes(queue text, keys text[]) RETURNS text[]
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET lock_timeout TO '50ms'
    AS $$
#variable_conflict use_column
declare
    made text[];
begin
    with new as (
        insert into postrider.lane (queue, key)
        select make_lanes.queue, k from unnest(make_lanes.keys) k order by k
            on conflict do nothing returning key
    )
    select array_agg(n.key) into made from new n;
    return coalesce(made, '{}');
exception when lock_not_available then
    return '{}';
end $$;


--
-- Name: make_one(bigint, timestamp with time zone, bigint, text, text, bigint[]); Type: FUNCTION; Schema: postrider; Owner: -
--

CREATE FUNCTION postrider.make_one(no bigint, at timestamp with time zone, seq bigint, type text, owner text, subscriptions bigint[], OUT jobs integer, OUT aside integer, OUT failed integer) RETURNS record
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
declare
    subs bigint[] := array(
        select r.subscription from postrider.route r
         where r.type = make_one.type and r.owner = any (array['', make_one.owner])
           and case when make_one.subscriptions is null then not r.starting and not postrider.is_held_back(r.subscription)
                    else r.subscription = any (make_one.subscriptions) end
           and not exists (select from postrider.rebase_known k where k.event_seq = make_one.seq and k.subscription = r.subscription)
           and (make_one.subscriptions is not null or not exists (select from postrider.event_delay d where d.seq = make_one.seq))
         order by r.subscription);
    first_of int[] := array[1];
    last_of int[] := array[cardinality(subs)];
    depth int := least(cardinality(subs), 1);
    a int;
    b int;
    code text;
    error text;
begin
    jobs := 0;
    aside := 0;
    failed := 0;
    while depth > 0 loop
        a := first_of[depth];
        b := last_of[depth];
        depth := depth - 1;
        begin
            jobs := jobs + postrider.fan_out(at, array[seq], array[type], array[owner], subs[a:b]);
            continue;
        exception when others then
            if postrider.is_of_the_server(sqlstate) then
                raise;
            end if;
            failed := failed + 1;
            code := sqlstate;
            error := sqlerrm;
        end;
        if a = b then
            perform postrider.set_aside(seq, subs[a], no, code, error);
            aside := aside + 1;
        else
            first_of[depth + 1] := (a + b) / 2 + 1;
            last_of[depth + 1] := b;
            first_of[depth + 2] := a;
            last_of[depth + 2] := (a + b) / 2;
            depth := depth + 2;
        end if;
    end loop;
end $$;


--
-- Name: make_partitions(text); Type: FUNCTION; Schema: postrider; Owner: -
--

CREATE FUNCTION postrider.make_partitions(name text) RETURNS integer
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
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


--
-- Name: make_ready(postrider.waiting); Type: FUNCTION; Schema: postrider; Owner: -
--

CREATE FUNCTION postrider.make_ready(w postrider.waiting) RETURNS void
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
begin
    insert into postrider.ready (queue, priority, share, pos, id, attempt, losses, flags, order_key)
    values (w.queue, w.priority, w.share, (pg_sequence_last_value('postrider.job_epoch'::regclass) << 46)
            | (nextval('postrider.job_number'::regclass) << 2), w.id, w.attempt, w.losses, w.flags, w.order_key);
    perform postrider.wake('postrider_job');
end $$;


--
-- Name: share_of(text); Type: FUNCTION; Schema: postrider; Owner: -
--

CREATE FUNCTION postrider.share_of(owner text) RETURNS smallint
    LANGUAGE sql IMMUTABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    RETURN ((hashtextextended(owner, (0)::bigint) & (63)::bigint))::smallint;


--
-- Name: event; Type: TABLE; Schema: postrider; Owner: -
--

CREATE TABLE postrider.event (
    xid xid8 DEFAULT pg_current_xact_id() NOT NULL,
    seq bigint NOT NULL,
    id uuid NOT NULL,
    recorded_at timestamp with time zone NOT NULL,
    occurred_at timestamp with time zone NOT NULL,
    depth smallint DEFAULT 0 NOT NULL,
    version smallint,
    type text NOT NULL COLLATE pg_catalog."C",
    owner text DEFAULT ''::text NOT NULL COLLATE pg_catalog."C",
    subject text NOT NULL,
    cause uuid,
    traceparent text,
    data json NOT NULL
)
PARTITION BY RANGE (seq);


--
-- Name: event_delay; Type: TABLE; Schema: postrider; Owner: -
--

CREATE TABLE postrider.event_delay (
    seq bigint NOT NULL,
    deliver_at timestamp with time zone,
    ended_at timestamp with time zone,
    ended_as text,
    reason text,
    given bigint[],
    first_job bigint,
    last_job bigint,
    CONSTRAINT an_end_has_a_name CHECK (((ended_at IS NULL) = (ended_as IS NULL))),
    CONSTRAINT ended_as_is_delivered_or_cancelled CHECK ((ended_as = ANY (ARRAY['delivered'::text, 'cancelled'::text]))),
    CONSTRAINT what_is_not_over_has_a_time CHECK (((deliver_at IS NOT NULL) OR (ended_as = 'cancelled'::text)))
);


--
-- Name: route; Type: TABLE; Schema: postrider; Owner: -
--

CREATE TABLE postrider.route (
    type text NOT NULL COLLATE pg_catalog."C",
    owner text NOT NULL COLLATE pg_catalog."C",
    subscription bigint NOT NULL,
    kind text NOT NULL COLLATE pg_catalog."C",
    queue text NOT NULL,
    priority smallint NOT NULL,
    max_attempts smallint NOT NULL,
    class smallint NOT NULL,
    delay_ms bigint NOT NULL,
    limit_key text,
    fair boolean DEFAULT false NOT NULL,
    predicate jsonpath,
    order_by text,
    order_rule smallint,
    order_name text,
    coalescing boolean DEFAULT false NOT NULL,
    starting boolean DEFAULT false NOT NULL,
    reads boolean NOT NULL
);


--
-- Name: matches(timestamp with time zone, bigint[], text[], text[], bigint[]); Type: FUNCTION; Schema: postrider; Owner: -
--

CREATE FUNCTION postrider.matches(at timestamp with time zone, seqs bigint[], types text[], owners text[], subscriptions bigint[]) RETURNS TABLE(seq bigint, owner text, subject text, subscription bigint, kind text, queue text, priority smallint, max_attempts smallint, class smallint, limit_key text, share smallint, run_at timestamp with time zone, delay_ms bigint, order_key text, order_rule smallint, coalescing boolean)
    LANGUAGE sql STABLE
    BEGIN ATOMIC
 SELECT e.seq,
     e.owner,
     e.subject,
     r.subscription,
     r.kind,
     r.queue,
     r.priority,
     r.max_attempts,
     r.class,
     r.limit_key,
         CASE
             WHEN r.fair THEN postrider.share_of(e.owner)
             ELSE NULL::smallint
         END AS "case",
         CASE
             WHEN (r.delay_ms > 0) THEN (matches.at + ((r.delay_ms)::double precision * '00:00:00.001'::interval))
             ELSE NULL::timestamp with time zone
         END AS "case",
     r.delay_ms,
         CASE r.order_by
             WHEN 'subject'::text THEN postrider.event_key(r.order_name, e.subject)
             WHEN 'owner'::text THEN postrider.event_key(r.order_name, e.owner)
             WHEN 'all'::text THEN r.order_name
             ELSE NULL::text
         END AS "case",
     r.order_rule,
     r.coalescing
    FROM (( SELECT u.seq,
             u.type,
             u.owner,
             v.subject,
             v.doc
            FROM (UNNEST(matches.seqs, matches.types, matches.owners) u(seq, type, owner)
              LEFT JOIN LATERAL ( SELECT x.subject,
                         CASE
                             WHEN (EXISTS ( SELECT
                                FROM postrider.route q
                               WHERE ((q.type = u.type) AND q.reads AND (q.predicate IS NOT NULL)))) THEN (x.data)::jsonb
                             ELSE NULL::jsonb
                         END AS doc
                    FROM postrider.event x
                   WHERE ((x.seq = u.seq) AND ( SELECT (EXISTS ( SELECT
                                    FROM postrider.route q
                                   WHERE q.reads)) AS "exists") AND (EXISTS ( SELECT
                            FROM postrider.route q
                           WHERE ((q.type = u.type) AND q.reads))))
                  OFFSET 0) v ON (true))
           WHERE ((matches.subscriptions IS NOT NULL) OR (NOT ( SELECT (EXISTS ( SELECT
                            FROM postrider.event_delay)) AS "exists")) OR (NOT (EXISTS ( SELECT
                    FROM postrider.event_delay d
                   WHERE (d.seq = u.seq)))))
          OFFSET 0) e
      CROSS JOIN LATERAL ( SELECT a.type,
             a.owner,
             a.subscription,
             a.kind,
             a.queue,
             a.priority,
             a.max_attempts,
             a.class,
             a.delay_ms,
             a.limit_key,
             a.fair,
             a.predicate,
             a.order_by,
             a.order_rule,
             a.order_name,
             a.coalescing,
             a.starting,
             a.reads
            FROM postrider.route a
           WHERE ((a.type = e.type) AND (a.owner = ''::text))
         UNION ALL
          SELECT o.type,
             o.owner,
             o.subscription,
             o.kind,
             o.queue,
             o.priority,
             o.max_attempts,
             o.class,
             o.delay_ms,
             o.limit_key,
             o.fair,
             o.predicate,
             o.order_by,
             o.order_rule,
             o.order_name,
             o.coalescing,
             o.starting,
             o.reads
            FROM postrider.route o
           WHERE ((o.type = e.type) AND (o.owner = e.owner) AND (e.owner <> ''::text))) r)
   WHERE (
         CASE
             WHEN (matches.subscriptions IS NOT NULL) THEN (r.subscription = ANY (matches.subscriptions))
             ELSE ((NOT r.starting) AND (NOT (( SELECT (EXISTS ( SELECT
                        FROM postrider.held)) AS "exists") AND (EXISTS ( SELECT
                FROM (postrider.held h
                  JOIN postrider.subscription_start g ON ((g.id = h.start)))
               WHERE ((h.subscription = r.subscription) AND (g.over_at IS NULL)))))))
         END AND ((r.predicate IS NULL) OR jsonb_path_match(e.doc, r.predicate, jsonb_build_object('type', e.type, 'owner', e.owner, 'subject', e.subject), true)))
   ORDER BY e.seq, r.subscription
  OFFSET 0;
END;


--
-- Name: mismatches(text, integer); Type: FUNCTION; Schema: postrider; Owner: -
--

CREATE FUNCTION postrider.mismatches(type text, most integer DEFAULT 100) RETURNS TABLE(event uuid, version integer, problem text, recorded_at timestamp with time zone)
    LANGUAGE sql STABLE SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
    select e.id, m.version, m.problem, e.recorded_at
      from postrider.type_mismatch m left join postrider.event e on e.seq = m.seq
     where m.type = mismatches.type order by m.seq desc limit most
$$;


--
-- Name: name_distance(text, text, integer); Type: FUNCTION; Schema: postrider; Owner: -
--

CREATE FUNCTION postrider.name_distance(one text, other text, most integer) RETURNS integer
    LANGUAGE plpgsql IMMUTABLE STRICT
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
declare
    far int := most + 1;
    before int[];
    last int[] := array(select n from generate_series(0, length(other)) n);
    now int[];
    cost int;
    least_of_row int;
begin
    if abs(length(one) - length(other)) > most then
        return null;
    end if;
    for i in 1 .. length(one) loop
        now := array_fill(far, array[length(other) + 1]);
        now[1] := i;
        least_of_row := i;
        -- what is further from the diagonal costs more than `most` already
        for j in greatest(1, i - most) .. least(length(other), i + most) loop
            cost := (substr(one, i, 1) <> substr(other, j, 1))::int;
            now[j + 1] := least(last[j + 1] + 1, now[j] + 1, last[j] + cost);
            if i > 1 and j > 1 and substr(one, i, 1) = substr(other, j - 1, 1) and substr(one, i - 1, 1) = substr(other, j, 1) then
                now[j + 1] := least(now[j + 1], before[j - 1] + 1);
            end if;
            least_of_row := least(least_of_row, now[j + 1]);
        end loop;
        if least_of_row > most then
            return null;
        end if;
        before := last;
        last := now;
    end loop;
    return nullif(least(last[length(other) + 1], far), far);
end $$;


--
-- Name: name_instance(text); Type: FUNCTION; Schema: postrider; Owner: -
--

CREATE FUNCTION postrider.name_instance(name text) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
begin
    perform postrider.check_name('instance', name_instance.name, true);
    update postrider.instance i set name = name_instance.name;
    delete from postrider.stranger;
end $$;


--
-- Name: nearest_names(text, text[]); Type: FUNCTION; Schema: postrider; Owner: -
--

CREATE FUNCTION postrider.nearest_names(name text, names text[]) RETURNS text
    LANGUAGE sql IMMUTABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
    with near as (
        select n, d from unnest(names) n
         cross join postrider.name_distance(left(name, 200), n, least(4, greatest(1, length(name) / 3))) d
         where d is not null order by d, n limit 3
    ), akin as (
        select n from unnest(names) n where split_part(n, '.', 1) = split_part(name, '.', 1) and not exists (select from near)
         order by abs(length(n) - length(name)), n limit 3
    )
    select coalesce((select string_agg(quote_literal(n), ', ' order by d, n) from near),
                    (select string_agg(quote_literal(n), ', ' order by abs(length(n) - length(name)), n) from akin));
$$;


--
-- Name: next_due_in_ms(); Type: FUNCTION; Schema: postrider; Owner: -
--

CREATE FUNCTION postrider.next_due_in_ms() RETURNS bigint
    LANGUAGE sql STABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    RETURN (SELECT GREATEST((((EXTRACT(epoch FROM (d.deliver_at - clock_timestamp())) * (1000)::numeric))::bigint + 1), (100)::bigint) AS "greatest" FROM postrider.event_delay d WHERE (d.ended_at IS NULL) ORDER BY d.deliver_at, d.seq LIMIT 1);


--
-- Name: next_slice(postrider.cut, bigint, integer, boolean); Type: FUNCTION; Schema: postrider; Owner: -
--

CREATE FUNCTION postrider.next_slice(w postrider.cut, after bigint, most integer, inside boolean) RETURNS postrider.slice
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET jit TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    AS $$
declare
    s postrider.slice;
begin
    -- the rows come in the order of seq out of the inner query; an ORDER BY in each aggregate would sort them again
    if not inside then
        select array_agg(e.seq), array_agg(e.type), array_agg(e.owner), array_agg(postrider.event_digest(
                   sha256(convert_to(e.data::text, 'UTF8')), e.id, e.occurred_at, e.type, e.owner, e.subject, e.cause))
          into s.seqs, s.types, s.owners, s.digests from (
            select * from (
                select v.* from pg_snapshot_xip(w.lo) open cross join lateral (
                    select seq, id, occurred_at, type, owner, subject, cause, data from postrider.event
                     where xid = open and seq > after order by seq limit most + 1) v
                 where pg_visible_in_snapshot(open, w.hi) and (w.apart is null or open <> all (w.apart))
                union all
                -- the log is not read through what is taken apart: that is long
                select v.* from postrider.xid_gaps(pg_snapshot_xmax(w.lo), pg_snapshot_xmax(w.hi), w.apart) g cross join lateral (
                    select seq, id, occurred_at, type, owner, subject, cause, data from postrider.event
                     where xid > g.above and xid < g.below and seq > after and pg_visible_in_snapshot(xid, w.hi) offset 0) v) both_kinds
             order by seq limit most + 1) e;
    else
        -- inside a window: `xid >= xmax(lo)` is spelt by visibility, so that the planner cannot take the index on (xid, seq) and
        -- read the whole window again for each slice
        select array_agg(e.seq), array_agg(e.type), array_agg(e.owner), array_agg(postrider.event_digest(
                   sha256(convert_to(e.data::text, 'UTF8')), e.id, e.occurred_at, e.type, e.owner, e.subject, e.cause))
          into s.seqs, s.types, s.owners, s.digests from (
            select * from (
                select v.* from pg_snapshot_xip(w.lo) open cross join lateral (
                    select seq, id, occurred_at, type, owner, subject, cause, data from postrider.event
                     where xid = open and seq > after order by seq limit most + 1) v
                 where pg_visible_in_snapshot(open, w.hi) and (w.apart is null or open <> all (w.apart))
                union all
                (select seq, id, occurred_at, type, owner, subject, cause, data from postrider.event
                  where seq >= greatest(after + 1, w.r_first) and seq <= w.r_last
                    and not pg_visible_in_snapshot(xid, w.lo) and xid <> all (array(select pg_snapshot_xip(w.lo)))
                    and pg_visible_in_snapshot(xid, w.hi) and (w.apart is null or xid <> all (w.apart))
                  order by seq limit most + 1)) both_kinds
             order by seq limit most + 1) e;
    end if;
    return s;
end $$;


--
-- Name: next_turn(text, text); Type: FUNCTION; Schema: postrider; Owner: -
--

CREATE FUNCTION postrider.next_turn(lane_queue text, lane_key text) RETURNS postrider.ready
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET jit TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    AS $$
declare
    l record;
    head postrider.ready;
    oldest bigint;
    of_key text := substr(lane_key, 7);
    before bigint;
begin
    select x.*, x.ctid as place into l from postrider.lane x where x.queue = lane_queue and x.key = lane_key order by x.gen desc limit 1;
    if l.holder is not null or l.stopped_at is not null then
        return null;
    end if;
    select p.pos into oldest from postrider.parked p
     where p.queue = lane_queue and p.key = lane_key and p.pos >= l.low_parked order by p.pos limit 1;
    if oldest is null then
        return null;
    end if;
    perform from postrider.parked p where p.queue = lane_queue and p.key = lane_key and p.pos = oldest for update skip locked;
    if not found then
        -- somebody acts on it and may yet leave it: nobody goes before it
        insert into postrider.lane_call (queue, key) values (lane_queue, lane_key);
        return null;
    end if;
    before := least(
        (select r.id from postrider.ready r where r.queue = lane_queue and r.order_key = of_key and r.flags & 34 = 32 and r.pos = r.id
            and r.id >= l.low_ready and r.id < oldest order by r.id limit 1),
        (select r.id from postrider.ready r where r.queue = lane_queue and r.order_key = of_key and r.flags & 34 = 32 and r.pos <> r.id
            and r.id < oldest order by r.id limit 1));
    if before is not null then
        update postrider.lane x set low_ready = before where x.ctid = l.place and x.low_ready < before
           and not exists (select from postrider.ready r where r.queue = lane_queue and r.order_key = of_key and r.id = before
                              and r.flags & 34 = 32 and r.pos <> r.id);
    else
        delete from postrider.parked p where p.queue = lane_queue and p.key = lane_key and p.pos = oldest
        returning p.queue, p.priority, p.share, p.pos, p.id, p.attempt, p.losses, (p.flags | 2)::smallint, p.order_key into head;
        update postrider.lane x
           set holder = head.id, since = clock_timestamp(), low_parked = oldest, low_ready = greatest(l.low_ready, oldest),
               changes = (x.changes + 1) & 63, gen = x.gen + (x.changes = 63)::int
         where x.ctid = l.place;
    end if;
    return head;
end $$;


--
-- Name: normal_error(text); Type: FUNCTION; Schema: postrider; Owner: -
--

CREATE FUNCTION postrider.normal_error(error text) RETURNS text
    LANGUAGE plpgsql IMMUTABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
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


--
-- Name: note_attempt(postrider.delivery_attempt, bigint, boolean, boolean); Type: FUNCTION; Schema: postrider; Owner: -
--

CREATE FUNCTION postrider.note_attempt(a postrider.delivery_attempt, asked_ms bigint, gone boolean, given_up boolean) RETURNS void
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET jit TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    AS $$
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


--
-- Name: note_cancellation(bigint[], text); Type: FUNCTION; Schema: postrider; Owner: -
--

CREATE FUNCTION postrider.note_cancellation(ids bigint[], reason text) RETURNS void
    LANGUAGE sql
    SET search_path TO 'pg_catalog', 'pg_temp'
    BEGIN ATOMIC
 INSERT INTO postrider.cancellation (id, reason)  SELECT i.i,
             note_cancellation.reason AS reason
            FROM unnest(note_cancellation.ids) i(i)
           WHERE (NOT (EXISTS ( SELECT
                    FROM postrider.cancellation c
                   WHERE ((c.id = i.i) AND ((c.reason IS NOT NULL) OR (note_cancellation.reason IS NULL))))));
END;


--
-- Name: note_cut(postrider.cut, postrider.cut); Type: FUNCTION; Schema: postrider; Owner: -
--

CREATE FUNCTION postrider.note_cut(last postrider.cut, new postrider.cut) RETURNS bigint
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
begin
    new.no := last.no + 1;
    new.from_no := new.no;
    new.at := greatest(clock_timestamp(), last.at);
    new.n := 0;
    new.first_seq := null;
    new.digest := null;
    new.joined := null;
    new.apart := case when new.more then new.apart end;
    new.events_total := last.events_total;
    new.jobs_total := last.jobs_total + new.jobs;
    new.hash := postrider.cut_hash(coalesce(last.joined, last.hash), new);
    insert into postrider.cut select new.*;
    return new.no;
end $$;


--
-- Name: note_failed(); Type: FUNCTION; Schema: postrider; Owner: -
--

CREATE FUNCTION postrider.note_failed() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
begin
    insert into postrider.failed (class, id, lease) values (new.class, new.id, new.lease);
    return null;
end $$;


--
-- Name: endpoint_health; Type: TABLE; Schema: postrider; Owner: -
--

CREATE TABLE postrider.endpoint_health (
    endpoint bigint NOT NULL,
    failing_since timestamp with time zone,
    silent_since timestamp with time zone,
    failed integer DEFAULT 0 NOT NULL,
    warned smallint DEFAULT 0 NOT NULL,
    in_flight smallint,
    pace_ms bigint
)
WITH (fillfactor='50', autovacuum_vacuum_scale_factor='0.02', autovacuum_vacuum_threshold='500');


--
-- Name: note_failure(postrider.endpoint_health); Type: FUNCTION; Schema: postrider; Owner: -
--

CREATE FUNCTION postrider.note_failure(h postrider.endpoint_health) RETURNS void
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET jit TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    AS $$
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


--
-- Name: note_known(); Type: FUNCTION; Schema: postrider; Owner: -
--

CREATE FUNCTION postrider.note_known() RETURNS void
    LANGUAGE sql
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET jit TO 'off'
    AS $$
    -- the jobs first, once: joined the other way round, the index of all jobs would be walked for each event
    with behind as materialized (
        select j.event_seq, j.subscription
          from (values (1::smallint), (2::smallint), (3::smallint)) k (class)
         cross join lateral (
            select x.event_seq, x.subscription from postrider.job x
             where x.class = k.class and x.id > (select coalesce(max(c.last_job), 0) from postrider.cut c) offset 0) j
         where j.subscription is not null
    )
    insert into postrider.rebase_known (event_seq, subscription)
    select b.event_seq, b.subscription from behind b join postrider.rebased r on r.seq = b.event_seq and r.cut is null
    union
    select p.event_seq, p.subscription from postrider.poison p join postrider.rebased r on r.seq = p.event_seq and r.cut is null
    on conflict do nothing
$$;


--
-- Name: note_progress(uuid, json); Type: FUNCTION; Schema: postrider; Owner: -
--

CREATE FUNCTION postrider.note_progress(worker uuid, progress json) RETURNS void
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET jit TO 'off'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    AS $$
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


--
-- Name: note_scope_failure(text); Type: FUNCTION; Schema: postrider; Owner: -
--

CREATE FUNCTION postrider.note_scope_failure(error text) RETURNS void
    LANGUAGE sql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
    update postrider.scope_function f set failures = f.failures + 1, failed_at = clock_timestamp(), error = left(note_scope_failure.error, 1000)
$$;


--
-- Name: note_success(postrider.endpoint_health); Type: FUNCTION; Schema: postrider; Owner: -
--

CREATE FUNCTION postrider.note_success(h postrider.endpoint_health) RETURNS void
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET jit TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    AS $$
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


--
-- Name: note_watch(oid, json); Type: FUNCTION; Schema: postrider; Owner: -
--

CREATE FUNCTION postrider.note_watch(relation oid, asked json) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
declare
    plan postrider.watch_plan := postrider.plan_watch(relation, asked);
    w postrider.watch := plan.wanted;
    last postrider.watch;
    fresh json;
begin
    if plan.state = 'change' or not pg_has_role(coalesce(nullif(current_setting('role'), 'none'), session_user),
                                               (select c.relowner from pg_class c where c.oid = w.relid), 'usage') then
        perform postrider.refuse('PR005', 'relation', format('the watch %L does not stand, or is not yours', w.name),
            'declare it by postrider.watch, as the owner of the table');
    elsif plan.state = 'older' then
        return;
    end if;
    select json_agg(json_build_object('name', t.value, 'description', format('a row of %s: %s', w.relation, t.key))) into fresh
      from json_each_text(w.types) t where not exists (select from postrider.event_type e where e.name = t.value);
    select * into last from postrider.watch p where p.name = w.name;
    if fresh is null and (last.relation, last.relid, last.key_columns, last.columns, last.operations, last.types::text, last.condition, last.subject, last.data,
        last.owner, last.generation)
       is not distinct from (w.relation, w.relid, w.key_columns, w.columns, w.operations, w.types::text, w.condition, w.subject, w.data,
        w.owner, w.generation)
    then
        -- a row that nobody waits for: transactions that declare the same may be long
        update postrider.watch set seen_at = clock_timestamp() where name = (
            select p.name from postrider.watch p where p.name = w.name and p.seen_at < clock_timestamp() - interval '1 hour'
               for no key update skip locked);
        return;
    end if;
    if fresh is not null then
        perform postrider.declare(json_build_object('app', w.declared_by, 'generation', w.generation, 'types', fresh));
    end if;
    insert into postrider.watch as p (name, relation, relid, key_columns, columns, operations, types, condition, subject, data, owner,
                                      declared_by, generation)
    values (w.name, w.relation, w.relid, w.key_columns, w.columns, w.operations, w.types, w.condition, w.subject, w.data, w.owner,
            w.declared_by, w.generation)
    on conflict (name) do update set relation = excluded.relation, relid = excluded.relid, key_columns = excluded.key_columns,
        columns = excluded.columns, operations = excluded.operations, types = excluded.types, condition = excluded.condition,
        subject = excluded.subject, data = excluded.data, owner = excluded.owner, declared_by = excluded.declared_by,
        generation = excluded.generation, seen_at = clock_timestamp();
end $$;


--
-- Name: note_written(); Type: FUNCTION; Schema: postrider; Owner: -
--

CREATE FUNCTION postrider.note_written() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
begin
    insert into postrider.written (class, first)
    select tg_argv[0]::smallint, tg_argv[1]::bigint
     where not exists (
        select from postrider.written w
         where w.class = tg_argv[0]::smallint and w.first = tg_argv[1]::bigint and w.xid = pg_current_xact_id());
    return null;
end $$;


--
-- Name: number_error(jsonb, numeric, text); Type: FUNCTION; Schema: postrider; Owner: -
--

CREATE FUNCTION postrider.number_error(schema jsonb, value numeric, at text) RETURNS text
    LANGUAGE plpgsql IMMUTABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
begin
    return at || case
        when value < (schema -> 'minimum')::numeric then ' is less than ' || (schema ->> 'minimum')
        when value > (schema -> 'maximum')::numeric then ' is more than ' || (schema ->> 'maximum')
        when value <= (schema -> 'exclusiveMinimum')::numeric then ' is not more than ' || (schema ->> 'exclusiveMinimum')
        when value >= (schema -> 'exclusiveMaximum')::numeric then ' is not less than ' || (schema ->> 'exclusiveMaximum')
        when value % (schema -> 'multipleOf')::numeric <> 0 then ' is not a multiple of ' || (schema ->> 'multipleOf')
    end;
end $$;


--
-- Name: object_error(jsonb, jsonb, text); Type: FUNCTION; Schema: postrider; Owner: -
--

CREATE FUNCTION postrider.object_error(schema jsonb, value jsonb, at text) RETURNS text
    LANGUAGE plpgsql IMMUTABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
declare
    problem text;
    part jsonb;
    k text;
    v jsonb;
    size int;
begin
    if schema ? 'required' then
        for i in 0 .. jsonb_array_length(schema -> 'required') - 1 loop
            if not value ? (schema -> 'required' ->> i) then
                return at || '/' || postrider.pointer_part(schema -> 'required' ->> i) || ' is missing';
            end if;
        end loop;
    end if;
    if schema ? 'properties' or schema ? 'additionalProperties' then
        for k, v in select e.key, e.value from jsonb_each(value) e loop
            part := coalesce(schema -> 'properties' -> k, schema -> 'additionalProperties');
            if part is not null then
                -- as postrider.pointer_part, without a call for each property
                problem := postrider.schema_error(part, v, at || '/' || replace(replace(k, '~', '~0'), '/', '~1'));
                if problem is not null then
                    return problem;
                end if;
            end if;
        end loop;
    end if;
    if schema ? 'minProperties' or schema ? 'maxProperties' then
        size := (select count(*) from jsonb_object_keys(value));
        if size < coalesce((schema -> 'minProperties')::int, 0) then
            return at || ' has fewer properties than ' || (schema ->> 'minProperties');
        elsif size > (schema -> 'maxProperties')::int then
            return at || ' has more properties than ' || (schema ->> 'maxProperties');
        end if;
    end if;
    return null;
end $$;


--
-- Name: open_backlog(postrider.cut, postrider.cut, postrider.log_epoch, postrider.slice); Type: FUNCTION; Schema: postrider; Owner: -
--

CREATE FUNCTION postrider.open_backlog(last postrider.cut, new postrider.cut, epoch postrider.log_epoch, s postrider.slice) RETURNS bigint
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET jit TO 'off'
    AS $$
declare
    first_seq bigint;
    last_seq bigint;
    ordered bigint[];
    concerned bigint[];
    of_types text[];
    started bigint;
begin
    select min(v.first), max(v.last) into first_seq, last_seq from unnest(new.apart) x (xid) cross join lateral (
        select (select e.seq from postrider.event e where e.xid = x.xid and e.seq > epoch.floor_seq order by e.seq limit 1) as first,
               (select e.seq from postrider.event e where e.xid = x.xid and e.seq > epoch.floor_seq order by e.seq desc limit 1) as last) v;
    ordered := array(
        select distinct r.subscription from postrider.route r
         where (r.order_rule is not null or r.coalescing) and not r.starting and not postrider.is_held_back(r.subscription)
           and not exists (select from postrider.backlog b join postrider.route q on q.subscription = r.subscription
                            where b.over_at is null and (b.types is null or q.type = any (b.types))));
    if ordered <> '{}' then
        of_types := postrider.types_of_transactions(new.apart);
        concerned := array(select distinct r.subscription from postrider.route r
                            where r.subscription = any (ordered) and (of_types is null or r.type = any (of_types)));
    end if;
    insert into postrider.backlog (epoch, opened_no, xids, types, after, last_seq)
    values (epoch.no, last.no + 1, new.apart, of_types, first_seq - 1, last_seq);
    if concerned <> '{}' then
        insert into postrider.subscription_start (since, done, after)
        values ('-infinity', row (last.epoch, last.lo, last.hi, last.more, last.last_seq), least(first_seq, s.seqs[1]) - 1)
        returning id into started;
        insert into postrider.held (subscription, start) select c, started from unnest(concerned) c;
    end if;
    return started;
end $$;


--
-- Name: order_rule(text); Type: FUNCTION; Schema: postrider; Owner: -
--

CREATE FUNCTION postrider.order_rule(policy text) RETURNS smallint
    LANGUAGE plpgsql IMMUTABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $_$
begin
    if policy = 'block' then
        return 0;
    elsif policy = 'skip' then
        return -1;
    elsif policy ~ '^park:[1-9][0-9]{0,2}$' then
        return substr(policy, 6)::smallint;
    end if;
    perform postrider.refuse('PR005', 'order_policy', format('%L is not a policy', left(policy, 80)),
        'use block, skip, or park:3 to stop after 3 failures');
end $_$;


--
-- Name: tally; Type: TABLE; Schema: postrider; Owner: -
--

CREATE TABLE postrider.tally (
    kind text NOT NULL COLLATE pg_catalog."C",
    queue text NOT NULL,
    state text NOT NULL,
    n bigint NOT NULL,
    more boolean NOT NULL,
    at timestamp with time zone DEFAULT clock_timestamp() NOT NULL
);


--
-- Name: overview(); Type: FUNCTION; Schema: postrider; Owner: -
--

CREATE FUNCTION postrider.overview() RETURNS SETOF postrider.tally
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
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


--
-- Name: part(uuid, bigint, bigint, bigint); Type: FUNCTION; Schema: postrider; Owner: -
--

CREATE FUNCTION postrider.part(worker uuid, lease bigint, id bigint, call bigint) RETURNS bigint
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET jit TO 'off'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    AS $$
#variable_conflict use_column
declare
    l postrider.lease;
    i int;
    own bigint;
begin
    perform postrider.check_isolation();
    select * into l from postrider.lease x
     where x.id = part.lease and x.worker = part.worker and part.id = any (x.open) for no key update;
    if not found then
        return null;
    end if;
    i := array_position(l.ids, part.id);
    own := nextval('postrider.lease_id');
    insert into postrider.lease (id, worker, call, claimed_at, queue, ids, positions, attempts, losses, flags, priorities, shares,
                                 order_keys, limit_keys, special, open)
    values (own, part.worker, part.call, l.claimed_at, l.queue, array[part.id], array[l.positions[i]], array[l.attempts[i]],
            array[l.losses[i]], array[l.flags[i]], array[l.priorities[i]], array[l.shares[i]],
            case when l.order_keys is not null then array[l.order_keys[i]] end,
            case when l.limit_keys is not null then array[l.limit_keys[i]] end, l.special, array[part.id]);
    if cardinality(l.open) = 1 then
        delete from postrider.lease x where x.id = part.lease;
    else
        update postrider.lease x set open = array_remove(l.open, part.id) where x.id = part.lease;
    end if;
    return own;
end $$;


--
-- Name: pattern_regex(text); Type: FUNCTION; Schema: postrider; Owner: -
--

CREATE FUNCTION postrider.pattern_regex(pattern text) RETURNS text
    LANGUAGE plpgsql IMMUTABLE STRICT
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $_$
begin
    if octet_length(pattern) > 200 or pattern !~ '^(\*{1,2}|[a-z0-9_-]+)(\.(\*{1,2}|[a-z0-9_-]+))*$' then
        perform postrider.refuse('PR001', 'types', format('%L is not a pattern', left(pattern, 80)),
            'use the segments of a type, * for exactly one segment and ** for one or more');
    end if;
    return '^' || (
        select string_agg(case s when '*' then '[^.]+' when '**' then '[^.]+(\.[^.]+)*' else s end, '\.' order by o)
          from unnest(string_to_array(pattern, '.')) with ordinality u (s, o)) || '$';
end $_$;


--
-- Name: pause(text, boolean); Type: FUNCTION; Schema: postrider; Owner: -
--

CREATE FUNCTION postrider.pause(queue text, paused boolean DEFAULT true) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
begin
    perform postrider.check_name('queue', queue, true);
    insert into postrider.queue as q (name, paused_at) values (pause.queue, case when paused then clock_timestamp() end)
    on conflict (name) do update set paused_at = case when paused then coalesce(q.paused_at, clock_timestamp()) end;
    if not paused then
        perform postrider.wake('postrider_job');
    end if;
end $$;


--
-- Name: pause_outbound(text); Type: FUNCTION; Schema: postrider; Owner: -
--

CREATE FUNCTION postrider.pause_outbound(reason text DEFAULT ''::text) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
begin
    update postrider.instance i set outbound_paused_at = coalesce(i.outbound_paused_at, clock_timestamp()), reason = left(pause_outbound.reason, 1000);
end $$;


--
-- Name: pause_replay(bigint); Type: FUNCTION; Schema: postrider; Owner: -
--

CREATE FUNCTION postrider.pause_replay(id bigint) RETURNS boolean
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
begin
    update postrider.delivery_replay r set state = 'paused' where r.id = pause_replay.id and r.state = 'running';
    return found;
end $$;


--
-- Name: pause_schedule(text, boolean); Type: FUNCTION; Schema: postrider; Owner: -
--

CREATE FUNCTION postrider.pause_schedule(name text, paused boolean DEFAULT true) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
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


--
-- Name: pin(smallint, bigint, text, text, bigint, interval); Type: FUNCTION; Schema: postrider; Owner: -
--

CREATE FUNCTION postrider.pin(class smallint, first bigint, by text, kind text, n bigint, rest interval) RETURNS void
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
begin
    insert into postrider.pinned as p (class, first, by, kind, n, look_at)
    values (pin.class, pin.first, pin.by, pin.kind, pin.n, clock_timestamp() + pin.rest)
    on conflict on constraint pinned_pkey
    do update set by = excluded.by, kind = excluded.kind, n = excluded.n, look_at = excluded.look_at;
end $$;


--
-- Name: delivery_replay; Type: TABLE; Schema: postrider; Owner: -
--

CREATE TABLE postrider.delivery_replay (
    id bigint NOT NULL,
    endpoint bigint NOT NULL,
    from_at timestamp with time zone NOT NULL,
    to_at timestamp with time zone NOT NULL,
    types text[],
    predicate jsonpath,
    per_second integer NOT NULL,
    state text DEFAULT 'planned'::text NOT NULL,
    planned bigint NOT NULL,
    made bigint DEFAULT 0 NOT NULL,
    after_seq bigint NOT NULL,
    stepped_at timestamp with time zone,
    created_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    ended_at timestamp with time zone,
    CONSTRAINT a_replay_that_is_done_has_an_end CHECK (((state = 'done'::text) = (ended_at IS NOT NULL))),
    CONSTRAINT state_is_planned_running_paused_or_done CHECK ((state = ANY (ARRAY['planned'::text, 'running'::text, 'paused'::text, 'done'::text])))
);


--
-- Name: plan_replay(bigint, timestamp with time zone, timestamp with time zone, text[], text, integer); Type: FUNCTION; Schema: postrider; Owner: -
--

CREATE FUNCTION postrider.plan_replay(endpoint bigint, "from" timestamp with time zone, "to" timestamp with time zone, types text[] DEFAULT NULL::text[], predicate text DEFAULT NULL::text, per_second integer DEFAULT 10) RETURNS SETOF postrider.delivery_replay
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET jit TO 'off'
    AS $$
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


--
-- Name: watch_label(text); Type: FUNCTION; Schema: postrider; Owner: -
--

CREATE FUNCTION postrider.watch_label(name text) RETURNS text
    LANGUAGE sql IMMUTABLE STRICT
    SET search_path TO 'pg_catalog', 'pg_temp'
    RETURN ((('postrider_watch_'::text || "left"(translate(name, '.-'::text, '__'::text), 28)) || '_'::text) || "left"(md5(name), 8));


--
-- Name: plan_unwatch(text); Type: FUNCTION; Schema: postrider; Owner: -
--

CREATE FUNCTION postrider.plan_unwatch(name text, OUT relation regclass, OUT statements text[]) RETURNS record
    LANGUAGE sql STABLE SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    RETURN (SELECT ROW((c.oid)::regclass, (ARRAY(SELECT format('drop trigger %I on %s'::text, t.tgname, (t.tgrelid)::regclass) AS format FROM pg_trigger t WHERE ((t.tgrelid = c.oid) AND (t.tgname IN (SELECT ((postrider.watch_label(w.name) || '_'::text) || o.o) FROM unnest(ARRAY['insert'::text, 'update'::text, 'delete'::text, 'truncate'::text]) o(o))))) || ARRAY(SELECT format('drop function if exists %s'::text, (p.oid)::regprocedure) AS format FROM pg_proc p WHERE ((p.proname = postrider.watch_label(w.name)) AND (p.prorettype = ('trigger'::regtype)::oid) AND (p.pronargs = 0) AND ((c.oid IS NULL) OR (p.pronamespace = c.relnamespace)))))) AS "row" FROM (postrider.watch w LEFT JOIN pg_class c ON ((c.oid = (COALESCE(to_regclass(w.relation), (w.relid)::regclass))::oid))) WHERE (w.name = plan_unwatch.name));


--
-- Name: plan_watch(oid, json, boolean); Type: FUNCTION; Schema: postrider; Owner: -
--

CREATE FUNCTION postrider.plan_watch(relation oid, asked json, lock boolean DEFAULT false) RETURNS postrider.watch_plan
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
declare
    w postrider.watch;
    last postrider.watch;
    c pg_class;
    same boolean;
    answer postrider.watch_plan;
begin
    perform postrider.check_isolation();
    if lock then
        perform postrider.lock_declarations();
    end if;
    w := postrider.wanted_watch(relation, asked);
    select * into c from pg_class p where p.oid = plan_watch.relation;
    select * into last from postrider.watch p where p.name = w.name;
    if last.relid <> w.relid and last.relation <> w.relation and exists (select from pg_class p where p.oid = last.relid) then
        perform postrider.refuse('PR006', 'name', format('watch %L is of the table %s', w.name, last.relation),
            format('give another name, or end that one first: postrider.unwatch(%L)', w.name));
    end if;
    same := (last.columns, last.operations, last.types::text, last.condition, last.subject, last.data, last.owner)
        is not distinct from (w.columns, w.operations, w.types::text, w.condition, w.subject, w.data, w.owner);
    answer.wanted := w;
    answer.state := 'same';
    if not postrider.declaration_wins('watch', w.name, w.generation, last.generation, same) and w.generation < last.generation then
        answer.state := 'older';
        return answer;
    end if;
    answer.statements := postrider.watch_statements(w, (select n.nspname from pg_namespace n where n.oid = c.relnamespace), c.relowner);
    answer.queries := array(select postrider.watch_query(w, o) from unnest(w.operations) o where o <> 'truncate');
    answer.table_owner := c.relowner::regrole::text;
    answer.probe := (select format('%I.%I', n.nspname, postrider.watch_label(w.name) || '_probe') from pg_namespace n where n.oid = c.relnamespace);
    if cardinality(answer.statements) > 0 then
        answer.state := 'change';
    end if;
    return answer;
end $$;


--
-- Name: pointer_part(text); Type: FUNCTION; Schema: postrider; Owner: -
--

CREATE FUNCTION postrider.pointer_part(name text) RETURNS text
    LANGUAGE sql IMMUTABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    RETURN replace(replace(name, '~'::text, '~0'::text), '/'::text, '~1'::text);


--
-- Name: poison_retry_at(integer); Type: FUNCTION; Schema: postrider; Owner: -
--

CREATE FUNCTION postrider.poison_retry_at(tries integer) RETURNS timestamp with time zone
    LANGUAGE sql
    SET search_path TO 'pg_catalog', 'pg_temp'
    RETURN (clock_timestamp() + ((ARRAY['10 seconds'::text, '1 minute'::text, '10 minutes'::text, '1 hour'::text])[tries])::interval);


--
-- Name: poison_tried(postrider.poison, boolean, text, text, bigint); Type: FUNCTION; Schema: postrider; Owner: -
--

CREATE FUNCTION postrider.poison_tried(p postrider.poison, made boolean, code text, error text, first_job bigint) RETURNS void
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
begin
    update postrider.poison x
       set tried_at = clock_timestamp(), tries = x.tries + 1,
           code = coalesce(poison_tried.code, x.code), error = coalesce(left(poison_tried.error, 1000), x.error),
           retry_at = case when poison_tried.error is not null then postrider.poison_retry_at(x.tries + 1) end,
           ended_at = case when poison_tried.error is null then clock_timestamp() end,
           ended_as = case when poison_tried.error is null then case when made then 'made' else 'gone' end end,
           first_job = poison_tried.first_job, last_job = case when poison_tried.first_job is not null then postrider.job_position() | 3 end
     where x.event_seq = p.event_seq and x.subscription = p.subscription;
end $$;


--
-- Name: promote(integer); Type: FUNCTION; Schema: postrider; Owner: -
--

CREATE FUNCTION postrider.promote(most integer) RETURNS integer
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET jit TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    AS $$
declare
    moved int;
    until timestamptz := clock_timestamp();
begin
    with due as (
        delete from postrider.later x where x.ctid = any (array(
            select y.ctid from postrider.later y where y.run_at <= until order by y.run_at, y.id limit most
               for update skip locked))
        returning x.*
    ), placed as (
        select d.*, pg_sequence_last_value('postrider.job_epoch'::regclass) << 46 as epoch, nextval('postrider.job_number') as number
          from (select * from due order by run_at, id offset 0) d
    ), moved_rows as (
        insert into postrider.ready (queue, priority, share, pos, id, attempt, losses, flags, order_key, again_at)
        select p.queue, p.priority, p.share, p.epoch | (p.number << 2), p.id, p.attempt, p.losses, p.flags, p.order_key, p.run_at
          from placed p returning 1
    )
    select count(*) into moved from moved_rows;
    return moved;
end $$;


--
-- Name: properties_narrowed(jsonb, jsonb, text); Type: FUNCTION; Schema: postrider; Owner: -
--

CREATE FUNCTION postrider.properties_narrowed(old jsonb, new jsonb, at text) RETURNS text
    LANGUAGE plpgsql IMMUTABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
declare
    problem text;
    k text;
    free_before jsonb := coalesce(old -> 'additionalProperties', 'true');
    free_now jsonb := coalesce(new -> 'additionalProperties', 'true');
begin
    for k in select r from jsonb_array_elements_text(coalesce(old -> 'required', '[]')) r loop
        if not coalesce(new -> 'required', '[]') ? k or old -> 'properties' ? k and not coalesce(new -> 'properties', '{}') ? k then
            return at || '/' || postrider.pointer_part(k) || ' was required and is not any more';
        end if;
    end loop;
    for k in select r from jsonb_array_elements_text(coalesce(new -> 'required', '[]')) r loop
        if not coalesce(old -> 'required', '[]') ? k then
            return at || '/' || postrider.pointer_part(k) || ' is required and was not';
        end if;
    end loop;
    for k in select p from jsonb_object_keys(coalesce(old -> 'properties', '{}') || coalesce(new -> 'properties', '{}')) p loop
        -- a property that is new under no rule before: anything could have stood there, and probably did not
        continue when not coalesce(old -> 'properties', '{}') ? k and free_before in ('true', '{}', 'false');
        problem := postrider.schema_narrowed(coalesce(old -> 'properties' -> k, free_before),
            coalesce(new -> 'properties' -> k, free_now), at || '/' || postrider.pointer_part(k));
        if problem is not null then
            return problem;
        end if;
    end loop;
    return postrider.schema_narrowed(free_before, free_now, at || '/*');
end $$;


--
-- Name: prune_kept(); Type: FUNCTION; Schema: postrider; Owner: -
--

CREATE FUNCTION postrider.prune_kept() RETURNS integer
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $_$
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
end $_$;


--
-- Name: put_back(bigint, boolean, boolean); Type: FUNCTION; Schema: postrider; Owner: -
--

CREATE FUNCTION postrider.put_back(lease_id bigint, lost boolean, isolated boolean) RETURNS integer
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET jit TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    AS $$
declare
    moved int;
    special bigint[];
begin
    with gone as (
        delete from postrider.lease l where l.id = put_back.lease_id returning l.*
    ), each as materialized (
        select g.id as lease, g.queue, g.claimed_at, o.id, g.positions[i] as pos, g.attempts[i] as attempt,
               g.losses[i] as losses, g.flags[i] as flags, g.priorities[i] as priority, g.shares[i] as share,
               g.order_keys[i] as order_key, j.max_attempts,
               put_back.isolated or g.flags[i] & 8 <> 0 as alone, c.cancelled, c.reason
          from gone g
         cross join unnest(g.open) o (id)
         cross join lateral (select array_position(g.ids, o.id) as i) at
          join postrider.job j on j.class = (o.id & 3)::smallint and j.id = o.id
         cross join lateral (select count(*) > 0 as cancelled, min(x.reason) as reason
                               from postrider.cancellation x where x.id = o.id) c
    ), judged as materialized (
        select e.*, e.cancelled or put_back.lost and (e.attempt >= e.max_attempts
                 or (e.alone and greatest(e.attempt, e.losses + 1) >= e.max_attempts)) as ends,
               put_back.lost and not e.alone and e.losses >= 1 as strict
          from each e
    ), ended as (
        insert into postrider.done (class, id, started_at, lease, state, ended_as, fault_side, attempt, reason)
        select (v.id & 3)::smallint, v.id, v.claimed_at, v.lease, case when v.cancelled then 4 else 3 end,
               case when v.cancelled then 5 else 4 end, case when not v.cancelled then 3 end, v.attempt,
               case when v.cancelled then coalesce(v.reason, 'cancelled')
                    else 'worker lost' || case when v.losses > 0 then ' ×' || (v.losses + 1) else '' end end
          from judged v where v.ends
    ), ready as (
        insert into postrider.ready (queue, priority, share, pos, id, attempt, losses, flags, order_key)
        select v.queue, v.priority, v.share, v.pos, v.id,
               (v.attempt - case when put_back.lost and v.alone then 0 else 1 end)::smallint,
               (v.losses + put_back.lost::int)::smallint,
               (case when put_back.lost then v.flags | 4 else v.flags end)::smallint, v.order_key
          from judged v where not v.ends and not v.strict and not (put_back.lost and v.flags & 8 <> 0)
    ), parked as (
        insert into postrider.parked (queue, key, pos, id, priority, share, attempt, losses, flags, order_key)
        select v.queue, 'strict:', v.pos, v.id, v.priority, v.share,
               (v.attempt - case when v.alone then 0 else 1 end)::smallint, (v.losses + 1)::smallint, (v.flags | 4)::smallint,
               v.order_key
          from judged v where not v.ends and (v.strict or (put_back.lost and v.flags & 8 <> 0))
    ), kept as (
        insert into postrider.attempt (class, id, lease, attempt, outcome, started_at, error)
        select (v.id & 3)::smallint, v.id, v.lease, v.attempt, 3, v.claimed_at, 'worker lost'
          from judged v where put_back.lost
    ), forgotten as (
        delete from postrider.cancellation c where c.id = any (array(select v.id from judged v where v.cancelled))
    )
    select count(*), array_agg(v.id) filter (where v.flags & 49 <> 0) into moved, special from judged v;
    if special is not null then
        perform postrider.settle_unique(special);
        perform postrider.settle_turns(special);
    end if;
    return moved;
end $$;


--
-- Name: put_back_each(bigint, boolean, boolean); Type: FUNCTION; Schema: postrider; Owner: -
--

CREATE FUNCTION postrider.put_back_each(lease_id bigint, lost boolean, isolated boolean) RETURNS integer
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
declare
    l postrider.lease;
    moved int := 0;
    own bigint;
    x bigint;
begin
    begin
        return postrider.put_back(lease_id, lost, isolated);
    exception when others then
        select * into l from postrider.lease y where y.id = lease_id;
        raise warning 'postrider: % of worker % cannot be put back: %', l.open, l.worker, sqlerrm;
    end;
    if cardinality(l.open) > 1 then
        foreach x in array l.open loop
            own := postrider.part(l.worker, lease_id, x, l.call);
            begin
                moved := moved + postrider.put_back(own, lost, isolated);
            exception when others then
                null;
            end;
        end loop;
    end if;
    return moved;
end $$;


--
-- Name: put_endpoint(bigint, integer, json, bytea, text); Type: FUNCTION; Schema: postrider; Owner: -
--

CREATE FUNCTION postrider.put_endpoint(id bigint, revision integer, fields json, headers bytea, headers_key text) RETURNS bigint
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
#variable_conflict use_variable
declare
    types text[] := array(select json_array_elements_text(fields -> 'types'));
    steps bigint[] := case when fields ->> 'steps_ms' is not null then array(select json_array_elements_text(fields -> 'steps_ms')::bigint) end;
    of_subscription bigint;
    whose text := coalesce(fields ->> 'owner', '');
begin
    perform postrider.check_endpoint(fields);
    perform postrider.check_owner(whose);
    if revision is not null then
        if not postrider.lock_endpoint(id) then
            return null;
        end if;
        select e.owner into whose from postrider.endpoint e where e.id = put_endpoint.id and e.revision = put_endpoint.revision;
        if not found then
            return null;
        end if;
    end if;
    perform postrider.declare_endpoint_types();
    of_subscription := postrider.put_subscription('webhook.endpoint-' || id, types, 'webhook.deliver', whose, 0, true, 'webhook', 0,
        fields ->> 'predicate', fields ->> 'order_by', fields ->> 'order_policy');
    update postrider.subscription s set limit_key = postrider.endpoint_key(id)
     where s.id = of_subscription and s.limit_key is distinct from postrider.endpoint_key(id);
    if found then
        perform postrider.compile_routes(array[of_subscription], '{}');
    end if;
    -- whoever takes a name comes one after the other, as whoever declares
    if exists (select from postrider.endpoint e
                where e.owner = whose and e.name = fields ->> 'name' and e.deleted_at is null and e.id <> put_endpoint.id) then
        perform postrider.refuse('PR006', 'name', format('%L is already the name of an endpoint of this owner', fields ->> 'name'),
            'choose another name, or delete that endpoint');
    end if;
    insert into postrider.endpoint as e (id, subscription, name, owner, url, types, labels, max_in_flight, rate_starts, rate_per, format, schedule,
                                         steps_ms, timeout_ms, max_attempts, on_4xx, answer_contains, headers, headers_key, header_names)
    values (id, of_subscription, fields ->> 'name', whose, fields ->> 'url', types, fields -> 'labels',
            (fields ->> 'max_in_flight')::smallint, (fields ->> 'rate_starts')::int,
            (fields ->> 'rate_per_ms')::bigint * interval '1 millisecond', (fields ->> 'format')::smallint, fields ->> 'schedule', steps,
            (fields ->> 'timeout_ms')::int, (fields ->> 'max_attempts')::smallint, fields ->> 'on_4xx', fields ->> 'answer_contains',
            headers, headers_key, array(select json_array_elements_text(coalesce(fields -> 'header_names', '[]'))))
    on conflict on constraint endpoint_pkey do update
       set name = excluded.name, url = excluded.url, types = excluded.types, labels = excluded.labels,
           max_in_flight = excluded.max_in_flight, rate_starts = excluded.rate_starts, rate_per = excluded.rate_per,
           format = excluded.format, schedule = excluded.schedule, steps_ms = excluded.steps_ms, timeout_ms = excluded.timeout_ms,
           max_attempts = excluded.max_attempts, on_4xx = excluded.on_4xx, answer_contains = excluded.answer_contains,
           headers = excluded.headers, headers_key = excluded.headers_key, header_names = excluded.header_names, revision = e.revision + 1;
    insert into postrider.endpoint_health (endpoint) values (id) on conflict do nothing;
    perform postrider.apply_endpoint_limit(id);
    return id;
end $$;


--
-- Name: put_subscription(text, text[], text, text, bigint, boolean, text, bigint, text, text, text, boolean, text); Type: FUNCTION; Schema: postrider; Owner: -
--

CREATE FUNCTION postrider.put_subscription(name text, types text[], kind text, owner text DEFAULT ''::text, delay_ms bigint DEFAULT 0, outward boolean DEFAULT false, declared_by text DEFAULT ''::text, generation bigint DEFAULT 0, predicate text DEFAULT NULL::text, order_by text DEFAULT NULL::text, order_policy text DEFAULT NULL::text, coalescing boolean DEFAULT false, start text DEFAULT 'now'::text) RETURNS bigint
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
declare
    known postrider.subscription;
    compiled jsonpath := postrider.check_predicate(predicate);
    since timestamptz := postrider.check_start(start);
    found_id bigint;
begin
    perform postrider.check_name('subscription', name, true);
    perform postrider.check_owner(owner);
    if coalesce(cardinality(types), 0) = 0 then
        perform postrider.refuse('PR005', 'types', format('subscription %L names no event type', name),
            'give at least one type or pattern');
    elsif order_by not in ('subject', 'owner', 'all') then
        perform postrider.refuse('PR005', 'order_by', format('%L is not an order', left(order_by, 80)), 'use subject, owner or all');
    elsif order_policy is not null and order_by is null then
        perform postrider.refuse('PR005', 'order_policy', 'a policy belongs to an order', 'give order_by as well');
    elsif order_policy is not null then
        perform postrider.order_rule(order_policy);
    end if;
    if delay_ms < 0 then
        perform postrider.refuse('PR005', 'delay_ms', 'it is negative', 'use 0 or more milliseconds');
    end if;
    perform postrider.pattern_regex(p) from unnest(types) p;
    perform postrider.lock_declarations();
    if not exists (select from postrider.kind k where k.name = put_subscription.kind) then
        perform postrider.refuse('PR004', 'kind', format('%L was never declared', put_subscription.kind),
            'declare the kind first, or in the same call');
    end if;
    select * into known from postrider.subscription s where s.name = put_subscription.name;
    insert into postrider.subscription as s (name, types, kind, owner, delay_ms, outward, declared_by, generation, predicate, order_by,
                                             order_policy, coalescing)
    values (put_subscription.name, put_subscription.types, put_subscription.kind, put_subscription.owner,
            put_subscription.delay_ms, put_subscription.outward, put_subscription.declared_by, put_subscription.generation, compiled,
            put_subscription.order_by, put_subscription.order_policy, put_subscription.coalescing)
    on conflict on constraint subscription_name_key do update
       set types = excluded.types, kind = excluded.kind, owner = excluded.owner, delay_ms = excluded.delay_ms,
           outward = excluded.outward, declared_by = excluded.declared_by, generation = excluded.generation,
           predicate = excluded.predicate, order_by = excluded.order_by, order_policy = excluded.order_policy,
           coalescing = excluded.coalescing, seen_at = clock_timestamp(), removed_at = null
    returning s.id into found_id;
    if since is not null and (known.id is null or known.removed_at is not null) then
        insert into postrider.subscription_start (subscription, since) values (found_id, since);
        perform postrider.wake('postrider_event');
    end if;
    perform postrider.compile_routes(array[found_id], '{}');
    return found_id;
end $$;


--
-- Name: tag; Type: TABLE; Schema: postrider; Owner: -
--

CREATE TABLE postrider.tag (
    class smallint NOT NULL,
    id bigint NOT NULL,
    tag text NOT NULL COLLATE pg_catalog."C"
)
PARTITION BY RANGE (class, id);


--
-- Name: put_tags(smallint, bigint, text[]); Type: FUNCTION; Schema: postrider; Owner: -
--

CREATE FUNCTION postrider.put_tags(class smallint, id bigint, tags text[]) RETURNS void
    LANGUAGE sql
    SET search_path TO 'pg_catalog', 'pg_temp'
    BEGIN ATOMIC
 INSERT INTO postrider.tag (class, id, tag)  SELECT put_tags.class AS class,
             put_tags.id AS id,
             d.t
            FROM ( SELECT DISTINCT u.u
                    FROM unnest(put_tags.tags) u(u)
                   ORDER BY u.u) d(t);
END;


--
-- Name: record(text, text, json, text, timestamp with time zone, uuid, text, integer, text, timestamp with time zone); Type: FUNCTION; Schema: postrider; Owner: -
--

CREATE FUNCTION postrider.record(type text, subject text, data json DEFAULT '{}'::json, owner text DEFAULT ''::text, occurred_at timestamp with time zone DEFAULT NULL::timestamp with time zone, cause uuid DEFAULT NULL::uuid, idempotency_key text DEFAULT NULL::text, version integer DEFAULT NULL::integer, traceparent text DEFAULT NULL::text, deliver_at timestamp with time zone DEFAULT NULL::timestamp with time zone) RETURNS uuid
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
declare
    tx xid8;
    new_seq bigint;
    at timestamptz;
    us bigint;
    new_id uuid;
    known_id uuid;
    checked boolean;
    mismatch text;
    depth int := 0;
begin
    checked := (select t.subject is not null or t.version is not null from postrider.event_type t where t.name = record.type);
    if checked is null or type like 'postrider.%' or type like 'webhook.%' then
        perform postrider.refuse_type(type);
    end if;
    if subject is null or subject = '' or octet_length(subject) > 512 or subject ~ '[\u0001-\u001f\u007f-\u009f]' then
        perform postrider.refuse('PR001', 'subject', 'a subject is 1 to 512 bytes of text without control characters',
            'name the thing that the event is about, for example order/42');
    end if;
    if owner <> '' or owner is null then
        perform postrider.check_owner(owner);
    end if;
    -- a text this short cannot be too deep, nor hold a number that is too long
    if data is null or octet_length(data::text) > 256 or position('\u' in data::text) > 0
       or data::text ~ '[eE][-+]?[0-9]{4}'
    then
        perform postrider.check_json('data', data);
    end if;
    if checked or version is not null then
        select c.version, c.mismatch into version, mismatch from postrider.check_event(type, subject, data, version) c;
    end if;

    -- what a handler, or whoever else works for an event, said for its whole transaction: triggers inherit it
    if cause is null and current_setting('postrider.cause', true) <> '' then
        cause := postrider.cause_of(current_setting('postrider.cause', true));
    end if;
    if cause is not null or traceparent is not null or current_setting('postrider.traceparent', true) <> '' then
        select f.traceparent, f.depth into traceparent, depth
          from postrider.follow(cause, coalesce(traceparent, current_setting('postrider.traceparent', true))) f;
    end if;

    tx := pg_current_xact_id();
    at := clock_timestamp();
    us := (date_part('epoch', at) * 1000000)::bigint;
    new_seq := (pg_sequence_last_value('postrider.event_epoch'::regclass) << 46) | nextval('postrider.event_number'::regclass);
    -- see postrider.event_id
    new_id := (lpad(to_hex(us / 1000), 12, '0') || '7' || lpad(to_hex(us % 1000 * 4096 / 1000), 3, '0')
        || to_hex(new_seq | (-9223372036854775808)))::uuid;
    if idempotency_key is not null then
        known_id := postrider.first_of_key(owner, idempotency_key, new_id);
        if known_id <> new_id then
            perform postrider.check_same(known_id, type, subject, data);
            return known_id;
        end if;
    end if;

    insert into postrider.event (xid, seq, id, recorded_at, occurred_at, depth, version, type, owner, subject, cause, traceparent, data)
    values (tx, new_seq, new_id, at, coalesce(record.occurred_at, at), depth, record.version, record.type, record.owner, record.subject,
            record.cause, record.traceparent, record.data);
    if deliver_at > at then
        perform postrider.delay_event(new_seq, deliver_at);
    end if;
    if mismatch is not null then
        insert into postrider.type_mismatch (seq, type, version, problem) values (new_seq, record.type, record.version, mismatch);
    end if;
    if coalesce(pg_sequence_last_value('postrider.wake_event'::regclass), 0) not between us / 1000 - 5 and us / 1000 then
        perform postrider.wake('postrider_event');
    end if;
    return new_id;
end $$;


--
-- Name: record_many(json); Type: FUNCTION; Schema: postrider; Owner: -
--

CREATE FUNCTION postrider.record_many(events json) RETURNS SETOF uuid
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
declare
    e json;
    stray text;
begin
    perform postrider.check_escapes('data', events::text);
    if json_typeof(events) is distinct from 'array' then
        perform postrider.refuse('PR003', 'events', 'it is not an array', 'send an array of objects with type, subject, data');
    end if;
    for e in select j from json_array_elements(events) j loop
        select k into stray from json_object_keys(e) k
         where k not in ('type', 'subject', 'data', 'owner', 'occurred_at', 'cause', 'idempotency_key', 'version', 'traceparent',
                         'deliver_at')
         limit 1;
        if found then
            perform postrider.refuse('PR005', stray, 'it is not an option of an event',
                'use type, subject, data, owner, occurred_at, cause, idempotency_key, version, traceparent, deliver_at');
        end if;
        return next postrider.record(e ->> 'type', e ->> 'subject', coalesce(e -> 'data', '{}'), coalesce(e ->> 'owner', ''),
            (e ->> 'occurred_at')::timestamptz, (e ->> 'cause')::uuid, e ->> 'idempotency_key', (e ->> 'version')::int,
            e ->> 'traceparent', (e ->> 'deliver_at')::timestamptz);
    end loop;
end $$;


--
-- Name: record_rows(text[], text[], text[], json[], json[], boolean); Type: FUNCTION; Schema: postrider; Owner: -
--

CREATE FUNCTION postrider.record_rows(types text[], subjects text[], owners text[], data json[], keys json[], wake boolean DEFAULT true) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
declare
    n int := coalesce(cardinality(types), 0);
    type text;
    subject text := subjects[1];
    value json := data[1];
    fault text;
    tx xid8;
    at timestamptz;
    us bigint;
    prefix text;
    epoch bigint;
    new_seq bigint;
    cause uuid;
    traceparent text;
    depth int := 0;
begin
    if (coalesce(cardinality(subjects), 0), coalesce(cardinality(owners), 0), coalesce(cardinality(data), 0),
        coalesce(cardinality(keys), 0)) <> (n, n, n, n)
    then
        perform postrider.refuse('PR005', 'types', 'the arrays are not of one length', 'send one element for each event in each of them');
    elsif n = 0 then
        return;
    elsif n = 1 then
        -- the common way: simple expressions, which cost no plan
        type := types[1];
        if type like 'postrider.%' or type like 'webhook.%' or not exists (select from postrider.event_type t where t.name = type) then
            perform postrider.refuse_type(type);
        end if;
        if subject is null or subject = '' or octet_length(subject) > 512 or subject ~ '[\u0001-\u001f\u007f-\u009f]' then
            subject := postrider.row_subject(subject, keys[1]);
        end if;
        if owners[1] is distinct from '' then
            perform postrider.check_owner(owners[1]);
        end if;
        if value is null or octet_length(value::text) > 256 or position('\u' in value::text) > 0 or value::text ~ '[eE][-+]?[0-9]{4}' then
            fault := postrider.row_fault(value, keys[1]);
            if fault is not null then
                value := json_build_object('key', keys[1], 'cut', fault);
            end if;
        end if;
    else
        for type in select distinct t from unnest(types) t loop
            if type is null or type like 'postrider.%' or type like 'webhook.%'
               or not exists (select from postrider.event_type e where e.name = type)
            then
                perform postrider.refuse_type(type);
            end if;
        end loop;
        perform postrider.check_owner(o) from unnest(owners) o where o <> '' or o is null;
    end if;
    -- what has a schema, or a rule for its subjects, is checked one by one
    if exists (select from postrider.event_type t where t.name = any (types) and (t.subject is not null or t.version is not null)) then
        for i in 1..n loop
            perform postrider.record(types[i], coalesce(nullif(subjects[i], ''), postrider.row_subject(subjects[i], keys[i])),
                case when f is null then data[i] else json_build_object('key', keys[i], 'cut', f) end, owners[i])
               from postrider.row_fault(data[i], keys[i]) f;
        end loop;
        return;
    end if;
    -- as in postrider.record: a trigger inherits what its transaction works for
    if current_setting('postrider.cause', true) <> '' then
        cause := postrider.cause_of(current_setting('postrider.cause', true));
    end if;
    if cause is not null or current_setting('postrider.traceparent', true) <> '' then
        select f.traceparent, f.depth into traceparent, depth
          from postrider.follow(cause, current_setting('postrider.traceparent', true)) f;
    end if;

    tx := pg_current_xact_id();
    at := clock_timestamp();
    us := (date_part('epoch', at) * 1000000)::bigint;
    -- see postrider.event_id
    prefix := lpad(to_hex(us / 1000), 12, '0') || '7' || lpad(to_hex(us % 1000 * 4096 / 1000), 3, '0');
    epoch := pg_sequence_last_value('postrider.event_epoch'::regclass) << 46;
    if n = 1 then
        new_seq := epoch | nextval('postrider.event_number'::regclass);
        insert into postrider.event (xid, seq, id, recorded_at, occurred_at, depth, type, owner, subject, cause, traceparent, data)
        values (tx, new_seq, (prefix || to_hex(new_seq | (-9223372036854775808)))::uuid, at, at, depth, type, owners[1], subject, cause,
                traceparent, value);
    else
        insert into postrider.event (xid, seq, id, recorded_at, occurred_at, depth, type, owner, subject, cause, traceparent, data)
        select tx, r.seq, (prefix || to_hex(r.seq | (-9223372036854775808)))::uuid, at, at, depth, r.type, r.owner,
               case when r.subject <> '' and octet_length(r.subject) <= 512 and r.subject !~ '[\u0001-\u001f\u007f-\u009f]'
                    then r.subject else postrider.row_subject(r.subject, r.key) end,
               cause, traceparent,
               case when r.fault is null then r.data else json_build_object('key', r.key, 'cut', r.fault) end
          from (select epoch | nextval('postrider.event_number'::regclass) as seq, j.*
                  from (select u.*, case when octet_length(u.data::text) <= 256 and position('\u' in u.data::text) = 0
                                              and u.data::text !~ '[eE][-+]?[0-9]{4}' then null
                                         else postrider.row_fault(u.data, u.key) end as fault
                          from unnest(record_rows.types, record_rows.subjects, record_rows.owners, record_rows.data, record_rows.keys)
                               u (type, subject, owner, data, key) offset 0) j offset 0) r;
    end if;
    if wake and coalesce(pg_sequence_last_value('postrider.wake_event'::regclass), 0) not between us / 1000 - 5 and us / 1000 then
        perform postrider.wake('postrider_event');
    end if;
end $$;


--
-- Name: redeliver(bigint, boolean); Type: FUNCTION; Schema: postrider; Owner: -
--

CREATE FUNCTION postrider.redeliver(id bigint, as_new boolean DEFAULT false, OUT effect text, OUT delivery bigint) RETURNS record
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET jit TO 'off'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    AS $$
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


--
-- Name: redeliver_discarded(bigint, bigint, integer); Type: FUNCTION; Schema: postrider; Owner: -
--

CREATE FUNCTION postrider.redeliver_discarded(endpoint bigint, after bigint, looked_at integer DEFAULT 2000, OUT n bigint, OUT upto bigint) RETURNS record
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET jit TO 'off'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    AS $$
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


--
-- Name: refer_to(bigint, bigint); Type: FUNCTION; Schema: postrider; Owner: -
--

CREATE FUNCTION postrider.refer_to(id bigint, seq bigint) RETURNS boolean
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET jit TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    AS $$
declare
    j postrider.job;
    n int := 0;
begin
    select * into j from postrider.job x where x.class = (refer_to.id & 3)::smallint and x.id = refer_to.id;
    if j.event_seq >= seq then
        return true;
    end if;
    for look in 1..20 loop
        update postrider.ready r set pos = r.pos where r.ctid = any (array(
            select x.ctid from postrider.ready x
             where x.queue = j.queue and x.priority = j.priority and x.share = coalesce(j.share, 0) and x.pos = j.id and x.id = j.id
               for update skip locked));
        get diagnostics n = row_count;
        if n = 0 then
            update postrider.ready r set pos = r.pos where r.ctid = any (array(
                select x.ctid from postrider.ready x where x.id = j.id and x.pos <> x.id for update skip locked));
            get diagnostics n = row_count;
        end if;
        if n = 0 then
            update postrider.later y set why = y.why where y.ctid = any (array(
                select x.ctid from postrider.later x where x.run_at = j.run_at and x.id = j.id for update skip locked));
            get diagnostics n = row_count;
        end if;
        if n = 0 then
            update postrider.later y set why = y.why where y.ctid = any (array(
                select x.ctid from postrider.later x where x.id = j.id and x.why <> 0 for update skip locked));
            get diagnostics n = row_count;
        end if;
        if n = 0 then
            update postrider.parked p set flags = p.flags where p.ctid = any (array(
                select x.ctid from postrider.parked x where x.id = j.id for update skip locked));
            get diagnostics n = row_count;
        end if;
        exit when n > 0;
        -- it is being moved just now, or it ends
        perform pg_sleep(0.005);
    end loop;
    if n > 0 then
        update postrider.job x set event_seq = refer_to.seq where x.class = j.class and x.id = j.id;
    end if;
    return n > 0;
end $$;


--
-- Name: refuse(text, text, text, text); Type: FUNCTION; Schema: postrider; Owner: -
--

CREATE FUNCTION postrider.refuse(code text, field text, message text, remedy text) RETURNS void
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
begin
    raise exception using errcode = refuse.code, message = refuse.field || ': ' || refuse.message,
        column = refuse.field, hint = refuse.remedy;
end $$;


--
-- Name: refuse_schedule(text); Type: FUNCTION; Schema: postrider; Owner: -
--

CREATE FUNCTION postrider.refuse_schedule(name text) RETURNS void
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
begin
    perform postrider.refuse('PR004', 'schedule', format('%L was never declared', left(name, 80)), coalesce(
        'did you mean ' || (select string_agg(n, ', ') from (
            select quote_literal(e.name) as n from postrider.schedule e
             where split_part(e.name, '.', 1) = split_part(refuse_schedule.name, '.', 1)
             order by abs(length(e.name) - length(refuse_schedule.name)), e.name limit 3) near),
        'declare it first'));
end $$;


--
-- Name: refuse_schema(text, text, text); Type: FUNCTION; Schema: postrider; Owner: -
--

CREATE FUNCTION postrider.refuse_schema(at text, message text, remedy text) RETURNS void
    LANGUAGE plpgsql IMMUTABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
begin
    perform postrider.refuse('PR005', 'schema', left(at, 200) || ' ' || message, remedy);
end $$;


--
-- Name: refuse_type(text); Type: FUNCTION; Schema: postrider; Owner: -
--

CREATE FUNCTION postrider.refuse_type(type text) RETURNS void
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
begin
    perform postrider.check_name('type', type, not exists (select from postrider.event_type t where t.name = refuse_type.type));
    perform postrider.refuse('PR004', 'type', format('%L was never declared', type), coalesce(
        'did you mean ' || postrider.nearest_names(type, array(select t.name from postrider.event_type t)),
        'declare it first: postrider.declare'));
end $$;


--
-- Name: relay(integer, boolean, boolean, json); Type: FUNCTION; Schema: postrider; Owner: -
--

CREATE FUNCTION postrider.relay(most integer, elsewhere boolean DEFAULT false, careful boolean DEFAULT false, refused json DEFAULT NULL::json) RETURNS postrider.relayed
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET jit TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    AS $$
declare
    last postrider.cut;
    new postrider.cut;
    epoch postrider.log_epoch;
    s postrider.slice;
    answer postrider.relayed;
    retried int := 0;
    slice_most int := case when careful then least(most, 256) else most end;
    start bigint;
    beside postrider.relayed;
begin
    perform postrider.check_isolation();
    -- the own transaction is never among the open ones of its snapshot: rows that it wrote later would count as done
    if pg_current_xact_id_if_assigned() is not null then
        perform postrider.refuse('PR010', 'transaction', 'the relay must be alone in its transaction',
            'call postrider.relay in a transaction of its own');
    end if;
    if most is null or most < 1 then
        perform postrider.refuse('PR005', 'most', format('%s is out of range', coalesce(most::text, 'null')), 'use 1 or more events');
    end if;
    answer := row (null, 0, 0, false, false, 'busy', null, false, 0, null);
    if not pg_try_advisory_xact_lock(7305, 1) then
        return answer;
    end if;
    -- each statement from here on sees the last relay's row
    select * into last from postrider.cut order by no desc limit 1;
    select * into epoch from postrider.log_epoch order by no desc limit 1;
    select pg_current_snapshot() into new.hi;
    if epoch.system_identifier <> (select system_identifier from pg_control_system())
       or not last.more and pg_snapshot_xmax(new.hi) < pg_snapshot_xmax(last.hi)
    then
        return postrider.start_rebase(last, epoch);
    end if;
    answer.why := 'idle';
    answer.starting := epoch.done_at is not null and cardinality(epoch.late) = 0 and exists (select from postrider.subscription_start b where b.over_at is null);
    answer.open_writers := not last.more and pg_snapshot_xmin(new.hi) < pg_snapshot_xmax(new.hi);
    -- what was set aside comes first, and so does what is left from below the floor: it is older
    select (extract(epoch from p.retry_at - clock_timestamp()) * 1000)::bigint into answer.retry_in_ms
      from postrider.poison p where p.ended_at is null and p.retry_at is not null order by p.retry_at limit 1;
    if answer.retry_in_ms <= 0 and not elsewhere then
        retried := postrider.retry_poison();
        answer.retry_in_ms := 0;
    end if;
    answer.retry_in_ms := least(answer.retry_in_ms, postrider.next_due_in_ms());
    if not last.more and (epoch.done_at is null or cardinality(epoch.late) > 0) then
        s := postrider.rest_of_rebase(epoch, slice_most, new.hi);
        if s.seqs is not null then
            new.hi := last.hi;
            return postrider.append_cut(last, new, s, row (slice_most, elsewhere, careful, true, refused), answer);
        end if;
        -- it may be over just now: who waits for that is not to wait for the next hint
        select * into epoch from postrider.log_epoch order by no desc limit 1;
        answer.starting := epoch.done_at is not null and cardinality(epoch.late) = 0 and exists (select from postrider.subscription_start b where b.over_at is null);
    end if;
    -- what is due, and what is taken apart, takes turns with what is new
    if (select c.backlog is null from postrider.cut c where c.start is null order by c.no desc limit 1) then
        beside := postrider.relay_beside(last, row (slice_most, elsewhere, careful, false, refused), answer);
        if beside.why = 'done' then
            return beside;
        end if;
    end if;

    if last.more then
        new := last;
        new.joined := null;
        new.backlog := null;
        new.start := null;
        new.part_after := null;
        new.part_upto := null;
        s := postrider.next_slice(new, last.last_seq, slice_most, true);
    elsif new.hi::text <> last.hi::text then
        new.lo := last.hi;
        new.apart := postrider.huge_transactions(new, epoch.floor_seq, 5 * most);
        s := postrider.next_slice(new, epoch.floor_seq, slice_most, false);
    end if;
    -- nothing new: nothing is written, but a position too far behind is moved on, for the next look's sake
    if s.seqs is null and new.apart is null and not last.more and (new.lo is null
       or pg_snapshot_xmax(new.hi)::text::numeric - pg_snapshot_xmax(new.lo)::text::numeric <= 10000)
    then
        beside := postrider.relay_beside(last, row (slice_most, elsewhere, careful, false, refused), answer);
        if retried > 0 then
            answer.jobs := retried;
            perform postrider.wake('postrider_job');
        end if;
        return case when beside.why = 'done' then beside else answer end;
    end if;
    new.last_seq := case when last.more then last.last_seq else epoch.floor_seq end;
    if new.apart is not null and not last.more then
        start := postrider.open_backlog(last, new, epoch, s);
    end if;
    answer := postrider.append_cut(last, new, s, row (slice_most, elsewhere, careful, false, refused), answer);
    if start is not null then
        -- up to here those that keep an order walk first, all of it in the order of seq
        update postrider.subscription_start x
           set upto = (select row (c.epoch, c.lo, c.hi, c.more, c.last_seq)::postrider.log_position from postrider.cut c order by c.no desc limit 1)
         where x.id = start;
        answer.starting := true;
    end if;
    answer.more := answer.more or new.apart is not null or exists (select from postrider.backlog b where b.over_at is null);
    return answer;
end $$;


--
-- Name: relay_backlog(postrider.cut, postrider.backlog, postrider.pass, postrider.relayed); Type: FUNCTION; Schema: postrider; Owner: -
--

CREATE FUNCTION postrider.relay_backlog(last postrider.cut, b postrider.backlog, how postrider.pass, answer postrider.relayed) RETURNS postrider.relayed
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET jit TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    AS $$
declare
    s postrider.slice;
    new postrider.cut := last;
begin
    select array_agg(e.seq), array_agg(e.type), array_agg(e.owner), array_agg(postrider.event_digest(
               sha256(convert_to(e.data::text, 'UTF8')), e.id, e.occurred_at, e.type, e.owner, e.subject, e.cause))
      into s.seqs, s.types, s.owners, s.digests from (
        select v.* from unnest(b.xids) x (xid) cross join lateral (
            select seq, id, occurred_at, type, owner, subject, cause, data from postrider.event
             where xid = x.xid and seq > b.after order by seq limit how.most + 1) v
         order by v.seq limit how.most + 1) e;
    if s.seqs is null then
        update postrider.backlog x set over_at = clock_timestamp() where x.id = b.id;
        answer.more := true;
        return answer;
    end if;
    new.joined := null;
    new.start := null;
    new.apart := case when last.more then last.apart end;
    new.backlog := b.id;
    new.part_after := b.after;
    answer := postrider.append_cut(last, new, s, how, answer);
    -- what is new comes next
    answer.more := true;
    return answer;
end $$;


--
-- Name: relay_beside(postrider.cut, postrider.pass, postrider.relayed); Type: FUNCTION; Schema: postrider; Owner: -
--

CREATE FUNCTION postrider.relay_beside(last postrider.cut, how postrider.pass, answer postrider.relayed) RETURNS postrider.relayed
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET jit TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    AS $$
declare
    b postrider.backlog;
    due postrider.relayed;
begin
    select * into b from postrider.backlog x where x.over_at is null order by x.id limit 1;
    if b.id is null or (select c.backlog from postrider.cut c where c.backlog is not null order by c.no desc limit 1) is distinct from 0 then
        due := postrider.relay_due(last, how, answer);
        if due.why = 'done' then
            return due;
        end if;
    end if;
    if b.id is not null then
        return postrider.relay_backlog(last, b, how, answer);
    end if;
    return answer;
end $$;


--
-- Name: relay_due(postrider.cut, postrider.pass, postrider.relayed); Type: FUNCTION; Schema: postrider; Owner: -
--

CREATE FUNCTION postrider.relay_due(last postrider.cut, how postrider.pass, answer postrider.relayed) RETURNS postrider.relayed
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET jit TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    AS $$
declare
    due postrider.slice;
    run postrider.slice;
    new postrider.cut := last;
    subs bigint[];
    starting bigint[];
    made record;
    first int := 1;
    upto int;
begin
    select array_agg(e.seq order by d.deliver_at, d.seq), array_agg(e.type order by d.deliver_at, d.seq), array_agg(e.owner order by d.deliver_at, d.seq)
      into due.seqs, due.types, due.owners
      from (select x.seq, x.deliver_at from postrider.event_delay x
             where x.ended_at is null and x.deliver_at <= clock_timestamp()
             order by x.deliver_at, x.seq limit least(how.most, 500) for update skip locked) d
     cross join lateral (select v.seq, v.type, v.owner from postrider.event v where v.seq = d.seq) e;
    if due.seqs is null then
        return answer;
    end if;
    select coalesce(array_agg(distinct r.subscription), '{}'), array_agg(distinct r.subscription) filter (where r.starting) into subs, starting
      from postrider.route r where r.type = any (due.types);
    new.at := greatest(clock_timestamp(), last.at);
    new.jobs := 0;
    new.aside := 0;
    new.elsewhere := how.elsewhere;
    new.first_job := postrider.job_position();
    loop
        upto := first;
        while due.seqs[upto + 1] > due.seqs[upto] loop
            upto := upto + 1;
        end loop;
        run := row (due.seqs[first:upto], due.types[first:upto], due.owners[first:upto], null);
        if how.elsewhere then
            answer.matched := postrider.tell_matched(new.at, run.seqs, run.types, run.owners, subs);
            if how.refused is not null then
                select x.matched_left, x.aside into answer.matched, new.aside
                  from postrider.without_refused(last.no + 1, answer.matched, how.refused) x;
            end if;
            new.jobs := json_array_length(answer.matched -> 'jobs');
        elsif how.careful then
            select * into made from postrider.make_each(last.no + 1, new.at, run, false, subs);
            new.jobs := new.jobs + made.jobs;
            new.aside := new.aside + made.aside;
            upto := first + made.upto - 1;
        else
            new.jobs := new.jobs + postrider.fan_out(new.at, run.seqs, run.types, run.owners, subs);
        end if;
        -- another engine is told of one run, and care may have found enough
        exit when upto >= cardinality(due.seqs) or how.elsewhere or how.careful;
        first := upto + 1;
    end loop;
    new.last_job := postrider.job_position() | 3;
    update postrider.event_delay d
       set ended_at = clock_timestamp(), ended_as = 'delivered', given = starting,
           first_job = case when not how.elsewhere then new.first_job end, last_job = case when not how.elsewhere then new.last_job end
     where d.seq = any (due.seqs[1:upto]);
    new.backlog := 0;
    new.start := null;
    new.part_after := null;
    new.part_upto := null;
    answer.no := postrider.note_cut(last, new);
    answer.jobs := new.jobs;
    answer.aside := new.aside;
    answer.more := true;
    answer.why := 'done';
    if new.jobs > 0 and not how.elsewhere then
        perform postrider.wake('postrider_job');
    end if;
    return answer;
end $$;


--
-- Name: release_deleted(integer); Type: FUNCTION; Schema: postrider; Owner: -
--

CREATE FUNCTION postrider.release_deleted(most integer) RETURNS void
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET jit TO 'off'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    AS $$
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


--
-- Name: replace_waiting(bigint, json, timestamp with time zone); Type: FUNCTION; Schema: postrider; Owner: -
--

CREATE FUNCTION postrider.replace_waiting(id bigint, args json, run_at timestamp with time zone) RETURNS boolean
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
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


--
-- Name: replays(bigint); Type: FUNCTION; Schema: postrider; Owner: -
--

CREATE FUNCTION postrider.replays(endpoint bigint) RETURNS SETOF postrider.delivery_replay
    LANGUAGE sql STABLE SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$ select * from postrider.delivery_replay r where r.endpoint = replays.endpoint order by r.id desc limit 100 $$;


--
-- Name: requeue(uuid, text); Type: FUNCTION; Schema: postrider; Owner: -
--

CREATE FUNCTION postrider.requeue(event uuid DEFAULT NULL::uuid, subscription text DEFAULT NULL::text) RETURNS bigint
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
declare
    n bigint;
begin
    perform postrider.check_subscribed(requeue.subscription);
    update postrider.poison p set tries = 0, retry_at = clock_timestamp()
     where p.ended_at is null
       and (event is null or p.event_seq = postrider.event_seq(event))
       and (requeue.subscription is null
            or p.subscription = (select s.id from postrider.subscription s where s.name = requeue.subscription));
    get diagnostics n = row_count;
    if n > 0 then
        perform postrider.wake('postrider_event');
    end if;
    return n;
end $$;


--
-- Name: rescue(uuid, bigint); Type: FUNCTION; Schema: postrider; Owner: -
--

CREATE FUNCTION postrider.rescue(dead uuid, seen_beat bigint) RETURNS integer
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET jit TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    AS $$
declare
    l record;
    n_open bigint;
    moved int := 0;
    started timestamptz := clock_timestamp();
begin
    if seen_beat = -1 then
        if exists (select from postrider.worker w where w.id = dead) then
            return 0;
        end if;
    else
        -- a held row is being beaten on: its worker lives (and two that take each other for dead may not wait for each other)
        delete from postrider.worker w where w.ctid = any (array(
            select v.ctid from postrider.worker v where v.id = dead and v.beat = seen_beat for update skip locked));
        if not found then
            return 0;
        end if;
    end if;
    select coalesce(sum(cardinality(x.open)), 0) into n_open from postrider.lease x where x.worker = dead;
    for l in select x.id from postrider.lease x where x.worker = dead order by x.id for update skip locked loop
        moved := moved + postrider.put_back_each(l.id, true, n_open = 1);
        -- a beat may not take so long that its own worker is taken for dead; what is left has no worker, and is next time's
        exit when clock_timestamp() > started + interval '300 ms';
    end loop;
    return moved;
end $$;


--
-- Name: resolve(text, uuid, bigint, timestamp with time zone); Type: FUNCTION; Schema: postrider; Owner: -
--

CREATE FUNCTION postrider.resolve(xid text, event_id uuid DEFAULT NULL::uuid, job_id bigint DEFAULT NULL::bigint, told_at timestamp with time zone DEFAULT NULL::timestamp with time zone) RETURNS text
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $_$
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
end $_$;


--
-- Name: rest_of_rebase(postrider.log_epoch, integer, pg_snapshot); Type: FUNCTION; Schema: postrider; Owner: -
--

CREATE FUNCTION postrider.rest_of_rebase(epoch postrider.log_epoch, most integer, now pg_snapshot) RETURNS postrider.slice
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET jit TO 'off'
    AS $$
declare
    s postrider.slice;
    before record;
    ended xid8[] := array(select x from unnest(epoch.late) x where pg_visible_in_snapshot(x, now));
begin
    if cardinality(ended) > 0 then
        -- they were open when the rebase began; transactions of the cluster before may have the same numbers, and are older
        select max(c.last_seq) as highest, max(c.at) as at into before from postrider.cut c where c.epoch < rest_of_rebase.epoch.no;
        insert into postrider.rebased (seq, epoch)
        select v.seq, epoch.no from postrider.event v
         where v.xid = any (ended) and v.seq <= epoch.floor_seq and (v.seq > before.highest or v.recorded_at > before.at)
        on conflict do nothing;
        if found then
            perform postrider.note_known();
        end if;
        update postrider.log_epoch l set late = array(select x from unnest(l.late) x where x <> all (ended)) where l.no = epoch.no;
    end if;
    select array_agg(e.seq), array_agg(e.type), array_agg(e.owner), array_agg(postrider.event_digest(
               sha256(convert_to(e.data::text, 'UTF8')), e.id, e.occurred_at, e.type, e.owner, e.subject, e.cause))
      into s.seqs, s.types, s.owners, s.digests
      from (select v.* from postrider.rebased r join postrider.event v on v.seq = r.seq where r.cut is null order by r.seq limit most + 1) e;
    if s.seqs is null then
        delete from postrider.rebase_known;
        update postrider.log_epoch l set done_at = coalesce(l.done_at, clock_timestamp()) where l.no = epoch.no;
    end if;
    return s;
end $$;


--
-- Name: resume_endpoint(bigint); Type: FUNCTION; Schema: postrider; Owner: -
--

CREATE FUNCTION postrider.resume_endpoint(id bigint) RETURNS boolean
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
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


--
-- Name: resume_outbound(); Type: FUNCTION; Schema: postrider; Owner: -
--

CREATE FUNCTION postrider.resume_outbound() RETURNS boolean
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
begin
    update postrider.instance i set outbound_paused_at = null, reason = null where i.outbound_paused_at is not null;
    if found then
        perform postrider.wake('postrider_job');
        return true;
    end if;
    return false;
end $$;


--
-- Name: retire(); Type: FUNCTION; Schema: postrider; Owner: -
--

CREATE FUNCTION postrider.retire() RETURNS json
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET jit TO 'off'
    SET lock_timeout TO '50ms'
    AS $$
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


--
-- Name: retire_events(); Type: FUNCTION; Schema: postrider; Owner: -
--

CREATE FUNCTION postrider.retire_events() RETURNS json
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET jit TO 'off'
    SET lock_timeout TO '50ms'
    AS $_$
declare
    current bigint := pg_sequence_last_value('postrider.event_epoch'::regclass);
    keep interval := (select r.keep from postrider.retention r where r.what = 'event');
    last postrider.cut;
    log postrider.log_epoch;
    done pg_snapshot;
    e bigint;
    child text;
    uncut boolean;
    pinned_by text;
begin
    select * into last from postrider.cut order by no desc limit 1;
    done := coalesce(last.lo, last.hi);
    select * into log from postrider.log_epoch l order by l.no desc limit 1;
    for e in
        select x.epoch - 1 from postrider.epoch x
         where x.unit = 'event' and x.epoch between 1 and current and to_regclass(format('postrider.event_e%s', x.epoch - 1)) is not null
           -- a transaction may have drawn its number long before it inserts
           and x.started_at < clock_timestamp() - interval '1 hour'
         order by x.epoch
    loop
        child := format('event_e%s', e);
        pinned_by := null;
        if not exists (select from postrider.event_done d where d.epoch = e) then
            begin
                if postrider.watch_writes(child, 0::smallint, e) then
                    return json_build_object('span', child, 'watched', true, 'again', true);
                end if;
            exception when lock_not_available then
                return json_build_object('span', child, 'held', true, 'again', false);
            end;
            perform postrider.forget_written(0::smallint, e);
            -- positions mean something only in the cluster that they were taken in
            if log.system_identifier is distinct from (select c.system_identifier from pg_control_system() c) then
                pinned_by := 'a log that was restored and not rebased';
            elsif (log.done_at is null or cardinality(log.late) > 0) and e <= log.floor_seq >> 46 then
                pinned_by := 'a rebase that is not over';
            elsif exists (select from postrider.backlog b where b.over_at is null and b.after >> 46 <= e) then
                pinned_by := 'events of a huge transaction that are not all jobs yet';
            else
                -- what is below the floor was taken by the rebase, whatever its transaction's number means here
                execute format('select exists (select from postrider.%I v
                    where v.xid >= pg_snapshot_xmin($1) and v.seq > $2 and not pg_visible_in_snapshot(v.xid, $1))', child)
                   into uncut using done, log.floor_seq;
                if uncut then
                    pinned_by := 'events that the relay has not come to';
                else
                    insert into postrider.event_done (epoch, job_epoch)
                    values (e, pg_sequence_last_value('postrider.job_epoch'::regclass));
                end if;
            end if;
        end if;
        continue when pinned_by is null
            and (select x.started_at from postrider.epoch x where x.unit = 'event' and x.epoch = e + 1) > clock_timestamp() - keep;
        if pinned_by is null then
            pinned_by := postrider.event_pinned_by(e);
        end if;
        if pinned_by is null then
            return postrider.drop_events(e, child);
        end if;
        perform postrider.pin(0::smallint, e, pinned_by, null, 1, interval '1 hour');
    end loop;
    return json_build_object('again', false);
end $_$;


--
-- Name: retire_span(smallint, bigint, bigint, text, interval); Type: FUNCTION; Schema: postrider; Owner: -
--

CREATE FUNCTION postrider.retire_span(class smallint, first bigint, until bigint, suffix text, keep interval) RETURNS json
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET jit TO 'off'
    SET lock_timeout TO '50ms'
    AS $_$
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
end $_$;


--
-- Name: retried_elsewhere(json); Type: FUNCTION; Schema: postrider; Owner: -
--

CREATE FUNCTION postrider.retried_elsewhere(tried json) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
declare
    t record;
begin
    for t in select p, x ->> 'error' as error
               from json_array_elements(retried_elsewhere.tried) x
               join postrider.poison p on p.event_seq = (x ->> 'seq')::bigint and p.subscription = (x ->> 'subscription')::bigint
              where p.ended_at is null
    loop
        perform postrider.poison_tried(t.p, true, case when t.error is not null then '' end, t.error, null);
    end loop;
end $$;


--
-- Name: retry(bigint[]); Type: FUNCTION; Schema: postrider; Owner: -
--

CREATE FUNCTION postrider.retry(ids bigint[]) RETURNS TABLE(id bigint, effect text, state text)
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET jit TO 'off'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    AS $$
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


--
-- Name: retry_poison(); Type: FUNCTION; Schema: postrider; Owner: -
--

CREATE FUNCTION postrider.retry_poison() RETURNS integer
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
declare
    p postrider.poison;
    e record;
    first_job bigint;
    made int;
    all_made int := 0;
begin
    for p in select x.* from postrider.poison x
              where x.ended_at is null and x.retry_at <= clock_timestamp()
              order by x.retry_at, x.event_seq, x.subscription limit 50 for update skip locked
    loop
        select v.type, v.owner into e from postrider.event v where v.seq = p.event_seq;
        first_job := postrider.job_position();
        begin
            made := postrider.fan_out(clock_timestamp(), array[p.event_seq], array[e.type], array[e.owner], array[p.subscription]);
            -- of some subscriptions one job stands for several events
            perform postrider.poison_tried(p, made > 0 or exists (select from postrider.route r where r.subscription = p.subscription), null, null, first_job);
            all_made := all_made + made;
        exception when others then
            if postrider.is_of_the_server(sqlstate) then
                -- no try of its own
                update postrider.poison x set retry_at = clock_timestamp() + interval '10 seconds'
                 where x.event_seq = p.event_seq and x.subscription = p.subscription;
            else
                perform postrider.poison_tried(p, false, sqlstate, sqlerrm, null);
            end if;
        end;
    end loop;
    return all_made;
end $$;


--
-- Name: rooms_of(text, text[]); Type: FUNCTION; Schema: postrider; Owner: -
--

CREATE FUNCTION postrider.rooms_of(queue text, keys text[]) RETURNS TABLE(key text, free integer, again timestamp with time zone, per_from timestamp with time zone)
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET jit TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    AS $$
#variable_conflict use_column
declare
    now timestamptz := clock_timestamp();
begin
    return query
    with rule as materialized (
        select k.key, substr(k.key, 7) as of_key, greatest(own.held_until, other.held_until) as held_until,
               case when own.most is null and own.starts is null then other.most else own.most end as most,
               case when own.most is null and own.starts is null then other.starts else own.starts end as starts,
               case when own.most is null and own.starts is null then other.per else own.per end as per
          from unnest(rooms_of.keys) k (key)
          left join lateral (select * from postrider.key_limit x
                              where x.queue = rooms_of.queue and x.key = substr(k.key, 7) offset 0) own on true
          left join lateral (select * from postrider.key_limit x where x.queue = rooms_of.queue and x.key = '' offset 0) other on true
    ), running as materialized (
        select u.key, count(*)::int as n from postrider.lease x cross join unnest(x.ids, x.limit_keys) u (id, key)
         where x.queue = rooms_of.queue and x.limit_keys is not null
           and u.key = any (array(select r.of_key from rule r where r.most is not null)) and u.id = any (x.open)
         group by u.key
    ), timed as (
        select r.*, l.window_at, l.used, case when l.window_at + r.per > now then l.window_at else now end as from_at
          from rule r
          left join lateral (select x.window_at, x.used from postrider.lane x where x.queue = rooms_of.queue and x.key = r.key
                              order by x.gen desc limit 1) l on r.starts is not null
    )
    select t.key,
           case when t.held_until > now then 0
                else least(case when t.most is not null
                                then greatest(0, t.most - coalesce((select n.n from running n where n.key = t.of_key), 0)) end,
                           case when t.starts is not null
                                then greatest(0, t.starts - case when t.from_at = t.window_at then t.used else 0 end) end) end,
           case when t.held_until > now then t.held_until when t.starts is not null then t.from_at + t.per end,
           case when t.held_until > now then null when t.starts is not null then t.from_at end
      from timed t;
end $$;


--
-- Name: rotate_secret(bigint, uuid, text, bytea, text, bigint); Type: FUNCTION; Schema: postrider; Owner: -
--

CREATE FUNCTION postrider.rotate_secret(endpoint bigint, id uuid, kind text, sealed bytea, key_id text, overlap_ms bigint) RETURNS boolean
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
declare
    now timestamptz := clock_timestamp();
    valid int;
begin
    if overlap_ms is null or overlap_ms not between 0 and 604800000 then
        perform postrider.refuse('PR005', 'overlap', format('%s ms is not 0 to 7 days', overlap_ms), 'leave it out for 24 hours');
    elsif kind is null or kind not in ('v1', 'v1a') then
        perform postrider.refuse('PR005', 'kind', format('%L is not a kind of secret', left(kind, 80)), 'use v1 or v1a');
    elsif not postrider.lock_endpoint(endpoint) then
        return false;
    end if;
    update postrider.endpoint_secret s set valid_until = greatest(now + overlap_ms * interval '1 millisecond', s.valid_from)
     where s.endpoint = rotate_secret.endpoint and s.kind = rotate_secret.kind
       and coalesce(s.valid_until, 'infinity') > now + overlap_ms * interval '1 millisecond';
    select count(*) into valid from postrider.endpoint_secret s
     where s.endpoint = rotate_secret.endpoint and s.kind = rotate_secret.kind and s.valid_until > now;
    if valid >= 5 then
        perform postrider.refuse('PR005', 'overlap', 'five older secrets are still valid', 'wait until one of them has ended, or use a shorter overlap');
    end if;
    insert into postrider.endpoint_secret (id, endpoint, kind, sealed, key_id, valid_from)
    values (rotate_secret.id, rotate_secret.endpoint, rotate_secret.kind, rotate_secret.sealed, rotate_secret.key_id, now);
    return true;
end $$;


--
-- Name: row_fault(json, json); Type: FUNCTION; Schema: postrider; Owner: -
--

CREATE FUNCTION postrider.row_fault(data json, key json) RETURNS text
    LANGUAGE plpgsql IMMUTABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
declare
    txt text := data::text;
begin
    if txt is null and key is not null then
        return 'size';
    elsif octet_length(txt) <= 262144 and position('\u' in txt) = 0 and txt !~ '[0-9][eE][-+]?[0-9]{4}|[0-9.]{200}'
       and length(txt) - length(translate(txt, '[{', '')) <= 128
    then
        return null;
    elsif key is null then
        perform postrider.check_json('data', data);
        return null;
    end if;
    begin
        perform postrider.check_json('data', data);
        return null;
    exception
        when sqlstate 'PR002' then return 'size';
        when sqlstate 'PR003' then return 'json';
    end;
end $$;


--
-- Name: row_subject(text, json); Type: FUNCTION; Schema: postrider; Owner: -
--

CREATE FUNCTION postrider.row_subject(subject text, key json) RETURNS text
    LANGUAGE plpgsql IMMUTABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
begin
    if key is null then
        perform postrider.refuse('PR001', 'subject', 'a subject is 1 to 512 bytes of text without control characters',
            'name the thing that the event is about, for example order/42');
    end if;
    return coalesce(nullif(regexp_replace(left(subject, 60), '[\u0001-\u001f\u007f-\u009f]', '_', 'g'), ''), 'row') || '#'
        || left(encode(sha256(convert_to(coalesce(nullif(subject, ''), key::text), 'UTF8')), 'hex'), 32);
end $$;


--
-- Name: schedule; Type: TABLE; Schema: postrider; Owner: -
--

CREATE TABLE postrider.schedule (
    name text NOT NULL COLLATE pg_catalog."C",
    owner text DEFAULT ''::text NOT NULL COLLATE pg_catalog."C",
    cron text,
    every_ms bigint,
    zone text DEFAULT 'UTC'::text NOT NULL,
    kind text NOT NULL COLLATE pg_catalog."C",
    args json DEFAULT '{}'::json NOT NULL,
    queue text,
    priority smallint,
    max_attempts smallint,
    missed text DEFAULT 'once'::text NOT NULL,
    missed_most smallint,
    overlap text DEFAULT 'skip'::text NOT NULL,
    run_at_start boolean DEFAULT false NOT NULL,
    standing boolean DEFAULT false NOT NULL,
    declared_by text NOT NULL,
    generation bigint DEFAULT 0 NOT NULL,
    seen_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    paused_at timestamp with time zone,
    counted_from timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    next_at timestamp with time zone,
    problem text,
    due_at timestamp with time zone,
    ran_at timestamp with time zone,
    started_at timestamp with time zone,
    last_jobs bigint[] DEFAULT '{}'::bigint[] NOT NULL,
    runs bigint DEFAULT 0 NOT NULL,
    missed_runs bigint DEFAULT 0 NOT NULL,
    overlapped_runs bigint DEFAULT 0 NOT NULL,
    CONSTRAINT a_period_is_a_second_to_ten_years CHECK (((every_ms >= 1000) AND (every_ms <= '316224000000'::bigint))),
    CONSTRAINT a_schedule_has_a_cron_expression_or_a_period CHECK (((cron IS NULL) <> (every_ms IS NULL))),
    CONSTRAINT all_says_how_many_at_most CHECK (((missed = 'all'::text) = (missed_most IS NOT NULL))),
    CONSTRAINT missed_is_skip_once_or_all CHECK ((missed = ANY (ARRAY['skip'::text, 'once'::text, 'all'::text]))),
    CONSTRAINT missed_most_is_1_to_100 CHECK (((missed_most >= 1) AND (missed_most <= 100))),
    CONSTRAINT overlap_is_skip_or_queue CHECK ((overlap = ANY (ARRAY['skip'::text, 'queue'::text])))
);


--
-- Name: run_of_schedule(postrider.schedule, timestamp with time zone[]); Type: FUNCTION; Schema: postrider; Owner: -
--

CREATE FUNCTION postrider.run_of_schedule(s postrider.schedule, moments timestamp with time zone[]) RETURNS bigint[]
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
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


--
-- Name: run_schedule(text); Type: FUNCTION; Schema: postrider; Owner: -
--

CREATE FUNCTION postrider.run_schedule(name text) RETURNS bigint
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
declare
    s postrider.schedule;
begin
    select * into s from postrider.schedule e where e.name = run_schedule.name for no key update;
    if not found then
        perform postrider.refuse_schedule(name);
    end if;
    return (postrider.run_of_schedule(s, array[null::timestamptz]))[1];
end $$;


--
-- Name: schedule_due_in_ms(text[]); Type: FUNCTION; Schema: postrider; Owner: -
--

CREATE FUNCTION postrider.schedule_due_in_ms(names text[]) RETURNS bigint
    LANGUAGE plpgsql STABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
begin
    return (select case when s.next_at is null then 0
                        else greatest(0, ceil(extract(epoch from s.next_at - clock_timestamp()) * 1000))::bigint end
              from postrider.schedule s
             where s.paused_at is null and s.problem is null and (s.standing or s.name = any (schedule_due_in_ms.names))
             order by s.next_at nulls first limit 1);
end $$;


--
-- Name: schema_error(jsonb, jsonb, text); Type: FUNCTION; Schema: postrider; Owner: -
--

CREATE FUNCTION postrider.schema_error(schema jsonb, value jsonb, at text DEFAULT ''::text) RETURNS text
    LANGUAGE plpgsql IMMUTABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
declare
    kind text := jsonb_typeof(value);
    problem text;
    fits int := 0;
begin
    if schema = 'true' or schema = '{}' then
        return null;
    elsif schema = 'false' then
        return at || ' is not allowed';
    end if;
    if schema ? 'type' and not (schema -> 'type') @> to_jsonb(kind) then
        if kind <> 'number' or not (schema -> 'type') @> '"integer"' then
            return at || ' is of type ' || kind || ', not ' || postrider.type_names(schema -> 'type');
        elsif value::numeric % 1 <> 0 then
            return at || ' is not an integer';
        end if;
    end if;
    if schema ? 'const' and schema -> 'const' <> value then
        return at || ' is not the one value that it can be';
    end if;
    if schema ? 'enum' and not postrider.is_among(value, schema -> 'enum') then
        return at || ' is none of the values that it can be';
    end if;
    problem := case kind when 'object' then postrider.object_error(schema, value, at)
                         when 'array' then postrider.array_error(schema, value, at)
                         when 'string' then postrider.string_error(schema, value #>> '{}', at)
                         when 'number' then postrider.number_error(schema, value::numeric, at) end;
    if problem is not null then
        return problem;
    end if;
    if schema ? 'allOf' then
        for i in 0 .. jsonb_array_length(schema -> 'allOf') - 1 loop
            problem := postrider.schema_error(schema -> 'allOf' -> i, value, at);
            if problem is not null then
                return problem;
            end if;
        end loop;
    end if;
    if schema ? 'anyOf' then
        for i in 0 .. jsonb_array_length(schema -> 'anyOf') - 1 loop
            exit when fits > 0;
            fits := fits + (postrider.schema_error(schema -> 'anyOf' -> i, value, at) is null)::int;
        end loop;
        if fits = 0 then
            return at || ' fits none of anyOf';
        end if;
    end if;
    if schema ? 'oneOf' then
        fits := 0;
        for i in 0 .. jsonb_array_length(schema -> 'oneOf') - 1 loop
            exit when fits > 1;
            fits := fits + (postrider.schema_error(schema -> 'oneOf' -> i, value, at) is null)::int;
        end loop;
        if fits <> 1 then
            return at || case fits when 0 then ' fits none of oneOf' else ' fits more than one of oneOf' end;
        end if;
    end if;
    if schema ? 'not' then
        if postrider.schema_error(schema -> 'not', value, at) is null then
            return at || ' fits what it must not';
        end if;
    end if;
    return null;
end $$;


--
-- Name: schema_narrowed(jsonb, jsonb, text); Type: FUNCTION; Schema: postrider; Owner: -
--

CREATE FUNCTION postrider.schema_narrowed(old jsonb, new jsonb, at text DEFAULT ''::text) RETURNS text
    LANGUAGE plpgsql IMMUTABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
declare
    problem text;
    k text;
begin
    if old = new or new = 'true' or old = 'false' then
        return null;
    elsif new = 'false' then
        return at || ' is not allowed any more';
    end if;
    old := case old when 'true' then '{}' else old end;
    foreach k in array array['allOf', 'anyOf', 'oneOf', 'not', 'pattern', 'multipleOf'] loop
        if new -> k is not null and old -> k is distinct from new -> k then
            return at || ' has another ' || k;
        end if;
    end loop;
    if new ? 'type' and (not old ? 'type' or exists (
        select from jsonb_array_elements_text(old -> 'type') t
         where not (new -> 'type') ? t and not (t = 'integer' and (new -> 'type') ? 'number')))
    then
        return at || ' may not have every type that it had';
    elsif new ? 'const' and old -> 'const' is distinct from new -> 'const'
       or new ? 'enum' and not (old ? 'enum' or old ? 'const')
       or new ? 'enum' and exists (
            select from jsonb_array_elements(coalesce(old -> 'enum', jsonb_build_array(old -> 'const'))) e
             where not postrider.is_among(e, new -> 'enum'))
    then
        return at || ' may not have every value that it had';
    elsif new -> 'uniqueItems' = 'true' and old -> 'uniqueItems' is distinct from 'true' then
        return at || ' may not have an item twice any more';
    end if;
    foreach k in array array['minimum', 'exclusiveMinimum', 'minLength', 'minItems', 'minProperties'] loop
        if new ? k and coalesce((new -> k)::numeric > (old -> k)::numeric, (new -> k)::numeric > 0 or k like '%imum') then
            return at || ' has a larger ' || k;
        end if;
    end loop;
    foreach k in array array['maximum', 'exclusiveMaximum', 'maxLength', 'maxItems', 'maxProperties'] loop
        if new ? k and coalesce((new -> k)::numeric < (old -> k)::numeric, true) then
            return at || ' has a smaller ' || k;
        end if;
    end loop;
    problem := postrider.schema_narrowed(coalesce(old -> 'items', 'true'), coalesce(new -> 'items', 'true'), at || '/items');
    return coalesce(problem, postrider.properties_narrowed(old, new, at));
end $$;


--
-- Name: schema_pattern(text); Type: FUNCTION; Schema: postrider; Owner: -
--

CREATE FUNCTION postrider.schema_pattern(pattern text) RETURNS text
    LANGUAGE plpgsql IMMUTABLE STRICT
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $_$
declare
    made text := '';
    bounds numeric := 1;
    repeatable boolean := false;                     -- whether a quantifier may stand here
    t text;
begin
    if octet_length(pattern) > 500 then
        return null;
    end if;
    for t in
        select m[1] from regexp_matches(pattern,
            '(\\[][(){}.*+?^$|\\/-]|\\[dw]|\[\^?(?:[^][\\]|\\[][\\^./*+?(){}|$-]|\\[dw])+\]|\(\?:|\{[0-9]{1,3}(?:,[0-9]{0,3})?\}|.)', 'g') m
    loop
        if t in ('*', '+', '?') or t ~ '^\{.+\}$' then
            if not repeatable then
                return null;
            end if;
            if t like '{%' then
                -- Postgres counts to 255; and each bound multiplies what stands in it
                if exists (select from regexp_matches(t, '[0-9]+', 'g') n where n[1]::int > 255) then
                    return null;
                end if;
                bounds := bounds * greatest(1, (select max(n[1]::int) from regexp_matches(t, '[0-9]+', 'g') n));
                if bounds > 10000 then
                    return null;
                end if;
            end if;
            made := made || t;
            repeatable := false;
        elsif t in ('(', '(?:', '|', '^', '$') then
            made := made || case t when '(' then '(?:' else t end;
            repeatable := false;
        elsif t = '.' then
            made := made || '[^\n\r\u2028\u2029]';
            repeatable := true;
        elsif t like '[_%' then
            made := made || replace(replace(t, '\d', '0-9'), '\w', 'A-Za-z0-9_');
            repeatable := true;
        elsif t in ('\d', '\w') then
            made := made || case t when '\d' then '[0-9]' else '[A-Za-z0-9_]' end;
            repeatable := true;
        elsif length(t) = 1 and t ~ '[][{}\\]' then
            return null;
        else
            made := made || t;
            repeatable := true;
        end if;
    end loop;
    -- what only the whole tells: parentheses, ranges
    begin
        perform '' collate "C" ~ made;
    exception when others then
        return null;
    end;
    return made;
end $_$;


--
-- Name: scope_name(); Type: FUNCTION; Schema: postrider; Owner: -
--

CREATE FUNCTION postrider.scope_name() RETURNS text
    LANGUAGE sql STABLE SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$ select format('%I.%I', f.schema, f.name) from postrider.scope_function f $$;


--
-- Name: send_test(bigint); Type: FUNCTION; Schema: postrider; Owner: -
--

CREATE FUNCTION postrider.send_test(endpoint bigint) RETURNS bigint
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
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


--
-- Name: set_aside(bigint, bigint, bigint, text, text); Type: FUNCTION; Schema: postrider; Owner: -
--

CREATE FUNCTION postrider.set_aside(event_seq bigint, subscription bigint, cut bigint, code text, error text) RETURNS void
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
begin
    insert into postrider.poison as p (event_seq, subscription, cut, code, error, retry_at)
    values (set_aside.event_seq, set_aside.subscription, set_aside.cut, set_aside.code, left(set_aside.error, 1000), postrider.poison_retry_at(1))
    on conflict on constraint poison_pkey do update
       set cut = excluded.cut, code = excluded.code, error = excluded.error, since = excluded.since, tries = 1, tried_at = excluded.tried_at,
           retry_at = excluded.retry_at, ended_at = null, ended_as = null, reason = null, first_job = null, last_job = null;
end $$;


--
-- Name: set_limit(text, text, integer, integer, interval); Type: FUNCTION; Schema: postrider; Owner: -
--

CREATE FUNCTION postrider.set_limit(queue text, key text, most integer DEFAULT NULL::integer, starts integer DEFAULT NULL::integer, per interval DEFAULT NULL::interval) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
#variable_conflict use_variable
begin
    perform postrider.check_name('queue', queue, true);
    perform postrider.check_keys(null, null, nullif(key, ''));
    if most not between 0 and 1000000 then
        perform postrider.refuse('PR005', 'most', format('%s is out of range', most), 'use 0 to 1000000');
    elsif (starts is null) <> (per is null) then
        perform postrider.refuse('PR005', 'starts', 'a rate is a number of starts and a period', 'give starts and per together');
    elsif starts not between 1 and 1000000 or per not between interval '10 milliseconds' and interval '366 days' then
        perform postrider.refuse('PR005', 'starts', 'it is not a rate', 'use 1 to 1000000 starts in 10 ms to a year');
    end if;
    insert into postrider.key_limit as l (queue, key, most, starts, per) values (queue, key, most, starts, per)
        on conflict on constraint key_limit_pkey do update
       set most = excluded.most, starts = excluded.starts, per = excluded.per, changed_at = clock_timestamp();
    perform postrider.call_limits(queue, key);
end $$;


--
-- Name: set_scope(text); Type: FUNCTION; Schema: postrider; Owner: -
--

CREATE FUNCTION postrider.set_scope(function text) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
declare
    parts text[];
    p pg_proc;
begin
    if set_scope.function is null then
        delete from postrider.scope_function;
        return;
    end if;
    begin
        parts := parse_ident(set_scope.function);
    exception when invalid_parameter_value then
        null;
    end;
    if cardinality(parts) <> 2 is not false then
        perform postrider.refuse('PR005', 'scope', format('%L is not the name of a function in a schema', left(set_scope.function, 200)),
            'write it with its schema and without arguments, for example app.in_scope');
    end if;
    select x.* into p from pg_proc x join pg_namespace n on n.oid = x.pronamespace
     where n.nspname = parts[1] and x.proname = parts[2] and oidvectortypes(x.proargtypes) = 'json, text, text, text, json';
    if not found then
        perform postrider.refuse('PR005', 'scope', format('there is no function %I.%I(json, text, text, text, json)', parts[1], parts[2]),
            'create it with (labels json, owner text, type text, subject text, data json)');
    elsif p.prokind <> 'f' or p.proretset or p.prorettype <> 'boolean'::regtype then
        perform postrider.refuse('PR005', 'scope', format('%I.%I does not return a boolean', parts[1], parts[2]),
            'have it return true where the endpoint may have the event, and false where it may not');
    elsif p.provolatile = 'v' then
        perform postrider.refuse('PR005', 'scope', format('%I.%I is volatile', parts[1], parts[2]),
            'declare it stable, or immutable: it may read, and it writes nothing');
    end if;
    insert into postrider.scope_function as f (schema, name) values (parts[1], parts[2])
    on conflict (one) do update
       set schema = excluded.schema, name = excluded.name, declared_at = excluded.declared_at, failures = 0, failed_at = null, error = null
     where (f.schema, f.name) is distinct from (excluded.schema, excluded.name);
end $$;


--
-- Name: settle_lanes(text, text[], bigint[], boolean); Type: FUNCTION; Schema: postrider; Owner: -
--

CREATE FUNCTION postrider.settle_lanes(queue text, keys text[], lows bigint[] DEFAULT NULL::bigint[], waits boolean DEFAULT true) RETURNS boolean
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET jit TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    AS $$
#variable_conflict use_column
declare
    got text[] := postrider.lock_lanes(settle_lanes.queue, settle_lanes.keys, settle_lanes.waits);
    k text;
    l postrider.lane;
    room record;
    head postrider.ready;
    moved boolean := false;
    called boolean;
begin
    insert into postrider.lane_call (queue, key, low)
    select settle_lanes.queue, x.key, coalesce(x.low, 9223372036854775807) from unnest(settle_lanes.keys, settle_lanes.lows) x (key, low)
     where x.key <> all (got);
    called := found;
    if lows is not null then
        update postrider.lane l
           set low_parked = least(l.low_parked, c.low), low_ready = least(l.low_ready, c.low), cleared = least(l.cleared, c.low)
          from (select x.low, (select y.ctid from postrider.lane y where y.queue = settle_lanes.queue and y.key = x.key
                                order by y.gen desc limit 1) as place
                  from unnest(settle_lanes.keys, settle_lanes.lows) x (key, low) where x.key = any (got) offset 0) c
         where l.ctid = c.place and c.low < greatest(l.low_parked, l.low_ready, l.cleared);
    end if;
    with idle as (
        -- most keys have one job at a time: when it has ended, and stops nothing, there is nothing to look for
        delete from postrider.lane x
         where x.ctid = any (array(
            -- a look for each: joined, they would be planned as walks over the queue
            select (select y.ctid from postrider.lane y where y.queue = settle_lanes.queue and y.key = g.key order by y.gen desc limit 1)
              from unnest(got) g (key)))
           and x.stopped_at is null and x.line is null and x.window_at is null
           and (x.key like 'limit:%'
                or (select d.state from postrider.done d where d.class = (x.holder & 3)::smallint and d.id = x.holder) in (2, 4))
           and (select p.pos from postrider.parked p where p.queue = x.queue and p.key = x.key and p.pos >= x.low_parked
                 order by p.pos limit 1) is null
        returning x.key
    )
    select array(select g from unnest(got) g where g <> all (array(select i.key from idle i))) into got;
    for room in select * from postrider.rooms_of(settle_lanes.queue, array(select g from unnest(got) g where g like 'limit:%')) loop
        moved := postrider.let_in(settle_lanes.queue, room.key, room.free, room.again, room.per_from) or moved;
    end loop;
    foreach k in array got loop
        continue when k like 'limit:%';
        select * into l from postrider.lane x where x.queue = settle_lanes.queue and x.key = k order by x.gen desc limit 1;
        if l.holder is not null then
            perform postrider.judge_holder(l);
        end if;
        if (select r.id from postrider.ready r where r.queue = settle_lanes.queue and r.order_key = substr(k, 7) and r.flags & 34 = 32
               and r.pos = r.id and r.id between l.line[1] and l.line[cardinality(l.line)] order by r.id limit 1) is not null
        then
            -- some of the line were given back: they wait with the others of their key
            update postrider.lane x set cleared = least(x.cleared, l.line[1])
             where x.ctid = (select y.ctid from postrider.lane y where y.queue = settle_lanes.queue and y.key = k order by y.gen desc limit 1);
            perform postrider.clear_ready(settle_lanes.queue, k, 1000);
        end if;
        head := postrider.next_turn(settle_lanes.queue, k);
        if head.id is not null then
            -- a new position: at its old one, claims would have to walk what was moved out of the way of others
            head.pos := (pg_sequence_last_value('postrider.job_epoch'::regclass) << 46) | (nextval('postrider.job_number') << 2);
            insert into postrider.ready select head.*;
            moved := true;
        else
            delete from postrider.lane x
             where x.ctid = (select y.ctid from postrider.lane y where y.queue = settle_lanes.queue and y.key = k order by y.gen desc limit 1)
               and x.holder is null and x.stopped_at is null
               and not exists (select from postrider.parked p
                                where p.queue = settle_lanes.queue and p.key = k and p.pos >= x.low_parked);
        end if;
    end loop;
    if moved then
        perform postrider.wake('postrider_job');
    end if;
    return called;
end $$;


--
-- Name: settle_lanes_called(); Type: FUNCTION; Schema: postrider; Owner: -
--

CREATE FUNCTION postrider.settle_lanes_called() RETURNS boolean
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET jit TO 'off'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    AS $$
declare
    x record;
    called boolean := false;
begin
    for x in
        with taken as (
            delete from postrider.lane_call c where c.ctid = any (array(
                select o.ctid from postrider.lane_call o limit 1000 for update skip locked)) returning c.queue, c.key, c.low
        ), called as (
            select u.queue, u.key, min(u.low) as low from (
                select * from taken
                union all
                select d.queue, d.key, 9223372036854775807 from (
                    select l.queue, l.key from postrider.lane l where l.due_at <= clock_timestamp() order by l.due_at limit 1000) d) u
             group by u.queue, u.key
        )
        select t.queue, array_agg(t.key order by t.key) as keys, array_agg(t.low order by t.key) as lows from called t
         group by t.queue order by t.queue
    loop
        called := postrider.settle_lanes(x.queue, x.keys, x.lows) or called;
    end loop;
    return called;
end $$;


--
-- Name: settle_left_over(); Type: FUNCTION; Schema: postrider; Owner: -
--

CREATE FUNCTION postrider.settle_left_over() RETURNS void
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET jit TO 'off'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    AS $$
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


--
-- Name: settle_turns(bigint[]); Type: FUNCTION; Schema: postrider; Owner: -
--

CREATE FUNCTION postrider.settle_turns(ids bigint[]) RETURNS void
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET jit TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    AS $$
declare
    x record;
begin
    for x in
        select j.queue, array_agg(distinct k.key order by k.key) as keys
          from unnest(settle_turns.ids) i (id)
          join postrider.job j on j.class = (i.id & 3)::smallint and j.id = i.id
         cross join lateral (values ('order:' || j.order_key), ('limit:' || j.limit_key)) k (key)
         where k.key is not null group by j.queue order by j.queue
    loop
        -- whoever has one is a claim, most of the time, and looks at what was called once it has ended
        if postrider.settle_lanes(x.queue, x.keys, null, false) then
            perform postrider.wake_for_lanes();
        end if;
    end loop;
end $$;


--
-- Name: settle_unique(bigint[]); Type: FUNCTION; Schema: postrider; Owner: -
--

CREATE FUNCTION postrider.settle_unique(ids bigint[]) RETURNS void
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET jit TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    AS $$
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


--
-- Name: share_unique(bytea, bigint); Type: FUNCTION; Schema: postrider; Owner: -
--

CREATE FUNCTION postrider.share_unique(hash bytea, job bigint) RETURNS boolean
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
begin
    perform 1 from postrider.uniq x where x.hash = share_unique.hash and x.job = share_unique.job for share;
    if not found then
        raise no_data_found;
    end if;
    return true;
exception when no_data_found then
    return false;
end $$;


--
-- Name: start_rebase(postrider.cut, postrider.log_epoch); Type: FUNCTION; Schema: postrider; Owner: -
--

CREATE FUNCTION postrider.start_rebase(last postrider.cut, epoch postrider.log_epoch) RETURNS postrider.relayed
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET jit TO 'off'
    AS $$
declare
    here bigint := (select c.system_identifier from pg_control_system() c);
    before bytea;
    done pg_snapshot := coalesce(last.lo, last.hi);
    highest bigint;
    mine xid8;
    new postrider.cut;
    behind boolean;
begin
    select coalesce(c.joined, c.hash) into before from postrider.cut c where c.no = last.from_no - 1;
    if last.hash is distinct from postrider.cut_hash(coalesce(before, '\x'), last)
       or pg_snapshot_xmax(last.hi) < pg_snapshot_xmax(done)
    then
        perform postrider.refuse('PR012', 'cut', format('row %s contradicts itself, so nobody can tell what was relayed', last.no),
            'restore the table postrider.cut from where it is whole; postrider.verify says which rows are');
    end if;
    behind := postrider.advance_drawn();
    -- the floor before the snapshot: whoever drew a number up to it is over in the snapshot, or open in it
    new.last_seq := (pg_sequence_last_value('postrider.event_epoch'::regclass) << 46)
                  | coalesce(pg_sequence_last_value('postrider.event_number'::regclass), 0);
    mine := pg_current_xact_id();
    select pg_current_snapshot() into new.hi;
    select greatest(max(c.last_seq), max(c.part_upto) filter (where c.backlog is not null), epoch.floor_seq) into highest from postrider.cut c;
    insert into postrider.rebased (seq, epoch)
    select v.seq, epoch.no + 1
      from postrider.event v
     where v.seq > highest and v.seq <= new.last_seq
    union
    select v.seq, epoch.no + 1
      from postrider.event v
     where v.xid >= pg_snapshot_xmin(done) and v.seq > epoch.floor_seq and v.seq <= highest
       and not pg_visible_in_snapshot(v.xid, done)
       and not (last.more and v.seq <= last.last_seq and pg_visible_in_snapshot(v.xid, last.hi))
    union
    -- what is left of a backlog is behind the position
    select v.seq, epoch.no + 1 from postrider.backlog b join postrider.event v on v.xid = any (b.xids) and v.seq > b.after
     where b.over_at is null and b.epoch = epoch.no
    union
    -- of a rebase that was not over
    select v.seq, epoch.no + 1 from postrider.event v where v.seq <= epoch.floor_seq and v.xid = any (epoch.late)
    union
    -- a copy without the state of its sequences gave out numbers again: what came after the last row shows by its time
    select v.seq, epoch.no + 1 from postrider.event v where behind and v.seq <= highest and v.recorded_at > last.at
    on conflict do nothing;
    update postrider.rebased r set epoch = start_rebase.epoch.no + 1 where r.cut is null;
    update postrider.backlog b set over_at = clock_timestamp() where b.over_at is null;
    perform postrider.note_known();

    insert into postrider.log_epoch (no, system_identifier, floor_seq, note, late)
    values (epoch.no + 1, here, new.last_seq, case when here <> epoch.system_identifier then 'another cluster' else 'this cluster went back' end,
            -- a snapshot ends behind the last transaction that is over: it does not list those open ones that began after that one
            array(select x from pg_snapshot_xip(new.hi) x
                  union select o::text::xid8 from generate_series(pg_snapshot_xmax(new.hi)::text::bigint, mine::text::bigint - 1) o));
    new.epoch := epoch.no + 1;
    new.more := false;
    new.jobs := 0;
    new.aside := 0;
    new.elsewhere := last.elsewhere;
    return row (postrider.note_cut(last, new), 0, 0, true, false, 'rebase', null, false, 0, null)::postrider.relayed;
end $$;


--
-- Name: start_replay(bigint); Type: FUNCTION; Schema: postrider; Owner: -
--

CREATE FUNCTION postrider.start_replay(id bigint) RETURNS boolean
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
begin
    update postrider.delivery_replay r set state = 'running' where r.id = start_replay.id and r.state in ('planned', 'paused');
    if not found then
        return false;
    end if;
    perform postrider.drive_replay(id);
    return true;
end $$;


--
-- Name: start_schedules(text[]); Type: FUNCTION; Schema: postrider; Owner: -
--

CREATE FUNCTION postrider.start_schedules(names text[]) RETURNS integer
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
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


--
-- Name: later; Type: TABLE; Schema: postrider; Owner: -
--

CREATE TABLE postrider.later (
    run_at timestamp with time zone NOT NULL,
    id bigint NOT NULL,
    queue text NOT NULL,
    priority smallint NOT NULL,
    share smallint NOT NULL,
    attempt smallint DEFAULT 0 NOT NULL,
    losses smallint DEFAULT 0 NOT NULL,
    flags smallint DEFAULT 0 NOT NULL,
    why smallint DEFAULT 0 NOT NULL,
    lease bigint,
    order_key text
)
WITH (autovacuum_vacuum_scale_factor='0.02', autovacuum_vacuum_threshold='2000', autovacuum_vacuum_cost_delay='1');


--
-- Name: state_of(postrider.job); Type: FUNCTION; Schema: postrider; Owner: -
--

CREATE FUNCTION postrider.state_of(j postrider.job) RETURNS text
    LANGUAGE sql STABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET jit TO 'off'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    RETURN COALESCE((SELECT postrider.end_name(d.state) AS end_name FROM postrider.done d WHERE ((d.class = (state_of.j).class) AND (d.id = (state_of.j).id))), (SELECT 'running'::text FROM postrider.lease l WHERE ((state_of.j).id = ANY (l.open)) LIMIT 1), (SELECT CASE WHEN (r.attempt > 0) THEN 'retryable'::text ELSE 'pending'::text END AS "case" FROM postrider.ready r WHERE ((r.queue = (state_of.j).queue) AND (r.priority = (state_of.j).priority) AND (r.share = COALESCE(((state_of.j).share)::integer, 0)) AND (r.pos = (state_of.j).id) AND (r.id = (state_of.j).id))), (SELECT CASE WHEN (r.attempt > 0) THEN 'retryable'::text ELSE 'pending'::text END AS "case" FROM postrider.ready r WHERE ((r.id = (state_of.j).id) AND (r.pos <> r.id))), (SELECT CASE WHEN (y.attempt > 0) THEN 'retryable'::text ELSE 'pending'::text END AS "case" FROM postrider.later y WHERE ((y.run_at = (state_of.j).run_at) AND (y.id = (state_of.j).id))), (SELECT CASE WHEN (y.attempt > 0) THEN 'retryable'::text ELSE 'pending'::text END AS "case" FROM postrider.later y WHERE ((y.id = (state_of.j).id) AND (y.why <> 0))), (SELECT CASE WHEN (p.attempt > 0) THEN 'retryable'::text ELSE 'pending'::text END AS "case" FROM postrider.parked p WHERE (p.id = (state_of.j).id)));


--
-- Name: step_replay(bigint); Type: FUNCTION; Schema: postrider; Owner: -
--

CREATE FUNCTION postrider.step_replay(id bigint) RETURNS text
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET jit TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    AS $$
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


--
-- Name: string_error(jsonb, text, text); Type: FUNCTION; Schema: postrider; Owner: -
--

CREATE FUNCTION postrider.string_error(schema jsonb, value text, at text) RETURNS text
    LANGUAGE plpgsql IMMUTABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
begin
    if length(value) < coalesce((schema -> 'minLength')::int, 0) then
        return at || ' is shorter than ' || (schema ->> 'minLength') || ' characters';
    elsif length(value) > (schema -> 'maxLength')::int then
        return at || ' is longer than ' || (schema ->> 'maxLength') || ' characters';
    elsif schema ? 'pattern' and value collate "C" !~ (schema ->> 'pattern') then
        return at || ' does not match its pattern';
    end if;
    return null;
end $$;


--
-- Name: subject_regex(text); Type: FUNCTION; Schema: postrider; Owner: -
--

CREATE FUNCTION postrider.subject_regex(form text) RETURNS text
    LANGUAGE plpgsql IMMUTABLE STRICT
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $_$
declare
    names text[] := array(select m[1] from regexp_matches(form, '\{([^{}]*)\}', 'g') m);
begin
    if form = '' or octet_length(form) > 200 or form ~ '[\u0001-\u001f\u007f-\u009f]'
       or regexp_replace(form, '\{[a-z][a-z0-9_]*\}', '', 'g') ~ '[{}]' or form ~ '\}\{'
       or cardinality(names) <> (select count(distinct n) from unnest(names) n)
    then
        perform postrider.refuse('PR005', 'subject', format('%L is not the form of a subject', left(form, 80)),
            'write the text as it is and {name} for what varies, each name once and with text between two of them: order/{id}');
    end if;
    return '^' || regexp_replace(regexp_replace(form, '[][(){}.*+?^$|\\-]', '\\\&', 'g'), '\\\{[a-z][a-z0-9_]*\\\}', '[^/]+', 'g') || '$';
end $_$;


--
-- Name: subscriptions(text, integer); Type: FUNCTION; Schema: postrider; Owner: -
--

CREATE FUNCTION postrider.subscriptions(after text DEFAULT ''::text, most integer DEFAULT 1000) RETURNS TABLE(id bigint, name text, owner text, types text[], kind text, delay_ms bigint, predicate text, order_by text, order_policy text, coalescing boolean, outward boolean, declared_by text, generation bigint, created_at timestamp with time zone, seen_at timestamp with time zone, state text, removed_at timestamp with time zone, started_events bigint)
    LANGUAGE sql STABLE SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
    select s.id, s.name, s.owner, s.types, s.kind, s.delay_ms, s.predicate::text, s.order_by, s.order_policy, s.coalescing, s.outward,
           s.declared_by, s.generation, s.created_at, s.seen_at,
           case when s.removed_at is not null then 'removed' when b.subscription is not null then 'starting'
                when s.declared_by not in ('', 'webhook') and s.seen_at < clock_timestamp() - interval '7 days'
                     and not exists (select from postrider.worker w where w.app = s.declared_by) then 'orphaned'
                else 'active' end,
           s.removed_at, b.events
      from postrider.subscription s
      left join postrider.subscription_start b on b.subscription = s.id and b.over_at is null
     where s.name > subscriptions.after
     order by s.name limit subscriptions.most
$$;


--
-- Name: superseded(bigint[]); Type: FUNCTION; Schema: postrider; Owner: -
--

CREATE FUNCTION postrider.superseded(ids bigint[]) RETURNS bigint[]
    LANGUAGE sql STABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET jit TO 'off'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    RETURN ARRAY(SELECT j.id FROM ((unnest(superseded.ids) i(id) JOIN postrider.job j ON (((j.class = ((i.id & (3)::bigint))::smallint) AND (j.id = i.id)))) JOIN postrider.uniq u ON (((u.hash = j.unique_hash) AND (u.mode = 1) AND (u.job <> j.id)))));


--
-- Name: tags_of(json); Type: FUNCTION; Schema: postrider; Owner: -
--

CREATE FUNCTION postrider.tags_of(item json) RETURNS text[]
    LANGUAGE plpgsql IMMUTABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
declare
    tags text[];
begin
    if json_typeof(item -> 'tags') is null or json_typeof(item -> 'tags') = 'null' then
        return null;
    elsif json_typeof(item -> 'tags') <> 'array'
          or exists (select from json_array_elements(item -> 'tags') t where json_typeof(t) <> 'string')
    then
        perform postrider.refuse('PR005', 'tags', 'it is not an array of strings', 'send something like ["eu", "import"]');
    end if;
    tags := array(select json_array_elements_text(item -> 'tags'));
    perform postrider.check_tags(tags);
    return tags;
end $$;


--
-- Name: take_for_ever(postrider.job); Type: FUNCTION; Schema: postrider; Owner: -
--

CREATE FUNCTION postrider.take_for_ever(j postrider.job) RETURNS void
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET jit TO 'off'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    AS $$
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


--
-- Name: take_free(text, postrider.ready[], text[]); Type: FUNCTION; Schema: postrider; Owner: -
--

CREATE FUNCTION postrider.take_free(queue text, INOUT asking postrider.ready[], got text[], OUT free postrider.ready[]) RETURNS record
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET jit TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    AS $$
#variable_conflict use_column
declare
    given bigint[];
begin
    with alone as materialized (
        select min(a.id) as id, a.order_key, 'order:' || a.order_key as key from unnest(take_free.asking) a
         where 'order:' || a.order_key = any (take_free.got) group by a.order_key having count(*) = 1
    ), turned as (
        update postrider.lane l
           set holder = a.id, since = clock_timestamp(), low_ready = greatest(l.low_ready, a.id), changes = (l.changes + 1) & 63,
               gen = l.gen + (l.changes = 63)::int
          -- each a look of its own: joined, they would be planned as walks over the queue
          from (select x.*, (select y.ctid from postrider.lane y where y.queue = take_free.queue and y.key = x.key
                              order by y.gen desc limit 1) as place
                  from alone x offset 0) a
         where l.ctid = a.place and l.holder is null and l.stopped_at is null
           and (select p.pos from postrider.parked p where p.queue = take_free.queue and p.key = l.key and p.pos >= l.low_parked
                 order by p.pos limit 1) < a.id is not true
           and (select r.id from postrider.ready r where r.queue = take_free.queue and r.order_key = a.order_key and r.flags & 34 = 32
                   and r.pos = r.id and r.id >= l.low_ready order by r.id limit 1) < a.id is not true
           and (select r.id from postrider.ready r where r.queue = take_free.queue and r.order_key = a.order_key and r.flags & 34 = 32
                   and r.pos <> r.id order by r.id limit 1) < a.id is not true
        returning a.id
    )
    select array_agg(t.id) into given from turned t;
    select array_agg(a) filter (where (a.id = any (given)) is not true),
           array_agg(row (a.queue, a.priority, a.share, a.pos, a.id, a.attempt, a.losses, a.flags | 2, a.order_key, a.again_at)::postrider.ready)
               filter (where a.id = any (given))
      into asking, free from unnest(take_free.asking) a;
end $$;


--
-- Name: take_later(postrider.job, integer); Type: FUNCTION; Schema: postrider; Owner: -
--

CREATE FUNCTION postrider.take_later(j postrider.job, tried_most integer DEFAULT 32767) RETURNS postrider.waiting
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET jit TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    AS $$
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


--
-- Name: take_lines(text, postrider.ready[], text[], integer, text[]); Type: FUNCTION; Schema: postrider; Owner: -
--

CREATE FUNCTION postrider.take_lines(queue text, going postrider.ready[], kinds text[], most integer, got text[]) RETURNS postrider.ready[]
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET jit TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    AS $$
#variable_conflict use_column
declare
    k record;
    lined postrider.ready[];
    heads postrider.ready[] := array(
        -- whoever runs in a lease of its own runs alone, and a limit may let in fewer
        select g from unnest(take_lines.going) g
         where g.order_key is not null and g.flags & 222 = 2
           -- behind it only: before it lies what has been moved from there
           and (select true from postrider.parked p
                 where p.queue = take_lines.queue and p.key = 'order:' || g.order_key and p.pos > g.id limit 1));
begin
    got := got || postrider.lock_lanes(take_lines.queue, array(
        select 'order:' || h.order_key from unnest(heads) h where ('order:' || h.order_key = any (take_lines.got)) is not true));
    for k in
        select h.id, 'order:' || h.order_key as key from unnest(heads) h where 'order:' || h.order_key = any (got) order by 2
    loop
        exit when coalesce(cardinality(lined), 0) >= take_lines.most;
        lined := lined || postrider.line_up(take_lines.queue, k.key, k.id, take_lines.kinds, take_lines.most - coalesce(cardinality(lined), 0));
    end loop;
    return lined;
end $$;


--
-- Name: take_room(text, postrider.ready[]); Type: FUNCTION; Schema: postrider; Owner: -
--

CREATE FUNCTION postrider.take_room(queue text, going postrider.ready[], OUT may postrider.ready[], OUT parked boolean) RETURNS record
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET jit TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    AS $$
#variable_conflict use_column
declare
    keys text[];
    got text[];
    x record;
    none bigint[] := '{}';
    few int;
begin
    parked := false;
    keys := array(
        select 'limit:' || j.limit_key from unnest(going) with ordinality g
          left join postrider.job j on j.class = (g.id & 3)::smallint and j.id = g.id order by g.ordinality);
    got := postrider.lock_lanes(take_room.queue, array(select distinct k from unnest(keys) k where k is not null order by 1));
    for x in
        with asked as materialized (
            select keys[g.ordinality::int] as key, array_agg(g.id order by g.id) as ids, count(*)::int as n from unnest(going) with ordinality g
             where keys[g.ordinality::int] is not null group by 1
        )
        select a.key, a.ids, a.n, r.free, r.again, r.per_from from asked a left join postrider.rooms_of(take_room.queue, got) r on r.key = a.key
         order by a.key
    loop
        if x.key <> all (got) then
            none := none || x.ids;
            insert into postrider.lane_call (queue, key, low) values (take_room.queue, x.key, x.ids[1]);
            perform postrider.wake_for_lanes();
            continue;
        end if;
        few := least(x.free, x.n);
        if x.per_from is not null and coalesce(few, x.n) > 0 then
            update postrider.lane l
               set used = coalesce(few, x.n) + case when l.window_at = x.per_from then l.used else 0 end,
                   window_at = x.per_from, due_at = x.again, changes = (l.changes + 1) & 63, gen = l.gen + (l.changes = 63)::int
             where l.ctid = (select y.ctid from postrider.lane y where y.queue = take_room.queue and y.key = x.key order by y.gen desc limit 1);
        end if;
        if few < x.n then
            none := none || x.ids[few + 1:];
            update postrider.lane l
               set low_parked = least(l.low_parked, x.ids[few + 1]), due_at = coalesce(x.again, l.due_at),
                   changes = (l.changes + 1) & 63, gen = l.gen + (l.changes = 63)::int
             where l.ctid = (select y.ctid from postrider.lane y where y.queue = take_room.queue and y.key = x.key order by y.gen desc limit 1);
        end if;
        -- nothing waits, nothing is counted: whoever comes next makes it again
        if x.free is null then
            delete from postrider.lane l
             where l.ctid = (select y.ctid from postrider.lane y where y.queue = take_room.queue and y.key = x.key order by y.gen desc limit 1)
               and l.due_at is null
               and not exists (select from postrider.parked p
                                where p.queue = take_room.queue and p.key = x.key and p.pos >= l.low_parked);
        end if;
    end loop;
    insert into postrider.parked (queue, key, pos, id, priority, share, attempt, losses, flags, order_key)
    select g.queue, keys[g.ordinality::int], g.id, g.id, g.priority, g.share, g.attempt, g.losses, postrider.flags_of_waiting(g.flags), g.order_key
      from unnest(going) with ordinality g where g.id = any (none);
    parked := found;
    select array_agg(g) into may from unnest(going) g where g.id <> all (none);
end $$;


--
-- Name: take_turns(text, integer, smallint[], smallint[], bigint[], text[], integer, bigint[]); Type: FUNCTION; Schema: postrider; Owner: -
--

CREATE FUNCTION postrider.take_turns(queue text, most integer, priorities smallint[], shares smallint[], positions bigint[], kinds text[], in_line integer, turned bigint[], OUT turns postrider.ready[], OUT moved boolean) RETURNS record
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET jit TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    AS $$
#variable_conflict use_column
declare
    picked postrider.ready[];
    asking postrider.ready[];
    going postrider.ready[];
    free postrider.ready[];
    got text[];
    k record;
    head postrider.ready;
begin
    with taken as (
        delete from postrider.ready r
         where r.ctid = any (array(
            select x.place
              from unnest(take_turns.priorities, take_turns.shares, take_turns.positions, take_turns.turned)
                   with ordinality p (priority, share, pos, turned, o)
             cross join lateral (
                -- whoever has the turn of a key waits apart, wherever the others begin, and goes in turn with them
                select u.place from (
                    select h.place, row_number() over () as n, 0 as then_by from (
                        select y.ctid as place from postrider.ready y
                         where y.queue = take_turns.queue and y.priority = p.priority and y.share = p.share
                           and y.pos + 0 >= coalesce(p.turned, 0) and y.flags & 2 <> 0 and (y.flags & 16 = 0 or postrider.hold_group(y.id))
                         order by y.pos + 0 limit take_turns.most for update skip locked) h
                    union all
                    select o.place, row_number() over (), 1 from (
                        select y.ctid as place from postrider.ready y
                         where y.queue = take_turns.queue and y.priority = p.priority and y.share = p.share and y.pos >= p.pos
                           and y.flags & 2 = 0 and (y.flags & 16 = 0 or postrider.hold_group(y.id))
                         order by y.pos limit take_turns.most for update skip locked) o) u
                 order by u.n, u.then_by limit take_turns.most) x
             where not exists (select from postrider.queue q where q.name = take_turns.queue and q.paused_at is not null)
             limit take_turns.most))
        returning r.*
    )
    select array_agg(row (t.*)::postrider.ready) into picked from taken t;
    select array_agg(u) filter (where u.flags & 32 = 0),
           array_agg(u) filter (where u.flags & 32 <> 0 and (u.flags & 2 <> 0 or u.order_key is null)),
           array_agg(u) filter (where u.flags & 34 = 32 and u.order_key is not null)
      into turns, going, asking from unnest(picked) u;
    if asking is not null then
        got := postrider.lock_lanes(take_turns.queue, array(select distinct 'order:' || a.order_key from unnest(asking) a));
        select t.asking, t.free into asking, free from postrider.take_free(take_turns.queue, asking, got) t;
        going := going || free;
        moved := asking is not null;
        insert into postrider.parked (queue, key, pos, id, priority, share, attempt, losses, flags, order_key)
        select a.queue, 'order:' || a.order_key, a.id, a.id, a.priority, a.share, a.attempt, a.losses,
               postrider.flags_of_waiting(a.flags), a.order_key
          from unnest(asking) a;
        insert into postrider.lane_call (queue, key, low)
        select take_turns.queue, 'order:' || a.order_key, min(a.id) from unnest(asking) a where 'order:' || a.order_key <> all (got) group by 2;
        if found then
            perform postrider.wake_for_lanes();
        end if;
        for k in
            select 'order:' || a.order_key as key, min(a.id) as lowest, count(*) as n, count(*) over () as keys from unnest(asking) a
             where 'order:' || a.order_key = any (got) group by 1 order by 1
        loop
            update postrider.lane l set low_parked = k.lowest
             where l.low_parked > k.lowest
               and l.ctid = (select x.ctid from postrider.lane x where x.queue = take_turns.queue and x.key = k.key order by x.gen desc limit 1);
            if k.n > 1 or k.n = take_turns.most then
                -- many of one key, as far as one can see: the rest of them may not be in the way of others either. In all about a
                -- thousand, or whoever is to be started by this claim would wait for it
                perform postrider.clear_ready(take_turns.queue, k.key, greatest(50, 1000 / k.keys)::int);
            end if;
            head := postrider.next_turn(take_turns.queue, k.key);
            if head.id is not null then
                going := going || head;
            end if;
        end loop;
    end if;
    moved := coalesce(moved, false);
    turns := turns || array(select g from unnest(going) g where g.flags & 64 = 0);
    if take_turns.in_line > 0 then
        turns := turns || postrider.take_lines(take_turns.queue, going, take_turns.kinds, take_turns.in_line, got);
    end if;
    going := array(select g from unnest(going) g where g.flags & 64 <> 0);
    if going <> '{}' then
        select turns || t.may, moved or t.parked into turns, moved from postrider.take_room(take_turns.queue, going) t;
    end if;
end $$;


--
-- Name: take_unique(bytea, smallint, bigint, timestamp with time zone); Type: FUNCTION; Schema: postrider; Owner: -
--

CREATE FUNCTION postrider.take_unique(hash bytea, mode smallint, id bigint, until timestamp with time zone) RETURNS bigint
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
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


--
-- Name: take_waiting(postrider.job, integer); Type: FUNCTION; Schema: postrider; Owner: -
--

CREATE FUNCTION postrider.take_waiting(j postrider.job, tried_most integer DEFAULT 32767) RETURNS postrider.waiting
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET jit TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    AS $$
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


--
-- Name: tell_endpoint(text, bigint, json); Type: FUNCTION; Schema: postrider; Owner: -
--

CREATE FUNCTION postrider.tell_endpoint(type text, id bigint, says json) RETURNS uuid
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
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


--
-- Name: tell_exhausted(integer); Type: FUNCTION; Schema: postrider; Owner: -
--

CREATE FUNCTION postrider.tell_exhausted(most integer) RETURNS integer
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET jit TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    AS $$
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


--
-- Name: tell_matched(timestamp with time zone, bigint[], text[], text[], bigint[]); Type: FUNCTION; Schema: postrider; Owner: -
--

CREATE FUNCTION postrider.tell_matched(at timestamp with time zone, seqs bigint[], types text[], owners text[], subscriptions bigint[] DEFAULT NULL::bigint[]) RETURNS json
    LANGUAGE plpgsql STABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET jit TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    AS $$
declare
    told json;
begin
    with matched as materialized (
        select t.* from postrider.matches(tell_matched.at, tell_matched.seqs, tell_matched.types, tell_matched.owners,
                                          tell_matched.subscriptions) t
    ), wanted as materialized (
        select m.* from matched m
         where not m.coalescing or m.seq = (
            select max(l.seq) from matched l where l.subscription = m.subscription and l.owner = m.owner and l.subject = m.subject)
    )
    select json_build_object(
        'jobs', coalesce((
            select json_agg(json_build_object('seq', m.seq, 'subscription', m.subscription, 'kind', m.kind, 'queue', m.queue,
                       'priority', m.priority, 'max_attempts', m.max_attempts, 'order_key', m.order_key, 'order_rule', m.order_rule,
                       'run_at', (extract(epoch from m.run_at) * 1000000)::bigint)
                   order by m.seq, m.subscription)
              from wanted m), '[]'),
        'events', coalesce((
            select json_agg(json_build_object('seq', v.seq, 'id', v.id, 'type', v.type, 'owner', v.owner, 'subject', v.subject,
                       'cause', v.cause, 'version', v.version, 'traceparent', v.traceparent, 'data', v.data::text,
                       'occurred_at', (extract(epoch from v.occurred_at) * 1000000)::bigint,
                       'recorded_at', (extract(epoch from v.recorded_at) * 1000000)::bigint))
              from postrider.event v where v.seq = any (array(select m.seq from wanted m))), '[]')) into told;
    return told;
end $$;


--
-- Name: tick(uuid, json); Type: FUNCTION; Schema: postrider; Owner: -
--

CREATE FUNCTION postrider.tick(worker uuid, report json) RETURNS json
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET jit TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    AS $$
declare
    me uuid := worker;
    queues text[] := array(select json_array_elements_text(report -> 'queues'));
    kinds text[] := array(select json_array_elements_text(report -> 'kinds'));
    held bigint[] := array(select json_array_elements_text(report -> 'held')::bigint);
    settled bigint := (report ->> 'settled')::bigint;
    handed_back int := 0;
    rescued int := 0;
    promoted int := 0;
    unparked int;
    called boolean := false;
    n int;
    x record;
begin
    perform postrider.check_isolation();
    update postrider.worker w set beat = w.beat + 1, beat_at = clock_timestamp() where w.id = me;
    if not found then
        -- a first beat, or a worker that was taken for dead: what it held is told as lost below; sent again when its reply was lost,
        -- it may meet itself
        insert into postrider.worker as w (id, app, version, host, pid, queues, kinds, schedules)
        values (me, coalesce(report ->> 'app', ''), coalesce(report ->> 'version', ''), coalesce(report ->> 'host', ''),
                coalesce((report ->> 'pid')::int, 0), queues, kinds,
                array(select json_array_elements_text(coalesce(report -> 'schedules', '[]'))))
        on conflict (id) do update set beat = w.beat + 1, beat_at = clock_timestamp();
    end if;

    for x in select l.id from postrider.lease l
              where l.worker = me and l.call <= settled and l.id <> all (held) order by l.id for update skip locked
    loop
        handed_back := handed_back + postrider.put_back_each(x.id, false, false);
    end loop;
    for x in select (d ->> 'worker')::uuid as id, (d ->> 'beat')::bigint as beat
               from json_array_elements(coalesce(report -> 'dead', '[]')) d order by 1
    loop
        rescued := rescued + postrider.rescue(x.id, x.beat);
    end loop;
    for i in 1..20 loop
        n := postrider.promote(1000);
        promoted := promoted + n;
        exit when n < 1000;
    end loop;
    unparked := postrider.unpark(queues, kinds);
    perform postrider.note_progress(me, report -> 'progress');
    if exists (select from postrider.unsettled) or exists (select from postrider.cancellation) then
        perform postrider.settle_left_over();
    end if;
    if exists (select from postrider.lane_call) or exists (select from postrider.lane l where l.due_at <= clock_timestamp()) then
        called := postrider.settle_lanes_called();
    end if;
    if handed_back + rescued + promoted + unparked > 0 then
        perform postrider.wake('postrider_job');
    end if;

    return json_build_object(
        'lost', (select coalesce(json_agg(h), '[]') from unnest(held) h
                  where not exists (select from postrider.lease l where l.id = h and l.worker = me)),
        'cancel', case when exists (select from postrider.cancellation) then (
            select json_agg(json_build_object('lease', r.lease, 'id', r.id)) from (
                select distinct l.id as lease, c.id
                  from postrider.cancellation c join postrider.lease l on l.worker = me and c.id = any (l.open)) r) end,
        'handed_back', handed_back, 'rescued', rescued, 'promoted', promoted, 'unparked', unparked,
        'others', (select coalesce(json_agg(json_build_object('worker', o.id, 'beat', o.beat)), '[]') from (
            select w.id, w.beat from postrider.worker w where w.id <> me
            union all
            select distinct l.worker, -1 from postrider.lease l
             where l.worker <> me and not exists (select from postrider.worker w where w.id = l.worker)) o),
        'ready', (select coalesce(json_agg(q), '[]') from unnest(queues) q
                   -- from the newest on: what is gone lies below what waits
                   where (select true from postrider.ready r where r.queue = q
                           order by r.priority desc, r.share desc, r.pos desc limit 1)),
        'event_number', (select last_value from postrider.event_number),
        'due_in_ms', (select greatest(0, ceil(extract(epoch from d.at - clock_timestamp()) * 1000))::bigint
                        from (select least((select y.run_at from postrider.later y order by y.run_at limit 1),
                                           (select l.due_at from postrider.lane l where l.due_at is not null order by l.due_at limit 1),
                                           case when called then clock_timestamp() + interval '100 milliseconds' end) as at) d
                       where d.at is not null),
        'schedule_due_in_ms', case when exists (select from postrider.schedule) then postrider.schedule_due_in_ms(
            array(select json_array_elements_text(coalesce(report -> 'schedules', '[]')))) end);
end $$;


--
-- Name: try_expressions(postrider.watch_plan); Type: FUNCTION; Schema: postrider; Owner: -
--

CREATE FUNCTION postrider.try_expressions(plan postrider.watch_plan) RETURNS void
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET check_function_bodies TO 'on'
    SET standard_conforming_strings TO 'on'
    SET transform_null_equals TO 'off'
    AS $_$
declare
    w postrider.watch := plan.wanted;
    field text;
    expression text;
    type oid;
    tree text;
    fault text;
    operation text;
begin
    for field, expression in
        select k, x from (values ('condition', w.condition), ('subject', w.subject), ('data', w.data), ('owner', w.owner)) u (k, x) where x is not null
    loop
        fault := null;
        begin
            execute format('create function %s() returns void language plpgsql as %L', plan.probe,
                format(E'begin\nperform array[\n%1$s\n];\nperform cast(\n%1$s\n as text);\nend', expression));
            execute format(E'create view %1$s as select (\n%2$s\n) as x from (select * from %3$s) as new, (select * from %3$s) as old',
                plan.probe, expression, w.relation);
            select a.atttypid, r.ev_action::text into type, tree from pg_attribute a join pg_rewrite r on r.ev_class = a.attrelid
             where a.attrelid = plan.probe::regclass and a.attnum = 1;
            fault := case
                when tree ~ '\{(SUBLINK|AGGREF|WINDOWFUNC|GROUPINGFUNC) ' or tree ~ ':(funcretset|opretset) true'
                    then 'it is to look at one row only, without subqueries, aggregates, window functions and functions that return sets'
                when field = 'condition' and type <> 'boolean'::regtype then format('it is %s, not boolean', type::regtype)
                when field = 'data' and type not in ('json'::regtype, 'jsonb'::regtype) then format('it is %s, not json or jsonb', type::regtype)
                end;
            raise assert_failure;
        exception
            when assert_failure then null;
            when others then fault := sqlerrm;
        end;
        if fault is not null then
            raise exception using errcode = 'PR005', column = field, message = format('%s: %s', field, fault),
                hint = 'give one SQL expression over columns of new and old, such as new.total; names of functions with their schema';
        end if;
    end loop;
    begin
        execute format('create function %s() returns void language plpgsql security definer set search_path = pg_catalog, pg_temp as %L', plan.probe,
            E'#variable_conflict use_column\nbegin\n' || (
                select string_agg(format(E'perform * from (with new_rows as (select * from %1$s where false), old_rows as (select * from %1$s where false)\n%2$s) t;\n',
                           w.relation, q), '') from unnest(plan.queries) q) || 'end');
        execute format('alter function %s() owner to %s', plan.probe, plan.table_owner);
        execute format('select %s()', plan.probe);
        raise assert_failure;
    exception
        when assert_failure then null;
        when others then
            raise exception using errcode = 'PR005', column = 'relation',
                message = format('relation: %s cannot compute an event of %s: %s', plan.table_owner, w.relation, sqlerrm),
                hint = format('what it reads and calls must be allowed to %s, who owns the table', plan.table_owner);
    end;
end $_$;


--
-- Name: type_names(jsonb); Type: FUNCTION; Schema: postrider; Owner: -
--

CREATE FUNCTION postrider.type_names(types jsonb) RETURNS text
    LANGUAGE sql IMMUTABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    RETURN (SELECT string_agg(t.value, ' or '::text) AS string_agg FROM jsonb_array_elements_text(type_names.types) t(value));


--
-- Name: types(text, integer); Type: FUNCTION; Schema: postrider; Owner: -
--

CREATE FUNCTION postrider.types(after text DEFAULT ''::text, most integer DEFAULT 200) RETURNS TABLE(name text, description text, exposure text, subject text, validation text, version integer, versions integer[], deprecated_on date, deprecated_note text, replaced_by text, mismatches bigint, declared_by text, generation bigint, seen_at timestamp with time zone)
    LANGUAGE sql STABLE SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
    select t.name, t.description, t.exposure, t.subject, t.validation, t.version,
           array(select v.version from postrider.type_version v where v.type = t.name order by 1),
           t.deprecated_on, t.deprecated_note, t.replaced_by,
           (select count(*) from postrider.type_mismatch m where m.type = t.name), t.declared_by, t.generation, t.seen_at
      from postrider.event_type t where t.name > after order by t.name limit most
$$;


--
-- Name: types_of_transactions(xid8[]); Type: FUNCTION; Schema: postrider; Owner: -
--

CREATE FUNCTION postrider.types_of_transactions(xids xid8[]) RETURNS text[]
    LANGUAGE plpgsql STABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET jit TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    AS $$
declare
    until timestamptz := clock_timestamp() + interval '3 seconds';
    types text[] := '{}';
    part record;
    x xid8;
    after bigint;
begin
    foreach x in array xids loop
        after := 0;
        loop
            -- mostly all are of one type, which the smallest and the largest tell
            select count(*) as n, max(v.seq) as last, min(v.type) as smallest, max(v.type) as largest into part
              from (select e.seq, e.type from postrider.event e where e.xid = x and e.seq > after order by e.seq limit 50000) v;
            if part.smallest < part.largest then
                types := types || array(select distinct e.type from postrider.event e where e.xid = x and e.seq > after and e.seq <= part.last
                                           and e.type <> all (types));
            elsif part.smallest <> all (types) then
                types := types || part.smallest;
            end if;
            exit when part.n < 50000;
            after := part.last;
            if clock_timestamp() > until then
                return null;
            end if;
        end loop;
    end loop;
    return types;
end $$;


--
-- Name: unique_hash(smallint, text, text, text, json); Type: FUNCTION; Schema: postrider; Owner: -
--

CREATE FUNCTION postrider.unique_hash(mode smallint, kind text, owner text, key text, args json) RETURNS bytea
    LANGUAGE sql STABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    RETURN SUBSTRING(sha256(convert_to(concat_ws('
'::text, mode, CASE WHEN (mode = 6) THEN ''::text ELSE kind END, owner, CASE WHEN (key IS NULL) THEN 'args'::text ELSE 'key'::text END, COALESCE(key, ((args)::jsonb)::text)), 'UTF8'::name)) FROM 1 FOR 16);


--
-- Name: unique_mode_no(text); Type: FUNCTION; Schema: postrider; Owner: -
--

CREATE FUNCTION postrider.unique_mode_no(mode text) RETURNS smallint
    LANGUAGE sql IMMUTABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    RETURN (array_position(ARRAY['while_waiting'::text, 'until_done'::text, 'for_ever'::text, 'within'::text, 'one_running_one_waiting'::text], mode))::smallint;


--
-- Name: unpark(text[], text[]); Type: FUNCTION; Schema: postrider; Owner: -
--

CREATE FUNCTION postrider.unpark(queues text[], kinds text[]) RETURNS integer
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET jit TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    AS $$
declare
    q text;
    n int;
    moved int := 0;
begin
    kinds := postrider.without_held(kinds);
    foreach q in array queues loop
        continue when not exists (select from postrider.parked p where p.queue = q and p.key >= 'kind:' and p.key < 'kind;')
                  and not exists (select from postrider.parked p where p.queue = q and p.key = 'strict:');
        with free as (
            -- what another worker is releasing is passed by: two that name queues or kinds in another order may not wait in a circle
            delete from postrider.parked p where p.ctid = any (array(
                select o.place from unnest(kinds) k (kind) cross join lateral (
                    select x.ctid as place from postrider.parked x where x.queue = q and x.key = 'kind:' || k.kind for update skip locked) o))
            returning p.*
        ), again as (
            insert into postrider.ready (queue, priority, share, pos, id, attempt, losses, flags, order_key)
            select f.queue, f.priority, f.share, f.pos, f.id, f.attempt, f.losses, f.flags, f.order_key from free f returning 1
        )
        select count(*) into n from again;
        moved := moved + n;
        continue when not exists (select from postrider.parked p where p.queue = q and p.key = 'strict:');
        -- the lock before the look: the next statement's snapshot sees whom the last holder let go
        continue when not pg_try_advisory_xact_lock(7305, 4);
        if not exists (select from postrider.ready r where r.queue = q and r.flags & 8 <> 0)
           and not exists (select from postrider.lease l where l.queue = q and 8 = any (
                select f & 8 from unnest(l.ids, l.flags) u (id, f) where u.id = any (l.open)))
        then
            with head as (
                delete from postrider.parked p where p.queue = q and p.key = 'strict:' and p.pos = (
                    select min(m.pos) from postrider.parked m where m.queue = q and m.key = 'strict:')
                returning p.*
            )
            insert into postrider.ready (queue, priority, share, pos, id, attempt, losses, flags, order_key)
            select h.queue, h.priority, h.share, h.pos, h.id, h.attempt, h.losses, (h.flags | 12)::smallint, h.order_key
              from head h;
            get diagnostics n = row_count;
            moved := moved + n;
        end if;
    end loop;
    return moved;
end $$;


--
-- Name: unwatch(text, integer); Type: FUNCTION; Schema: postrider; Owner: -
--

CREATE FUNCTION postrider.unwatch(name text, patience_ms integer DEFAULT 3000) RETURNS boolean
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET lock_timeout TO '100ms'
    AS $$
declare
    until timestamptz := clock_timestamp() + patience_ms * interval '1 millisecond';
    held regclass;
    todo text[];
    step text;
begin
    select p.relation, p.statements into held, todo from postrider.plan_unwatch(name) p;
    if todo is null then
        return false;
    end if;
    if not pg_has_role((select c.relowner from pg_class c where c.oid = held), 'usage') then
        raise exception using errcode = 'PR005', column = 'name', message = format('name: %s belongs to somebody else', held),
            hint = 'end it as the owner of the table';
    end if;
    while held is not null loop
        begin
            execute format('lock table only %s in access exclusive mode', held);
            exit;
        exception when lock_not_available then
            if clock_timestamp() > until then
                raise exception using errcode = 'lock_not_available', column = 'name', message = format('name: %s stays locked', held),
                    hint = format('wait for the transactions of these processes, or end them: %s', (select string_agg(distinct l.pid::text, ', ')
                        from pg_locks l where l.granted and l.pid <> pg_backend_pid() and l.relation = held));
            end if;
        end;
        perform pg_sleep(0.02 + random() * 0.08);
    end loop;
    foreach step in array todo loop
        execute step;
    end loop;
    perform postrider.forget_watch(name);
    return true;
end $$;


--
-- Name: usual_duties(); Type: FUNCTION; Schema: postrider; Owner: -
--

CREATE FUNCTION postrider.usual_duties() RETURNS json
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
declare
    advanced text[] := '{}';
    forgotten int;
begin
    if postrider.advance_epoch('event') then
        advanced := advanced || 'event'::text;
    end if;
    if postrider.advance_epoch('job') then
        advanced := advanced || 'job'::text;
    end if;
    with old as (
        delete from postrider.idempotency i where i.ctid = any (array(
            select o.ctid from postrider.idempotency o where o.until < clock_timestamp() order by o.until limit 10000
               for update skip locked))
        returning 1
    )
    select count(*) into forgotten from old;
    delete from postrider.uniq u where u.ctid = any (array(
        select o.ctid from postrider.uniq o where o.until < clock_timestamp() order by o.until limit 10000 for update skip locked));
    perform postrider.forget_leftovers();
    perform postrider.forget_mismatches();
    perform postrider.join_cuts();
    perform postrider.duties_of_components();
    return json_build_object('advanced', advanced, 'keys_forgotten', forgotten);
end $$;


--
-- Name: verify(timestamp with time zone, timestamp with time zone); Type: FUNCTION; Schema: postrider; Owner: -
--

CREATE FUNCTION postrider.verify("from" timestamp with time zone DEFAULT NULL::timestamp with time zone, "to" timestamp with time zone DEFAULT NULL::timestamp with time zone) RETURNS postrider.verified
    LANGUAGE plpgsql STABLE SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET jit TO 'off'
    SET enable_hashagg TO 'off'
    SET work_mem TO '64MB'
    AS $$
declare
    v postrider.verified;
    c postrider.cut;
    before postrider.cut;
    e record;
    j record;
    lost bigint;
    says text;
begin
    v := row (null, null, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, '{}');
    for c in select x.* from postrider.cut x
              where ("from" is null or x.at >= "from") and ("to" is null or x.at < "to") order by x.no
    loop
        if v.first_no is null then
            v.first_no := c.from_no;
            select x.* into before from postrider.cut x where x.no < c.no order by x.no desc limit 1;
        end if;
        v.last_no := c.no;
        v.cuts := v.cuts + 1;
        says := case
            when coalesce(before.no, 0) <> c.from_no - 1 then format('rows %s to %s of cut are gone', coalesce(before.no, 0) + 1, c.from_no - 1)
            when c.hash is distinct from postrider.cut_hash(coalesce(before.joined, before.hash, '\x'), c)
              then format('row %s of cut is not what was written', c.no)
            when (c.events_total, c.jobs_total) is distinct from (coalesce(before.events_total, 0) + c.n, coalesce(before.jobs_total, 0) + c.jobs)
              then format('the totals of row %s of cut are not the sum', c.no) end;
        if says is not null then
            v.broken := v.broken + 1;
            v.findings := v.findings || says;
            before := c;
            continue;
        end if;
        if c.n > 0 and exists (select from generate_series(c.first_seq >> 46, coalesce(c.part_upto, c.last_seq) >> 46) g where to_regclass(format('postrider.event_e%s', g)) is null) then
            v.unchecked_events := v.unchecked_events + c.n;
        elsif c.n > 0 then
            select * into e from postrider.events_of_cut(c, before) x;
            v.committed := v.committed + e.n;
            v.fanned_out := v.fanned_out + c.n;
            if e.n <> c.n or e.digest is distinct from c.digest then
                v.missing := v.missing + greatest(c.n - e.n, 0);
                v.altered := v.altered + 1;
                v.findings := v.findings || case when e.n <> c.n then format('row %s of cut took %s events, %s are there', c.no, c.n, e.n)
                                                 else format('an event of row %s of cut is not what was recorded', c.no) end;
            end if;
        end if;
        if c.elsewhere then
            v.unchecked_jobs := v.unchecked_jobs + c.jobs;
        elsif c.jobs > 0 then
            select * into j from postrider.jobs_of_cut(c) x;
            lost := c.jobs - j.n;
            v.jobs := v.jobs + j.n;
            if j.gone and lost > 0 then
                v.unchecked_jobs := v.unchecked_jobs + lost;
            elsif lost <> 0 then
                v.missing := v.missing + greatest(lost, 0);
                v.altered := v.altered + 1;
                v.findings := v.findings || format('row %s of cut made %s jobs, %s are there', c.no, c.jobs, j.n);
            end if;
        end if;
        before := c;
        v.findings := v.findings[1:100];
    end loop;
    select count(*) into v.twice from (
        select from postrider.job x where x.event_seq is not null and x.subscription is not null
           and (v.first_no is null or "from" is null and "to" is null or x.id > (select min(y.first_job) from postrider.cut y where y.no >= v.first_no)
                and x.id <= (select max(y.last_job) from postrider.cut y where y.no <= v.last_no))
         group by x.event_seq, x.subscription having count(*) > 1) t;
    if v.twice > 0 then
        v.findings := v.findings || format('%s pairs of an event and a subscription have more than one job', v.twice);
    end if;
    if "from" is null and "to" is null and v.unchecked_events = 0 and v.broken = 0 then
        -- what each row says of itself may be right, and an event be in none of them
        lost := postrider.count_relayed() - before.events_total;
        if lost > 0 then
            v.missing := v.missing + lost;
            v.findings := v.findings || format('%s events of the log are behind the position, and no row of cut took them', lost);
        elsif lost < 0 and v.missing = 0 then
            v.missing := v.missing - lost;
            v.findings := v.findings || format('the rows of cut took %s events that are not behind the position, or not in the log', -lost);
        end if;
    end if;
    if "to" is null and exists (
        select from (select coalesce(max(y.last_job), 0) as last_job from postrider.cut y) l
          cross join (values (1::smallint), (2::smallint), (3::smallint)) k (class)
          join postrider.job x on x.class = k.class and x.id > (l.last_job | 3) and x.event_seq is not null and x.subscription is not null
         where not exists (select from postrider.poison p where p.event_seq = x.event_seq and p.subscription = x.subscription and p.ended_as = 'made'))
    then
        v.broken := v.broken + 1;
        v.findings := v.findings || 'there are jobs of events after the last row of cut: rows behind it are gone'::text;
    end if;
    return v;
end $$;


--
-- Name: wake(text); Type: FUNCTION; Schema: postrider; Owner: -
--

CREATE FUNCTION postrider.wake(channel text) RETURNS void
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
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


--
-- Name: wake_for_lanes(); Type: FUNCTION; Schema: postrider; Owner: -
--

CREATE FUNCTION postrider.wake_for_lanes() RETURNS void
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
begin
    if coalesce(current_setting('postrider.wake', true), '') <> 'off' and pg_notification_queue_usage() < 0.5 then
        perform pg_notify('postrider_lane', '');
    end if;
end $$;


--
-- Name: walk(postrider.subscription_start, integer); Type: FUNCTION; Schema: postrider; Owner: -
--

CREATE FUNCTION postrider.walk(b postrider.subscription_start, most integer) RETURNS TABLE(seq bigint, type text, owner text, wanted boolean)
    LANGUAGE plpgsql STABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET jit TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    AS $$
#variable_conflict use_column
declare
    floors bigint[] := array(
        select (select l.floor_seq from postrider.log_epoch l where l.no = p.no)
          from (values (1, (b.done).epoch), (2, (b.upto).epoch)) p (o, no) order by p.o);
    ceilings bigint[] := array(
        select postrider.epoch_end(p.no) from (values (1, (b.done).epoch), (2, (b.upto).epoch)) p (o, no) order by p.o);
    walkers bigint[] := postrider.walkers(b);
begin
    return query
    select v.seq, v.type, v.owner,
           v.recorded_at >= b.since and exists (
                select from postrider.route r where r.type = v.type and r.owner = any (array['', v.owner]) and r.subscription = any (walkers))
           and postrider.is_behind(b.upto, floors[2], ceilings[2], v.xid, v.seq)
           and not postrider.is_behind(b.done, floors[1], ceilings[1], v.xid, v.seq)
           -- what is delayed is given when it is due, to those that start as well
           and (not (select exists (select from postrider.event_delay)) or not exists (
                select from postrider.event_delay d
                 where d.seq = v.seq and (b.subscription is null or d.ended_as is distinct from 'delivered' or b.subscription = any (d.given))))
      from (select e.seq, e.type, e.owner, e.recorded_at, e.xid from postrider.event e
             where e.seq > b.after order by e.seq limit walk.most) v;
end $$;


--
-- Name: walk_from(postrider.subscription_start); Type: FUNCTION; Schema: postrider; Owner: -
--

CREATE FUNCTION postrider.walk_from(b postrider.subscription_start) RETURNS bigint
    LANGUAGE plpgsql STABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET jit TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    AS $$
declare
    base pg_snapshot := coalesce((b.done).lo, (b.done).hi);
    huge xid8[] := array(select x from postrider.backlog g cross join unnest(g.xids) x
                          where g.epoch = (b.done).epoch and x >= pg_snapshot_xmax(base) order by x);
begin
    if (b.done).epoch is null then
        -- the number of a transaction may have been drawn long before it records
        return coalesce((select (max(x.epoch) - 1) << 46 from postrider.epoch x
                          where x.unit = 'event' and x.started_at < b.since - interval '1 hour'), 0);
    elsif (b.done).epoch <> (b.upto).epoch then
        return 0;
    end if;
    return least(
        (select min(v.seq) from pg_snapshot_xip(base) open cross join lateral (
            select e.seq from postrider.event e where e.xid = open order by e.seq limit 1) v),
        -- not through what is huge: that is long
        (select min(v.first) from postrider.xid_gaps(pg_snapshot_xmax(base), '9223372036854775807', huge) g cross join lateral (
            select min(e.seq + 0) as first from postrider.event e where e.xid > g.above and e.xid < g.below) v),
        (select min(v.seq) from unnest(huge) h (xid) cross join lateral (
            select e.seq from postrider.event e where e.xid = h.xid order by e.seq limit 1) v)) - 1;
end $$;


--
-- Name: walk_replay(postrider.delivery_replay, integer); Type: FUNCTION; Schema: postrider; Owner: -
--

CREATE FUNCTION postrider.walk_replay(r postrider.delivery_replay, most integer) RETURNS TABLE(seq bigint, wanted boolean)
    LANGUAGE plpgsql STABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET jit TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    AS $$
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


--
-- Name: walkers(postrider.subscription_start); Type: FUNCTION; Schema: postrider; Owner: -
--

CREATE FUNCTION postrider.walkers(b postrider.subscription_start) RETURNS bigint[]
    LANGUAGE sql STABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    RETURN CASE WHEN ((b).subscription IS NOT NULL) THEN ARRAY[(b).subscription] ELSE ARRAY(SELECT h.subscription FROM postrider.held h WHERE (h.start = (walkers.b).id)) END;


--
-- Name: wanted_watch(oid, json); Type: FUNCTION; Schema: postrider; Owner: -
--

CREATE FUNCTION postrider.wanted_watch(relation oid, asked json) RETURNS postrider.watch
    LANGUAGE plpgsql STABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
declare
    w postrider.watch;
    base text := postrider.watch_base(relation);
    stray text;
    operation text;
    past json := '{"insert": "created", "update": "updated", "delete": "deleted", "truncate": "truncated"}';
    types jsonb := '{}';
begin
    perform postrider.check_watched(relation);
    w.relid := relation;
    select format('%I.%I', n.nspname, c.relname) into w.relation
      from pg_class c join pg_namespace n on n.oid = c.relnamespace where c.oid = relation;
    w.name := coalesce(asked ->> 'name', base);
    w.key_columns := (postrider.watch_key(relation)).columns;
    w.declared_by := coalesce(asked ->> 'app', '');
    w.generation := coalesce((asked ->> 'generation')::bigint, 0);
    perform postrider.check_name('name', w.name, true);
    w.columns := case when json_typeof(asked -> 'columns') = 'array' then array(select json_array_elements_text(asked -> 'columns')) end;
    w.operations := case when json_typeof(asked -> 'operations') = 'array' then array(select json_array_elements_text(asked -> 'operations'))
                         else array['insert', 'update', 'delete', 'truncate'] end;
    select o into stray from unnest(w.operations) o where o is null or past ->> o is null limit 1;
    if found or cardinality(w.operations) = 0 then
        perform postrider.refuse('PR005', 'operations', format('%L is not an operation', coalesce(stray, '')),
            'use some of insert, update, delete, truncate');
    end if;
    w.operations := array(select k from json_object_keys(past) k where k = any (w.operations));
    select c into stray from unnest(w.columns) c
     where not exists (select from pg_attribute a where a.attrelid = relation and a.attname = c and a.attnum > 0 and not a.attisdropped) limit 1;
    if found or cardinality(w.columns) = 0 then
        perform postrider.refuse('PR005', 'columns', format('%s has no column %I', w.relation, coalesce(stray, '')),
            'name columns of the table, or none at all to watch every one');
    end if;
    -- kept nowhere: a trigger would be told nulls
    select a.attname into stray from pg_attribute a
     where a.attrelid = relation and a.attgenerated = 'v' and not a.attisdropped and (w.columns is null or a.attname = any (w.columns)) limit 1;
    if found then
        perform postrider.refuse('PR005', 'columns', format('column %I of %s is generated when it is read', stray, w.relation),
            'name the other columns, or generate it as stored');
    end if;
    for operation, stray in select k, asked -> 'types' ->> k from json_object_keys(
        case when json_typeof(asked -> 'types') = 'object' then asked -> 'types' else '{}' end) k
    loop
        if past ->> operation is null then
            perform postrider.refuse('PR005', 'types', format('%L is not an operation', operation), 'use insert, update, delete, truncate');
        elsif stray like 'postrider.%' or stray like 'webhook.%' or not exists (select from postrider.event_type t where t.name = stray) then
            perform postrider.refuse_type(stray);
        end if;
    end loop;
    -- a key that an update changed is told as deleted and created
    for operation in select k from json_object_keys(past) k
        where k = any (w.operations) or 'update' = any (w.operations) and k <> 'truncate'
    loop
        types := types || jsonb_build_object(operation, coalesce(asked -> 'types' ->> operation, base || '.' || (past ->> operation)));
        perform postrider.check_name('types', types ->> operation);
    end loop;
    w.types := types::json;
    w.condition := asked ->> 'condition';
    w.subject := asked ->> 'subject';
    w.data := asked ->> 'data';
    w.owner := asked ->> 'owner';
    select k into stray from (values ('condition', w.condition), ('subject', w.subject), ('data', w.data), ('owner', w.owner)) u (k, x)
     where btrim(x) = '' or octet_length(x) > 8192 limit 1;
    if found then
        perform postrider.refuse('PR005', stray, 'it is not an SQL expression of 1 to 8192 bytes', 'leave it out, or say what is to be computed');
    end if;
    return w;
end $$;


--
-- Name: was_written(smallint, bigint); Type: FUNCTION; Schema: postrider; Owner: -
--

CREATE FUNCTION postrider.was_written(class smallint, first bigint) RETURNS boolean
    LANGUAGE sql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$ select exists (select from postrider.written w where w.class = was_written.class and w.first = was_written.first) $$;


--
-- Name: watch(regclass, text, text[], text[], json, text, text, text, text, text, bigint, integer); Type: FUNCTION; Schema: postrider; Owner: -
--

CREATE FUNCTION postrider.watch(relation regclass, name text DEFAULT NULL::text, columns text[] DEFAULT NULL::text[], operations text[] DEFAULT NULL::text[], types json DEFAULT NULL::json, condition text DEFAULT NULL::text, subject text DEFAULT NULL::text, data text DEFAULT NULL::text, owner text DEFAULT NULL::text, app text DEFAULT ''::text, generation bigint DEFAULT 0, patience_ms integer DEFAULT 3000) RETURNS boolean
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET lock_timeout TO '100ms'
    SET check_function_bodies TO 'on'
    SET standard_conforming_strings TO 'on'
    SET transform_null_equals TO 'off'
    AS $$
declare
    asked json := json_build_object('name', name, 'columns', columns, 'operations', operations, 'types', types, 'condition', condition,
        'subject', subject, 'data', data, 'owner', owner, 'app', app, 'generation', generation);
    until timestamptz := clock_timestamp() + patience_ms * interval '1 millisecond';
    table_owner oid := (select c.relowner from pg_class c where c.oid = relation);
    plan postrider.watch_plan;
    w postrider.watch;
    step text;
begin
    if not pg_has_role(table_owner, 'usage') then
        raise exception using errcode = 'PR005', column = 'relation', message = format('relation: %s belongs to %s', relation, table_owner::regrole),
            hint = format('declare it as %s: its expressions run with the rights of the owner', table_owner::regrole);
    end if;
    plan := postrider.plan_watch(relation, asked);
    if plan.state = 'change' then
        loop
            -- writers queue behind a lock that is waited for: so it is never waited for long, and let go in between
            begin
                perform postrider.plan_watch(relation, asked, true);
                w := plan.wanted;
                execute format('lock table only %s in share row exclusive mode', w.relation);
                -- now that nobody else can make it: somebody may have
                plan := postrider.plan_watch(relation, asked);
                exit;
            exception when lock_not_available then
                if clock_timestamp() > until then
                    raise exception using errcode = 'lock_not_available', column = 'relation',
                        message = format('relation: %s stays locked', relation),
                        hint = format('wait for the transactions of these processes, or end them: %s',
                            (select string_agg(distinct l.pid::text, ', ') from pg_locks l where l.granted and l.pid <> pg_backend_pid()
                                and (l.relation = watch.relation and l.mode <> 'AccessShareLock' or l.locktype = 'advisory' and l.classid = 7305)));
                end if;
            end;
            perform pg_sleep(0.02 + random() * 0.08);
        end loop;
    end if;
    if plan.state = 'change' then
        perform postrider.try_expressions(plan);
        foreach step in array plan.statements loop
            execute step;
        end loop;
    end if;
    perform postrider.note_watch(relation, asked);
    return plan.state = 'change';
end $$;


--
-- Name: watch_base(oid); Type: FUNCTION; Schema: postrider; Owner: -
--

CREATE FUNCTION postrider.watch_base(relation oid) RETURNS text
    LANGUAGE sql STABLE STRICT
    SET search_path TO 'pg_catalog', 'pg_temp'
    RETURN (SELECT btrim((CASE WHEN (n.nspname <> 'public'::name) THEN (regexp_replace(lower((n.nspname)::text), '[^a-z0-9_-]+'::text, '_'::text, 'g'::text) || '.'::text) ELSE ''::text END || regexp_replace(lower((c.relname)::text), '[^a-z0-9_-]+'::text, '_'::text, 'g'::text)), '.'::text) AS btrim FROM (pg_class c JOIN pg_namespace n ON ((n.oid = c.relnamespace))) WHERE (c.oid = watch_base.relation));


--
-- Name: watch_faults(postrider.watch, pg_class, text); Type: FUNCTION; Schema: postrider; Owner: -
--

CREATE FUNCTION postrider.watch_faults(w postrider.watch, c pg_class, label text) RETURNS TABLE(severity text, problem text, says text, remedy text)
    LANGUAGE plpgsql STABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $_$
declare
    key text[] := (postrider.watch_key(c.oid)).columns;
    p pg_proc;
    fault text;
    again constant text := 'declare the watch again';
begin
    if c.relispartition then
        return query select 'critical', 'attached', 'the table became a partition: what is written through its parent is not seen',
            format('end this watch, and watch %s', pg_partition_root(c.oid));
    end if;
    if to_regclass(w.relation) is null then
        return query select 'warning', 'renamed', format('the table is called %s now', c.oid::regclass), again;
    end if;
    if key is distinct from w.key_columns then
        return query select 'critical', 'key', format('its key was (%s) and is (%s)', array_to_string(w.key_columns, ', '),
            coalesce(array_to_string(key, ', '), 'none')), case when key is null then 'give it a primary key, and ' else '' end || again;
    end if;
    return query select 'critical', 'column', format('column %I is gone, or called otherwise: writes to the table fail', u), again || ' with the columns that there are'
        from unnest(w.columns) u
       where not exists (select from pg_attribute a where a.attrelid = c.oid and a.attname = u and a.attnum > 0 and not a.attisdropped);
    return query select 'critical', 'type', format('type %L is not declared any more: writes to the table fail', t.value), 'declare the type'
        from json_each_text(w.types) t where not exists (select from postrider.event_type e where e.name = t.value);
    if not has_schema_privilege(c.relowner, 'postrider', 'usage')
       or not has_function_privilege(c.relowner, 'postrider.record_rows(text[], text[], text[], json[], json[], boolean)', 'execute')
    then
        return query select 'critical', 'right', format('%s, who owns the table, may not record events: writes to the table fail', c.relowner::regrole),
            format('grant usage on schema postrider to %1$s; grant execute on function postrider.record_rows to %1$s', c.relowner::regrole);
    end if;
    select f.* into p from pg_proc f where f.pronamespace = c.relnamespace and f.proname = label and f.pronargs = 0;
    fault := postrider.watch_function_fault(p, c.relowner,
        case when key is not distinct from w.key_columns and to_regclass(w.relation) is not null then postrider.watch_source(w) else p.prosrc end,
        postrider.watch_settings(w));
    if fault is not null then
        return query select 'critical', 'function', format('the function %I is not as it was made: %s', label, fault), again;
    end if;
    return query select 'critical', 'trigger', format('the trigger %I is missing, switched off or altered', label || '_' || o), again
        from unnest(w.operations) o where not postrider.watch_trigger_stands(c.oid, label, o, coalesce(p.oid, 0));
end $_$;


--
-- Name: watch_function_fault(pg_proc, oid, text, text[]); Type: FUNCTION; Schema: postrider; Owner: -
--

CREATE FUNCTION postrider.watch_function_fault(p pg_proc, table_owner oid, source text, settings text[]) RETURNS text
    LANGUAGE sql STABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    RETURN CASE WHEN ((p).oid IS NULL) THEN 'missing'::text WHEN ((p).proowner <> table_owner) THEN 'owner'::text WHEN (((p).prosrc <> source) OR ((p).proconfig IS DISTINCT FROM settings) OR (NOT (p).prosecdef) OR ((p).prolang <> (SELECT l.oid FROM pg_language l WHERE (l.lanname = 'plpgsql'::name)))) THEN 'altered'::text WHEN (EXISTS (SELECT FROM aclexplode(COALESCE((watch_function_fault.p).proacl, acldefault('f'::"char", (watch_function_fault.p).proowner))) a(grantor, grantee, privilege_type, is_grantable) WHERE (a.grantee <> (watch_function_fault.p).proowner))) THEN 'granted'::text ELSE NULL::text END;


--
-- Name: watch_holes(pg_class); Type: FUNCTION; Schema: postrider; Owner: -
--

CREATE FUNCTION postrider.watch_holes(c pg_class) RETURNS TABLE(problem text, says text, remedy text)
    LANGUAGE plpgsql STABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $_$
begin
    return query
        select 'partition', format('%s may be written directly by %s, which is not seen', f.relid, string_agg(distinct g.grantee::regrole::text, ', ')),
               format('write through %s, or take that right away: revoke insert, update, delete, truncate on %s from …', c.oid::regclass, f.relid)
          from (select t.relid from pg_partition_tree(c.oid) t where t.level > 0
                union select i.inhrelid::regclass from pg_inherits i where i.inhparent = c.oid) f join pg_class l on l.oid = f.relid
         cross join lateral aclexplode(l.relacl) g
         where g.grantee not in (0, l.relowner) and g.privilege_type in ('INSERT', 'UPDATE', 'DELETE', 'TRUNCATE')
         group by f.relid;
    return query
        select 'logical', format('a subscription of logical replication writes %s, which is not seen', c.oid::regclass),
               'watch the table where it is written, on the publisher'
         where exists (select from pg_subscription_rel r where r.srrelid in (select c.oid union select f.relid from pg_partition_tree(c.oid) f));
    return query
        select 'replica', format('sessions of %s fire no triggers: %s', coalesce(nullif(s.setrole, 0)::regrole::text, 'every role'), x),
               'reset session_replication_role there, or write as somebody else'
          from pg_db_role_setting s cross join lateral unnest(s.setconfig) x
         where s.setdatabase in (0, (select d.oid from pg_database d where d.datname = current_database()))
           and x ~* '^session_replication_role=replica$';
    return query
        select 'unlogged', format('%s is unlogged: a crash empties it, which is not seen', c.oid::regclass), format('alter table %s set logged', c.oid::regclass)
         where c.relpersistence = 'u';
end $_$;


--
-- Name: watch_image(text, text[]); Type: FUNCTION; Schema: postrider; Owner: -
--

CREATE FUNCTION postrider.watch_image(side text, columns text[]) RETURNS text
    LANGUAGE sql IMMUTABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    RETURN CASE WHEN (columns IS NULL) THEN format('row_to_json(%s."postrider: row")'::text, side) ELSE (SELECT format('row_to_json((select "postrider: image" from (select %s) as "postrider: image"))'::text, string_agg(format('%s.%I'::text, watch_image.side, c.c), ', '::text)) AS format FROM unnest(watch_image.columns) c(c)) END;


--
-- Name: watch_key(oid); Type: FUNCTION; Schema: postrider; Owner: -
--

CREATE FUNCTION postrider.watch_key(relation oid) RETURNS postrider.table_key
    LANGUAGE sql STABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    RETURN (SELECT ROW(array_agg((a.attname)::text ORDER BY k.n), array_agg(format('operator(%I.%s)'::text, s.nspname, o.oprname) ORDER BY k.n))::postrider.table_key AS "row" FROM ((((((pg_index i CROSS JOIN LATERAL UNNEST((i.indkey)::smallint[], (i.indclass)::oid[]) WITH ORDINALITY k(attnum, opclass, n)) JOIN pg_attribute a ON (((a.attrelid = i.indrelid) AND (a.attnum = k.attnum)))) JOIN pg_opclass c ON ((c.oid = k.opclass))) JOIN pg_amop m ON (((m.amopfamily = c.opcfamily) AND (m.amoplefttype = c.opcintype) AND (m.amoprighttype = c.opcintype) AND (m.amopstrategy = 3) AND (m.amopmethod = c.opcmethod)))) JOIN pg_operator o ON ((o.oid = m.amopopr))) JOIN pg_namespace s ON ((s.oid = o.oprnamespace))) WHERE ((i.indrelid = watch_key.relation) AND i.indisprimary AND i.indisvalid AND (k.n <= i.indnkeyatts)));


--
-- Name: watch_query(postrider.watch, text); Type: FUNCTION; Schema: postrider; Owner: -
--

CREATE FUNCTION postrider.watch_query(w postrider.watch, operation text) RETURNS text
    LANGUAGE plpgsql STABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $_$
declare
    key postrider.table_key := postrider.watch_key(w.relid);
    updates boolean := operation = 'update';
    here text := case operation when 'delete' then 'old' else 'new' end;
    value text := case when updates then 'coalesce(new.%1$I, old.%1$I)' else here || '.%1$I' end;
    rows_of text := '(select "postrider: r".*, "postrider: r" as "postrider: row"' || case when updates then ', row_number() over () as "postrider: n"' else '' end
        || ' from %s_rows as "postrider: r") as %s';
    shown text[];
    label text;
    data text;
    big text;
    changed text;
    key_json text;
begin
    if w.columns is not null then
        shown := array(select c from unnest(key.columns || w.columns) with ordinality u (c, n) group by c order by min(n));
    end if;
    -- the parts of a key stay apart
    select quote_literal(postrider.watch_base(w.relid) || '/') || ' || '
           || string_agg(format(case cardinality(key.columns) when 1 then '%s::text'
                  else $q$replace(replace(%s::text, '%%', '%%25'), '/', '%%2F')$q$ end, format(value, c)), $q$ || '/' || $q$ order by n),
           format('json_build_object(%s)', string_agg(format('%L, %s', c, format(value, c)), ', ' order by n))
      into label, key_json from unnest(key.columns) with ordinality u (c, n);
    data := format($q$json_build_object('%s', %s)$q$, here, postrider.watch_image(here, shown));
    if w.data is not null then
        data := format(E'coalesce((\n%s\n)::json, \'null\')', w.data);
    elsif updates then
        data := format($q$case when new."postrider: n" is null then json_build_object('old', %2$s)
            when old."postrider: n" is null then json_build_object('new', %1$s)
            else json_build_object('old', %2$s, 'new', %1$s) end$q$,
            postrider.watch_image('new', shown), postrider.watch_image('old', shown));
    end if;
    -- what is larger than an event can be, even while it is compressed, is not made into one first
    if w.data is null then
        select string_agg(case when shown is null then format('coalesce(pg_column_size(%s."postrider: row"), 0)', side)
                   else (select string_agg(format('coalesce(pg_column_size(%s.%I), 0)', side, c), ' + ') from unnest(shown) c) end, ' + ')
          into big from unnest(case when updates then array['old', 'new'] else array[here] end) side;
        data := format('case when %s <= 262144 then %s end', big, data);
    end if;
    if updates then
        changed := case when w.columns is null then 'new."postrider: row" *<> old."postrider: row"'
            else (select format('row (%s)::record *<> row (%s)::record', string_agg(format('new.%I', c), ', '), string_agg(format('old.%I', c), ', '))
                    from unnest(w.columns) c) end;
        changed := format('(old."postrider: n" is null or new."postrider: n" is null or %s)', changed);
    end if;
    return format(E'select %s as type,\n%s as subject,\n%s as owner,\n%s as data,\n%s as key\n  from ',
            case when updates then format('case when new."postrider: n" is null then %L when old."postrider: n" is null then %L else %L end',
                     w.types ->> 'delete', w.types ->> 'insert', w.types ->> 'update') else quote_literal(w.types ->> operation) end,
            case when w.subject is null then label else format(E'coalesce(nullif((\n%s\n)::text, \'\'), %s)', w.subject, label) end,
            case when w.owner is null then $q$''$q$ else format(E'coalesce((\n%s\n)::text, \'\')', w.owner) end, data, key_json)
        || case when updates then format(rows_of, 'old', 'old') || ' full join ' || format(rows_of, 'new', 'new') || ' on '
                    || (select string_agg(format('new.%1$I %2$s old.%1$I', c, e), ' and ') from unnest(key.columns, key.equals) u (c, e))
                -- without expressions nobody asks for the other side
                when coalesce(w.condition, w.subject, w.data, w.owner) is null then format(rows_of, here, here)
                else format(rows_of, here, here) || ' left join ' || format(rows_of, here, case here when 'new' then 'old' else 'new' end)
                    || ' on false' end
        || coalesce(E'\n where ' || nullif(concat_ws(' and ', changed, E'(\n' || w.condition || E'\n)'), ''), '')
        || case when updates then E'\n order by coalesce(new."postrider: n", old."postrider: n"), new."postrider: n" is not null' else '' end;
end $_$;


--
-- Name: watch_settings(postrider.watch); Type: FUNCTION; Schema: postrider; Owner: -
--

CREATE FUNCTION postrider.watch_settings(w postrider.watch) RETURNS text[]
    LANGUAGE sql IMMUTABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    RETURN (ARRAY['search_path=pg_catalog, pg_temp'::text, 'TimeZone=UTC'::text, 'DateStyle=iso, mdy'::text, 'IntervalStyle=postgres'::text, 'bytea_output=hex'::text, 'extra_float_digits=1'::text, 'jit=off'::text] || CASE WHEN (COALESCE((w).condition, (w).subject, (w).data, (w).owner) IS NULL) THEN '{}'::text[] ELSE ARRAY['standard_conforming_strings=on'::text, 'transform_null_equals=off'::text] END);


--
-- Name: watch_source(postrider.watch); Type: FUNCTION; Schema: postrider; Owner: -
--

CREATE FUNCTION postrider.watch_source(w postrider.watch) RETURNS text
    LANGUAGE plpgsql STABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $_$
declare
    flush text := 'perform postrider.record_rows(types, subjects, owners, datas, keys%s);';
    body text := '';
    operation text;
begin
    foreach operation in array w.operations loop
        if operation = 'truncate' then
            body := body || format($q$
    if tg_op = 'TRUNCATE' then
        perform postrider.record_rows(array[%L], array[%L], array[''], array[json_build_object('table', %L)], array[null::json]);
        return null;
    end if;$q$, w.types ->> 'truncate', postrider.watch_base(w.relid), w.relation);
        else
            body := body || format($q$
    if tg_op = %1$L then
        for change in
%2$s
        loop
            if n = 1000 or bytes > 1000000 then
                %3$s
                types := '{}'; subjects := '{}'; owners := '{}'; datas := '{}'; keys := '{}';
                n := 0; bytes := 0;
            end if;
            n := n + 1;
            bytes := bytes + coalesce(octet_length(change.data::text), 0);
            types[n] := change.type; subjects[n] := change.subject; owners[n] := change.owner;
            datas[n] := change.data; keys[n] := change.key;
        end loop;
    end if;$q$, upper(operation), postrider.watch_query(w, operation), format(flush, ', false'));
        end if;
    end loop;
    return format($q$
-- Written by postrider.watch for %1$s; do not edit: declare it again.
#variable_conflict use_column
declare
    change record;
    types text[]; subjects text[]; owners text[]; datas json[]; keys json[];
    n int := 0;
    bytes bigint := 0;
begin%2$s
    if n > 0 then
        %3$s
    end if;
    return null;
end $q$, to_json(w.name), body, format(flush, ''));
end $_$;


--
-- Name: watch_statements(postrider.watch, name, oid); Type: FUNCTION; Schema: postrider; Owner: -
--

CREATE FUNCTION postrider.watch_statements(w postrider.watch, schema name, table_owner oid) RETURNS text[]
    LANGUAGE plpgsql STABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
declare
    label text := postrider.watch_label(w.name);
    fn text := format('%I.%I', schema, label);
    p pg_proc;
    fault text;
    operation text;
    todo text[] := '{}';
begin
    select * into p from pg_proc f where f.oid = to_regprocedure(fn || '()');
    fault := postrider.watch_function_fault(p, table_owner, postrider.watch_source(w), postrider.watch_settings(w));
    if fault is not null then
        if p.oid is not null then
            todo := todo || format('alter function %s() owner to %s', fn, table_owner::regrole);
        end if;
        todo := todo || format('create or replace function %s() returns trigger language plpgsql security definer %s as %L', fn,
            (select string_agg(format('set %I = %s', split_part(s, '=', 1),
                        case when s like 'DateStyle%' or s like 'search_path%' then split_part(s, '=', 2)
                             else quote_literal(split_part(s, '=', 2)) end), ' ' order by n)
               from unnest(postrider.watch_settings(w)) with ordinality u (s, n)), postrider.watch_source(w))
            || format('alter function %s() owner to %s', fn, table_owner::regrole)
            || format('revoke all on function %s() from public', fn)
            || array(select format('revoke all on function %s() from %s', fn, a.grantee::regrole)
                       from aclexplode(p.proacl) a where a.grantee not in (0, table_owner));
    end if;
    foreach operation in array array['insert', 'update', 'delete', 'truncate'] loop
        if operation <> all (w.operations) then
            todo := todo || array(select format('drop trigger %I on %s', t.tgname, w.relation)
                from pg_trigger t where t.tgrelid = w.relid and t.tgname = label || '_' || operation);
        elsif p.oid is null or not postrider.watch_trigger_stands(w.relid, label, operation, p.oid) then
            todo := todo || format('create or replace trigger %I after %s on %s%s for each statement execute function %s()',
                label || '_' || operation, operation, w.relation, case operation when 'insert' then ' referencing new table as new_rows'
                    when 'update' then ' referencing old table as old_rows new table as new_rows'
                    when 'delete' then ' referencing old table as old_rows' else '' end, fn)
                -- what replaces a trigger that is switched off is switched off
                || format('alter table %s enable trigger %I', w.relation, label || '_' || operation);
        end if;
    end loop;
    return todo;
end $$;


--
-- Name: watch_trigger_stands(oid, text, text, oid); Type: FUNCTION; Schema: postrider; Owner: -
--

CREATE FUNCTION postrider.watch_trigger_stands(relation oid, label text, operation text, calls oid) RETURNS boolean
    LANGUAGE sql STABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    RETURN (EXISTS (SELECT FROM (pg_trigger t JOIN (VALUES ('insert'::text,4,NULL::text,'new_rows'::text), ('update'::text,16,'old_rows'::text,'new_rows'::text), ('delete'::text,8,'old_rows'::text,NULL::text), ('truncate'::text,32,NULL::text,NULL::text)) e(operation, "bit", old_rows, new_rows) ON ((e.operation = watch_trigger_stands.operation))) WHERE ((t.tgrelid = watch_trigger_stands.relation) AND (t.tgname = ((watch_trigger_stands.label || '_'::text) || e.operation)) AND (t.tgfoid = watch_trigger_stands.calls) AND (t.tgtype = e."bit") AND (t.tgenabled = ANY (ARRAY['O'::"char", 'A'::"char"])) AND (t.tgqual IS NULL) AND (NOT t.tgisinternal) AND (t.tgnargs = 0) AND (NOT (t.tgoldtable IS DISTINCT FROM (e.old_rows)::name)) AND (NOT (t.tgnewtable IS DISTINCT FROM (e.new_rows)::name)))));


--
-- Name: watch_writes(text, smallint, bigint); Type: FUNCTION; Schema: postrider; Owner: -
--

CREATE FUNCTION postrider.watch_writes(child text, class smallint, first bigint) RETURNS boolean
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET lock_timeout TO '50ms'
    AS $$
begin
    if exists (select from pg_trigger t where t.tgrelid = format('postrider.%I', child)::regclass and t.tgname = 'note_written') then
        return false;
    end if;
    execute format('create trigger note_written after insert or update on postrider.%I
        for each row execute function postrider.note_written(%s, %s)', child, class, first);
    return true;
end $$;


--
-- Name: watches(); Type: FUNCTION; Schema: postrider; Owner: -
--

CREATE FUNCTION postrider.watches() RETURNS TABLE(name text, relation text, key_columns text[], columns text[], operations text[], types json, condition text, subject text, data text, owner text, declared_by text, generation bigint, created_at timestamp with time zone, seen_at timestamp with time zone)
    LANGUAGE sql STABLE SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    BEGIN ATOMIC
 SELECT w.name,
     w.relation,
     w.key_columns,
     w.columns,
     w.operations,
     w.types,
     w.condition,
     w.subject,
     w.data,
     w.owner,
     w.declared_by,
     w.generation,
     w.created_at,
     w.seen_at
    FROM postrider.watch w
   ORDER BY w.name;
END;


--
-- Name: webhook_figures(); Type: FUNCTION; Schema: postrider; Owner: -
--

CREATE FUNCTION postrider.webhook_figures() RETURNS TABLE(name text, unit text, attribute text, value bigint)
    LANGUAGE sql STABLE SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
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


--
-- Name: who_would_get(text, text, json, text); Type: FUNCTION; Schema: postrider; Owner: -
--

CREATE FUNCTION postrider.who_would_get(type text, subject text, data json DEFAULT '{}'::json, owner text DEFAULT ''::text) RETURNS TABLE(id bigint, name text, url text, state text)
    LANGUAGE sql STABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
    select e.id, e.name, e.url, e.state
      from postrider.endpoints_for(who_would_get.type, who_would_get.subject, who_would_get.data, who_would_get.owner) e
     where (select s.inside from postrider.ask_scope(e.labels, who_would_get.owner, who_would_get.type, who_would_get.subject,
                                                     who_would_get.data) s)
     order by e.id
$$;


--
-- Name: without_held(text[]); Type: FUNCTION; Schema: postrider; Owner: -
--

CREATE FUNCTION postrider.without_held(kinds text[]) RETURNS text[]
    LANGUAGE sql STABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    RETURN ARRAY(SELECT k.k FROM unnest(without_held.kinds) k(k) WHERE (NOT postrider.is_held(k.k)));


--
-- Name: without_refused(bigint, json, json); Type: FUNCTION; Schema: postrider; Owner: -
--

CREATE FUNCTION postrider.without_refused(no bigint, matched json, refused json, OUT matched_left json, OUT aside integer) RETURNS record
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
declare
    r record;
begin
    aside := 0;
    for r in select (x ->> 'seq')::bigint as seq, (x ->> 'subscription')::bigint as subscription, x ->> 'error' as error
               from json_array_elements(refused) x
              where exists (select from json_array_elements(matched -> 'jobs') j
                             where j ->> 'seq' = x ->> 'seq' and j ->> 'subscription' = x ->> 'subscription')
    loop
        perform postrider.set_aside(r.seq, r.subscription, no, '', coalesce(r.error, ''));
        aside := aside + 1;
    end loop;
    matched_left := json_build_object('events', matched -> 'events', 'jobs', (
        select coalesce(json_agg(j), '[]') from json_array_elements(matched -> 'jobs') j
         where not exists (select from json_array_elements(refused) x
                            where j ->> 'seq' = x ->> 'seq' and j ->> 'subscription' = x ->> 'subscription')));
end $$;


--
-- Name: xid_gaps(xid8, xid8, xid8[]); Type: FUNCTION; Schema: postrider; Owner: -
--

CREATE FUNCTION postrider.xid_gaps(first xid8, beyond xid8, without xid8[], OUT above xid8, OUT below xid8) RETURNS SETOF record
    LANGUAGE sql IMMUTABLE
    BEGIN ATOMIC
 SELECT x.above,
     x.below
    FROM UNNEST((ARRAY[(((((xid_gaps.first)::text)::bigint - 1))::text)::xid8] || ARRAY( SELECT w.w
            FROM unnest(xid_gaps.without) w(w)
           WHERE (w.w >= xid_gaps.first))), (ARRAY( SELECT w.w
            FROM unnest(xid_gaps.without) w(w)
           WHERE (w.w >= xid_gaps.first)) || ARRAY[xid_gaps.beyond])) x(above, below);
END;


--
-- Name: attempt; Type: TABLE; Schema: postrider; Owner: -
--

CREATE TABLE postrider.attempt (
    class smallint NOT NULL,
    id bigint NOT NULL,
    lease bigint NOT NULL,
    attempt smallint NOT NULL,
    outcome smallint NOT NULL,
    started_at timestamp with time zone NOT NULL,
    ended_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    error text
)
PARTITION BY RANGE (class, id);


--
-- Name: backlog_id_seq; Type: SEQUENCE; Schema: postrider; Owner: -
--

ALTER TABLE postrider.backlog ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME postrider.backlog_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);


--
-- Name: deleted; Type: TABLE; Schema: postrider; Owner: -
--

CREATE TABLE postrider.deleted (
    id bigint NOT NULL,
    created_at timestamp with time zone NOT NULL,
    deleted_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL
);


--
-- Name: delivery_replay_id_seq; Type: SEQUENCE; Schema: postrider; Owner: -
--

ALTER TABLE postrider.delivery_replay ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME postrider.delivery_replay_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);


--
-- Name: discarded; Type: TABLE; Schema: postrider; Owner: -
--

CREATE TABLE postrider.discarded (
    at timestamp with time zone NOT NULL,
    kind text NOT NULL COLLATE pg_catalog."C",
    n bigint NOT NULL
);


--
-- Name: duty; Type: TABLE; Schema: postrider; Owner: -
--

CREATE TABLE postrider.duty (
    name text NOT NULL,
    done_at timestamp with time zone,
    took_ms bigint,
    told json,
    failing_since timestamp with time zone,
    error text
);


--
-- Name: end_seen; Type: TABLE; Schema: postrider; Owner: -
--

CREATE TABLE postrider.end_seen (
    finished_at timestamp with time zone NOT NULL,
    id bigint NOT NULL
);


--
-- Name: endpoint; Type: TABLE; Schema: postrider; Owner: -
--

CREATE TABLE postrider.endpoint (
    id bigint NOT NULL,
    subscription bigint NOT NULL,
    name text NOT NULL,
    owner text DEFAULT ''::text NOT NULL COLLATE pg_catalog."C",
    url text NOT NULL,
    types text[] NOT NULL,
    labels json DEFAULT '{}'::json NOT NULL,
    max_in_flight smallint DEFAULT 5 NOT NULL,
    rate_starts integer,
    rate_per interval,
    format smallint DEFAULT 1 NOT NULL,
    schedule text,
    steps_ms bigint[],
    timeout_ms integer NOT NULL,
    max_attempts smallint NOT NULL,
    on_4xx text DEFAULT 'retry'::text NOT NULL,
    answer_contains text,
    headers bytea,
    headers_key text,
    header_names text[] DEFAULT '{}'::text[] NOT NULL,
    revision integer DEFAULT 1 NOT NULL,
    created_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    enabled_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    disabled_at timestamp with time zone,
    disabled_reason text,
    disabled_evidence json,
    deleted_at timestamp with time zone,
    cleared_at timestamp with time zone,
    CONSTRAINT a_disabled_endpoint_says_why CHECK (((disabled_at IS NULL) = (disabled_reason IS NULL))),
    CONSTRAINT a_rate_has_starts_and_a_period CHECK (((rate_starts IS NULL) = (rate_per IS NULL))),
    CONSTRAINT headers_have_a_key CHECK (((headers IS NULL) = (headers_key IS NULL))),
    CONSTRAINT max_attempts_is_1_to_18 CHECK (((max_attempts >= 1) AND (max_attempts <= 18))),
    CONSTRAINT max_in_flight_is_1_to_32 CHECK (((max_in_flight >= 1) AND (max_in_flight <= 32))),
    CONSTRAINT on_4xx_is_retry_or_discard CHECK ((on_4xx = ANY (ARRAY['retry'::text, 'discard'::text]))),
    CONSTRAINT timeout_is_1_to_60_seconds CHECK (((timeout_ms >= 1000) AND (timeout_ms <= 60000)))
);


--
-- Name: endpoint_id; Type: SEQUENCE; Schema: postrider; Owner: -
--

CREATE SEQUENCE postrider.endpoint_id
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;


--
-- Name: endpoint_secret; Type: TABLE; Schema: postrider; Owner: -
--

CREATE TABLE postrider.endpoint_secret (
    id uuid NOT NULL,
    endpoint bigint NOT NULL,
    kind text NOT NULL,
    sealed bytea NOT NULL,
    key_id text NOT NULL,
    valid_from timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    valid_until timestamp with time zone,
    CONSTRAINT a_secret_ends_after_it_begins CHECK ((valid_until >= valid_from)),
    CONSTRAINT kind_is_v1_or_v1a CHECK ((kind = ANY (ARRAY['v1'::text, 'v1a'::text])))
);


--
-- Name: epoch; Type: TABLE; Schema: postrider; Owner: -
--

CREATE TABLE postrider.epoch (
    unit text NOT NULL,
    epoch bigint NOT NULL,
    started_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    CONSTRAINT unit_is_event_or_job CHECK ((unit = ANY (ARRAY['event'::text, 'job'::text])))
);


--
-- Name: erased; Type: TABLE; Schema: postrider; Owner: -
--

CREATE TABLE postrider.erased (
    seq bigint NOT NULL,
    data_sha256 bytea NOT NULL,
    at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    reason text NOT NULL
);


--
-- Name: event_done; Type: TABLE; Schema: postrider; Owner: -
--

CREATE TABLE postrider.event_done (
    epoch bigint NOT NULL,
    job_epoch bigint NOT NULL
);


--
-- Name: event_epoch; Type: SEQUENCE; Schema: postrider; Owner: -
--

CREATE SEQUENCE postrider.event_epoch
    START WITH 0
    INCREMENT BY 1
    MINVALUE 0
    MAXVALUE 65535
    CACHE 1;


--
-- Name: event_number; Type: SEQUENCE; Schema: postrider; Owner: -
--

CREATE SEQUENCE postrider.event_number
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    MAXVALUE 70368744177663
    CACHE 1;


--
-- Name: event_type; Type: TABLE; Schema: postrider; Owner: -
--

CREATE TABLE postrider.event_type (
    name text NOT NULL COLLATE pg_catalog."C",
    description text DEFAULT ''::text NOT NULL,
    exposure text DEFAULT 'internal'::text NOT NULL,
    subject text,
    subject_fits text,
    validation text DEFAULT 'off'::text NOT NULL,
    version integer,
    versions integer[] DEFAULT '{}'::integer[] NOT NULL,
    deprecated_on date,
    deprecated_note text DEFAULT ''::text NOT NULL,
    replaced_by text,
    declared_by text NOT NULL,
    generation bigint DEFAULT 0 NOT NULL,
    seen_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    CONSTRAINT exposure_is_internal_or_public CHECK ((exposure = ANY (ARRAY['internal'::text, 'public'::text]))),
    CONSTRAINT validation_is_off_warn_or_enforce CHECK ((validation = ANY (ARRAY['off'::text, 'warn'::text, 'enforce'::text]))),
    CONSTRAINT what_is_validated_has_a_version CHECK (((validation = 'off'::text) OR (version IS NOT NULL)))
);


--
-- Name: failed; Type: TABLE; Schema: postrider; Owner: -
--

CREATE TABLE postrider.failed (
    class smallint NOT NULL,
    id bigint NOT NULL,
    lease bigint NOT NULL
)
WITH (autovacuum_vacuum_scale_factor='0.02', autovacuum_vacuum_threshold='2000');


--
-- Name: idempotency; Type: TABLE; Schema: postrider; Owner: -
--

CREATE TABLE postrider.idempotency (
    owner text NOT NULL,
    key text NOT NULL,
    event_id uuid NOT NULL,
    until timestamp with time zone NOT NULL
);


--
-- Name: joined_cuts; Type: TABLE; Schema: postrider; Owner: -
--

CREATE TABLE postrider.joined_cuts (
    one boolean DEFAULT true NOT NULL,
    no bigint NOT NULL,
    CONSTRAINT there_is_one_mark CHECK (one)
);


--
-- Name: lane_call; Type: TABLE; Schema: postrider; Owner: -
--

CREATE TABLE postrider.lane_call (
    queue text NOT NULL,
    key text NOT NULL COLLATE pg_catalog."C",
    low bigint DEFAULT 0 NOT NULL
);


--
-- Name: lease_id; Type: SEQUENCE; Schema: postrider; Owner: -
--

CREATE SEQUENCE postrider.lease_id
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;


--
-- Name: migration; Type: TABLE; Schema: postrider; Owner: -
--

CREATE TABLE postrider.migration (
    number integer NOT NULL,
    name text NOT NULL,
    sha256 text NOT NULL,
    applied_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL
);


--
-- Name: partitioned; Type: TABLE; Schema: postrider; Owner: -
--

CREATE TABLE postrider.partitioned (
    name text NOT NULL,
    unit text NOT NULL,
    CONSTRAINT unit_is_event_or_job CHECK ((unit = ANY (ARRAY['event'::text, 'job'::text])))
);


--
-- Name: pinned; Type: TABLE; Schema: postrider; Owner: -
--

CREATE TABLE postrider.pinned (
    class smallint NOT NULL,
    first bigint NOT NULL,
    since timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    look_at timestamp with time zone NOT NULL,
    by text NOT NULL,
    kind text,
    n bigint NOT NULL
);


--
-- Name: queue; Type: TABLE; Schema: postrider; Owner: -
--

CREATE TABLE postrider.queue (
    name text NOT NULL,
    paused_at timestamp with time zone
);


--
-- Name: rebase_known; Type: TABLE; Schema: postrider; Owner: -
--

CREATE TABLE postrider.rebase_known (
    event_seq bigint NOT NULL,
    subscription bigint NOT NULL
);


--
-- Name: retention; Type: TABLE; Schema: postrider; Owner: -
--

CREATE TABLE postrider.retention (
    what text NOT NULL,
    keep interval NOT NULL,
    declared_by text DEFAULT ''::text NOT NULL,
    generation bigint DEFAULT '-1'::integer NOT NULL,
    CONSTRAINT keep_is_a_second_to_ten_years CHECK (((keep >= '00:00:01'::interval) AND (keep <= '3660 days'::interval))),
    CONSTRAINT what_is_a_class_or_event CHECK ((what = ANY (ARRAY['short'::text, 'standard'::text, 'long'::text, 'event'::text])))
);


--
-- Name: scope_function; Type: TABLE; Schema: postrider; Owner: -
--

CREATE TABLE postrider.scope_function (
    one boolean DEFAULT true NOT NULL,
    schema text NOT NULL,
    name text NOT NULL,
    declared_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    failures bigint DEFAULT 0 NOT NULL,
    failed_at timestamp with time zone,
    error text,
    CONSTRAINT a_failure_has_a_time_and_an_error CHECK ((((failed_at IS NULL) = (error IS NULL)) AND ((failed_at IS NULL) = (failures = 0)))),
    CONSTRAINT there_is_one_scope_function CHECK (one)
)
WITH (fillfactor='50');


--
-- Name: stranger; Type: TABLE; Schema: postrider; Owner: -
--

CREATE TABLE postrider.stranger (
    name text NOT NULL,
    app text NOT NULL,
    seen_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL
);


--
-- Name: subscription_id_seq; Type: SEQUENCE; Schema: postrider; Owner: -
--

ALTER TABLE postrider.subscription ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME postrider.subscription_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);


--
-- Name: subscription_start_id_seq; Type: SEQUENCE; Schema: postrider; Owner: -
--

ALTER TABLE postrider.subscription_start ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME postrider.subscription_start_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);


--
-- Name: type_mismatch; Type: TABLE; Schema: postrider; Owner: -
--

CREATE TABLE postrider.type_mismatch (
    seq bigint NOT NULL,
    type text NOT NULL COLLATE pg_catalog."C",
    version integer NOT NULL,
    problem text NOT NULL
);


--
-- Name: type_version; Type: TABLE; Schema: postrider; Owner: -
--

CREATE TABLE postrider.type_version (
    type text NOT NULL COLLATE pg_catalog."C",
    version integer NOT NULL,
    schema json NOT NULL,
    example json NOT NULL,
    breaking boolean NOT NULL,
    compiled jsonb NOT NULL,
    declared_by text NOT NULL,
    declared_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    CONSTRAINT version_is_1_to_32767 CHECK (((version >= 1) AND (version <= 32767)))
);


--
-- Name: unsettled; Type: TABLE; Schema: postrider; Owner: -
--

CREATE TABLE postrider.unsettled (
    id bigint NOT NULL
);


--
-- Name: wake_event; Type: SEQUENCE; Schema: postrider; Owner: -
--

CREATE SEQUENCE postrider.wake_event
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;


--
-- Name: wake_job; Type: SEQUENCE; Schema: postrider; Owner: -
--

CREATE SEQUENCE postrider.wake_job
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;


--
-- Name: written; Type: TABLE; Schema: postrider; Owner: -
--

CREATE TABLE postrider.written (
    class smallint NOT NULL,
    first bigint NOT NULL,
    xid xid8 DEFAULT pg_current_xact_id() NOT NULL
);


--
-- Name: endpoint a_subscription_has_one_endpoint; Type: CONSTRAINT; Schema: postrider; Owner: -
--

ALTER TABLE ONLY postrider.endpoint
    ADD CONSTRAINT a_subscription_has_one_endpoint UNIQUE (subscription);


--
-- Name: attempt attempt_pkey; Type: CONSTRAINT; Schema: postrider; Owner: -
--

ALTER TABLE ONLY postrider.attempt
    ADD CONSTRAINT attempt_pkey PRIMARY KEY (class, id, lease);


--
-- Name: backlog backlog_pkey; Type: CONSTRAINT; Schema: postrider; Owner: -
--

ALTER TABLE ONLY postrider.backlog
    ADD CONSTRAINT backlog_pkey PRIMARY KEY (id);


--
-- Name: cut cut_pkey; Type: CONSTRAINT; Schema: postrider; Owner: -
--

ALTER TABLE ONLY postrider.cut
    ADD CONSTRAINT cut_pkey PRIMARY KEY (no);


--
-- Name: deleted deleted_pkey; Type: CONSTRAINT; Schema: postrider; Owner: -
--

ALTER TABLE ONLY postrider.deleted
    ADD CONSTRAINT deleted_pkey PRIMARY KEY (id);


--
-- Name: delivery_attempt delivery_attempt_pkey; Type: CONSTRAINT; Schema: postrider; Owner: -
--

ALTER TABLE ONLY postrider.delivery_attempt
    ADD CONSTRAINT delivery_attempt_pkey PRIMARY KEY (class, id, lease);


--
-- Name: delivery_replay delivery_replay_pkey; Type: CONSTRAINT; Schema: postrider; Owner: -
--

ALTER TABLE ONLY postrider.delivery_replay
    ADD CONSTRAINT delivery_replay_pkey PRIMARY KEY (id);


--
-- Name: discarded discarded_pkey; Type: CONSTRAINT; Schema: postrider; Owner: -
--

ALTER TABLE ONLY postrider.discarded
    ADD CONSTRAINT discarded_pkey PRIMARY KEY (at, kind);


--
-- Name: done done_pkey; Type: CONSTRAINT; Schema: postrider; Owner: -
--

ALTER TABLE ONLY postrider.done
    ADD CONSTRAINT done_pkey PRIMARY KEY (class, id);


--
-- Name: duty duty_pkey; Type: CONSTRAINT; Schema: postrider; Owner: -
--

ALTER TABLE ONLY postrider.duty
    ADD CONSTRAINT duty_pkey PRIMARY KEY (name);


--
-- Name: end_seen end_seen_pkey; Type: CONSTRAINT; Schema: postrider; Owner: -
--

ALTER TABLE ONLY postrider.end_seen
    ADD CONSTRAINT end_seen_pkey PRIMARY KEY (finished_at, id);


--
-- Name: endpoint_health endpoint_health_pkey; Type: CONSTRAINT; Schema: postrider; Owner: -
--

ALTER TABLE ONLY postrider.endpoint_health
    ADD CONSTRAINT endpoint_health_pkey PRIMARY KEY (endpoint);


--
-- Name: endpoint endpoint_pkey; Type: CONSTRAINT; Schema: postrider; Owner: -
--

ALTER TABLE ONLY postrider.endpoint
    ADD CONSTRAINT endpoint_pkey PRIMARY KEY (id);


--
-- Name: endpoint_secret endpoint_secret_pkey; Type: CONSTRAINT; Schema: postrider; Owner: -
--

ALTER TABLE ONLY postrider.endpoint_secret
    ADD CONSTRAINT endpoint_secret_pkey PRIMARY KEY (id);


--
-- Name: endpoint_window endpoint_window_pkey; Type: CONSTRAINT; Schema: postrider; Owner: -
--

ALTER TABLE ONLY postrider.endpoint_window
    ADD CONSTRAINT endpoint_window_pkey PRIMARY KEY (endpoint, slot);


--
-- Name: epoch epoch_pkey; Type: CONSTRAINT; Schema: postrider; Owner: -
--

ALTER TABLE ONLY postrider.epoch
    ADD CONSTRAINT epoch_pkey PRIMARY KEY (unit, epoch);


--
-- Name: erased erased_pkey; Type: CONSTRAINT; Schema: postrider; Owner: -
--

ALTER TABLE ONLY postrider.erased
    ADD CONSTRAINT erased_pkey PRIMARY KEY (seq);


--
-- Name: event_delay event_delay_pkey; Type: CONSTRAINT; Schema: postrider; Owner: -
--

ALTER TABLE ONLY postrider.event_delay
    ADD CONSTRAINT event_delay_pkey PRIMARY KEY (seq);


--
-- Name: event_done event_done_pkey; Type: CONSTRAINT; Schema: postrider; Owner: -
--

ALTER TABLE ONLY postrider.event_done
    ADD CONSTRAINT event_done_pkey PRIMARY KEY (epoch);


--
-- Name: event event_pkey; Type: CONSTRAINT; Schema: postrider; Owner: -
--

ALTER TABLE ONLY postrider.event
    ADD CONSTRAINT event_pkey PRIMARY KEY (seq);


--
-- Name: event_type event_type_pkey; Type: CONSTRAINT; Schema: postrider; Owner: -
--

ALTER TABLE ONLY postrider.event_type
    ADD CONSTRAINT event_type_pkey PRIMARY KEY (name);


--
-- Name: failure failure_pkey; Type: CONSTRAINT; Schema: postrider; Owner: -
--

ALTER TABLE ONLY postrider.failure
    ADD CONSTRAINT failure_pkey PRIMARY KEY (kind, fingerprint);


--
-- Name: held held_pkey; Type: CONSTRAINT; Schema: postrider; Owner: -
--

ALTER TABLE ONLY postrider.held
    ADD CONSTRAINT held_pkey PRIMARY KEY (subscription, start);


--
-- Name: idempotency idempotency_pkey; Type: CONSTRAINT; Schema: postrider; Owner: -
--

ALTER TABLE ONLY postrider.idempotency
    ADD CONSTRAINT idempotency_pkey PRIMARY KEY (owner, key);


--
-- Name: instance instance_pkey; Type: CONSTRAINT; Schema: postrider; Owner: -
--

ALTER TABLE ONLY postrider.instance
    ADD CONSTRAINT instance_pkey PRIMARY KEY (one);


--
-- Name: job job_pkey; Type: CONSTRAINT; Schema: postrider; Owner: -
--

ALTER TABLE ONLY postrider.job
    ADD CONSTRAINT job_pkey PRIMARY KEY (class, id);


--
-- Name: joined_cuts joined_cuts_pkey; Type: CONSTRAINT; Schema: postrider; Owner: -
--

ALTER TABLE ONLY postrider.joined_cuts
    ADD CONSTRAINT joined_cuts_pkey PRIMARY KEY (one);


--
-- Name: key_limit key_limit_pkey; Type: CONSTRAINT; Schema: postrider; Owner: -
--

ALTER TABLE ONLY postrider.key_limit
    ADD CONSTRAINT key_limit_pkey PRIMARY KEY (queue, key);


--
-- Name: kind kind_pkey; Type: CONSTRAINT; Schema: postrider; Owner: -
--

ALTER TABLE ONLY postrider.kind
    ADD CONSTRAINT kind_pkey PRIMARY KEY (name);


--
-- Name: lane lane_pkey; Type: CONSTRAINT; Schema: postrider; Owner: -
--

ALTER TABLE ONLY postrider.lane
    ADD CONSTRAINT lane_pkey PRIMARY KEY (queue, key);


--
-- Name: later later_pkey; Type: CONSTRAINT; Schema: postrider; Owner: -
--

ALTER TABLE ONLY postrider.later
    ADD CONSTRAINT later_pkey PRIMARY KEY (run_at, id);


--
-- Name: lease lease_pkey; Type: CONSTRAINT; Schema: postrider; Owner: -
--

ALTER TABLE ONLY postrider.lease
    ADD CONSTRAINT lease_pkey PRIMARY KEY (id);


--
-- Name: log_epoch log_epoch_pkey; Type: CONSTRAINT; Schema: postrider; Owner: -
--

ALTER TABLE ONLY postrider.log_epoch
    ADD CONSTRAINT log_epoch_pkey PRIMARY KEY (no);


--
-- Name: migration migration_pkey; Type: CONSTRAINT; Schema: postrider; Owner: -
--

ALTER TABLE ONLY postrider.migration
    ADD CONSTRAINT migration_pkey PRIMARY KEY (number);


--
-- Name: parked parked_pkey; Type: CONSTRAINT; Schema: postrider; Owner: -
--

ALTER TABLE ONLY postrider.parked
    ADD CONSTRAINT parked_pkey PRIMARY KEY (queue, key, pos);


--
-- Name: partitioned partitioned_pkey; Type: CONSTRAINT; Schema: postrider; Owner: -
--

ALTER TABLE ONLY postrider.partitioned
    ADD CONSTRAINT partitioned_pkey PRIMARY KEY (name);


--
-- Name: pinned pinned_pkey; Type: CONSTRAINT; Schema: postrider; Owner: -
--

ALTER TABLE ONLY postrider.pinned
    ADD CONSTRAINT pinned_pkey PRIMARY KEY (class, first);


--
-- Name: poison poison_pkey; Type: CONSTRAINT; Schema: postrider; Owner: -
--

ALTER TABLE ONLY postrider.poison
    ADD CONSTRAINT poison_pkey PRIMARY KEY (event_seq, subscription);


--
-- Name: progress progress_pkey; Type: CONSTRAINT; Schema: postrider; Owner: -
--

ALTER TABLE ONLY postrider.progress
    ADD CONSTRAINT progress_pkey PRIMARY KEY (id);


--
-- Name: queue queue_pkey; Type: CONSTRAINT; Schema: postrider; Owner: -
--

ALTER TABLE ONLY postrider.queue
    ADD CONSTRAINT queue_pkey PRIMARY KEY (name);


--
-- Name: ready ready_pkey; Type: CONSTRAINT; Schema: postrider; Owner: -
--

ALTER TABLE ONLY postrider.ready
    ADD CONSTRAINT ready_pkey PRIMARY KEY (queue, priority, share, pos);


--
-- Name: rebase_known rebase_known_pkey; Type: CONSTRAINT; Schema: postrider; Owner: -
--

ALTER TABLE ONLY postrider.rebase_known
    ADD CONSTRAINT rebase_known_pkey PRIMARY KEY (event_seq, subscription);


--
-- Name: rebased rebased_pkey; Type: CONSTRAINT; Schema: postrider; Owner: -
--

ALTER TABLE ONLY postrider.rebased
    ADD CONSTRAINT rebased_pkey PRIMARY KEY (seq);


--
-- Name: retention retention_pkey; Type: CONSTRAINT; Schema: postrider; Owner: -
--

ALTER TABLE ONLY postrider.retention
    ADD CONSTRAINT retention_pkey PRIMARY KEY (what);


--
-- Name: retired retired_pkey; Type: CONSTRAINT; Schema: postrider; Owner: -
--

ALTER TABLE ONLY postrider.retired
    ADD CONSTRAINT retired_pkey PRIMARY KEY (class, first);


--
-- Name: route route_pkey; Type: CONSTRAINT; Schema: postrider; Owner: -
--

ALTER TABLE ONLY postrider.route
    ADD CONSTRAINT route_pkey PRIMARY KEY (type, owner, subscription);


--
-- Name: schedule schedule_pkey; Type: CONSTRAINT; Schema: postrider; Owner: -
--

ALTER TABLE ONLY postrider.schedule
    ADD CONSTRAINT schedule_pkey PRIMARY KEY (name);


--
-- Name: scope_function scope_function_pkey; Type: CONSTRAINT; Schema: postrider; Owner: -
--

ALTER TABLE ONLY postrider.scope_function
    ADD CONSTRAINT scope_function_pkey PRIMARY KEY (one);


--
-- Name: stranger stranger_pkey; Type: CONSTRAINT; Schema: postrider; Owner: -
--

ALTER TABLE ONLY postrider.stranger
    ADD CONSTRAINT stranger_pkey PRIMARY KEY (name, app);


--
-- Name: subscription subscription_name_key; Type: CONSTRAINT; Schema: postrider; Owner: -
--

ALTER TABLE ONLY postrider.subscription
    ADD CONSTRAINT subscription_name_key UNIQUE (name);


--
-- Name: subscription subscription_pkey; Type: CONSTRAINT; Schema: postrider; Owner: -
--

ALTER TABLE ONLY postrider.subscription
    ADD CONSTRAINT subscription_pkey PRIMARY KEY (id);


--
-- Name: subscription_start subscription_start_pkey; Type: CONSTRAINT; Schema: postrider; Owner: -
--

ALTER TABLE ONLY postrider.subscription_start
    ADD CONSTRAINT subscription_start_pkey PRIMARY KEY (id);


--
-- Name: tag tag_pkey; Type: CONSTRAINT; Schema: postrider; Owner: -
--

ALTER TABLE ONLY postrider.tag
    ADD CONSTRAINT tag_pkey PRIMARY KEY (class, id, tag);


--
-- Name: tally tally_pkey; Type: CONSTRAINT; Schema: postrider; Owner: -
--

ALTER TABLE ONLY postrider.tally
    ADD CONSTRAINT tally_pkey PRIMARY KEY (kind, queue, state);


--
-- Name: type_mismatch type_mismatch_pkey; Type: CONSTRAINT; Schema: postrider; Owner: -
--

ALTER TABLE ONLY postrider.type_mismatch
    ADD CONSTRAINT type_mismatch_pkey PRIMARY KEY (seq);


--
-- Name: type_version type_version_pkey; Type: CONSTRAINT; Schema: postrider; Owner: -
--

ALTER TABLE ONLY postrider.type_version
    ADD CONSTRAINT type_version_pkey PRIMARY KEY (type, version);


--
-- Name: uniq uniq_pkey; Type: CONSTRAINT; Schema: postrider; Owner: -
--

ALTER TABLE ONLY postrider.uniq
    ADD CONSTRAINT uniq_pkey PRIMARY KEY (hash);


--
-- Name: watch watch_pkey; Type: CONSTRAINT; Schema: postrider; Owner: -
--

ALTER TABLE ONLY postrider.watch
    ADD CONSTRAINT watch_pkey PRIMARY KEY (name);


--
-- Name: worker worker_pkey; Type: CONSTRAINT; Schema: postrider; Owner: -
--

ALTER TABLE ONLY postrider.worker
    ADD CONSTRAINT worker_pkey PRIMARY KEY (id);


--
-- Name: an_owner_names_an_endpoint_once; Type: INDEX; Schema: postrider; Owner: -
--

CREATE UNIQUE INDEX an_owner_names_an_endpoint_once ON postrider.endpoint USING btree (owner, name) WHERE (deleted_at IS NULL);


--
-- Name: backlog_open; Type: INDEX; Schema: postrider; Owner: -
--

CREATE INDEX backlog_open ON postrider.backlog USING btree (id) WHERE (over_at IS NULL);


--
-- Name: cancellation_of_job; Type: INDEX; Schema: postrider; Owner: -
--

CREATE INDEX cancellation_of_job ON postrider.cancellation USING btree (id);


--
-- Name: cut_of_backlog; Type: INDEX; Schema: postrider; Owner: -
--

CREATE INDEX cut_of_backlog ON postrider.cut USING btree (backlog, part_upto) WHERE (backlog IS NOT NULL);


--
-- Name: cut_of_start; Type: INDEX; Schema: postrider; Owner: -
--

CREATE INDEX cut_of_start ON postrider.cut USING btree (start, part_upto) WHERE (start IS NOT NULL);


--
-- Name: delivered_event; Type: INDEX; Schema: postrider; Owner: -
--

CREATE INDEX delivered_event ON ONLY postrider.delivery_attempt USING btree (endpoint, event) WHERE (outcome = 'delivered'::text);


--
-- Name: delivery_attempt_of_endpoint; Type: INDEX; Schema: postrider; Owner: -
--

CREATE INDEX delivery_attempt_of_endpoint ON ONLY postrider.delivery_attempt USING btree (endpoint, started_at);


--
-- Name: delivery_attempt_recent; Type: INDEX; Schema: postrider; Owner: -
--

CREATE INDEX delivery_attempt_recent ON ONLY postrider.delivery_attempt USING btree (started_at);


--
-- Name: delivery_replay_of_endpoint; Type: INDEX; Schema: postrider; Owner: -
--

CREATE INDEX delivery_replay_of_endpoint ON postrider.delivery_replay USING btree (endpoint);


--
-- Name: endpoint_disabled; Type: INDEX; Schema: postrider; Owner: -
--

CREATE INDEX endpoint_disabled ON postrider.endpoint USING btree (id) WHERE ((disabled_at IS NOT NULL) AND (deleted_at IS NULL));


--
-- Name: endpoint_secret_over; Type: INDEX; Schema: postrider; Owner: -
--

CREATE INDEX endpoint_secret_over ON postrider.endpoint_secret USING btree (valid_until) WHERE (valid_until IS NOT NULL);


--
-- Name: endpoint_uncleared; Type: INDEX; Schema: postrider; Owner: -
--

CREATE INDEX endpoint_uncleared ON postrider.endpoint USING btree (id) WHERE ((deleted_at IS NOT NULL) AND (cleared_at IS NULL));


--
-- Name: endpoint_window_over; Type: INDEX; Schema: postrider; Owner: -
--

CREATE INDEX endpoint_window_over ON postrider.endpoint_window USING btree (slot);


--
-- Name: event_cut; Type: INDEX; Schema: postrider; Owner: -
--

CREATE INDEX event_cut ON ONLY postrider.event USING btree (xid, seq);


--
-- Name: event_delay_due; Type: INDEX; Schema: postrider; Owner: -
--

CREATE INDEX event_delay_due ON postrider.event_delay USING btree (deliver_at, seq) WHERE (ended_at IS NULL);


--
-- Name: given_up; Type: INDEX; Schema: postrider; Owner: -
--

CREATE INDEX given_up ON ONLY postrider.done USING btree (finished_at, id) WHERE (state = 3);


--
-- Name: held_by_start; Type: INDEX; Schema: postrider; Owner: -
--

CREATE INDEX held_by_start ON postrider.held USING btree (start);


--
-- Name: idempotency_expired; Type: INDEX; Schema: postrider; Owner: -
--

CREATE INDEX idempotency_expired ON postrider.idempotency USING btree (until);


--
-- Name: lane_call_key; Type: INDEX; Schema: postrider; Owner: -
--

CREATE INDEX lane_call_key ON postrider.lane_call USING btree (queue, key);


--
-- Name: lane_due; Type: INDEX; Schema: postrider; Owner: -
--

CREATE INDEX lane_due ON postrider.lane USING btree (due_at) WHERE (due_at IS NOT NULL);


--
-- Name: lane_newest; Type: INDEX; Schema: postrider; Owner: -
--

CREATE INDEX lane_newest ON postrider.lane USING btree (queue, key, gen);


--
-- Name: lane_stopped; Type: INDEX; Schema: postrider; Owner: -
--

CREATE INDEX lane_stopped ON postrider.lane USING btree (queue, key) WHERE (stopped_at IS NOT NULL);


--
-- Name: later_moved; Type: INDEX; Schema: postrider; Owner: -
--

CREATE INDEX later_moved ON postrider.later USING btree (id) WHERE (why <> 0);


--
-- Name: lease_limited; Type: INDEX; Schema: postrider; Owner: -
--

CREATE INDEX lease_limited ON postrider.lease USING btree (queue) WHERE (limit_keys IS NOT NULL);


--
-- Name: lease_of_worker; Type: INDEX; Schema: postrider; Owner: -
--

CREATE INDEX lease_of_worker ON postrider.lease USING btree (worker);


--
-- Name: parked_behind; Type: INDEX; Schema: postrider; Owner: -
--

CREATE INDEX parked_behind ON postrider.parked USING btree (key) WHERE ((key !~~ 'order:%'::text) AND (key !~~ 'limit:%'::text));


--
-- Name: parked_job; Type: INDEX; Schema: postrider; Owner: -
--

CREATE INDEX parked_job ON postrider.parked USING btree (id);


--
-- Name: poison_due; Type: INDEX; Schema: postrider; Owner: -
--

CREATE INDEX poison_due ON postrider.poison USING btree (retry_at) WHERE (ended_at IS NULL);


--
-- Name: ready_keyed; Type: INDEX; Schema: postrider; Owner: -
--

CREATE INDEX ready_keyed ON postrider.ready USING btree (queue, priority, share, ((pos + 0))) WHERE (((flags)::integer & 32) <> 0);


--
-- Name: ready_moved; Type: INDEX; Schema: postrider; Owner: -
--

CREATE INDEX ready_moved ON postrider.ready USING btree (id) WHERE (pos <> id);


--
-- Name: ready_strict; Type: INDEX; Schema: postrider; Owner: -
--

CREATE INDEX ready_strict ON postrider.ready USING btree (queue) WHERE (((flags)::integer & 8) <> 0);


--
-- Name: ready_turn; Type: INDEX; Schema: postrider; Owner: -
--

CREATE INDEX ready_turn ON postrider.ready USING btree (queue, order_key, id) WHERE ((((flags)::integer & 34) = 32) AND (pos = id));


--
-- Name: ready_turn_moved; Type: INDEX; Schema: postrider; Owner: -
--

CREATE INDEX ready_turn_moved ON postrider.ready USING btree (queue, order_key, id) WHERE ((((flags)::integer & 34) = 32) AND (pos <> id));


--
-- Name: ready_turned; Type: INDEX; Schema: postrider; Owner: -
--

CREATE INDEX ready_turned ON postrider.ready USING btree (queue, priority, share, ((pos + 0))) WHERE (((flags)::integer & 2) <> 0);


--
-- Name: rebased_by_cut; Type: INDEX; Schema: postrider; Owner: -
--

CREATE INDEX rebased_by_cut ON postrider.rebased USING btree (cut, seq);


--
-- Name: route_coalescing; Type: INDEX; Schema: postrider; Owner: -
--

CREATE INDEX route_coalescing ON postrider.route USING btree (type) WHERE coalescing;


--
-- Name: route_of_subscription; Type: INDEX; Schema: postrider; Owner: -
--

CREATE INDEX route_of_subscription ON postrider.route USING btree (subscription);


--
-- Name: route_reads; Type: INDEX; Schema: postrider; Owner: -
--

CREATE INDEX route_reads ON postrider.route USING btree (type) WHERE reads;


--
-- Name: schedule_due; Type: INDEX; Schema: postrider; Owner: -
--

CREATE INDEX schedule_due ON postrider.schedule USING btree (next_at NULLS FIRST) WHERE ((paused_at IS NULL) AND (problem IS NULL));


--
-- Name: secret_of_endpoint; Type: INDEX; Schema: postrider; Owner: -
--

CREATE INDEX secret_of_endpoint ON postrider.endpoint_secret USING btree (endpoint);


--
-- Name: subscription_starting; Type: INDEX; Schema: postrider; Owner: -
--

CREATE UNIQUE INDEX subscription_starting ON postrider.subscription_start USING btree (subscription) WHERE (over_at IS NULL);


--
-- Name: subscription_walked; Type: INDEX; Schema: postrider; Owner: -
--

CREATE INDEX subscription_walked ON postrider.subscription_start USING btree (walked_at, id) WHERE (over_at IS NULL);


--
-- Name: tag_newest; Type: INDEX; Schema: postrider; Owner: -
--

CREATE INDEX tag_newest ON ONLY postrider.tag USING btree (class, tag, id);


--
-- Name: type_mismatch_of_type; Type: INDEX; Schema: postrider; Owner: -
--

CREATE INDEX type_mismatch_of_type ON postrider.type_mismatch USING btree (type, seq);


--
-- Name: uniq_expired; Type: INDEX; Schema: postrider; Owner: -
--

CREATE INDEX uniq_expired ON postrider.uniq USING btree (until) WHERE (until IS NOT NULL);


--
-- Name: unsettled_job; Type: INDEX; Schema: postrider; Owner: -
--

CREATE INDEX unsettled_job ON postrider.unsettled USING btree (id);


--
-- Name: written_span; Type: INDEX; Schema: postrider; Owner: -
--

CREATE INDEX written_span ON postrider.written USING btree (class, first, xid);


--
-- Name: attempt attempt_failed; Type: TRIGGER; Schema: postrider; Owner: -
--

CREATE TRIGGER attempt_failed AFTER INSERT ON postrider.attempt FOR EACH ROW WHEN ((new.outcome = ANY (ARRAY[2, 3, 4]))) EXECUTE FUNCTION postrider.note_failed();


--
-- Name: backlog backlog_epoch_fkey; Type: FK CONSTRAINT; Schema: postrider; Owner: -
--

ALTER TABLE ONLY postrider.backlog
    ADD CONSTRAINT backlog_epoch_fkey FOREIGN KEY (epoch) REFERENCES postrider.log_epoch(no);


--
-- Name: cut cut_epoch_fkey; Type: FK CONSTRAINT; Schema: postrider; Owner: -
--

ALTER TABLE ONLY postrider.cut
    ADD CONSTRAINT cut_epoch_fkey FOREIGN KEY (epoch) REFERENCES postrider.log_epoch(no);


--
-- Name: endpoint_health endpoint_health_endpoint_fkey; Type: FK CONSTRAINT; Schema: postrider; Owner: -
--

ALTER TABLE ONLY postrider.endpoint_health
    ADD CONSTRAINT endpoint_health_endpoint_fkey FOREIGN KEY (endpoint) REFERENCES postrider.endpoint(id) ON DELETE CASCADE;


--
-- Name: endpoint_secret endpoint_secret_endpoint_fkey; Type: FK CONSTRAINT; Schema: postrider; Owner: -
--

ALTER TABLE ONLY postrider.endpoint_secret
    ADD CONSTRAINT endpoint_secret_endpoint_fkey FOREIGN KEY (endpoint) REFERENCES postrider.endpoint(id) ON DELETE CASCADE;


--
-- Name: route route_subscription_fkey; Type: FK CONSTRAINT; Schema: postrider; Owner: -
--

ALTER TABLE ONLY postrider.route
    ADD CONSTRAINT route_subscription_fkey FOREIGN KEY (subscription) REFERENCES postrider.subscription(id) ON DELETE CASCADE;


--
-- Name: schedule schedule_kind_fkey; Type: FK CONSTRAINT; Schema: postrider; Owner: -
--

ALTER TABLE ONLY postrider.schedule
    ADD CONSTRAINT schedule_kind_fkey FOREIGN KEY (kind) REFERENCES postrider.kind(name);


--
-- Name: subscription subscription_kind_fkey; Type: FK CONSTRAINT; Schema: postrider; Owner: -
--

ALTER TABLE ONLY postrider.subscription
    ADD CONSTRAINT subscription_kind_fkey FOREIGN KEY (kind) REFERENCES postrider.kind(name);


--
-- Name: subscription_start subscription_start_subscription_fkey; Type: FK CONSTRAINT; Schema: postrider; Owner: -
--

ALTER TABLE ONLY postrider.subscription_start
    ADD CONSTRAINT subscription_start_subscription_fkey FOREIGN KEY (subscription) REFERENCES postrider.subscription(id);


--
-- Name: type_version type_version_type_fkey; Type: FK CONSTRAINT; Schema: postrider; Owner: -
--

ALTER TABLE ONLY postrider.type_version
    ADD CONSTRAINT type_version_type_fkey FOREIGN KEY (type) REFERENCES postrider.event_type(name);


--
-- Name: FUNCTION act_on_lane(queue text, order_key text, act text); Type: ACL; Schema: postrider; Owner: -
--

REVOKE ALL ON FUNCTION postrider.act_on_lane(queue text, order_key text, act text) FROM PUBLIC;


--
-- Name: FUNCTION advance_drawn(); Type: ACL; Schema: postrider; Owner: -
--

REVOKE ALL ON FUNCTION postrider.advance_drawn() FROM PUBLIC;


--
-- Name: FUNCTION advance_epoch(unit text); Type: ACL; Schema: postrider; Owner: -
--

REVOKE ALL ON FUNCTION postrider.advance_epoch(unit text) FROM PUBLIC;


--
-- Name: FUNCTION after_special(ids bigint[], alike boolean); Type: ACL; Schema: postrider; Owner: -
--

REVOKE ALL ON FUNCTION postrider.after_special(ids bigint[], alike boolean) FROM PUBLIC;


--
-- Name: FUNCTION alerts(); Type: ACL; Schema: postrider; Owner: -
--

REVOKE ALL ON FUNCTION postrider.alerts() FROM PUBLIC;


--
-- Name: FUNCTION alerts_of_components(); Type: ACL; Schema: postrider; Owner: -
--

REVOKE ALL ON FUNCTION postrider.alerts_of_components() FROM PUBLIC;


--
-- Name: FUNCTION alerts_of_jobs(); Type: ACL; Schema: postrider; Owner: -
--

REVOKE ALL ON FUNCTION postrider.alerts_of_jobs() FROM PUBLIC;


--
-- Name: FUNCTION alerts_of_keeping(); Type: ACL; Schema: postrider; Owner: -
--

REVOKE ALL ON FUNCTION postrider.alerts_of_keeping() FROM PUBLIC;


--
-- Name: FUNCTION alerts_of_relay(); Type: ACL; Schema: postrider; Owner: -
--

REVOKE ALL ON FUNCTION postrider.alerts_of_relay() FROM PUBLIC;


--
-- Name: FUNCTION alerts_of_server(long interval); Type: ACL; Schema: postrider; Owner: -
--

REVOKE ALL ON FUNCTION postrider.alerts_of_server(long interval) FROM PUBLIC;


--
-- Name: FUNCTION append_cut(last postrider.cut, new postrider.cut, s postrider.slice, how postrider.pass, answer postrider.relayed); Type: ACL; Schema: postrider; Owner: -
--

REVOKE ALL ON FUNCTION postrider.append_cut(last postrider.cut, new postrider.cut, s postrider.slice, how postrider.pass, answer postrider.relayed) FROM PUBLIC;


--
-- Name: FUNCTION apply_endpoint_limit(id bigint); Type: ACL; Schema: postrider; Owner: -
--

REVOKE ALL ON FUNCTION postrider.apply_endpoint_limit(id bigint) FROM PUBLIC;


--
-- Name: FUNCTION array_error(schema jsonb, value jsonb, at text); Type: ACL; Schema: postrider; Owner: -
--

REVOKE ALL ON FUNCTION postrider.array_error(schema jsonb, value jsonb, at text) FROM PUBLIC;


--
-- Name: FUNCTION ask_scope(labels json, owner text, type text, subject text, data json, OUT inside boolean, OUT error text); Type: ACL; Schema: postrider; Owner: -
--

REVOKE ALL ON FUNCTION postrider.ask_scope(labels json, owner text, type text, subject text, data json, OUT inside boolean, OUT error text) FROM PUBLIC;


--
-- Name: FUNCTION asked_subscription(filter json); Type: ACL; Schema: postrider; Owner: -
--

REVOKE ALL ON FUNCTION postrider.asked_subscription(filter json) FROM PUBLIC;


--
-- Name: FUNCTION asked_tags(filter json); Type: ACL; Schema: postrider; Owner: -
--

REVOKE ALL ON FUNCTION postrider.asked_tags(filter json) FROM PUBLIC;


--
-- Name: FUNCTION await_fanout(event uuid); Type: ACL; Schema: postrider; Owner: -
--

REVOKE ALL ON FUNCTION postrider.await_fanout(event uuid) FROM PUBLIC;


--
-- Name: FUNCTION call_lanes(j postrider.job); Type: ACL; Schema: postrider; Owner: -
--

REVOKE ALL ON FUNCTION postrider.call_lanes(j postrider.job) FROM PUBLIC;


--
-- Name: FUNCTION call_limits(queue text, key text); Type: ACL; Schema: postrider; Owner: -
--

REVOKE ALL ON FUNCTION postrider.call_limits(queue text, key text) FROM PUBLIC;


--
-- Name: FUNCTION cancel(ids bigint[], reason text); Type: ACL; Schema: postrider; Owner: -
--

REVOKE ALL ON FUNCTION postrider.cancel(ids bigint[], reason text) FROM PUBLIC;


--
-- Name: FUNCTION cancel_event(event uuid, reason text); Type: ACL; Schema: postrider; Owner: -
--

REVOKE ALL ON FUNCTION postrider.cancel_event(event uuid, reason text) FROM PUBLIC;


--
-- Name: FUNCTION cancel_within(ids bigint[], reason text, looks integer); Type: ACL; Schema: postrider; Owner: -
--

REVOKE ALL ON FUNCTION postrider.cancel_within(ids bigint[], reason text, looks integer) FROM PUBLIC;


--
-- Name: FUNCTION cause_of(said text); Type: ACL; Schema: postrider; Owner: -
--

REVOKE ALL ON FUNCTION postrider.cause_of(said text) FROM PUBLIC;


--
-- Name: FUNCTION check_alike(unique_mode text, unique_key text, unique_for interval, on_duplicate text, idempotency_key text, retry json); Type: ACL; Schema: postrider; Owner: -
--

REVOKE ALL ON FUNCTION postrider.check_alike(unique_mode text, unique_key text, unique_for interval, on_duplicate text, idempotency_key text, retry json) FROM PUBLIC;


--
-- Name: FUNCTION check_cron(cron text); Type: ACL; Schema: postrider; Owner: -
--

REVOKE ALL ON FUNCTION postrider.check_cron(cron text) FROM PUBLIC;


--
-- Name: FUNCTION check_cron_field(field text, word text, col integer, lowest integer, highest integer, names text[]); Type: ACL; Schema: postrider; Owner: -
--

REVOKE ALL ON FUNCTION postrider.check_cron_field(field text, word text, col integer, lowest integer, highest integer, names text[]) FROM PUBLIC;


--
-- Name: FUNCTION check_endpoint(fields json); Type: ACL; Schema: postrider; Owner: -
--

REVOKE ALL ON FUNCTION postrider.check_endpoint(fields json) FROM PUBLIC;


--
-- Name: FUNCTION check_escapes(field text, txt text); Type: ACL; Schema: postrider; Owner: -
--

REVOKE ALL ON FUNCTION postrider.check_escapes(field text, txt text) FROM PUBLIC;


--
-- Name: FUNCTION check_event(type text, subject text, data json, INOUT version integer, OUT mismatch text); Type: ACL; Schema: postrider; Owner: -
--

REVOKE ALL ON FUNCTION postrider.check_event(type text, subject text, data json, INOUT version integer, OUT mismatch text) FROM PUBLIC;


--
-- Name: FUNCTION check_instance(name text, app text); Type: ACL; Schema: postrider; Owner: -
--

REVOKE ALL ON FUNCTION postrider.check_instance(name text, app text) FROM PUBLIC;


--
-- Name: FUNCTION check_isolation(); Type: ACL; Schema: postrider; Owner: -
--

REVOKE ALL ON FUNCTION postrider.check_isolation() FROM PUBLIC;


--
-- Name: FUNCTION check_job(kind text, args json, queue text, priority integer, max_attempts integer, owner text); Type: ACL; Schema: postrider; Owner: -
--

REVOKE ALL ON FUNCTION postrider.check_job(kind text, args json, queue text, priority integer, max_attempts integer, owner text) FROM PUBLIC;


--
-- Name: FUNCTION check_json(field text, data json); Type: ACL; Schema: postrider; Owner: -
--

REVOKE ALL ON FUNCTION postrider.check_json(field text, data json) FROM PUBLIC;


--
-- Name: FUNCTION check_keys(order_key text, order_policy text, limit_key text); Type: ACL; Schema: postrider; Owner: -
--

REVOKE ALL ON FUNCTION postrider.check_keys(order_key text, order_policy text, limit_key text) FROM PUBLIC;


--
-- Name: FUNCTION check_name(field text, name text, reserved boolean); Type: ACL; Schema: postrider; Owner: -
--

REVOKE ALL ON FUNCTION postrider.check_name(field text, name text, reserved boolean) FROM PUBLIC;


--
-- Name: FUNCTION check_owner(owner text); Type: ACL; Schema: postrider; Owner: -
--

REVOKE ALL ON FUNCTION postrider.check_owner(owner text) FROM PUBLIC;


--
-- Name: FUNCTION check_predicate(predicate text); Type: ACL; Schema: postrider; Owner: -
--

REVOKE ALL ON FUNCTION postrider.check_predicate(predicate text) FROM PUBLIC;


--
-- Name: FUNCTION check_retry(retry json); Type: ACL; Schema: postrider; Owner: -
--

REVOKE ALL ON FUNCTION postrider.check_retry(retry json) FROM PUBLIC;


--
-- Name: FUNCTION check_same(known_id uuid, type text, subject text, data json); Type: ACL; Schema: postrider; Owner: -
--

REVOKE ALL ON FUNCTION postrider.check_same(known_id uuid, type text, subject text, data json) FROM PUBLIC;


--
-- Name: FUNCTION check_start(start text); Type: ACL; Schema: postrider; Owner: -
--

REVOKE ALL ON FUNCTION postrider.check_start(start text) FROM PUBLIC;


--
-- Name: FUNCTION check_subscribed(subscription text); Type: ACL; Schema: postrider; Owner: -
--

REVOKE ALL ON FUNCTION postrider.check_subscribed(subscription text) FROM PUBLIC;


--
-- Name: FUNCTION check_tags(tags text[]); Type: ACL; Schema: postrider; Owner: -
--

REVOKE ALL ON FUNCTION postrider.check_tags(tags text[]) FROM PUBLIC;


--
-- Name: FUNCTION check_type(said json, exposure text, validation text, subject text); Type: ACL; Schema: postrider; Owner: -
--

REVOKE ALL ON FUNCTION postrider.check_type(said json, exposure text, validation text, subject text) FROM PUBLIC;


--
-- Name: FUNCTION check_version(type text, said json); Type: ACL; Schema: postrider; Owner: -
--

REVOKE ALL ON FUNCTION postrider.check_version(type text, said json) FROM PUBLIC;


--
-- Name: FUNCTION check_watched(relation oid); Type: ACL; Schema: postrider; Owner: -
--

REVOKE ALL ON FUNCTION postrider.check_watched(relation oid) FROM PUBLIC;


--
-- Name: FUNCTION check_watches(); Type: ACL; Schema: postrider; Owner: -
--

REVOKE ALL ON FUNCTION postrider.check_watches() FROM PUBLIC;


--
-- Name: FUNCTION claim(worker uuid, call bigint, queue text, kinds text[], most integer, priorities smallint[], shares smallint[], positions bigint[], in_line integer, turned bigint[]); Type: ACL; Schema: postrider; Owner: -
--

REVOKE ALL ON FUNCTION postrider.claim(worker uuid, call bigint, queue text, kinds text[], most integer, priorities smallint[], shares smallint[], positions bigint[], in_line integer, turned bigint[]) FROM PUBLIC;


--
-- Name: FUNCTION clear_deleted(most integer); Type: ACL; Schema: postrider; Owner: -
--

REVOKE ALL ON FUNCTION postrider.clear_deleted(most integer) FROM PUBLIC;


--
-- Name: FUNCTION clear_ready(lane_queue text, lane_key text, most integer); Type: ACL; Schema: postrider; Owner: -
--

REVOKE ALL ON FUNCTION postrider.clear_ready(lane_queue text, lane_key text, most integer) FROM PUBLIC;


--
-- Name: FUNCTION coalesce_events(at timestamp with time zone, seqs bigint[], types text[], owners text[], subscriptions bigint[]); Type: ACL; Schema: postrider; Owner: -
--

REVOKE ALL ON FUNCTION postrider.coalesce_events(at timestamp with time zone, seqs bigint[], types text[], owners text[], subscriptions bigint[]) FROM PUBLIC;


--
-- Name: FUNCTION compile_keyword(k text, v jsonb, at text); Type: ACL; Schema: postrider; Owner: -
--

REVOKE ALL ON FUNCTION postrider.compile_keyword(k text, v jsonb, at text) FROM PUBLIC;


--
-- Name: FUNCTION compile_parts(root jsonb, parts jsonb, at text, seen text[], level integer); Type: ACL; Schema: postrider; Owner: -
--

REVOKE ALL ON FUNCTION postrider.compile_parts(root jsonb, parts jsonb, at text, seen text[], level integer) FROM PUBLIC;


--
-- Name: FUNCTION compile_reference(root jsonb, reference jsonb, at text, seen text[], level integer); Type: ACL; Schema: postrider; Owner: -
--

REVOKE ALL ON FUNCTION postrider.compile_reference(root jsonb, reference jsonb, at text, seen text[], level integer) FROM PUBLIC;


--
-- Name: FUNCTION compile_routes(subscriptions bigint[], types text[]); Type: ACL; Schema: postrider; Owner: -
--

REVOKE ALL ON FUNCTION postrider.compile_routes(subscriptions bigint[], types text[]) FROM PUBLIC;


--
-- Name: FUNCTION compile_schema(root jsonb, schema jsonb, at text, seen text[], level integer); Type: ACL; Schema: postrider; Owner: -
--

REVOKE ALL ON FUNCTION postrider.compile_schema(root jsonb, schema jsonb, at text, seen text[], level integer) FROM PUBLIC;


--
-- Name: FUNCTION cool_endpoint(id bigint, until timestamp with time zone, reason text); Type: ACL; Schema: postrider; Owner: -
--

REVOKE ALL ON FUNCTION postrider.cool_endpoint(id bigint, until timestamp with time zone, reason text) FROM PUBLIC;


--
-- Name: FUNCTION count_jobs(most integer); Type: ACL; Schema: postrider; Owner: -
--

REVOKE ALL ON FUNCTION postrider.count_jobs(most integer) FROM PUBLIC;


--
-- Name: FUNCTION count_relayed(); Type: ACL; Schema: postrider; Owner: -
--

REVOKE ALL ON FUNCTION postrider.count_relayed() FROM PUBLIC;


--
-- Name: FUNCTION cut_hash(previous bytea, c postrider.cut); Type: ACL; Schema: postrider; Owner: -
--

REVOKE ALL ON FUNCTION postrider.cut_hash(previous bytea, c postrider.cut) FROM PUBLIC;


--
-- Name: FUNCTION declaration_wins(what text, name text, mine bigint, theirs bigint, same boolean); Type: ACL; Schema: postrider; Owner: -
--

REVOKE ALL ON FUNCTION postrider.declaration_wins(what text, name text, mine bigint, theirs bigint, same boolean) FROM PUBLIC;


--
-- Name: FUNCTION declare(declarations json); Type: ACL; Schema: postrider; Owner: -
--

REVOKE ALL ON FUNCTION postrider.declare(declarations json) FROM PUBLIC;


--
-- Name: FUNCTION declare_endpoint_types(); Type: ACL; Schema: postrider; Owner: -
--

REVOKE ALL ON FUNCTION postrider.declare_endpoint_types() FROM PUBLIC;


--
-- Name: FUNCTION declare_schedules(declarations json, app text, generation bigint, own boolean); Type: ACL; Schema: postrider; Owner: -
--

REVOKE ALL ON FUNCTION postrider.declare_schedules(declarations json, app text, generation bigint, own boolean) FROM PUBLIC;


--
-- Name: FUNCTION declare_subscriptions(declared json, app text, generation bigint, own boolean); Type: ACL; Schema: postrider; Owner: -
--

REVOKE ALL ON FUNCTION postrider.declare_subscriptions(declared json, app text, generation bigint, own boolean) FROM PUBLIC;


--
-- Name: FUNCTION declare_types(types json, app text, gen bigint, own boolean); Type: ACL; Schema: postrider; Owner: -
--

REVOKE ALL ON FUNCTION postrider.declare_types(types json, app text, gen bigint, own boolean) FROM PUBLIC;


--
-- Name: FUNCTION declare_versions(type text, versions json, app text); Type: ACL; Schema: postrider; Owner: -
--

REVOKE ALL ON FUNCTION postrider.declare_versions(type text, versions json, app text) FROM PUBLIC;


--
-- Name: FUNCTION delay_event(seq bigint, deliver_at timestamp with time zone); Type: ACL; Schema: postrider; Owner: -
--

REVOKE ALL ON FUNCTION postrider.delay_event(seq bigint, deliver_at timestamp with time zone) FROM PUBLIC;


--
-- Name: FUNCTION delete(ids bigint[]); Type: ACL; Schema: postrider; Owner: -
--

REVOKE ALL ON FUNCTION postrider.delete(ids bigint[]) FROM PUBLIC;


--
-- Name: FUNCTION disable_endpoint(id bigint, reason text); Type: ACL; Schema: postrider; Owner: -
--

REVOKE ALL ON FUNCTION postrider.disable_endpoint(id bigint, reason text) FROM PUBLIC;


--
-- Name: FUNCTION drive_replay(id bigint); Type: ACL; Schema: postrider; Owner: -
--

REVOKE ALL ON FUNCTION postrider.drive_replay(id bigint) FROM PUBLIC;


--
-- Name: FUNCTION drop_endpoint(id bigint); Type: ACL; Schema: postrider; Owner: -
--

REVOKE ALL ON FUNCTION postrider.drop_endpoint(id bigint) FROM PUBLIC;


--
-- Name: FUNCTION drop_events(epoch bigint, child text); Type: ACL; Schema: postrider; Owner: -
--

REVOKE ALL ON FUNCTION postrider.drop_events(epoch bigint, child text) FROM PUBLIC;


--
-- Name: FUNCTION drop_poison(reason text, event uuid, subscription text); Type: ACL; Schema: postrider; Owner: -
--

REVOKE ALL ON FUNCTION postrider.drop_poison(reason text, event uuid, subscription text) FROM PUBLIC;


--
-- Name: FUNCTION drop_schedule(name text); Type: ACL; Schema: postrider; Owner: -
--

REVOKE ALL ON FUNCTION postrider.drop_schedule(name text) FROM PUBLIC;


--
-- Name: FUNCTION drop_subscription(id bigint); Type: ACL; Schema: postrider; Owner: -
--

REVOKE ALL ON FUNCTION postrider.drop_subscription(id bigint) FROM PUBLIC;


--
-- Name: FUNCTION dropped_traceparents(); Type: ACL; Schema: postrider; Owner: -
--

REVOKE ALL ON FUNCTION postrider.dropped_traceparents() FROM PUBLIC;


--
-- Name: FUNCTION due_elsewhere(); Type: ACL; Schema: postrider; Owner: -
--

REVOKE ALL ON FUNCTION postrider.due_elsewhere() FROM PUBLIC;


--
-- Name: FUNCTION duties_of_components(); Type: ACL; Schema: postrider; Owner: -
--

REVOKE ALL ON FUNCTION postrider.duties_of_components() FROM PUBLIC;


--
-- Name: FUNCTION duty_failed(duty text, error text); Type: ACL; Schema: postrider; Owner: -
--

REVOKE ALL ON FUNCTION postrider.duty_failed(duty text, error text) FROM PUBLIC;


--
-- Name: FUNCTION enable_endpoint(id bigint); Type: ACL; Schema: postrider; Owner: -
--

REVOKE ALL ON FUNCTION postrider.enable_endpoint(id bigint) FROM PUBLIC;


--
-- Name: FUNCTION end_name(state smallint); Type: ACL; Schema: postrider; Owner: -
--

REVOKE ALL ON FUNCTION postrider.end_name(state smallint) FROM PUBLIC;


--
-- Name: FUNCTION endpoint_evidence(id bigint); Type: ACL; Schema: postrider; Owner: -
--

REVOKE ALL ON FUNCTION postrider.endpoint_evidence(id bigint) FROM PUBLIC;


--
-- Name: FUNCTION endpoint_key(endpoint bigint); Type: ACL; Schema: postrider; Owner: -
--

REVOKE ALL ON FUNCTION postrider.endpoint_key(endpoint bigint) FROM PUBLIC;


--
-- Name: FUNCTION endpoint_pace(id bigint); Type: ACL; Schema: postrider; Owner: -
--

REVOKE ALL ON FUNCTION postrider.endpoint_pace(id bigint) FROM PUBLIC;


--
-- Name: FUNCTION endpoints(id bigint, owner text, after bigint, most integer); Type: ACL; Schema: postrider; Owner: -
--

REVOKE ALL ON FUNCTION postrider.endpoints(id bigint, owner text, after bigint, most integer) FROM PUBLIC;


--
-- Name: FUNCTION endpoints_for(type text, subject text, data json, owner text); Type: ACL; Schema: postrider; Owner: -
--

REVOKE ALL ON FUNCTION postrider.endpoints_for(type text, subject text, data json, owner text) FROM PUBLIC;


--
-- Name: FUNCTION enqueue(kind text, args json, queue text, priority integer, max_attempts integer, run_at timestamp with time zone, owner text, unique_mode text, unique_key text, unique_for interval, on_duplicate text, idempotency_key text, retry json, order_key text, order_policy text, limit_key text, tags text[]); Type: ACL; Schema: postrider; Owner: -
--

REVOKE ALL ON FUNCTION postrider.enqueue(kind text, args json, queue text, priority integer, max_attempts integer, run_at timestamp with time zone, owner text, unique_mode text, unique_key text, unique_for interval, on_duplicate text, idempotency_key text, retry json, order_key text, order_policy text, limit_key text, tags text[]) FROM PUBLIC;


--
-- Name: FUNCTION enqueue_alike(k postrider.kind, new_id bigint, args json, run_at timestamp with time zone, owner text, unique_mode text, unique_key text, unique_for interval, on_duplicate text, idempotency_key text, retry json, order_key text, order_policy text, limit_key text, key_taken boolean); Type: ACL; Schema: postrider; Owner: -
--

REVOKE ALL ON FUNCTION postrider.enqueue_alike(k postrider.kind, new_id bigint, args json, run_at timestamp with time zone, owner text, unique_mode text, unique_key text, unique_for interval, on_duplicate text, idempotency_key text, retry json, order_key text, order_policy text, limit_key text, key_taken boolean) FROM PUBLIC;


--
-- Name: FUNCTION enqueue_many(jobs json); Type: ACL; Schema: postrider; Owner: -
--

REVOKE ALL ON FUNCTION postrider.enqueue_many(jobs json) FROM PUBLIC;


--
-- Name: FUNCTION enqueue_many_alike(jobs json); Type: ACL; Schema: postrider; Owner: -
--

REVOKE ALL ON FUNCTION postrider.enqueue_many_alike(jobs json) FROM PUBLIC;


--
-- Name: FUNCTION epoch_end(epoch integer); Type: ACL; Schema: postrider; Owner: -
--

REVOKE ALL ON FUNCTION postrider.epoch_end(epoch integer) FROM PUBLIC;


--
-- Name: FUNCTION erase(event uuid, reason text); Type: ACL; Schema: postrider; Owner: -
--

REVOKE ALL ON FUNCTION postrider.erase(event uuid, reason text) FROM PUBLIC;


--
-- Name: FUNCTION event_digest(data_sha256 bytea, id uuid, occurred_at timestamp with time zone, type text, owner text, subject text, cause uuid); Type: ACL; Schema: postrider; Owner: -
--

REVOKE ALL ON FUNCTION postrider.event_digest(data_sha256 bytea, id uuid, occurred_at timestamp with time zone, type text, owner text, subject text, cause uuid) FROM PUBLIC;


--
-- Name: FUNCTION event_id(recorded_at timestamp with time zone, seq bigint); Type: ACL; Schema: postrider; Owner: -
--

REVOKE ALL ON FUNCTION postrider.event_id(recorded_at timestamp with time zone, seq bigint) FROM PUBLIC;


--
-- Name: FUNCTION event_key(name text, part text); Type: ACL; Schema: postrider; Owner: -
--

REVOKE ALL ON FUNCTION postrider.event_key(name text, part text) FROM PUBLIC;


--
-- Name: FUNCTION event_pinned_by(epoch bigint); Type: ACL; Schema: postrider; Owner: -
--

REVOKE ALL ON FUNCTION postrider.event_pinned_by(epoch bigint) FROM PUBLIC;


--
-- Name: FUNCTION event_seq(id uuid); Type: ACL; Schema: postrider; Owner: -
--

REVOKE ALL ON FUNCTION postrider.event_seq(id uuid) FROM PUBLIC;


--
-- Name: FUNCTION events_of_cut(c postrider.cut, before postrider.cut, OUT n bigint, OUT digest bytea); Type: ACL; Schema: postrider; Owner: -
--

REVOKE ALL ON FUNCTION postrider.events_of_cut(c postrider.cut, before postrider.cut, OUT n bigint, OUT digest bytea) FROM PUBLIC;


--
-- Name: FUNCTION exchange_span(class smallint, first bigint, until bigint, suffix text, ids bigint[]); Type: ACL; Schema: postrider; Owner: -
--

REVOKE ALL ON FUNCTION postrider.exchange_span(class smallint, first bigint, until bigint, suffix text, ids bigint[]) FROM PUBLIC;


--
-- Name: FUNCTION explain(id bigint); Type: ACL; Schema: postrider; Owner: -
--

REVOKE ALL ON FUNCTION postrider.explain(id bigint) FROM PUBLIC;


--
-- Name: FUNCTION said(at timestamp with time zone); Type: ACL; Schema: postrider; Owner: -
--

REVOKE ALL ON FUNCTION postrider.said(at timestamp with time zone) FROM PUBLIC;


--
-- Name: FUNCTION explain_held(); Type: ACL; Schema: postrider; Owner: -
--

REVOKE ALL ON FUNCTION postrider.explain_held() FROM PUBLIC;


--
-- Name: FUNCTION explain_parked(j postrider.job, p postrider.parked); Type: ACL; Schema: postrider; Owner: -
--

REVOKE ALL ON FUNCTION postrider.explain_parked(j postrider.job, p postrider.parked) FROM PUBLIC;


--
-- Name: FUNCTION explain_ready(j postrider.job, r postrider.ready); Type: ACL; Schema: postrider; Owner: -
--

REVOKE ALL ON FUNCTION postrider.explain_ready(j postrider.job, r postrider.ready) FROM PUBLIC;


--
-- Name: FUNCTION explain_running(j postrider.job, l postrider.lease); Type: ACL; Schema: postrider; Owner: -
--

REVOKE ALL ON FUNCTION postrider.explain_running(j postrider.job, l postrider.lease) FROM PUBLIC;


--
-- Name: FUNCTION failures(kind text, most integer); Type: ACL; Schema: postrider; Owner: -
--

REVOKE ALL ON FUNCTION postrider.failures(kind text, most integer) FROM PUBLIC;


--
-- Name: FUNCTION fan_out(at timestamp with time zone, seqs bigint[], types text[], owners text[], subscriptions bigint[]); Type: ACL; Schema: postrider; Owner: -
--

REVOKE ALL ON FUNCTION postrider.fan_out(at timestamp with time zone, seqs bigint[], types text[], owners text[], subscriptions bigint[]) FROM PUBLIC;


--
-- Name: FUNCTION find_jobs(filter json, after bigint, upto bigint, looked_at integer); Type: ACL; Schema: postrider; Owner: -
--

REVOKE ALL ON FUNCTION postrider.find_jobs(filter json, after bigint, upto bigint, looked_at integer) FROM PUBLIC;


--
-- Name: FUNCTION finish(worker uuid, leases bigint[], ids bigint[], outcomes smallint[], delays_ms bigint[], reasons text[], outputs text[]); Type: ACL; Schema: postrider; Owner: -
--

REVOKE ALL ON FUNCTION postrider.finish(worker uuid, leases bigint[], ids bigint[], outcomes smallint[], delays_ms bigint[], reasons text[], outputs text[]) FROM PUBLIC;


--
-- Name: FUNCTION finish_attempts(told json); Type: ACL; Schema: postrider; Owner: -
--

REVOKE ALL ON FUNCTION postrider.finish_attempts(told json) FROM PUBLIC;


--
-- Name: FUNCTION finish_some(told json); Type: ACL; Schema: postrider; Owner: -
--

REVOKE ALL ON FUNCTION postrider.finish_some(told json) FROM PUBLIC;


--
-- Name: FUNCTION fire_schedule(name text, seen timestamp with time zone, next timestamp with time zone, due timestamp with time zone[], passed timestamp with time zone, missed bigint); Type: ACL; Schema: postrider; Owner: -
--

REVOKE ALL ON FUNCTION postrider.fire_schedule(name text, seen timestamp with time zone, next timestamp with time zone, due timestamp with time zone[], passed timestamp with time zone, missed bigint) FROM PUBLIC;


--
-- Name: FUNCTION first_cut(epoch integer); Type: ACL; Schema: postrider; Owner: -
--

REVOKE ALL ON FUNCTION postrider.first_cut(epoch integer) FROM PUBLIC;


--
-- Name: FUNCTION first_of_key(owner text, key text, new_id uuid); Type: ACL; Schema: postrider; Owner: -
--

REVOKE ALL ON FUNCTION postrider.first_of_key(owner text, key text, new_id uuid) FROM PUBLIC;


--
-- Name: FUNCTION fits(j postrider.job, filter json, subscription bigint, tags text[]); Type: ACL; Schema: postrider; Owner: -
--

REVOKE ALL ON FUNCTION postrider.fits(j postrider.job, filter json, subscription bigint, tags text[]) FROM PUBLIC;


--
-- Name: FUNCTION flags_of_event_job(stands_for_others boolean, order_key text, limit_key text); Type: ACL; Schema: postrider; Owner: -
--

REVOKE ALL ON FUNCTION postrider.flags_of_event_job(stands_for_others boolean, order_key text, limit_key text) FROM PUBLIC;


--
-- Name: FUNCTION flags_of_waiting(flags smallint); Type: ACL; Schema: postrider; Owner: -
--

REVOKE ALL ON FUNCTION postrider.flags_of_waiting(flags smallint) FROM PUBLIC;


--
-- Name: FUNCTION follow(cause uuid, INOUT traceparent text, OUT depth integer); Type: ACL; Schema: postrider; Owner: -
--

REVOKE ALL ON FUNCTION postrider.follow(cause uuid, INOUT traceparent text, OUT depth integer) FROM PUBLIC;


--
-- Name: FUNCTION forget_leftovers(); Type: ACL; Schema: postrider; Owner: -
--

REVOKE ALL ON FUNCTION postrider.forget_leftovers() FROM PUBLIC;


--
-- Name: FUNCTION forget_mismatches(); Type: ACL; Schema: postrider; Owner: -
--

REVOKE ALL ON FUNCTION postrider.forget_mismatches() FROM PUBLIC;


--
-- Name: FUNCTION forget_watch(name text); Type: ACL; Schema: postrider; Owner: -
--

REVOKE ALL ON FUNCTION postrider.forget_watch(name text) FROM PUBLIC;


--
-- Name: FUNCTION forget_written(class smallint, first bigint); Type: ACL; Schema: postrider; Owner: -
--

REVOKE ALL ON FUNCTION postrider.forget_written(class smallint, first bigint) FROM PUBLIC;


--
-- Name: FUNCTION give_up_schedule(name text, seen timestamp with time zone, problem text); Type: ACL; Schema: postrider; Owner: -
--

REVOKE ALL ON FUNCTION postrider.give_up_schedule(name text, seen timestamp with time zone, problem text) FROM PUBLIC;


--
-- Name: FUNCTION glance(); Type: ACL; Schema: postrider; Owner: -
--

REVOKE ALL ON FUNCTION postrider.glance() FROM PUBLIC;


--
-- Name: FUNCTION gone_since(id bigint); Type: ACL; Schema: postrider; Owner: -
--

REVOKE ALL ON FUNCTION postrider.gone_since(id bigint) FROM PUBLIC;


--
-- Name: FUNCTION group_failures(most integer); Type: ACL; Schema: postrider; Owner: -
--

REVOKE ALL ON FUNCTION postrider.group_failures(most integer) FROM PUBLIC;


--
-- Name: FUNCTION hand_over(most integer, elsewhere boolean, careful boolean, refused json); Type: ACL; Schema: postrider; Owner: -
--

REVOKE ALL ON FUNCTION postrider.hand_over(most integer, elsewhere boolean, careful boolean, refused json) FROM PUBLIC;


--
-- Name: FUNCTION has_partition(unit text, id bigint); Type: ACL; Schema: postrider; Owner: -
--

REVOKE ALL ON FUNCTION postrider.has_partition(unit text, id bigint) FROM PUBLIC;


--
-- Name: FUNCTION has_rows(child text); Type: ACL; Schema: postrider; Owner: -
--

REVOKE ALL ON FUNCTION postrider.has_rows(child text) FROM PUBLIC;


--
-- Name: FUNCTION heads(); Type: ACL; Schema: postrider; Owner: -
--

REVOKE ALL ON FUNCTION postrider.heads() FROM PUBLIC;


--
-- Name: FUNCTION hold(queue text, key text, until timestamp with time zone, reason text); Type: ACL; Schema: postrider; Owner: -
--

REVOKE ALL ON FUNCTION postrider.hold(queue text, key text, until timestamp with time zone, reason text) FROM PUBLIC;


--
-- Name: FUNCTION hold_group(id bigint); Type: ACL; Schema: postrider; Owner: -
--

REVOKE ALL ON FUNCTION postrider.hold_group(id bigint) FROM PUBLIC;


--
-- Name: FUNCTION housekeep(duty text); Type: ACL; Schema: postrider; Owner: -
--

REVOKE ALL ON FUNCTION postrider.housekeep(duty text) FROM PUBLIC;


--
-- Name: FUNCTION huge_transactions(w postrider.cut, floor_seq bigint, most integer); Type: ACL; Schema: postrider; Owner: -
--

REVOKE ALL ON FUNCTION postrider.huge_transactions(w postrider.cut, floor_seq bigint, most integer) FROM PUBLIC;


--
-- Name: FUNCTION is_among(value jsonb, list jsonb); Type: ACL; Schema: postrider; Owner: -
--

REVOKE ALL ON FUNCTION postrider.is_among(value jsonb, list jsonb) FROM PUBLIC;


--
-- Name: FUNCTION is_behind(p postrider.log_position, floor_seq bigint, ceiling_seq bigint, xid xid8, seq bigint); Type: ACL; Schema: postrider; Owner: -
--

REVOKE ALL ON FUNCTION postrider.is_behind(p postrider.log_position, floor_seq bigint, ceiling_seq bigint, xid xid8, seq bigint) FROM PUBLIC;


--
-- Name: FUNCTION is_outbound(kind text); Type: ACL; Schema: postrider; Owner: -
--

REVOKE ALL ON FUNCTION postrider.is_outbound(kind text) FROM PUBLIC;


--
-- Name: FUNCTION is_held(kind text); Type: ACL; Schema: postrider; Owner: -
--

REVOKE ALL ON FUNCTION postrider.is_held(kind text) FROM PUBLIC;


--
-- Name: FUNCTION is_held_back(subscription bigint); Type: ACL; Schema: postrider; Owner: -
--

REVOKE ALL ON FUNCTION postrider.is_held_back(subscription bigint) FROM PUBLIC;


--
-- Name: FUNCTION is_of_the_server(code text); Type: ACL; Schema: postrider; Owner: -
--

REVOKE ALL ON FUNCTION postrider.is_of_the_server(code text) FROM PUBLIC;


--
-- Name: FUNCTION is_owed(seq bigint, xid xid8, type text, owner text); Type: ACL; Schema: postrider; Owner: -
--

REVOKE ALL ON FUNCTION postrider.is_owed(seq bigint, xid xid8, type text, owner text) FROM PUBLIC;


--
-- Name: FUNCTION is_relayed(seq bigint, xid xid8); Type: ACL; Schema: postrider; Owner: -
--

REVOKE ALL ON FUNCTION postrider.is_relayed(seq bigint, xid xid8) FROM PUBLIC;


--
-- Name: FUNCTION job_position(); Type: ACL; Schema: postrider; Owner: -
--

REVOKE ALL ON FUNCTION postrider.job_position() FROM PUBLIC;


--
-- Name: FUNCTION job_spans(); Type: ACL; Schema: postrider; Owner: -
--

REVOKE ALL ON FUNCTION postrider.job_spans() FROM PUBLIC;


--
-- Name: FUNCTION job_views(ids bigint[], attempts boolean); Type: ACL; Schema: postrider; Owner: -
--

REVOKE ALL ON FUNCTION postrider.job_views(ids bigint[], attempts boolean) FROM PUBLIC;


--
-- Name: FUNCTION jobs_between(seq bigint, first bigint[], last bigint[]); Type: ACL; Schema: postrider; Owner: -
--

REVOKE ALL ON FUNCTION postrider.jobs_between(seq bigint, first bigint[], last bigint[]) FROM PUBLIC;


--
-- Name: FUNCTION jobs_of_cut(c postrider.cut, OUT n bigint, OUT gone boolean); Type: ACL; Schema: postrider; Owner: -
--

REVOKE ALL ON FUNCTION postrider.jobs_of_cut(c postrider.cut, OUT n bigint, OUT gone boolean) FROM PUBLIC;


--
-- Name: FUNCTION jobs_open(jobs bigint[]); Type: ACL; Schema: postrider; Owner: -
--

REVOKE ALL ON FUNCTION postrider.jobs_open(jobs bigint[]) FROM PUBLIC;


--
-- Name: FUNCTION join_cuts(most integer); Type: ACL; Schema: postrider; Owner: -
--

REVOKE ALL ON FUNCTION postrider.join_cuts(most integer) FROM PUBLIC;


--
-- Name: FUNCTION judge_holder(l postrider.lane); Type: ACL; Schema: postrider; Owner: -
--

REVOKE ALL ON FUNCTION postrider.judge_holder(l postrider.lane) FROM PUBLIC;


--
-- Name: FUNCTION judge_turn(lane_key text, who bigint, OUT keeps boolean, OUT stop text); Type: ACL; Schema: postrider; Owner: -
--

REVOKE ALL ON FUNCTION postrider.judge_turn(lane_key text, who bigint, OUT keeps boolean, OUT stop text) FROM PUBLIC;


--
-- Name: FUNCTION keep_for(what text, keep interval, declared_by text, generation bigint); Type: ACL; Schema: postrider; Owner: -
--

REVOKE ALL ON FUNCTION postrider.keep_for(what text, keep interval, declared_by text, generation bigint) FROM PUBLIC;


--
-- Name: FUNCTION lanes(queue text, after text, most integer, only_key text, only_stopped boolean); Type: ACL; Schema: postrider; Owner: -
--

REVOKE ALL ON FUNCTION postrider.lanes(queue text, after text, most integer, only_key text, only_stopped boolean) FROM PUBLIC;


--
-- Name: FUNCTION leave(worker uuid); Type: ACL; Schema: postrider; Owner: -
--

REVOKE ALL ON FUNCTION postrider.leave(worker uuid) FROM PUBLIC;


--
-- Name: FUNCTION let_in(lane_queue text, lane_key text, free integer, again timestamp with time zone, per_from timestamp with time zone); Type: ACL; Schema: postrider; Owner: -
--

REVOKE ALL ON FUNCTION postrider.let_in(lane_queue text, lane_key text, free integer, again timestamp with time zone, per_from timestamp with time zone) FROM PUBLIC;


--
-- Name: FUNCTION let_next_in(hashes bytea[]); Type: ACL; Schema: postrider; Owner: -
--

REVOKE ALL ON FUNCTION postrider.let_next_in(hashes bytea[]) FROM PUBLIC;


--
-- Name: FUNCTION line_up(lane_queue text, lane_key text, head bigint, kinds text[], most integer); Type: ACL; Schema: postrider; Owner: -
--

REVOKE ALL ON FUNCTION postrider.line_up(lane_queue text, lane_key text, head bigint, kinds text[], most integer) FROM PUBLIC;


--
-- Name: FUNCTION list_jobs(filter json, before bigint, most integer, looked_at integer); Type: ACL; Schema: postrider; Owner: -
--

REVOKE ALL ON FUNCTION postrider.list_jobs(filter json, before bigint, most integer, looked_at integer) FROM PUBLIC;


--
-- Name: FUNCTION load_deliveries(asked json); Type: ACL; Schema: postrider; Owner: -
--

REVOKE ALL ON FUNCTION postrider.load_deliveries(asked json) FROM PUBLIC;


--
-- Name: FUNCTION lock_declarations(); Type: ACL; Schema: postrider; Owner: -
--

REVOKE ALL ON FUNCTION postrider.lock_declarations() FROM PUBLIC;


--
-- Name: FUNCTION lock_endpoint(id bigint); Type: ACL; Schema: postrider; Owner: -
--

REVOKE ALL ON FUNCTION postrider.lock_endpoint(id bigint) FROM PUBLIC;


--
-- Name: FUNCTION lock_lanes(queue text, keys text[], waits boolean); Type: ACL; Schema: postrider; Owner: -
--

REVOKE ALL ON FUNCTION postrider.lock_lanes(queue text, keys text[], waits boolean) FROM PUBLIC;


--
-- Name: FUNCTION make_deliveries(endpoint bigint, seqs bigint[], trigger text, sent_as uuid); Type: ACL; Schema: postrider; Owner: -
--

REVOKE ALL ON FUNCTION postrider.make_deliveries(endpoint bigint, seqs bigint[], trigger text, sent_as uuid) FROM PUBLIC;


--
-- Name: FUNCTION make_each(no bigint, at timestamp with time zone, s postrider.slice, below boolean, subscriptions bigint[], OUT jobs integer, OUT aside integer, OUT upto integer); Type: ACL; Schema: postrider; Owner: -
--

REVOKE ALL ON FUNCTION postrider.make_each(no bigint, at timestamp with time zone, s postrider.slice, below boolean, subscriptions bigint[], OUT jobs integer, OUT aside integer, OUT upto integer) FROM PUBLIC;


--
-- Name: FUNCTION make_lanes(queue text, keys text[]); Type: ACL; Schema: postrider; Owner: -
--

REVOKE ALL ON FUNCTION postrider.make_lanes(queue text, keys text[]) FROM PUBLIC;


--
-- Name: FUNCTION make_one(no bigint, at timestamp with time zone, seq bigint, type text, owner text, subscriptions bigint[], OUT jobs integer, OUT aside integer, OUT failed integer); Type: ACL; Schema: postrider; Owner: -
--

REVOKE ALL ON FUNCTION postrider.make_one(no bigint, at timestamp with time zone, seq bigint, type text, owner text, subscriptions bigint[], OUT jobs integer, OUT aside integer, OUT failed integer) FROM PUBLIC;


--
-- Name: FUNCTION make_partitions(name text); Type: ACL; Schema: postrider; Owner: -
--

REVOKE ALL ON FUNCTION postrider.make_partitions(name text) FROM PUBLIC;


--
-- Name: FUNCTION make_ready(w postrider.waiting); Type: ACL; Schema: postrider; Owner: -
--

REVOKE ALL ON FUNCTION postrider.make_ready(w postrider.waiting) FROM PUBLIC;


--
-- Name: FUNCTION share_of(owner text); Type: ACL; Schema: postrider; Owner: -
--

REVOKE ALL ON FUNCTION postrider.share_of(owner text) FROM PUBLIC;


--
-- Name: FUNCTION matches(at timestamp with time zone, seqs bigint[], types text[], owners text[], subscriptions bigint[]); Type: ACL; Schema: postrider; Owner: -
--

REVOKE ALL ON FUNCTION postrider.matches(at timestamp with time zone, seqs bigint[], types text[], owners text[], subscriptions bigint[]) FROM PUBLIC;


--
-- Name: FUNCTION mismatches(type text, most integer); Type: ACL; Schema: postrider; Owner: -
--

REVOKE ALL ON FUNCTION postrider.mismatches(type text, most integer) FROM PUBLIC;


--
-- Name: FUNCTION name_distance(one text, other text, most integer); Type: ACL; Schema: postrider; Owner: -
--

REVOKE ALL ON FUNCTION postrider.name_distance(one text, other text, most integer) FROM PUBLIC;


--
-- Name: FUNCTION name_instance(name text); Type: ACL; Schema: postrider; Owner: -
--

REVOKE ALL ON FUNCTION postrider.name_instance(name text) FROM PUBLIC;


--
-- Name: FUNCTION nearest_names(name text, names text[]); Type: ACL; Schema: postrider; Owner: -
--

REVOKE ALL ON FUNCTION postrider.nearest_names(name text, names text[]) FROM PUBLIC;


--
-- Name: FUNCTION next_due_in_ms(); Type: ACL; Schema: postrider; Owner: -
--

REVOKE ALL ON FUNCTION postrider.next_due_in_ms() FROM PUBLIC;


--
-- Name: FUNCTION next_slice(w postrider.cut, after bigint, most integer, inside boolean); Type: ACL; Schema: postrider; Owner: -
--

REVOKE ALL ON FUNCTION postrider.next_slice(w postrider.cut, after bigint, most integer, inside boolean) FROM PUBLIC;


--
-- Name: FUNCTION next_turn(lane_queue text, lane_key text); Type: ACL; Schema: postrider; Owner: -
--

REVOKE ALL ON FUNCTION postrider.next_turn(lane_queue text, lane_key text) FROM PUBLIC;


--
-- Name: FUNCTION normal_error(error text); Type: ACL; Schema: postrider; Owner: -
--

REVOKE ALL ON FUNCTION postrider.normal_error(error text) FROM PUBLIC;


--
-- Name: FUNCTION note_attempt(a postrider.delivery_attempt, asked_ms bigint, gone boolean, given_up boolean); Type: ACL; Schema: postrider; Owner: -
--

REVOKE ALL ON FUNCTION postrider.note_attempt(a postrider.delivery_attempt, asked_ms bigint, gone boolean, given_up boolean) FROM PUBLIC;


--
-- Name: FUNCTION note_cancellation(ids bigint[], reason text); Type: ACL; Schema: postrider; Owner: -
--

REVOKE ALL ON FUNCTION postrider.note_cancellation(ids bigint[], reason text) FROM PUBLIC;


--
-- Name: FUNCTION note_cut(last postrider.cut, new postrider.cut); Type: ACL; Schema: postrider; Owner: -
--

REVOKE ALL ON FUNCTION postrider.note_cut(last postrider.cut, new postrider.cut) FROM PUBLIC;


--
-- Name: FUNCTION note_failed(); Type: ACL; Schema: postrider; Owner: -
--

REVOKE ALL ON FUNCTION postrider.note_failed() FROM PUBLIC;


--
-- Name: FUNCTION note_failure(h postrider.endpoint_health); Type: ACL; Schema: postrider; Owner: -
--

REVOKE ALL ON FUNCTION postrider.note_failure(h postrider.endpoint_health) FROM PUBLIC;


--
-- Name: FUNCTION note_known(); Type: ACL; Schema: postrider; Owner: -
--

REVOKE ALL ON FUNCTION postrider.note_known() FROM PUBLIC;


--
-- Name: FUNCTION note_progress(worker uuid, progress json); Type: ACL; Schema: postrider; Owner: -
--

REVOKE ALL ON FUNCTION postrider.note_progress(worker uuid, progress json) FROM PUBLIC;


--
-- Name: FUNCTION note_scope_failure(error text); Type: ACL; Schema: postrider; Owner: -
--

REVOKE ALL ON FUNCTION postrider.note_scope_failure(error text) FROM PUBLIC;


--
-- Name: FUNCTION note_success(h postrider.endpoint_health); Type: ACL; Schema: postrider; Owner: -
--

REVOKE ALL ON FUNCTION postrider.note_success(h postrider.endpoint_health) FROM PUBLIC;


--
-- Name: FUNCTION note_watch(relation oid, asked json); Type: ACL; Schema: postrider; Owner: -
--

REVOKE ALL ON FUNCTION postrider.note_watch(relation oid, asked json) FROM PUBLIC;


--
-- Name: FUNCTION note_written(); Type: ACL; Schema: postrider; Owner: -
--

REVOKE ALL ON FUNCTION postrider.note_written() FROM PUBLIC;


--
-- Name: FUNCTION number_error(schema jsonb, value numeric, at text); Type: ACL; Schema: postrider; Owner: -
--

REVOKE ALL ON FUNCTION postrider.number_error(schema jsonb, value numeric, at text) FROM PUBLIC;


--
-- Name: FUNCTION object_error(schema jsonb, value jsonb, at text); Type: ACL; Schema: postrider; Owner: -
--

REVOKE ALL ON FUNCTION postrider.object_error(schema jsonb, value jsonb, at text) FROM PUBLIC;


--
-- Name: FUNCTION open_backlog(last postrider.cut, new postrider.cut, epoch postrider.log_epoch, s postrider.slice); Type: ACL; Schema: postrider; Owner: -
--

REVOKE ALL ON FUNCTION postrider.open_backlog(last postrider.cut, new postrider.cut, epoch postrider.log_epoch, s postrider.slice) FROM PUBLIC;


--
-- Name: FUNCTION order_rule(policy text); Type: ACL; Schema: postrider; Owner: -
--

REVOKE ALL ON FUNCTION postrider.order_rule(policy text) FROM PUBLIC;


--
-- Name: FUNCTION overview(); Type: ACL; Schema: postrider; Owner: -
--

REVOKE ALL ON FUNCTION postrider.overview() FROM PUBLIC;


--
-- Name: FUNCTION part(worker uuid, lease bigint, id bigint, call bigint); Type: ACL; Schema: postrider; Owner: -
--

REVOKE ALL ON FUNCTION postrider.part(worker uuid, lease bigint, id bigint, call bigint) FROM PUBLIC;


--
-- Name: FUNCTION pattern_regex(pattern text); Type: ACL; Schema: postrider; Owner: -
--

REVOKE ALL ON FUNCTION postrider.pattern_regex(pattern text) FROM PUBLIC;


--
-- Name: FUNCTION pause(queue text, paused boolean); Type: ACL; Schema: postrider; Owner: -
--

REVOKE ALL ON FUNCTION postrider.pause(queue text, paused boolean) FROM PUBLIC;


--
-- Name: FUNCTION pause_outbound(reason text); Type: ACL; Schema: postrider; Owner: -
--

REVOKE ALL ON FUNCTION postrider.pause_outbound(reason text) FROM PUBLIC;


--
-- Name: FUNCTION pause_replay(id bigint); Type: ACL; Schema: postrider; Owner: -
--

REVOKE ALL ON FUNCTION postrider.pause_replay(id bigint) FROM PUBLIC;


--
-- Name: FUNCTION pause_schedule(name text, paused boolean); Type: ACL; Schema: postrider; Owner: -
--

REVOKE ALL ON FUNCTION postrider.pause_schedule(name text, paused boolean) FROM PUBLIC;


--
-- Name: FUNCTION pin(class smallint, first bigint, by text, kind text, n bigint, rest interval); Type: ACL; Schema: postrider; Owner: -
--

REVOKE ALL ON FUNCTION postrider.pin(class smallint, first bigint, by text, kind text, n bigint, rest interval) FROM PUBLIC;


--
-- Name: FUNCTION plan_replay(endpoint bigint, "from" timestamp with time zone, "to" timestamp with time zone, types text[], predicate text, per_second integer); Type: ACL; Schema: postrider; Owner: -
--

REVOKE ALL ON FUNCTION postrider.plan_replay(endpoint bigint, "from" timestamp with time zone, "to" timestamp with time zone, types text[], predicate text, per_second integer) FROM PUBLIC;


--
-- Name: FUNCTION watch_label(name text); Type: ACL; Schema: postrider; Owner: -
--

REVOKE ALL ON FUNCTION postrider.watch_label(name text) FROM PUBLIC;


--
-- Name: FUNCTION plan_unwatch(name text, OUT relation regclass, OUT statements text[]); Type: ACL; Schema: postrider; Owner: -
--

REVOKE ALL ON FUNCTION postrider.plan_unwatch(name text, OUT relation regclass, OUT statements text[]) FROM PUBLIC;


--
-- Name: FUNCTION plan_watch(relation oid, asked json, lock boolean); Type: ACL; Schema: postrider; Owner: -
--

REVOKE ALL ON FUNCTION postrider.plan_watch(relation oid, asked json, lock boolean) FROM PUBLIC;


--
-- Name: FUNCTION pointer_part(name text); Type: ACL; Schema: postrider; Owner: -
--

REVOKE ALL ON FUNCTION postrider.pointer_part(name text) FROM PUBLIC;


--
-- Name: FUNCTION poison_retry_at(tries integer); Type: ACL; Schema: postrider; Owner: -
--

REVOKE ALL ON FUNCTION postrider.poison_retry_at(tries integer) FROM PUBLIC;


--
-- Name: FUNCTION poison_tried(p postrider.poison, made boolean, code text, error text, first_job bigint); Type: ACL; Schema: postrider; Owner: -
--

REVOKE ALL ON FUNCTION postrider.poison_tried(p postrider.poison, made boolean, code text, error text, first_job bigint) FROM PUBLIC;


--
-- Name: FUNCTION promote(most integer); Type: ACL; Schema: postrider; Owner: -
--

REVOKE ALL ON FUNCTION postrider.promote(most integer) FROM PUBLIC;


--
-- Name: FUNCTION properties_narrowed(old jsonb, new jsonb, at text); Type: ACL; Schema: postrider; Owner: -
--

REVOKE ALL ON FUNCTION postrider.properties_narrowed(old jsonb, new jsonb, at text) FROM PUBLIC;


--
-- Name: FUNCTION prune_kept(); Type: ACL; Schema: postrider; Owner: -
--

REVOKE ALL ON FUNCTION postrider.prune_kept() FROM PUBLIC;


--
-- Name: FUNCTION put_back(lease_id bigint, lost boolean, isolated boolean); Type: ACL; Schema: postrider; Owner: -
--

REVOKE ALL ON FUNCTION postrider.put_back(lease_id bigint, lost boolean, isolated boolean) FROM PUBLIC;


--
-- Name: FUNCTION put_back_each(lease_id bigint, lost boolean, isolated boolean); Type: ACL; Schema: postrider; Owner: -
--

REVOKE ALL ON FUNCTION postrider.put_back_each(lease_id bigint, lost boolean, isolated boolean) FROM PUBLIC;


--
-- Name: FUNCTION put_endpoint(id bigint, revision integer, fields json, headers bytea, headers_key text); Type: ACL; Schema: postrider; Owner: -
--

REVOKE ALL ON FUNCTION postrider.put_endpoint(id bigint, revision integer, fields json, headers bytea, headers_key text) FROM PUBLIC;


--
-- Name: FUNCTION put_subscription(name text, types text[], kind text, owner text, delay_ms bigint, outward boolean, declared_by text, generation bigint, predicate text, order_by text, order_policy text, coalescing boolean, start text); Type: ACL; Schema: postrider; Owner: -
--

REVOKE ALL ON FUNCTION postrider.put_subscription(name text, types text[], kind text, owner text, delay_ms bigint, outward boolean, declared_by text, generation bigint, predicate text, order_by text, order_policy text, coalescing boolean, start text) FROM PUBLIC;


--
-- Name: FUNCTION put_tags(class smallint, id bigint, tags text[]); Type: ACL; Schema: postrider; Owner: -
--

REVOKE ALL ON FUNCTION postrider.put_tags(class smallint, id bigint, tags text[]) FROM PUBLIC;


--
-- Name: FUNCTION record(type text, subject text, data json, owner text, occurred_at timestamp with time zone, cause uuid, idempotency_key text, version integer, traceparent text, deliver_at timestamp with time zone); Type: ACL; Schema: postrider; Owner: -
--

REVOKE ALL ON FUNCTION postrider.record(type text, subject text, data json, owner text, occurred_at timestamp with time zone, cause uuid, idempotency_key text, version integer, traceparent text, deliver_at timestamp with time zone) FROM PUBLIC;


--
-- Name: FUNCTION record_many(events json); Type: ACL; Schema: postrider; Owner: -
--

REVOKE ALL ON FUNCTION postrider.record_many(events json) FROM PUBLIC;


--
-- Name: FUNCTION record_rows(types text[], subjects text[], owners text[], data json[], keys json[], wake boolean); Type: ACL; Schema: postrider; Owner: -
--

REVOKE ALL ON FUNCTION postrider.record_rows(types text[], subjects text[], owners text[], data json[], keys json[], wake boolean) FROM PUBLIC;


--
-- Name: FUNCTION redeliver(id bigint, as_new boolean, OUT effect text, OUT delivery bigint); Type: ACL; Schema: postrider; Owner: -
--

REVOKE ALL ON FUNCTION postrider.redeliver(id bigint, as_new boolean, OUT effect text, OUT delivery bigint) FROM PUBLIC;


--
-- Name: FUNCTION redeliver_discarded(endpoint bigint, after bigint, looked_at integer, OUT n bigint, OUT upto bigint); Type: ACL; Schema: postrider; Owner: -
--

REVOKE ALL ON FUNCTION postrider.redeliver_discarded(endpoint bigint, after bigint, looked_at integer, OUT n bigint, OUT upto bigint) FROM PUBLIC;


--
-- Name: FUNCTION refer_to(id bigint, seq bigint); Type: ACL; Schema: postrider; Owner: -
--

REVOKE ALL ON FUNCTION postrider.refer_to(id bigint, seq bigint) FROM PUBLIC;


--
-- Name: FUNCTION refuse(code text, field text, message text, remedy text); Type: ACL; Schema: postrider; Owner: -
--

REVOKE ALL ON FUNCTION postrider.refuse(code text, field text, message text, remedy text) FROM PUBLIC;


--
-- Name: FUNCTION refuse_schedule(name text); Type: ACL; Schema: postrider; Owner: -
--

REVOKE ALL ON FUNCTION postrider.refuse_schedule(name text) FROM PUBLIC;


--
-- Name: FUNCTION refuse_schema(at text, message text, remedy text); Type: ACL; Schema: postrider; Owner: -
--

REVOKE ALL ON FUNCTION postrider.refuse_schema(at text, message text, remedy text) FROM PUBLIC;


--
-- Name: FUNCTION refuse_type(type text); Type: ACL; Schema: postrider; Owner: -
--

REVOKE ALL ON FUNCTION postrider.refuse_type(type text) FROM PUBLIC;


--
-- Name: FUNCTION relay(most integer, elsewhere boolean, careful boolean, refused json); Type: ACL; Schema: postrider; Owner: -
--

REVOKE ALL ON FUNCTION postrider.relay(most integer, elsewhere boolean, careful boolean, refused json) FROM PUBLIC;


--
-- Name: FUNCTION relay_backlog(last postrider.cut, b postrider.backlog, how postrider.pass, answer postrider.relayed); Type: ACL; Schema: postrider; Owner: -
--

REVOKE ALL ON FUNCTION postrider.relay_backlog(last postrider.cut, b postrider.backlog, how postrider.pass, answer postrider.relayed) FROM PUBLIC;


--
-- Name: FUNCTION relay_beside(last postrider.cut, how postrider.pass, answer postrider.relayed); Type: ACL; Schema: postrider; Owner: -
--

REVOKE ALL ON FUNCTION postrider.relay_beside(last postrider.cut, how postrider.pass, answer postrider.relayed) FROM PUBLIC;


--
-- Name: FUNCTION relay_due(last postrider.cut, how postrider.pass, answer postrider.relayed); Type: ACL; Schema: postrider; Owner: -
--

REVOKE ALL ON FUNCTION postrider.relay_due(last postrider.cut, how postrider.pass, answer postrider.relayed) FROM PUBLIC;


--
-- Name: FUNCTION release_deleted(most integer); Type: ACL; Schema: postrider; Owner: -
--

REVOKE ALL ON FUNCTION postrider.release_deleted(most integer) FROM PUBLIC;


--
-- Name: FUNCTION replace_waiting(id bigint, args json, run_at timestamp with time zone); Type: ACL; Schema: postrider; Owner: -
--

REVOKE ALL ON FUNCTION postrider.replace_waiting(id bigint, args json, run_at timestamp with time zone) FROM PUBLIC;


--
-- Name: FUNCTION replays(endpoint bigint); Type: ACL; Schema: postrider; Owner: -
--

REVOKE ALL ON FUNCTION postrider.replays(endpoint bigint) FROM PUBLIC;


--
-- Name: FUNCTION requeue(event uuid, subscription text); Type: ACL; Schema: postrider; Owner: -
--

REVOKE ALL ON FUNCTION postrider.requeue(event uuid, subscription text) FROM PUBLIC;


--
-- Name: FUNCTION rescue(dead uuid, seen_beat bigint); Type: ACL; Schema: postrider; Owner: -
--

REVOKE ALL ON FUNCTION postrider.rescue(dead uuid, seen_beat bigint) FROM PUBLIC;


--
-- Name: FUNCTION resolve(xid text, event_id uuid, job_id bigint, told_at timestamp with time zone); Type: ACL; Schema: postrider; Owner: -
--

REVOKE ALL ON FUNCTION postrider.resolve(xid text, event_id uuid, job_id bigint, told_at timestamp with time zone) FROM PUBLIC;


--
-- Name: FUNCTION rest_of_rebase(epoch postrider.log_epoch, most integer, now pg_snapshot); Type: ACL; Schema: postrider; Owner: -
--

REVOKE ALL ON FUNCTION postrider.rest_of_rebase(epoch postrider.log_epoch, most integer, now pg_snapshot) FROM PUBLIC;


--
-- Name: FUNCTION resume_endpoint(id bigint); Type: ACL; Schema: postrider; Owner: -
--

REVOKE ALL ON FUNCTION postrider.resume_endpoint(id bigint) FROM PUBLIC;


--
-- Name: FUNCTION resume_outbound(); Type: ACL; Schema: postrider; Owner: -
--

REVOKE ALL ON FUNCTION postrider.resume_outbound() FROM PUBLIC;


--
-- Name: FUNCTION retire(); Type: ACL; Schema: postrider; Owner: -
--

REVOKE ALL ON FUNCTION postrider.retire() FROM PUBLIC;


--
-- Name: FUNCTION retire_events(); Type: ACL; Schema: postrider; Owner: -
--

REVOKE ALL ON FUNCTION postrider.retire_events() FROM PUBLIC;


--
-- Name: FUNCTION retire_span(class smallint, first bigint, until bigint, suffix text, keep interval); Type: ACL; Schema: postrider; Owner: -
--

REVOKE ALL ON FUNCTION postrider.retire_span(class smallint, first bigint, until bigint, suffix text, keep interval) FROM PUBLIC;


--
-- Name: FUNCTION retried_elsewhere(tried json); Type: ACL; Schema: postrider; Owner: -
--

REVOKE ALL ON FUNCTION postrider.retried_elsewhere(tried json) FROM PUBLIC;


--
-- Name: FUNCTION retry(ids bigint[]); Type: ACL; Schema: postrider; Owner: -
--

REVOKE ALL ON FUNCTION postrider.retry(ids bigint[]) FROM PUBLIC;


--
-- Name: FUNCTION retry_poison(); Type: ACL; Schema: postrider; Owner: -
--

REVOKE ALL ON FUNCTION postrider.retry_poison() FROM PUBLIC;


--
-- Name: FUNCTION rooms_of(queue text, keys text[]); Type: ACL; Schema: postrider; Owner: -
--

REVOKE ALL ON FUNCTION postrider.rooms_of(queue text, keys text[]) FROM PUBLIC;


--
-- Name: FUNCTION rotate_secret(endpoint bigint, id uuid, kind text, sealed bytea, key_id text, overlap_ms bigint); Type: ACL; Schema: postrider; Owner: -
--

REVOKE ALL ON FUNCTION postrider.rotate_secret(endpoint bigint, id uuid, kind text, sealed bytea, key_id text, overlap_ms bigint) FROM PUBLIC;


--
-- Name: FUNCTION row_fault(data json, key json); Type: ACL; Schema: postrider; Owner: -
--

REVOKE ALL ON FUNCTION postrider.row_fault(data json, key json) FROM PUBLIC;


--
-- Name: FUNCTION row_subject(subject text, key json); Type: ACL; Schema: postrider; Owner: -
--

REVOKE ALL ON FUNCTION postrider.row_subject(subject text, key json) FROM PUBLIC;


--
-- Name: FUNCTION run_of_schedule(s postrider.schedule, moments timestamp with time zone[]); Type: ACL; Schema: postrider; Owner: -
--

REVOKE ALL ON FUNCTION postrider.run_of_schedule(s postrider.schedule, moments timestamp with time zone[]) FROM PUBLIC;


--
-- Name: FUNCTION run_schedule(name text); Type: ACL; Schema: postrider; Owner: -
--

REVOKE ALL ON FUNCTION postrider.run_schedule(name text) FROM PUBLIC;


--
-- Name: FUNCTION schedule_due_in_ms(names text[]); Type: ACL; Schema: postrider; Owner: -
--

REVOKE ALL ON FUNCTION postrider.schedule_due_in_ms(names text[]) FROM PUBLIC;


--
-- Name: FUNCTION schema_error(schema jsonb, value jsonb, at text); Type: ACL; Schema: postrider; Owner: -
--

REVOKE ALL ON FUNCTION postrider.schema_error(schema jsonb, value jsonb, at text) FROM PUBLIC;


--
-- Name: FUNCTION schema_narrowed(old jsonb, new jsonb, at text); Type: ACL; Schema: postrider; Owner: -
--

REVOKE ALL ON FUNCTION postrider.schema_narrowed(old jsonb, new jsonb, at text) FROM PUBLIC;


--
-- Name: FUNCTION schema_pattern(pattern text); Type: ACL; Schema: postrider; Owner: -
--

REVOKE ALL ON FUNCTION postrider.schema_pattern(pattern text) FROM PUBLIC;


--
-- Name: FUNCTION scope_name(); Type: ACL; Schema: postrider; Owner: -
--

REVOKE ALL ON FUNCTION postrider.scope_name() FROM PUBLIC;


--
-- Name: FUNCTION send_test(endpoint bigint); Type: ACL; Schema: postrider; Owner: -
--

REVOKE ALL ON FUNCTION postrider.send_test(endpoint bigint) FROM PUBLIC;


--
-- Name: FUNCTION set_aside(event_seq bigint, subscription bigint, cut bigint, code text, error text); Type: ACL; Schema: postrider; Owner: -
--

REVOKE ALL ON FUNCTION postrider.set_aside(event_seq bigint, subscription bigint, cut bigint, code text, error text) FROM PUBLIC;


--
-- Name: FUNCTION set_limit(queue text, key text, most integer, starts integer, per interval); Type: ACL; Schema: postrider; Owner: -
--

REVOKE ALL ON FUNCTION postrider.set_limit(queue text, key text, most integer, starts integer, per interval) FROM PUBLIC;


--
-- Name: FUNCTION set_scope(function text); Type: ACL; Schema: postrider; Owner: -
--

REVOKE ALL ON FUNCTION postrider.set_scope(function text) FROM PUBLIC;


--
-- Name: FUNCTION settle_lanes(queue text, keys text[], lows bigint[], waits boolean); Type: ACL; Schema: postrider; Owner: -
--

REVOKE ALL ON FUNCTION postrider.settle_lanes(queue text, keys text[], lows bigint[], waits boolean) FROM PUBLIC;


--
-- Name: FUNCTION settle_lanes_called(); Type: ACL; Schema: postrider; Owner: -
--

REVOKE ALL ON FUNCTION postrider.settle_lanes_called() FROM PUBLIC;


--
-- Name: FUNCTION settle_left_over(); Type: ACL; Schema: postrider; Owner: -
--

REVOKE ALL ON FUNCTION postrider.settle_left_over() FROM PUBLIC;


--
-- Name: FUNCTION settle_turns(ids bigint[]); Type: ACL; Schema: postrider; Owner: -
--

REVOKE ALL ON FUNCTION postrider.settle_turns(ids bigint[]) FROM PUBLIC;


--
-- Name: FUNCTION settle_unique(ids bigint[]); Type: ACL; Schema: postrider; Owner: -
--

REVOKE ALL ON FUNCTION postrider.settle_unique(ids bigint[]) FROM PUBLIC;


--
-- Name: FUNCTION share_unique(hash bytea, job bigint); Type: ACL; Schema: postrider; Owner: -
--

REVOKE ALL ON FUNCTION postrider.share_unique(hash bytea, job bigint) FROM PUBLIC;


--
-- Name: FUNCTION start_rebase(last postrider.cut, epoch postrider.log_epoch); Type: ACL; Schema: postrider; Owner: -
--

REVOKE ALL ON FUNCTION postrider.start_rebase(last postrider.cut, epoch postrider.log_epoch) FROM PUBLIC;


--
-- Name: FUNCTION start_replay(id bigint); Type: ACL; Schema: postrider; Owner: -
--

REVOKE ALL ON FUNCTION postrider.start_replay(id bigint) FROM PUBLIC;


--
-- Name: FUNCTION start_schedules(names text[]); Type: ACL; Schema: postrider; Owner: -
--

REVOKE ALL ON FUNCTION postrider.start_schedules(names text[]) FROM PUBLIC;


--
-- Name: FUNCTION state_of(j postrider.job); Type: ACL; Schema: postrider; Owner: -
--

REVOKE ALL ON FUNCTION postrider.state_of(j postrider.job) FROM PUBLIC;


--
-- Name: FUNCTION step_replay(id bigint); Type: ACL; Schema: postrider; Owner: -
--

REVOKE ALL ON FUNCTION postrider.step_replay(id bigint) FROM PUBLIC;


--
-- Name: FUNCTION string_error(schema jsonb, value text, at text); Type: ACL; Schema: postrider; Owner: -
--

REVOKE ALL ON FUNCTION postrider.string_error(schema jsonb, value text, at text) FROM PUBLIC;


--
-- Name: FUNCTION subject_regex(form text); Type: ACL; Schema: postrider; Owner: -
--

REVOKE ALL ON FUNCTION postrider.subject_regex(form text) FROM PUBLIC;


--
-- Name: FUNCTION subscriptions(after text, most integer); Type: ACL; Schema: postrider; Owner: -
--

REVOKE ALL ON FUNCTION postrider.subscriptions(after text, most integer) FROM PUBLIC;


--
-- Name: FUNCTION superseded(ids bigint[]); Type: ACL; Schema: postrider; Owner: -
--

REVOKE ALL ON FUNCTION postrider.superseded(ids bigint[]) FROM PUBLIC;


--
-- Name: FUNCTION tags_of(item json); Type: ACL; Schema: postrider; Owner: -
--

REVOKE ALL ON FUNCTION postrider.tags_of(item json) FROM PUBLIC;


--
-- Name: FUNCTION take_for_ever(j postrider.job); Type: ACL; Schema: postrider; Owner: -
--

REVOKE ALL ON FUNCTION postrider.take_for_ever(j postrider.job) FROM PUBLIC;


--
-- Name: FUNCTION take_free(queue text, INOUT asking postrider.ready[], got text[], OUT free postrider.ready[]); Type: ACL; Schema: postrider; Owner: -
--

REVOKE ALL ON FUNCTION postrider.take_free(queue text, INOUT asking postrider.ready[], got text[], OUT free postrider.ready[]) FROM PUBLIC;


--
-- Name: FUNCTION take_later(j postrider.job, tried_most integer); Type: ACL; Schema: postrider; Owner: -
--

REVOKE ALL ON FUNCTION postrider.take_later(j postrider.job, tried_most integer) FROM PUBLIC;


--
-- Name: FUNCTION take_lines(queue text, going postrider.ready[], kinds text[], most integer, got text[]); Type: ACL; Schema: postrider; Owner: -
--

REVOKE ALL ON FUNCTION postrider.take_lines(queue text, going postrider.ready[], kinds text[], most integer, got text[]) FROM PUBLIC;


--
-- Name: FUNCTION take_room(queue text, going postrider.ready[], OUT may postrider.ready[], OUT parked boolean); Type: ACL; Schema: postrider; Owner: -
--

REVOKE ALL ON FUNCTION postrider.take_room(queue text, going postrider.ready[], OUT may postrider.ready[], OUT parked boolean) FROM PUBLIC;


--
-- Name: FUNCTION take_turns(queue text, most integer, priorities smallint[], shares smallint[], positions bigint[], kinds text[], in_line integer, turned bigint[], OUT turns postrider.ready[], OUT moved boolean); Type: ACL; Schema: postrider; Owner: -
--

REVOKE ALL ON FUNCTION postrider.take_turns(queue text, most integer, priorities smallint[], shares smallint[], positions bigint[], kinds text[], in_line integer, turned bigint[], OUT turns postrider.ready[], OUT moved boolean) FROM PUBLIC;


--
-- Name: FUNCTION take_unique(hash bytea, mode smallint, id bigint, until timestamp with time zone); Type: ACL; Schema: postrider; Owner: -
--

REVOKE ALL ON FUNCTION postrider.take_unique(hash bytea, mode smallint, id bigint, until timestamp with time zone) FROM PUBLIC;


--
-- Name: FUNCTION take_waiting(j postrider.job, tried_most integer); Type: ACL; Schema: postrider; Owner: -
--

REVOKE ALL ON FUNCTION postrider.take_waiting(j postrider.job, tried_most integer) FROM PUBLIC;


--
-- Name: FUNCTION tell_endpoint(type text, id bigint, says json); Type: ACL; Schema: postrider; Owner: -
--

REVOKE ALL ON FUNCTION postrider.tell_endpoint(type text, id bigint, says json) FROM PUBLIC;


--
-- Name: FUNCTION tell_exhausted(most integer); Type: ACL; Schema: postrider; Owner: -
--

REVOKE ALL ON FUNCTION postrider.tell_exhausted(most integer) FROM PUBLIC;


--
-- Name: FUNCTION tell_matched(at timestamp with time zone, seqs bigint[], types text[], owners text[], subscriptions bigint[]); Type: ACL; Schema: postrider; Owner: -
--

REVOKE ALL ON FUNCTION postrider.tell_matched(at timestamp with time zone, seqs bigint[], types text[], owners text[], subscriptions bigint[]) FROM PUBLIC;


--
-- Name: FUNCTION tick(worker uuid, report json); Type: ACL; Schema: postrider; Owner: -
--

REVOKE ALL ON FUNCTION postrider.tick(worker uuid, report json) FROM PUBLIC;


--
-- Name: FUNCTION try_expressions(plan postrider.watch_plan); Type: ACL; Schema: postrider; Owner: -
--

REVOKE ALL ON FUNCTION postrider.try_expressions(plan postrider.watch_plan) FROM PUBLIC;


--
-- Name: FUNCTION type_names(types jsonb); Type: ACL; Schema: postrider; Owner: -
--

REVOKE ALL ON FUNCTION postrider.type_names(types jsonb) FROM PUBLIC;


--
-- Name: FUNCTION types(after text, most integer); Type: ACL; Schema: postrider; Owner: -
--

REVOKE ALL ON FUNCTION postrider.types(after text, most integer) FROM PUBLIC;


--
-- Name: FUNCTION types_of_transactions(xids xid8[]); Type: ACL; Schema: postrider; Owner: -
--

REVOKE ALL ON FUNCTION postrider.types_of_transactions(xids xid8[]) FROM PUBLIC;


--
-- Name: FUNCTION unique_hash(mode smallint, kind text, owner text, key text, args json); Type: ACL; Schema: postrider; Owner: -
--

REVOKE ALL ON FUNCTION postrider.unique_hash(mode smallint, kind text, owner text, key text, args json) FROM PUBLIC;


--
-- Name: FUNCTION unique_mode_no(mode text); Type: ACL; Schema: postrider; Owner: -
--

REVOKE ALL ON FUNCTION postrider.unique_mode_no(mode text) FROM PUBLIC;


--
-- Name: FUNCTION unpark(queues text[], kinds text[]); Type: ACL; Schema: postrider; Owner: -
--

REVOKE ALL ON FUNCTION postrider.unpark(queues text[], kinds text[]) FROM PUBLIC;


--
-- Name: FUNCTION unwatch(name text, patience_ms integer); Type: ACL; Schema: postrider; Owner: -
--

REVOKE ALL ON FUNCTION postrider.unwatch(name text, patience_ms integer) FROM PUBLIC;


--
-- Name: FUNCTION usual_duties(); Type: ACL; Schema: postrider; Owner: -
--

REVOKE ALL ON FUNCTION postrider.usual_duties() FROM PUBLIC;


--
-- Name: FUNCTION verify("from" timestamp with time zone, "to" timestamp with time zone); Type: ACL; Schema: postrider; Owner: -
--

REVOKE ALL ON FUNCTION postrider.verify("from" timestamp with time zone, "to" timestamp with time zone) FROM PUBLIC;


--
-- Name: FUNCTION wake(channel text); Type: ACL; Schema: postrider; Owner: -
--

REVOKE ALL ON FUNCTION postrider.wake(channel text) FROM PUBLIC;


--
-- Name: FUNCTION wake_for_lanes(); Type: ACL; Schema: postrider; Owner: -
--

REVOKE ALL ON FUNCTION postrider.wake_for_lanes() FROM PUBLIC;


--
-- Name: FUNCTION walk(b postrider.subscription_start, most integer); Type: ACL; Schema: postrider; Owner: -
--

REVOKE ALL ON FUNCTION postrider.walk(b postrider.subscription_start, most integer) FROM PUBLIC;


--
-- Name: FUNCTION walk_from(b postrider.subscription_start); Type: ACL; Schema: postrider; Owner: -
--

REVOKE ALL ON FUNCTION postrider.walk_from(b postrider.subscription_start) FROM PUBLIC;


--
-- Name: FUNCTION walk_replay(r postrider.delivery_replay, most integer); Type: ACL; Schema: postrider; Owner: -
--

REVOKE ALL ON FUNCTION postrider.walk_replay(r postrider.delivery_replay, most integer) FROM PUBLIC;


--
-- Name: FUNCTION walkers(b postrider.subscription_start); Type: ACL; Schema: postrider; Owner: -
--

REVOKE ALL ON FUNCTION postrider.walkers(b postrider.subscription_start) FROM PUBLIC;


--
-- Name: FUNCTION wanted_watch(relation oid, asked json); Type: ACL; Schema: postrider; Owner: -
--

REVOKE ALL ON FUNCTION postrider.wanted_watch(relation oid, asked json) FROM PUBLIC;


--
-- Name: FUNCTION was_written(class smallint, first bigint); Type: ACL; Schema: postrider; Owner: -
--

REVOKE ALL ON FUNCTION postrider.was_written(class smallint, first bigint) FROM PUBLIC;


--
-- Name: FUNCTION watch(relation regclass, name text, columns text[], operations text[], types json, condition text, subject text, data text, owner text, app text, generation bigint, patience_ms integer); Type: ACL; Schema: postrider; Owner: -
--

REVOKE ALL ON FUNCTION postrider.watch(relation regclass, name text, columns text[], operations text[], types json, condition text, subject text, data text, owner text, app text, generation bigint, patience_ms integer) FROM PUBLIC;


--
-- Name: FUNCTION watch_base(relation oid); Type: ACL; Schema: postrider; Owner: -
--

REVOKE ALL ON FUNCTION postrider.watch_base(relation oid) FROM PUBLIC;


--
-- Name: FUNCTION watch_faults(w postrider.watch, c pg_class, label text); Type: ACL; Schema: postrider; Owner: -
--

REVOKE ALL ON FUNCTION postrider.watch_faults(w postrider.watch, c pg_class, label text) FROM PUBLIC;


--
-- Name: FUNCTION watch_function_fault(p pg_proc, table_owner oid, source text, settings text[]); Type: ACL; Schema: postrider; Owner: -
--

REVOKE ALL ON FUNCTION postrider.watch_function_fault(p pg_proc, table_owner oid, source text, settings text[]) FROM PUBLIC;


--
-- Name: FUNCTION watch_holes(c pg_class); Type: ACL; Schema: postrider; Owner: -
--

REVOKE ALL ON FUNCTION postrider.watch_holes(c pg_class) FROM PUBLIC;


--
-- Name: FUNCTION watch_image(side text, columns text[]); Type: ACL; Schema: postrider; Owner: -
--

REVOKE ALL ON FUNCTION postrider.watch_image(side text, columns text[]) FROM PUBLIC;


--
-- Name: FUNCTION watch_key(relation oid); Type: ACL; Schema: postrider; Owner: -
--

REVOKE ALL ON FUNCTION postrider.watch_key(relation oid) FROM PUBLIC;


--
-- Name: FUNCTION watch_query(w postrider.watch, operation text); Type: ACL; Schema: postrider; Owner: -
--

REVOKE ALL ON FUNCTION postrider.watch_query(w postrider.watch, operation text) FROM PUBLIC;


--
-- Name: FUNCTION watch_settings(w postrider.watch); Type: ACL; Schema: postrider; Owner: -
--

REVOKE ALL ON FUNCTION postrider.watch_settings(w postrider.watch) FROM PUBLIC;


--
-- Name: FUNCTION watch_source(w postrider.watch); Type: ACL; Schema: postrider; Owner: -
--

REVOKE ALL ON FUNCTION postrider.watch_source(w postrider.watch) FROM PUBLIC;


--
-- Name: FUNCTION watch_statements(w postrider.watch, schema name, table_owner oid); Type: ACL; Schema: postrider; Owner: -
--

REVOKE ALL ON FUNCTION postrider.watch_statements(w postrider.watch, schema name, table_owner oid) FROM PUBLIC;


--
-- Name: FUNCTION watch_trigger_stands(relation oid, label text, operation text, calls oid); Type: ACL; Schema: postrider; Owner: -
--

REVOKE ALL ON FUNCTION postrider.watch_trigger_stands(relation oid, label text, operation text, calls oid) FROM PUBLIC;


--
-- Name: FUNCTION watch_writes(child text, class smallint, first bigint); Type: ACL; Schema: postrider; Owner: -
--

REVOKE ALL ON FUNCTION postrider.watch_writes(child text, class smallint, first bigint) FROM PUBLIC;


--
-- Name: FUNCTION watches(); Type: ACL; Schema: postrider; Owner: -
--

REVOKE ALL ON FUNCTION postrider.watches() FROM PUBLIC;


--
-- Name: FUNCTION webhook_figures(); Type: ACL; Schema: postrider; Owner: -
--

REVOKE ALL ON FUNCTION postrider.webhook_figures() FROM PUBLIC;


--
-- Name: FUNCTION who_would_get(type text, subject text, data json, owner text); Type: ACL; Schema: postrider; Owner: -
--

REVOKE ALL ON FUNCTION postrider.who_would_get(type text, subject text, data json, owner text) FROM PUBLIC;


--
-- Name: FUNCTION without_held(kinds text[]); Type: ACL; Schema: postrider; Owner: -
--

REVOKE ALL ON FUNCTION postrider.without_held(kinds text[]) FROM PUBLIC;


--
-- Name: FUNCTION without_refused(no bigint, matched json, refused json, OUT matched_left json, OUT aside integer); Type: ACL; Schema: postrider; Owner: -
--

REVOKE ALL ON FUNCTION postrider.without_refused(no bigint, matched json, refused json, OUT matched_left json, OUT aside integer) FROM PUBLIC;


--
-- Name: FUNCTION xid_gaps(first xid8, beyond xid8, without xid8[], OUT above xid8, OUT below xid8); Type: ACL; Schema: postrider; Owner: -
--

REVOKE ALL ON FUNCTION postrider.xid_gaps(first xid8, beyond xid8, without xid8[], OUT above xid8, OUT below xid8) FROM PUBLIC;
