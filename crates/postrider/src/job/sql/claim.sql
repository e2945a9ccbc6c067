-- Leases up to $5 jobs of queue $3 and kinds $4 to worker $1, from each probe's low-water position on, and $9 that come after them in line.
-- Called by: job/task.rs, once for each batch of free slots.
-- Locks: the ready rows that it takes, skipping held ones; the new lease rows.
-- Index: ready_pkey, job_pkey, event_pkey.
select lease, id, attempt, kind, priority, pos, max_attempts, owner,
       (date_part('epoch', created_at) * 1000000)::bigint, args::text, subscription,
       event_id, event_type, event_owner, event_subject, event_cause,
       (date_part('epoch', occurred_at) * 1000000)::bigint, (date_part('epoch', recorded_at) * 1000000)::bigint, data::text,
       (date_part('epoch', claimed_at) * 1000000)::bigint, (date_part('epoch', due_at) * 1000000)::bigint, retry::text, share, order_key,
       limit_key, more, event_version, event_traceparent
  from postrider.claim($1::uuid, $2::bigint, $3::text, $4::text[], $5::int, $6::smallint[], $7::smallint[], $8::bigint[], $9::int,
       $10::bigint[])
