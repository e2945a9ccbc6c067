//! I1 to I5 on the native engine: what an operator is told, and that no look for it reads everything.
#![expect(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a failed helper is a failed test, and a test asks the database itself"
)]

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use postrider::inspect::{self, Alert, Severity};
use postrider::port::Look;
use postrider::{
    Bus, Code, Filter, Inspector, JobId, Jobs, Kind, KindSpec, NewJob, Payload, PgInspector, PgJobs, State, Timestamp,
    Unique,
};
use postrider_testkit::{TestDb, TestServer};
use sqlx::{AssertSqlSafe, PgPool};

const WORKER: &str = "0b0b0b0b-0000-4000-8000-000000000001";
const HOUR: Duration = Duration::from_hours(1);

struct Desk {
    db: TestDb,
    jobs: PgJobs,
    inspector: PgInspector,
}

impl Desk {
    async fn set() -> Self {
        let db = TestDb::fresh().await;
        let kinds = [("t.a", "q"), ("t.b", "q"), ("t.never", "r")];
        let kinds = kinds.map(|(name, queue)| Kind::spec(KindSpec { queue: queue.to_owned(), ..KindSpec::new(name) }));
        Bus::builder(db.pool().clone()).types(["a.b"]).kinds(kinds).build().await.unwrap();
        let (jobs, inspector) = (PgJobs::new(db.pool().clone()), PgInspector::new(db.pool().clone()));
        Self { db, jobs, inspector }
    }

    fn pool(&self) -> &PgPool {
        self.db.pool()
    }

    async fn run(&self, sql: impl Into<String>) {
        sqlx::raw_sql(AssertSqlSafe(sql.into())).execute(self.pool()).await.unwrap();
    }

    async fn text(&self, sql: impl Into<String>) -> String {
        sqlx::query_scalar(AssertSqlSafe(sql.into())).fetch_one(self.pool()).await.unwrap()
    }

    async fn enqueue(&self, job: NewJob) -> JobId {
        self.jobs.enqueue(None, &[job]).await.unwrap().remove(0).id
    }

    /// A beat of the one worker there is, which knows these kinds.
    async fn beat(&self, kinds: &str) {
        let report = format!(
            r#"{{"app": "desk", "host": "here", "pid": 7, "queues": ["q"], "kinds": [{kinds}], "held": [], "settled": 0}}"#
        );
        self.run(format!("select postrider.tick('{WORKER}', '{report}')")).await;
    }

    async fn claim(&self, most: u32) -> Vec<(i64, i64)> {
        let sql = format!(
            "select lease, id from postrider.claim('{WORKER}', 1, 'q', array['t.a', 't.b'], {most}, array[1, 2, 3, 4]::smallint[],
                array[0, 0, 0, 0]::smallint[], array[0, 0, 0, 0]::bigint[]) where lease is not null"
        );
        sqlx::query_as(AssertSqlSafe(sql)).fetch_all(self.pool()).await.unwrap()
    }

    async fn finish(&self, (lease, id): (i64, i64), outcome: u8, reason: &str) {
        let sql = format!(
            "select count(*) from postrider.finish('{WORKER}', array[{lease}], array[{id}], array[{outcome}]::smallint[],
                array[3600000]::bigint[], array[case when {outcome} <> 1 then $1 end])"
        );
        let n: i64 = sqlx::query_scalar(AssertSqlSafe(sql)).bind(reason).fetch_one(self.pool()).await.unwrap();
        assert_eq!(n, 1);
    }

    async fn page(&self, filter: &Filter, after: Option<&JobId>, most: usize) -> (Vec<JobId>, Option<JobId>) {
        let page = self.inspector.jobs(filter, after, most).await.unwrap();
        (page.jobs.into_iter().map(|job| job.id).collect(), page.next)
    }

    async fn all(&self, filter: &Filter) -> Vec<JobId> {
        let (jobs, next) = self.page(filter, None, 200).await;
        assert_eq!(next, None);
        jobs
    }

    async fn explained(&self, id: &JobId) -> String {
        let told = self.inspector.explain(id).await.unwrap().unwrap();
        assert_eq!(told, self.text(format!("select postrider.explain({id})")).await, "one text for every door");
        told
    }

    async fn alerts(&self) -> BTreeMap<String, Alert> {
        let alerts = inspect::alerts(self.pool()).await.unwrap();
        alerts.into_iter().map(|alert| (alert.name.clone(), alert)).collect()
    }

    /// So many jobs that wait.
    async fn fill(&self, n: u32, queue: &str) {
        self.run(format!(
            "begin;
             create temp table made on commit drop as select (nextval('postrider.job_number') << 2) | 2 as id from generate_series(1, {n});
             insert into postrider.job (class, id, kind, queue, priority, max_attempts) select 2, id, 't.a', '{queue}', 2, 10 from made;
             insert into postrider.ready (queue, priority, share, pos, id) select '{queue}', 2, 0, id, id from made;
             commit"
        ))
        .await;
    }
}

fn job(kind: &str) -> NewJob {
    NewJob::new(kind, Payload::parse("{}").unwrap())
}

fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    Timestamp::from_micros(i64::try_from(since.as_micros()).unwrap())
}

#[tokio::test]
async fn i1_every_kind_is_counted_by_state_before_it_ever_ran() {
    let desk = Desk::set().await;
    for _ in 0..7 {
        desk.enqueue(job("t.a")).await;
    }
    desk.enqueue(NewJob { run_at: Some(now().after(HOUR)), ..job("t.b") }).await;
    let claimed = desk.claim(4).await;
    for (run, outcome) in claimed.iter().zip([1, 2, 4]) {
        desk.finish(*run, outcome, "broke").await;
    }
    let counts = inspect::counts(desk.pool()).await.unwrap();
    assert!(counts.iter().all(|count| !count.more));
    let told: Vec<(&str, &str, &str, u64)> =
        counts.iter().map(|c| (c.kind.as_str(), c.queue.as_str(), c.state.name(), c.jobs)).collect();
    let expected = [
        ("t.a", "q", "completed", 1),
        ("t.a", "q", "discarded", 1),
        ("t.a", "q", "pending", 3),
        ("t.a", "q", "retryable", 1),
        ("t.a", "q", "running", 1),
        ("t.b", "q", "pending", 1),
        ("t.never", "r", "pending", 0),
    ];
    assert_eq!(told, expected);
    // whoever looks again soon is told the same: it is not counted for each of them
    desk.enqueue(job("t.never")).await;
    assert_eq!(inspect::counts(desk.pool()).await.unwrap(), counts);
    desk.run("update postrider.tally set at = at - interval '10 seconds'").await;
    assert_ne!(inspect::counts(desk.pool()).await.unwrap(), counts);
    let due = desk.text("select count(*)::text from postrider.heads()").await;
    assert_eq!(due, "2", "a head for each line: of q and of r");
}

#[tokio::test]
async fn i2_a_list_is_filtered_newest_first() {
    let desk = Desk::set().await;
    let args = |text: &str| NewJob { args: Payload::parse(text).unwrap(), ..job("t.b") };
    let a = desk.enqueue(NewJob { owner: "acme".to_owned(), ..job("t.a") }).await;
    let b = desk.enqueue(args(r#"{"order": {"id": 7, "to": ["x", "y"]}, "n": 1.50}"#)).await;
    let c = desk.enqueue(args(r#"{"order": {"id": 8}}"#)).await;
    let d = desk.enqueue(NewJob { queue: Some("s".to_owned()), ..job("t.a") }).await;
    desk.run(format!("update postrider.job set created_at = created_at - interval '2 hours' where id = {c}")).await;
    let (none, hour_ago) = (Filter::default(), Timestamp::from_micros(now().as_micros() - 3_600_000_000));
    let of = |args: &str| Filter { args: Some(Payload::parse(args).unwrap()), ..Filter::default() };
    let text = |text: &str| Some(text.to_owned());
    for (filter, expected) in [
        (none.clone(), vec![&d, &c, &b, &a]),
        (Filter { kind: text("t.a"), ..none.clone() }, vec![&d, &a]),
        (Filter { queue: text("s"), ..none.clone() }, vec![&d]),
        (Filter { owner: text("acme"), ..none.clone() }, vec![&a]),
        (Filter { from: Some(hour_ago), ..none.clone() }, vec![&d, &b, &a]),
        (Filter { to: Some(hour_ago), ..none.clone() }, vec![&c]),
        (of(r#"{"order": {"id": 7}}"#), vec![&b]),
        (of(r#"{"order": {"to": ["y"]}, "n": 1.5}"#), vec![&b]),
        (of(r#"{"order": {}}"#), vec![&c, &b]),
        (of("[]"), vec![]),
        (Filter { kind: text("t.a"), ..of(r#"{"order": {}}"#) }, vec![]),
    ] {
        let found = desk.all(&filter).await;
        assert_eq!(found.iter().collect::<Vec<_>>(), expected, "{filter:?}");
    }
    let claimed = desk.claim(2).await;
    desk.finish(claimed[0], 1, "").await;
    for (state, expected) in [(State::Completed, vec![&a]), (State::Running, vec![&b]), (State::Pending, vec![&d, &c])]
    {
        let found = desk.all(&Filter { states: vec![state], ..none.clone() }).await;
        assert_eq!(found.iter().collect::<Vec<_>>(), expected, "{state:?}");
    }
}

#[tokio::test]
async fn i2_pages_neither_skip_nor_repeat_while_rows_change() {
    let desk = Desk::set().await;
    let mut made = Vec::new();
    for _ in 0..30 {
        made.push(desk.enqueue(job("t.a")).await);
    }
    let (mut seen, mut after) = (Vec::new(), None);
    loop {
        let (jobs, next) = desk.page(&Filter::default(), after.as_ref(), 7).await;
        seen.extend(jobs);
        after = next;
        if after.is_none() {
            break;
        }
        // what is new comes before the first page, and what moves stays where it is
        desk.enqueue(job("t.b")).await;
        let claimed = desk.claim(3).await;
        desk.finish(claimed[0], 2, "broke").await;
    }
    made.reverse();
    assert_eq!(seen, made);
}

#[tokio::test]
async fn i2_a_page_in_which_nothing_matches_says_where_to_go_on() {
    let desk = Desk::set().await;
    let rare = desk.enqueue(job("t.b")).await;
    desk.fill(25_000, "q").await;
    let newest = desk.enqueue(job("t.b")).await;
    let of_b = Filter { kind: Some("t.b".to_owned()), ..Filter::default() };
    let (first, next) = desk.page(&of_b, None, 10).await;
    assert_eq!(first, [newest]);
    let mut after = next.expect("ten thousand were looked at, and there are more");
    let (second, next) = desk.page(&of_b, Some(&after), 10).await;
    assert_eq!(second, []);
    let further = next.expect("nothing matched, and there are more");
    assert!(further.as_str().parse::<i64>().unwrap() < after.as_str().parse().unwrap());
    after = further;
    let (third, next) = desk.page(&of_b, Some(&after), 10).await;
    assert_eq!((third, next), (vec![rare], None));
}

/// Through each door, a duplicate among them.
#[tokio::test]
async fn i2_a_rare_tag_is_found_in_one_page_whatever_else_is_there() {
    let desk = Desk::set().await;
    let tags = |tags: &[&str]| tags.iter().map(|tag| (*tag).to_owned()).collect::<Vec<_>>();
    let rare = desk.enqueue(NewJob { tags: tags(&["rare", "eu"]), ..job("t.b") }).await;
    desk.fill(25_000, "q").await;
    let by_sql = desk.text("select id::text from postrider.enqueue('t.a', tags => '{eu}')").await;
    let of_many = r#"[{"kind": "t.a", "tags": ["eu"], "unique_mode": "until_done"}, {"kind": "t.a", "tags": null},
                      {"kind": "t.a", "tags": ["us"], "unique_mode": "until_done"}]"#;
    let of_many = desk.text(format!("select min(id)::text from postrider.enqueue_many('{of_many}')")).await;
    let filter = |some: &[&str]| Filter { tags: tags(some), ..Filter::default() };
    assert_eq!(desk.page(&filter(&["rare"]), None, 10).await, (vec![rare.clone()], None));
    let (eu, next) = desk.page(&filter(&["eu"]), None, 2).await;
    assert_eq!(eu, [JobId::new(of_many), JobId::new(by_sql)]);
    assert_eq!(desk.page(&filter(&["eu"]), next.as_ref(), 2).await, (vec![rare.clone()], None));
    assert_eq!(desk.page(&filter(&["us"]), None, 10).await, (vec![], None), "a duplicate adds none");
    desk.run(format!("select postrider.delete(array[{rare}])")).await;
    assert_eq!(desk.page(&filter(&["rare"]), None, 10).await, (vec![], None));
    assert_eq!(desk.text("select count(*)::text from postrider.tag").await, "2");
}

#[tokio::test]
async fn i2_tags_that_are_none_are_refused_at_each_door() {
    let desk = Desk::set().await;
    let eleven: Vec<String> = (0..11).map(|n| n.to_string()).collect();
    for (tags, sql) in [
        (eleven.clone(), format!("array{eleven:?}").replace('"', "'")),
        (vec![String::new()], "array['']".to_owned()),
        (vec!["x".repeat(101)], format!("array['{}']", "x".repeat(101))),
        (vec!["a\tb".to_owned()], "array[e'a\\tb']".to_owned()),
    ] {
        let refused = NewJob { tags: tags.clone(), ..job("t.a") }.check().unwrap_err();
        assert_eq!(refused.code(), Some(Code::Option), "{tags:?}");
        for call in [
            format!("select postrider.enqueue('t.a', tags => {sql})"),
            format!("select postrider.enqueue_many(json_build_array(json_build_object('kind', 't.a', 'tags', {sql})))"),
        ] {
            let refused = sqlx::raw_sql(AssertSqlSafe(call.clone())).execute(desk.pool()).await.unwrap_err();
            let code = refused.as_database_error().unwrap().code().unwrap().into_owned();
            assert_eq!(code, "PR005", "{call}: {refused}");
            assert!(refused.to_string().starts_with("error returned from database: tags: "), "{refused}");
        }
    }
    for wrong in ["\"eu\"", "7", "{\"eu\": true}", "[7]", "[null]", "[[\"eu\"]]"] {
        let call = format!(r#"select postrider.enqueue_many('[{{"kind": "t.a", "tags": {wrong}}}]')"#);
        let refused = sqlx::raw_sql(AssertSqlSafe(call)).execute(desk.pool()).await.unwrap_err();
        assert_eq!(refused.as_database_error().unwrap().code().as_deref(), Some("PR005"), "{wrong}: {refused}");
    }
    assert_eq!(desk.text("select count(*)::text from postrider.job").await, "0");
}

#[tokio::test]
async fn i3_counts_stop_at_a_bound_and_say_so() {
    let desk = Desk::set().await;
    desk.fill(10_500, "q").await;
    desk.enqueue(job("t.never")).await;
    let counts = inspect::counts(desk.pool()).await.unwrap();
    let of = |kind: &str| counts.iter().find(|count| count.kind == kind && count.state == State::Pending).unwrap();
    assert_eq!((of("t.a").jobs, of("t.a").more), (10_000, true));
    assert_eq!((of("t.never").jobs, of("t.never").more), (1, false), "another queue is counted by itself");
    assert_eq!((of("t.b").jobs, of("t.b").more), (0, false));
}

#[tokio::test]
async fn i4_a_job_shows_its_attempts_progress_and_lease() {
    let desk = Desk::set().await;
    let id = desk.enqueue(job("t.a")).await;
    desk.finish(desk.claim(1).await[0], 2, "first try").await;
    desk.run("update postrider.later set run_at = now()").await;
    desk.beat("\"t.a\"").await;
    let (lease, key) = desk.claim(1).await[0];
    let told = format!(r#"[{{"id": {key}, "lease": {lease}, "percent": 40, "note": "page 4"}}]"#);
    desk.run(format!("select postrider.note_progress('{WORKER}', '{told}')")).await;
    let Look::Here(view) = desk.inspector.look(&id).await.unwrap() else { panic!("it is not there") };
    assert_eq!((view.state, view.attempt, view.lease), (State::Running, 2, Some(lease)));
    assert_eq!(view.attempts.len(), 1);
    assert_eq!((view.attempts[0].attempt, view.attempts[0].error.as_deref()), (1, Some("first try")));
    assert_eq!(view.progress.map(|progress| (progress.percent, progress.note)), Some((40, "page 4".to_owned())));
    let says = desk.explained(&id).await;
    assert!(says.starts_with("It runs since 2") && says.contains("attempt 2 of 10, under lease"), "{says}");
    assert!(says.contains(&format!("worker {WORKER} (desk on here, process 7); 40 % done at")), "{says}");
    assert!(says.ends_with(": page 4."), "{says}");
    let output = format!(
        "select count(*)::text from postrider.finish('{WORKER}', array[{lease}], array[{key}], array[1]::smallint[], array[0]::bigint[],
            array[null], array['{{\"pages\": 9}}'])"
    );
    assert_eq!(desk.text(output).await, "1");
    let Look::Here(view) = desk.inspector.look(&id).await.unwrap() else { panic!("it is not there") };
    assert_eq!(view.output.map(|output| output.as_str().to_owned()), Some(r#"{"pages": 9}"#.to_owned()));
}

#[tokio::test]
async fn i4_each_reason_why_a_job_has_not_run_is_told_in_words() {
    let desk = Desk::set().await;
    let first = desk.enqueue(job("t.a")).await;
    assert_eq!(desk.explained(&first).await, "No live worker works on queue q.");
    desk.beat("\"t.b\"").await;
    let unknown = "No live worker of queue q knows its kind t.a: it waits until one does, and spends no attempt.";
    assert_eq!(desk.explained(&first).await, unknown);
    desk.run(format!("delete from postrider.worker where id = '{WORKER}'")).await;
    desk.beat("\"t.a\", \"t.b\"").await;
    let second = desk.enqueue(job("t.a")).await;
    let due = |before: &str, running: u32| {
        format!(
            "It is due. {before} before it in queue q, where {running} run on one worker: it starts when a slot is free and its turn has come."
        )
    };
    assert_eq!(desk.explained(&second).await, due("1 are", 0));
    let runs = desk.claim(1).await[0];
    assert_eq!(desk.explained(&second).await, due("None is", 1));
    desk.jobs.pause("q", true).await.unwrap();
    let paused = desk.explained(&second).await;
    assert!(paused.starts_with("Queue q is paused since 2"), "{paused}");
    desk.jobs.pause("q", false).await.unwrap();

    let at = now().after(HOUR);
    let later = desk.enqueue(NewJob { run_at: Some(at), ..job("t.b") }).await;
    let said = desk.text(format!("select postrider.said(to_timestamp({}))", at.as_micros() / 1_000_000)).await;
    assert_eq!(desk.explained(&later).await, format!("It was enqueued for later: it is due at {said}."));
    desk.finish(runs, 2, "no route to host").await;
    let backoff = desk.explained(&first).await;
    assert!(backoff.starts_with("Attempt 1 of 10 failed (no route to host); the next one is due at 2"), "{backoff}");
    let snoozed = desk.claim(1).await[0];
    desk.finish(snoozed, 3, "").await;
    let says = desk.explained(&second).await;
    assert!(says.starts_with("Its handler put it off: it is due again at 2"), "{says}");
    desk.run("update postrider.later set run_at = now() - interval '1 minute' where why = 2").await;
    let says = desk.explained(&second).await;
    assert!(says.ends_with("That is over: the next beat of a worker makes it ready."), "{says}");
}

#[tokio::test]
async fn i4_what_a_job_waits_for_beside_its_time_is_told_in_words() {
    let desk = Desk::set().await;
    desk.beat("\"t.a\", \"t.b\"").await;
    let alike = || job("t.b").unique(Unique::OneRunningOneWaiting);
    let one = desk.enqueue(alike()).await;
    let running = desk.claim(1).await[0];
    let two = desk.enqueue(alike()).await;
    let behind = format!("Job {one}, which is like it, runs: it comes after that one.");
    assert_eq!(desk.explained(&two).await, behind);
    assert_eq!(desk.claim(1).await, []);
    assert_eq!(desk.explained(&two).await, behind, "also once it is parked");
    desk.finish(running, 4, "the address is wrong").await;
    let ended = desk.explained(&one).await;
    assert!(ended.starts_with("It was discarded at 2"), "{ended}");
    assert!(ended.ends_with(", in attempt 1 of 10: the address is wrong."), "{ended}");

    let suspect = desk.enqueue(job("t.a")).await;
    desk.run(format!(
        "with r as (delete from postrider.ready where id = {suspect} returning *)
         insert into postrider.parked (queue, key, pos, id, priority, share, losses) select queue, 'strict:', pos, id, priority, share, 2 from r"
    ))
    .await;
    let alone = "Its worker died 2 times while it ran: it waits until it can run alone in queue q.";
    assert_eq!(desk.explained(&suspect).await, alone);
    desk.run("update postrider.parked set key = 'kind:t.a'").await;
    assert!(desk.explained(&suspect).await.starts_with("No live worker of queue q knows its kind t.a"));
    desk.jobs.act(None, postrider::Act::Cancel, std::slice::from_ref(&suspect)).await.unwrap();
    let cancelled = desk.explained(&suspect).await;
    assert!(cancelled.starts_with("It was cancelled at 2"), "{cancelled}");
    let runs = desk.claim(1).await;
    assert_eq!(runs.len(), 1);
    desk.jobs.act(None, postrider::Act::Cancel, std::slice::from_ref(&two)).await.unwrap();
    assert!(desk.explained(&two).await.ends_with("; it is to be cancelled."));
    desk.run("delete from postrider.worker").await;
    assert!(desk.explained(&two).await.contains("which is gone: another worker puts it back"));
}

#[tokio::test]
async fn i4_what_a_job_with_keys_or_of_a_fair_kind_waits_for_is_told_in_words() {
    let desk = Desk::set().await;
    desk.run(
        r#"select postrider.declare('{"app": "more", "kinds": [{"name": "t.fair", "queue": "q", "fair": true}]}')"#,
    )
    .await;
    for owner in ["acme", "globex", "initech"] {
        let fair = desk.enqueue(NewJob { owner: owner.to_owned(), ..job("t.fair") }).await;
        assert_eq!(desk.explained(&fair).await, "No live worker works on queue q.", "{owner}");
    }
    desk.beat("\"t.a\", \"t.b\"").await;
    let ordered = || NewJob { order_key: Some("k".to_owned()), ..job("t.a") };
    let (one, two) = (desk.enqueue(ordered()).await, desk.enqueue(ordered()).await);
    assert_eq!(desk.claim(9).await.len(), 1);
    let behind = format!("Job {one} has the turn of its order key 'k': it comes after that one.");
    assert_eq!(desk.explained(&two).await, behind);

    desk.run("select postrider.set_limit('q', 'l', most => 1)").await;
    let limited = || NewJob { limit_key: Some("l".to_owned()), ..job("t.a") };
    desk.enqueue(limited()).await;
    let full = desk.enqueue(limited()).await;
    assert_eq!(desk.claim(9).await.len(), 1);
    let room = "Its limit key 'l' has no room: it waits until one of that key ends, or until more may start.";
    assert_eq!(desk.explained(&full).await, room);
    desk.run("select postrider.hold('q', 'l', clock_timestamp() + interval '1 hour', 'the other side is down')").await;
    let held = desk.explained(&full).await;
    assert!(
        held.starts_with("Its limit key 'l' is held until 2") && held.ends_with(": the other side is down."),
        "{held}"
    );
}

/// Five of one owner, two of a second, one of a third: what waits in another share is served in turn, and is not before them.
#[tokio::test]
async fn i4_what_waits_for_other_owners_is_not_before_a_job_of_a_fair_kind() {
    let desk = Desk::set().await;
    desk.run(
        r#"select postrider.declare('{"app": "more", "kinds": [{"name": "t.fair", "queue": "q", "fair": true}]}')"#,
    )
    .await;
    let of = |owner: &str| NewJob { owner: owner.to_owned(), ..job("t.fair") };
    let mut last = JobId::new("0");
    for owner in ["globex", "initech", "globex", "acme", "acme", "acme", "acme", "acme"] {
        last = desk.enqueue(of(owner)).await;
    }
    let shares = desk.text("select count(distinct share)::text from postrider.ready").await;
    assert_eq!(shares, "3", "the owners of this test wait in a share each");
    desk.beat("\"t.a\", \"t.fair\"").await;
    let says = |before: &str| {
        format!(
            "It is due. {before} before it in its share of queue q, which takes turns with 2 others, where 0 run on one worker: it starts \
             when a slot is free and its turn has come."
        )
    };
    assert_eq!(desk.explained(&last).await, says("4 are"));
    // a more urgent one goes before all shares, a less urgent one before none
    desk.enqueue(NewJob { priority: Some(1), ..job("t.a") }).await;
    desk.enqueue(NewJob { priority: Some(4), ..job("t.a") }).await;
    assert_eq!(desk.explained(&last).await, says("5 are"));
    desk.run("delete from postrider.ready r using postrider.job j where j.id = r.id and j.owner = 'initech'").await;
    assert!(desk.explained(&last).await.contains("takes turns with 1 other, where"));
}

#[tokio::test]
async fn i1_the_oldest_due_job_is_found_in_whatever_queue_priority_and_share_it_waits() {
    let desk = Desk::set().await;
    desk.run(
        r#"select postrider.declare('{"app": "more", "kinds": [{"name": "t.fair", "queue": "q", "fair": true}]}')"#,
    )
    .await;
    let oldest = async || {
        let micros = inspect::overview(desk.pool()).await.unwrap().oldest_ready_micros;
        micros.map(|micros| micros / 60_000_000)
    };
    assert_eq!(oldest().await, None);
    // more of one queue, of the most urgent, than the look would count
    desk.fill(10_100, "a").await;
    desk.run("update postrider.ready set priority = 1").await;
    assert_eq!(oldest().await, Some(0));
    let old = [
        NewJob { priority: Some(4), ..job("t.a") },
        NewJob { owner: "acme".to_owned(), ..job("t.fair") },
        NewJob { owner: "globex".to_owned(), ..job("t.fair") },
        NewJob { queue: Some("z".to_owned()), ..job("t.a") },
    ];
    for (hours, new) in (1..).zip(old) {
        let id = desk.enqueue(new).await;
        let back =
            format!("update postrider.job set created_at = created_at - interval '{hours} hours' where id = {id}");
        desk.run(back).await;
        assert_eq!(oldest().await, Some(60 * hours), "{id}");
    }
}

/// It was due two hours ago, was put off, and is due once more just now.
#[tokio::test]
async fn i1_a_job_that_was_put_off_is_overdue_from_when_it_is_due_again() {
    let desk = Desk::set().await;
    desk.beat("\"t.a\"").await;
    let id = desk.enqueue(job("t.a")).await;
    desk.run(format!("update postrider.job set created_at = created_at - interval '2 hours' where id = {id}")).await;
    assert_eq!(desk.alerts().await["oldest_due"].severity, Severity::Critical);
    desk.finish(desk.claim(1).await[0], 3, "").await;
    desk.run("update postrider.later set run_at = clock_timestamp()").await;
    desk.beat("\"t.a\"").await;
    assert_eq!(desk.text("select count(*)::text from postrider.ready").await, "1");
    assert!(!desk.alerts().await.contains_key("oldest_due"));
    let micros = inspect::overview(desk.pool()).await.unwrap().oldest_ready_micros.unwrap();
    assert!(micros < 60_000_000, "{micros} µs");
    desk.run("update postrider.ready set again_at = again_at - interval '10 minutes'").await;
    assert_eq!(desk.alerts().await["oldest_due"].severity, Severity::Warning);
}

/// Two behind the one that runs, and three that no claim has looked at.
#[tokio::test]
async fn i4_the_depth_of_a_lane_is_what_waits_in_it_also_if_nobody_has_looked_at_it() {
    let desk = Desk::set().await;
    desk.beat("\"t.a\"").await;
    let ordered = || NewJob { order_key: Some("k".to_owned()), ..job("t.a") };
    for _ in 0..3 {
        desk.enqueue(ordered()).await;
    }
    assert_eq!(desk.claim(9).await.len(), 1);
    let depth = async || desk.text("select depth from postrider.lanes('q', '', 10)").await;
    assert_eq!(depth().await, "2");
    for _ in 0..2 {
        desk.enqueue(ordered()).await;
    }
    assert_eq!(depth().await, "4");
    desk.enqueue(NewJob { run_at: Some(now().after(HOUR)), ..ordered() }).await;
    assert_eq!(depth().await, "4", "what waits for its time does not wait in the lane");
    desk.run("update postrider.later set run_at = clock_timestamp()").await;
    desk.beat("\"t.a\"").await;
    assert_eq!(depth().await, "5");
    desk.fill(1200, "q").await;
    desk.run("update postrider.ready set order_key = 'k', flags = 32 where order_key is null").await;
    assert_eq!(depth().await, "1000", "it is counted up to there");
}

#[tokio::test]
async fn i5_an_id_that_nobody_was_given_is_not_found() {
    let desk = Desk::set().await;
    for id in ["4611686018427387904", "-1", "0", "no-such-job", ""] {
        let id = JobId::new(id);
        assert_eq!(desk.inspector.job(&id).await.unwrap(), None);
        assert_eq!(desk.inspector.look(&id).await.unwrap(), Look::Unknown);
        assert_eq!(desk.inspector.explain(&id).await.unwrap(), None);
    }
}

#[tokio::test]
async fn a1_failures_that_say_the_same_but_for_names_and_numbers_are_one_group() {
    let desk = Desk::set().await;
    let same = [
        "order 17 not found at 0xDEAD42 (\"a b\")",
        "order 9 not found at 0x1 (\"c\")",
        "order 1.5 not found at 0xab (\"\")",
    ];
    let other = ["timeout of 6f9619ff-8b86-d011-b42d-00cf4fc964ff", "timeout of 3f2504e0-4f89-41d3-9a0c-0305e82c3301"];
    let mut last = JobId::new("0");
    for (text, outcome) in same.iter().map(|text| (text, 2)).chain(other.iter().map(|text| (text, 4))) {
        last = desk.enqueue(job("t.a")).await;
        desk.finish(desk.claim(1).await[0], outcome, text).await;
    }
    desk.enqueue(job("t.b")).await;
    desk.finish(desk.claim(1).await[0], 2, same[0]).await;
    desk.enqueue(job("t.b")).await;
    desk.finish(desk.claim(1).await[0], 1, "").await;
    let groups = inspect::failures(desk.pool(), Some("t.a"), 10).await.unwrap();
    let told: Vec<_> = groups.iter().map(|g| (g.says.as_str(), g.attempts, g.discarded)).collect();
    assert_eq!(told, [("timeout of <uuid>", 2, 2), ("order <n> not found at <hex> (<text>)", 3, 0)]);
    assert_eq!((groups[0].sample.as_str(), &groups[0].last_job), (other[1], &last));
    assert!(groups[1].first_at < groups[1].last_at && groups[1].last_at < groups[0].last_at);
    assert_eq!(inspect::failures(desk.pool(), None, 10).await.unwrap().len(), 3, "another kind is another group");
    assert_eq!(inspect::failures(desk.pool(), None, 10).await.unwrap().iter().map(|g| g.attempts).sum::<u64>(), 6);
    assert_eq!(desk.text("select count(*)::text from postrider.failed").await, "0", "each is counted once");
}

#[tokio::test]
async fn a1_a_failing_attempt_waits_for_nobody_who_counts_failures() {
    let desk = Desk::set().await;
    for _ in 0..2 {
        desk.enqueue(job("t.a")).await;
    }
    let claimed = desk.claim(2).await;
    desk.finish(claimed[0], 4, "broke").await;
    let mut counting = desk.pool().begin().await.unwrap();
    let n: i64 =
        sqlx::query_scalar("select count(*) from postrider.failures()").fetch_one(&mut *counting).await.unwrap();
    assert_eq!(n, 1);
    sqlx::query("select from postrider.failure for update").execute(&mut *counting).await.unwrap();
    let unhindered = tokio::time::timeout(Duration::from_secs(10), desk.finish(claimed[1], 4, "broke")).await;
    unhindered.expect("it waits for who counts");
    // a second one who looks meanwhile is not held up either
    assert_eq!(inspect::failures(desk.pool(), None, 10).await.unwrap().len(), 0);
    counting.commit().await.unwrap();
    let groups = inspect::failures(desk.pool(), None, 10).await.unwrap();
    assert_eq!(groups.iter().map(|g| g.attempts).collect::<Vec<_>>(), [2]);
}

#[tokio::test]
async fn a1_a_kind_whose_errors_are_all_different_has_a_bounded_number_of_groups() {
    let desk = Desk::set().await;
    // words, since numbers would be one group
    desk.run(
        "insert into postrider.job (class, id, kind, queue, priority, max_attempts) select 2, g * 4 + 2, 't.a', 'q', 2, 10 from generate_series(1, 450) g;
         insert into postrider.attempt (class, id, lease, attempt, outcome, started_at, error)
         select 2, g * 4 + 2, g, 1, 2, now(), 'no ' || translate(g::text, '0123456789', 'ghijklmnop') from generate_series(1, 450) g",
    )
    .await;
    let groups = inspect::failures(desk.pool(), None, 1_000).await.unwrap();
    assert_eq!(groups.len(), 201);
    let others = groups.iter().find(|g| g.says == "(other errors)").unwrap();
    assert_eq!(others.attempts, 250);
}

#[tokio::test]
async fn c02_a_healthy_bus_has_no_alerts_and_each_trouble_is_told_with_what_to_do() {
    let desk = Desk::set().await;
    desk.run("select postrider.housekeep()").await;
    desk.run("select postrider.relay(10)").await;
    desk.beat("\"t.a\"").await;
    assert_eq!(desk.alerts().await, BTreeMap::new());

    desk.enqueue(job("t.a")).await;
    let refused = desk.claim(1).await[0];
    desk.finish(refused, 4, "broke").await;
    let due = desk.enqueue(job("t.a")).await;
    let parked = |key: &str, pos: i32| {
        format!(
            "insert into postrider.parked (queue, key, pos, id, priority, share) values ('q', '{key}', {pos}, {pos}, 2, 0)"
        )
    };
    let troubles = [
        ("oldest_due", "critical", format!("update postrider.job set created_at = now() - interval '2 hours' where id = {due}")),
        ("suspects", "warning", parked("strict:", 2)),
        ("unknown_kind", "warning", parked("kind:t.gone", 6)),
        ("discarded", "warning", "select".to_owned()),
        ("duty_fails", "warning", "select postrider.duty_failed('retire', 'no space left')".to_owned()),
        ("housekeeping", "warning", "update postrider.duty set done_at = now() - interval '2 hours'".to_owned()),
        ("epoch", "critical", "update postrider.epoch set started_at = now() - interval '3 days' where unit = 'job'".to_owned()),
        ("silent_worker", "warning", "update postrider.worker set beat_at = now() - interval '1 hour'".to_owned()),
        (
            "relay",
            "warning",
            "select postrider.record('a.b', 's'); update postrider.event set recorded_at = now() - interval '5 minutes'".to_owned(),
        ),
        (
            "clock",
            "critical",
            "insert into postrider.worker (id, app, version, host, pid, queues, kinds, beat_at)
             values (gen_random_uuid(), '', '', '', 1, '{}', '{}', now() + interval '1 hour')"
                .to_owned(),
        ),
    ];
    for (_, _, trouble) in &troubles {
        desk.run(trouble.clone()).await;
    }
    let alerts = desk.alerts().await;
    for (name, severity, _) in &troubles {
        let alert = alerts.get(*name).unwrap_or_else(|| panic!("no alert {name}: {alerts:?}"));
        let critical = if *severity == "critical" { Severity::Critical } else { Severity::Warning };
        assert_eq!(alert.severity, critical, "{name}");
        assert!(!alert.says.is_empty() && !alert.remedy.is_empty() && !alert.subject.is_empty(), "{alert:?}");
    }
    assert_eq!(alerts.len(), troubles.len(), "{alerts:?}");
    assert!(alerts["oldest_due"].remedy.contains(&format!("postrider.explain(id) of job {due}")));
    // a queue that is paused is meant to wait
    desk.jobs.pause("q", true).await.unwrap();
    assert!(!desk.alerts().await.contains_key("oldest_due"));
    desk.fill(10_000, "q").await;
    assert!(desk.alerts().await.contains_key("backlog"));
}

#[tokio::test]
async fn c44_whoever_keeps_dead_rows_from_being_cleared_away_is_named() {
    let desk = Desk::set().await;
    let mut holder = desk.pool().acquire().await.unwrap();
    sqlx::raw_sql("set application_name = 'report'; begin isolation level repeatable read; select from postrider.kind")
        .execute(&mut *holder)
        .await
        .unwrap();
    let pid: i32 = sqlx::query_scalar("select pg_backend_pid()").fetch_one(&mut *holder).await.unwrap();
    let sql =
        "select subject || ': ' || says from postrider.alerts_of_server(interval '0') where name = 'long_transaction'";
    let told = desk.text(sql).await;
    assert!(told.starts_with(&format!("process {pid}: a transaction is open since 2")), "{told}");
    assert!(told.contains("(report, idle in transaction)"), "{told}");
    sqlx::raw_sql("rollback").execute(&mut *holder).await.unwrap();
    let n = "select count(*)::text from postrider.alerts_of_server(interval '0')";
    assert_eq!(desk.text(n).await, "0");
}

#[tokio::test]
async fn c44_a_transaction_that_was_prepared_and_left_and_a_slot_that_nobody_reads_are_named() {
    let server = TestServer::start_with(&[("wal_level", "logical")]).await;
    let alerts = async || -> Vec<(String, String, String)> {
        let sql = "select name, severity, subject from postrider.alerts_of_server(interval '0') order by name";
        sqlx::query_as(sql).fetch_all(server.pool()).await.unwrap()
    };
    let run = async |sql: &'static str| {
        sqlx::raw_sql(sql).execute(server.pool()).await.unwrap();
    };
    assert_eq!(alerts().await, []);
    let mut left = server.pool().acquire().await.unwrap();
    sqlx::raw_sql("begin; create table public.kept (n int); prepare transaction 'left-behind'")
        .execute(&mut *left)
        .await
        .unwrap();
    let prepared = ("prepared_transaction".to_owned(), "critical".to_owned(), "left-behind".to_owned());
    assert_eq!(alerts().await, [prepared]);
    run("rollback prepared 'left-behind'").await;
    assert_eq!(alerts().await, []);
    run("select pg_create_logical_replication_slot('forgotten', 'pgoutput')").await;
    let slot = ("replication_slot".to_owned(), "warning".to_owned(), "forgotten".to_owned());
    assert_eq!(alerts().await, [slot]);
    run("select pg_drop_replication_slot('forgotten')").await;
    assert_eq!(alerts().await, []);
}
