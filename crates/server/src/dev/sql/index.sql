-- Keeps the row of the search index of a subject: that of its newest event, in whatever order they are handled.
-- Called by: dev/handlers.rs, once an attempt of demo.index.
-- Locks: the row of the subject.
-- Index: search_pkey.
insert into demo.search as s (subject, event, words)
values ($1::text, $2::uuid, to_tsvector('simple', concat_ws(' ', $1::text, $3::text,
        left($4::json #>> '{repository,description}', 1000))))
on conflict (subject) do update
   set event = excluded.event, words = excluded.words
 where s.event < excluded.event
