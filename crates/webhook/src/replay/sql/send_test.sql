-- Sends the endpoint $1 a test; the id of its delivery.
-- Called by: replay/pg.rs.
-- Locks: none.
-- Index: endpoint_pkey.
select postrider.send_test($1::bigint)::text
