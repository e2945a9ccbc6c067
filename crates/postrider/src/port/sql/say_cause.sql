-- Says for this transaction that what it records has cause $1 and trace context $2.
-- Called by: port/cause.rs, at the begin of a transaction in which an attempt may end.
-- Locks: none.
-- Index: none.
select set_config('postrider.cause', $1::text, true), set_config('postrider.traceparent', $2::text, true)
