use std::sync::Arc;

use anyhow::Context as _;
use postrider::migrate::{self, Component};
use postrider::{Bus, Pooler, Settings, Stopped, WakeUps};
use secrecy::ExposeSecret as _;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use super::connect;
use super::printed::tell;
use super::run::{Ending, end, runtime};
use super::signals::Signals;
use crate::config::{Config, Problem, Role};
use crate::http::{self, Site};
use crate::outward::{QUEUE, Webhooks};
use crate::tasks::Tasks;

/// How long the page may take to stop.
const TASKS_GRACE: std::time::Duration = std::time::Duration::from_secs(5);

pub(super) fn run(config: &Config) -> Result<(), Ending> {
    if config.roles.contains(&Role::Work) && config.seal_key.is_none() {
        let remedy = "give the key that the secrets in this database are sealed with, or leave work out of roles";
        return Err(Problem::new("seal_key", "the role work delivers webhooks and needs it", remedy).into());
    }
    if config.pooler == Pooler::Transaction && config.wake_ups == WakeUps::Listen && config.direct_url.is_none() {
        let remedy = "name the database past the pooler in direct_url, or set wake_ups to poll";
        return Err(Problem::new("wake_ups", "nothing is heard through a pooler in transaction mode", remedy).into());
    }
    let runtime = runtime()?;
    let outcome = runtime.block_on(async {
        let pool = connect::pool(config, "serve")?;
        Ok(serve(config, pool, Signals::listen()?).await?)
    });
    end(runtime);
    outcome
}

async fn serve(config: &Config, pool: sqlx::PgPool, mut signals: Signals) -> anyhow::Result<()> {
    // Only a person decides that a schema changes: another version of the program may be at work on it.
    migrate::check(&pool, Component::ALL).await?;
    let page = TcpListener::bind(config.listen)
        .await
        .with_context(|| format!("nothing can listen on {}; choose another address with --listen", config.listen))?;
    let address = page.local_addr()?;
    let bus = bus(config, &pool).await?;
    let running = bus.start().context("the bus does not start")?;
    let site = Arc::new(Site::new((&pool, config.pooler), connect::place(&pool), None)?);
    let mut serving = Tasks::new(CancellationToken::new());
    serving.start("the page", |stop| http::serve(page, site, stop));
    tell(format_args!("Page    http://{address}/"));
    tell(format_args!("Data    in {}", connect::place(&pool)));

    let failed = tokio::select! {
        () = signals.next() => None,
        error = serving.failed() => Some(error),
    };
    let stopped = tokio::select! {
        stopped = running.stop(config.grace) => Some(stopped),
        () = signals.next() => None,
    };
    let served = serving.stop(TASKS_GRACE).await;
    if let Some(error) = failed {
        return Err(error);
    }
    served?;
    match stopped {
        Some(Stopped::Drained) => Ok(()),
        Some(Stopped::Abandoned(jobs)) => {
            anyhow::bail!("{jobs} deliveries were still running after the grace; they run again elsewhere")
        }
        None => anyhow::bail!("the stop was cut; what was running runs again elsewhere"),
    }
}

async fn bus(config: &Config, pool: &sqlx::PgPool) -> anyhow::Result<Bus> {
    let has = |role| config.roles.contains(&role);
    let settings = Settings {
        relay: has(Role::Relay),
        work: has(Role::Work),
        housekeeping: has(Role::Housekeeping),
        wake_ups: config.wake_ups,
        poll_interval: config.poll_interval,
        pooler: config.pooler,
        ..Settings::default()
    };
    let mut builder = Bus::builder(pool.clone()).app("postrider-server").settings(settings);
    if let Some(instance) = &config.instance {
        builder = builder.instance(instance);
    }
    if let Some(direct) = &config.direct_url {
        builder = builder.listen_on(connect::options_of(direct.expose_secret())?);
    }
    if let Some(keys) = config.seal_key.as_ref().filter(|_| has(Role::Work)) {
        let webhooks = Webhooks::new(pool, keys, &config.allow_cidrs)?;
        builder = builder.kinds([webhooks.kind()]).concurrency(QUEUE, config.webhook_concurrency);
    }
    builder.build().await.context("the deliveries were not declared")
}
