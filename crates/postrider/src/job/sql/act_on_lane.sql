-- Releases, retries or skips what is in the way in the lane of an order key.
-- Called by: job/lane.rs.
-- Locks: the lane, not waiting for it; those of the act.
-- Index: lane_pkey.
select postrider.act_on_lane($1::text, $2::text, $3::text)
