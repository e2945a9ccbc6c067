-- How many jobs are where, by kind, queue and state; counted at most every ten seconds.
-- Called by: inspect/mod.rs.
-- Locks: the rows of tally, by whoever counts; nobody waits.
-- Index: ready_pkey, later_pkey, parked_pkey, done_pkey, job_pkey.
select kind::text, queue, state, n::text, more::text, ((extract(epoch from at) * 1000000)::bigint)::text from postrider.overview()
