-- What must be done now and then, by whichever process comes first; it is not a job of the queue that it keeps.
-- Locks: SHARE UPDATE EXCLUSIVE on a partitioned table while a partition is attached; nothing of producers or workers.
-- By hand on a large table: nothing.

-- Keeps the next partitions there and the idempotency keys few. Answers with what it did.
create function postrider.housekeep() returns json
language plpgsql security definer set search_path = pg_catalog, pg_temp set lock_timeout = '500ms' as $$
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
    return json_build_object('advanced', advanced, 'keys_forgotten', forgotten);
end $$;
