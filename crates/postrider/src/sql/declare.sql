-- Declares the types, kinds and subscriptions of an application, all or nothing.
-- Called by: declare.rs, once at construction.
-- Locks: the advisory lock of declarations, until the transaction ends.
-- Index: event_type_pkey, kind_pkey, subscription_name_key, route_pkey.
select postrider.declare($1::text::json)::text
