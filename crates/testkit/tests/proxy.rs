//! The proxy does to a connection what its script says, at the message that it names: looked at with a plain client and a real Postgres.
#![expect(clippy::unwrap_used, reason = "a failed helper is a failed test")]

use std::io::ErrorKind;
use std::str::FromStr;
use std::time::Duration;

use postrider_testkit::proxy::{At, Counts, Cut, Fault, Proxy, Script, Side};
use postrider_testkit::{TestDb, TestServer, until};
use sqlx::postgres::{PgConnectOptions, PgSslMode};
use sqlx::{ConnectOptions, Connection, Executor, PgConnection};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep, timeout};

/// How long a busy machine may take for what needs no waiting.
const SOON: Duration = Duration::from_mins(1);
/// How long nothing is heard of what never comes.
const NEVER: Duration = Duration::from_millis(300);

async fn connect(proxy: &Proxy) -> PgConnection {
    PgConnection::connect(&proxy.url()).await.unwrap()
}

/// One row is inserted, by a statement of its own.
async fn insert(connection: &mut PgConnection) -> sqlx::Result<i32> {
    sqlx::query_scalar("insert into public.t values (7) returning n").fetch_one(connection).await
}

async fn table(db: &TestDb) {
    db.pool().execute("create table public.t (n int)").await.unwrap();
}

async fn rows(db: &TestDb) -> i64 {
    sqlx::query_scalar("select count(*) from public.t").fetch_one(db.pool()).await.unwrap()
}

/// Waits until the server has seen the end of every connection that came through the proxy.
async fn no_backend_is_left(db: &TestDb) {
    until("the server has seen the end", SOON, async || {
        let sql =
            "select count(*) from pg_stat_activity where datname = current_database() and application_name = 'through'";
        (sqlx::query_scalar::<_, i64>(sql).fetch_one(db.pool()).await.unwrap() == 0).then_some(())
    })
    .await;
}

async fn through(proxy: &Proxy) -> PgConnection {
    PgConnectOptions::from_str(&proxy.url()).unwrap().application_name("through").connect().await.unwrap()
}

fn io_error(error: sqlx::Error) -> ErrorKind {
    match error {
        sqlx::Error::Io(error) => error.kind(),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn it_forwards_and_counts_every_message_by_direction_and_type() {
    let db = TestDb::fresh().await;
    table(&db).await;
    let proxy = Proxy::before(db.url()).await;
    let mut client = connect(&proxy).await;
    assert_eq!(insert(&mut client).await.unwrap(), 7);
    client.execute("begin; commit").await.unwrap();
    client.close().await.unwrap();
    until("the connection has ended", SOON, async || proxy.connections().is_empty().then_some(())).await;
    let counts = proxy.counts();
    // sqlx prepares and describes in a cycle of its own; Terminate ends
    let expected = [(Counts::STARTUP, 1), (b'P', 1), (b'D', 1), (b'B', 1), (b'E', 1), (b'S', 2), (b'Q', 1), (b'X', 1)];
    for (kind, n) in expected {
        assert_eq!(counts.frontend(kind), n, "{}", char::from(kind));
    }
    for (kind, n) in [(b'R', 1), (b'K', 1), (b'Z', 4), (b'1', 1), (b'2', 1), (b'D', 1), (b'C', 3)] {
        assert_eq!(counts.backend(kind), n, "{}", char::from(kind));
    }
    assert_eq!(proxy.accepted(), 1);
}

#[tokio::test]
async fn a_client_that_asks_for_encryption_is_answered_no_and_goes_on_without() {
    let db = TestDb::fresh().await;
    let proxy = Proxy::before(db.url()).await;
    let options = PgConnectOptions::from_str(&proxy.url()).unwrap();
    let mut client = options.clone().ssl_mode(PgSslMode::Prefer).connect().await.unwrap();
    assert_eq!(sqlx::query_scalar::<_, i32>("select 1").fetch_one(&mut client).await.unwrap(), 1);
    assert!(matches!(options.ssl_mode(PgSslMode::Require).connect().await, Err(sqlx::Error::Tls(_))));

    let mut raw =
        TcpStream::connect(proxy.url().split(['@', '/']).find(|part| part.starts_with("127.")).unwrap()).await.unwrap();
    raw.write_all(&[0, 0, 0, 8, 4, 210, 22, 48]).await.unwrap();
    assert_eq!(raw.read_u8().await.unwrap(), b'N', "GSSENCRequest");
}

#[tokio::test]
async fn it_stands_before_a_postgres_on_tcp_as_well_and_before_another_proxy() {
    let db = TestDb::fresh().await;
    let inner = Proxy::before(db.url()).await;
    let outer = Proxy::before(&inner.url()).await;
    let mut client = connect(&outer).await;
    assert_eq!(sqlx::query_scalar::<_, i32>("select 1").fetch_one(&mut client).await.unwrap(), 1);
    inner.act(Fault::Cut(Cut::Rst));
    assert!(client.ping().await.is_err());
}

#[tokio::test]
async fn a_connection_is_cut_at_the_message_that_the_script_names() {
    let db = TestDb::fresh().await;
    table(&db).await;
    let proxy = Proxy::before(db.url()).await;
    // startup, Parse, Describe, Sync, then Bind, Execute, Sync
    for (cut, kinds) in [
        (Cut::Fin, [ErrorKind::UnexpectedEof].as_slice()),
        (Cut::Rst, &[ErrorKind::ConnectionReset, ErrorKind::BrokenPipe]),
    ] {
        for n in 2..=7 {
            proxy.script(move |_| Script::new().at(At::Frontend(n), Fault::Cut(cut)));
            let mut client = through(&proxy).await;
            let kind = io_error(insert(&mut client).await.unwrap_err());
            assert!(kinds.contains(&kind), "{cut:?} at {n}: {kind:?}");
            no_backend_is_left(&db).await;
            assert_eq!(rows(&db).await, 0, "{cut:?} at {n}: without its Sync it did not commit");
        }
    }
    proxy.script(|_| Script::new().at(At::Frontend(1), Fault::Cut(Cut::Fin)));
    assert!(PgConnection::connect(&proxy.url()).await.is_err());
    assert_eq!(proxy.fired(), 13);
}

#[tokio::test]
async fn a_reply_that_is_cut_tells_the_client_nothing_of_what_the_server_did() {
    let db = TestDb::fresh().await;
    table(&db).await;
    let proxy = Proxy::before(db.url()).await;
    let mut client = through(&proxy).await;
    let before = proxy.counts().backends();
    insert(&mut client).await.unwrap();
    let replies = proxy.counts().backends() - before;
    client.close().await.unwrap();
    no_backend_is_left(&db).await;
    let mut landed = rows(&db).await;
    for n in before + 1..=before + replies {
        proxy.script(move |_| Script::new().at(At::Backend(n), Fault::Cut(Cut::Rst)));
        let mut client = through(&proxy).await;
        insert(&mut client).await.unwrap_err();
        no_backend_is_left(&db).await;
        // the first cycle only prepares: ParseComplete, ParameterDescription, RowDescription, ReadyForQuery
        landed += i64::from(n > before + 4);
        assert_eq!(rows(&db).await, landed, "message {n}");
    }
    assert_eq!(proxy.fired(), replies);
}

#[tokio::test]
async fn a_commit_is_cut_before_it_reaches_the_server_or_after_it_landed() {
    let db = TestDb::fresh().await;
    table(&db).await;
    let proxy = Proxy::before(db.url()).await;
    for (at, landed) in [(At::Commit(1), 0), (At::Committed(1), 1)] {
        for how in ["simple", "extended", "alone", "alone and simple"] {
            db.pool().execute("truncate public.t").await.unwrap();
            let fault = (at.clone(), Fault::Cut(Cut::Rst));
            proxy.script(move |_| Script::new().at(fault.0.clone(), fault.1));
            let fired = proxy.fired();
            let mut client = through(&proxy).await;
            let ended = match how {
                "simple" | "extended" => {
                    let mut tx = client.begin().await.unwrap();
                    insert(&mut tx).await.unwrap();
                    if how == "simple" {
                        tx.commit().await
                    } else {
                        sqlx::query_scalar::<_, i32>("COMMIT").fetch_optional(&mut *tx).await.map(drop)
                    }
                }
                "alone" => insert(&mut client).await.map(drop),
                _ => client.execute("insert into public.t values (7)").await.map(drop),
            };
            assert!(matches!(ended, Err(sqlx::Error::Io(_))), "{at:?}, {how}: {ended:?}");
            no_backend_is_left(&db).await;
            assert_eq!(rows(&db).await, landed, "{at:?}, {how}");
            assert_eq!(proxy.fired(), fired + 1, "{at:?}, {how}");
        }
    }
}

#[tokio::test]
async fn a_commit_of_what_had_failed_is_no_commit() {
    let db = TestDb::fresh().await;
    table(&db).await;
    let proxy = Proxy::before(db.url()).await;
    proxy.script(|_| Script::new().at(At::Committed(1), Fault::Cut(Cut::Fin)));
    let mut client = connect(&proxy).await;
    client.execute("begin").await.unwrap();
    client.execute("select 1/0").await.unwrap_err();
    client.execute("commit").await.unwrap();
    assert_eq!((insert(&mut client).await.unwrap(), proxy.fired()), (7, 0));
}

#[tokio::test]
async fn a_stalled_connection_says_nothing_and_goes_on_where_it_was() {
    let db = TestDb::fresh().await;
    table(&db).await;
    let proxy = Proxy::before(db.url()).await;
    proxy.script(|_| Script::new().at(At::Saying("insert".to_owned()), Fault::Stall));
    let mut client = connect(&proxy).await;
    client.ping().await.unwrap();
    let mut inserting = Box::pin(insert(&mut client));
    assert!(timeout(NEVER, &mut inserting).await.is_err(), "it is stalled");
    assert_eq!((rows(&db).await, proxy.connections().len()), (0, 1));
    proxy.resume();
    assert_eq!(inserting.await.unwrap(), 7);
    // and at any time, by hand
    proxy.act(Fault::Stall);
    let mut inserting = Box::pin(insert(&mut client));
    assert!(timeout(NEVER, &mut inserting).await.is_err(), "it is stalled");
    proxy.connections().iter().for_each(postrider_testkit::proxy::Connection::resume);
    assert_eq!(inserting.await.unwrap(), 7);
}

#[tokio::test]
async fn a_black_hole_swallows_both_directions_and_tells_no_end() {
    let db = TestDb::fresh().await;
    table(&db).await;
    let proxy = Proxy::before(db.url()).await;
    let mut client = through(&proxy).await;
    proxy.act(Fault::BlackHole);
    assert!(timeout(NEVER, insert(&mut client)).await.is_err());
    drop(client);
    sleep(NEVER).await;
    let sql =
        "select count(*) from pg_stat_activity where application_name = 'through' and datname = current_database()";
    assert_eq!(sqlx::query_scalar::<_, i64>(sql).fetch_one(db.pool()).await.unwrap(), 1, "the server was told");
    proxy.resume();
    assert_eq!(proxy.connections().len(), 1, "it cannot be resumed");
    proxy.act(Fault::Cut(Cut::Fin));
    no_backend_is_left(&db).await;
    assert_eq!(rows(&db).await, 0);
}

#[tokio::test]
async fn a_half_closed_connection_ends_for_one_side_first() {
    let db = TestDb::fresh().await;
    table(&db).await;
    let proxy = Proxy::before(db.url()).await;
    // the reply to the insert never comes, and the client reads the end; the server has got and done it
    proxy.script(|_| Script::new().at(At::Committed(1), Fault::HalfClose(Side::Client)));
    let mut client = through(&proxy).await;
    assert_eq!(io_error(insert(&mut client).await.unwrap_err()), ErrorKind::UnexpectedEof);
    assert_eq!((rows(&db).await, proxy.connections().len()), (1, 1), "the server's side is open");
    drop(client);
    no_backend_is_left(&db).await;

    proxy.script(|_| Script::new());
    let mut client = through(&proxy).await;
    proxy.act(Fault::HalfClose(Side::Server));
    no_backend_is_left(&db).await;
    assert!(insert(&mut client).await.is_err());
}

#[tokio::test]
async fn messages_are_delayed_and_bytes_come_one_at_a_time() {
    let db = TestDb::fresh().await;
    table(&db).await;
    let proxy = Proxy::before(db.url()).await;
    proxy.script(|_| Script::new().byte_at_a_time());
    let mut client = connect(&proxy).await;
    let long = "x".repeat(3_000);
    let back: String = sqlx::query_scalar("select $1").bind(&long).fetch_one(&mut client).await.unwrap();
    assert_eq!(back, long);
    assert_eq!(insert(&mut client).await.unwrap(), 7);

    proxy.script(|_| Script::new().delay(Duration::from_millis(10)));
    let mut client = connect(&proxy).await;
    let started = Instant::now();
    insert(&mut client).await.unwrap();
    // Parse, Describe, Sync one after another, then their replies, then Bind, Execute, Sync and the first reply
    assert!(started.elapsed() >= Duration::from_millis(100), "{:?}", started.elapsed());
}

#[tokio::test]
async fn one_connection_is_told_from_another_and_new_ones_are_refused_on_demand() {
    let db = TestDb::fresh().await;
    let proxy = Proxy::before(db.url()).await;
    proxy.script(|hello| match (hello.number, hello.application.as_str()) {
        (_, "through") => Script::new().at(At::Saying("select 1".to_owned()), Fault::Cut(Cut::Fin)),
        _ => Script::new(),
    });
    let (mut one, mut other) = (through(&proxy).await, connect(&proxy).await);
    let named: Vec<_> = proxy.connections().iter().map(|c| (c.hello().number, c.hello().application)).collect();
    assert_eq!(named, [(1, "through".to_owned()), (2, String::new())]);
    assert_eq!(proxy.connections().first().unwrap().hello().database, db.name());
    one.execute("select 1").await.unwrap_err();
    other.execute("select 1").await.unwrap();

    proxy.refuse(true);
    assert!(PgConnection::connect(&proxy.url()).await.is_err());
    other.execute("select 1").await.unwrap();
    proxy.refuse(false);
    connect(&proxy).await;
}

#[tokio::test]
async fn it_waits_for_nothing_when_its_server_is_down() {
    let server = TestServer::start().await;
    let proxy = Proxy::before(server.url()).await;
    let mut client = connect(&proxy).await;
    server.kill().await;
    // its sessions notice one by one that it is gone
    timeout(SOON, async { while client.ping().await.is_ok() {} }).await.unwrap();
    let refused = timeout(SOON, PgConnection::connect(&proxy.url())).await.unwrap();
    assert!(refused.is_err());
    server.restart().await;
    connect(&proxy).await.ping().await.unwrap();
}
