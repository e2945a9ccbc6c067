-- The last $1 attempts, newest first, of the endpoint $2 or of all if it is 0.
-- Called by: endpoint/pg.rs, for a page.
-- Locks: none.
-- Index: delivery_attempt_recent or delivery_attempt_of_endpoint, backwards.
select id::text, endpoint::text, event::text, attempt::text, ((extract(epoch from started_at) * 1000000)::bigint)::text,
       ((extract(epoch from ended_at) * 1000000)::bigint)::text, outcome, reason, status::text, failure, excerpt, peer,
       total_us::text, trigger, sent_as::text,
       (select h ->> 1 from json_array_elements(case when json_typeof(headers) = 'array' then headers end) h where h ->> 0 = 'date' limit 1)
  from (
    select * from (select * from postrider.delivery_attempt where $2::bigint = 0 order by started_at desc limit $1::bigint) of_all
    union all
    select * from (select * from postrider.delivery_attempt where endpoint = $2::bigint order by started_at desc limit $1::bigint) of_one) a
 order by started_at desc limit $1::bigint
