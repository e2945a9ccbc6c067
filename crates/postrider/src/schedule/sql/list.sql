-- Schedules by name, after $1; the last two columns: whether nobody declares it any more, and the database's time.
-- Called by: schedule/handle.rs.
-- Locks: none.
-- Index: schedule_pkey; reads worker whole.
select s.name, s.cron, s.every_ms::text, s.zone, s.missed, s.missed_most::text, ((extract(epoch from s.next_at) * 1000000)::bigint)::text,
       ((extract(epoch from s.counted_from) * 1000000)::bigint)::text, ((extract(epoch from s.due_at) * 1000000)::bigint)::text,
       s.kind, s.owner, s.overlap, s.run_at_start::text, (s.paused_at is not null)::text, s.problem,
       ((extract(epoch from s.ran_at) * 1000000)::bigint)::text, s.last_jobs[cardinality(s.last_jobs)]::text, s.runs::text,
       s.missed_runs::text, s.overlapped_runs::text, s.declared_by, s.standing::text,
       (not s.standing and not exists (select from postrider.worker w where s.name = any (w.schedules)))::text,
       ((extract(epoch from clock_timestamp()) * 1000000)::bigint)::text
  from postrider.schedule s
 where s.name > $1::text
 order by s.name limit 200
