//! The conformance suite against River.
#![expect(clippy::expect_used, reason = "helpers of tests")]

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use postrider::{Bus, Error, JobId, Jobs, Runtime};
use postrider_river::River;
use postrider_testkit::TestDb;
use postrider_testkit::conformance::{App, Engine, Stage};
use sqlx::{AssertSqlSafe, PgPool};

struct OnRiver;

struct RiverStage(TestDb);

impl Engine for OnRiver {
    fn fresh(&self) -> BoxFuture<'_, Box<dyn Stage>> {
        Box::pin(async {
            let db = TestDb::fresh().await;
            postrider_river::migrate(db.pool()).await.expect("River's tables");
            Box::new(RiverStage(db)) as Box<dyn Stage>
        })
    }
}

impl Stage for RiverStage {
    fn pool(&self) -> &PgPool {
        self.0.pool()
    }

    fn process(&self, app: App) -> BoxFuture<'_, Result<Arc<dyn Runtime>, Error>> {
        Box::pin(async move {
            let mut builder = River::builder(self.0.pool().clone())
                .kinds(app.kinds)
                .beat(app.settings.beat)
                .work(app.settings.work)
                .concurrency_otherwise(app.settings.concurrency)
                .dice(app.dice);
            // event types are the bus's
            if !app.types.is_empty() {
                Bus::builder(self.0.pool().clone()).types(app.types).build().await?;
            }
            for (queue, jobs) in app.concurrency {
                builder = builder.concurrency(queue, jobs);
            }
            Ok(Arc::new(builder.build().await?) as Arc<dyn Runtime>)
        })
    }

    fn sql(&self) -> Option<&PgPool> {
        None
    }

    fn elapse(&self, time: Duration) -> BoxFuture<'_, ()> {
        let by = format!("interval '{} microseconds'", time.as_micros());
        let due = format!("to_jsonb((args ->> 'due_at')::bigint - {})", time.as_micros());
        Box::pin(run(
            self.pool(),
            format!(
                "update river_job set created_at = created_at - {by}, scheduled_at = scheduled_at - {by},
                    args = case when args ? 'due_at' then jsonb_set(args, '{{due_at}}', {due}) else args end
                  where state <> 'running'"
            ),
        ))
    }

    fn forget<'a>(&'a self, id: &'a JobId) -> BoxFuture<'a, ()> {
        Box::pin(run(self.pool(), format!("delete from river_job where id = {id}")))
    }

    fn rob<'a>(&'a self, id: &'a JobId) -> BoxFuture<'a, ()> {
        Box::pin(run(
            self.pool(),
            format!("update river_job set state = 'available' where id = {id} and state = 'running'"),
        ))
    }

    fn looked_ahead(&self) -> BoxFuture<'_, u64> {
        let sql = "select coalesce(seq_tup_read, 0) + coalesce(idx_tup_fetch, 0) from pg_stat_all_tables where relname = 'river_job'";
        Box::pin(async move {
            let n: i64 = sqlx::query_scalar(sql).fetch_one(self.pool()).await.expect("what was read");
            u64::try_from(n).expect("a count")
        })
    }

    fn fan_out(&self, process: &dyn Runtime) -> Option<Arc<dyn Jobs>> {
        Some(process.jobs())
    }
}

async fn run(pool: &PgPool, sql: String) {
    sqlx::raw_sql(AssertSqlSafe(sql)).execute(pool).await.expect("a statement of the stage");
}

postrider_testkit::conformance!(OnRiver);
