-- Notes, in the transaction that does it, who is given a job under which lease, who ends it, and who writes its outcome.
-- Called by: checker/state.rs, once for each run, on its own database only.
-- Locks: SHARE ROW EXCLUSIVE on the watched tables.
-- Index: none.
create schema ledger;
create sequence ledger.step;

-- The processes of a run say who they are in the options of their connections.
create table ledger.note (
    step    bigint not null default nextval('ledger.step'),
    xid     xid8 not null default pg_current_xact_id(),
    process text not null default coalesce(nullif(current_setting('fixture.process', true), ''), '-'),
    what    text not null,
    lease   bigint not null,
    job     bigint not null,
    worker  uuid,
    word    text,
    at      timestamptz
);

create function ledger.lease_changed() returns trigger language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
    if tg_op = 'INSERT' then
        insert into ledger.note (what, lease, job, worker, at)
        select 'given', new.id, j, new.worker, new.claimed_at from unnest(new.open) j;
    elsif tg_op = 'UPDATE' then
        insert into ledger.note (what, lease, job, worker)
        select 'ended', old.id, j, old.worker from unnest(old.open) j where j <> all (new.open);
        insert into ledger.note (what, lease, job, worker, at)
        select 'given', new.id, j, new.worker, new.claimed_at from unnest(new.open) j where j <> all (old.open);
    else
        insert into ledger.note (what, lease, job, worker)
        select 'ended', old.id, j, old.worker from unnest(old.open) j;
    end if;
    return null;
end $$;
create trigger ledger after insert or update or delete on postrider.lease for each row execute function ledger.lease_changed();

-- Word: how it ended, see postrider.done.
create function ledger.done_changed() returns trigger language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
    insert into ledger.note (what, lease, job, word) values ('done', coalesce(new.lease, 0), new.id, new.ended_as::text);
    return null;
end $$;
create trigger ledger after insert or update on postrider.done for each row execute function ledger.done_changed();

create function ledger.later_changed() returns trigger language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
    insert into ledger.note (what, lease, job, word, at) values ('later', coalesce(new.lease, 0), new.id, new.why::text, new.run_at);
    return null;
end $$;
create trigger ledger after insert on postrider.later for each row execute function ledger.later_changed();
