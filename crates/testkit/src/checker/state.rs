use std::io;
use std::path::Path;

use futures_util::TryStreamExt as _;
use sqlx::PgPool;
use sqlx::postgres::PgPoolCopyExt as _;
use tokio::fs::File;
use tokio::io::{AsyncWriteExt as _, BufWriter};

/// Notes of triggers about leases and outcomes, in a schema of their own.
const WATCH: &str = include_str!("sql/watch.sql");

const SUBJECT: &str = "coalesce(e.subject, j.args ->> 'subject')";

/// What is written down of the database, by the name of the file; a subject is `booking/<transaction>/<number>`.
fn queries() -> [(&'static str, String); 6] {
    let micros = |column: &str| format!("(extract(epoch from {column}) * 1000000)::bigint");
    let part = |column: &str, n: u8| format!("split_part({column}, '/', {n})");
    let (tx, n) = (part(SUBJECT, 2), part(SUBJECT, 3));
    let jobs = format!(
        "select {tx}, {n}, coalesce(p.name, s.name, j.kind), j.id, j.max_attempts, {due}, j.run_at is not null, d.state, d.attempt,
                coalesce(d.lease, 0), coalesce(d.reason, '') <> ''
           from postrider.job j
           left join postrider.event e on e.seq = j.event_seq
           left join postrider.subscription s on s.id = j.subscription
           left join postrider.endpoint p on p.subscription = j.subscription
           left join postrider.done d on d.class = j.class and d.id = j.id
          where j.subscription is null or e.subject like 'booking/%'",
        due = micros("coalesce(j.run_at, j.created_at)"),
    );
    let events = format!(
        "select {}, {}, id from postrider.event where subject like 'booking/%'",
        part("subject", 2),
        part("subject", 3)
    );
    let notes = format!(
        "select job, lease, what, xid, process, coalesce(worker::text, '-'), coalesce(word, '-'), coalesce({}, 0)
           from ledger.note order by step",
        micros("at")
    );
    let attempts = format!("select id, lease, attempt, outcome, {} from postrider.attempt", micros("ended_at"));
    let deliveries = format!("select id, attempt, {} from postrider.delivery_attempt", micros("started_at"));
    [
        ("rows", "select id, n from public.booking".to_owned()),
        ("events", events),
        ("jobs", jobs),
        ("notes", notes),
        ("attempts", attempts),
        ("deliveries", deliveries),
    ]
}

/// Installs the triggers that note every change of a lease and every outcome. For the database of a run, never for a product's.
///
/// # Errors
/// Of the database.
pub async fn watch(pool: &PgPool) -> sqlx::Result<()> {
    sqlx::raw_sql(WATCH).execute(pool).await.map(drop)
}

/// Writes the tables as they are into files of a folder, `<name>.state`.
///
/// # Errors
/// Of the database, or of the files.
pub async fn dump(pool: &PgPool, folder: &Path) -> io::Result<()> {
    for (name, query) in queries() {
        let mut file = BufWriter::new(File::create(folder.join(format!("{name}.state"))).await?);
        let statement = format!("copy ({query}) to stdout");
        let mut rows = pool.copy_out_raw(&statement).await.map_err(io::Error::other)?;
        while let Some(bytes) = rows.try_next().await.map_err(io::Error::other)? {
            file.write_all(&bytes).await?;
        }
        file.flush().await?;
    }
    Ok(())
}
