-- Makes what is missing of the demonstration's own tables.
-- Called by: dev/business.rs, once at the start.
-- Locks: those of what it makes.
-- Index: none.
do $$
begin
    create schema if not exists demo;
    create table if not exists demo.repository (
        name       text        not null primary key,
        events     bigint      not null,
        last_type  text        not null,
        updated_at timestamptz not null default clock_timestamp()
    );
    create table if not exists demo.event_count (
        type   text   not null primary key,
        events bigint not null
    );
    create table if not exists demo.counted (
        event      uuid        not null primary key,
        counted_at timestamptz not null default clock_timestamp()
    );
    create index if not exists counted_old on demo.counted (counted_at);
    create table if not exists demo.search (
        subject text     not null primary key,
        event   uuid     not null,
        words   tsvector not null
    );
    create index if not exists search_words on demo.search using gin (words);
end $$
