-- Where each job is, by its name: place, attempt, losses if there are any.
-- Called by: interleave/judge.rs, after each order.
-- Locks: none.
-- Index: none, it reads everything.
with place as (
    select id, 'ready' as place, attempt, losses from postrider.ready
    union all select id, 'later', attempt, losses from postrider.later
    union all select id, 'parked(' || case when key like 'unique:%' then 'unique' else key end || ')', attempt, losses from postrider.parked
    union all select o.id, 'leased', l.attempts[array_position(l.ids, o.id)], l.losses[array_position(l.ids, o.id)]
                from postrider.lease l cross join unnest(l.open) o (id)
    union all select id, (array['completed', 'refused', 'exhausted', 'lost', 'cancelled'])[ended_as], attempt, 0 from postrider.done
), named as (
    select coalesce(j.args ->> 'n', e.subject || '@' || coalesce(s.name, 'nobody')) as name, p.*
      from place p
      join postrider.job j on j.class = (p.id & 3)::smallint and j.id = p.id
      left join postrider.event e on e.seq = j.event_seq
      left join postrider.subscription s on s.id = j.subscription
)
select coalesce(string_agg(name || '=' || place || '/' || attempt || case when losses > 0 then '+' || losses else '' end,
                           ' ' order by name collate "C", place), '') from named
