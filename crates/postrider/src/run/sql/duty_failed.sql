-- Notes that a duty of housekeeping failed.
-- Called by: run/housekeep.rs.
-- Locks: the row of the duty.
-- Index: duty_pkey.
select postrider.duty_failed($1::text, $2::text)::text
