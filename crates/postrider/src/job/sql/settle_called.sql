-- Looks at the lanes that were called; answers whether some of them are still somebody's.
-- Called by: job/task.rs, before a claim that was woken for lanes; every claim where nothing is heard.
-- Locks: lanes, waiting 20 ms at most; rows of lane_call, later and parked, skipping what others hold.
-- Index: lane_pkey, lane_newest, lane_due, parked_pkey.
select postrider.settle_lanes_called()::text
