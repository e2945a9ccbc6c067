-- The workers, newest first.
-- Called by: inspect/mod.rs.
-- Locks: none.
-- Index: worker_pkey, lease_of_worker.
select w.id::text, w.app, w.pid::text, array_to_string(w.queues, ', '),
       (select coalesce(sum(cardinality(l.open)), 0) from postrider.lease l where l.worker = w.id)::text,
       ((extract(epoch from w.started_at) * 1000000)::bigint)::text, ((extract(epoch from w.beat_at) * 1000000)::bigint)::text
  from postrider.worker w order by w.started_at desc limit 200
