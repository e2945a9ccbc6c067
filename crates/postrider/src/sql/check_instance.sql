-- Whether a process of application $2 that was configured for instance $1 is to hold what leaves.
-- Called by: declare.rs.
-- Locks: the row of instance.
-- Index: none.
select postrider.check_instance($1::text, $2::text)::text
