-- Counts an event under its type; a second call for the same event counts nothing.
-- Called by: dev/handlers.rs, once an attempt of demo.count.
-- Locks: the row of the event, then the row of the type.
-- Index: counted_pkey, event_count_pkey.
with fresh as (
    insert into demo.counted (event) values ($1::uuid)
    on conflict (event) do nothing
    returning event
)
insert into demo.event_count as c (type, events)
select $2::text, 1 from fresh
on conflict (type) do update
   set events = c.events + 1
