-- Delivers once more what was given up for the endpoint $1, of the next 2 000 jobs after $2.
-- Called by: replay/pg.rs, again from where it got to.
-- Locks: what postrider.retry takes.
-- Index: job_pkey, done_pkey.
select r.n::text, r.upto::text from postrider.redeliver_discarded($1::bigint, $2::bigint) r
