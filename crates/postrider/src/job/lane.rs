use postrider_contract::{JobId, Limit, Timestamp};

use crate::error::Error;
use crate::pg::{Arg, Row, Statement, Tx};
use crate::port::{Hold, LaneAct, LaneEffect, LaneKey, LaneView, State};

pub(super) const SET_LIMIT: Statement = crate::statement!("sql/set_limit.sql");
pub(super) const HOLD: Statement = crate::statement!("sql/hold.sql");
pub(super) const LANES: Statement = crate::statement!("sql/lanes.sql");
pub(super) const ACT_ON_LANE: Statement = crate::statement!("sql/act_on_lane.sql");

pub(crate) async fn set_limit(tx: &mut dyn Tx, queue: &str, key: &str, limit: Limit) -> Result<(), Error> {
    let most = limit.most.map(|most| most.to_string());
    let starts = limit.rate.map(|rate| rate.starts.to_string());
    let per = limit.rate.map(|rate| format!("{} milliseconds", rate.per.as_millis()));
    let args = [
        Arg::Text(queue),
        Arg::Text(key),
        most.as_deref().map_or(Arg::Null, Arg::Text),
        starts.as_deref().map_or(Arg::Null, Arg::Text),
        per.as_deref().map_or(Arg::Null, Arg::Text),
    ];
    tx.run(&SET_LIMIT, &args).await.map(drop)
}

pub(crate) async fn hold(tx: &mut dyn Tx, hold: Hold<'_>) -> Result<(), Error> {
    let until = hold.until.map(|at| at.to_string());
    let args = [
        Arg::Text(hold.queue),
        Arg::Text(hold.key),
        until.as_deref().map_or(Arg::Null, Arg::Text),
        Arg::Text(hold.reason),
    ];
    tx.run(&HOLD, &args).await.map(drop)
}

/// Which lanes of a queue.
#[derive(Debug, Clone, Copy)]
pub(crate) enum LaneLook<'a> {
    One(&'a LaneKey),
    Page { after: Option<&'a LaneKey>, most: usize, stopped: bool },
}

/// A key as the table has it.
fn written(key: &LaneKey) -> String {
    match key {
        LaneKey::Limit(key) => format!("limit:{key}"),
        LaneKey::Order(key) => format!("order:{key}"),
    }
}

pub(crate) async fn lanes(tx: &mut dyn Tx, queue: &str, look: LaneLook<'_>) -> Result<Vec<LaneView>, Error> {
    let (after, most, only, stopped) = match look {
        LaneLook::One(key) => (String::new(), 1, Some(written(key)), false),
        LaneLook::Page { after, most, stopped } => (after.map(written).unwrap_or_default(), most, None, stopped),
    };
    let args = [
        Arg::Text(queue),
        Arg::Text(&after),
        Arg::Int(i64::try_from(most).unwrap_or(1)),
        only.as_deref().map_or(Arg::Null, Arg::Text),
        Arg::Text(if stopped { "true" } else { "false" }),
    ];
    tx.run(&LANES, &args).await?.iter().map(view).collect()
}

fn view(row: &Row) -> Result<LaneView, Error> {
    let wrong = |column, expected| Error::Row { statement: LANES.name, column, expected };
    let at = |column| row.opt(column).and_then(|text| text.parse().ok()).map(Timestamp::from_micros);
    let key = match row.text(0)?.split_once(':') {
        Some(("order", key)) => LaneKey::Order(key.to_owned()),
        Some(("limit", key)) => LaneKey::Limit(key.to_owned()),
        _ => return Err(wrong(0, "the key of a lane")),
    };
    Ok(LaneView {
        key,
        depth: u64::try_from(row.int(1)?).unwrap_or(0),
        head: row.opt(2).map(JobId::new),
        head_state: row.opt(3).and_then(State::named),
        since: at(4).ok_or_else(|| wrong(4, "a moment"))?,
        stopped_at: at(5),
        reason: row.opt(6).map(str::to_owned),
        held_until: at(7),
    })
}

pub(crate) async fn act_on_lane(tx: &mut dyn Tx, queue: &str, key: &str, act: LaneAct) -> Result<LaneEffect, Error> {
    let rows = tx.run(&ACT_ON_LANE, &[Arg::Text(queue), Arg::Text(key), Arg::Text(act.name())]).await?;
    match rows.first().and_then(|row| row.opt(0)) {
        Some("done") => Ok(LaneEffect::Done),
        Some("running") => Ok(LaneEffect::Running),
        Some("busy") => Ok(LaneEffect::Busy),
        Some("unknown") => Ok(LaneEffect::Unknown),
        _ => Err(Error::Row { statement: ACT_ON_LANE.name, column: 0, expected: "an effect" }),
    }
}
