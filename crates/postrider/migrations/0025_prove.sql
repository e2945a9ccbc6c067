-- What can be proven, and what is held: whether the log, the cuts and the jobs say the same; what an event became; whether anything may leave.
-- Locks: a row of cut while rows of long ago become one; nothing of producers or workers.
-- By hand on a large table: nothing.

-- Which instance this database is, and whether work that leaves it is held. One row.
create table postrider.instance (
    one                boolean     not null primary key default true,
    name               text        not null default '',   -- empty: nobody has named it
    outbound_paused_at timestamptz,
    reason             text,
    constraint there_is_one_instance check (one)
);
insert into postrider.instance default values;

-- Processes that were configured for another instance, and hold what leaves.
create table postrider.stranger (
    name    text        not null,
    app     text        not null,
    seen_at timestamptz not null default clock_timestamp(),
    primary key (name, app)
);

-- Whether jobs of a kind leave this database for somebody else's server.
create function postrider.is_outbound(kind text) returns boolean
language sql immutable set search_path = pg_catalog, pg_temp
return kind like 'webhook.%' or kind like 'http.%';

create function postrider.is_held(kind text) returns boolean
language sql stable set search_path = pg_catalog, pg_temp
return postrider.is_outbound(kind) and exists (select from postrider.instance i where i.outbound_paused_at is not null);

-- The kinds of which something may be claimed.
create function postrider.without_held(kinds text[]) returns text[]
language sql stable set search_path = pg_catalog, pg_temp
return array(select k from unnest(kinds) k where not postrider.is_held(k));

create function postrider.explain_held() returns text
language sql stable set search_path = pg_catalog, pg_temp
return (select format('Outbound work is paused since %s%s: it waits until postrider.resume_outbound(), and spends no attempt.',
               postrider.said(i.outbound_paused_at), coalesce(' (' || nullif(i.reason, '') || ')', '')) from postrider.instance i);

-- Holds everything that leaves, in all processes and at once: what runs ends, nothing of it is claimed. Work waits, spends no attempt, and goes on with
-- postrider.resume_outbound.
create function postrider.pause_outbound(reason text default '') returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
    update postrider.instance i set outbound_paused_at = coalesce(i.outbound_paused_at, clock_timestamp()), reason = left(pause_outbound.reason, 1000);
end $$;

create function postrider.resume_outbound() returns boolean
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
    update postrider.instance i set outbound_paused_at = null, reason = null where i.outbound_paused_at is not null;
    if found then
        perform postrider.wake('postrider_job');
        return true;
    end if;
    return false;
end $$;

-- Whether a process that was configured for instance `name` is to hold what leaves: the database is another one. The first name that is told to a
-- database that has none becomes its own.
create function postrider.check_instance(name text, app text) returns boolean
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
    perform postrider.check_name('instance', check_instance.name, true);
    update postrider.instance i set name = check_instance.name where i.name = '';
    if exists (select from postrider.instance i where i.name = check_instance.name) then
        return false;
    end if;
    insert into postrider.stranger as s (name, app) values (check_instance.name, check_instance.app)
    on conflict on constraint stranger_pkey do update set seen_at = excluded.seen_at;
    return true;
end $$;

-- Names this database: for a copy that is to be an instance of its own. Processes that hold what leaves go on when they start again.
create function postrider.name_instance(name text) returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
    perform postrider.check_name('instance', name_instance.name, true);
    update postrider.instance i set name = name_instance.name;
    delete from postrider.stranger;
end $$;

-- Events whose data was erased, and what it hashed to, so that the chain of cuts can still be checked.
create table postrider.erased (
    seq         bigint      not null primary key,
    data_sha256 bytea       not null,
    at          timestamptz not null default clock_timestamp(),
    reason      text        not null
);

-- Replaces the data of an event by {}, for good; everything else of it stays, and so does what it hashed to. False if it was erased already.
create function postrider.erase(event uuid, reason text) returns boolean
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    v record;
begin
    if coalesce(trim(reason), '') = '' then
        perform postrider.refuse('PR005', 'reason', 'it is empty', 'say why the data is erased');
    end if;
    select e.seq, e.xid, e.data into v from postrider.event e where e.seq = postrider.event_seq(event) and e.id = event for update;
    if not found then
        perform postrider.refuse('PR004', 'event', format('there is no event %s', event), 'look whether its transaction has committed, and how long events are kept');
    end if;
    if not postrider.is_relayed(v.seq, v.xid) then
        perform postrider.refuse('PR005', 'event', 'the relay has not come to it yet', 'try again when it has: see postrider.await_fanout');
    end if;
    insert into postrider.erased (seq, data_sha256, reason)
    values (v.seq, sha256(convert_to(v.data::text, 'UTF8')), left(erase.reason, 1000)) on conflict do nothing;
    if not found then
        return false;
    end if;
    update postrider.event e set data = '{}' where e.seq = v.seq;
    return true;
end $$;

-- Whether the relay is done with an event.
create function postrider.is_relayed(seq bigint, xid xid8) returns boolean
language sql stable set search_path = pg_catalog, pg_temp
return (
    select not exists (select from postrider.backlog b where b.over_at is null and is_relayed.xid = any (b.xids) and is_relayed.seq > b.after)
       and case when is_relayed.seq <= l.floor_seq
                then (l.done_at is not null or not exists (select from postrider.rebased r where r.seq = is_relayed.seq and r.cut is null))
                     and not is_relayed.xid = any (l.late)
                else pg_visible_in_snapshot(is_relayed.xid, coalesce(c.lo, c.hi))
                     or c.more and is_relayed.seq <= c.last_seq and pg_visible_in_snapshot(is_relayed.xid, c.hi) end
      from (select * from postrider.cut order by no desc limit 1) c
      join postrider.log_epoch l on l.no = c.epoch);

-- Jobs of an event, by where their ids may lie, and those that were made when it was requeued.
create function postrider.jobs_between(seq bigint, first bigint[], last bigint[]) returns bigint[]
language sql stable set search_path = pg_catalog, pg_temp
set jit = off set enable_seqscan = off set enable_bitmapscan = off
return (select coalesce(array_agg(j.id order by j.id), '{}')
          from (select * from unnest(jobs_between.first, jobs_between.last) u (first, last)
                union select p.first_job, p.last_job from postrider.poison p where p.event_seq = jobs_between.seq and p.ended_as = 'made') x
         cross join (values (1::smallint), (2::smallint), (3::smallint)) k (class)
          join postrider.job j on j.class = k.class and j.id > (x.first | 3) and j.id <= x.last and j.event_seq = jobs_between.seq);

create type postrider.fanout as (state text, jobs bigint[], aside text[]);

-- What an event became. state: 'done', with its jobs in the order of their ids and the subscriptions for which it was set aside; 'waiting' for the relay, or
-- for its time; 'cancelled' before it was delivered; 'unknown': no such event has committed; 'elsewhere': another engine has its jobs. Jobs of subscriptions that began later are not told, and of those that
-- coalesce only the job that the event is the latest for and that it made.
create function postrider.await_fanout(event uuid) returns postrider.fanout
language plpgsql stable security definer set search_path = pg_catalog, pg_temp
set jit = off set enable_seqscan = off set enable_bitmapscan = off as $$
declare
    v record;
    d postrider.event_delay;
    c postrider.cut;
    told postrider.fanout;
    low bigint;
    high bigint;
    middle bigint;
begin
    told := row ('unknown', '{}', '{}');
    select e.seq, e.xid, e.type, e.owner into v from postrider.event e where e.seq = postrider.event_seq(event) and e.id = event;
    if not found then
        return told;
    end if;
    told.state := 'waiting';
    select * into d from postrider.event_delay x where x.seq = v.seq;
    if d.ended_as = 'cancelled' then
        told.state := 'cancelled';
        return told;
    elsif d.seq is not null and d.ended_at is null then
        return told;
    end if;
    select coalesce(array_agg(coalesce(s.name, p.subscription::text) order by s.name), '{}') into told.aside
      from postrider.poison p left join postrider.subscription s on s.id = p.subscription
     where p.event_seq = v.seq and p.ended_at is null;
    if d.ended_as = 'delivered' then
        told.state := case when d.first_job is null then 'elsewhere' else 'done' end;
        told.jobs := postrider.jobs_between(v.seq, array[d.first_job], array[d.last_job]);
        return told;
    end if;
    if not postrider.is_relayed(v.seq, v.xid) or postrider.is_owed(v.seq, v.xid, v.type, v.owner) then
        return told;
    end if;
    told.state := 'done';
    -- the first row that covers it: what a row covers, the rows after it in its epoch cover too
    select max(l.no) into c.epoch from postrider.log_epoch l where l.floor_seq < v.seq;
    select min(x.no), max(x.no) into low, high from postrider.cut x where x.epoch = c.epoch;
    while low < high loop
        select max(x.no) into middle from postrider.cut x where x.no <= (low + high) / 2;
        select * into c from postrider.cut x where x.no = middle;
        if pg_visible_in_snapshot(v.xid, coalesce(c.lo, c.hi)) or c.more and v.seq <= c.last_seq and pg_visible_in_snapshot(v.xid, c.hi) then
            high := middle;
        else
            select min(x.no) into low from postrider.cut x where x.no > middle;
        end if;
    end loop;
    select * into c from postrider.cut x
     where x.no = coalesce((select y.no from postrider.rebased r join postrider.cut y on r.cut between y.from_no and y.no where r.seq = v.seq),
                           (select y.no from postrider.backlog b join postrider.cut y on y.backlog = b.id and y.part_upto >= v.seq and y.part_after < v.seq
                             where b.epoch = c.epoch and v.xid = any (b.xids) order by y.part_upto limit 1),
                           low);
    if c.elsewhere then
        told.state := 'elsewhere';
        return told;
    end if;
    select postrider.jobs_between(v.seq, array_agg(x.first), array_agg(x.last)) into told.jobs
      from (select c.first_job as first, c.last_job as last
            -- of those that kept an order behind a huge transaction
            union select y.first_job, y.last_job from postrider.subscription_start b
                    join postrider.cut y on y.start = b.id and y.part_upto >= v.seq and y.part_after < v.seq
                   where b.subscription is null) x;
    return told;
end $$;

-- The events that a row of cut stands for, as its window has them, and what they say; `before` is the row before it.
create function postrider.events_of_cut(c postrider.cut, before postrider.cut, out n bigint, out digest bytea)
language plpgsql stable set search_path = pg_catalog, pg_temp
set jit = off set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off as $$
declare
    lo pg_snapshot := case when c.more then c.lo when before.more then before.lo else before.hi end;
    floor bigint := (select l.floor_seq from postrider.log_epoch l where l.no = c.epoch);
    roof bigint := coalesce((select l.floor_seq from postrider.log_epoch l where l.no = c.epoch + 1), 9223372036854775807);
    after bigint := case when before.more then before.last_seq else floor end;
    upto bigint := case when c.more then c.last_seq else roof end;
    sliced boolean := c.more or before.more;
    r_first bigint := greatest(after + 1, case when c.more then c.r_first else before.r_first end);
    r_last bigint := least(upto, case when c.more then c.r_last else before.r_last end);
begin
    select count(*), sha256(string_agg(postrider.event_digest(
               coalesce(x.data_sha256, sha256(convert_to(e.data::text, 'UTF8'))), e.id, e.occurred_at, e.type, e.owner, e.subject, e.cause),
               null order by e.seq))
      into n, digest
      from (
        -- by the transactions first: a span of numbers can be the whole log
        select v.* from postrider.backlog b cross join unnest(b.xids) x (xid) cross join lateral (
                select e.* from postrider.event e where e.xid = x.xid and e.seq > c.part_after and e.seq <= c.part_upto offset 0) v
         where b.id = c.backlog
        union all
        select v.* from postrider.rebased r join postrider.event v on v.seq = r.seq
         where c.backlog is null and c.last_seq <= floor and r.epoch = c.epoch and r.cut between c.from_no and c.no
        union all
        select v.* from pg_snapshot_xip(lo) open cross join lateral (
                select e.* from postrider.event e where e.xid = open and e.seq > after and e.seq <= upto offset 0) v
         where c.backlog is null and (c.apart is null or open <> all (c.apart)) and c.last_seq > floor and pg_visible_in_snapshot(open, c.hi)
        union all
        select v.* from postrider.xid_gaps(pg_snapshot_xmax(lo), pg_snapshot_xmax(c.hi), c.apart) g cross join lateral (
                select e.* from postrider.event e
                 where e.xid > g.above and e.xid < g.below and pg_visible_in_snapshot(e.xid, c.hi) and e.seq + 0 > floor and e.seq + 0 <= roof offset 0) v
         where c.backlog is null and c.last_seq > floor and not sliced
        union all
        select v.* from postrider.event v
         where c.backlog is null and (c.apart is null or v.xid <> all (c.apart)) and c.last_seq > floor and sliced
           and v.seq >= r_first and v.seq <= r_last
           and not pg_visible_in_snapshot(v.xid, lo) and v.xid <> all (array(select pg_snapshot_xip(lo)))
           and pg_visible_in_snapshot(v.xid, c.hi)) e
      left join postrider.erased x on x.seq = e.seq
     -- what an unfinished window of this epoch left is of the epoch that came after
     where not exists (select from postrider.rebased r where r.seq = e.seq and r.epoch > c.epoch);
end $$;

-- How many jobs of those that a row of cut made are there; gone: some may have been taken by retention or by an operator.
create function postrider.jobs_of_cut(c postrider.cut, out n bigint, out gone boolean)
language plpgsql stable set search_path = pg_catalog, pg_temp
set jit = off set enable_seqscan = off set enable_bitmapscan = off as $$
begin
    select count(*) into n
      from (values (1::smallint), (2::smallint), (3::smallint)) k (class)
      join postrider.job j on j.class = k.class and j.id > (c.first_job | 3) and j.id <= c.last_job
     where j.event_seq is not null and j.subscription is not null
       and not exists (select from postrider.poison p where p.event_seq = j.event_seq and p.subscription = j.subscription
                          and j.id > (p.first_job | 3) and j.id <= p.last_job);
    gone := exists (select from postrider.retired r where r.first <= c.last_job >> 46 and r.until > c.first_job >> 46)
         or exists (select from postrider.deleted d where d.id > c.first_job and d.id <= c.last_job);
end $$;

-- How many events of the log the position says were relayed.
create function postrider.count_relayed() returns bigint
language sql stable set search_path = pg_catalog, pg_temp set jit = off
as $$
    select count(*)
      from (select * from postrider.cut order by no desc limit 1) c
      join postrider.log_epoch l on l.no = c.epoch
     cross join postrider.event e
     where case when e.seq <= l.floor_seq
                then e.xid <> all (l.late) and not exists (select from postrider.rebased r where r.seq = e.seq and r.cut is null)
                else (pg_visible_in_snapshot(e.xid, coalesce(c.lo, c.hi)) or c.more and e.seq <= c.last_seq and pg_visible_in_snapshot(e.xid, c.hi))
                     and not exists (select from postrider.backlog b where b.over_at is null and e.xid = any (b.xids) and e.seq > b.after) end
$$;

create type postrider.verified as (
    first_no bigint, last_no bigint, cuts bigint, committed bigint, fanned_out bigint, jobs bigint, missing bigint, twice bigint, broken bigint,
    altered bigint, unchecked_events bigint, unchecked_jobs bigint, findings text[]
);

-- Computes anew, from the log and the jobs, what the cuts of a time say; without a time, all of them. committed: events that are there; fanned_out: events that
-- the cuts took; missing: events or jobs that are not there; twice: pairs of an event and a subscription with more than one job; broken: rows of cut that do not
-- follow from the one before, or are gone; altered: rows whose events are not what they were. What retention or an operator took is unchecked. The first hundred
-- findings are told in words. Without a time, and if nothing is unchecked, it also counts the log itself: each event that the position covers is in a row. All is well if missing, twice,
-- broken and altered are 0.
create function postrider.verify("from" timestamptz default null, "to" timestamptz default null) returns postrider.verified
language plpgsql stable security definer set search_path = pg_catalog, pg_temp set jit = off set enable_hashagg = off set work_mem = '64MB' as $$
declare
    v postrider.verified;
    c postrider.cut;
    before postrider.cut;
    e record;
    j record;
    lost bigint;
    says text;
begin
    v := row (null, null, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, '{}');
    for c in select x.* from postrider.cut x
              where ("from" is null or x.at >= "from") and ("to" is null or x.at < "to") order by x.no
    loop
        if v.first_no is null then
            v.first_no := c.from_no;
            select x.* into before from postrider.cut x where x.no < c.no order by x.no desc limit 1;
        end if;
        v.last_no := c.no;
        v.cuts := v.cuts + 1;
        says := case
            when coalesce(before.no, 0) <> c.from_no - 1 then format('rows %s to %s of cut are gone', coalesce(before.no, 0) + 1, c.from_no - 1)
            when c.hash is distinct from postrider.cut_hash(coalesce(before.joined, before.hash, '\x'), c)
              then format('row %s of cut is not what was written', c.no)
            when (c.events_total, c.jobs_total) is distinct from (coalesce(before.events_total, 0) + c.n, coalesce(before.jobs_total, 0) + c.jobs)
              then format('the totals of row %s of cut are not the sum', c.no) end;
        if says is not null then
            v.broken := v.broken + 1;
            v.findings := v.findings || says;
            before := c;
            continue;
        end if;
        if c.n > 0 and exists (select from generate_series(c.first_seq >> 46, coalesce(c.part_upto, c.last_seq) >> 46) g where to_regclass(format('postrider.event_e%s', g)) is null) then
            v.unchecked_events := v.unchecked_events + c.n;
        elsif c.n > 0 then
            select * into e from postrider.events_of_cut(c, before) x;
            v.committed := v.committed + e.n;
            v.fanned_out := v.fanned_out + c.n;
            if e.n <> c.n or e.digest is distinct from c.digest then
                v.missing := v.missing + greatest(c.n - e.n, 0);
                v.altered := v.altered + 1;
                v.findings := v.findings || case when e.n <> c.n then format('row %s of cut took %s events, %s are there', c.no, c.n, e.n)
                                                 else format('an event of row %s of cut is not what was recorded', c.no) end;
            end if;
        end if;
        if c.elsewhere then
            v.unchecked_jobs := v.unchecked_jobs + c.jobs;
        elsif c.jobs > 0 then
            select * into j from postrider.jobs_of_cut(c) x;
            lost := c.jobs - j.n;
            v.jobs := v.jobs + j.n;
            if j.gone and lost > 0 then
                v.unchecked_jobs := v.unchecked_jobs + lost;
            elsif lost <> 0 then
                v.missing := v.missing + greatest(lost, 0);
                v.altered := v.altered + 1;
                v.findings := v.findings || format('row %s of cut made %s jobs, %s are there', c.no, c.jobs, j.n);
            end if;
        end if;
        before := c;
        v.findings := v.findings[1:100];
    end loop;
    select count(*) into v.twice from (
        select from postrider.job x where x.event_seq is not null and x.subscription is not null
           and (v.first_no is null or "from" is null and "to" is null or x.id > (select min(y.first_job) from postrider.cut y where y.no >= v.first_no)
                and x.id <= (select max(y.last_job) from postrider.cut y where y.no <= v.last_no))
         group by x.event_seq, x.subscription having count(*) > 1) t;
    if v.twice > 0 then
        v.findings := v.findings || format('%s pairs of an event and a subscription have more than one job', v.twice);
    end if;
    if "from" is null and "to" is null and v.unchecked_events = 0 and v.broken = 0 then
        -- what each row says of itself may be right, and an event be in none of them
        lost := postrider.count_relayed() - before.events_total;
        if lost > 0 then
            v.missing := v.missing + lost;
            v.findings := v.findings || format('%s events of the log are behind the position, and no row of cut took them', lost);
        elsif lost < 0 and v.missing = 0 then
            v.missing := v.missing - lost;
            v.findings := v.findings || format('the rows of cut took %s events that are not behind the position, or not in the log', -lost);
        end if;
    end if;
    if "to" is null and exists (
        select from (select coalesce(max(y.last_job), 0) as last_job from postrider.cut y) l
          cross join (values (1::smallint), (2::smallint), (3::smallint)) k (class)
          join postrider.job x on x.class = k.class and x.id > (l.last_job | 3) and x.event_seq is not null and x.subscription is not null
         where not exists (select from postrider.poison p where p.event_seq = x.event_seq and p.subscription = x.subscription and p.ended_as = 'made'))
    then
        v.broken := v.broken + 1;
        v.findings := v.findings || 'there are jobs of events after the last row of cut: rows behind it are gone'::text;
    end if;
    return v;
end $$;

-- How far rows of cut were joined. One row.
create table postrider.joined_cuts (
    one boolean not null primary key default true,
    no  bigint  not null,
    constraint there_is_one_mark check (one)
);
insert into postrider.joined_cuts (no) values (0);

-- Joins the rows of cut of each minute that is over for an hour, so that a year of them is a small table: a row stands for several then, is checked against the
-- log before, and keeps the hash of the last one, which the next row follows from. At most `most` rows are looked at; answers with how many rows went.
create function postrider.join_cuts(most int default 5000) returns int
language plpgsql set search_path = pg_catalog, pg_temp set jit = off as $$
declare
    rows postrider.cut[];
    whole int := 0;
    g record;
    e record;
    before postrider.cut;
    c postrider.cut;
    went int := 0;
    mark bigint;
begin
    select j.no into mark from postrider.joined_cuts j for update;
    select array_agg(q.x order by (q.x).no) into rows from (
        select y from postrider.cut y where y.no > mark and y.at < date_trunc('minute', clock_timestamp() - interval '1 hour') order by y.no limit most) q (x);
    for i in reverse coalesce(cardinality(rows), 0)..1 loop
        if not (rows[i]).more then
            whole := i;
            exit;
        end if;
    end loop;
    -- the last minute may go on behind the rows that were looked at
    for g in
        select min(r.o)::int as first, max(r.o)::int as last, sum(r.n)::int as n, sum(r.jobs)::int as jobs, sum(r.aside)::int as aside,
               min(r.first_seq) as first_seq, max(r.last_seq) as last_seq, min(r.first_job) as first_job, max(r.last_job) as last_job
          from (select u.*, date_trunc('minute', max(u.at) filter (where not u.more) over (partition by u.slices)) as minute
                  from (select t.*, count(*) filter (where not t.more) over (order by t.no desc) as slices
                          from unnest(rows[1:whole]) with ordinality t (no, from_no, epoch, hi, lo, r_first, r_last, more, at, n, jobs, aside, elsewhere,
                               events_total, jobs_total, first_seq, last_seq, first_job, last_job, digest, joined, hash, apart, backlog, start,
                               part_after, part_upto, o)) u) r
          join postrider.log_epoch l on l.no = r.epoch
         where r.last_seq > l.floor_seq and r.n > 0 and r.backlog is null and r.apart is null
         group by r.epoch, r.elsewhere, r.minute having count(*) > 1 and max(r.no) - min(r.from_no) = sum(r.no - r.from_no + 1) - 1
         order by 1
    loop
        select * into before from postrider.cut x where x.no < (rows[g.first]).no order by x.no desc limit 1;
        c := rows[g.last];
        c.from_no := (rows[g.first]).from_no;
        c.n := g.n;
        c.jobs := g.jobs;
        c.aside := g.aside;
        c.first_seq := g.first_seq;
        c.last_seq := g.last_seq;
        c.first_job := g.first_job;
        c.last_job := g.last_job;
        select * into e from postrider.events_of_cut(c, before) x;
        -- what is not whole stays as it is, for postrider.verify to tell
        continue when e.n <> g.n or before.more;
        c.digest := e.digest;
        c.joined := coalesce(c.joined, c.hash);
        c.hash := postrider.cut_hash(coalesce(before.joined, before.hash, '\x'), c);
        delete from postrider.cut x where x.no >= (rows[g.first]).no and x.no <= c.no;
        insert into postrider.cut select c.*;
        went := went + g.last - g.first;
    end loop;
    if whole > 0 then
        update postrider.joined_cuts j set no = (rows[whole]).no;
    end if;
    return went;
end $$;

create function postrider.check_subscribed(subscription text) returns void
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
begin
    if subscription is not null and not exists (select from postrider.subscription s where s.name = check_subscribed.subscription) then
        perform postrider.refuse('PR004', 'subscription', format('%L was never declared', left(subscription, 80)),
            'use the name of a subscription, or null for all of them');
    end if;
end $$;

-- What parts of the schema that can be left out have to tell; they put their own in its place.
create function postrider.alerts_of_components() returns setof postrider.alert
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
begin
end $$;
