use super::{Fault, How, Wrong};

/// Every wrong engine.
pub const WRONG: &[Wrong] = &[
    Wrong {
        says: "enqueues beside the caller's transaction",
        how: How::Decorated(Fault::Beside),
        among: "e",
        maybe: &[],
        red: &["e1_", "e2_", "e3_", "e10_", "e11_"],
    },
    Wrong {
        says: "gives each queue a slot more",
        how: How::Decorated(Fault::Roomy),
        among: "k",
        maybe: &["k2_", "k7_"],
        red: &["k4_", "k6_"],
    },
    Wrong {
        says: "tells no args apart",
        how: How::Replaced(
            "create or replace function postrider.unique_hash(mode smallint, kind text, owner text, key text, args json) returns bytea
             language sql stable set search_path = pg_catalog, pg_temp
             return substring(sha256(convert_to(concat_ws(E'\\n', mode, case when mode = 6 then '' else kind end, owner, key), 'UTF8'))
                 for 16)",
        ),
        among: "u",
        maybe: &[],
        red: &["u3_", "u5_", "u6_", "u7_", "u8_"],
    },
    Wrong {
        says: "lets a run start that an open transaction counts on",
        how: How::Altered("take_unique", "if mode in (1, 5) and", "if mode in (-1) and"),
        among: "u",
        maybe: &[],
        red: &["u9_a_run"],
    },
    Wrong {
        says: "forgets a group when its job has ended, whatever its mode",
        how: How::Altered("take_unique", "if u.job is not null and", "if exists (select from postrider.job j where j.id = u.job) and"),
        among: "u",
        maybe: &[],
        red: &["u4_once", "u4_a_window"],
    },
    Wrong {
        says: "runs two of one_running_one_waiting",
        how: How::Altered("claim", "else g.running = g.id end as goes", "else true end as goes"),
        among: "u",
        maybe: &["u9_the_last"],
        red: &["u9_one_runs"],
    },
    Wrong {
        says: "does not look at the time of what waits",
        how: How::Altered("promote", "y.run_at <= until", "true"),
        among: "k",
        maybe: &[],
        red: &["k1_", "k9_"],
    },
    Wrong {
        says: "does not look at priorities",
        how: How::Altered("claim", "and y.priority = p.priority and", "and"),
        among: "k",
        maybe: &[],
        red: &["k2_", "k7_"],
    },
    Wrong {
        says: "hands out what is paused",
        how: How::Altered("claim", "q.paused_at is not null", "false"),
        among: "k",
        maybe: &[],
        red: &["k8_"],
    },
    Wrong {
        says: "tries again at once",
        how: How::Altered("finish", "greatest(coalesce(v.delay_ms, 0), 0)", "case v.outcome when 2 then 0 else v.delay_ms end"),
        among: "a",
        maybe: &["a1_", "a6_"],
        red: &["a7_", "a9_", "a10_"],
    },
    Wrong {
        says: "loses errors",
        how: How::Altered("finish", "where v.said in (2, 4, 5)", "where false"),
        among: "a",
        maybe: &[],
        red: &["a1_", "a2_", "a3_", "a6_", "a7_", "a8_", "a9_", "a10_", "a11_", "a12_effects"],
    },
    Wrong {
        says: "tries again what was discarded",
        how: How::Altered("finish", "else u.outcome end as outcome", "when u.outcome = 4 then 2 else u.outcome end as outcome"),
        among: "a",
        maybe: &[],
        red: &["a3_", "a11_", "a15_"],
    },
    Wrong {
        says: "takes a snooze for an attempt",
        how: How::Altered("finish", "case v.outcome when 3 then 1 else 0 end", "0"),
        among: "a",
        maybe: &[],
        red: &["a4_", "a5_"],
    },
    Wrong {
        says: "serves no owner in turn",
        how: How::Replaced(
            "create or replace function postrider.share_of(owner text) returns smallint
             language sql immutable set search_path = pg_catalog, pg_temp return 0::smallint",
        ),
        among: "o12_",
        maybe: &[],
        red: &["o12_"],
    },
    Wrong {
        says: "pauses no schedule",
        how: How::Altered("pause_schedule", "case when paused then coalesce(e.paused_at, clock_timestamp()) end,", "null,"),
        among: "d",
        maybe: &[],
        red: &["d11_"],
    },
    Wrong {
        says: "runs a schedule whatever goes on of it",
        how: How::Altered("fire_schedule", "case when s.overlap = 'skip' and", "case when false and"),
        among: "d",
        maybe: &[],
        red: &["d12_"],
    },
    Wrong {
        says: "counts schedules anew with each start",
        how: How::Altered(
            "declare_schedules",
            "set seen_at = clock_timestamp(), problem = null where",
            "set seen_at = clock_timestamp(), problem = null, next_at = null, due_at = null, counted_from = clock_timestamp() where",
        ),
        among: "d",
        maybe: &[],
        red: &["d4_", "d7_"],
    },
    Wrong {
        says: "tells no job of a schedule its due time",
        how: How::Altered("run_of_schedule", "if made.fresh and moment is not null then", "if false then"),
        among: "d",
        maybe: &[],
        red: &["d1_", "d7_"],
    },
    Wrong {
        says: "lists all queues",
        how: How::Altered("fits", "or j.queue <> (filter ->> 'queue') or", "or"),
        among: "i",
        maybe: &[],
        red: &["i2_a_list"],
    },
    Wrong {
        says: "begins a page with the last one of the page before",
        how: How::Altered("list_jobs", "x.id < place", "x.id <= place"),
        among: "i",
        maybe: &[],
        red: &["i2_pages"],
    },
    Wrong {
        says: "finds jobs whatever their args are",
        how: How::Altered("fits", "or not j.args::jsonb @> nullif((filter -> 'args')::jsonb, 'null')", ""),
        among: "i",
        maybe: &[],
        red: &["i2_args"],
    },
    Wrong {
        says: "finds jobs whatever their tags are",
        how: How::Altered("fits", "where not exists (select from postrider.tag t", "where false and not exists (select from postrider.tag t"),
        among: "i",
        maybe: &[],
        red: &["i2_keys"],
    },
    Wrong {
        says: "tells no bound",
        how: How::Altered("count_jobs", "t.state, count(*), bool_or(t.more)", "t.state, count(*), false"),
        among: "i",
        maybe: &[],
        red: &["i3_"],
    },
    Wrong {
        says: "knows a kind only when there is a job of it",
        how: How::Altered("count_jobs", "'pending', 0, false from postrider.kind k", "'pending', 0, false from postrider.kind k where false"),
        among: "i",
        maybe: &[],
        red: &["i1_"],
    },
    Wrong {
        says: "shows no attempts",
        how: How::Altered("job_views", "case when job_views.attempts then (", "case when false then ("),
        among: "i",
        maybe: &[],
        red: &["i4_a_job"],
    },
    Wrong {
        says: "takes every job for one that waits when it says why",
        how: How::Altered("explain", "case d.state when 2 then 'completed'", "case d.state when 2 then 'waits'"),
        among: "i",
        maybe: &[],
        red: &["i4_why"],
    },
    Wrong {
        says: "takes an id that nobody was given for one that is gone",
        how: How::Replaced(
            "create or replace function postrider.gone_since(id bigint) returns timestamptz
             language sql stable set search_path = pg_catalog, pg_temp return clock_timestamp()",
        ),
        among: "i",
        maybe: &[],
        red: &["i5_"],
    },
];
