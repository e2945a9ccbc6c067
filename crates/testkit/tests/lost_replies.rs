//! F02, F08: replies that never arrive. What a claim took and its worker never saw is handed back; an outcome that was written and not
//! answered is told again and changes nothing. So each job runs exactly once, although its worker cannot know it.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test asks the database itself, and a failed helper is a failed test"
)]

use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use postrider_testkit::{Effect, Fixture, Signal, TestDb, fixture, until};
use rand::{RngExt, SeedableRng, rngs::StdRng};
use sqlx::PgPool;
use sqlx::postgres::PgConnectOptions;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};
use tokio::task::JoinSet;
use tokio::time::sleep;

const JOBS: i32 = 1_000;
const SOON: Duration = Duration::from_mins(1);

async fn number(pool: &PgPool, sql: &'static str) -> i64 {
    sqlx::query_scalar(sql).fetch_one(pool).await.unwrap()
}

async fn prepare(db: &TestDb) {
    fixture::declare(db.pool(), &[]).await.unwrap();
    let sql = "select (postrider.enqueue('t.effect')).id from generate_series(1, $1)";
    sqlx::query_scalar::<_, i64>(sql).bind(JOBS).fetch_all(db.pool()).await.unwrap();
}

/// Works on all jobs against a URL, while `fault` goes on, and looks whether each of them ran exactly once.
async fn each_job_runs_once(db: &TestDb, url: &str, fault: impl Future<Output = ()>) {
    let fixture = Fixture::new(env!("CARGO_BIN_EXE_postrider-fixture"), url);
    let mut worker = fixture.start(&["worker", "--concurrency", "50"]);
    tokio::select! {
        () = fault => {}
        () = until("all jobs are done", Duration::from_secs(90), async || {
            (number(db.pool(), "select count(*) from postrider.done where state = 2").await == i64::from(JOBS)).then_some(())
        }) => {}
    }
    worker.signal(Signal::TERM);
    assert_eq!(worker.exit(SOON).await, Some(0), "{}", worker.log());
    let figures = ["completed", "stale"].map(|name| worker.figure(name));
    assert_eq!(figures, [u64::try_from(JOBS).unwrap(), 0], "it tells of its work what it did");
    let mut ran: Vec<i64> = worker.effects().iter().filter(|e| e.word == "end").map(|e: &Effect| e.job).collect();
    ran.sort_unstable();
    let jobs: Vec<i64> =
        sqlx::query_scalar("select id from postrider.job order by id").fetch_all(db.pool()).await.unwrap();
    assert_eq!(ran, jobs, "a job ran twice or never");
    assert_eq!(number(db.pool(), "select count(*) from postrider.done where attempt <> 1").await, 0);
    assert_eq!(number(db.pool(), "select count(*) from postrider.attempt").await, 0);
    assert_eq!(number(db.pool(), "select count(*) from postrider.lease").await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn each_job_runs_once_although_the_connections_that_claim_are_terminated_all_the_time() {
    let db = TestDb::fresh().await;
    prepare(&db).await;
    let ended = AtomicUsize::new(0);
    let mut dice = StdRng::seed_from_u64(6);
    let terminate = async {
        let (mut done, mut patience) = (0, 1);
        loop {
            let sql = "select count(pg_terminate_backend(pid)) from pg_stat_activity
                        where datname = current_database() and application_name = 'postrider claim'";
            ended.fetch_add(usize::try_from(number(db.pool(), sql).await).unwrap(), Ordering::Relaxed);
            // on a busy machine a claim takes longer than that to connect and to be planned: what never comes through is no fault of its
            let now_done = number(db.pool(), "select count(*) from postrider.done").await;
            patience = if now_done > done { 1 } else { (patience * 2).min(32) };
            done = now_done;
            sleep(Duration::from_millis(patience * dice.random_range(5..80))).await;
        }
    };
    each_job_runs_once(&db, db.url(), terminate).await;
    println!("{ended:?} connections terminated");
    assert!(ended.into_inner() >= 5, "the faults did not fire");
}

/// Stands between a worker and Postgres and loses every third reply that says what a claim or a finish did, with its connection.
struct Loser {
    folder: PathBuf,
    tasks: JoinSet<()>,
    claims: Arc<AtomicUsize>,
    finishes: Arc<AtomicUsize>,
}

impl Loser {
    fn before(url: &str) -> (Self, String) {
        let options = PgConnectOptions::from_str(url).unwrap();
        let server = options.get_socket().unwrap().join(".s.PGSQL.5432");
        let folder = std::env::temp_dir().join(format!("postrider-loser-{}", uuid::Uuid::new_v4().simple()));
        std::fs::create_dir(&folder).unwrap();
        let listener = UnixListener::bind(folder.join(".s.PGSQL.5432")).unwrap();
        let mut loser = Self { folder, tasks: JoinSet::new(), claims: Arc::default(), finishes: Arc::default() };
        let (claims, finishes) = (Arc::clone(&loser.claims), Arc::clone(&loser.finishes));
        loser.tasks.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((client, _)) = listener.accept().await {
                let (server, claims, finishes) = (server.clone(), Arc::clone(&claims), Arc::clone(&finishes));
                connections.spawn(async move { drop(pass(client, &server, [&claims, &finishes]).await) });
            }
        });
        let name = options.get_database().unwrap();
        let host = loser.folder.to_str().unwrap().replace('/', "%2F");
        let url = format!("postgres://{}@{host}:5432/{name}?sslmode=disable", options.get_username());
        (loser, url)
    }
}

impl Drop for Loser {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

async fn pass(mut client: UnixStream, server: &Path, lost: [&AtomicUsize; 2]) -> std::io::Result<()> {
    let mut server = UnixStream::connect(server).await?;
    let (mut up, mut down) = (vec![0; 65_536], vec![0; 65_536]);
    let n = client.read(&mut up).await?;
    server.write_all(&up[..n]).await?;
    let hello = String::from_utf8_lossy(&up[..n]).into_owned();
    let purpose = ["postrider claim", "postrider finish"].iter().position(|purpose| hello.contains(purpose));
    let mut answers = 0;
    loop {
        tokio::select! {
            n = client.read(&mut up) => match n? {
                0 => return Ok(()),
                n => server.write_all(&up[..n]).await?,
            },
            n = server.read(&mut down) => {
                let n = n?;
                if n == 0 {
                    return Ok(());
                }
                if let Some(purpose) = purpose && did_something(&down[..n]) {
                    answers += 1;
                    if answers % 3 == 0 {
                        lost[purpose].fetch_add(1, Ordering::Relaxed);
                        return Ok(());
                    }
                }
                client.write_all(&down[..n]).await?;
            }
        }
    }
}

/// Whether these bytes end a statement that answered with rows and is committed: `SELECT n`, then ready and in no transaction.
fn did_something(bytes: &[u8]) -> bool {
    let told = bytes.windows(8).any(|w| w.starts_with(b"SELECT ") && w[7].is_ascii_digit() && w[7] != b'0');
    told && bytes.ends_with(&[b'Z', 0, 0, 0, 5, b'I'])
}

#[tokio::test(flavor = "multi_thread")]
async fn each_job_runs_once_although_every_third_reply_to_a_claim_and_to_an_outcome_is_lost() {
    let db = TestDb::fresh().await;
    prepare(&db).await;
    let (loser, url) = Loser::before(db.url());
    each_job_runs_once(&db, &url, std::future::pending()).await;
    println!("{:?} replies to claims lost, {:?} to outcomes", loser.claims, loser.finishes);
    assert!(loser.claims.load(Ordering::Relaxed) >= 5, "the faults did not fire");
    assert!(loser.finishes.load(Ordering::Relaxed) >= 3, "the faults did not fire");
}
