//! Postrider itself, through its public face.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use postrider::{
    Answer, Bus, Context, Handler, Job, Jobs, Kind, KindSpec, NewEvent, NewJob, Payload, PgJobs, Recorder,
    Subscription, Verdict, migrate,
};
use sqlx::postgres::PgPoolOptions;
use sqlx::{Connection as _, PgConnection, PgPool};
use tokio::process::Command;

use super::child::{Report, until_told};
use super::{Fut, Mode, Name, Producer, System, args};
use crate::cluster::connect;

pub(super) struct Postrider;

const KIND: &str = "bench.job";
const EVENT: &str = "bench.happened";
/// Jobs at a time in a drain: two full claims.
const DRAIN_CONCURRENCY: usize = 400;

impl System for Postrider {
    fn settings(&self) -> &'static str {
        "concurrency 400 in drains, 64 otherwise; relay, beat and housekeeping on; jobs by `Jobs::enqueue`, 1 000 a call in bulk"
    }

    fn install<'a>(&'a self, url: &'a str) -> Fut<'a, ()> {
        Box::pin(async move {
            let pool = pool(url).await?;
            migrate::run(&pool, &[migrate::Component::Core]).await?;
            declared(&pool).kinds([Kind::new(KIND)]).build().await?;
            pool.close().await;
            Ok(())
        })
    }

    fn producer<'a>(&'a self, url: &'a str) -> Fut<'a, Box<dyn Producer>> {
        Box::pin(async move {
            let connection = connect(url).await?;
            let jobs = PgJobs::new(PgPoolOptions::new().connect_lazy(url)?);
            Ok(Box::new(Connected { connection, jobs, recorder: Recorder::new() }) as Box<dyn Producer>)
        })
    }

    fn worker(&self, mode: Mode, url: &str) -> Result<Command> {
        Name::Postrider.command(mode, url)
    }

    fn drained(&self) -> &'static str {
        "select not exists (select from postrider.lease) and not exists (select from postrider.ready)"
    }

    fn can(&self, _: Mode) -> bool {
        true
    }
}

async fn pool(url: &str) -> Result<PgPool> {
    Ok(PgPoolOptions::new().max_connections(2).connect(url).await?)
}

fn declared(pool: &PgPool) -> postrider::Builder {
    Bus::builder(pool.clone()).app("bench").types([EVENT])
}

struct Connected {
    connection: PgConnection,
    jobs: PgJobs,
    recorder: Recorder,
}

fn job(n: u64) -> Result<NewJob> {
    Ok(NewJob::new(KIND, Payload::parse(args(n))?))
}

fn event(n: u64) -> Result<NewEvent> {
    Ok(NewEvent::new(EVENT, format!("order/{n}"), Payload::parse(args(n))?))
}

impl Producer for Connected {
    fn one(&mut self, n: u64) -> Fut<'_, ()> {
        Box::pin(async move {
            self.jobs.enqueue(Some(&mut self.connection), &[job(n)?]).await?;
            Ok(())
        })
    }

    fn in_transaction(&mut self, n: u64) -> Fut<'_, i64> {
        Box::pin(async move {
            let mut tx = self.connection.begin().await?;
            self.jobs.enqueue(Some(&mut *tx), &[job(n)?]).await?;
            let asked = crate::meter::unix_us();
            tx.commit().await?;
            Ok(asked)
        })
    }

    fn bulk(&mut self, from: u64, count: u64) -> Fut<'_, ()> {
        Box::pin(async move {
            let jobs: Vec<NewJob> = (from..from + count).map(job).collect::<Result<_>>()?;
            let mut tx = self.connection.begin().await?;
            self.jobs.enqueue(Some(&mut *tx), &jobs).await?;
            tx.commit().await?;
            Ok(())
        })
    }

    fn record(&mut self, n: u64) -> Fut<'_, ()> {
        Box::pin(async move {
            self.recorder.record(&mut self.connection, &event(n)?).await?;
            Ok(())
        })
    }

    fn event(&mut self, n: u64) -> Fut<'_, i64> {
        Box::pin(async move {
            let mut tx = self.connection.begin().await?;
            self.recorder.record(&mut *tx, &event(n)?).await?;
            let asked = crate::meter::unix_us();
            tx.commit().await?;
            Ok(asked)
        })
    }
}

struct NoOp(Report);

impl Handler for NoOp {
    fn handle<'a>(&'a self, job: &'a Job, _: &'a Context) -> Answer<'a> {
        let args = job.event.as_ref().map_or(job.args.as_str(), |event| event.data.as_str());
        self.0.started_with(args);
        Box::pin(async { Ok(Verdict::Complete) })
    }
}

pub(super) async fn work(mode: Mode, url: &str) -> Result<()> {
    let pool = pool(url).await?;
    let handler: Arc<dyn Handler> = Arc::new(NoOp(Report::new(mode)));
    let bus = declared(&pool);
    let bus = match mode {
        Mode::EventStarts => bus.subscriptions([Subscription::new("bench.on-happened", [EVENT]).handler(handler)]),
        Mode::Starts => bus.kinds([Kind::new(KIND).handler(handler)]),
        Mode::Drain => {
            bus.kinds([Kind::new(KIND).handler(handler)]).concurrency(KindSpec::new(KIND).queue, DRAIN_CONCURRENCY)
        }
    };
    let running = bus.build().await?.start()?;
    until_told().await?;
    running.stop(Duration::from_secs(1)).await;
    Ok(())
}
