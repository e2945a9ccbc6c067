-- Events that are delivered later than they are recorded, and the cancelling of events.
-- Locks: rows of event_delay: the relay skips what somebody cancels just now; who cancels waits for a pass of the relay.
-- By hand on a large table: nothing.

create function postrider.delay_event(seq bigint, deliver_at timestamptz) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    -- its partition is kept until then
    if deliver_at > clock_timestamp() + interval '366 days' then
        perform postrider.refuse('PR005', 'deliver_at', 'it is more than 366 days ahead', 'record it nearer to its time, for example by a schedule');
    end if;
    insert into postrider.event_delay (seq, deliver_at) values (delay_event.seq, delay_event.deliver_at);
end $$;

-- When the next delayed event is due; one that is due already is looked for again soon: somebody may be about to cancel it.
create function postrider.next_due_in_ms() returns bigint
language sql stable set search_path = pg_catalog, pg_temp
return (select greatest((extract(epoch from d.deliver_at - clock_timestamp()) * 1000)::bigint + 1, 100)
          from postrider.event_delay d where d.ended_at is null order by d.deliver_at, d.seq limit 1);

-- A pass over what is not new: what is due, or a slice of a backlog; of both by turns. Its `why` is not done if there is nothing.
create function postrider.relay_beside(last postrider.cut, how postrider.pass, answer postrider.relayed) returns postrider.relayed
language plpgsql set search_path = pg_catalog, pg_temp
set jit = off set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_bitmapscan = off as $$
declare
    b postrider.backlog;
    due postrider.relayed;
begin
    select * into b from postrider.backlog x where x.over_at is null order by x.id limit 1;
    if b.id is null or (select c.backlog from postrider.cut c where c.backlog is not null order by c.no desc limit 1) is distinct from 0 then
        due := postrider.relay_due(last, how, answer);
        if due.why = 'done' then
            return due;
        end if;
    end if;
    if b.id is not null then
        return postrider.relay_backlog(last, b, how, answer);
    end if;
    return answer;
end $$;

-- Makes the jobs of delayed events that are due, in the order of their times, for all subscriptions that there are; those that start have them too, and
-- are told apart for that. At most 500 events: each change of order among them is a statement of its own. Its row of cut stands for jobs only; the events were counted when
-- the relay came to them, or will be.
create function postrider.relay_due(last postrider.cut, how postrider.pass, answer postrider.relayed) returns postrider.relayed
language plpgsql set search_path = pg_catalog, pg_temp
set jit = off set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off
set enable_mergejoin = off as $$
declare
    due postrider.slice;
    run postrider.slice;
    new postrider.cut := last;
    subs bigint[];
    starting bigint[];
    made record;
    first int := 1;
    upto int;
begin
    select array_agg(e.seq order by d.deliver_at, d.seq), array_agg(e.type order by d.deliver_at, d.seq), array_agg(e.owner order by d.deliver_at, d.seq)
      into due.seqs, due.types, due.owners
      from (select x.seq, x.deliver_at from postrider.event_delay x
             where x.ended_at is null and x.deliver_at <= clock_timestamp()
             order by x.deliver_at, x.seq limit least(how.most, 500) for update skip locked) d
     cross join lateral (select v.seq, v.type, v.owner from postrider.event v where v.seq = d.seq) e;
    if due.seqs is null then
        return answer;
    end if;
    select coalesce(array_agg(distinct r.subscription), '{}'), array_agg(distinct r.subscription) filter (where r.starting) into subs, starting
      from postrider.route r where r.type = any (due.types);
    new.at := greatest(clock_timestamp(), last.at);
    new.jobs := 0;
    new.aside := 0;
    new.elsewhere := how.elsewhere;
    new.first_job := postrider.job_position();
    loop
        upto := first;
        while due.seqs[upto + 1] > due.seqs[upto] loop
            upto := upto + 1;
        end loop;
        run := row (due.seqs[first:upto], due.types[first:upto], due.owners[first:upto], null);
        if how.elsewhere then
            answer.matched := postrider.tell_matched(new.at, run.seqs, run.types, run.owners, subs);
            if how.refused is not null then
                select x.matched_left, x.aside into answer.matched, new.aside
                  from postrider.without_refused(last.no + 1, answer.matched, how.refused) x;
            end if;
            new.jobs := json_array_length(answer.matched -> 'jobs');
        elsif how.careful then
            select * into made from postrider.make_each(last.no + 1, new.at, run, false, subs);
            new.jobs := new.jobs + made.jobs;
            new.aside := new.aside + made.aside;
            upto := first + made.upto - 1;
        else
            new.jobs := new.jobs + postrider.fan_out(new.at, run.seqs, run.types, run.owners, subs);
        end if;
        -- another engine is told of one run, and care may have found enough
        exit when upto >= cardinality(due.seqs) or how.elsewhere or how.careful;
        first := upto + 1;
    end loop;
    new.last_job := postrider.job_position() | 3;
    update postrider.event_delay d
       set ended_at = clock_timestamp(), ended_as = 'delivered', given = starting,
           first_job = case when not how.elsewhere then new.first_job end, last_job = case when not how.elsewhere then new.last_job end
     where d.seq = any (due.seqs[1:upto]);
    new.backlog := 0;
    new.start := null;
    new.part_after := null;
    new.part_upto := null;
    answer.no := postrider.note_cut(last, new);
    answer.jobs := new.jobs;
    answer.aside := new.aside;
    answer.more := true;
    answer.why := 'done';
    if new.jobs > 0 and not how.elsewhere then
        perform postrider.wake('postrider_job');
    end if;
    return answer;
end $$;

-- Cancels an event in the caller's transaction, if it is not delivered or none of its jobs has begun: 'cancelled', and nothing of it runs; 'delivered': it is
-- too late, a job of it has begun, or stands for later events too, and nothing was changed; 'unknown': there is no such event, or its transaction has
-- not committed. Refuses with PR005 (event) an event that the relay has not come to yet.
create function postrider.cancel_event(event uuid, reason text default null) returns text
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    v record;
    d postrider.event_delay;
    became postrider.fanout;
    says text := coalesce(nullif(left(reason, 1000), ''), 'the event was cancelled');
begin
    perform postrider.check_isolation();
    select e.seq, e.xid, e.type, e.owner into v from postrider.event e where e.seq = postrider.event_seq(event) and e.id = event;
    if not found then
        return 'unknown';
    end if;
    select * into d from postrider.event_delay x where x.seq = v.seq for update;
    if not found and v.xid = pg_current_xact_id_if_assigned() then
        insert into postrider.event_delay (seq, ended_at, ended_as, reason) values (v.seq, clock_timestamp(), 'cancelled', says);
        return 'cancelled';
    elsif d.ended_as = 'cancelled' then
        return 'cancelled';
    elsif d.seq is not null and d.ended_at is null then
        update postrider.event_delay x set ended_at = clock_timestamp(), ended_as = 'cancelled', reason = says where x.seq = v.seq;
        return 'cancelled';
    end if;
    became := postrider.await_fanout(event);
    if became.state = 'waiting' then
        perform postrider.refuse('PR005', 'event', 'the relay has not come to it yet', 'try again when it has: see postrider.await_fanout');
    elsif became.state <> 'done' or became.jobs = '{}' and became.aside = '{}'
          -- one of its jobs may stand for others, or another one for it
          or exists (select from postrider.route r where r.type = v.type and r.owner = any (array['', v.owner]) and r.coalescing)
    then
        return 'delivered';
    end if;
    begin
        if exists (select from postrider.cancel_within(became.jobs, says, 30) c where c.effect <> 'done')
           or exists (select from unnest(became.jobs) i join postrider.done x on x.class = (i & 3)::smallint and x.id = i where x.attempt > 0)
        then
            -- what was cancelled so far is taken back
            raise sqlstate 'PR999';
        end if;
    exception when sqlstate 'PR999' then
        return 'delivered';
    end;
    if became.aside <> '{}' then
        perform postrider.drop_poison(says, event);
    end if;
    return 'cancelled';
end $$;
