//! A model of where jobs are: any sequence of what workers, producers and operators do comes out of the functions as it does of a page of
//! Rust. The number of sequences is `POSTRIDER_MODEL_CASES`.
#![expect(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    clippy::indexing_slicing,
    reason = "a test asks the database itself, and a failed helper is a failed test"
)]

use std::collections::BTreeMap;

use postrider_testkit::{TestDb, interleave};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestCaseError, TestRunner};
use sqlx::{AssertSqlSafe, PgConnection};

const MODES: [&str; 4] = ["none", "while_waiting", "until_done", "one_running_one_waiting"];
const MAX: i16 = 3;
const DECLARED: &str =
    r#"select postrider.declare('{"app":"model","kinds":[{"name":"t.k","queue":"q","max_attempts":3}]}')::text"#;
const EMPTY: &str = "delete from postrider.ready; delete from postrider.later; delete from postrider.parked;
    delete from postrider.lease; delete from postrider.done; delete from postrider.attempt; delete from postrider.job;
    delete from postrider.uniq; delete from postrider.unsettled; delete from postrider.cancellation; delete from postrider.queue;
    delete from postrider.deleted; delete from postrider.worker";
const PLACES: &str = "select id, 'ready', attempt, losses from postrider.ready
    union all select id, 'later', attempt, losses from postrider.later
    union all select id, split_part(key, ':', 1), attempt, losses from postrider.parked
    union all select o.id, 'held', l.attempts[array_position(l.ids, o.id)], l.losses[array_position(l.ids, o.id)]
                from postrider.lease l cross join unnest(l.open) o (id)
    union all select id, (array['-', 'completed', 'discarded', 'cancelled'])[state], attempt, 0::smallint from postrider.done";

#[derive(Debug, Clone)]
enum Op {
    Enqueue { mode: usize, key: u8, later: bool },
    Claim { worker: u8, most: i32 },
    Finish { worker: u8, which: usize, outcome: i16 },
    Tick,
    Rescue { worker: u8 },
    Act { verb: &'static str, which: usize },
    Pause(bool),
}

fn op() -> impl Strategy<Value = Op> {
    let act = (prop_oneof![Just("cancel"), Just("retry"), Just("delete")], 0_usize..30);
    prop_oneof![
        6 => (0_usize..4, 0_u8..2, prop::bool::weighted(0.15)).prop_map(|(mode, key, later)| Op::Enqueue { mode, key, later }),
        5 => (0_u8..2, 1_i32..5).prop_map(|(worker, most)| Op::Claim { worker, most }),
        7 => (0_u8..2, 0_usize..8, 1_i16..=6).prop_map(|(worker, which, outcome)| Op::Finish { worker, which, outcome }),
        3 => Just(Op::Tick),
        2 => (0_u8..2).prop_map(|worker| Op::Rescue { worker }),
        5 => act.prop_map(|(verb, which)| Op::Act { verb, which }),
        1 => any::<bool>().prop_map(Op::Pause),
    ]
}

type Group = (usize, u8);

#[derive(Debug, Clone)]
struct Job {
    id: i64,
    /// As the database names it; empty once it is gone.
    place: &'static str,
    attempt: i16,
    losses: i16,
    group: Option<Group>,
    held: Option<(u8, i64)>,
    due: bool,
    cancelled: bool,
    strict: bool,
}

#[derive(Debug, Default)]
struct Model {
    jobs: Vec<Job>,
    /// Who stands for the group, and who of it runs.
    groups: BTreeMap<Group, (Option<usize>, Option<usize>)>,
    paused: bool,
}

impl Model {
    fn held_by(&self, worker: u8) -> Vec<usize> {
        let mut held: Vec<usize> =
            (0..self.jobs.len()).filter(|&n| self.jobs[n].held.is_some_and(|(w, _)| w == worker)).collect();
        held.sort_by_key(|&n| (self.jobs[n].held, self.jobs[n].id));
        held
    }

    fn put(&mut self, n: usize, place: &'static str, attempt: i16, losses: i16) {
        let job = &mut self.jobs[n];
        (job.place, job.attempt, job.losses, job.held, job.due) = (place, attempt, losses, None, true);
        if matches!(place, "completed" | "discarded" | "cancelled") {
            (job.cancelled, job.losses, job.strict) = (false, 0, false);
        }
        self.settle(n);
    }

    /// What becomes of its group after it ended or was put off.
    fn settle(&mut self, n: usize) {
        let Some(group) = self.jobs[n].group else { return };
        let Some(&(job, running)) = self.groups.get(&group) else { return };
        if job != Some(n) && running != Some(n) {
            return;
        }
        if matches!(self.jobs[n].place, "completed" | "discarded" | "cancelled" | "") {
            let rest = (job.filter(|m| *m != n), running.filter(|m| *m != n));
            if MODES[group.0] == "until_done" || rest == (None, None) {
                self.groups.remove(&group);
            } else {
                self.groups.insert(group, rest);
            }
            if MODES[group.0] == "one_running_one_waiting" {
                for other in self.jobs.iter_mut().filter(|o| o.group == Some(group) && o.place == "unique") {
                    other.place = "ready";
                }
            }
        } else if MODES[group.0] == "while_waiting" && running == Some(n) && job.is_none() {
            self.groups.insert(group, (Some(n), None));
        }
    }

    fn claimed(&mut self, n: usize, worker: u8, lease: i64) {
        let job = &mut self.jobs[n];
        (job.place, job.attempt, job.held) = ("held", job.attempt + 1, Some((worker, lease)));
        if let Some(group) = job.group
            && let Some(&(waits, running)) = self.groups.get(&group)
            && MODES[group.0] != "until_done"
            && (MODES[group.0] == "one_running_one_waiting" || waits == Some(n))
        {
            assert!(MODES[group.0] == "while_waiting" || running.is_none_or(|r| r == n), "two of one group run");
            self.groups.insert(group, (waits.filter(|m| *m != n), Some(n)));
        }
    }

    fn finished(&mut self, n: usize, outcome: i16) {
        let job = self.jobs[n].clone();
        let overtaken = job.group.is_some_and(|group| {
            MODES[group.0] == "while_waiting" && self.groups.get(&group).is_some_and(|g| g.0.is_some_and(|o| o != n))
        });
        let (attempt, losses) = (job.attempt, job.losses);
        match outcome {
            1 => self.put(n, "completed", attempt, 0),
            _ if job.cancelled => self.put(n, "cancelled", attempt, 0),
            2 | 3 if overtaken => self.put(n, "cancelled", attempt, 0),
            2 | 3 => {
                self.jobs[n].strict = false;
                self.put(n, "later", attempt - i16::from(outcome == 3), 0);
            }
            4 | 5 => self.put(n, "discarded", attempt, 0),
            _ => self.put(n, "ready", attempt - 1, losses),
        }
    }

    fn lost(&mut self, n: usize, isolated: bool) {
        let job = self.jobs[n].clone();
        let alone = isolated || job.strict;
        let ends = job.attempt >= MAX || (alone && job.attempt.max(job.losses + 1) >= MAX);
        let attempt = job.attempt - i16::from(!alone);
        if job.cancelled {
            self.put(n, "cancelled", job.attempt, 0);
        } else if ends {
            self.put(n, "discarded", job.attempt, 0);
        } else if job.strict || (!alone && job.losses >= 1) {
            self.put(n, "strict", attempt, job.losses + 1);
        } else {
            self.put(n, "ready", attempt, job.losses + 1);
        }
    }

    fn acted(&mut self, verb: &str, n: usize) -> &'static str {
        let job = self.jobs[n].clone();
        let over = matches!(job.place, "completed" | "discarded" | "cancelled");
        match (verb, job.place) {
            (_, "") => return "unknown",
            ("cancel", "held") => {
                self.jobs[n].cancelled = true;
                return "requested";
            }
            (_, "held") => return "running",
            ("cancel", _) if over => return "already",
            ("cancel", _) => self.put(n, "cancelled", job.attempt, 0),
            ("delete", _) => self.put(n, "", 0, 0),
            ("retry", "later") => self.jobs[n].place = "ready",
            ("retry", _) if over => {
                self.put(n, "ready", 0, 0);
                if let Some(group) = job.group {
                    self.groups.entry(group).or_insert((Some(n), None));
                }
            }
            _ => return "already",
        }
        "done"
    }
}

struct Play<'a> {
    model: Model,
    connection: &'a mut PgConnection,
}

impl Play<'_> {
    async fn rows<T>(&mut self, sql: String) -> Vec<T>
    where
        T: for<'r> sqlx::FromRow<'r, sqlx::postgres::PgRow> + Send + Unpin,
    {
        sqlx::query_as(AssertSqlSafe(sql)).fetch_all(&mut *self.connection).await.unwrap()
    }

    fn named(&self, id: i64) -> usize {
        self.model.jobs.iter().position(|job| job.id == id).unwrap()
    }

    async fn step(&mut self, op: &Op) -> Result<(), String> {
        match *op {
            Op::Enqueue { mode, key, later } => return self.enqueue(mode, key, later).await,
            Op::Claim { worker, most } => return self.claim(worker, most).await,
            Op::Finish { worker, which, outcome } => {
                let held = self.model.held_by(worker);
                let Some(&n) = held.get(which % held.len().max(1)) else { return Ok(()) };
                let (lease, id) = (self.model.jobs[n].held.unwrap().1, self.model.jobs[n].id);
                let sql = format!(
                    "select id from postrider.finish('{}', '{{{lease}}}', '{{{id}}}', '{{{outcome}}}', '{{0}}', '{{no}}')",
                    uuid(worker)
                );
                let counted: Vec<(i64,)> = self.rows(sql).await;
                if counted != [(id,)] {
                    return Err(format!("the end of job {n} does not count"));
                }
                self.model.finished(n, outcome);
            }
            Op::Tick => return self.tick().await,
            Op::Rescue { worker } => {
                self.rows::<(i32,)>(format!("select postrider.rescue('{}', -1)", uuid(worker))).await;
                let held = self.model.held_by(worker);
                for &n in &held {
                    self.model.lost(n, held.len() == 1);
                }
            }
            Op::Act { verb, which } => {
                let all = self.model.jobs.len();
                let Some(n) = which.checked_rem(all) else { return Ok(()) };
                let sql = format!("select effect from postrider.{verb}('{{{}}}')", self.model.jobs[n].id);
                let told: Vec<(String,)> = self.rows(sql).await;
                let expected = self.model.acted(verb, n);
                if told != [(expected.to_owned(),)] {
                    return Err(format!("{verb} of job {n} answers {told:?}, not {expected}"));
                }
            }
            Op::Pause(paused) => {
                self.rows::<(String,)>(format!("select postrider.pause('q', {paused})::text")).await;
                self.model.paused = paused;
            }
        }
        Ok(())
    }

    async fn enqueue(&mut self, mode: usize, key: u8, later: bool) -> Result<(), String> {
        let run_at = if later { "clock_timestamp() + interval '1 hour'" } else { "null" };
        let unique = if mode == 0 {
            String::new()
        } else {
            format!(", unique_mode => '{}', unique_key => 'k{key}'", MODES[mode])
        };
        let answers: Vec<(i64, bool)> =
            self.rows(format!("select id, fresh from postrider.enqueue('t.k', run_at => {run_at}{unique})")).await;
        let (id, fresh) = answers[0];
        let group = (mode > 0).then_some((mode, key));
        let stands = group.and_then(|group| self.model.groups.get(&group)).and_then(|group| group.0);
        if let Some(stands) = stands {
            let same = !fresh && self.model.jobs[stands].id == id;
            return same
                .then_some(())
                .ok_or_else(|| format!("job {stands} is there, but {id} is told, fresh: {fresh}"));
        }
        if !fresh {
            return Err(format!("nothing is there, but {id} is told"));
        }
        let n = self.model.jobs.len();
        let place = if later { "later" } else { "ready" };
        let job =
            Job { id, place, attempt: 0, losses: 0, group, held: None, due: !later, cancelled: false, strict: false };
        self.model.jobs.push(job);
        if let Some(group) = group {
            self.model.groups.entry(group).or_default().0 = Some(n);
        }
        Ok(())
    }

    async fn claim(&mut self, worker: u8, most: i32) -> Result<(), String> {
        let sql = format!(
            "select lease, id, attempt from postrider.claim('{}', 1, 'q', '{{t.k}}', {most}, '{{1,2,3,4}}', '{{0,0,0,0}}',
                '{{0,0,0,0}}') where lease is not null",
            uuid(worker)
        );
        let ready: Vec<usize> = (0..self.model.jobs.len()).filter(|&n| self.model.jobs[n].place == "ready").collect();
        let claimed: Vec<(i64, i64, i16)> = self.rows(sql).await;
        for &(lease, id, attempt) in &claimed {
            let n = self.named(id);
            if !ready.contains(&n) || attempt != self.model.jobs[n].attempt + 1 || self.model.paused {
                return Err(format!("job {n} was claimed for attempt {attempt}"));
            }
            self.model.claimed(n, worker, lease);
        }
        // some may have been put behind the one of their group that runs
        let parked: Vec<(i64,)> =
            self.rows("select id from postrider.parked where key like 'unique:%'".to_owned()).await;
        let mut behind = 0;
        for n in parked.into_iter().map(|(id,)| self.named(id)).collect::<Vec<_>>() {
            let job = &self.model.jobs[n];
            let running = job.group.and_then(|group| self.model.groups.get(&group)).and_then(|group| group.1);
            if job.place == "ready" && running.is_some_and(|running| running != n) {
                self.model.jobs[n].place = "unique";
                behind += 1;
            }
        }
        let expected = if self.model.paused { 0 } else { ready.len().min(usize::try_from(most).unwrap()) };
        let got = claimed.len() + behind;
        (got == expected).then_some(()).ok_or_else(|| format!("{got} of {expected} were claimed"))
    }

    async fn tick(&mut self) -> Result<(), String> {
        let report = r#"{"app":"m","version":"0","host":"h","pid":1,"queues":["q"],"kinds":["t.k"],"held":[],"settled":9,"dead":[]}"#;
        self.rows::<(String,)>(format!("select postrider.tick('{}', '{report}')::text", uuid(9))).await;
        for job in self.model.jobs.iter_mut().filter(|job| job.place == "later" && job.due) {
            job.place = "ready";
        }
        let busy = self.model.jobs.iter().any(|job| job.strict && matches!(job.place, "ready" | "held"));
        if busy || !self.model.jobs.iter().any(|job| job.place == "strict") {
            return Ok(());
        }
        let freed: Vec<(i64,)> = self.rows("select id from postrider.ready where flags & 8 <> 0".to_owned()).await;
        let [(id,)] = freed.as_slice() else { return Err(format!("{} suspects run next", freed.len())) };
        let n = self.named(*id);
        (self.model.jobs[n].place, self.model.jobs[n].strict) = ("ready", true);
        Ok(())
    }

    /// The two beside each other.
    async fn compare(&mut self) -> Result<(), String> {
        let mut there: Vec<(i64, String, i16, i16)> = self.rows(PLACES.to_owned()).await;
        there.sort();
        let place = |job: &Job| (job.id, job.place.to_owned(), job.attempt, job.losses);
        let mut expected: Vec<_> = self.model.jobs.iter().filter(|job| !job.place.is_empty()).map(place).collect();
        expected.sort();
        (there == expected).then_some(()).ok_or_else(|| format!("there is {there:?}\n expected {expected:?}"))
    }
}

fn uuid(worker: u8) -> String {
    format!("00000000-0000-0000-0000-0000000000{worker:02}")
}

async fn play(connection: &mut PgConnection, ops: &[Op]) -> Result<(), String> {
    sqlx::raw_sql(EMPTY).execute(&mut *connection).await.unwrap();
    let mut play = Play { model: Model::default(), connection };
    for (n, op) in ops.iter().enumerate() {
        play.step(op).await.map_err(|wrong| format!("step {n} {op:?}: {wrong}"))?;
        play.compare().await.map_err(|wrong| format!("after step {n} {op:?}: {wrong}"))?;
    }
    Ok(())
}

/// Plays so many sequences; tells the shortest one found of those that come out differently.
fn disagreement(cases: u32, shrink: u32, planted: Option<&Mistake>) -> Option<String> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let db = runtime.block_on(TestDb::fresh());
    let mut connection = runtime.block_on(async {
        sqlx::raw_sql(DECLARED).execute(db.pool()).await.unwrap();
        if let Some(&(function, from, to)) = planted {
            interleave::rewrite(&db, function, from, to).await.unwrap();
        }
        db.pool().acquire().await.unwrap().detach()
    });
    let config = Config { cases, failure_persistence: None, max_shrink_iters: shrink, ..Config::default() };
    let connection = std::cell::RefCell::new(&mut connection);
    let ended = TestRunner::new(config).run(&vec(op(), 1..40), |ops| {
        let played = runtime.block_on(play(&mut connection.borrow_mut(), &ops));
        played.map_err(TestCaseError::fail)
    });
    ended.err().map(|error| error.to_string())
}

#[test]
fn the_functions_and_a_model_agree_on_where_each_job_is() {
    let cases = std::env::var("POSTRIDER_MODEL_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(40);
    assert_eq!(disagreement(cases, 400, None), None);
}

/// A function, what stands there, and what is put in its place.
type Mistake = (&'static str, &'static str, &'static str);

const MISTAKES: [Mistake; 5] = [
    // a snooze spends an attempt
    ("finish", "case v.outcome when 3 then 1 else 0 end", "0"),
    // who was lost in company pays for it
    (
        "put_back",
        "(v.attempt - case when put_back.lost and v.alone then 0 else 1 end)::smallint,\n               (v.losses",
        "v.attempt,\n               (v.losses",
    ),
    // a new life begins where the old one ended
    ("retry", "null, x, 0, 0,", "null, x, d.attempt, 0,"),
    // an end is not told to the group
    ("after_special", "perform postrider.settle_unique(ids);", "null;"),
    // what was asked to stop goes on
    ("finish", "u.outcome <> 1 and u.id = any (cancelled) then 8", "false then 8"),
];

#[test]
fn a_mistake_in_a_function_makes_the_model_disagree() {
    for planted in &MISTAKES {
        let found = disagreement(1_000, 0, Some(planted));
        assert!(found.is_some(), "nothing was found in 1 000 sequences: {planted:?}");
    }
}
