-- Takes job $3 out of lease $2 of worker $1 into a lease of its own, by call $4.
-- Called by: handle/attempt.rs, before an attempt ends in a transaction of the application.
-- Locks: the lease row.
-- Index: lease_pkey.
select postrider.part($1::text::uuid, $2::bigint, $3::bigint, $4::bigint)::text
