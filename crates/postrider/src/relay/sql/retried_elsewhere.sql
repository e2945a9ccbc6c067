-- Notes what came of one more try of each pair of $1.
-- Called by: relay/elsewhere.rs, last in its transaction.
-- Locks: these rows of poison.
-- Index: poison_pkey.
select postrider.retried_elsewhere($1::text::json)::text
