-- Numbers about endpoints: name, unit, what tells it from others of its name, value.
-- Called by: endpoint/pg.rs, for whoever gathers them.
-- Locks: none.
-- Index: endpoint_pkey, parked_pkey, endpoint_window_over.
select f.name, f.unit, f.attribute, f.value::text from postrider.webhook_figures() f
