-- Records one event in the caller's transaction and tells the transaction's id.
-- Called by: record/mod.rs, in the caller's transaction, on any driver.
-- Locks: none; with an idempotency key, the row of that key until the transaction ends.
-- Index: event_pkey, event_cut.
select postrider.record($1::text, $2::text, $3::text::json, $4::text, $5::text::timestamptz, $6::text::uuid, $7::text,
                        $8::text::int, $9::text, $10::text::timestamptz)::text,
       pg_current_xact_id()::text
