use std::time::Duration;

use sqlx::PgPool;

use crate::contract::Timestamp;
use crate::error::Error;
use crate::pg::{Arg, Row, Statement, Tx as _, borrow};

pub(super) const SUBSCRIPTIONS: Statement = crate::statement!("sql/subscriptions.sql");

const ROWS_MOST: i64 = 1_000;

/// How a subscription is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SubscriptionState {
    /// It gets what is recorded.
    Active,
    /// It has not caught up with what was there when it began.
    Starting,
    /// The application that declared it has not done so for seven days, and none of its workers lives. It still gets what is recorded.
    Orphaned,
    /// It gets nothing any more. Jobs that it made are still there, and can be found by its name.
    Removed,
}

/// A subscription as it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SubscriptionRow {
    /// Its name.
    pub name: String,
    /// Whose events it gets; empty for those of every owner.
    pub owner: String,
    /// Patterns over event types.
    pub types: Vec<String>,
    /// The kind of its jobs.
    pub kind: String,
    /// How it is.
    pub state: SubscriptionState,
    /// How long after the event its job becomes due.
    pub delay: Duration,
    /// The predicate over the data, as the database wrote it back.
    pub predicate: Option<String>,
    /// `subject`, `owner` or `all`, if its jobs run in the order of the events.
    pub order_by: Option<String>,
    /// What becomes of the jobs behind one that fails, if it is not what the kind says.
    pub order_policy: Option<String>,
    /// Only the latest event of a subject counts while its job waits.
    pub coalescing: bool,
    /// Its events leave the instance.
    pub outward: bool,
    /// The application that declared it; empty if it was made by hand.
    pub declared_by: String,
    /// When it was made.
    pub created_at: Timestamp,
    /// When it was declared last.
    pub seen_at: Timestamp,
    /// While it is starting: how many events it has got of what was there.
    pub started_events: Option<u64>,
}

/// The subscriptions by name, those that were removed as well, a thousand at most; `after` is the last name of the page before.
pub async fn subscriptions(pool: &PgPool, after: Option<&str>) -> Result<Vec<SubscriptionRow>, Error> {
    let args = [Arg::Text(after.unwrap_or_default()), Arg::Int(ROWS_MOST)];
    let rows = borrow(pool).await?.run(&SUBSCRIPTIONS, &args).await?;
    rows.iter().map(subscription).collect()
}

fn subscription(row: &Row) -> Result<SubscriptionRow, Error> {
    let wrong = |column, expected| Error::Row { statement: SUBSCRIPTIONS.name, column, expected };
    let said = |column: usize| row.text(column).map(|text| Some(text.to_owned()).filter(|text| !text.is_empty()));
    Ok(SubscriptionRow {
        name: row.text(0)?.to_owned(),
        owner: row.text(1)?.to_owned(),
        types: serde_json::from_str(row.text(2)?).map_err(|_| wrong(2, "an array of texts"))?,
        kind: row.text(3)?.to_owned(),
        state: match row.text(4)? {
            "active" => SubscriptionState::Active,
            "starting" => SubscriptionState::Starting,
            "orphaned" => SubscriptionState::Orphaned,
            "removed" => SubscriptionState::Removed,
            _ => return Err(wrong(4, "a state")),
        },
        delay: Duration::from_millis(u64::try_from(row.int(5)?).unwrap_or(0)),
        predicate: said(6)?,
        order_by: said(7)?,
        order_policy: said(8)?,
        coalescing: row.text(9)? == "true",
        outward: row.text(10)? == "true",
        declared_by: row.text(11)?.to_owned(),
        created_at: Timestamp::from_micros(row.int(12)?),
        seen_at: Timestamp::from_micros(row.int(13)?),
        started_events: row.opt(14).and_then(|text| text.parse().ok()),
    })
}
