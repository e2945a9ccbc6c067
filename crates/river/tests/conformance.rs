//! The conformance suite against River.
#![expect(clippy::expect_used, reason = "helpers of tests")]

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use postrider::{Bus, Error, JobId, Jobs, Runtime};
use postrider_river::River;
use postrider_testkit::TestDb;
use postrider_testkit::conformance::crew::{FORBIDDEN, Line, Lined, Perils};
use postrider_testkit::conformance::{App, Engine, Stage};
use postrider_testkit::proxy::{At, Cut, Fault, Proxy, Script};
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
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
        Box::pin(built(self.0.pool().clone(), app))
    }

    fn perils(&self) -> &dyn Perils {
        self
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

async fn built(pool: PgPool, app: App) -> Result<Arc<dyn Runtime>, Error> {
    let mut builder = River::builder(pool.clone())
        .kinds(app.kinds)
        .schedules(app.schedules)
        .beat(app.settings.beat)
        .work(app.settings.work)
        .concurrency_otherwise(app.settings.concurrency)
        .dice(app.dice);
    // event types are the bus's
    if !app.types.is_empty() {
        Bus::builder(pool).types(app.types).build().await?;
    }
    for (queue, jobs) in app.concurrency {
        builder = builder.concurrency(queue, jobs);
    }
    Ok(Arc::new(builder.build().await?) as Arc<dyn Runtime>)
}

/// A line to River's tables that is cut and mended by a proxy.
struct Wire(Proxy);

impl Line for Wire {
    fn cut(&self) {
        self.0.refuse(true);
        self.0.act(Fault::Cut(Cut::Rst));
    }

    fn mend(&self) {
        self.0.refuse(false);
    }
}

impl RiverStage {
    async fn behind(&self, proxy: Proxy, app: App) -> Result<Lined, Error> {
        let options: PgConnectOptions = proxy.url().parse().map_err(Error::Connection)?;
        let process = built(PgPoolOptions::new().connect_lazy_with(options), app).await?;
        Ok(Lined { process, line: Box::new(Wire(proxy)) })
    }
}

impl Perils for RiverStage {
    fn lined(&self, app: App) -> BoxFuture<'_, Result<Lined, Error>> {
        Box::pin(async { self.behind(Proxy::before(self.0.url()).await, app).await })
    }

    fn deaf(&self, app: App) -> BoxFuture<'_, Result<Lined, Error>> {
        Box::pin(async {
            let proxy = Proxy::before(self.0.url()).await;
            proxy.script(|_| Script::new().at(At::Saying("LISTEN".to_owned()), Fault::BlackHole));
            self.behind(proxy, app).await
        })
    }

    fn interrupt(&self) -> BoxFuture<'_, ()> {
        Box::pin(async {
            let sql = "select count(pg_terminate_backend(pid)) from pg_stat_activity
                        where datname = current_database() and pid <> pg_backend_pid()";
            sqlx::query_scalar::<_, i64>(sql).fetch_one(self.pool()).await.expect("an interruption");
        })
    }

    fn spoil<'a>(&'a self, id: &'a JobId) -> BoxFuture<'a, ()> {
        Box::pin(run(self.pool(), format!("alter table river_job add constraint spoiled check (id <> {id}) not valid")))
    }

    fn forbid<'a>(&'a self, kind: &'a str, subject: &'a str) -> BoxFuture<'a, ()> {
        let about = format!("args #>> '{{event,subject}}' = '{subject}'");
        let check = format!("check ((kind = '{kind}' and {about}) is not true)");
        Box::pin(run(self.pool(), format!("alter table river_job add constraint {FORBIDDEN} {check} not valid")))
    }

    fn allow(&self) -> BoxFuture<'_, ()> {
        Box::pin(run(self.pool(), format!("alter table river_job drop constraint {FORBIDDEN}")))
    }
}

async fn run(pool: &PgPool, sql: String) {
    sqlx::raw_sql(AssertSqlSafe(sql)).execute(pool).await.expect("a statement of the stage");
}

postrider_testkit::conformance_enqueue!(OnRiver);
postrider_testkit::conformance_unique!(OnRiver);
postrider_testkit::conformance_claim!(OnRiver);
postrider_testkit::conformance_attempt!(OnRiver);
postrider_testkit::conformance_wait!(OnRiver);
postrider_testkit::conformance_relay!(OnRiver);
postrider_testkit::conformance_order!(OnRiver);
postrider_testkit::conformance_inspect!(OnRiver);
postrider_testkit::conformance_schedule!(OnRiver);
