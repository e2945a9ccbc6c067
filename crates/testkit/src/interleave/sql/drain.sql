-- Lets everything run to its end, as if each worker had died and one were left: nothing may be stuck.
-- Called by: interleave/judge.rs, once the relay is idle; a function, whose plans are made once for a connection.
-- Locks: those of the functions that it calls.
-- Index: none of its own.
create function pg_temp.drain() returns void language plpgsql as $$
declare
    me uuid := '00000000-0000-0000-0000-ffffffffffff';
    w record;
    q text;
    all_kinds text[] := array(select k.name::text from postrider.kind k);
    all_queues text[] := array(select distinct j.queue from postrider.job j);
    leases bigint[];
    ids bigint[];
begin
    for w in select id, beat from postrider.worker loop
        perform postrider.rescue(w.id, w.beat);
    end loop;
    for w in select distinct worker as id from postrider.lease loop
        perform postrider.rescue(w.id, -1);
    end loop;
    -- what waits for a time need not wait for it here
    update postrider.later set run_at = clock_timestamp() where run_at > clock_timestamp();
    update postrider.queue set paused_at = null where paused_at is not null;
    update postrider.key_limit set held_until = null where held_until is not null;
    update postrider.lane set due_at = clock_timestamp() where due_at is not null;
    for round in 1..2000 loop
        perform postrider.settle_left_over();
        perform postrider.act_on_lane(l.queue, substr(l.key, 7), 'release') from postrider.lane l where l.stopped_at is not null;
        perform postrider.settle_lanes_called();
        perform postrider.promote(10000);
        perform postrider.unpark(all_queues, all_kinds);
        foreach q in array all_queues loop
            select array_agg(c.lease), array_agg(c.id) into leases, ids
              from postrider.claim(me, 1, q, all_kinds, 2000, '{1,2,3,4}', '{0,0,0,0}', '{0,0,0,0}') c where c.lease is not null;
            perform postrider.finish(me, leases, ids, array(select 1::smallint from unnest(ids)), array(select 0::bigint from unnest(ids)),
                                     array(select null::text from unnest(ids)));
        end loop;
        exit when not exists (select from postrider.ready) and not exists (select from postrider.later)
              and not exists (select from postrider.parked);
    end loop;
end $$
