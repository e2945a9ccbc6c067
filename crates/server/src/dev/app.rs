//! The application in small: it starts what there is, tells how it goes, and stops it in order.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use ipnet::IpNet;
use postrider::migrate::{self, Component};
use postrider::{Bus, EventTypeSpec, Pooler, Running, Subscription};
use postrider_webhook::{NewEndpoint, TYPES_MAX};
use sqlx::PgPool;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use super::events::Line;
use super::feeder::Feeder;
use super::figures::Figures;
use super::live::Moment;
use super::place::Place;
use super::sink::Sink;
use super::told::{Stopped, Told};
use super::{business, handlers};
use crate::config::Config;
use crate::http::{self, Site};
use crate::outward::{self, Webhooks};
use crate::system;
use crate::tasks::Tasks;

/// How long the events of the last moment may take to be fanned out and delivered once, at a stop.
const SETTLE_MAX: Duration = Duration::from_secs(5);
const SETTLE_EVERY: Duration = Duration::from_millis(50);
/// How long the feeder and the servers may take to stop.
const TASKS_GRACE: Duration = Duration::from_secs(5);

/// The running application.
#[derive(Debug)]
pub struct App {
    bus: Bus,
    running: Running,
    feeding: Tasks,
    serving: Tasks,
    figures: Arc<Figures>,
    site: Arc<Site>,
    page: SocketAddr,
    started: Instant,
}

impl App {
    /// Brings the database up to date and starts everything.
    pub async fn start(
        config: &Config,
        place: &Place,
        (pool, database): (PgPool, String),
        lines: Vec<Line>,
        again: bool,
    ) -> anyhow::Result<Self> {
        let page = TcpListener::bind(config.listen).await.with_context(|| {
            format!("nothing can listen on {}; choose another address with --listen", config.listen)
        })?;
        let receiver = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.context("no port for the receiver")?;
        if let Some(first) = place.first_url() {
            business::make_database(&first).await?;
        }
        migrate::run(&pool, Component::ALL).await.context("the schema was not brought up to date")?;
        business::seed(&pool).await.context("the demonstration's tables were not made")?;

        let figures = Arc::new(Figures::default());
        let sink = Arc::new(Sink::new(Arc::clone(&figures)));
        let webhooks = Webhooks::new(&pool, &place.seal_keys(config)?, &allowed(config))?;
        let bus = bus(config, &pool, &lines, &figures, &webhooks).await?;

        point(&webhooks, &sink, receiver.local_addr()?, &patterns(&lines)).await?;
        let running = bus.start().context("the bus does not start")?;
        let site = Arc::new(Site::new((&pool, Pooler::None), database, Some(Arc::clone(&figures)))?);
        let page_address = page.local_addr()?;
        let mut serving = Tasks::new(CancellationToken::new());
        serving.start("the receiver", |stop| sink.serve(receiver, stop));
        serving.start("the page", |stop| http::serve(page, Arc::clone(&site), stop));
        let mut feeding = Tasks::new(CancellationToken::new());
        let (recorder, rate) = (bus.recorder(), config.rate);
        let feeder = Feeder { pool, recorder, lines, rate, again, figures: Arc::clone(&figures) };
        feeding.start("the feeder", |stop| feeder.feed(stop));
        Ok(Self { bus, running, feeding, serving, figures, site, page: page_address, started: system::now() })
    }

    /// Where the page is.
    pub fn page_address(&self) -> SocketAddr {
        self.page
    }

    /// Waits until something fails that should not.
    pub async fn failed(&mut self) -> anyhow::Error {
        tokio::select! {
            error = self.feeding.failed() => error,
            error = self.serving.failed() => error,
        }
    }

    /// The figures now.
    pub async fn moment(&self) -> Moment {
        let waiting = self.site.overview().await.map_or(0, |overview| overview.retrying + overview.parked);
        moment(&self.bus, &self.figures, waiting)
    }

    /// Stops the feeder, lets the last events through, stops the bus within `grace`, then the servers.
    pub async fn stop(mut self, grace: Duration, cut: CancellationToken) -> anyhow::Result<Told> {
        let fed = self.feeding.stop(TASKS_GRACE).await;
        cut.run_until_cancelled(self.settle(grace.min(SETTLE_MAX))).await;
        let time = self.started.elapsed();
        let Self { bus, running, mut serving, figures, site, .. } = self;
        let stopped = match cut.run_until_cancelled(running.stop(grace)).await {
            Some(postrider::Stopped::Drained) => Stopped::Drained,
            Some(postrider::Stopped::Abandoned(jobs)) => Stopped::Abandoned(jobs),
            None => Stopped::Cut,
        };
        // Nothing moves any more: what was not delivered waits for its next attempt, or behind others of its endpoint.
        let left = site.overview().await.map_or(0, |overview| overview.retrying + overview.ready + overview.parked);
        let served = serving.stop(TASKS_GRACE).await;
        fed.and(served)?;
        Ok(Told {
            time,
            moment: moment(&bus, &figures, left),
            jobs: bus.figures().fanned_out,
            failed: figures.failed.get(),
            repeated: figures.repeated.get(),
            unsigned: figures.unsigned.get(),
            stopped,
        })
    }

    /// Waits until what was recorded is fanned out and nothing is due, for a while.
    async fn settle(&self, most: Duration) {
        let settled = async {
            while !self.is_settled().await {
                tokio::time::sleep(SETTLE_EVERY).await;
            }
        };
        // Not settled in time is no failure: the database keeps what is left.
        drop(tokio::time::timeout(most, settled).await);
    }

    async fn is_settled(&self) -> bool {
        self.bus.figures().relayed >= self.figures.recorded.get()
            && self
                .site
                .overview()
                .await
                .is_ok_and(|overview| overview.ready == 0 && overview.running == 0 && overview.parked == 0)
    }
}

fn moment(bus: &Bus, figures: &Figures, waiting: u64) -> Moment {
    Moment {
        recorded: figures.recorded.get(),
        fanned_out: bus.figures().relayed,
        done: figures.done.get(),
        delivered: figures.delivered.get(),
        waiting,
        latency: figures.latency(),
    }
}

async fn bus(
    config: &Config,
    pool: &PgPool,
    lines: &[Line],
    figures: &Arc<Figures>,
    webhooks: &Webhooks,
) -> anyhow::Result<Bus> {
    let mut types: Vec<&str> = lines.iter().map(|line| line.r#type.as_str()).collect();
    types.sort_unstable();
    types.dedup();
    let patterns = patterns(lines);
    let bus = Bus::builder(pool.clone())
        .app("postrider-dev")
        .types(types.into_iter().map(|name| EventTypeSpec::new(name).public()))
        .kinds(webhooks.kinds())
        .subscriptions([
            Subscription::new("demo.count", patterns.clone())
                .handler(handlers::count(pool.clone(), Arc::clone(figures))),
            Subscription::new("demo.index", patterns).handler(handlers::index(pool.clone(), Arc::clone(figures))),
        ])
        .concurrency("default", config.queue_concurrency)
        .concurrency(outward::QUEUE, config.webhook_concurrency)
        .build()
        .await;
    bus.context("the demonstration was not declared")
}

/// Makes the two endpoints and tells the receiver's doors what they are signed with.
async fn point(webhooks: &Webhooks, sink: &Sink, receiver: SocketAddr, types: &[String]) -> anyhow::Result<()> {
    for (name, door) in [("steady", &sink.steady), ("shaky", &sink.shaky)] {
        let url = format!("http://{receiver}/{name}");
        let secret = webhooks.replace(NewEndpoint::new(format!("demo {name}"), url, types.to_vec())).await?;
        door.trust(secret);
    }
    Ok(())
}

/// The networks of the configuration, and the loopback of the receiver.
fn allowed(config: &Config) -> Vec<IpNet> {
    let loopback = IpNet::new_assert(Ipv4Addr::LOCALHOST.into(), 8);
    config.allow_cidrs.iter().copied().chain([loopback]).collect()
}

/// Patterns that match the types of the events, and few others: their first segments.
fn patterns(lines: &[Line]) -> Vec<String> {
    let mut patterns: Vec<String> = lines
        .iter()
        .map(|line| match line.r#type.split_once('.') {
            Some((first, _)) => format!("{first}.**"),
            None => line.r#type.clone(),
        })
        .collect();
    patterns.sort_unstable();
    patterns.dedup();
    if patterns.len() > TYPES_MAX { vec!["**".to_owned()] } else { patterns }
}
