-- How our connections behave: READ COMMITTED, whatever the defaults are; and the server does not wait for a client that a network forgot.
-- Called by: pg/link.rs, once for each connection of our own.
-- Locks: none.
-- Index: none.
do $$ begin
    set default_transaction_isolation = 'read committed';
    -- what an open transaction holds is free again: between two statements, while an answer cannot be sent, and otherwise
    set idle_in_transaction_session_timeout = '10s';
    set tcp_user_timeout = '30s';
    set tcp_keepalives_idle = '10s';
    set tcp_keepalives_interval = '5s';
    set tcp_keepalives_count = 3;
end $$
