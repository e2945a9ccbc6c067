-- Lanes of queue $1, up to $3 after key $2, or the one of key $4; those alone that are stopped if $5 says so.
-- Called by: job/lane.rs.
-- Locks: none.
-- Index: lane_pkey, lane_stopped, parked_pkey, job_pkey, key_limit_pkey.
select * from postrider.lanes($1::text, $2::text, $3::bigint::int, $4::text, $5::text::boolean)
