-- What applications declare as data: event types, kinds of job, subscriptions; and the routes compiled from them.
-- Locks: none that matter, everything here is new.
-- By hand on a large table: nothing.

create table postrider.event_type (
    name            text collate "C" not null primary key,
    description     text        not null default '',
    exposure        text        not null default 'internal',
    subject         text,                           -- the form of its subjects, such as order/{id}
    subject_fits    text,                           -- the same as a regular expression
    validation      text        not null default 'off',
    version         int,                            -- that data follows unless the call says another one: the newest of `versions`
    versions        int[]       not null default '{}',   -- as declared; older ones may stand in type_version
    deprecated_on   date,
    deprecated_note text        not null default '',
    replaced_by     text,
    declared_by     text        not null,
    generation      bigint      not null default 0,
    seen_at         timestamptz not null default clock_timestamp(),
    constraint exposure_is_internal_or_public check (exposure in ('internal', 'public')),
    constraint validation_is_off_warn_or_enforce check (validation in ('off', 'warn', 'enforce')),
    constraint what_is_validated_has_a_version check (validation = 'off' or version is not null)
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
    predicate   jsonpath,                           -- of the data; $type, $owner and $subject are there as variables
    order_by    text,
    order_policy text,                              -- null is the kind's
    coalescing  boolean     not null default false, -- of the events of one subject only the latest, while its job waits
    declared_by text        not null,
    generation  bigint      not null default 0,
    created_at  timestamptz not null default clock_timestamp(),
    seen_at     timestamptz not null default clock_timestamp(),
    removed_at  timestamptz,                        -- its row stays, for the jobs that it made
    constraint delay_is_not_negative check (delay_ms >= 0),
    constraint order_is_by_subject_owner_or_all check (order_by in ('subject', 'owner', 'all')),
    constraint a_policy_belongs_to_an_order check (order_policy is null or order_by is not null)
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
    predicate    jsonpath,
    order_by     text,
    order_rule   smallint,
    order_name   text,                              -- what its order keys begin with
    coalescing   boolean  not null default false,
    starting     boolean  not null default false,   -- the relay passes it by until it has caught up
    reads        boolean  not null,                 -- more of an event is needed than its type and owner
    primary key (type, owner, subscription)
);
create index route_of_subscription on postrider.route (subscription);
create index route_reads on postrider.route (type) where reads;
create index route_coalescing on postrider.route (type) where coalescing;

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
-- { "app", "generation", "types": [{name, description, exposure, subject, validation, deprecated: {on, note, replaced_by},
--   versions: [{version, schema, example, breaking}]}], "kinds": [{name, queue, priority, max_attempts,
--   timeout_ms, retry, class, unique_mode, unique_for_ms, max_age_ms, order_policy, fair,
--   limit: {most, starts, per_ms}}], "subscriptions": [{name, types, kind, owner, delay_ms, predicate, order_by, order_policy, coalescing,
--   start}],
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
