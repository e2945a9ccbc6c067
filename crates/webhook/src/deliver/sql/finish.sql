-- Finishes the attempts $1, and what follows from them for their endpoints; says which wait for somebody who has their endpoint.
-- Called by: deliver/pg.rs, once for attempts that end at about the same time.
-- Locks: the endpoints' rows of endpoint_health, skipping what others hold; then the attempts.
-- Index: see postrider.finish_attempts.
select n, became from postrider.finish_attempts($1::json)
