-- Retention of events: a partition goes when it is old enough, the relay is done with it, and so are the jobs that were made of it.
-- Locks: SHARE ROW EXCLUSIVE on one old partition of events, once, while it gets a trigger; ACCESS EXCLUSIVE on the events while an old
-- partition is dropped. No lock is waited for longer than 50 ms.
-- By hand on a large table: nothing.

-- Epochs of events that the relay is done with, and the last epoch of jobs at that moment: no later job is made of them.
create table postrider.event_done (
    epoch     bigint      not null primary key,
    job_epoch bigint      not null
);

-- Lets the oldest partition of events go that nobody needs any more: it is old enough, the relay is done with it, and so are the jobs that
-- were made of it.
create function postrider.retire_events() returns json
language plpgsql set search_path = pg_catalog, pg_temp set jit = off set lock_timeout = '50ms' as $$
declare
    current bigint := pg_sequence_last_value('postrider.event_epoch'::regclass);
    keep interval := (select r.keep from postrider.retention r where r.what = 'event');
    last postrider.cut;
    log postrider.log_epoch;
    done pg_snapshot;
    e bigint;
    child text;
    uncut boolean;
    pinned_by text;
begin
    select * into last from postrider.cut order by no desc limit 1;
    done := coalesce(last.lo, last.hi);
    select * into log from postrider.log_epoch l order by l.no desc limit 1;
    for e in
        select x.epoch - 1 from postrider.epoch x
         where x.unit = 'event' and x.epoch between 1 and current and to_regclass(format('postrider.event_e%s', x.epoch - 1)) is not null
           -- a transaction may have drawn its number long before it inserts
           and x.started_at < clock_timestamp() - interval '1 hour'
         order by x.epoch
    loop
        child := format('event_e%s', e);
        pinned_by := null;
        if not exists (select from postrider.event_done d where d.epoch = e) then
            begin
                if postrider.watch_writes(child, 0::smallint, e) then
                    return json_build_object('span', child, 'watched', true, 'again', true);
                end if;
            exception when lock_not_available then
                return json_build_object('span', child, 'held', true, 'again', false);
            end;
            perform postrider.forget_written(0::smallint, e);
            -- positions mean something only in the cluster that they were taken in
            if log.system_identifier is distinct from (select c.system_identifier from pg_control_system() c) then
                pinned_by := 'a log that was restored and not rebased';
            elsif (log.done_at is null or cardinality(log.late) > 0) and e <= log.floor_seq >> 46 then
                pinned_by := 'a rebase that is not over';
            elsif exists (select from postrider.backlog b where b.over_at is null and b.after >> 46 <= e) then
                pinned_by := 'events of a huge transaction that are not all jobs yet';
            else
                -- what is below the floor was taken by the rebase, whatever its transaction's number means here
                execute format('select exists (select from postrider.%I v
                    where v.xid >= pg_snapshot_xmin($1) and v.seq > $2 and not pg_visible_in_snapshot(v.xid, $1))', child)
                   into uncut using done, log.floor_seq;
                if uncut then
                    pinned_by := 'events that the relay has not come to';
                else
                    insert into postrider.event_done (epoch, job_epoch)
                    values (e, pg_sequence_last_value('postrider.job_epoch'::regclass));
                end if;
            end if;
        end if;
        continue when pinned_by is null
            and (select x.started_at from postrider.epoch x where x.unit = 'event' and x.epoch = e + 1) > clock_timestamp() - keep;
        if pinned_by is null then
            pinned_by := postrider.event_pinned_by(e);
        end if;
        if pinned_by is null then
            return postrider.drop_events(e, child);
        end if;
        perform postrider.pin(0::smallint, e, pinned_by, null, 1, interval '1 hour');
    end loop;
    return json_build_object('again', false);
end $$;

-- Who still needs the events of an epoch: what was set aside, a subscription that begins with them, or jobs: all that were there when the relay was
-- done with them, and what was kept of such.
create function postrider.event_pinned_by(epoch bigint) returns text
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    s record;
    needed boolean;
    subs text;
begin
    -- their jobs are still to be made, if somebody mends what keeps them from it
    select string_agg(distinct coalesce(b.name, x.subscription::text), ', ') into subs
      from (select p.subscription from postrider.poison p
             where p.ended_at is null and p.event_seq >= event_pinned_by.epoch << 46 and p.event_seq < (event_pinned_by.epoch + 1) << 46 limit 1000) x
      left join postrider.subscription b on b.id = x.subscription;
    if subs is not null then
        return 'events that were set aside for subscription ' || left(subs, 200);
    end if;
    if exists (select from postrider.event_delay d where d.ended_at is null
                  and d.seq >= event_pinned_by.epoch << 46 and d.seq < (event_pinned_by.epoch + 1) << 46)
    then
        return 'events that are to be delivered later';
    end if;
    select string_agg(x.name, ', ' order by x.name) into subs
      from postrider.subscription_start b join postrider.subscription x on x.id = any (postrider.walkers(b))
     where b.over_at is null and b.after < (event_pinned_by.epoch + 1) << 46;
    if subs is not null then
        return 'events that are to be walked for the new subscription ' || left(subs, 200);
    end if;
    for s in select p.* from postrider.job_spans() p order by p.kept, p.first loop
        if s.kept then
            execute format('select exists (select from postrider.%I j where j.event_seq >= $1 << 46 and j.event_seq < ($1 + 1) << 46)',
                'job' || s.suffix) into needed using epoch;
        else
            needed := s.first <= (select d.job_epoch from postrider.event_done d where d.epoch = event_pinned_by.epoch)
                  and postrider.has_rows('job' || s.suffix);
        end if;
        if needed then
            return 'jobs that were made of its events: they are in job' || s.suffix;
        end if;
    end loop;
    return null;
end $$;

create function postrider.drop_events(epoch bigint, child text) returns json
language plpgsql set search_path = pg_catalog, pg_temp set jit = off set lock_timeout = '50ms' as $$
begin
    for n in 1..5 loop
        begin
            lock table only postrider.event in access exclusive mode;
            if postrider.was_written(0::smallint, epoch) then
                delete from postrider.event_done d where d.epoch = drop_events.epoch;
                return json_build_object('span', child, 'written', true, 'again', true);
            end if;
            execute format('alter table postrider.event detach partition postrider.%I', child);
            execute format('drop table postrider.%I', child);
            delete from postrider.event_done d where d.epoch = drop_events.epoch;
            delete from postrider.poison p where p.event_seq >= drop_events.epoch << 46 and p.event_seq < (drop_events.epoch + 1) << 46;
            delete from postrider.event_delay d where d.seq >= drop_events.epoch << 46 and d.seq < (drop_events.epoch + 1) << 46;
            delete from postrider.rebased r where r.seq >= drop_events.epoch << 46 and r.seq < (drop_events.epoch + 1) << 46;
            delete from postrider.erased x where x.seq >= drop_events.epoch << 46 and x.seq < (drop_events.epoch + 1) << 46;
            delete from postrider.pinned p where p.class = 0 and p.first = drop_events.epoch;
            return json_build_object('span', child, 'again', true);
        exception when lock_not_available then
            perform pg_sleep(0.2);
        end;
    end loop;
    return json_build_object('span', child, 'held', true, 'again', false);
end $$;
