-- Notes that a migration was applied.
-- Called by: pg/migrate.rs, in the transaction of the migration.
-- Locks: the new row.
-- Index: migration_pkey.
insert into postrider.migration (number, name, sha256) values ($1, $2, $3)
