-- What applications declare as data: event types, kinds of job, subscriptions; and the routes compiled from them.
-- Locks: none that matter, everything here is new.
-- By hand on a large table: nothing.

create table postrider.event_type (
    name        text collate "C" not null primary key,
    description text        not null default '',
    exposure    text        not null default 'internal',
    declared_by text        not null,
    generation  bigint      not null default 0,
    seen_at     timestamptz not null default clock_timestamp(),
    constraint exposure_is_internal_or_public check (exposure in ('internal', 'public'))
);

create table postrider.kind (
    name         text collate "C" not null primary key,
    queue        text        not null,
    priority     smallint    not null,
    max_attempts smallint    not null,
    timeout_ms   bigint      not null,
    retry        json        not null,
    class        smallint    not null,
    unique_mode  text,
    unique_for_ms bigint,
    max_age_ms   bigint      not null,
    order_policy text        not null default 'block',
    cap          json,
    limit_key    text,                              -- of jobs that name none; there is one if the kind has a limit
    fair         boolean     not null default false,
    declared_by  text        not null,
    generation   bigint      not null default 0,
    seen_at      timestamptz not null default clock_timestamp(),
    constraint priority_is_1_to_4 check (priority between 1 and 4),
    constraint max_attempts_is_1_to_1000 check (max_attempts between 1 and 1000),
    constraint class_is_short_standard_or_long check (class between 1 and 3),
    constraint within_has_a_window check ((unique_mode is not distinct from 'within') = (unique_for_ms is not null))
);

create table postrider.subscription (
    id          bigint      generated always as identity primary key,
    name        text collate "C" not null unique,
    owner       text collate "C" not null default '',
    types       text[]      not null,
    kind        text collate "C" not null references postrider.kind (name),
    delay_ms    bigint      not null default 0,
    outward     boolean     not null default false,
    declared_by text        not null,
    generation  bigint      not null default 0,
    created_at  timestamptz not null default clock_timestamp(),
    seen_at     timestamptz not null default clock_timestamp(),
    constraint delay_is_not_negative check (delay_ms >= 0)
);

-- Everything that fan-out needs, one index probe for each (event, owner or '').
create table postrider.route (
    type         text collate "C" not null,
    owner        text collate "C" not null,
    subscription bigint   not null references postrider.subscription (id) on delete cascade,
    kind         text collate "C" not null,
    queue        text     not null,
    priority     smallint not null,
    max_attempts smallint not null,
    class        smallint not null,
    delay_ms     bigint   not null,
    limit_key    text,
    fair         boolean  not null default false,
    primary key (type, owner, subscription)
);
create index route_of_subscription on postrider.route (subscription);

-- `*` is one segment, `**` is one or more; the twin of postrider_contract::Pattern.
create function postrider.pattern_regex(pattern text) returns text
language plpgsql immutable strict set search_path = pg_catalog, pg_temp as $$
begin
    if octet_length(pattern) > 200 or pattern !~ '^(\*{1,2}|[a-z0-9_-]+)(\.(\*{1,2}|[a-z0-9_-]+))*$' then
        perform postrider.refuse('PR001', 'types', format('%L is not a pattern', left(pattern, 80)),
            'use the segments of a type, * for exactly one segment and ** for one or more');
    end if;
    return '^' || (
        select string_agg(case s when '*' then '[^.]+' when '**' then '[^.]+(\.[^.]+)*' else s end, '\.' order by o)
          from unnest(string_to_array(pattern, '.')) with ordinality u (s, o)) || '$';
end $$;

-- Whoever changes types, kinds or subscriptions comes one after the other: routes are compiled from all three, and from one that
-- another transaction is about to commit they would be compiled wrong, for good.
create function postrider.lock_declarations() returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    perform pg_advisory_xact_lock(7305, 2);
end $$;

create function postrider.compile_routes(subscriptions bigint[], types text[]) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    delete from postrider.route r
     where r.subscription = any (compile_routes.subscriptions) or r.type = any (compile_routes.types);
    insert into postrider.route (type, owner, subscription, kind, queue, priority, max_attempts, class, delay_ms, limit_key, fair)
    select t.name, s.owner, s.id, s.kind, k.queue, k.priority, k.max_attempts, k.class, s.delay_ms, k.limit_key, k.fair
      from postrider.subscription s
      join postrider.kind k on k.name = s.kind
      join postrider.event_type t
        on (s.id = any (compile_routes.subscriptions) or t.name = any (compile_routes.types))
       and (not s.outward or t.exposure = 'public')
       and exists (select from unnest(s.types) p where t.name ~ postrider.pattern_regex(p));
end $$;

-- Adds or changes a subscription by its name; answers with its id. Other declarations wait until the caller's transaction ends.
create function postrider.put_subscription(
    name text, types text[], kind text, owner text default '', delay_ms bigint default 0, outward boolean default false,
    declared_by text default '', generation bigint default 0
) returns bigint
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    found_id bigint;
begin
    perform postrider.check_name('subscription', name, true);
    perform postrider.check_owner(owner);
    if coalesce(cardinality(types), 0) = 0 then
        perform postrider.refuse('PR005', 'types', format('subscription %L names no event type', name),
            'give at least one type or pattern');
    end if;
    perform postrider.pattern_regex(p) from unnest(types) p;
    perform postrider.lock_declarations();
    if not exists (select from postrider.kind k where k.name = put_subscription.kind) then
        perform postrider.refuse('PR004', 'kind', format('%L was never declared', put_subscription.kind),
            'declare the kind first, or in the same call');
    end if;
    insert into postrider.subscription as s (name, types, kind, owner, delay_ms, outward, declared_by, generation)
    values (put_subscription.name, put_subscription.types, put_subscription.kind, put_subscription.owner,
            put_subscription.delay_ms, put_subscription.outward, put_subscription.declared_by, put_subscription.generation)
    on conflict on constraint subscription_name_key do update
       set types = excluded.types, kind = excluded.kind, owner = excluded.owner, delay_ms = excluded.delay_ms,
           outward = excluded.outward, declared_by = excluded.declared_by, generation = excluded.generation,
           seen_at = clock_timestamp()
    returning s.id into found_id;
    perform postrider.compile_routes(array[found_id], '{}');
    return found_id;
end $$;

-- Forgets a subscription. Jobs that it already made stay. Other declarations wait until the caller's transaction ends.
create function postrider.drop_subscription(id bigint) returns boolean
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    perform postrider.lock_declarations();
    delete from postrider.subscription s where s.id = drop_subscription.id;
    return found;
end $$;

-- Whether a declaration is to be written: a higher generation wins, an equal one must say the same.
create function postrider.declaration_wins(what text, name text, mine bigint, theirs bigint, same boolean) returns boolean
language plpgsql set search_path = pg_catalog, pg_temp as $$
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

-- Declares everything of one application in one transaction: all or nothing.
-- { "app", "generation", "types": [{name, description, exposure}], "kinds": [{name, queue, priority, max_attempts,
--   timeout_ms, retry, class, unique_mode, unique_for_ms, max_age_ms, order_policy, fair,
--   limit: {most, starts, per_ms}}], "subscriptions": [{name, types, kind, owner, delay_ms}],
--   "schedules": [{name, cron or every_ms, zone, kind, args, owner, queue, priority, max_attempts, missed, missed_most, overlap,
--   run_at_start}] }
create function postrider.declare(declarations json) returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    app text := coalesce(declarations ->> 'app', '');
    gen bigint := coalesce((declarations ->> 'generation')::bigint, 0);
    -- the library declares kinds of its own components, whose names are reserved
    own boolean := coalesce((declarations ->> 'own')::boolean, false);
    x record;
    t postrider.event_type;
    k postrider.kind;
    s postrider.subscription;
    new_types text[] := '{}';
    new_kinds text[] := '{}';
begin
    perform postrider.lock_declarations();
    for x in select j ->> 'name' as name, coalesce(j ->> 'description', '') as description,
                    coalesce(j ->> 'exposure', 'internal') as exposure
               from json_array_elements(coalesce(declarations -> 'types', '[]')) j
    loop
        perform postrider.check_name('type', x.name, own);
        if x.exposure not in ('internal', 'public') then
            perform postrider.refuse('PR005', 'exposure', format('%L is not an exposure', x.exposure), 'use internal or public');
        end if;
        select * into t from postrider.event_type e where e.name = x.name;
        if postrider.declaration_wins('type', x.name, gen, t.generation,
            (t.description, t.exposure) is not distinct from (x.description, x.exposure))
        then
            insert into postrider.event_type as e (name, description, exposure, declared_by, generation)
            values (x.name, x.description, x.exposure, app, gen)
            on conflict (name) do update set description = excluded.description, exposure = excluded.exposure,
                declared_by = excluded.declared_by, generation = excluded.generation, seen_at = clock_timestamp();
            if t.name is null or t.exposure <> x.exposure then
                new_types := new_types || x.name;
            end if;
        else
            update postrider.event_type e set seen_at = clock_timestamp() where e.name = x.name;
        end if;
    end loop;

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

    for x in select j ->> 'name' as name, array(select json_array_elements_text(coalesce(j -> 'types', '[]'))) as types,
                    coalesce(j ->> 'kind', j ->> 'name') as kind, coalesce(j ->> 'owner', '') as owner,
                    coalesce((j ->> 'delay_ms')::bigint, 0) as delay_ms
               from json_array_elements(coalesce(declarations -> 'subscriptions', '[]')) j
    loop
        perform postrider.check_name('subscription', x.name, own);
        select * into s from postrider.subscription e where e.name = x.name;
        if postrider.declaration_wins('subscription', x.name, gen, s.generation,
            (s.types, s.kind, s.owner, s.delay_ms) is not distinct from (x.types, x.kind::text, x.owner, x.delay_ms))
        then
            perform postrider.put_subscription(x.name, x.types, x.kind, x.owner, x.delay_ms, false, app, gen);
        else
            update postrider.subscription e set seen_at = clock_timestamp() where e.name = x.name;
        end if;
    end loop;
    perform postrider.compile_routes(
        array(select e.id from postrider.subscription e where e.kind = any (new_kinds)), new_types);
    if declarations -> 'schedules' is not null then
        perform postrider.declare_schedules(declarations, app, gen, own);
    end if;
end $$;
