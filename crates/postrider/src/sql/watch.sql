-- Declares a watch: changes of a table become events.
-- Called by: declare/watch.rs, once at construction for each watch.
-- Locks: if it does not stand yet, the advisory lock of declarations, and its table against writers; until the transaction ends.
-- Index: watch_pkey, event_type_pkey.
select postrider.watch(to_regclass(o ->> 'relation'), name => o ->> 'name',
           columns => case json_typeof(o -> 'columns') when 'array' then array(select json_array_elements_text(o -> 'columns')) end,
           operations => array(select json_array_elements_text(o -> 'operations')), types => o -> 'types',
           condition => o ->> 'condition', subject => o ->> 'subject', data => o ->> 'data', owner => o ->> 'owner',
           app => o ->> 'app', generation => (o ->> 'generation')::bigint)::text
  from (select $1::text::json) t (o)
