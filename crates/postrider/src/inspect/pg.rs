use sqlx::PgPool;

use postrider_contract::{JobId, Operation, Watch};

use super::capture::{Drift, DriftSeverity, WatchView, types};
use super::watch::{Alert, Duty, Failure, Severity};
use super::{EventRow, Overview, WorkerRow, view};
use crate::contract::Timestamp;
use crate::error::Error;
use crate::pg::{Arg, Row, Statement, Tx as _, borrow};
use crate::port::{Count, State};

const OVERVIEW: Statement = crate::statement!("sql/overview.sql");
const EVENTS: Statement = crate::statement!("sql/events.sql");
const WORKERS: Statement = crate::statement!("sql/workers.sql");

const COUNTS: Statement = crate::statement!("sql/counts.sql");
const FAILURES: Statement = crate::statement!("sql/failures.sql");
const ALERTS: Statement = crate::statement!("sql/alerts.sql");
const DUTIES: Statement = crate::statement!("sql/duties.sql");
const WATCHES: Statement = crate::statement!("sql/watches.sql");
const CHECK_WATCHES: Statement = crate::statement!("sql/check_watches.sql");

pub(super) const STATEMENTS: &[&Statement] = &[
    &OVERVIEW,
    &EVENTS,
    &WORKERS,
    &view::VIEW,
    &view::LIST,
    &view::QUEUES,
    &view::GONE,
    &view::EXPLAIN,
    &COUNTS,
    &FAILURES,
    &ALERTS,
    &DUTIES,
    &super::subscription::SUBSCRIPTIONS,
    &WATCHES,
    &CHECK_WATCHES,
];

const ROWS_MOST: i64 = 200;

async fn rows(pool: &PgPool, statement: &'static Statement, args: &[Arg<'_>]) -> Result<Vec<Row>, Error> {
    borrow(pool).await?.run(statement, args).await
}

fn count(row: &Row, column: usize) -> Result<u64, Error> {
    Ok(u64::try_from(row.int(column)?).unwrap_or(0))
}

fn micros(row: &Row, column: usize) -> Result<Timestamp, Error> {
    row.int(column).map(Timestamp::from_micros)
}

pub(super) async fn overview(pool: &PgPool) -> Result<Overview, Error> {
    let rows = rows(pool, &OVERVIEW, &[]).await?;
    let row = rows.first().ok_or(Error::Row { statement: OVERVIEW.name, column: 0, expected: "one row" })?;
    Ok(Overview {
        relayed: count(row, 0)?,
        fanned_out: count(row, 1)?,
        ready: count(row, 2)?,
        later: count(row, 3)?,
        retrying: count(row, 4)?,
        parked: count(row, 5)?,
        running: count(row, 6)?,
        workers: count(row, 7)?,
        oldest_ready_micros: row.opt(8).and_then(|text| text.parse().ok()),
    })
}

pub(super) async fn events(pool: &PgPool, most: u32) -> Result<Vec<EventRow>, Error> {
    let found = rows(pool, &EVENTS, &[Arg::Int(i64::from(most).min(ROWS_MOST))]).await?;
    found
        .iter()
        .map(|row| {
            Ok(EventRow {
                id: row.text(0)?.to_owned(),
                r#type: row.text(1)?.to_owned(),
                subject: row.text(2)?.to_owned(),
                owner: row.text(3)?.to_owned(),
                recorded_at: micros(row, 4)?,
                data_bytes: count(row, 5)?,
            })
        })
        .collect()
}

pub(super) async fn workers(pool: &PgPool) -> Result<Vec<WorkerRow>, Error> {
    let found = rows(pool, &WORKERS, &[]).await?;
    found
        .iter()
        .map(|row| {
            Ok(WorkerRow {
                id: row.text(0)?.to_owned(),
                app: row.text(1)?.to_owned(),
                pid: row.int(2)?,
                queues: row.text(3)?.to_owned(),
                running: count(row, 4)?,
                started_at: micros(row, 5)?,
                beat_at: micros(row, 6)?,
            })
        })
        .collect()
}

fn moment(row: &Row, column: usize) -> Option<Timestamp> {
    row.opt(column).and_then(|text| text.parse().ok()).map(Timestamp::from_micros)
}

pub(super) async fn counts(pool: &PgPool) -> Result<Vec<Count>, Error> {
    let wrong = || Error::Row { statement: COUNTS.name, column: 2, expected: "a state" };
    let of = |row: &Row| {
        Ok(Count {
            kind: row.text(0)?.to_owned(),
            queue: row.text(1)?.to_owned(),
            state: State::named(row.text(2)?).ok_or_else(wrong)?,
            jobs: count(row, 3)?,
            more: row.text(4)? == "true",
            at: micros(row, 5)?,
        })
    };
    rows(pool, &COUNTS, &[]).await?.iter().map(of).collect()
}

pub(super) async fn failures(pool: &PgPool, kind: Option<&str>, most: u32) -> Result<Vec<Failure>, Error> {
    let args = [kind.map_or(Arg::Null, Arg::Text), Arg::Int(i64::from(most))];
    let of = |row: &Row| {
        Ok(Failure {
            kind: row.text(0)?.to_owned(),
            fingerprint: row.text(1)?.to_owned(),
            says: row.text(2)?.to_owned(),
            sample: row.text(3)?.to_owned(),
            attempts: count(row, 4)?,
            discarded: count(row, 5)?,
            first_at: micros(row, 6)?,
            last_at: micros(row, 7)?,
            last_job: JobId::new(row.text(8)?),
        })
    };
    rows(pool, &FAILURES, &args).await?.iter().map(of).collect()
}

pub(super) async fn alerts(pool: &PgPool) -> Result<Vec<Alert>, Error> {
    let of = |row: &Row| {
        Ok(Alert {
            name: row.text(0)?.to_owned(),
            severity: if row.text(1)? == "critical" { Severity::Critical } else { Severity::Warning },
            subject: row.text(2)?.to_owned(),
            since: moment(row, 3),
            says: row.text(4)?.to_owned(),
            remedy: row.text(5)?.to_owned(),
        })
    };
    rows(pool, &ALERTS, &[]).await?.iter().map(of).collect()
}

pub(super) async fn duties(pool: &PgPool) -> Result<Vec<Duty>, Error> {
    let of = |row: &Row| {
        Ok(Duty {
            name: row.text(0)?.to_owned(),
            done_at: moment(row, 1),
            took_ms: row.opt(2).and_then(|text| text.parse().ok()),
            told: row.opt(3).map(str::to_owned),
            failing_since: moment(row, 4),
            error: row.opt(5).map(str::to_owned),
        })
    };
    rows(pool, &DUTIES, &[]).await?.iter().map(of).collect()
}

pub(super) async fn watches(pool: &PgPool) -> Result<Vec<WatchView>, Error> {
    let wrong = |column| Error::Row { statement: WATCHES.name, column, expected: "json" };
    let names = |row: &Row, column: usize| -> Result<Option<Vec<String>>, Error> {
        row.opt(column).map(|text| serde_json::from_str(text).map_err(|_| wrong(column))).transpose()
    };
    let of = |row: &Row| {
        let operations = names(row, 4)?.unwrap_or_default();
        let optional = |column: usize| row.opt(column).map(str::to_owned);
        Ok(WatchView {
            watch: Watch {
                name: Some(row.text(0)?.to_owned()),
                relation: row.text(1)?.to_owned(),
                columns: names(row, 3)?,
                operations: operations.iter().filter_map(|name| Operation::named(name)).collect(),
                types: types(serde_json::from_str(row.text(5)?).map_err(|_| wrong(5))?),
                condition: optional(6),
                subject: optional(7),
                data: optional(8),
                owner: optional(9),
            },
            key_columns: names(row, 2)?.unwrap_or_default(),
            declared_by: row.text(10)?.to_owned(),
            generation: row.int(11)?,
            seen_at: micros(row, 12)?,
        })
    };
    rows(pool, &WATCHES, &[]).await?.iter().map(of).collect()
}

pub(super) async fn check_watches(pool: &PgPool) -> Result<Vec<Drift>, Error> {
    let of = |row: &Row| {
        Ok(Drift {
            watch: row.text(0)?.to_owned(),
            relation: row.text(1)?.to_owned(),
            severity: match row.text(2)? {
                "critical" => DriftSeverity::Critical,
                "warning" => DriftSeverity::Warning,
                _ => DriftSeverity::Hole,
            },
            problem: row.text(3)?.to_owned(),
            says: row.text(4)?.to_owned(),
            remedy: row.text(5)?.to_owned(),
        })
    };
    rows(pool, &CHECK_WATCHES, &[]).await?.iter().map(of).collect()
}
