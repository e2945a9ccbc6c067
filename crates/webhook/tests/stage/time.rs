//! The time of a stage: it is moved, not waited for. And what its database tells.

use std::time::Duration;

use postrider_testkit::until;
use sqlx::AssertSqlSafe;

use super::stage::Stage;

/// How long a busy machine may take for what needs no waiting.
pub(crate) const SOON: Duration = Duration::from_mins(1);

impl Stage {
    /// Lets everything that is there become older.
    pub(crate) async fn pass(&self, time: Duration) {
        let by = format!("interval '{} seconds'", time.as_secs());
        let sql = format!(
            "update postrider.job set created_at = created_at - {by}, run_at = run_at - {by};
             update postrider.later set run_at = run_at - {by};
             update postrider.key_limit set held_until = held_until - {by} where held_until < '9000-01-01';
             update postrider.lane set due_at = due_at - {by}, window_at = window_at - {by};
             update postrider.endpoint set enabled_at = enabled_at - {by}, deleted_at = deleted_at - {by};
             update postrider.endpoint_secret set valid_from = valid_from - {by}, valid_until = valid_until - {by};
             update postrider.endpoint_health set failing_since = failing_since - {by}, silent_since = silent_since - {by};
             -- far away first: one may not pass through the place of another
             update postrider.endpoint_window set slot = slot - interval '1000 years';
             update postrider.endpoint_window set slot = slot + interval '1000 years' - {by};
             update postrider.delivery_attempt set started_at = started_at - {by}, ended_at = ended_at - {by}"
        );
        sqlx::raw_sql(AssertSqlSafe(sql)).execute(self.pool()).await.unwrap();
    }

    /// A number that the database tells.
    pub(crate) async fn number(&self, sql: &'static str) -> i64 {
        sqlx::query_scalar(sql).fetch_one(self.pool()).await.unwrap()
    }

    /// Polls until a number of the database is this one; its end is a failure.
    pub(crate) async fn until_number(&self, sql: &'static str, expected: i64) {
        until(&format!("{expected} = {sql}"), SOON, async || (self.number(sql).await == expected).then_some(())).await;
    }
}
