-- Says that a repository has had one more event, of the given type.
-- Called by: dev/feeder.rs, once an event, in the transaction that records it.
-- Locks: the row of the repository.
-- Index: repository_pkey.
insert into demo.repository as r (name, events, last_type)
values ($1::text, 1, $2::text)
on conflict (name) do update
   set events = r.events + 1, last_type = excluded.last_type, updated_at = clock_timestamp()
