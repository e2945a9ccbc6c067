-- Takes all marks from the endpoint $1.
-- Called by: endpoint/pg.rs, for an operator.
-- Locks: what postrider.resume_endpoint takes.
-- Index: endpoint_pkey.
select postrider.resume_endpoint($1::bigint)::text
