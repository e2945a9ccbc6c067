-- The relay: each committed event becomes one job for each matching subscription, read by the difference of two snapshots.
-- Locks: one relay at a time, by an advisory lock of the transaction; nothing of the producers.
-- By hand on a large table: nothing.

-- The cluster that the positions belong to; a restore into another one starts a new epoch with a floor: what has a seq up to it is
-- read no more but by the rebase that started the epoch.
create table postrider.log_epoch (
    no                int         not null primary key,
    system_identifier bigint      not null,
    floor_seq         bigint      not null,
    started_at        timestamptz not null default clock_timestamp(),
    note              text        not null,
    late              xid8[]      not null default '{}',  -- open when it started: they may still bring events from below the floor
    done_at           timestamptz                         -- when everything below the floor was turned into jobs
);

-- Append only, but for rows of long ago that become one, see postrider.merge_cuts. After a row: everything visible in `hi` is fanned out
-- if not `more`; if `more`, everything visible in `lo`, and of the window (lo, hi] the rows with seq <= last_seq.
create table postrider.cut (
    no           bigint      not null primary key,   -- last + 1: the second fence against two relays
    from_no      bigint      not null,               -- the first of the rows that it stands for
    epoch        int         not null references postrider.log_epoch (no),
    hi           pg_snapshot not null,
    lo           pg_snapshot,
    r_first      bigint,                             -- the span of the window's new transactions in seq: an access path
    r_last       bigint,
    more         boolean     not null,
    at           timestamptz not null,
    n            int         not null,
    jobs         int         not null,
    aside        int         not null,               -- pairs of an event and a subscription that were set aside instead
    elsewhere    boolean     not null,               -- the jobs are those of another engine
    events_total bigint      not null,
    jobs_total   bigint      not null,
    first_seq    bigint,
    last_seq     bigint,
    first_job    bigint,                             -- the ids of the jobs lie between: an access path
    last_job     bigint,
    digest       bytea,                              -- over the events in the order of seq, see postrider.relay
    joined       bytea,                              -- of a row that stands for several: the hash of the last one
    hash         bytea       not null,               -- over the row before and this one
    apart        xid8[],                             -- transactions of the window that are taken beside it, see postrider.backlog
    backlog      bigint,                             -- the events are a slice of this backlog; the position stays
    start        bigint,                             -- the jobs are of a slice of the log that was walked for this start; the position stays
    part_after   bigint,                             -- of these two: the slice has the numbers above, up to
    part_upto    bigint,
    constraint a_window_is_open_as_a_whole check (more = (lo is not null))
);
-- Where in a backlog, or in what was walked, an event was taken: few rows of long ago are looked at for one that is asked for.
create index cut_of_backlog on postrider.cut (backlog, part_upto) where backlog is not null;
create index cut_of_start on postrider.cut (start, part_upto) where start is not null;

-- Huge transactions of one window: their events are turned into jobs slice by slice, in the order of seq, by turns with what is new. The
-- position is past them meanwhile.
create table postrider.backlog (
    id        bigint      generated always as identity primary key,
    epoch     int         not null references postrider.log_epoch (no),
    opened_no bigint      not null,                  -- the row of cut whose window they are of
    xids      xid8[]      not null,
    types     text[],                                -- of their events; null: there was no time to look at all of them
    after     bigint      not null,                  -- the last seq that was taken
    last_seq  bigint      not null,                  -- the last seq that there is of them
    events    bigint      not null default 0,
    opened_at timestamptz not null default clock_timestamp(),
    over_at   timestamptz
);
create index backlog_open on postrider.backlog (id) where over_at is null;

create function postrider.cut_hash(previous bytea, c postrider.cut) returns bytea
language sql immutable set search_path = pg_catalog, pg_temp
return sha256(convert_to(concat_ws('|', encode(previous, 'hex'), c.no, c.from_no, c.epoch, c.hi::text, c.lo::text, c.more::text, c.n, c.jobs,
    c.aside, c.elsewhere::text, c.events_total, c.jobs_total, c.first_seq, c.last_seq, encode(c.digest, 'hex'),
    encode(c.joined, 'hex'), 'apart ' || c.apart::text, 'backlog ' || c.backlog, 'start ' || c.start, c.part_after, c.part_upto), 'UTF8'));

-- The first position of a log that begins now.
create function postrider.first_cut(epoch int) returns postrider.cut
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    c postrider.cut;
begin
    c.no := 1;
    c.from_no := 1;
    c.epoch := first_cut.epoch;
    c.hi := pg_current_snapshot();
    c.more := false;
    c.at := clock_timestamp();
    c.n := 0;
    c.jobs := 0;
    c.aside := 0;
    c.elsewhere := false;
    c.events_total := 0;
    c.jobs_total := 0;
    c.hash := postrider.cut_hash('\x', c);
    return c;
end $$;

insert into postrider.log_epoch (no, system_identifier, floor_seq, note, done_at)
select 1, system_identifier, 0, 'installed', clock_timestamp() from pg_control_system();
insert into postrider.cut select c.* from postrider.first_cut(1) c;

create type postrider.relayed as (
    no bigint, n int, jobs int, more boolean, open_writers boolean, why text, matched json, starting boolean, aside int, retry_in_ms bigint
);

-- Events to be turned into jobs, in the order of seq, and what they are: see postrider.relay.
create type postrider.slice as (seqs bigint[], types text[], owners text[], digests bytea[]);

-- What an event says, for the chain of cuts: its data as a hash, so that it can be erased and the digest stays.
create function postrider.event_digest(
    data_sha256 bytea, id uuid, occurred_at timestamptz, type text, owner text, subject text, cause uuid) returns bytea
language sql stable
return data_sha256 || uuid_send(id) || timestamptz_send(occurred_at) || convert_to(concat_ws(E'\n', type, owner, subject, cause, ''), 'UTF8');

-- The transactions from one to another, without some of them (ascending): the gaps between these, both ends not counted.
create function postrider.xid_gaps(first xid8, beyond xid8, without xid8[], out above xid8, out below xid8) returns setof record
language sql immutable
begin atomic
    select x.above, x.below
      from unnest(array[(first::text::bigint - 1)::text::xid8] || array(select w from unnest(without) w where w >= first),
                  array(select w from unnest(without) w where w >= first) || array[beyond]) x (above, below);
end;

-- The slice that comes next of a window, w.lo to w.hi, without what is taken apart from it, and one event more. inside: an earlier slice left
-- the window open; r_first and r_last are its span.
create function postrider.next_slice(w postrider.cut, after bigint, most int, inside boolean) returns postrider.slice
language plpgsql set search_path = pg_catalog, pg_temp
set jit = off set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off
set enable_mergejoin = off as $$
declare
    s postrider.slice;
begin
    -- the rows come in the order of seq out of the inner query; an ORDER BY in each aggregate would sort them again
    if not inside then
        select array_agg(e.seq), array_agg(e.type), array_agg(e.owner), array_agg(postrider.event_digest(
                   sha256(convert_to(e.data::text, 'UTF8')), e.id, e.occurred_at, e.type, e.owner, e.subject, e.cause))
          into s.seqs, s.types, s.owners, s.digests from (
            select * from (
                select v.* from pg_snapshot_xip(w.lo) open cross join lateral (
                    select seq, id, occurred_at, type, owner, subject, cause, data from postrider.event
                     where xid = open and seq > after order by seq limit most + 1) v
                 where pg_visible_in_snapshot(open, w.hi) and (w.apart is null or open <> all (w.apart))
                union all
                -- the log is not read through what is taken apart: that is long
                select v.* from postrider.xid_gaps(pg_snapshot_xmax(w.lo), pg_snapshot_xmax(w.hi), w.apart) g cross join lateral (
                    select seq, id, occurred_at, type, owner, subject, cause, data from postrider.event
                     where xid > g.above and xid < g.below and seq > after and pg_visible_in_snapshot(xid, w.hi) offset 0) v) both_kinds
             order by seq limit most + 1) e;
    else
        -- inside a window: `xid >= xmax(lo)` is spelt by visibility, so that the planner cannot take the index on (xid, seq) and
        -- read the whole window again for each slice
        select array_agg(e.seq), array_agg(e.type), array_agg(e.owner), array_agg(postrider.event_digest(
                   sha256(convert_to(e.data::text, 'UTF8')), e.id, e.occurred_at, e.type, e.owner, e.subject, e.cause))
          into s.seqs, s.types, s.owners, s.digests from (
            select * from (
                select v.* from pg_snapshot_xip(w.lo) open cross join lateral (
                    select seq, id, occurred_at, type, owner, subject, cause, data from postrider.event
                     where xid = open and seq > after order by seq limit most + 1) v
                 where pg_visible_in_snapshot(open, w.hi) and (w.apart is null or open <> all (w.apart))
                union all
                (select seq, id, occurred_at, type, owner, subject, cause, data from postrider.event
                  where seq >= greatest(after + 1, w.r_first) and seq <= w.r_last
                    and not pg_visible_in_snapshot(xid, w.lo) and xid <> all (array(select pg_snapshot_xip(w.lo)))
                    and pg_visible_in_snapshot(xid, w.hi) and (w.apart is null or xid <> all (w.apart))
                  order by seq limit most + 1)) both_kinds
             order by seq limit most + 1) e;
    end if;
    return s;
end $$;

-- One pass over at most `most` events; call again at once while `more`. why: 'done', 'idle' (nothing new), 'busy' (another
-- relay is at it), 'rebase' (this cluster is not the one that the position was taken in, see postrider.start_rebase). open_writers:
-- transactions were open that may still bring events from before this pass. retry_in_ms: when a pair that was set aside, or a delayed event, is due.
-- careful: what cannot be turned into jobs is looked for and set aside; for a pass after one that failed.
-- elsewhere: no jobs are made; the caller makes what `matched` tells, in this transaction, but for the pairs of `refused`, which its
-- engine does not take: [{seq, subscription, error}].
-- starting: subscriptions that are new are to be handed over, see postrider.hand_over; not before a rebase is over.
create function postrider.relay(most int, elsewhere boolean default false, careful boolean default false, refused json default null)
returns postrider.relayed
language plpgsql security definer set search_path = pg_catalog, pg_temp
set jit = off set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off
set enable_mergejoin = off as $$
declare
    last postrider.cut;
    new postrider.cut;
    epoch postrider.log_epoch;
    s postrider.slice;
    answer postrider.relayed;
    retried int := 0;
    slice_most int := case when careful then least(most, 256) else most end;
    start bigint;
    beside postrider.relayed;
begin
    perform postrider.check_isolation();
    -- the own transaction is never among the open ones of its snapshot: rows that it wrote later would count as done
    if pg_current_xact_id_if_assigned() is not null then
        perform postrider.refuse('PR010', 'transaction', 'the relay must be alone in its transaction',
            'call postrider.relay in a transaction of its own');
    end if;
    if most is null or most < 1 then
        perform postrider.refuse('PR005', 'most', format('%s is out of range', coalesce(most::text, 'null')), 'use 1 or more events');
    end if;
    answer := row (null, 0, 0, false, false, 'busy', null, false, 0, null);
    if not pg_try_advisory_xact_lock(7305, 1) then
        return answer;
    end if;
    -- each statement from here on sees the last relay's row
    select * into last from postrider.cut order by no desc limit 1;
    select * into epoch from postrider.log_epoch order by no desc limit 1;
    select pg_current_snapshot() into new.hi;
    if epoch.system_identifier <> (select system_identifier from pg_control_system())
       or not last.more and pg_snapshot_xmax(new.hi) < pg_snapshot_xmax(last.hi)
    then
        return postrider.start_rebase(last, epoch);
    end if;
    answer.why := 'idle';
    answer.starting := epoch.done_at is not null and cardinality(epoch.late) = 0 and exists (select from postrider.subscription_start b where b.over_at is null);
    answer.open_writers := not last.more and pg_snapshot_xmin(new.hi) < pg_snapshot_xmax(new.hi);
    -- what was set aside comes first, and so does what is left from below the floor: it is older
    select (extract(epoch from p.retry_at - clock_timestamp()) * 1000)::bigint into answer.retry_in_ms
      from postrider.poison p where p.ended_at is null and p.retry_at is not null order by p.retry_at limit 1;
    if answer.retry_in_ms <= 0 and not elsewhere then
        retried := postrider.retry_poison();
        answer.retry_in_ms := 0;
    end if;
    answer.retry_in_ms := least(answer.retry_in_ms, postrider.next_due_in_ms());
    if not last.more and (epoch.done_at is null or cardinality(epoch.late) > 0) then
        s := postrider.rest_of_rebase(epoch, slice_most, new.hi);
        if s.seqs is not null then
            new.hi := last.hi;
            return postrider.append_cut(last, new, s, row (slice_most, elsewhere, careful, true, refused), answer);
        end if;
        -- it may be over just now: who waits for that is not to wait for the next hint
        select * into epoch from postrider.log_epoch order by no desc limit 1;
        answer.starting := epoch.done_at is not null and cardinality(epoch.late) = 0 and exists (select from postrider.subscription_start b where b.over_at is null);
    end if;
    -- what is due, and what is taken apart, takes turns with what is new
    if (select c.backlog is null from postrider.cut c where c.start is null order by c.no desc limit 1) then
        beside := postrider.relay_beside(last, row (slice_most, elsewhere, careful, false, refused), answer);
        if beside.why = 'done' then
            return beside;
        end if;
    end if;

    if last.more then
        new := last;
        new.joined := null;
        new.backlog := null;
        new.start := null;
        new.part_after := null;
        new.part_upto := null;
        s := postrider.next_slice(new, last.last_seq, slice_most, true);
    elsif new.hi::text <> last.hi::text then
        new.lo := last.hi;
        new.apart := postrider.huge_transactions(new, epoch.floor_seq, 5 * most);
        s := postrider.next_slice(new, epoch.floor_seq, slice_most, false);
    end if;
    -- nothing new: nothing is written, but a position too far behind is moved on, for the next look's sake
    if s.seqs is null and new.apart is null and not last.more and (new.lo is null
       or pg_snapshot_xmax(new.hi)::text::numeric - pg_snapshot_xmax(new.lo)::text::numeric <= 10000)
    then
        beside := postrider.relay_beside(last, row (slice_most, elsewhere, careful, false, refused), answer);
        if retried > 0 then
            answer.jobs := retried;
            perform postrider.wake('postrider_job');
        end if;
        return case when beside.why = 'done' then beside else answer end;
    end if;
    new.last_seq := case when last.more then last.last_seq else epoch.floor_seq end;
    if new.apart is not null and not last.more then
        start := postrider.open_backlog(last, new, epoch, s);
    end if;
    answer := postrider.append_cut(last, new, s, row (slice_most, elsewhere, careful, false, refused), answer);
    if start is not null then
        -- up to here those that keep an order walk first, all of it in the order of seq
        update postrider.subscription_start x
           set upto = (select row (c.epoch, c.lo, c.hi, c.more, c.last_seq)::postrider.log_position from postrider.cut c order by c.no desc limit 1)
         where x.id = start;
        answer.starting := true;
    end if;
    answer.more := answer.more or new.apart is not null or exists (select from postrider.backlog b where b.over_at is null);
    return answer;
end $$;

-- A row for what changes nothing about what was read: the beginning of an epoch, or jobs that were made of events that had been relayed before, for a
-- subscription that came later. `new` has what is to differ from the last row.
create function postrider.note_cut(last postrider.cut, new postrider.cut) returns bigint
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    new.no := last.no + 1;
    new.from_no := new.no;
    new.at := greatest(clock_timestamp(), last.at);
    new.n := 0;
    new.first_seq := null;
    new.digest := null;
    new.joined := null;
    new.apart := case when new.more then new.apart end;
    new.events_total := last.events_total;
    new.jobs_total := last.jobs_total + new.jobs;
    new.hash := postrider.cut_hash(coalesce(last.joined, last.hash), new);
    insert into postrider.cut select new.*;
    return new.no;
end $$;

-- How a pass is made; below: of events from below the floor, which may have jobs already.
create type postrider.pass as (most int, elsewhere boolean, careful boolean, below boolean, refused json);

-- Turns a slice into jobs and appends the row that says so. `new` has the window and the position that it starts from.
create function postrider.append_cut(last postrider.cut, new postrider.cut, s postrider.slice, how postrider.pass, answer postrider.relayed)
returns postrider.relayed
language plpgsql set search_path = pg_catalog, pg_temp
set jit = off set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off
set enable_mergejoin = off as $$
declare
    n int := coalesce(cardinality(s.seqs), 0);
    over boolean := n > how.most;
    made record;
begin
    if over then
        n := how.most;
        s := row (s.seqs[1:n], s.types[1:n], s.owners[1:n], s.digests[1:n]);
    end if;
    new.no := last.no + 1;
    new.from_no := new.no;
    new.epoch := (select max(l.no) from postrider.log_epoch l);
    -- not before the last row's, so that delayed jobs keep their order
    new.at := greatest(clock_timestamp(), last.at);
    new.jobs := 0;
    new.aside := 0;
    new.elsewhere := how.elsewhere;
    new.first_job := postrider.job_position();
    if n > 0 and how.elsewhere then
        answer.matched := postrider.tell_matched(new.at, s.seqs, s.types, s.owners);
        if how.refused is not null then
            select x.matched_left, x.aside into answer.matched, new.aside from postrider.without_refused(new.no, answer.matched, how.refused) x;
        end if;
        new.jobs := json_array_length(answer.matched -> 'jobs');
    elsif n > 0 and (how.careful or how.below) then
        select * into made from postrider.make_each(new.no, new.at, s, how.below);
        new.jobs := made.jobs;
        new.aside := made.aside;
        -- so much was too much: the slice ends earlier
        over := over or made.upto < n;
        n := made.upto;
        s := row (s.seqs[1:n], s.types[1:n], s.owners[1:n], s.digests[1:n]);
    elsif n > 0 then
        new.jobs := postrider.fan_out(new.at, s.seqs, s.types, s.owners);
    end if;
    new.last_job := postrider.job_position() | 3;
    if new.backlog is not null then
        -- the position stays
        new.part_upto := s.seqs[n];
        update postrider.backlog b
           set after = coalesce(new.part_upto, b.after), events = b.events + n, over_at = case when not over then clock_timestamp() end
         where b.id = new.backlog;
    elsif how.below then
        new.lo := null;
        new.more := false;
        update postrider.rebased r set cut = new.no where r.seq = any (s.seqs);
    elsif not over then
        new.lo := null;
        new.r_first := null;
        new.r_last := null;
        new.more := false;
    else
        new.more := true;
        new.r_first := last.r_first;
        new.r_last := last.r_last;
        if not last.more then
            select min(v.first), max(v.last) into new.r_first, new.r_last
              from postrider.xid_gaps(pg_snapshot_xmax(new.lo), pg_snapshot_xmax(new.hi), new.apart) g
             cross join lateral (
                -- not along the numbers: the first of them may be far
                select min(seq + 0) as first, max(seq + 0) as last from postrider.event
                 where xid > g.above and xid < g.below and seq > new.last_seq and pg_visible_in_snapshot(xid, new.hi)) v;
        end if;
    end if;
    new.n := n;
    new.first_seq := s.seqs[1];
    if new.backlog is null then
        new.last_seq := coalesce(s.seqs[n], new.last_seq);
    end if;
    new.events_total := last.events_total + n;
    new.jobs_total := last.jobs_total + new.jobs;
    new.digest := case when n > 0 then (select sha256(string_agg(d, null)) from unnest(s.digests) d) end;
    new.hash := postrider.cut_hash(coalesce(last.joined, last.hash), new);
    insert into postrider.cut select new.*;
    if new.jobs > 0 and not how.elsewhere then
        perform postrider.wake('postrider_job');
    end if;
    answer.no := new.no;
    answer.n := n;
    answer.jobs := new.jobs;
    answer.aside := new.aside;
    -- there may be more from below the floor: the next pass looks
    answer.more := over or how.below;
    answer.why := 'done';
    return answer;
end $$;

-- What is drawn from here on has a higher id, whatever its class.
create function postrider.job_position() returns bigint
language sql volatile set search_path = pg_catalog, pg_temp
return (pg_sequence_last_value('postrider.job_epoch'::regclass) << 46) | (coalesce(pg_sequence_last_value('postrider.job_number'::regclass), 0) << 2);
