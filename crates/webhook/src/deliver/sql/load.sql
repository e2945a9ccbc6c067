-- The endpoints that the deliveries $1 go to, with each valid secret, and which of those were delivered already.
-- Called by: deliver/pg.rs, once for deliveries that begin at about the same time.
-- Locks: none.
-- Index: see postrider.load_deliveries.
select endpoint, url, format, timeout_ms, max_attempts, disabled, deleted, steps_ms, on_4xx, answer_contains, headers_key, headers, enabled_us,
       ids, taken, secret, kind, key_id, sealed, (exists (select from postrider.scope_function))::text
  from postrider.load_deliveries($1::json)
