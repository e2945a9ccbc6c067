-- The queues that a kind waits in or that are paused.
-- Called by: inspect/mod.rs.
-- Locks: none.
-- Index: none; both tables are small.
select n.name, ((extract(epoch from q.paused_at) * 1000000)::bigint)::text
  from (select k.queue as name from postrider.kind k union select q.name from postrider.queue q) n
  left join postrider.queue q on q.name = n.name
 order by n.name
