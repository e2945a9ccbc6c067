-- Does one duty of housekeeping: 'usual', 'retire' or 'failures'.
-- Called by: run/housekeep.rs, every ten minutes in each process.
-- Locks: SHARE UPDATE EXCLUSIVE on a partitioned table while a partition is attached, waited for 500 ms at most; for 'retire' see postrider.retire.
-- Index: idempotency_expired, uniq_expired.
select postrider.housekeep($1::text)::text
