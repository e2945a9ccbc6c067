-- Watches: changes of a table become events, by statement triggers with transition tables.
-- Locks: none that matter, everything here is new.
-- By hand on a large table: nothing.

create table postrider.watch (
    name         text collate "C" not null primary key,
    relation     text        not null,              -- with its schema, quoted, as it was called when it was declared
    relid        oid         not null,
    key_columns  text[]      not null,              -- of the primary key, in its order
    columns      text[],                            -- null: all of them, whatever they are
    operations   text[]      not null,
    types        json        not null,              -- by operation
    condition    text,
    subject      text,
    data         text,
    owner        text,
    declared_by  text        not null,
    generation   bigint      not null default 0,
    created_at   timestamptz not null default clock_timestamp(),
    seen_at      timestamptz not null default clock_timestamp()
);

-- Why data cannot be held: 'size', 'json', or null. Without a key to say instead, it is refused.
create function postrider.row_fault(data json, key json) returns text
language plpgsql immutable set search_path = pg_catalog, pg_temp as $$
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

-- What a row is called whose own subject cannot be one: by the beginning of it, and its hash. Without a key, it is refused.
create function postrider.row_subject(subject text, key json) returns text
language plpgsql immutable set search_path = pg_catalog, pg_temp as $$
begin
    if key is null then
        perform postrider.refuse('PR001', 'subject', 'a subject is 1 to 512 bytes of text without control characters',
            'name the thing that the event is about, for example order/42');
    end if;
    return coalesce(nullif(regexp_replace(left(subject, 60), '[\u0001-\u001f\u007f-\u009f]', '_', 'g'), ''), 'row') || '#'
        || left(encode(sha256(convert_to(coalesce(nullif(subject, ''), key::text), 'UTF8')), 'hex'), 32);
end $$;

-- Records many events in the caller's transaction, in the order of the arrays, by one statement. Refuses with PR001 (subjects, owners),
-- PR002 and PR003 (data), PR004 (types), PR005 (arrays of different lengths); writes nothing then. Where `keys` has a value, what
-- cannot be held is not refused: data is left out, {"key": …, "cut": "size"} or {"key": …, "cut": "json"}, null as too large, and a subject is
-- told by a hash. So whoever writes to a table is never refused for what the row holds.
create function postrider.record_rows(
    types text[], subjects text[], owners text[], data json[], keys json[], wake boolean default true
) returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
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

-- What triggers and the function of a watch are called; in the schema of the table. A name of our own choice is cut, hence the hash.
create function postrider.watch_label(name text) returns text
language sql immutable strict set search_path = pg_catalog, pg_temp
return 'postrider_watch_' || left(translate(name, '.-', '__'), 28) || '_' || left(md5(name), 8);

-- What types, subjects and the watch of a table are called when nobody says: its name, with its schema unless that is public.
create function postrider.watch_base(relation oid) returns text
language sql stable strict set search_path = pg_catalog, pg_temp
return (select btrim(case when n.nspname <> 'public' then regexp_replace(lower(n.nspname), '[^a-z0-9_-]+', '_', 'g') || '.' else '' end
            || regexp_replace(lower(c.relname), '[^a-z0-9_-]+', '_', 'g'), '.')
          from pg_class c join pg_namespace n on n.oid = c.relnamespace where c.oid = watch_base.relation);

-- The columns of the primary key, and their equality, which need not be in the search path.
create type postrider.table_key as (columns text[], equals text[]);

create function postrider.watch_key(relation oid) returns postrider.table_key
language sql stable set search_path = pg_catalog, pg_temp
return (
    select row (array_agg(a.attname::text order by k.n), array_agg(format('operator(%I.%s)', s.nspname, o.oprname) order by k.n))::postrider.table_key
      from pg_index i cross join lateral unnest(i.indkey::int2[], i.indclass::oid[]) with ordinality k (attnum, opclass, n)
      join pg_attribute a on a.attrelid = i.indrelid and a.attnum = k.attnum
      join pg_opclass c on c.oid = k.opclass
      join pg_amop m on m.amopfamily = c.opcfamily and m.amoplefttype = c.opcintype and m.amoprighttype = c.opcintype
                    and m.amopstrategy = 3 and m.amopmethod = c.opcmethod
      join pg_operator o on o.oid = m.amopopr
      join pg_namespace s on s.oid = o.oprnamespace
     where i.indrelid = relation and i.indisprimary and i.indisvalid and k.n <= i.indnkeyatts);

-- The columns of one image of a row, as SQL: a JSON object. Without a list it is the whole row, so that added and renamed columns are in it.
create function postrider.watch_image(side text, columns text[]) returns text
language sql immutable set search_path = pg_catalog, pg_temp
return case when columns is null then format('row_to_json(%s."postrider: row")', side)
    else (select format('row_to_json((select "postrider: image" from (select %s) as "postrider: image"))', string_agg(format('%s.%I', side, c), ', ')) from unnest(columns) c) end;

-- The changes that one statement made, as a query over its transition tables, in the order in which it made them: type, subject, owner,
-- data, key. `new` and `old` are there in each operation; where there is no such row, it is a row of nulls. Each key has one event: a key
-- that changed is one that was deleted and one that was created. What is declared as text stands in lines of its own.
create function postrider.watch_query(w postrider.watch, operation text) returns text
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
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
end $$;

-- The settings of a watch's function: what the text of a value and the meaning of the declared texts depend on.
create function postrider.watch_settings(w postrider.watch) returns text[]
language sql immutable set search_path = pg_catalog, pg_temp
return array['search_path=pg_catalog, pg_temp', 'TimeZone=UTC', 'DateStyle=iso, mdy', 'IntervalStyle=postgres', 'bytea_output=hex',
    'extra_float_digits=1', 'jit=off'] || case when coalesce(w.condition, w.subject, w.data, w.owner) is null then '{}'
        else array['standard_conforming_strings=on', 'transform_null_equals=off'] end;

-- The function of a watch. Its triggers call it after each statement; it runs with the rights of the table's owner.
create function postrider.watch_source(w postrider.watch) returns text
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
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
end $$;

-- Whether a trigger of a watch is as it was made. `bit` is its bit in pg_trigger.tgtype: after, for each statement, and one operation.
create function postrider.watch_trigger_stands(relation oid, label text, operation text, calls oid) returns boolean
language sql stable set search_path = pg_catalog, pg_temp
return exists (
    select from pg_trigger t
      join (values ('insert', 4, null, 'new_rows'), ('update', 16, 'old_rows', 'new_rows'), ('delete', 8, 'old_rows', null),
                   ('truncate', 32, null, null)) e (operation, bit, old_rows, new_rows) on e.operation = watch_trigger_stands.operation
     where t.tgrelid = relation and t.tgname = label || '_' || e.operation and t.tgfoid = calls and t.tgtype = e.bit
       and t.tgenabled in ('O', 'A') and t.tgqual is null and not t.tgisinternal and t.tgnargs = 0
       and t.tgoldtable is not distinct from e.old_rows::name and t.tgnewtable is not distinct from e.new_rows::name);

-- What is not as it should be of the function of a watch, or null.
create function postrider.watch_function_fault(p pg_catalog.pg_proc, table_owner oid, source text, settings text[]) returns text
language sql stable set search_path = pg_catalog, pg_temp
return case when p.oid is null then 'missing'
    when p.proowner <> table_owner then 'owner'
    when p.prosrc <> source or p.proconfig is distinct from settings or not p.prosecdef
         or p.prolang <> (select l.oid from pg_language l where l.lanname = 'plpgsql') then 'altered'
    when exists (select from aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) a where a.grantee <> p.proowner) then 'granted' end;

-- What makes a watch stand, in this order; run with the rights of who declares it.
create function postrider.watch_statements(w postrider.watch, schema name, table_owner oid) returns text[]
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
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

-- Refuses tables that cannot be watched.
create function postrider.check_watched(relation oid) returns void
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
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
end $$;

-- What is watched.
create function postrider.watches() returns table (
    name text, relation text, key_columns text[], columns text[], operations text[], types json, condition text, subject text, data text,
    owner text, declared_by text, generation bigint, created_at timestamptz, seen_at timestamptz)
language sql stable security definer set search_path = pg_catalog, pg_temp
begin atomic
    select w.name, w.relation, w.key_columns, w.columns, w.operations, w.types, w.condition, w.subject, w.data, w.owner, w.declared_by,
           w.generation, w.created_at, w.seen_at
      from postrider.watch w order by w.name;
end;
