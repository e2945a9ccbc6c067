//! The conformance suite against River.
#![expect(clippy::expect_used, reason = "helpers of tests")]

use std::sync::Arc;

use futures_util::future::BoxFuture;
use postrider::{Error, Jobs, Runtime};
use postrider_river::River;
use postrider_testkit::TestDb;
use postrider_testkit::conformance::{App, Engine, Stage};
use sqlx::PgPool;

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
            for (queue, jobs) in app.concurrency {
                builder = builder.concurrency(queue, jobs);
            }
            Ok(Arc::new(builder.build().await?) as Arc<dyn Runtime>)
        })
    }

    fn fan_out(&self, process: &dyn Runtime) -> Option<Arc<dyn Jobs>> {
        Some(process.jobs())
    }
}

postrider_testkit::conformance!(OnRiver);
