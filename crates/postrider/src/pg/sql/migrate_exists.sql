-- Whether anything was ever applied.
-- Called by: pg/migrate.rs.
-- Locks: none.
-- Index: none.
select to_regclass('postrider.migration') is not null
