-- Writes down why nobody can tell when schedule $1 comes next, if it still stands at $2.
-- Called by: schedule/task.rs.
-- Locks: the row of the schedule.
-- Index: schedule_pkey.
select postrider.give_up_schedule($1::text, $2::text::timestamptz, $3::text)::text
