-- Declares watches, says which there are and what is wrong with them, and ends them.
-- Locks: when a watch is declared that is not there yet, its table against writers, until the transaction ends.
-- By hand on a large table: nothing.

-- What is to be done so that a watch is as it is wanted. state: 'same' (nothing), 'older' (a later generation declared it), 'change'.
create type postrider.watch_plan as (state text, wanted postrider.watch, probe text, table_owner text, queries text[], statements text[]);

-- A watch as it is asked for, with what is left out filled in. Refuses what is wrong with it, apart from the texts of its expressions.
create function postrider.wanted_watch(relation oid, asked json) returns postrider.watch
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
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

-- For postrider.watch: what there is to do. `lock`: nobody else declares anything until the transaction ends.
create function postrider.plan_watch(relation oid, asked json, lock boolean default false) returns postrider.watch_plan
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
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

-- For postrider.watch: writes down what is declared, provided that it stands: only the owner of the table can have made what has to be
-- there. Who calls is who the session acts as, whatever functions stand between.
create function postrider.note_watch(relation oid, asked json) returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
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

-- For postrider.watch, with the rights of who declares: refuses texts that are not one expression each, of the right type, over the columns
-- of `new` and `old`. First the grammar, by two brackets that no text can close both; then the meaning, by a view that is not kept; then
-- the rights, by running it on no rows as the owner of the table.
create function postrider.try_expressions(plan postrider.watch_plan) returns void
language plpgsql set search_path = pg_catalog, pg_temp set check_function_bodies = on set standard_conforming_strings = on
set transform_null_equals = off as $$
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
end $$;

-- Declares that changes of a table are recorded as events, in the transactions that make them. Answers whether anything had to be made: declaring
-- the same again changes nothing and takes no lock. By the owner of the table, with whose rights the expressions run, never with those of
-- Postrider. Refuses with PR001, PR004 to PR007 and PR010, and with 55P03 (lock not available) if the table stays locked for longer than `patience_ms`.
-- `columns`: an update of others is no event; `condition`, `subject`, `data`, `owner`: SQL expressions over the columns of `new` and `old`, one
-- row each; `types`: {"insert": …, "update": …, "delete": …, "truncate": …}.
create function postrider.watch(
    relation regclass, name text default null, columns text[] default null, operations text[] default null, types json default null,
    condition text default null, subject text default null, data text default null, owner text default null, app text default '',
    generation bigint default 0, patience_ms int default 3000
) returns boolean
language plpgsql set search_path = pg_catalog, pg_temp set lock_timeout = '100ms' set check_function_bodies = on
set standard_conforming_strings = on set transform_null_equals = off as $$
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

-- For postrider.unwatch: what there is to drop; the table first, if it is still there.
create function postrider.plan_unwatch(name text, out relation regclass, out statements text[]) returns record
language sql stable security definer set search_path = pg_catalog, pg_temp
return (
    select row (c.oid::regclass,
            array(select format('drop trigger %I on %s', t.tgname, t.tgrelid::regclass) from pg_trigger t
                   where t.tgrelid = c.oid and t.tgname = any (select postrider.watch_label(w.name) || '_' || o
                                                                 from unnest(array['insert', 'update', 'delete', 'truncate']) o))
            || array(select format('drop function if exists %s', p.oid::regprocedure) from pg_proc p
                      where p.proname = postrider.watch_label(w.name) and p.prorettype = 'trigger'::regtype and p.pronargs = 0
                        and (c.oid is null or p.pronamespace = c.relnamespace)))
      from postrider.watch w left join pg_class c on c.oid = coalesce(to_regclass(w.relation), w.relid)
     where w.name = plan_unwatch.name);

-- For postrider.unwatch: forgets a watch that does not stand any more.
create function postrider.forget_watch(name text) returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
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

-- Ends a watch: changes from now on are no events; those that were recorded stay. Answers whether there was one. By the owner of the table,
-- which is locked until the transaction ends. Refuses with PR005, and with 55P03 if the table stays locked for longer than `patience_ms`.
create function postrider.unwatch(name text, patience_ms int default 3000) returns boolean
language plpgsql set search_path = pg_catalog, pg_temp set lock_timeout = '100ms' as $$
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

-- What is wrong with one watch.
create function postrider.watch_faults(w postrider.watch, c pg_catalog.pg_class, label text)
returns table (severity text, problem text, says text, remedy text)
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
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
end $$;

-- What gets past the triggers of a table, as far as somebody can do it.
create function postrider.watch_holes(c pg_catalog.pg_class) returns table (problem text, says text, remedy text)
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
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
end $$;

-- Where watches are not as they were declared, and what gets past them. severity: 'critical' (changes are lost, or refused), 'warning'
-- (it is to be declared again), 'hole' (what a watch cannot see, and somebody can do).
create function postrider.check_watches() returns table (watch text, relation text, severity text, problem text, says text, remedy text)
language plpgsql stable security definer set search_path = pg_catalog, pg_temp as $$
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
