-- Gives the endpoint $1 the secret $2 of kind $3, sealed as $4 with the key $5; older ones end after $6 ms.
-- Called by: endpoint/pg.rs.
-- Locks: what postrider.rotate_secret takes.
-- Index: secret_of_endpoint.
select postrider.rotate_secret($1::bigint, $2::text::uuid, $3::text, $4::bytea, $5::text, $6::bigint)::text
