-- Keeps what the schema holds now in tables of its own, and makes saved.restore(), which puts it back.
-- Called by: interleave/stage.rs, once for each stage.
-- Locks: none that matter, nobody else is there.
-- Index: none.
do $$
declare
    t text;
    rows bigint;
    body text := '';
begin
    drop schema if exists saved cascade;
    create schema saved;
    for t in select c.relname from pg_catalog.pg_class c
              where c.relnamespace = 'postrider'::regnamespace and c.relkind in ('r', 'p') and not c.relispartition
                and c.relname not in ('migration', 'partitioned', 'log_epoch') order by 1
    loop
        body := body || format('delete from postrider.%I;', t);
        execute format('select count(*) from postrider.%I', t) into rows;
        if rows > 0 then
            execute format('create table saved.%I as table postrider.%I', t, t);
            body := body || format('insert into postrider.%I overriding system value select * from saved.%I;', t, t);
        end if;
    end loop;
    create table saved."partitions of now" as
        select c.relname from pg_catalog.pg_class c where c.relnamespace = 'postrider'::regnamespace and c.relispartition;
    body := body || format('perform setval(''postrider.event_epoch'', %s), setval(''postrider.job_epoch'', %s);',
        pg_sequence_last_value('postrider.event_epoch'), pg_sequence_last_value('postrider.job_epoch'));
    -- foreign keys say an order that this need not follow
    execute format('create function saved.restore() returns void language plpgsql set session_replication_role = replica as %L',
        'declare p text; begin ' || body || '
         for p in select c.relname from pg_catalog.pg_class c
                   where c.relnamespace = ''postrider''::regnamespace and c.relispartition and c.relkind = ''r''
                     and not exists (select from saved."partitions of now" n where n.relname = c.relname)
         loop
             execute format(''drop table postrider.%I'', p);
         end loop;
     end');
end $$
