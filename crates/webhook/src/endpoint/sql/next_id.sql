-- Draws the id of a new endpoint: what is sealed for it stands under it.
-- Called by: endpoint/pg.rs, in the transaction that creates the endpoint.
-- Locks: none.
-- Index: none.
select nextval('postrider.endpoint_id')::text
