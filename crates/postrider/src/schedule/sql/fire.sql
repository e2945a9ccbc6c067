-- Takes what is due of schedule $1, if it still comes next at $2: it comes next at $3, and jobs are enqueued for $4; $5 has passed, $6 were missed.
-- Called by: schedule/task.rs, for each one that is due.
-- Locks: the row of the schedule, skipping a held one; then as an enqueued job does.
-- Index: schedule_pkey, job_pkey, done_pkey; writes job_pkey, ready_pkey.
select postrider.fire_schedule($1::text, $2::text::timestamptz, $3::text::timestamptz, $4::text[]::timestamptz[], $5::text::timestamptz, $6::bigint),
       postrider.schedule_due_in_ms($7::text[])::text
