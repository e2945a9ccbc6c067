-- Endpoints as JSON: $1 alone, or those of owner $2, or all, after the id $3, $4 of them.
-- Called by: endpoint/pg.rs, for lists, single looks and changes.
-- Locks: none.
-- Index: endpoint_pkey.
select e::text from postrider.endpoints($1::text::bigint, $2::text, $3::bigint, $4::bigint::int) e
