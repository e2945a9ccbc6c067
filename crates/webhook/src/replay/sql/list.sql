-- The last replays of the endpoint $1, the newest first.
-- Called by: replay/pg.rs.
-- Locks: none.
-- Index: none: there are few replays.
select r.id::text, r.endpoint::text, r.state, r.planned::text, r.made::text, r.per_second::text,
       ((extract(epoch from r.created_at) * 1000000)::bigint)::text, ((extract(epoch from r.ended_at) * 1000000)::bigint)::text
  from postrider.replays($1::bigint) r
