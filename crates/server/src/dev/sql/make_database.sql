-- Makes the database of the demonstration.
-- Called by: dev/business.rs, once, on a Postgres of our own.
-- Locks: the template database.
-- Index: none.
create database postrider
