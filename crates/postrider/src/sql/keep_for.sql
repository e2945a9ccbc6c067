-- Says for how many milliseconds a class of jobs, or the events, are kept.
-- Called by: declare.rs, once at construction.
-- Locks: the advisory lock of declarations, until the transaction ends.
-- Index: retention_pkey.
select postrider.keep_for($1::text, $2::bigint * interval '1 millisecond', $3::text, $4::bigint)::text
