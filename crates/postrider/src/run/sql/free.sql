-- How many connections the server, this role and this database allow, and how many others are open.
-- Called by: run/admit.rs, when a bus is built.
-- Locks: none.
-- Index: none.
select current_setting('max_connections'),
       (current_setting('superuser_reserved_connections')::int
            + coalesce(current_setting('reserved_connections', true), '0')::int)::text,
       count(c.pid)::text,
       max(case when r.rolsuper then -1 else r.rolconnlimit end)::text,
       (count(c.pid) filter (where c.usesysid = r.oid))::text,
       max(case when r.rolsuper then -1 else d.datconnlimit end)::text,
       (count(c.pid) filter (where c.datid = d.oid))::text
  from pg_catalog.pg_roles r
 cross join pg_catalog.pg_database d
  -- what kind another role's session is, not everybody may see
  left join pg_catalog.pg_stat_activity c
         on c.datid is not null and coalesce(c.backend_type, 'client backend') = 'client backend' and c.pid <> pg_backend_pid()
 where r.rolname = current_user and d.datname = current_database()
