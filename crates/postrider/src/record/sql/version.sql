-- One version of an event type: its schema and its example.
-- Called by: record/catalogue.rs.
-- Locks: none.
-- Index: type_version_pkey.
select v.schema::text, v.example::text, v.breaking::text from postrider.type_version v where v.type = $1::text and v.version = $2::int
