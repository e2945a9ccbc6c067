-- Runs those of the schedules $1 that run when a process starts.
-- Called by: schedule/task.rs, once, when the process has begun to work.
-- Locks: the rows of those schedules, skipping held ones; then as an enqueued job does.
-- Index: schedule_pkey, job_pkey, done_pkey; writes job_pkey, ready_pkey.
select postrider.start_schedules($1::text[])::text
