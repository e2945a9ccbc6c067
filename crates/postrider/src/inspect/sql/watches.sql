-- What is watched, by name.
-- Called by: inspect/mod.rs.
-- Locks: none.
-- Index: watch_pkey.
select name, relation, array_to_json(key_columns)::text, array_to_json(columns)::text, array_to_json(operations)::text, types::text,
       condition, subject, data, owner, declared_by, generation::text, ((extract(epoch from seen_at) * 1000000)::bigint)::text
  from postrider.watches()
