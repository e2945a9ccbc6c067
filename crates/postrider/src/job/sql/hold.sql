-- Holds a limit key, or lets it go on.
-- Called by: job/lane.rs.
-- Locks: the row of the limit.
-- Index: key_limit_pkey, lane_pkey.
select postrider.hold($1::text, $2::text, $3::text::timestamptz, $4::text)::text
