-- The catalogue of event types: versions with their schemas, the form of subjects, what is deprecated; and the look at an event that is
-- recorded.
-- Locks: none that matter, everything here is new.
-- By hand on a large table: nothing.

-- Insert only: what a version says does not change, since events say which one they follow.
create table postrider.type_version (
    type        text collate "C" not null references postrider.event_type (name),
    version     int         not null,
    schema      json        not null,
    example     json        not null,
    breaking    boolean     not null,
    compiled    jsonb       not null,               -- see postrider.compile_schema
    declared_by text        not null,
    declared_at timestamptz not null default clock_timestamp(),
    primary key (type, version),
    constraint version_is_1_to_32767 check (version between 1 and 32767)
);

-- Events whose data did not fit, of types that only warn: one row each, so that no two producers meet.
create table postrider.type_mismatch (
    seq     bigint  not null primary key,
    type    text collate "C" not null,
    version int     not null,
    problem text    not null
);
create index type_mismatch_of_type on postrider.type_mismatch (type, seq);

-- Forgets those whose events are gone.
create function postrider.forget_mismatches() returns int
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    first_seq bigint := (select min(e.seq) from postrider.event e);
    forgotten int;
begin
    delete from postrider.type_mismatch m where m.seq = any (array(
        select o.seq from postrider.type_mismatch o where o.seq < first_seq order by o.seq limit 10000 for update skip locked));
    get diagnostics forgotten = row_count;
    return forgotten;
end $$;

-- The form of a subject as a regular expression: {name} is one or more characters other than a slash, the rest is what it is.
create function postrider.subject_regex(form text) returns text
language plpgsql immutable strict set search_path = pg_catalog, pg_temp as $$
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
end $$;

-- How many letters are to be added, left out, changed or swapped with their neighbour to make one name of another; null if more than `most`.
create function postrider.name_distance(one text, other text, most int) returns int
language plpgsql immutable strict set search_path = pg_catalog, pg_temp as $$
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

-- The names that somebody may have meant, the nearest first: those a few letters away, else those with the same first segment.
create function postrider.nearest_names(name text, names text[]) returns text
language sql immutable set search_path = pg_catalog, pg_temp
as $$
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

-- Says why a type cannot be recorded.
create function postrider.refuse_type(type text) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    perform postrider.check_name('type', type, not exists (select from postrider.event_type t where t.name = refuse_type.type));
    perform postrider.refuse('PR004', 'type', format('%L was never declared', type), coalesce(
        'did you mean ' || postrider.nearest_names(type, array(select t.name from postrider.event_type t)),
        'declare it first: postrider.declare'));
end $$;

-- Looks at an event of a type that has a form of subjects or a schema. Answers with the version that its data follow, and with what does
-- not fit if that is only to be noted. Refuses with PR005 (version) and PR008 (subject, data).
create function postrider.check_event(type text, subject text, data json, inout version int, out mismatch text)
language plpgsql set search_path = pg_catalog, pg_temp as $$
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

-- Declares event types; answers with those whose routes are to be compiled.
create function postrider.declare_types(types json, app text, gen bigint, own boolean) returns text[]
language plpgsql set search_path = pg_catalog, pg_temp as $$
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

-- The options of a type that stand for themselves.
create function postrider.check_type(said json, exposure text, validation text, subject text) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
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
end $$;

-- One version of a type as it is said, before anything looks into it.
create function postrider.check_version(type text, said json) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
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
end $$;

-- Keeps the versions of a type that are new, the lowest first, each compared with the one before it.
create function postrider.declare_versions(type text, versions json, app text) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
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

-- The catalogue, by name. mismatches: how many events of the type that are kept did not fit and were taken with a warning.
create function postrider.types(after text default '', most int default 200) returns table (
    name text, description text, exposure text, subject text, validation text, version int, versions int[], deprecated_on date,
    deprecated_note text, replaced_by text, mismatches bigint, declared_by text, generation bigint, seen_at timestamptz
)
language sql stable security definer set search_path = pg_catalog, pg_temp
as $$
    select t.name, t.description, t.exposure, t.subject, t.validation, t.version,
           array(select v.version from postrider.type_version v where v.type = t.name order by 1),
           t.deprecated_on, t.deprecated_note, t.replaced_by,
           (select count(*) from postrider.type_mismatch m where m.type = t.name), t.declared_by, t.generation, t.seen_at
      from postrider.event_type t where t.name > after order by t.name limit most
$$;

-- Events that were taken with a warning, the newest first.
create function postrider.mismatches(type text, most int default 100) returns table (
    event uuid, version int, problem text, recorded_at timestamptz
)
language sql stable security definer set search_path = pg_catalog, pg_temp
as $$
    select e.id, m.version, m.problem, e.recorded_at
      from postrider.type_mismatch m left join postrider.event e on e.seq = m.seq
     where m.type = mismatches.type order by m.seq desc limit most
$$;
