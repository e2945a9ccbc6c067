-- Forgets schedule $1.
-- Called by: schedule/handle.rs.
-- Locks: the advisory lock of declarations; the row of the schedule.
-- Index: schedule_pkey.
select postrider.drop_schedule($1::text)::text
