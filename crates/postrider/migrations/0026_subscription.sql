-- Subscriptions: which events become jobs of which kind; and the routes that are compiled from them.
-- Locks: the advisory lock of declarations, until the caller's transaction ends.
-- By hand on a large table: nothing.

-- A position in the log: after it, everything visible in `hi` is done if not `more`; if `more`, everything visible in `lo`, and of the
-- window (lo, hi] the rows with seq <= last_seq. It means something for the events of its epoch of the log; before it all are done.
create type postrider.log_position as (epoch int, lo pg_snapshot, hi pg_snapshot, more boolean, last_seq bigint);

-- Subscriptions that began with events that were there, one row for each such beginning. The relay walks what lies between two positions, in
-- the order of seq, and then what the log has become meanwhile, until nothing is left: then it takes the subscription over. Those that keep an
-- order and have events of a huge transaction are walked in the same way, as one, see postrider.held.
create table postrider.subscription_start (
    id           bigint      generated always as identity primary key,
    subscription bigint      references postrider.subscription (id),
    since        timestamptz not null,
    done         postrider.log_position,         -- up to here it has been walked; null: nothing yet
    upto         postrider.log_position,         -- up to here it is being walked
    after        bigint      not null default 0, -- the last seq that was looked at
    events       bigint      not null default 0,
    jobs         bigint      not null default 0,
    asked_at     timestamptz not null default clock_timestamp(),
    walked_at    timestamptz not null default '-infinity', -- they take turns
    over_at      timestamptz                     -- taken over by the relay, or removed before that
);
create unique index subscription_starting on postrider.subscription_start (subscription) where over_at is null;
create index subscription_walked on postrider.subscription_start (walked_at, id) where over_at is null;

-- Subscriptions that keep an order and are walked behind a huge transaction, see postrider.open_backlog; while that start is not over, the relay
-- passes them by.
create table postrider.held (
    subscription bigint not null,
    start        bigint not null,
    primary key (subscription, start)
);
create index held_by_start on postrider.held (start);

create function postrider.is_held_back(subscription bigint) returns boolean
language sql stable
begin atomic
    select (select exists (select from postrider.held))
       and exists (select from postrider.held h join postrider.subscription_start b on b.id = h.start
                    where h.subscription = is_held_back.subscription and b.over_at is null);
end;

create function postrider.compile_routes(subscriptions bigint[], types text[]) returns void
language plpgsql set search_path = pg_catalog, pg_temp set jit = off as $$
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

-- A predicate over an event's data, compiled: an SQL/JSON path that is true or false, such as `$.total > 100`. Where it cannot be said of
-- an event, because a member is missing or has another type, it is not true. Refuses with PR005.
create function postrider.check_predicate(predicate text) returns jsonpath
language plpgsql immutable strict set search_path = pg_catalog, pg_temp as $$
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
end $$;

-- From when on a subscription gets events; null is from now on.
create function postrider.check_start(start text) returns timestamptz
language plpgsql set search_path = pg_catalog, pg_temp as $$
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
end $$;

-- Adds or changes a subscription by its name; answers with its id. Other declarations wait until the caller's transaction ends.
-- predicate: see postrider.check_predicate. order_by: its jobs run in the order of the events, one after the other: those of one subject,
-- of one owner, or all; order_policy: block, skip or park:<failures>, else what the kind says. coalescing: an event of a subject whose job
-- waits makes no other one, and takes the place of the event that the job was made of. start: where one that is new, or was removed, begins:
-- now (every event that commits from now on), a time, or beginning (what is kept of the log).
create function postrider.put_subscription(
    name text, types text[], kind text, owner text default '', delay_ms bigint default 0, outward boolean default false,
    declared_by text default '', generation bigint default 0, predicate text default null, order_by text default null,
    order_policy text default null, coalescing boolean default false, start text default 'now'
) returns bigint
language plpgsql set search_path = pg_catalog, pg_temp as $$
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

-- Removes a subscription: it gets no more events. Jobs that it already made stay, and so does its name for them. Other declarations wait
-- until the caller's transaction ends.
create function postrider.drop_subscription(id bigint) returns boolean
language plpgsql set search_path = pg_catalog, pg_temp as $$
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

-- The subscriptions of one application's declarations, see postrider.declare.
create function postrider.declare_subscriptions(declared json, app text, generation bigint, own boolean) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
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

-- The subscriptions, those that were removed as well, by name, after one: how they are declared, and how they are.
-- state: active; starting: it has not caught up with what was there when it began; orphaned: the application that declared it has not done
-- so for seven days and has no worker; removed. Those made by hand, which no application declares, are never orphaned.
create function postrider.subscriptions(after text default '', most int default 1000) returns table (
    id bigint, name text, owner text, types text[], kind text, delay_ms bigint, predicate text, order_by text, order_policy text,
    coalescing boolean, outward boolean, declared_by text, generation bigint, created_at timestamptz, seen_at timestamptz, state text,
    removed_at timestamptz, started_events bigint
)
language sql stable security definer set search_path = pg_catalog, pg_temp
as $$
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

-- The subscription that a filter of jobs names: one that never was has no jobs.
create function postrider.asked_subscription(filter json) returns bigint
language sql stable set search_path = pg_catalog, pg_temp
return case when filter ->> 'subscription' is not null then coalesce(
    (select s.id from postrider.subscription s where s.name = filter ->> 'subscription'), 0) end;
