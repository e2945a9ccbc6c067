-- Keeps the next partitions there and forgets what is over.
-- Called by: run/housekeep.rs, every ten minutes in each process.
-- Locks: SHARE UPDATE EXCLUSIVE on a partitioned table while a partition is attached, waited for 500 ms at most.
-- Index: idempotency_expired.
select postrider.housekeep()::text
