use sqlx::PgConnection;
use tracing::error;

use super::Builder;
use crate::error::Error;
use crate::pg::{Arg, Statement, Tx as _};

pub(super) const CHECK_INSTANCE: Statement = crate::statement!("../sql/check_instance.sql");

/// Whether jobs of a kind leave the database for somebody else's server: `postrider.is_outbound`.
pub(super) fn is_outbound(kind: &str) -> bool {
    kind.starts_with("webhook.") || kind.starts_with("http.")
}

impl Builder {
    /// The instance that this process is meant for, such as `production`. The first name that is told to a database becomes its own; a process that
    /// is meant for another one, as happens to a copy of a database, runs no outbound work: webhooks wait, nothing of them fails, and an
    /// alert says so. Default: none, which fits every database.
    #[must_use]
    pub fn instance(mut self, name: impl Into<String>) -> Self {
        self.instance = Some(name.into());
        self
    }

    /// Whether this process is to hold what leaves: its database is another instance.
    pub(super) async fn holds_outbound(&self, connection: &mut PgConnection) -> Result<bool, Error> {
        let Some(name) = &self.instance else { return Ok(false) };
        let rows = connection.run(&CHECK_INSTANCE, &[Arg::Text(name), Arg::Text(&self.app)]).await?;
        let held = rows.first().is_some_and(|row| row.opt(0) == Some("true"));
        if held {
            error!(instance = name, "this database is not the instance {name}: outbound work is held");
        }
        Ok(held)
    }
}
