-- Saves the endpoint $1 as $3 says, new or with the revision $2; $4 and $5 are its sealed headers and their key.
-- Called by: endpoint/pg.rs, for new endpoints and changes.
-- Locks: what postrider.put_endpoint takes.
-- Index: endpoint_pkey, an_owner_names_an_endpoint_once.
select postrider.put_endpoint($1::bigint, $2::text::int, $3::text::json, case when $5::text is not null then $4::bytea end, $5::text)::text
