use std::fs::File;
use std::path::Path;
use std::time::Duration;

use anyhow::Context as _;
use tokio_util::sync::CancellationToken;

use super::args::Dev;
use super::connect;
use super::printed::{Live, tell};
use super::run::{Ending, end, runtime};
use super::signals::Signals;
use crate::config::{Config, Problem};
use crate::dev::app::App;
use crate::dev::events::{self, BadLine, Line};
use crate::dev::place::{self, Place};
use crate::dev::told::Told;
use crate::dev::{demo, live};

/// The events that `scripts/events.mjs` writes.
const CACHE: &str = ".cache/events.ndjson";
const IN_PLACE_EVERY: Duration = Duration::from_millis(500);
const ELSEWHERE_EVERY: Duration = Duration::from_secs(5);

/// What is recorded, and where it comes from.
struct Source {
    lines: Vec<Line>,
    named: String,
}

pub(super) fn run(config: &Config, args: &Dev) -> Result<(), Ending> {
    place::check(config, args.ephemeral)?;
    let source = source(config, args)?;
    let runtime = runtime()?;
    // From here on a signal is waited for, so that it finds a Postgres that can be stopped in order.
    let signals = runtime.block_on(async { Signals::listen() })?;
    let place = Place::open(config, args.ephemeral)?;
    let outcome = runtime.block_on(show(config, args, &place, source, signals));
    end(runtime);
    let closed = place.close();
    Ok(outcome.and(closed)?)
}

fn source(config: &Config, args: &Dev) -> Result<Source, Ending> {
    if args.demo && config.events.is_some() {
        let remedy = "leave one of them out: --demo makes the events itself";
        return Err(Problem::new("--demo", "a file of events is named too", remedy).into());
    }
    let found = Some(Path::new(CACHE)).filter(|path| !args.demo && path.is_file());
    let Some(path) = config.events.as_deref().or(found) else {
        let lines = demo::events().context("the program's own events are not right")?;
        return Ok(Source { lines, named: "made by the program; --events FILE records others".to_owned() });
    };
    let of_file = |bad: BadLine| Ending::Refused(format!("events: {}: {bad}", path.display()));
    let file = File::open(path).map_err(|e| {
        Problem::new(
            "events",
            format!("{} cannot be read: {e}", path.display()),
            "name a file of events, or use --demo",
        )
    })?;
    Ok(Source { lines: events::read(file).map_err(of_file)?, named: format!("from {}", path.display()) })
}

async fn show(config: &Config, args: &Dev, place: &Place, source: Source, mut signals: Signals) -> anyhow::Result<()> {
    let Source { lines, named } = source;
    let count = lines.len();
    let pool = connect::pool_of(place.url(), config.database_connections)?;
    let shown = connect::place(&pool);
    let mut app = App::start(config, place, (pool, shown.clone()), lines, !args.once).await?;
    tell(format_args!("Page    http://{}/", app.page_address()));
    match place.psql_line() {
        Some(line) => tell(format_args!("psql    {line}")),
        None => tell(format_args!("Data    in {shown}, a Postgres that was running already")),
    }
    if let Some((home, kept)) = place.data() {
        tell(format_args!("Data    in {}, {}", home.display(), if kept { "kept" } else { "removed at the end" }));
    }
    tell(format_args!("Events  {count} {named}"));
    tell("Stop    Ctrl-C\n");

    let mut line = Live::new();
    let watched = watch(&mut app, &mut line, args.stop_after, &mut signals).await;
    line.end();
    let told = stop(app, config.grace, &mut signals).await;
    // What ended the run is the first thing to tell; how it stopped comes after it.
    let told = watched.and(told)?;
    told.lines().iter().for_each(tell);
    match told.complaint() {
        Some(complaint) => Err(anyhow::anyhow!(complaint)),
        None => Ok(()),
    }
}

/// Stops in order; a signal meanwhile cuts.
async fn stop(app: App, grace: Duration, signals: &mut Signals) -> anyhow::Result<Told> {
    let cut = CancellationToken::new();
    let stopping = app.stop(grace, cut.clone());
    tokio::pin!(stopping);
    loop {
        tokio::select! {
            told = &mut stopping => return told,
            () = signals.next() => cut.cancel(),
        }
    }
}

/// Shows the line until a signal, the end of the time, or a failure.
async fn watch(
    app: &mut App,
    line: &mut Live,
    stop_after: Option<Duration>,
    signals: &mut Signals,
) -> anyhow::Result<()> {
    let mut ticks = tokio::time::interval(if line.is_in_place() { IN_PLACE_EVERY } else { ELSEWHERE_EVERY });
    let over = async {
        match stop_after {
            Some(time) => tokio::time::sleep(time).await,
            None => std::future::pending().await,
        }
    };
    tokio::pin!(over);
    loop {
        tokio::select! {
            () = signals.next() => return Ok(()),
            () = &mut over => return Ok(()),
            error = app.failed() => return Err(error),
            _ = ticks.tick() => line.show(&live::line(&app.moment().await)),
        }
    }
}
