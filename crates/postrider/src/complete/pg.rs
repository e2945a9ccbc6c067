use std::time::Duration;

use sqlx::{PgConnection, Row as _};
use uuid::Uuid;

use super::{Ended, Outcome};
use crate::error::Error;
use crate::pg::{Statement, fetch};

pub(super) const FINISH: Statement = crate::statement!("sql/finish.sql");

pub(super) const STATEMENTS: &[&Statement] = &[&FINISH];

/// The longest text of an error that is kept, in bytes.
const ERROR_BYTES_MAX: usize = 8_192;

/// Tells outcomes; answers with those that counted. The others came from a lease that does not hold them any more.
pub(crate) async fn finish(
    connection: &mut PgConnection,
    worker: Uuid,
    outcomes: &[Outcome],
) -> Result<Vec<(i64, i64)>, Error> {
    let failed = |e| Error::from_sqlx(FINISH.name, e);
    let parts: Vec<(i16, i64, Option<String>)> = outcomes.iter().map(|outcome| parts(&outcome.ended)).collect();
    let query = FINISH
        .query_on(connection)
        .bind(worker)
        .bind(outcomes.iter().map(|o| o.lease).collect::<Vec<_>>())
        .bind(outcomes.iter().map(|o| o.id).collect::<Vec<_>>())
        .bind(parts.iter().map(|p| p.0).collect::<Vec<_>>())
        .bind(parts.iter().map(|p| p.1).collect::<Vec<_>>())
        .bind(parts.into_iter().map(|p| p.2).collect::<Vec<_>>())
        .bind(outcomes.iter().map(output).collect::<Vec<_>>());
    let rows = fetch(connection, &FINISH, query).await?;
    rows.iter().map(|row| Ok((row.try_get(0).map_err(failed)?, row.try_get(1).map_err(failed)?))).collect()
}

fn parts(ended: &Ended) -> (i16, i64, Option<String>) {
    let ms = |wait: &Duration| i64::try_from(wait.as_millis()).unwrap_or(i64::MAX / 2);
    match ended {
        Ended::Completed(_) | Ended::Committed => (1, 0, None),
        Ended::Failed { wait, error } => (2, ms(wait), Some(storable(error))),
        Ended::Snoozed(wait) => (3, ms(wait), None),
        Ended::Refused(reason) => (4, 0, Some(storable(reason))),
        Ended::Exhausted { error } => (5, 0, Some(storable(error))),
        Ended::Released => (6, 0, None),
        Ended::Aged { error } => (7, 0, Some(storable(error))),
    }
}

fn output(outcome: &Outcome) -> Option<String> {
    match &outcome.ended {
        Ended::Completed(output) => output.as_ref().map(|output| output.as_str().to_owned()),
        _ => None,
    }
}

/// What a handler said, so that Postgres can hold it: NUL is made visible, the text is capped with a mark.
pub fn storable(text: &str) -> String {
    let mut text = text.replace('\0', "\\0");
    if text.len() > ERROR_BYTES_MAX {
        text.truncate(text.floor_char_boundary(ERROR_BYTES_MAX));
        text.push_str("… (cut)");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_handler_said_is_made_storable() {
        assert_eq!(storable("bad \0 byte"), "bad \\0 byte");
        let long = storable(&"ä".repeat(10_000));
        assert!(long.len() <= ERROR_BYTES_MAX + 16 && long.ends_with("… (cut)"));
    }
}
