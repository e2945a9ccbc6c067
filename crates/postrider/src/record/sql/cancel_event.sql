-- Cancels event $1 in the caller's transaction, for the reason $2.
-- Called by: record/mod.rs, in the caller's transaction, on any driver.
-- Locks: the row of event_delay; what waits of its jobs, until the transaction ends.
-- Index: event_pkey, event_delay_pkey, cut_pkey, job_pkey.
select postrider.cancel_event($1::text::uuid, $2::text)
