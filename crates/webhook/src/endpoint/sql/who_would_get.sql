-- Which endpoints would get an event of type $1 about subject $2 with data $3 of owner $4.
-- Called by: endpoint/pg.rs.
-- Locks: none.
-- Index: route_pkey, a_subscription_has_one_endpoint.
select w.id::text, w.name, w.url, w.state from postrider.who_would_get($1::text, $2::text, $3::text::json, $4::text) w
