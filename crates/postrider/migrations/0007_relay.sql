-- The relay: each committed event becomes one job for each matching subscription, read by the difference of two snapshots.
-- Locks: one relay at a time, by an advisory lock of the transaction; nothing of the producers.
-- By hand on a large table: nothing.

-- The cluster that the positions belong to; a restore into another one starts a new epoch with a floor.
create table postrider.log_epoch (
    no                int         not null primary key,
    system_identifier bigint      not null,
    floor_seq         bigint      not null,
    started_at        timestamptz not null default clock_timestamp(),
    note              text        not null
);

-- Append only. After a row: everything visible in `hi` is fanned out if not `more`; if `more`, everything visible in `lo`, and of
-- the window (lo, hi] the rows with seq <= last_seq.
create table postrider.cut (
    no           bigint      not null primary key,   -- last + 1: the second fence against two relays
    epoch        int         not null references postrider.log_epoch (no),
    hi           pg_snapshot not null,
    lo           pg_snapshot,
    r_first      bigint,                             -- the span of the window's new transactions in seq: an access path
    r_last       bigint,
    more         boolean     not null,
    at           timestamptz not null,
    n            int         not null,
    jobs         int         not null,
    events_total bigint      not null,
    jobs_total   bigint      not null,
    first_seq    bigint,
    last_seq     bigint,
    x            bigint,                             -- which seqs were taken: xor of their hashes
    hash         bytea       not null,               -- over the row before and this one
    constraint a_window_is_open_as_a_whole check (more = (lo is not null))
);

create function postrider.cut_hash(previous bytea, c postrider.cut) returns bytea
language sql immutable set search_path = pg_catalog, pg_temp
return sha256(convert_to(concat_ws('|', encode(previous, 'hex'), c.no, c.epoch, c.hi::text, c.lo::text, c.more::text, c.n, c.jobs,
    c.events_total, c.jobs_total, c.first_seq, c.last_seq, c.x), 'UTF8'));

do $$
declare
    c postrider.cut;
begin
    insert into postrider.log_epoch (no, system_identifier, floor_seq, note)
    select 1, system_identifier, 0, 'installed' from pg_control_system();
    c := row (1, 1, pg_current_snapshot(), null, null, null, false, clock_timestamp(), 0, 0, 0, 0, null, null, null, '\x');
    c.hash := postrider.cut_hash('\x', c);
    insert into postrider.cut select c.*;
end $$;

create type postrider.relayed as (
    no bigint, n int, jobs int, more boolean, open_writers boolean, why text, matched json, starting boolean
);

-- One pass over at most `most` events; call again at once while `more`. why: 'done', 'idle' (nothing new), 'busy' (another
-- relay is at it). open_writers: transactions were open that may still bring events from before this pass. `elsewhere`: no jobs are
-- made; the caller makes what `matched` tells, in this transaction. starting: subscriptions that are new are to be handed over, see
-- postrider.hand_over.
create function postrider.relay(most int, elsewhere boolean default false) returns postrider.relayed
language plpgsql security definer set search_path = pg_catalog, pg_temp
set jit = off set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off
set enable_mergejoin = off as $$
declare
    last postrider.cut;
    new postrider.cut;
    epoch postrider.log_epoch;
    lo pg_snapshot;
    hi pg_snapshot;
    after bigint;
    seqs bigint[];
    types text[];
    owners text[];
    answer postrider.relayed;
begin
    perform postrider.check_isolation();
    -- the own transaction is never among the open ones of its snapshot: rows that it wrote later would count as done
    if pg_current_xact_id_if_assigned() is not null then
        perform postrider.refuse('PR010', 'transaction', 'the relay must be alone in its transaction',
            'call postrider.relay in a transaction of its own');
    end if;
    answer := row (null, 0, 0, false, false, 'busy', null, false);
    if not pg_try_advisory_xact_lock(7305, 1) then
        return answer;
    end if;
    -- each statement from here on sees the last relay's row
    select * into last from postrider.cut order by no desc limit 1;
    select * into epoch from postrider.log_epoch order by no desc limit 1;
    if epoch.system_identifier <> (select system_identifier from pg_control_system()) then
        perform postrider.refuse('PR012', 'cut', 'the log belongs to another cluster', 'this is a restored copy: rebase it');
    end if;
    answer.why := 'idle';
    answer.starting := exists (select from postrider.subscription_start b where b.over_at is null);
    if last.more then
        lo := last.lo;
        hi := last.hi;
        after := last.last_seq;
    else
        lo := last.hi;
        after := epoch.floor_seq;
        select pg_current_snapshot() into hi;
        answer.open_writers := pg_snapshot_xmin(hi) < pg_snapshot_xmax(hi);
        if pg_snapshot_xmax(hi) < pg_snapshot_xmax(lo) then
            perform postrider.refuse('PR012', 'cut', 'the last cut is ahead of this cluster', 'this is a restored copy: rebase it');
        end if;
        if hi::text = lo::text then
            return answer;
        end if;
    end if;

    if not last.more then
        select array_agg(e.seq order by e.seq), array_agg(e.type order by e.seq), array_agg(e.owner order by e.seq)
          into seqs, types, owners from (
            select * from (
                select v.* from pg_snapshot_xip(lo) open cross join lateral (
                    select seq, type, owner from postrider.event
                     where xid = open and seq > after order by seq limit most + 1) v
                 where pg_visible_in_snapshot(open, hi)
                union all
                select seq, type, owner from postrider.event
                 where xid >= pg_snapshot_xmax(lo) and xid < pg_snapshot_xmax(hi) and seq > after
                   and pg_visible_in_snapshot(xid, hi)) both_kinds
             order by seq limit most + 1) e;
    else
        -- inside a window: `xid >= xmax(lo)` is spelt by visibility, so that the planner cannot take the index on (xid, seq) and
        -- read the whole window again for each slice
        select array_agg(e.seq order by e.seq), array_agg(e.type order by e.seq), array_agg(e.owner order by e.seq)
          into seqs, types, owners from (
            select * from (
                select v.* from pg_snapshot_xip(lo) open cross join lateral (
                    select seq, type, owner from postrider.event
                     where xid = open and seq > after order by seq limit most + 1) v
                 where pg_visible_in_snapshot(open, hi)
                union all
                (select seq, type, owner from postrider.event
                  where seq >= greatest(after + 1, last.r_first) and seq <= last.r_last
                    and not pg_visible_in_snapshot(xid, lo) and xid <> all (array(select pg_snapshot_xip(lo)))
                    and pg_visible_in_snapshot(xid, hi)
                  order by seq limit most + 1)) both_kinds
             order by seq limit most + 1) e;
    end if;

    answer.n := coalesce(cardinality(seqs), 0);
    answer.more := answer.n > most;
    if answer.more then
        answer.n := most;
        seqs := seqs[1:most];
        types := types[1:most];
        owners := owners[1:most];
    end if;
    -- nothing new: nothing is written, but a position too far behind is moved on, for the next look's sake
    if answer.n = 0 and not last.more
       and pg_snapshot_xmax(hi)::text::numeric - pg_snapshot_xmax(lo)::text::numeric <= 10000
    then
        return answer;
    end if;

    new.no := last.no + 1;
    new.epoch := epoch.no;
    new.hi := hi;
    new.more := answer.more;
    new.at := greatest(clock_timestamp(), last.at);
    new.n := answer.n;
    new.first_seq := seqs[1];
    new.last_seq := coalesce(seqs[answer.n], after);
    if answer.more then
        new.lo := lo;
        new.r_first := last.r_first;
        new.r_last := last.r_last;
        if not last.more then
            select min(seq), max(seq) into new.r_first, new.r_last from postrider.event
             where xid >= pg_snapshot_xmax(lo) and xid < pg_snapshot_xmax(hi) and seq > after
               and pg_visible_in_snapshot(xid, hi);
        end if;
    end if;
    if answer.n > 0 and elsewhere then
        answer.matched := postrider.tell_matched(new.at, seqs, types, owners);
        answer.jobs := json_array_length(answer.matched -> 'jobs');
    elsif answer.n > 0 then
        answer.jobs := postrider.fan_out(new.at, seqs, types, owners);
    end if;
    new.jobs := answer.jobs;
    new.events_total := last.events_total + answer.n;
    new.jobs_total := last.jobs_total + answer.jobs;
    select bit_xor(hashint8extended(s, 0)) into new.x from unnest(seqs) s;
    new.hash := postrider.cut_hash(last.hash, new);
    insert into postrider.cut select new.*;
    if answer.jobs > 0 and not elsewhere then
        perform postrider.wake('postrider_job');
    end if;
    answer.no := new.no;
    answer.why := 'done';
    return answer;
end $$;
