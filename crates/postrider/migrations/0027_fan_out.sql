-- Fan-out: what events become. Called by the relay alone, of which there is one at a time.
-- Locks: groups of coalescing jobs, in the order of their hashes, until the pass commits.
-- By hand on a large table: nothing.

-- Bodies that were parsed when they were made need no search_path, and without one they can be planned as a part of whoever calls them.

-- The lane of an event's part, under a subscription: two subscriptions in one queue share none.
create function postrider.event_key(name text, part text) returns text
language sql immutable
return case when octet_length(name) + octet_length(part) < 200 then name || ':' || part else name || ':#' || md5(part) end;

-- Which routes events take, in the order of seq. `subscriptions` narrows to some of them, and takes in those that start.
create function postrider.matches(at timestamptz, seqs bigint[], types text[], owners text[], subscriptions bigint[]) returns table (
    seq bigint, owner text, subject text, subscription bigint, kind text, queue text, priority smallint, max_attempts smallint,
    class smallint, limit_key text, share smallint, run_at timestamptz, delay_ms bigint, order_key text, order_rule smallint,
    coalescing boolean
)
language sql stable
begin atomic
    select e.seq, e.owner, e.subject, r.subscription, r.kind, r.queue, r.priority, r.max_attempts, r.class, r.limit_key,
           case when r.fair then postrider.share_of(e.owner) end,
           case when r.delay_ms > 0 then matches.at + r.delay_ms * interval '1 millisecond' end, r.delay_ms,
           case r.order_by when 'subject' then postrider.event_key(r.order_name, e.subject)
                           when 'owner' then postrider.event_key(r.order_name, e.owner)
                           when 'all' then r.order_name end,
           r.order_rule, r.coalescing
      from (
        -- what is in an event is read, once, only for a type of which somebody asks it
        select u.seq, u.type, u.owner, v.subject, v.doc
          from unnest(matches.seqs, matches.types, matches.owners) u (seq, type, owner)
          left join lateral (
                select x.subject,
                       case when exists (select from postrider.route q where q.type = u.type and q.reads and q.predicate is not null)
                            then x.data::jsonb end as doc
                  from postrider.event x
                 where x.seq = u.seq and (select exists (select from postrider.route q where q.reads))
                   and exists (select from postrider.route q where q.type = u.type and q.reads) offset 0) v
            on true
         -- what is delayed, or was cancelled, is for whoever asks for it; mostly nothing is
         where matches.subscriptions is not null or not (select exists (select from postrider.event_delay))
            or not exists (select from postrider.event_delay d where d.seq = u.seq)
        offset 0) e
     cross join lateral (
        -- one by one: as an array of two, the owner is looked for among all routes of the type as soon as the planner takes them for few
        select a.* from postrider.route a where a.type = e.type and a.owner = ''
        union all
        select o.* from postrider.route o where o.type = e.type and o.owner = e.owner and e.owner <> '') r
     where case when matches.subscriptions is not null then r.subscription = any (matches.subscriptions)
                else not r.starting
                     -- see postrider.is_held_back: mostly nobody is
                     and not ((select exists (select from postrider.held)) and exists (
                         select from postrider.held h join postrider.subscription_start g on g.id = h.start
                          where h.subscription = r.subscription and g.over_at is null)) end
       and (r.predicate is null or jsonb_path_match(
            e.doc, r.predicate, jsonb_build_object('type', e.type, 'owner', e.owner, 'subject', e.subject), true))
     order by e.seq, r.subscription offset 0;
end;

-- Jobs for events, in the order of seq, ids in the same order; answers with how many. `at` does not go back over the relay's calls, so that
-- delayed jobs keep their order. `subscriptions`: see postrider.matches.
create function postrider.fan_out(
    at timestamptz, seqs bigint[], types text[], owners text[], subscriptions bigint[] default null
) returns int
language plpgsql set search_path = pg_catalog, pg_temp
set jit = off set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off
set enable_mergejoin = off as $$
declare
    made int;
begin
    with matched as materialized (
        -- the ordered subquery first, nextval outside of it, so that ids follow seq
        select (pg_sequence_last_value('postrider.job_epoch'::regclass) << 46) | (nextval('postrider.job_number') << 2) | t.class as id, t.*,
               case when t.limit_key is not null then 96 when t.order_key is not null then 32 else 0 end as flags
          from postrider.matches(fan_out.at, fan_out.seqs, fan_out.types, fan_out.owners, fan_out.subscriptions) t
         where not t.coalescing
    ), jobs as (
        insert into postrider.job (class, id, kind, queue, priority, max_attempts, owner, run_at, subscription, event_seq,
                                   order_key, order_rule, limit_key, share)
        select m.class, m.id, m.kind, m.queue, m.priority, m.max_attempts, m.owner, m.run_at, m.subscription, m.seq,
               m.order_key, m.order_rule, m.limit_key, m.share
          from matched m
    ), now_ready as (
        insert into postrider.ready (queue, priority, share, pos, id, flags, order_key)
        select m.queue, m.priority, coalesce(m.share, 0), m.id, m.id, m.flags, m.order_key from matched m where m.run_at is null
    ), for_later as (
        insert into postrider.later (run_at, id, queue, priority, share, flags, order_key)
        select m.run_at, m.id, m.queue, m.priority, coalesce(m.share, 0), m.flags, m.order_key from matched m where m.run_at is not null
    )
    select count(*) into made from matched;
    if exists (select from postrider.route r where r.coalescing) then
        made := made + postrider.coalesce_events(fan_out.at, fan_out.seqs, fan_out.types, fan_out.owners, fan_out.subscriptions);
    end if;
    return made;
end $$;

-- Of each subject the latest event, for subscriptions that ask for no more: it takes the place of the one that a waiting job has, or gets a
-- job. Nothing is missed: the group of the job is held until the pass commits, so that no claim begins it with an event that is not the
-- latest. Answers with how many jobs were made.
create function postrider.coalesce_events(
    at timestamptz, seqs bigint[], types text[], owners text[], subscriptions bigint[]
) returns int
language plpgsql set search_path = pg_catalog, pg_temp
set jit = off set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off
set enable_mergejoin = off as $$
declare
    m record;
    new_id bigint;
    of_job bigint;
    made int := 0;
begin
    for m in
        select l.*, postrider.unique_hash(1::smallint, l.kind, l.owner, 'subscription:' || l.subscription || ':' || l.subject, null) as hash
          from (select distinct on (t.subscription, t.owner, t.subject) t.*
                  from postrider.matches(coalesce_events.at, coalesce_events.seqs, coalesce_events.types, coalesce_events.owners,
                                         coalesce_events.subscriptions) t
                 where t.coalescing order by t.subscription, t.owner, t.subject, t.seq desc) l
         order by hash
    loop
        new_id := (pg_sequence_last_value('postrider.job_epoch'::regclass) << 46) | (nextval('postrider.job_number') << 2) | m.class;
        of_job := postrider.take_unique(m.hash, 1::smallint, new_id, null);
        continue when of_job <> new_id and postrider.refer_to(of_job, m.seq);
        insert into postrider.job (class, id, kind, queue, priority, max_attempts, owner, run_at, subscription, event_seq,
                                   order_key, order_rule, limit_key, share, unique_hash, unique_mode)
        select m.class, new_id, m.kind, m.queue, m.priority, m.max_attempts, m.owner, m.run_at, m.subscription, m.seq,
               m.order_key, m.order_rule, m.limit_key, m.share, case when of_job = new_id then m.hash end,
               case when of_job = new_id then 1 end;
        insert into postrider.ready (queue, priority, share, pos, id, flags, order_key)
        select m.queue, m.priority, coalesce(m.share, 0), new_id, new_id, f.flags, m.order_key
          from postrider.flags_of_event_job(of_job = new_id, m.order_key, m.limit_key) f (flags) where m.run_at is null;
        insert into postrider.later (run_at, id, queue, priority, share, flags, order_key)
        select m.run_at, new_id, m.queue, m.priority, coalesce(m.share, 0), f.flags, m.order_key
          from postrider.flags_of_event_job(of_job = new_id, m.order_key, m.limit_key) f (flags) where m.run_at is not null;
        made := made + 1;
    end loop;
    return made;
end $$;

-- See postrider.ready.
create function postrider.flags_of_event_job(stands_for_others boolean, order_key text, limit_key text) returns smallint
language sql immutable set search_path = pg_catalog, pg_temp
return (case when stands_for_others then 17 else 0 end
    | case when limit_key is not null then 96 when order_key is not null then 32 else 0 end)::smallint;

-- Gives a job that waits a later event, where it stands. Where it stands is written again: a claim that looked before this commits would
-- else begin it with the event that it had. False if it does not wait, or if somebody is moving it for longer than is waited for here.
create function postrider.refer_to(id bigint, seq bigint) returns boolean
language plpgsql set search_path = pg_catalog, pg_temp
set jit = off set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_bitmapscan = off as $$
declare
    j postrider.job;
    n int := 0;
begin
    select * into j from postrider.job x where x.class = (refer_to.id & 3)::smallint and x.id = refer_to.id;
    if j.event_seq >= seq then
        return true;
    end if;
    for look in 1..20 loop
        update postrider.ready r set pos = r.pos where r.ctid = any (array(
            select x.ctid from postrider.ready x
             where x.queue = j.queue and x.priority = j.priority and x.share = coalesce(j.share, 0) and x.pos = j.id and x.id = j.id
               for update skip locked));
        get diagnostics n = row_count;
        if n = 0 then
            update postrider.ready r set pos = r.pos where r.ctid = any (array(
                select x.ctid from postrider.ready x where x.id = j.id and x.pos <> x.id for update skip locked));
            get diagnostics n = row_count;
        end if;
        if n = 0 then
            update postrider.later y set why = y.why where y.ctid = any (array(
                select x.ctid from postrider.later x where x.run_at = j.run_at and x.id = j.id for update skip locked));
            get diagnostics n = row_count;
        end if;
        if n = 0 then
            update postrider.later y set why = y.why where y.ctid = any (array(
                select x.ctid from postrider.later x where x.id = j.id and x.why <> 0 for update skip locked));
            get diagnostics n = row_count;
        end if;
        if n = 0 then
            update postrider.parked p set flags = p.flags where p.ctid = any (array(
                select x.ctid from postrider.parked x where x.id = j.id for update skip locked));
            get diagnostics n = row_count;
        end if;
        exit when n > 0;
        -- it is being moved just now, or it ends
        perform pg_sleep(0.005);
    end loop;
    if n > 0 then
        update postrider.job x set event_seq = refer_to.seq where x.class = j.class and x.id = j.id;
    end if;
    return n > 0;
end $$;

-- The jobs that events become, for an engine that is not this one: told instead of made, with the events that they are made of. In the
-- order of seq; the text of the data as it was recorded. Where only the latest event of a subject is asked for, that of these.
create function postrider.tell_matched(
    at timestamptz, seqs bigint[], types text[], owners text[], subscriptions bigint[] default null
) returns json
language plpgsql stable set search_path = pg_catalog, pg_temp
set jit = off set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off
set enable_mergejoin = off as $$
declare
    told json;
begin
    with matched as materialized (
        select t.* from postrider.matches(tell_matched.at, tell_matched.seqs, tell_matched.types, tell_matched.owners,
                                          tell_matched.subscriptions) t
    ), wanted as materialized (
        select m.* from matched m
         where not m.coalescing or m.seq = (
            select max(l.seq) from matched l where l.subscription = m.subscription and l.owner = m.owner and l.subject = m.subject)
    )
    select json_build_object(
        'jobs', coalesce((
            select json_agg(json_build_object('seq', m.seq, 'subscription', m.subscription, 'kind', m.kind, 'queue', m.queue,
                       'priority', m.priority, 'max_attempts', m.max_attempts, 'order_key', m.order_key, 'order_rule', m.order_rule,
                       'run_at', (extract(epoch from m.run_at) * 1000000)::bigint)
                   order by m.seq, m.subscription)
              from wanted m), '[]'),
        'events', coalesce((
            select json_agg(json_build_object('seq', v.seq, 'id', v.id, 'type', v.type, 'owner', v.owner, 'subject', v.subject,
                       'cause', v.cause, 'version', v.version, 'traceparent', v.traceparent, 'data', v.data::text,
                       'occurred_at', (extract(epoch from v.occurred_at) * 1000000)::bigint,
                       'recorded_at', (extract(epoch from v.recorded_at) * 1000000)::bigint))
              from postrider.event v where v.seq = any (array(select m.seq from wanted m))), '[]')) into told;
    return told;
end $$;

-- The highest number that an epoch of the log means anything for. What a copy recorded before its rebase is above all that was ever taken: the
-- numbers of its transactions are those of another cluster.
create function postrider.epoch_end(epoch int) returns bigint
language sql stable set search_path = pg_catalog, pg_temp
return case when exists (select from postrider.log_epoch l where l.no = epoch_end.epoch + 1) then coalesce((
    select greatest(max(c.last_seq), (select max(b.last_seq) from postrider.backlog b where b.epoch = epoch_end.epoch))
      from postrider.cut c where c.epoch = epoch_end.epoch), 0)
    else 9223372036854775807 end;

-- Whether everything about an event was done at a position in the log.
create function postrider.is_behind(p postrider.log_position, floor_seq bigint, ceiling_seq bigint, xid xid8, seq bigint) returns boolean
language sql immutable
return p.epoch is not null and (seq <= floor_seq or (seq <= ceiling_seq and case
    when p.more then pg_visible_in_snapshot(xid, p.lo) or (seq <= p.last_seq and pg_visible_in_snapshot(xid, p.hi))
    else pg_visible_in_snapshot(xid, p.hi) end));

-- Walks a slice of what a new subscription asked for of the log, and takes it over from there when nothing is left: with the relay's lock, so
-- that the log's position stands still. Its jobs come in the order of seq, and those of its first own cut after them. Looks at 2 * most
-- events. why: done, idle (nobody starts), busy (a relay is at it). `elsewhere`: see postrider.relay.
create function postrider.hand_over(most int, elsewhere boolean default false, careful boolean default false, refused json default null)
returns postrider.relayed
language plpgsql security definer set search_path = pg_catalog, pg_temp
set jit = off set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off
set enable_mergejoin = off as $$
declare
    b postrider.subscription_start;
    last postrider.cut;
    new postrider.cut;
    made record;
    now_at postrider.log_position;
    answer postrider.relayed := row (null, 0, 0, true, false, 'busy', null, true, 0, null);
    seqs bigint[];
    types text[];
    owners text[];
    last_seen bigint;
    looked int;
    over boolean;
    taken boolean;
    walkers bigint[];
begin
    perform postrider.check_isolation();
    if not pg_try_advisory_xact_lock(7305, 1) then
        return answer;
    end if;
    select * into last from postrider.cut order by no desc limit 1;
    now_at := row (last.epoch, last.lo, last.hi, last.more, last.last_seq);
    -- whoever changes a subscription just now is not waited for
    select * into b from postrider.subscription_start x where x.over_at is null order by x.walked_at, x.id limit 1 for update skip locked;
    if b.id is null then
        answer.why := 'idle';
        answer.more := false;
        answer.starting := false;
        return answer;
    end if;
    answer.why := 'done';
    walkers := postrider.walkers(b);
    if b.upto is null then
        b.upto := now_at;
        b.after := postrider.walk_from(b);
    end if;
    select max(w.seq), count(*), array_agg(w.seq order by w.seq) filter (where w.wanted), array_agg(w.type order by w.seq) filter (where w.wanted),
           array_agg(w.owner order by w.seq) filter (where w.wanted)
      into last_seen, looked, seqs, types, owners
      from postrider.walk(b, case when careful then 512 else 2 * most end) w;
    new := last;
    new.elsewhere := elsewhere;
    new.aside := 0;
    new.first_job := postrider.job_position();
    if seqs is not null and elsewhere then
        answer.matched := postrider.tell_matched(greatest(clock_timestamp(), last.at), seqs, types, owners, walkers);
        if refused is not null then
            select x.matched_left, x.aside into answer.matched, new.aside from postrider.without_refused(last.no + 1, answer.matched, refused) x;
        end if;
        answer.jobs := json_array_length(answer.matched -> 'jobs');
    elsif seqs is not null and careful then
        select * into made from postrider.make_each(last.no + 1, greatest(clock_timestamp(), last.at), row (seqs, types, owners, null), false,
                                                    walkers);
        answer.jobs := made.jobs;
        new.aside := made.aside;
        if made.upto < cardinality(seqs) then
            last_seen := seqs[made.upto];
            looked := greatest(512, 2 * most);
        end if;
    elsif seqs is not null then
        answer.jobs := postrider.fan_out(greatest(clock_timestamp(), last.at), seqs, types, owners, walkers);
    end if;
    answer.n := coalesce(cardinality(seqs), 0);
    answer.aside := new.aside;
    if answer.jobs + new.aside > 0 then
        new.jobs := answer.jobs;
        new.last_job := postrider.job_position() | 3;
        new.backlog := null;
        new.start := b.id;
        new.part_after := b.after;
        new.part_upto := last_seen;
        perform postrider.note_cut(last, new);
    end if;
    -- fewer than were asked for: so far the log was walked to its end
    over := looked < (case when careful then 512 else 2 * most end);
    -- a backlog that is not over would bring those that were walked a second time
    taken := over and b.upto::text = now_at::text and not exists (select from postrider.backlog x where x.over_at is null);
    update postrider.subscription_start x
       set done = case when over then b.upto else b.done end, upto = case when over then null else b.upto end,
           after = case when over then 0 else last_seen end, events = x.events + answer.n, jobs = x.jobs + answer.jobs,
           walked_at = clock_timestamp(), over_at = case when taken then clock_timestamp() end
     where x.id = b.id;
    if taken then
        update postrider.route r set starting = false where r.subscription = b.subscription;
        answer.starting := exists (select from postrider.subscription_start x where x.over_at is null);
        answer.more := answer.starting;
    end if;
    if answer.jobs > 0 and not elsewhere then
        perform postrider.wake('postrider_job');
    end if;
    return answer;
end $$;

-- The seq after which the walk up to a position begins.
create function postrider.walk_from(b postrider.subscription_start) returns bigint
language plpgsql stable set search_path = pg_catalog, pg_temp
set jit = off set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_bitmapscan = off as $$
declare
    base pg_snapshot := coalesce((b.done).lo, (b.done).hi);
    huge xid8[] := array(select x from postrider.backlog g cross join unnest(g.xids) x
                          where g.epoch = (b.done).epoch and x >= pg_snapshot_xmax(base) order by x);
begin
    if (b.done).epoch is null then
        -- the number of a transaction may have been drawn long before it records
        return coalesce((select (max(x.epoch) - 1) << 46 from postrider.epoch x
                          where x.unit = 'event' and x.started_at < b.since - interval '1 hour'), 0);
    elsif (b.done).epoch <> (b.upto).epoch then
        return 0;
    end if;
    return least(
        (select min(v.seq) from pg_snapshot_xip(base) open cross join lateral (
            select e.seq from postrider.event e where e.xid = open order by e.seq limit 1) v),
        -- not through what is huge: that is long
        (select min(v.first) from postrider.xid_gaps(pg_snapshot_xmax(base), '9223372036854775807', huge) g cross join lateral (
            select min(e.seq + 0) as first from postrider.event e where e.xid > g.above and e.xid < g.below) v),
        (select min(v.seq) from unnest(huge) h (xid) cross join lateral (
            select e.seq from postrider.event e where e.xid = h.xid order by e.seq limit 1) v)) - 1;
end $$;

-- Whose jobs a walk makes.
create function postrider.walkers(b postrider.subscription_start) returns bigint[]
language sql stable set search_path = pg_catalog, pg_temp
return case when b.subscription is not null then array[b.subscription] else array(select h.subscription from postrider.held h where h.start = b.id) end;

-- The next events of the log by seq, `most` of them; wanted: those between the two positions that may concern the subscription.
create function postrider.walk(b postrider.subscription_start, most int) returns table (seq bigint, type text, owner text, wanted boolean)
language plpgsql stable set search_path = pg_catalog, pg_temp
set jit = off set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_bitmapscan = off as $$
#variable_conflict use_column
declare
    floors bigint[] := array(
        select (select l.floor_seq from postrider.log_epoch l where l.no = p.no)
          from (values (1, (b.done).epoch), (2, (b.upto).epoch)) p (o, no) order by p.o);
    ceilings bigint[] := array(
        select postrider.epoch_end(p.no) from (values (1, (b.done).epoch), (2, (b.upto).epoch)) p (o, no) order by p.o);
    walkers bigint[] := postrider.walkers(b);
begin
    return query
    select v.seq, v.type, v.owner,
           v.recorded_at >= b.since and exists (
                select from postrider.route r where r.type = v.type and r.owner = any (array['', v.owner]) and r.subscription = any (walkers))
           and postrider.is_behind(b.upto, floors[2], ceilings[2], v.xid, v.seq)
           and not postrider.is_behind(b.done, floors[1], ceilings[1], v.xid, v.seq)
           -- what is delayed is given when it is due, to those that start as well
           and (not (select exists (select from postrider.event_delay)) or not exists (
                select from postrider.event_delay d
                 where d.seq = v.seq and (b.subscription is null or d.ended_as is distinct from 'delivered' or b.subscription = any (d.given))))
      from (select e.seq, e.type, e.owner, e.recorded_at, e.xid from postrider.event e
             where e.seq > b.after order by e.seq limit walk.most) v;
end $$;
