-- Remembers since which lease a job that an operator ran again counts its attempts anew: invariants look at these only.
-- Called by: interleave/judge.rs, when it looks at a database for the first time.
-- Locks: share row exclusive on done, nobody works yet.
-- Index: none.
do $$
begin
    create table if not exists postrider.revived (id bigint not null, lease bigint not null);
    create or replace function postrider.note_revival() returns trigger language plpgsql as
        'begin insert into postrider.revived values (old.id, (select last_value from postrider.lease_id)); return null; end';
    create or replace trigger revived after delete on postrider.done for each row execute function postrider.note_revival();
end $$
