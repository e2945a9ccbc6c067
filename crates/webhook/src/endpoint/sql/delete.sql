-- Forgets the endpoint $1: its secrets and its subscription go, its row stays for those who read attempts.
-- Called by: endpoint/pg.rs.
-- Locks: the endpoint's row, its secrets, its subscription.
-- Index: endpoint_pkey, secret_of_endpoint.
with gone as (
    update postrider.endpoint set deleted_at = clock_timestamp()
     where id = $1::bigint and deleted_at is null
    returning id, subscription
), wiped as (
    delete from postrider.endpoint_secret s using gone g where s.endpoint = g.id
)
select postrider.drop_subscription(g.subscription)::text from gone g
