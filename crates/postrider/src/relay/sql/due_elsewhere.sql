-- What was set aside for another engine and is due again; null while another relay is at it.
-- Called by: relay/elsewhere.rs, first in its transaction.
-- Locks: the advisory lock of relays, until the transaction ends; rows of poison that are due, skipping those that are held.
-- Index: poison_due, event_pkey, route_pkey.
select postrider.due_elsewhere()::text
