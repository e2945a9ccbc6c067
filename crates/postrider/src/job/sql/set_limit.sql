-- Sets how many jobs of a limit key run at a time and start in a period.
-- Called by: job/lane.rs.
-- Locks: the row of the limit.
-- Index: key_limit_pkey, lane_pkey.
select postrider.set_limit($1::text, $2::text, $3::text::int, $4::text::int, $5::text::interval)::text
