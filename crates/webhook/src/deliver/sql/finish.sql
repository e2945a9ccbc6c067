-- Finishes the attempt of job $1 under lease $2 as $3 to $15 say, and what follows: asked to wait $16 ms, gone $17, given up $18.
-- Called by: deliver/pg.rs, once for each attempt.
-- Locks: the attempt's row, then the endpoint's, see postrider.note_attempt.
-- Index: delivery_attempt_pkey.
with ended as (
    update postrider.delivery_attempt d
       set ended_at = clock_timestamp(), outcome = $3::text, reason = $4::text, status = $5::text::smallint, failure = $6::text,
           excerpt = $7::text, headers = $8::text::json, request_sha256 = decode($9::text, 'base64'), peer = $10::text,
           dns_us = $11::text::bigint, connect_us = $12::text::bigint, tls_us = $13::text::bigint,
           first_byte_us = $14::text::bigint, total_us = $15::text::bigint
     where d.class = ($1::text::bigint & 3)::smallint and d.id = $1::text::bigint and d.lease = $2::text::bigint and d.ended_at is null
    returning d
)
select (e.d).id::text, postrider.note_attempt(e.d, $16::text::bigint, $17::text = 'true', $18::text = 'true')::text from ended e
