-- What was set aside and has not ended, at most $1 pairs, the oldest first.
-- Called by: proof/pg.rs.
-- Locks: none.
-- Index: poison_due, event_pkey.
select v.id::text, p.subscription::text, s.name, p.error, ((extract(epoch from p.since) * 1000000)::bigint)::text, p.tries::text,
       ((extract(epoch from p.retry_at) * 1000000)::bigint)::text
  from postrider.poison p
  join postrider.event v on v.seq = p.event_seq
  left join postrider.subscription s on s.id = p.subscription
 where p.ended_at is null
 order by p.since, p.event_seq, p.subscription limit $1::bigint
