-- Pauses schedule $1 or lets it go on.
-- Called by: schedule/handle.rs.
-- Locks: the row of the schedule.
-- Index: schedule_pkey.
select postrider.pause_schedule($1::text, $2::text::boolean)::text
