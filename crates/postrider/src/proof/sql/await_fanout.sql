-- What event $1 became, as far as the relay has come.
-- Called by: proof/pg.rs.
-- Locks: none.
-- Index: event_pkey, cut_pkey, job_pkey.
select state, to_json(array(select j::text from unnest(jobs) j))::text, to_json(aside)::text from postrider.await_fanout($1::text::uuid)
