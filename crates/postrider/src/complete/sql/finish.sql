-- Ends attempts of worker $1; answers with those that counted.
-- Called by: complete/task.rs, one call at a time in a process.
-- Locks: the lease rows, in the order of their ids.
-- Index: lease_pkey; writes done_pkey, attempt_pkey, later_pkey, ready_pkey.
select lease, id
  from postrider.finish($1::uuid, $2::bigint[], $3::bigint[], $4::smallint[], $5::bigint[], $6::text[], $7::text[])
