-- Has job $1, whose attempt runs, end as cancelled for the reason $2.
-- Called by: deliver/pg.rs, when the endpoint of a delivery is gone.
-- Locks: none.
-- Index: cancellation_of_job.
select postrider.note_cancellation(array[$1::text::bigint], $2::text)::text
