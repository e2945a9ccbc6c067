-- JSON Schema for the data of events: the part of draft 2020-12 that is checked, as one function that reads a schema, one that checks a
-- value, and one that compares two schemas.
-- Locks: none.
-- By hand on a large table: nothing.

-- A regular expression of ECMA-262 as one of Postgres that fits the same strings, or null when it cannot be said safely: what the two
-- read in the same way is kept, what has an exact counterpart is written anew, and the rest is not taken.
create function postrider.schema_pattern(pattern text) returns text
language plpgsql immutable strict set search_path = pg_catalog, pg_temp as $$
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
end $$;

create function postrider.refuse_schema(at text, message text, remedy text) returns void
language plpgsql immutable set search_path = pg_catalog, pg_temp as $$
begin
    perform postrider.refuse('PR005', 'schema', left(at, 200) || ' ' || message, remedy);
end $$;

-- One keyword of a schema whose value is no schema: checked, and as it is kept.
create function postrider.compile_keyword(k text, v jsonb, at text) returns jsonb
language plpgsql immutable set search_path = pg_catalog, pg_temp as $$
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
end $$;

-- A schema as it is checked: only supported keywords, each local reference replaced by what it refers to, patterns as Postgres reads
-- them, and without what only describes. Refuses anything else, with a pointer to it. `seen`: the references on the way here.
create function postrider.compile_schema(root jsonb, schema jsonb, at text default '#', seen text[] default '{}', level int default 0)
returns jsonb
language plpgsql immutable set search_path = pg_catalog, pg_temp as $$
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
end $$;

-- The schemas of an object or an array, each of them compiled.
create function postrider.compile_parts(root jsonb, parts jsonb, at text, seen text[], level int) returns jsonb
language plpgsql immutable set search_path = pg_catalog, pg_temp as $$
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

-- What a reference refers to, compiled: without references a check needs no more steps than the schema and the data have parts.
create function postrider.compile_reference(root jsonb, reference jsonb, at text, seen text[], level int) returns jsonb
language plpgsql immutable set search_path = pg_catalog, pg_temp as $$
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
end $$;

-- What is wrong with a value by a compiled schema, with the JSON pointer to it, or null. The value itself is not told: it may be a secret.
create function postrider.schema_error(schema jsonb, value jsonb, at text default '') returns text
language plpgsql immutable set search_path = pg_catalog, pg_temp as $$
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

create function postrider.type_names(types jsonb) returns text
language sql immutable set search_path = pg_catalog, pg_temp
return (select string_agg(t, ' or ') from jsonb_array_elements_text(types) t);

-- Whether a value is an element of an array. Containment of objects is not equality.
create function postrider.is_among(value jsonb, list jsonb) returns boolean
language plpgsql immutable set search_path = pg_catalog, pg_temp as $$
begin
    if jsonb_typeof(value) in ('object', 'array') then
        return exists (select from jsonb_array_elements(list) e where e = is_among.value);
    end if;
    return list @> value;
end $$;

create function postrider.object_error(schema jsonb, value jsonb, at text) returns text
language plpgsql immutable set search_path = pg_catalog, pg_temp as $$
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

create function postrider.pointer_part(name text) returns text
language sql immutable set search_path = pg_catalog, pg_temp
return replace(replace(name, '~', '~0'), '/', '~1');

create function postrider.array_error(schema jsonb, value jsonb, at text) returns text
language plpgsql immutable set search_path = pg_catalog, pg_temp as $$
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

create function postrider.string_error(schema jsonb, value text, at text) returns text
language plpgsql immutable set search_path = pg_catalog, pg_temp as $$
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

create function postrider.number_error(schema jsonb, value numeric, at text) returns text
language plpgsql immutable set search_path = pg_catalog, pg_temp as $$
begin
    return at || case
        when value < (schema -> 'minimum')::numeric then ' is less than ' || (schema ->> 'minimum')
        when value > (schema -> 'maximum')::numeric then ' is more than ' || (schema ->> 'maximum')
        when value <= (schema -> 'exclusiveMinimum')::numeric then ' is not more than ' || (schema ->> 'exclusiveMinimum')
        when value >= (schema -> 'exclusiveMaximum')::numeric then ' is not less than ' || (schema ->> 'exclusiveMaximum')
        when value % (schema -> 'multipleOf')::numeric <> 0 then ' is not a multiple of ' || (schema ->> 'multipleOf')
    end;
end $$;

-- What a compiled schema refuses that the one before it took, or no longer promises to readers; null when it is compatible:
-- what fitted still fits, and a property that was required is still there. A new optional property may have a schema although data
-- could have held anything under its name before. What cannot be compared must be equal.
create function postrider.schema_narrowed(old jsonb, new jsonb, at text default '') returns text
language plpgsql immutable set search_path = pg_catalog, pg_temp as $$
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

create function postrider.properties_narrowed(old jsonb, new jsonb, at text) returns text
language plpgsql immutable set search_path = pg_catalog, pg_temp as $$
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
