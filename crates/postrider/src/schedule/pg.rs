use std::time::Duration;

use postrider_contract::{JobId, Missed, Overlap, Timestamp, When};

use super::decide;
use super::handle::ScheduleView;
use crate::error::Error;
use crate::pg::{Arg, Row, Statement, Tx};

pub(super) const DUE: Statement = crate::statement!("sql/due.sql");
pub(super) const FIRE: Statement = crate::statement!("sql/fire.sql");
pub(super) const GIVE_UP: Statement = crate::statement!("sql/give_up.sql");
pub(super) const START: Statement = crate::statement!("sql/start.sql");
pub(super) const RUN: Statement = crate::statement!("sql/run.sql");
pub(super) const PAUSE: Statement = crate::statement!("sql/pause.sql");
pub(super) const DROP: Statement = crate::statement!("sql/drop.sql");
pub(super) const LIST: Statement = crate::statement!("sql/list.sql");

pub(super) const STATEMENTS: &[&Statement] = &[&DUE, &FIRE, &GIVE_UP, &START, &RUN, &PAUSE, &DROP, &LIST];

/// A schedule that is due.
#[derive(Debug)]
pub(super) struct Due {
    pub(super) name: String,
    pub(super) when: When,
    pub(super) zone: String,
    pub(super) row: decide::Row,
    /// The database's time.
    pub(super) now: i64,
}

pub(super) async fn due(tx: &mut dyn Tx, names: &[&str]) -> Result<Vec<Due>, Error> {
    let rows = tx.run(&DUE, &[Arg::Texts(names)]).await?;
    let due = |row: &Row| {
        let (name, zone) = (row.text(0)?.to_owned(), row.text(3)?.to_owned());
        Ok(Due { name, zone, when: when(&DUE, row)?, row: state(&DUE, row)?, now: row.int(9)? })
    };
    rows.iter().map(due).collect()
}

fn when(statement: &'static Statement, row: &Row) -> Result<When, Error> {
    let wrong = Error::Row { statement: statement.name, column: 2, expected: "milliseconds" };
    Ok(match row.opt(1) {
        Some(cron) => When::Cron(cron.to_owned()),
        None => When::Every(Duration::from_millis(u64::try_from(row.int(2)?).map_err(|_| wrong)?)),
    })
}

fn state(statement: &'static Statement, row: &Row) -> Result<decide::Row, Error> {
    let wrong = |column, expected| Error::Row { statement: statement.name, column, expected };
    let missed = match row.text(4)? {
        "skip" => Missed::Skip,
        "once" => Missed::Once,
        "all" => Missed::All(u16::try_from(row.int(5)?).map_err(|_| wrong(5, "a number of runs"))?),
        _ => return Err(wrong(4, "a policy")),
    };
    Ok(decide::Row { next: maybe(row, 6)?, counted_from: row.int(7)?, due: maybe(row, 8)?, missed })
}

fn maybe(row: &Row, column: usize) -> Result<Option<i64>, Error> {
    row.opt(column).map(|_| row.int(column)).transpose()
}

fn or_null(text: Option<&str>) -> Arg<'_> {
    text.map_or(Arg::Null, Arg::Text)
}

fn at(micros: i64) -> String {
    Timestamp::from_micros(micros).to_string()
}

/// Takes what is due; answers with what came of it, and in how many milliseconds the next schedule is due.
pub(super) async fn fire(
    tx: &mut dyn Tx,
    due: &Due,
    look: &decide::Look,
    names: &[&str],
) -> Result<(String, Option<u64>), Error> {
    let (seen, passed) = (due.row.next.map(at), look.due.map(at));
    let next = at(look.next);
    let runs: Vec<String> = look.runs.iter().copied().map(at).collect();
    let runs: Vec<&str> = runs.iter().map(String::as_str).collect();
    let args = [
        Arg::Text(&due.name),
        or_null(seen.as_deref()),
        Arg::Text(&next),
        Arg::Texts(&runs),
        or_null(passed.as_deref()),
        Arg::Int(i64::try_from(look.missed).unwrap_or(i64::MAX)),
        Arg::Texts(names),
    ];
    let rows = tx.run(&FIRE, &args).await?;
    let row = rows.first().ok_or(Error::Row { statement: FIRE.name, column: 0, expected: "one row" })?;
    Ok((row.text(0)?.to_owned(), row.opt(1).and_then(|ms| ms.parse().ok())))
}

pub(super) async fn give_up(tx: &mut dyn Tx, due: &Due, problem: &str) -> Result<(), Error> {
    let seen = due.row.next.map(at);
    tx.run(&GIVE_UP, &[Arg::Text(&due.name), or_null(seen.as_deref()), Arg::Text(problem)]).await.map(drop)
}

pub(super) async fn start(tx: &mut dyn Tx, names: &[&str]) -> Result<i64, Error> {
    let rows = tx.run(&START, &[Arg::Texts(names)]).await?;
    rows.first().map_or(Ok(0), |row| row.int(0))
}

pub(super) async fn run(tx: &mut dyn Tx, name: &str) -> Result<JobId, Error> {
    let rows = tx.run(&RUN, &[Arg::Text(name)]).await?;
    let row = rows.first().ok_or(Error::Row { statement: RUN.name, column: 0, expected: "a job" })?;
    row.text(0).map(JobId::new)
}

pub(super) async fn pause(tx: &mut dyn Tx, name: &str, paused: bool) -> Result<(), Error> {
    let paused = if paused { "true" } else { "false" };
    tx.run(&PAUSE, &[Arg::Text(name), Arg::Text(paused)]).await.map(drop)
}

pub(super) async fn forget(tx: &mut dyn Tx, name: &str) -> Result<(), Error> {
    tx.run(&DROP, &[Arg::Text(name)]).await.map(drop)
}

/// A page of schedules after a name.
pub(super) async fn list(tx: &mut dyn Tx, after: &str) -> Result<Vec<ScheduleView>, Error> {
    tx.run(&LIST, &[Arg::Text(after)]).await?.iter().map(view).collect()
}

fn view(row: &Row) -> Result<ScheduleView, Error> {
    let count = |column| row.int(column).map(|n| u64::try_from(n).unwrap_or(0));
    let flag = |column| row.text(column).map(|text| text == "true");
    let moment = |column| maybe(row, column).map(|micros| micros.map(Timestamp::from_micros));
    let state = state(&LIST, row)?;
    let mut view = ScheduleView {
        name: row.text(0)?.to_owned(),
        when: when(&LIST, row)?,
        zone: row.text(3)?.to_owned(),
        missed: state.missed,
        due_at: moment(8)?,
        kind: row.text(9)?.to_owned(),
        owner: row.text(10)?.to_owned(),
        overlap: if row.text(11)? == "queue" { Overlap::Queue } else { Overlap::Skip },
        run_at_start: flag(12)?,
        paused: flag(13)?,
        problem: row.opt(14).map(str::to_owned),
        ran_at: moment(15)?,
        last_job: row.opt(16).map(JobId::new),
        runs: count(17)?,
        missed_runs: count(18)?,
        overlapped_runs: count(19)?,
        declared_by: row.text(20)?.to_owned(),
        standing: flag(21)?,
        orphaned: flag(22)?,
        next: Vec::new(),
    };
    view.look_ahead(&state);
    Ok(view)
}
