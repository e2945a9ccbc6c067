-- Finishes the attempt of job $1 under lease $2: outcome, reason, answer, digest of the request, peer, and what took how long.
-- Called by: deliver/pg.rs, once for each attempt.
-- Locks: the attempt's row.
-- Index: delivery_attempt_pkey.
update postrider.delivery_attempt
   set ended_at = clock_timestamp(), outcome = $3::text, reason = $4::text, status = $5::text::smallint, failure = $6::text,
       excerpt = $7::text, headers = $8::text::json, request_sha256 = decode($9::text, 'base64'), peer = $10::text,
       dns_us = $11::text::bigint, connect_us = $12::text::bigint, tls_us = $13::text::bigint,
       first_byte_us = $14::text::bigint, total_us = $15::text::bigint
 where class = ($1::text::bigint & 3)::smallint and id = $1::text::bigint and lease = $2::text::bigint and ended_at is null
returning id::text
