//! Jobs claimed and ended on the server, without a worker's process: what measures the database alone.

/// A procedure that claims and ends up to `most` jobs of a queue, a hundred at a time and as many that come after one of them, from
/// low-water positions as a worker learns them; answers with how many there were. It commits after each call, as a worker does.
pub const DRAIN: &str = "create procedure public.drain(q text, most int, inout n int) language plpgsql as $$
    declare
        me uuid := '0b0b0b0b-0000-4000-8000-000000000001';
        leases bigint[]; ids bigint[]; low bigint := 0; low_turned bigint := 0; last bigint; turned bigint; heads int; moved boolean; rounds int;
    begin
        loop
            select array_agg(x.lease), array_agg(x.id), min(x.pos) filter (where x.pos >= low and (x.order_key is null or x.pos = x.id) and x.head),
                   min(x.pos) filter (where x.order_key is not null and x.pos <> x.id), count(*) filter (where x.head), bool_or(x.more), count(*)
              into leases, ids, last, turned, heads, moved, rounds
              from (select c.*, c.order_key is null or c.id = min(c.id) over (partition by c.order_key) as head
                      from postrider.claim(me, 1, q, '{t.a}', 100, '{2}', '{0}', array[low], 99, array[low_turned]) c) x;
            commit;
            exit when rounds = 0;
            if leases[1] is not null then
                low := greatest(low, coalesce(last, case when heads < 100 and not moved then turned end, 0));
                low_turned := greatest(low_turned, turned);
                perform postrider.finish(me, leases, ids, array_fill(1::smallint, array[rounds]), array_fill(0::bigint, array[rounds]),
                                         array_fill(null::text, array[rounds]));
                commit;
                n := n + rounds;
            end if;
            exit when n >= most;
        end loop;
    end $$";
