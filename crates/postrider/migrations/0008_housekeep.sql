-- What must be done now and then, by whichever process comes first; it is not a job of the queue that it keeps.
-- Locks: SHARE UPDATE EXCLUSIVE on a partitioned table while a partition is attached; nothing of producers or workers. For the duty
-- 'retire' see postrider.retire.
-- By hand on a large table: nothing.

-- One row for each duty: when it was last done, what came of it, and what went wrong since.
create table postrider.duty (
    name          text        not null primary key,
    done_at       timestamptz,
    took_ms       bigint,
    told          json,
    failing_since timestamptz,
    error         text
);

-- Does one duty, in a transaction of its own, and tells what came of it. 'usual': keeps the next partitions there and forgets what is
-- over; 'retire': one step of retention; 'failures': groups what failed. The last two are to be called again while they tell `again`. One at a time in the
-- database; whoever comes second is told `busy` and waits for nothing.
create function postrider.housekeep(duty text default 'usual') returns json
language plpgsql security definer set search_path = pg_catalog, pg_temp set lock_timeout = '500ms' as $$
declare
    started timestamptz := clock_timestamp();
    told json;
begin
    if not pg_try_advisory_xact_lock(7305, 5) then
        return json_build_object('busy', true, 'advanced', '[]'::json, 'keys_forgotten', 0);
    end if;
    if duty = 'usual' then
        told := postrider.usual_duties();
    elsif duty = 'retire' then
        told := postrider.retire();
    elsif duty = 'failures' then
        select json_build_object('grouped', g, 'again', g >= 10000) into told from postrider.group_failures(10000) g;
    else
        perform postrider.refuse('PR005', 'duty', format('%L is not a duty', left(duty, 80)), 'use usual, retire or failures');
    end if;
    insert into postrider.duty as d (name, done_at, took_ms, told)
    values (housekeep.duty, clock_timestamp(), (extract(epoch from clock_timestamp() - started) * 1000)::bigint, told)
    on conflict (name) do update set done_at = excluded.done_at, took_ms = excluded.took_ms, told = excluded.told,
        failing_since = null, error = null;
    return told;
end $$;

-- Notes that a duty failed: it could not say so itself, since what it wrote is gone.
create function postrider.duty_failed(duty text, error text) returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp set lock_timeout = '500ms' as $$
begin
    insert into postrider.duty as d (name, failing_since, error)
    values (duty_failed.duty, clock_timestamp(), left(duty_failed.error, 1000))
    on conflict (name) do update set failing_since = coalesce(d.failing_since, clock_timestamp()), error = excluded.error;
end $$;

create function postrider.usual_duties() returns json
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    advanced text[] := '{}';
    forgotten int;
begin
    if postrider.advance_epoch('event') then
        advanced := advanced || 'event'::text;
    end if;
    if postrider.advance_epoch('job') then
        advanced := advanced || 'job'::text;
    end if;
    with old as (
        delete from postrider.idempotency i where i.ctid = any (array(
            select o.ctid from postrider.idempotency o where o.until < clock_timestamp() order by o.until limit 10000
               for update skip locked))
        returning 1
    )
    select count(*) into forgotten from old;
    delete from postrider.uniq u where u.ctid = any (array(
        select o.ctid from postrider.uniq o where o.until < clock_timestamp() order by o.until limit 10000 for update skip locked));
    perform postrider.forget_leftovers();
    perform postrider.forget_mismatches();
    perform postrider.join_cuts();
    return json_build_object('advanced', advanced, 'keys_forgotten', forgotten);
end $$;
