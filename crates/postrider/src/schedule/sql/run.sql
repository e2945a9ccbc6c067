-- Runs schedule $1 now; answers with the job.
-- Called by: schedule/handle.rs.
-- Locks: the row of the schedule; then as an enqueued job does.
-- Index: schedule_pkey, job_pkey, done_pkey; writes job_pkey, ready_pkey.
select postrider.run_schedule($1::text)::text
