-- What jobs are found by: their tags, their keys, and what else an operator asks for.
-- Locks: none that matter, everything here is new.
-- By hand on a large table: nothing.

-- One row for each tag of a job, and none for a job without tags: what a list looks through instead of the jobs.
create table postrider.tag (
    class smallint not null,
    id    bigint   not null,
    tag   text collate "C" not null,
    primary key (class, id, tag)
) partition by range (class, id);
create index tag_newest on postrider.tag (class, tag, id);

insert into postrider.partitioned (name, unit) values ('tag', 'job');
select postrider.make_partitions('tag');

-- Refuses with PR005.
create function postrider.check_tags(tags text[]) returns void
language plpgsql immutable set search_path = pg_catalog, pg_temp as $$
begin
    if cardinality(tags) > 10 then
        perform postrider.refuse('PR005', 'tags', format('%s are too many', cardinality(tags)), 'use 10 tags at most');
    elsif exists (select from unnest(tags) t where t is null or octet_length(t) not between 1 and 100 or t ~ '[\u0001-\u001f\u007f-\u009f]') then
        perform postrider.refuse('PR005', 'tags', 'a tag is 1 to 100 bytes of text without control characters', 'use shorter ones');
    end if;
end $$;

-- The tags of an item of postrider.enqueue_many, null for none. Refuses with PR005.
create function postrider.tags_of(item json) returns text[]
language plpgsql immutable set search_path = pg_catalog, pg_temp as $$
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

-- Gives a job that was just enqueued its tags, which were checked.
create function postrider.put_tags(class smallint, id bigint, tags text[]) returns void
language sql set search_path = pg_catalog, pg_temp
begin atomic
    insert into postrider.tag (class, id, tag)
    select put_tags.class, put_tags.id, t from (select distinct u from unnest(put_tags.tags) u order by u) d (t);
end;

-- The tags that a filter asks for.
create function postrider.asked_tags(filter json) returns text[]
language sql immutable set search_path = pg_catalog, pg_temp
return array(select json_array_elements_text(coalesce(filter -> 'tags', '[]')));

-- Whether a job is one that a filter asks for, but for its state. The planner is pinned by whoever calls it, thousands of times.
create function postrider.fits(j postrider.job, filter json, subscription bigint, tags text[]) returns boolean
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
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

-- Jobs in the order of their ids, after one and up to another: `looked_at` of them at most, those that match the filter told with their
-- state. filter: {kind, queue, owner, subscription, order_key, limit_key, tags: […] all of which
-- they have, states: […], from, to, args: JSON that theirs contain}. The last row tells, with null as state, how far was looked.
create function postrider.find_jobs(filter json, after bigint, upto bigint, looked_at int) returns table (id bigint, state text)
language plpgsql stable security definer set search_path = pg_catalog, pg_temp
set jit = off set enable_seqscan = off set enable_bitmapscan = off as $$
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

-- The same, newest first, until `most` match: for an operator's list. What has a tag is found by it, whatever else is there. The last row
-- tells, with null as id, how far was looked, if there is more to look at.
create function postrider.list_jobs(filter json, before bigint, most int, looked_at int) returns table (id bigint, looked bigint)
language plpgsql stable security definer set search_path = pg_catalog, pg_temp
set jit = off set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off
set enable_mergejoin = off as $$
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
