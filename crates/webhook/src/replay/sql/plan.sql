-- Plans a replay for the endpoint $1 of events from $2 to $3 (in microseconds), of types $4 if there are any, that fit $5, $6 a second.
-- Called by: replay/pg.rs.
-- Locks: none.
-- Index: event_pkey, delivered_event.
select r.id::text, r.endpoint::text, r.state, r.planned::text, r.made::text, r.per_second::text,
       ((extract(epoch from r.created_at) * 1000000)::bigint)::text, ((extract(epoch from r.ended_at) * 1000000)::bigint)::text
  from postrider.plan_replay($1::bigint, timestamptz 'epoch' + $2::bigint * interval '1 microsecond',
                             timestamptz 'epoch' + $3::bigint * interval '1 microsecond', nullif($4::text[], '{}'), $5::text,
                             least($6::bigint, 2147483647)::int) r
