-- Empties the schema, for the next stage: no jobs, no events, no declarations, the first epochs, one cut at this moment.
-- Called by: interleave/stage.rs, before each stage.
-- Locks: none that matter, nobody else is there.
-- Index: none.
do $$
declare
    t text;
begin
    set local session_replication_role = replica;
    for t in select c.relname from pg_catalog.pg_class c
              where c.relnamespace = 'postrider'::regnamespace and c.relkind in ('r', 'p') and not c.relispartition
                and c.relname not in ('migration', 'partitioned', 'log_epoch')
    loop
        execute format('delete from postrider.%I', t);
    end loop;
    for t in select c.relname from pg_catalog.pg_class c
              where c.relnamespace = 'postrider'::regnamespace and c.relispartition and c.relkind = 'r'
                and c.relname !~ '_e[0-2]$'
    loop
        execute format('drop table postrider.%I', t);
    end loop;
    perform setval('postrider.event_epoch', 0), setval('postrider.job_epoch', 0);
    insert into postrider.epoch (unit, epoch) values ('event', 0), ('job', 0);
    insert into postrider.cut select c.* from postrider.first_cut(1) c;
end $$
