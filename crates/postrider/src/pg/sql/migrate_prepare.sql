-- The ground of the migrations: our schema and the table of what was applied. Runs in each migration's transaction.
-- Called by: pg/migrate.rs.
-- Locks: none but the migrator's; nothing waits longer than lock_timeout.
-- Index: none.
set local lock_timeout = '2s';
set local client_min_messages = warning;
create schema if not exists postrider;
create table if not exists postrider.migration (
    number     int         not null primary key,
    name       text        not null,
    sha256     text        not null,
    applied_at timestamptz not null default clock_timestamp()
);
