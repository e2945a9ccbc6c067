-- What is wrong once the relay was idle and everything ran: what did not end, and events without their job.
-- Called by: interleave/judge.rs, after a drain.
-- Locks: none.
-- Index: none, it reads everything.
with job as materialized (
    select class, id, event_seq, subscription from postrider.job
), event as materialized (
    select seq, subject from postrider.event
)
select format('job %s never ended', j.id)
  from job j where not exists (select from postrider.done d where d.class = j.class and d.id = j.id)
union all
select format('lease %s of %s is left over', l.id, l.worker) from postrider.lease l
union all
select format('event %s (%s) has no job for %s', e.seq, e.subject, s.name)
  from event e
 cross join postrider.subscription s
  left join job j on j.event_seq = e.seq and j.subscription = s.id
 -- these are there before the first event, take every type, and are never changed
 where s.declared_by = 'stage' and s.types = array['**'] and j.id is null
union all
select format('the last cut counts %s events and %s jobs, there are %s and %s', c.events_total, c.jobs_total, e.n, j.n)
  from (select * from postrider.cut order by no desc limit 1) c
 cross join (select count(*) as n from event) e
 cross join (select count(*) as n from job where subscription is not null) j
 where (c.events_total, c.jobs_total) is distinct from (e.n, j.n)
