-- Delivers the delivery $1 once more; as another one under a new id if $2 is 1.
-- Called by: replay/pg.rs.
-- Locks: what postrider.retry takes.
-- Index: job_pkey, done_pkey.
select r.effect, r.delivery::text from postrider.redeliver($1::bigint, $2::bigint = 1) r
