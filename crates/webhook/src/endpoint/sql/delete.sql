-- Forgets the endpoint $1.
-- Called by: endpoint/pg.rs.
-- Locks: what postrider.drop_endpoint takes.
-- Index: endpoint_pkey, secret_of_endpoint.
select postrider.drop_endpoint($1::bigint)::text
