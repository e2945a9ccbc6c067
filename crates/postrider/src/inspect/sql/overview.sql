-- The whole bus at a glance; counts stop at 10 000, so that no backlog makes the look slow.
-- Called by: inspect/mod.rs.
-- Locks: none.
-- Index: cut_pkey, ready_pkey, later_pkey, later_moved, parked_pkey, worker_pkey.
select c.events_total::text, c.jobs_total::text,
       (select count(*) from (select from postrider.ready limit 10000) x)::text,
       (select count(*) from (select from postrider.later limit 10000) x)::text,
       (select count(*) from (select from postrider.later where why = 1 limit 10000) x)::text,
       (select count(*) from (select from postrider.parked limit 10000) x)::text,
       (select coalesce(sum(cardinality(open)), 0) from postrider.lease)::text,
       (select count(*) from postrider.worker)::text,
       (select (extract(epoch from clock_timestamp() - min(x.due)) * 1000000)::bigint from (
            select coalesce(j.run_at, j.created_at) as due
              from (select distinct queue from (select queue from postrider.ready limit 10000) q) q
             cross join lateral (
                select r.id from postrider.ready r where r.queue = q.queue order by r.queue, r.priority, r.share, r.pos limit 1) r
              join postrider.job j on j.class = (r.id & 3)::smallint and j.id = r.id) x)::text
  from (select * from postrider.cut order by no desc limit 1) c
