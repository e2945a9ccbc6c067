-- The last $1 events, newest first.
-- Called by: inspect/mod.rs.
-- Locks: none.
-- Index: event_pkey, backwards.
select id::text, type::text, subject::text, owner::text, ((extract(epoch from recorded_at) * 1000000)::bigint)::text,
       octet_length(data::text)::text
  from postrider.event order by seq desc limit $1::bigint
