-- Enables the endpoint $1.
-- Called by: endpoint/pg.rs.
-- Locks: what postrider.enable_endpoint takes.
-- Index: endpoint_pkey.
select postrider.enable_endpoint($1::bigint)::text
