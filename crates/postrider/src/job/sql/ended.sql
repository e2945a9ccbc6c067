-- Which of these jobs have ended.
-- Called by: run/wait.rs, for everybody who waits in this process.
-- Locks: none.
-- Index: done_pkey.
select d.id::text from unnest($1::bigint[]) w (id) join postrider.done d on d.class = (w.id & 3)::smallint and d.id = w.id
