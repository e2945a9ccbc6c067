-- Saves the sealed secret $3 with the id $1 of endpoint $2, sealed with the key $4.
-- Called by: endpoint/pg.rs, in the transaction that creates the endpoint.
-- Locks: the endpoint's row, for key share.
-- Index: endpoint_secret_pkey.
insert into postrider.endpoint_secret (id, endpoint, kind, sealed, key_id)
values ($1::text::uuid, $2::bigint, 'v1', $3::bytea, $4::text)
