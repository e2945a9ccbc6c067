-- Whether the scope function lets the endpoint $1 have the event $2; null, and why, if it does not say.
-- Called by: deliver/pg.rs, before a request if there is such a function.
-- Locks: what the function takes.
-- Index: endpoint_pkey, event_pkey.
select s.inside::text, s.error
  from postrider.endpoint e
  join postrider.event v on v.seq = postrider.event_seq($2::text::uuid)
 cross join lateral postrider.ask_scope(e.labels, v.owner, v.type, v.subject, v.data) s
 where e.id = $1::bigint
