-- The log of events, insert only, and the doors that write it.
-- Locks: none that matter, everything here is new.
-- By hand on a large table: nothing.

create table postrider.event (
    -- before seq: a row's transaction has its id before its seq is drawn, so that nobody can see a drawn seq, find no open
    -- transaction, and conclude that there is nothing to wait for
    xid         xid8        not null default pg_current_xact_id(),
    seq         bigint      not null primary key,
    id          uuid        not null,
    recorded_at timestamptz not null,
    occurred_at timestamptz not null,
    depth       smallint    not null default 0,      -- how many events caused each other before this one
    version     smallint,                            -- of the type, if it has any
    type        text collate "C" not null,
    owner       text collate "C" not null default '',
    subject     text        not null,
    cause       uuid,
    traceparent text,
    data        json        not null
) partition by range (seq);
create index event_cut on postrider.event (xid, seq);

insert into postrider.partitioned (name, unit) values ('event', 'event');
select postrider.make_partitions('event');

-- Events that are delivered later than they are recorded, and those that were cancelled: the relay passes by what has a row here. When it is
-- due, its jobs are made, see postrider.relay_due.
create table postrider.event_delay (
    seq        bigint      not null primary key,
    deliver_at timestamptz,                          -- null: it was cancelled by the transaction that recorded it
    ended_at   timestamptz,
    ended_as   text,
    reason     text,
    given      bigint[],                             -- subscriptions that were starting when it was delivered, and have it
    first_job  bigint,                               -- the ids of its jobs lie between
    last_job   bigint,
    constraint an_end_has_a_name check ((ended_at is null) = (ended_as is null)),
    constraint ended_as_is_delivered_or_cancelled check (ended_as in ('delivered', 'cancelled')),
    constraint what_is_not_over_has_a_time check (deliver_at is not null or ended_as = 'cancelled')
);
create index event_delay_due on postrider.event_delay (deliver_at, seq) where ended_at is null;

create table postrider.idempotency (
    owner    text        not null,
    key      text        not null,
    event_id uuid        not null,
    until    timestamptz not null,
    primary key (owner, key)
);
create index idempotency_expired on postrider.idempotency (until);

-- A UUID of version 7 that carries the seq in its last 62 bits, so that an event is found by its primary key.
create function postrider.event_id(recorded_at timestamptz, seq bigint) returns uuid
language plpgsql immutable strict set search_path = pg_catalog, pg_temp as $$
declare
    us bigint := (extract(epoch from recorded_at) * 1000000)::bigint;
begin
    -- RFC 9562, method 3: the sub-millisecond part in rand_a keeps ids of one millisecond in order
    return (lpad(to_hex(us / 1000), 12, '0') || '7' || lpad(to_hex(us % 1000 * 4096 / 1000), 3, '0')
        || to_hex(seq | (-9223372036854775808)))::uuid;
end $$;

create function postrider.event_seq(id uuid) returns bigint
language sql immutable strict set search_path = pg_catalog, pg_temp
return ('x' || right(replace(id::text, '-', ''), 16))::bit(64)::bigint & 4611686018427387903;

-- Records one event in the caller's transaction. Refuses with PR001 (type, owner, subject), PR002 and PR003 (data),
-- PR004 (type), PR005 (idempotency_key, version, cause, deliver_at), PR006 (idempotency_key), PR008 (subject, data), PR009 (cause); writes nothing then.
-- The common way is written for its cost: simple expressions, which plpgsql evaluates without a plan, and one statement. What is
-- rare stands in functions of its own.
create function postrider.record(
    type text, subject text, data json default '{}', owner text default '', occurred_at timestamptz default null,
    cause uuid default null, idempotency_key text default null, version int default null,
    traceparent text default null, deliver_at timestamptz default null
) returns uuid
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
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

-- The cause that is said for the whole transaction.
create function postrider.cause_of(said text) returns uuid
language plpgsql immutable set search_path = pg_catalog, pg_temp as $$
begin
    if said !~* '^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$' then
        perform postrider.refuse('PR005', 'cause', format('%L, set as postrider.cause, is not the id of an event', left(said, 80)),
            'set it to an id that postrider.record answered, or to nothing');
    end if;
    return said::uuid;
end $$;

-- Trace contexts that were no trace context and were dropped. A sequence, since no transaction holds it.
create sequence postrider.traceparent_dropped;

create function postrider.dropped_traceparents() returns bigint
language sql stable security definer set search_path = pg_catalog, pg_temp
return coalesce(pg_sequence_last_value('postrider.traceparent_dropped'::regclass), 0);

-- The trace context of an event, and how deep it stands: one deeper than its cause, whose trace it goes on unless it has its own. A
-- text that is no trace context by W3C is dropped and counted: what watches a call may not fail it. A chain that grows beyond
-- postrider.depth_max (default 32) is refused: it is a loop, or as bad as one.
create function postrider.follow(cause uuid, inout traceparent text, out depth int)
language plpgsql set search_path = pg_catalog, pg_temp as $$
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
end $$;

-- The event that an idempotency key belongs to: the one that came first with it in the last 24 hours, or this one.
create function postrider.first_of_key(owner text, key text, new_id uuid) returns uuid
language plpgsql set search_path = pg_catalog, pg_temp as $$
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

-- A key belongs to one event. Whoever comes with another one under it is told, instead of being answered as if it had been recorded.
create function postrider.check_same(known_id uuid, type text, subject text, data json) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    if exists (select from postrider.event e where e.seq = postrider.event_seq(known_id)
                  and (e.type, e.subject, e.data::text) is distinct from (check_same.type, check_same.subject, check_same.data::text))
    then
        perform postrider.refuse('PR006', 'idempotency_key', format('the key was used for another event, %s', known_id),
            'use a key for one event only, and send that one unchanged');
    end if;
end $$;

-- Records events in the order of the array; each is an object with the named arguments of postrider.record.
create function postrider.record_many(events json) returns setof uuid
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
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
