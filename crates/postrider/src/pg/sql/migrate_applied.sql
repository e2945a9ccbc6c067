-- What was applied.
-- Called by: pg/migrate.rs.
-- Locks: none.
-- Index: migration_pkey.
select number, name, sha256 from postrider.migration order by number
