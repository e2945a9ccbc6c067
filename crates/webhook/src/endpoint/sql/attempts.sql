-- The last $1 attempts, newest first.
-- Called by: endpoint/pg.rs, for a page.
-- Locks: none.
-- Index: delivery_attempt_recent, backwards.
select id::text, endpoint::text, event::text, attempt::text, ((extract(epoch from started_at) * 1000000)::bigint)::text,
       ((extract(epoch from ended_at) * 1000000)::bigint)::text, outcome, reason, status::text, failure, excerpt, peer,
       total_us::text
  from postrider.delivery_attempt order by started_at desc limit $1::bigint
