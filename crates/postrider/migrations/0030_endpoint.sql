-- Endpoints as data: saved, changed, limited, asked who would get what, their secrets rotated, forgotten.
-- Locks: the row of endpoint_health first, then the advisory lock of declarations, then other rows of the endpoint.
-- By hand on a large table: nothing.

-- The key that limits the deliveries of an endpoint, in the queue webhook.
create function postrider.endpoint_key(endpoint bigint) returns text
language sql immutable strict set search_path = pg_catalog, pg_temp
return 'endpoint:' || endpoint;

-- Locks the endpoint; false if it is not there, or not any more.
create function postrider.lock_endpoint(id bigint) returns boolean
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    perform from postrider.endpoint_health h where h.endpoint = lock_endpoint.id for no key update;
    return found;
end $$;

-- Says to the engine how many deliveries of an endpoint may run, and start in a period: what the endpoint asks for, and less while it is tried
-- out or makes up for what has waited. It holds for the next claims.
create function postrider.apply_endpoint_limit(id bigint) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
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

-- Refuses with PR005 what an endpoint may not say; see postrider.put_endpoint.
create function postrider.check_endpoint(fields json) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
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

-- Saves a new endpoint under an id that was drawn for it (revision null), or all fields of one that is there and still has this revision, with
-- its subscription and its limit. Answers with its id; null if there is no such endpoint with this revision any more. The url was vetted, the
-- headers sealed, by the caller.
-- fields: {name, owner, url, types, predicate, order_by, order_policy, labels, max_in_flight, rate_starts, rate_per_ms, format, schedule,
--   steps_ms, timeout_ms, max_attempts, on_4xx, answer_contains, header_names}. The owner of an endpoint never changes.
create function postrider.put_endpoint(id bigint, revision int, fields json, headers bytea, headers_key text) returns bigint
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
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

-- Forgets an endpoint: its secrets, its health and its limit go, and its subscription. Its row stays for those who read attempts. What waits for
-- it is let go, and ends as cancelled when its turn comes: however much it is, nothing of it is touched here. False if it is not there, or not any more.
create function postrider.drop_endpoint(id bigint) returns boolean
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
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

-- Endpoints that are not deleted, after an id, one by one as JSON with times in microseconds; of one owner, or of all if it is null. id: this
-- one alone. state: enabled, failing, held back (it asked to wait), disabled.
create function postrider.endpoints(id bigint default null, owner text default null, after bigint default 0, most int default 100)
returns setof json
language plpgsql stable security definer set search_path = pg_catalog, pg_temp
set jit = off as $$
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

-- The endpoints whose owner, types and predicates take an event. Refuses a type that was never declared (PR004), and data that postrider.record
-- would refuse.
create function postrider.endpoints_for(type text, subject text, data json, owner text)
returns table (id bigint, name text, url text, state text, labels json)
language plpgsql stable security definer set search_path = pg_catalog, pg_temp as $$
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

-- The scope function as it is called; null if there is none.
create function postrider.scope_name() returns text
language sql stable security definer set search_path = pg_catalog, pg_temp
as $$ select format('%I.%I', f.schema, f.name) from postrider.scope_function f $$;

-- Asks the scope function, with the rights of whoever calls this; without one everything is inside. Null and an error if it failed, or did not say.
-- What is the database's trouble and not its answer is raised.
create function postrider.ask_scope(labels json, owner text, type text, subject text, data json, out inside boolean, out error text)
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
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
end $$;

-- Which endpoints would get an event if it were recorded now; asks, and sends nothing. Refuses what postrider.endpoints_for refuses. The scope
-- function is asked with the rights of whoever calls this.
create function postrider.who_would_get(type text, subject text, data json default '{}', owner text default '')
returns table (id bigint, name text, url text, state text)
language sql stable set search_path = pg_catalog, pg_temp
as $$
    select e.id, e.name, e.url, e.state
      from postrider.endpoints_for(who_would_get.type, who_would_get.subject, who_would_get.data, who_would_get.owner) e
     where (select s.inside from postrider.ask_scope(e.labels, who_would_get.owner, who_would_get.type, who_would_get.subject,
                                                     who_would_get.data) s)
     order by e.id
$$;

-- Declares the function that is asked about each delivery before it is sent, by its name with its schema; null: none is asked any more. It gets
-- (labels json, owner text, type text, subject text, data json), the labels of the endpoint and the rest of the event, and says true where the
-- endpoint may have it. Refuses with PR005 (scope) what is no such function, and one that may write.
create function postrider.set_scope(function text) returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
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

-- Notes that the scope function failed, or did not say.
create function postrider.note_scope_failure(error text) returns void
language sql security definer set search_path = pg_catalog, pg_temp
as $$
    update postrider.scope_function f set failures = f.failures + 1, failed_at = clock_timestamp(), error = left(note_scope_failure.error, 1000)
$$;

-- Gives an endpoint a new secret; those of its kind that are valid end after the overlap at the latest. False if the endpoint is not there.
-- Refuses with PR005 (overlap) an overlap beyond seven days, and a sixth secret that would be valid at a time.
create function postrider.rotate_secret(endpoint bigint, id uuid, kind text, sealed bytea, key_id text, overlap_ms bigint) returns boolean
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
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
