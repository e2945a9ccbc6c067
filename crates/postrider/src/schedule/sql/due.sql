-- Schedules that are due of those that this process fires: the ones named in $1, and the standing ones; and the database's time.
-- Called by: schedule/task.rs, when the beat was told that one is due.
-- Locks: none.
-- Index: schedule_due.
select s.name, s.cron, s.every_ms::text, s.zone, s.missed, s.missed_most::text, ((extract(epoch from s.next_at) * 1000000)::bigint)::text,
       ((extract(epoch from s.counted_from) * 1000000)::bigint)::text, ((extract(epoch from s.due_at) * 1000000)::bigint)::text,
       ((extract(epoch from clock_timestamp()) * 1000000)::bigint)::text
  from postrider.schedule s
 where s.paused_at is null and s.problem is null and (s.standing or s.name = any ($1::text[]))
   and (s.next_at is null or s.next_at <= clock_timestamp())
 order by s.next_at nulls first limit 200
