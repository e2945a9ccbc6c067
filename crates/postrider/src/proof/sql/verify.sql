-- Whether the log, the cuts and the jobs say the same, for cuts from $1 on and before $2, in microseconds; null: no end.
-- Called by: proof/pg.rs.
-- Locks: none.
-- Index: cut_pkey, event_cut, event_pkey, job_pkey.
select first_no::text, last_no::text, cuts::text, committed::text, fanned_out::text, jobs::text, missing::text, twice::text, broken::text,
       altered::text, unchecked_events::text, unchecked_jobs::text, to_json(findings)::text
  from postrider.verify(to_timestamp($1::text::bigint / 1000000.0), to_timestamp($2::text::bigint / 1000000.0))
