-- Huge transactions: what one of them recorded is turned into jobs slice by slice, by turns with what is new, so that nobody else waits for it.
-- Locks: none of producers; rows of the relay's own tables, under its lock.
-- By hand on a large table: nothing.

-- The transactions of a window that recorded more than `most` events each, ascending; null if none did. It looks at each of them no further than
-- it has to, and walks over the others once.
create function postrider.huge_transactions(w postrider.cut, floor_seq bigint, most int) returns xid8[]
language plpgsql stable set search_path = pg_catalog, pg_temp
set jit = off set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off
set enable_mergejoin = off as $$
declare
    huge xid8[];
    part record;
    above xid8 := (pg_snapshot_xmax(w.lo)::text::bigint - 1)::text::xid8;
begin
    select array_agg(x.open order by x.open) into huge
      from pg_snapshot_xip(w.lo) x (open)
     where pg_visible_in_snapshot(x.open, w.hi)
       and exists (select from postrider.event v where v.xid = x.open and v.seq > floor_seq order by v.seq offset most limit 1);
    loop
        select sum(g.n) as n, max(g.xid) as last, array_agg(g.xid order by g.xid) filter (where g.n > most) as huge
          into part
          from (select c.xid, count(*) as n
                  from (select v.xid from postrider.event v
                         where v.xid > above and v.xid < pg_snapshot_xmax(w.hi) and v.seq > floor_seq
                         order by v.xid limit 2 * most) c
                 group by c.xid) g;
        huge := huge || part.huge;
        exit when coalesce(part.n, 0) < 2 * most;
        -- the last one may be cut off
        if part.last <> all (coalesce(part.huge, '{}'))
           and exists (select from postrider.event v where v.xid = part.last and v.seq > floor_seq order by v.seq offset most limit 1)
        then
            huge := huge || part.last;
        end if;
        above := part.last;
    end loop;
    return (select array_agg(x order by x) from unnest(huge) x where pg_visible_in_snapshot(x, w.hi));
end $$;

-- The types of what huge transactions recorded; null if it takes longer than three seconds to look, so that nobody waits longer for it.
create function postrider.types_of_transactions(xids xid8[]) returns text[]
language plpgsql stable set search_path = pg_catalog, pg_temp
set jit = off set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_bitmapscan = off as $$
declare
    until timestamptz := clock_timestamp() + interval '3 seconds';
    types text[] := '{}';
    part record;
    x xid8;
    after bigint;
begin
    foreach x in array xids loop
        after := 0;
        loop
            -- mostly all are of one type, which the smallest and the largest tell
            select count(*) as n, max(v.seq) as last, min(v.type) as smallest, max(v.type) as largest into part
              from (select e.seq, e.type from postrider.event e where e.xid = x and e.seq > after order by e.seq limit 50000) v;
            if part.smallest < part.largest then
                types := types || array(select distinct e.type from postrider.event e where e.xid = x and e.seq > after and e.seq <= part.last
                                           and e.type <> all (types));
            elsif part.smallest <> all (types) then
                types := types || part.smallest;
            end if;
            exit when part.n < 50000;
            after := part.last;
            if clock_timestamp() > until then
                return null;
            end if;
        end loop;
    end loop;
    return types;
end $$;

-- Notes what is taken apart from the window of `new`. Of subscriptions without an order its events may come later than those that were recorded
-- after them. Those that keep an order, or of a subject only want the latest, and may have events of it, are walked through the whole log from
-- the last position on, in the order of seq, until they have caught up; the relay passes them by until then. Answers with that start, null if there
-- are none. An order that somebody declares while a backlog is open holds from its end on.
create function postrider.open_backlog(last postrider.cut, new postrider.cut, epoch postrider.log_epoch, s postrider.slice) returns bigint
language plpgsql set search_path = pg_catalog, pg_temp set jit = off as $$
declare
    first_seq bigint;
    last_seq bigint;
    ordered bigint[];
    concerned bigint[];
    of_types text[];
    started bigint;
begin
    select min(v.first), max(v.last) into first_seq, last_seq from unnest(new.apart) x (xid) cross join lateral (
        select (select e.seq from postrider.event e where e.xid = x.xid and e.seq > epoch.floor_seq order by e.seq limit 1) as first,
               (select e.seq from postrider.event e where e.xid = x.xid and e.seq > epoch.floor_seq order by e.seq desc limit 1) as last) v;
    ordered := array(
        select distinct r.subscription from postrider.route r
         where (r.order_rule is not null or r.coalescing) and not r.starting and not postrider.is_held_back(r.subscription)
           and not exists (select from postrider.backlog b join postrider.route q on q.subscription = r.subscription
                            where b.over_at is null and (b.types is null or q.type = any (b.types))));
    if ordered <> '{}' then
        of_types := postrider.types_of_transactions(new.apart);
        concerned := array(select distinct r.subscription from postrider.route r
                            where r.subscription = any (ordered) and (of_types is null or r.type = any (of_types)));
    end if;
    insert into postrider.backlog (epoch, opened_no, xids, types, after, last_seq)
    values (epoch.no, last.no + 1, new.apart, of_types, first_seq - 1, last_seq);
    if concerned <> '{}' then
        insert into postrider.subscription_start (since, done, after)
        values ('-infinity', row (last.epoch, last.lo, last.hi, last.more, last.last_seq), least(first_seq, s.seqs[1]) - 1)
        returning id into started;
        insert into postrider.held (subscription, start) select c, started from unnest(concerned) c;
    end if;
    return started;
end $$;

-- A slice of a backlog.
create function postrider.relay_backlog(last postrider.cut, b postrider.backlog, how postrider.pass, answer postrider.relayed)
returns postrider.relayed
language plpgsql set search_path = pg_catalog, pg_temp
set jit = off set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off
set enable_mergejoin = off as $$
declare
    s postrider.slice;
    new postrider.cut := last;
begin
    select array_agg(e.seq), array_agg(e.type), array_agg(e.owner), array_agg(postrider.event_digest(
               sha256(convert_to(e.data::text, 'UTF8')), e.id, e.occurred_at, e.type, e.owner, e.subject, e.cause))
      into s.seqs, s.types, s.owners, s.digests from (
        select v.* from unnest(b.xids) x (xid) cross join lateral (
            select seq, id, occurred_at, type, owner, subject, cause, data from postrider.event
             where xid = x.xid and seq > b.after order by seq limit how.most + 1) v
         order by v.seq limit how.most + 1) e;
    if s.seqs is null then
        update postrider.backlog x set over_at = clock_timestamp() where x.id = b.id;
        answer.more := true;
        return answer;
    end if;
    new.joined := null;
    new.start := null;
    new.apart := case when last.more then last.apart end;
    new.backlog := b.id;
    new.part_after := b.after;
    answer := postrider.append_cut(last, new, s, how, answer);
    -- what is new comes next
    answer.more := true;
    return answer;
end $$;

-- Whether subscriptions that are walked behind a huge transaction have still to come to an event.
create function postrider.is_owed(seq bigint, xid xid8, type text, owner text) returns boolean
language plpgsql stable set search_path = pg_catalog, pg_temp set jit = off as $$
declare
    b postrider.subscription_start;
begin
    for b in select x.* from postrider.subscription_start x where x.over_at is null and x.subscription is null loop
        if exists (select from postrider.route r
                    where r.type = is_owed.type and r.owner = any (array['', is_owed.owner]) and r.subscription = any (postrider.walkers(b)))
           and exists (select from postrider.log_epoch l
                    where l.no = (b.done).epoch
                      and not postrider.is_behind(b.done, l.floor_seq, postrider.epoch_end(l.no), is_owed.xid, is_owed.seq))
           and not ((b.upto).epoch is not null and is_owed.seq <= b.after and exists (
                   select from postrider.log_epoch l
                    where l.no = (b.upto).epoch
                      and postrider.is_behind(b.upto, l.floor_seq, postrider.epoch_end(l.no), is_owed.xid, is_owed.seq)))
        then
            return true;
        end if;
    end loop;
    return false;
end $$;

-- What the relay needs somebody for, and what is held.
create function postrider.alerts_of_relay() returns setof postrider.alert
language plpgsql stable set search_path = pg_catalog, pg_temp set jit = off as $$
begin
    return query
    select 'poison', case when bool_or(p.retry_at is null) then 'critical' else 'warning' end, 'subscription ' || coalesce(min(s.name), p.subscription::text),
           min(p.since), format('%s events could not become jobs of subscription %s and were set aside: %s', count(*),
           coalesce(min(s.name), p.subscription::text), max(p.error)),
           'mend what the error says, then postrider.requeue(); or let go of them with postrider.drop_poison(reason)'
      from postrider.poison p left join postrider.subscription s on s.id = p.subscription
     where p.ended_at is null group by p.subscription;
    return query
    select 'rebased', 'warning', 'epoch ' || l.no, l.started_at, format('the log began epoch %s at %s: %s; %s events that it had not relayed were turned into jobs',
           l.no, postrider.said(l.started_at), l.note, (select count(*) from postrider.rebased r where r.epoch = l.no)),
           'see that this copy is meant to work: postrider.pause_outbound() holds what leaves it'
      from postrider.log_epoch l where l.no > 1 and l.started_at > clock_timestamp() - interval '1 day';
    return query
    select 'huge_transaction', 'warning', 'transaction ' || b.xids[1], b.opened_at,
           format('a transaction of very many events is being turned into jobs since %s: %s events of it so far%s', postrider.said(b.opened_at),
                  b.events, coalesce('; these wait for it, since they keep an order: ' || (
                      select string_agg(s.name, ', ' order by s.name) from postrider.subscription_start g join postrider.held h on h.start = g.id
                        join postrider.subscription s on s.id = h.subscription where g.over_at is null), '')),
           'nothing is needed: everybody else''s events come by turns with it'
      from postrider.backlog b where b.over_at is null and b.opened_at < clock_timestamp() - interval '1 minute';
    return query
    select 'watch', case w.severity when 'critical' then 'critical' else 'warning' end, 'watch ' || w.watch, null::timestamptz, w.says, w.remedy
      from postrider.check_watches() w where w.severity <> 'hole';
    return query
    select 'outbound_held', 'critical', 'outbound', i.outbound_paused_at,
           format('outbound work is paused since %s%s', postrider.said(i.outbound_paused_at), coalesce(': ' || nullif(i.reason, ''), '')),
           'postrider.resume_outbound() lets it go on'
      from postrider.instance i where i.outbound_paused_at is not null;
    return query
    select 'outbound_held', 'critical', 'instance ' || s.name, s.seen_at,
           format('application %s is configured for instance %s and this database is %s: it holds its outbound work', s.app, s.name, i.name),
           'give it the database that it is meant for; or, if this copy is to be one of its own, postrider.name_instance(name)'
      from postrider.stranger s cross join postrider.instance i;
end $$;
