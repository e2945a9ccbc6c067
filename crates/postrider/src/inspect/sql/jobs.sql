-- The last $1 jobs with their states, newest first.
-- Called by: inspect/mod.rs.
-- Locks: none.
-- Index: job_pkey, done_pkey, attempt_pkey, ready_pkey, ready_moved, later_pkey, later_moved, parked_job.
select j.id::text, j.kind::text, j.queue,
       case when d.id is not null then (array['-', 'completed', 'discarded', 'cancelled'])[d.state]
            when l.attempt is not null then 'running'
            when t.why = 1 then 'retryable'
            when coalesce(t.id, s.id) is not null then 'scheduled'
            when p.id is not null then 'parked' else 'pending' end,
       coalesce(d.attempt, l.attempt, t.attempt, s.attempt, p.attempt, r.attempt, m.attempt, 0)::text, j.max_attempts::text,
       ((extract(epoch from j.created_at) * 1000000)::bigint)::text,
       ((extract(epoch from d.finished_at) * 1000000)::bigint)::text,
       coalesce(d.reason, case when d.id is null then (
            select a.error from postrider.attempt a where a.class = j.class and a.id = j.id order by a.lease desc limit 1) end)
  from (select * from (
            (select * from postrider.job where class = 1 order by id desc limit $1::bigint) union all
            (select * from postrider.job where class = 2 order by id desc limit $1::bigint) union all
            (select * from postrider.job where class = 3 order by id desc limit $1::bigint)) each_class
         order by id desc limit $1::bigint) j
  left join postrider.done d on d.class = j.class and d.id = j.id
  left join lateral (
        select x.attempts[array_position(x.ids, j.id)] as attempt from postrider.lease x where j.id = any (x.open) limit 1) l on true
  left join postrider.later s on s.run_at = j.run_at and s.id = j.id
  left join postrider.later t on t.id = j.id and t.why <> 0
  left join postrider.parked p on p.id = j.id
  left join postrider.ready r on r.queue = j.queue and r.priority = j.priority and r.share = 0 and r.pos = j.id
  left join postrider.ready m on m.id = j.id and m.pos <> m.id
 order by j.id desc
