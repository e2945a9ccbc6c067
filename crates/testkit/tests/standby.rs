//! Y9: a standby that was promoted has the numbers of its origin, and its log goes on where it was.
#![expect(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a test asks the database itself, and a failed helper is a failed test"
)]

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use postrider::{Bus, Subscription, proof};
use postrider_embedded::{Home, Postgres};
use postrider_testkit::{TestServer, psql, test_options, until};
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::{AssertSqlSafe, PgPool};

const SOON: Duration = Duration::from_mins(1);

async fn run(pool: &PgPool, sql: impl Into<String>) {
    sqlx::raw_sql(AssertSqlSafe(sql.into())).execute(pool).await.unwrap();
}

async fn number(pool: &PgPool, sql: &str) -> i64 {
    sqlx::query_scalar(AssertSqlSafe(sql.to_owned())).fetch_one(pool).await.unwrap()
}

fn events(n: u32) -> String {
    format!("select count(postrider.record('t.made', 's/' || i % 5, to_json(i))) from generate_series(1, {n}) i")
}

async fn pass(pool: &PgPool) -> bool {
    let sql = "select more or why <> 'idle', starting from postrider.relay(100)";
    let (more, starting): (bool, bool) = sqlx::query_as(sql).fetch_one(pool).await.unwrap();
    if starting {
        run(pool, "select postrider.hand_over(100)").await;
    }
    more || starting
}

/// A directory that is removed with the test.
struct Directory(PathBuf);

impl Drop for Directory {
    fn drop(&mut self) {
        let _gone = std::fs::remove_dir_all(&self.0);
    }
}

/// A standby of a server, made by `pg_basebackup` and started on its copy.
fn standby(source: &str, pid: u32, home: &Path) -> Postgres {
    let data = home.join("data");
    let copied = Command::new(psql().with_file_name("pg_basebackup"))
        .args(["--wal-method=stream", "--checkpoint=fast", "--write-recovery-conf", "--dbname", source, "--pgdata"])
        .arg(&data)
        .output()
        .unwrap();
    assert!(copied.status.success(), "{}", String::from_utf8_lossy(&copied.stderr));
    // a server that does not run as root is given what root copied
    let owner = std::fs::metadata(format!("/proc/{pid}")).unwrap();
    if owner.uid() != std::fs::metadata(&data).unwrap().uid() {
        let owns = format!("{}:{}", owner.uid(), owner.gid());
        assert!(Command::new("chown").arg("-R").arg(owns).arg(home).status().unwrap().success());
    }
    Postgres::start(postrider_embedded::Options { home: Home::Persistent(home.to_owned()), ..test_options() }).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn y9_a_promoted_standby_goes_on_in_the_middle_of_a_window_and_of_a_huge_transaction_without_a_rebase() {
    let source = TestServer::with(test_options()).await;
    let pool = source.pool();
    let mut two = ["s.one", "s.order"].map(|name| Subscription::new(name, ["t.made"]));
    let [_, order] = &mut two;
    *order = order.clone().order_by(postrider::OrderBy::Subject);
    Bus::builder(pool.clone()).types(["t.made"]).subscriptions(two).build().await.unwrap();
    run(pool, events(50)).await;
    pass(pool).await;

    let home = Directory(std::env::temp_dir().join(format!("postrider-standby-{}", uuid::Uuid::new_v4())));
    std::fs::create_dir(&home.0).unwrap();
    let (url, pid, path) = (source.url().to_owned(), source.pid().unwrap(), home.0.clone());
    let standby = tokio::task::spawn_blocking(move || standby(&url, pid, &path)).await.unwrap();
    let options: PgConnectOptions = standby.url("postrider").parse().unwrap();
    let copy = PgPoolOptions::new().max_connections(5).connect_lazy_with(options);

    // more than five hundred are huge, and two hundred are not
    run(pool, events(2_000)).await;
    run(pool, events(400)).await;
    run(pool, "select postrider.record('t.made', 's/1', '9', deliver_at => clock_timestamp() + interval '1 second')")
        .await;
    for _ in 0..5 {
        pass(pool).await;
    }
    // what has not committed when the source dies is nowhere
    let mut open = pool.begin().await.unwrap();
    sqlx::raw_sql("select postrider.record('t.made', 'lost')").execute(&mut *open).await.unwrap();
    let written: String = sqlx::query_scalar("select pg_current_wal_insert_lsn()::text").fetch_one(pool).await.unwrap();
    run(pool, "select pg_switch_wal()").await;
    until("the standby has everything", SOON, async || {
        let sql = format!("select (pg_last_wal_replay_lsn() >= '{written}')::int::bigint");
        (number(&copy, &sql).await == 1).then_some(())
    })
    .await;
    source.kill().await;
    run(&copy, "select pg_promote()").await;
    run(&copy, events(30)).await;
    until("everything is relayed", SOON, async || {
        while pass(&copy).await {}
        (number(&copy, "select count(*) from postrider.event_delay where ended_at is null").await == 0).then_some(())
    })
    .await;
    assert_eq!(number(&copy, "select count(*) from postrider.log_epoch").await, 1);
    assert_eq!(number(&copy, "select count(*) from postrider.event").await, 2_481);
    assert_eq!(number(&copy, "select count(*) from postrider.backlog where over_at is not null").await, 1);
    let wrong = "select count(*) from (select e.seq, s.id from postrider.event e cross join postrider.subscription s) want
        left join (select event_seq as seq, subscription as id, count(*) as n from postrider.job group by 1, 2) got using (seq, id)
        where got.n is distinct from 1";
    assert_eq!(number(&copy, wrong).await, 0, "lost or doubled");
    assert_eq!(proof::verify(&copy, None, None).await.unwrap().findings, Vec::<String>::new());
    copy.close().await;
    tokio::task::spawn_blocking(move || standby.stop()).await.unwrap().unwrap();
}
