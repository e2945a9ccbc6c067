//! Row capture under load: order per key across transactions, statements of many rows, and what it costs.
#![expect(
    clippy::unwrap_used,
    clippy::print_stderr,
    clippy::disallowed_methods,
    reason = "a test asks the database itself, a failed helper is a failed test, and a measurement prints"
)]

use std::time::{Duration, Instant};

use postrider::{Bus, KindSpec, Subscription};
use postrider_testkit::TestDb;
use postrider_testkit::capture::{connect, sql, value};
use postrider_testkit::conformance::telling;
use sqlx::PgConnection;
use tokio::sync::mpsc::unbounded_channel;

const SOON: Duration = Duration::from_mins(1);

#[tokio::test]
async fn t3_the_changes_of_a_key_are_recorded_in_the_order_of_their_commits() {
    const WRITERS: usize = 6;
    const EACH: usize = 40;
    let db = TestDb::fresh().await;
    let mut c = connect(&db).await;
    sql(&mut c, "create table t (id int primary key, n int not null); insert into t values (1, 0), (2, 0), (3, 0); select postrider.watch('t')").await;
    let mut writers = Vec::new();
    for writer in 0..WRITERS {
        let mut c = connect(&db).await;
        writers.push(tokio::spawn(async move {
            for turn in 0..EACH {
                let key = (writer + turn) % 3 + 1;
                // one statement, or with others around it; committed or not
                let end = if turn % 5 == 4 { "rollback" } else { "commit" };
                let text = format!("begin; select pg_sleep(random() / 500); update t set n = n + 1 where id = {key}; select pg_sleep(random() / 500); {end}");
                sql(&mut c, &text).await;
            }
        }));
    }
    for writer in writers {
        writer.await.unwrap();
    }
    // each commit added one to its key: the order of the commits is that of the numbers
    let out_of_order = "select count(*) from (select (data -> 'new' ->> 'n')::int - row_number() over (partition by subject order by seq) as gap
        from postrider.event) g where gap <> 0";
    assert_eq!(value(&mut c, out_of_order).await, "0");
    assert_eq!(value(&mut c, "select count(*) from postrider.event").await, (WRITERS * EACH * 4 / 5).to_string());
    assert_eq!(value(&mut c, "select sum(n) from t").await, (WRITERS * EACH * 4 / 5).to_string());
}

#[tokio::test]
async fn y7_a_statement_of_many_rows_wakes_the_relay_once() {
    let db = TestDb::fresh().await;
    let mut c = connect(&db).await;
    sql(&mut c, "create table t (id int primary key, n int); select postrider.watch('t')").await;
    let mut ear = sqlx::postgres::PgListener::connect(db.url()).await.unwrap();
    ear.listen_all(["postrider_event", "end"]).await.unwrap();
    let clock = "select is_called::int || '-' || last_value from postrider.wake_event";
    let before = value(&mut c, clock).await;
    sql(&mut c, "insert into t select i, i from generate_series(1, 3500) i").await;
    assert_ne!(value(&mut c, clock).await, before);
    sql(&mut c, "notify \"end\"").await;
    let mut heard = Vec::new();
    while heard.last().is_none_or(|channel| channel != "end") {
        heard.push(ear.recv().await.unwrap().channel().to_owned());
    }
    assert_eq!(heard, ["postrider_event", "end"]);
}

/// The memory of a server process that is its own, in MiB; 0 if it is gone.
fn private_memory(pid: &str) -> u64 {
    let Ok(status) = std::fs::read_to_string(format!("/proc/{pid}/status")) else { return 0 };
    let line = status.lines().find(|line| line.starts_with("RssAnon:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() / 1024
}

/// The statement, and the most memory that its process had of its own, before it and while it ran; the writer stays connected.
async fn changed(db: &TestDb) -> (u64, u64, PgConnection) {
    let mut writer = connect(db).await;
    sql(&mut writer, "select 1").await;
    let pid = value(&mut writer, "pg_backend_pid()").await;
    let before = private_memory(&pid);
    let written = tokio::spawn(async move {
        sql(&mut writer, "update big set n = n + 1").await;
        writer
    });
    let mut most = before;
    while !written.is_finished() {
        most = most.max(private_memory(&pid));
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    (before, most, written.await.unwrap())
}

/// Records others as long as the many are not done; the most memory that a process of the server had of its own meanwhile.
async fn beside(c: &mut PgConnection, open: &str) -> u64 {
    let mut largest = 0;
    while value(c, open).await != "0" {
        sql(c, "select postrider.record('other.came', 'other/2')").await;
        let pids = "select string_agg(pid::text, ' ') from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()";
        let memory = value(c, pids).await.split(' ').map(private_memory).max();
        largest = largest.max(memory.unwrap_or(0));
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    largest
}

/// One statement that changes so many rows of a watched table, the relay that works it off, and somebody else's event that is committed after
/// it. What is allowed: how much the server's process may grow, in MiB.
async fn one_statement_of(rows: u32, growth: u64) {
    let db = TestDb::fresh().await;
    let mut c = connect(&db).await;
    sql(
        &mut c,
        &format!(
            "create table big (id int primary key, n int not null, text text not null);
        insert into big select i, 0, md5(i::text) || md5((-i)::text) from generate_series(1, {rows}) i;
        analyze big; select postrider.watch('big', columns => '{{n}}')"
        ),
    )
    .await;
    let (mouth, mut ear) = unbounded_channel();
    let handler = telling("t.other", mouth).handled_by().cloned().unwrap();
    let other = KindSpec { queue: "other".to_owned(), ..KindSpec::new("t.other") };
    let bus = Bus::builder(db.pool().clone())
        .types(["other.came"])
        // the many become jobs too, which nobody runs here, and in another queue, since a queue has its own order
        .subscriptions([
            Subscription::new("t.other", ["other.*"]).kind(other).handler(handler),
            Subscription::new("t.big", ["big.*"]),
        ])
        .build()
        .await
        .unwrap();
    let began = Instant::now();
    let (before, most, _writer) = changed(&db).await;
    let took = began.elapsed();
    sql(&mut c, "select postrider.record('other.came', 'other/1')").await;
    let committed = Instant::now();
    let running = bus.start().unwrap();
    let job = tokio::time::timeout(Duration::from_hours(1), ear.recv()).await.unwrap().unwrap();
    let waited = committed.elapsed();
    assert_eq!(job.event.unwrap().subject, "other/1");
    let open = "select count(*) from postrider.backlog where over_at is null";
    assert_ne!(value(&mut c, open).await, "0", "the other event waited for all of the many");
    let largest = beside(&mut c, open).await;
    let relayed = committed.elapsed();
    running.stop(SOON).await;
    let others = value(
        &mut c,
        "select count(*) || ' others, which waited ' || array_to_string(percentile_disc(array[0.5, 0.99, 1]) within group (
            order by (extract(epoch from j.created_at - e.recorded_at) * 1000)::int), ', ') || ' ms (p50, p99, most)'
           from postrider.job j join postrider.event e on e.seq = j.event_seq where e.subject = 'other/2'",
    )
    .await;
    assert_eq!(
        value(&mut c, "select count(*) from postrider.event where type = 'big.updated'").await,
        rows.to_string()
    );
    let cuts =
        value(&mut c, "select count(*) || ' slices, the largest of ' || max(n) from postrider.cut where n > 0").await;
    let slowest = value(&mut c, "select coalesce(max(extract(epoch from d) * 1000)::int, 0) from (select at - lag(at) over (order by no) as d from postrider.cut where n > 0) x").await;
    let spilled =
        value(&mut c, "select temp_bytes / 1048576 from pg_stat_database where datname = current_database()").await;
    eprintln!(
        "{rows} rows: statement {took:?}, its process {before} to {most} MiB, spilled {spilled} MiB; {cuts} events, \
               {slowest} ms apart at most; the other event after {waited:?}, the many after {relayed:?}, beside {others}; no process of the \
               server had more than {largest} MiB of its own"
    );
    assert!(most - before <= growth, "its process grew from {before} to {most} MiB");
    let slice: i64 = value(&mut c, "select max(n) from postrider.cut").await.parse().unwrap();
    assert!(slice <= 2_000, "{slice} events in one slice");
}

#[tokio::test]
async fn t3_y8_a_statement_of_many_rows_keeps_the_server_small_and_is_relayed_in_slices_beside_others() {
    one_statement_of(60_000, 60).await;
}

#[tokio::test]
#[ignore = "a measurement of some minutes"]
async fn t3_y8_a_statement_of_two_million_rows() {
    one_statement_of(2_000_000, 60).await;
}

/// The processor time of the server's process for a statement, in microseconds; the statement runs `times` times.
async fn cpu(c: &mut PgConnection, statement: &str, times: u32) -> f64 {
    let pid = value(c, "pg_backend_pid()").await;
    let spent = || {
        let text = std::fs::read_to_string(format!("/proc/{pid}/schedstat")).unwrap();
        text.split(' ').next().unwrap().parse::<f64>().unwrap() / 1000.0
    };
    let text = format!("do $do$ begin for turn in 1..{times} loop {statement}; end loop; end $do$");
    let before = spent();
    sql(c, &text).await;
    spent() - before
}

#[tokio::test]
#[ignore = "a measurement of some minutes"]
async fn t3_what_a_watch_costs() {
    let db = TestDb::fresh().await;
    let mut c = connect(&db).await;
    let like = "(id bigint generated always as identity primary key, a text, b int, c timestamptz default now())";
    for (table, after) in [
        ("bare", String::new()),
        ("one", "select postrider.watch('one')".to_owned()),
        ("two", "select postrider.watch('two', columns => '{b}', condition => 'new.b >= 0')".to_owned()),
        ("ten", [0, 1, 2, 3, 4, 5, 6, 7, 8, 9].map(|n| format!("select postrider.watch('ten', name => 'ten{n}');")).concat()),
        ("rows", "select postrider.declare('{\"app\": \"x\", \"types\": [{\"name\": \"rows.created\"}]}');
            create function told() returns trigger language plpgsql as $$ begin
                perform postrider.record('rows.created', 'rows/' || new.id, json_build_object('new', row_to_json(new))); return null; end $$;
            create trigger told after insert or update on rows for each row execute function told()".to_owned()),
    ] {
        sql(&mut c, &format!("create table {table} {like}; {after}")).await;
        let single = format!("insert into {table} (a, b) values ('hello world', 1)");
        cpu(&mut c, &single, 20).await;
        let one = cpu(&mut c, &single, 2_000).await / 2_000.0;
        let bulk = if table == "ten" { 20_000 } else { 100_000 };
        let many = cpu(&mut c, &format!("insert into {table} (a, b) select 'hello world ' || i, i from generate_series(1, {bulk}) i"), 1).await;
        let changed = cpu(&mut c, &format!("update {table} set b = b + 1 where id <= {bulk}"), 1).await;
        eprintln!("{table}: {one:.1} µs a statement of one row; of {bulk}: {:.2} µs a row inserted, {:.2} updated",
            many / f64::from(bulk), changed / f64::from(bulk));
    }
}
