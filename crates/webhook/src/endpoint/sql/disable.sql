-- Disables the endpoint $1 for the reason $2; the first reason stays.
-- Called by: endpoint/pg.rs, for an operator.
-- Locks: what postrider.disable_endpoint takes.
-- Index: endpoint_pkey, delivery_attempt_of_endpoint.
select postrider.disable_endpoint($1::bigint, $2::text)::text
