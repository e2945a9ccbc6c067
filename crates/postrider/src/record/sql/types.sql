-- The catalogue of event types by name, after $1, at most 200.
-- Called by: record/catalogue.rs.
-- Locks: none.
-- Index: event_type_pkey, type_version_pkey, type_mismatch_of_type.
select name, description, exposure, subject, validation, version::text, array_to_string(versions, ','), deprecated_on::text, deprecated_note,
       replaced_by, mismatches::text, declared_by, generation::text
  from postrider.types($1::text)
