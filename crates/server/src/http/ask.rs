use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use postrider::inspect::{self, COUNT_MOST, Overview};
use postrider::migrate::{self, Component};
use postrider::{
    Error, Filter, Inspector as _, JobView, PgInspector, Pooler, Statement, Timestamp, Tx as _, statement,
};
use postrider_webhook::{Attempt, Endpoints};
use sqlx::PgPool;
use sqlx::postgres::PgPoolOptions;
use tokio::sync::Mutex;

use super::view::{DeliveryRow, EventRow, Figure, JobRow, View, WorkerRow};
use crate::dev::figures::Figures;
use crate::dev::live::{duration, number};
use crate::{outward, system};

const STANDBY: Statement = statement!("sql/standby.sql");
/// How many rows each list shows.
const ROWS: u32 = 20;
/// The page's own connections: it never takes one from the work.
const CONNECTIONS: u32 = 2;
const STATEMENT_MAX_MS: &str = "2000";
/// How long an answer about readiness holds, since every caller may ask.
const READY_HOLDS: Duration = Duration::from_secs(1);

/// What the page asks: the database, on connections of its own, and in `dev` what the process saw.
#[derive(Debug)]
pub struct Site {
    pool: PgPool,
    endpoints: Endpoints,
    database: String,
    seen: Option<Arc<Figures>>,
    ready: Mutex<Option<(Instant, bool)>>,
}

impl Site {
    /// A site on the same database as `pool`, which may have a pooler before it; `database` says which that is, for a person.
    pub fn new(
        (pool, pooler): (&PgPool, Pooler),
        database: String,
        seen: Option<Arc<Figures>>,
    ) -> anyhow::Result<Self> {
        let options = (*pool.connect_options()).clone().application_name("postrider page");
        // a pooler refuses a connection that asks for a setting of its session
        let options = match pooler {
            Pooler::None => options.options([("statement_timeout", STATEMENT_MAX_MS)]),
            _ => options,
        };
        let pool = PgPoolOptions::new().max_connections(CONNECTIONS).acquire_timeout(Duration::from_secs(2));
        let pool = pool.connect_lazy_with(options);
        Ok(Self { endpoints: outward::reader(pool.clone())?, pool, database, seen, ready: Mutex::new(None) })
    }

    /// Everything that the page shows.
    pub(super) async fn view(&self) -> anyhow::Result<View> {
        let overview = self.overview().await?;
        let mut figures = figures(&overview);
        if let Some(seen) = &self.seen {
            figures.extend(seen_figures(seen));
        }
        let events = inspect::events(&self.pool, ROWS).await?;
        let jobs = PgInspector::new(self.pool.clone()).jobs(&Filter::default(), None, ROWS as usize).await?.jobs;
        let deliveries = self.endpoints.attempts(ROWS).await?;
        let workers = inspect::workers(&self.pool).await?;
        Ok(View {
            database: self.database.clone(),
            figures,
            events: events.into_iter().map(event).collect(),
            jobs: jobs.into_iter().map(job).collect(),
            deliveries: deliveries.into_iter().map(delivery).collect(),
            workers: workers.into_iter().map(worker).collect(),
        })
    }

    /// The whole bus at a glance.
    pub async fn overview(&self) -> Result<Overview, Error> {
        inspect::overview(&self.pool).await
    }

    /// Whether the database is there, writable, and has the schema that this program knows.
    pub(super) async fn ready(&self) -> anyhow::Result<()> {
        let mut known = self.ready.lock().await;
        let now = system::now();
        let holds = known.filter(|(asked, _)| now.saturating_duration_since(*asked) < READY_HOLDS);
        if let Some((_, ready)) = holds {
            return if ready { Ok(()) } else { bail!("as a second ago") };
        }
        let answer = self.ask_ready().await;
        *known = Some((now, answer.is_ok()));
        answer
    }

    async fn ask_ready(&self) -> anyhow::Result<()> {
        let rows = postrider::borrow(&self.pool).await?.run(&STANDBY, &[]).await?;
        if rows.first().context("no answer")?.text(0)? != "false" {
            bail!("the database is a standby, which only reads");
        }
        Ok(migrate::check(&self.pool, Component::ALL).await?)
    }
}

fn capped(count: u64) -> String {
    if count >= COUNT_MOST { format!("{} or more", number(COUNT_MOST)) } else { number(count) }
}

fn figures(overview: &Overview) -> Vec<Figure> {
    let figure = |name, value, note| Figure { name, value, note };
    let oldest =
        overview.oldest_ready_micros.map_or_else(|| "–".to_owned(), |micros| duration(Duration::from_micros(micros)));
    vec![
        figure("events", number(overview.relayed), "fanned out since the log began"),
        figure("jobs", number(overview.fanned_out), "made of them"),
        figure("ready", capped(overview.ready), "can be claimed now"),
        figure("oldest", oldest, "has been due for so long"),
        figure("running", number(overview.running), "under a lease"),
        figure("waiting", capped(overview.later), "for their time"),
        figure("retrying", capped(overview.retrying), "of those, failed before"),
        figure("parked", capped(overview.parked), "behind a key or a limit, or until a worker knows the kind"),
        figure("workers", number(overview.workers), "processes that beat"),
    ]
}

fn seen_figures(seen: &Figures) -> Vec<Figure> {
    let figure = |name, value, note| Figure { name, value, note };
    let mut figures = vec![
        figure("recorded", number(seen.recorded.get()), "events, since this start"),
        figure("delivered", number(seen.delivered.get()), "webhooks, signature verified"),
    ];
    if let Some((p50, p99)) = seen.latency() {
        figures.push(figure("p50", duration(p50), "commit to delivered"));
        figures.push(figure("p99", duration(p99), "commit to delivered"));
    }
    figures
}

/// A moment to the millisecond, as a person reads it.
fn clock(moment: Timestamp) -> String {
    let text = moment.to_string();
    match (text.get(..10), text.get(11..23)) {
        (Some(day), Some(time)) => format!("{day} {time}Z"),
        _ => text,
    }
}

fn event(row: inspect::EventRow) -> EventRow {
    EventRow { recorded_at: clock(row.recorded_at), r#type: row.r#type, subject: row.subject, id: row.id }
}

fn job(row: JobView) -> JobRow {
    JobRow {
        created_at: clock(row.created_at),
        kind: row.kind,
        state: row.state.name().to_owned(),
        attempts: format!("{} of {}", row.attempt, row.max_attempts),
        reason: row.reason.unwrap_or_default(),
        id: row.id.to_string(),
    }
}

fn delivery(row: Attempt) -> DeliveryRow {
    let status = row.status.map(|status| format!(" {status}")).unwrap_or_default();
    DeliveryRow {
        started_at: clock(row.started_at),
        event: row.event.unwrap_or_default(),
        endpoint: row.endpoint.map(|id| id.to_string()).unwrap_or_default(),
        attempt: number(u64::try_from(row.attempt).unwrap_or(0)),
        outcome: format!("{}{status}", row.outcome.as_deref().unwrap_or("not known yet")),
        reason: row.reason.into_iter().chain(row.clock_note).collect::<Vec<_>>().join("; "),
        took: row
            .total_us
            .and_then(|us| u64::try_from(us).ok())
            .map_or_else(String::new, |us| duration(Duration::from_micros(us))),
    }
}

fn worker(row: inspect::WorkerRow) -> WorkerRow {
    WorkerRow {
        app: row.app,
        process: row.pid.to_string(),
        queues: row.queues,
        running: number(row.running),
        beat_at: clock(row.beat_at),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_attempt_says_that_the_receivers_clock_is_off() {
        let at = Timestamp::from_micros(1_700_000_000_000_000);
        let of = |reason: Option<&str>, clock_note: Option<&str>| {
            let attempt = Attempt {
                delivery: "6".to_owned(),
                endpoint: None,
                event: None,
                sent_as: None,
                trigger: "auto".to_owned(),
                attempt: 1,
                started_at: at,
                ended_at: Some(at),
                outcome: Some("failed".to_owned()),
                reason: reason.map(str::to_owned),
                status: Some(401),
                failure: None,
                excerpt: None,
                peer: None,
                clock_skew_s: None,
                clock_note: clock_note.map(str::to_owned),
                total_us: None,
            };
            delivery(attempt).reason
        };
        assert_eq!(of(Some("status 401"), Some("its clock is off")), "status 401; its clock is off");
        assert_eq!((of(Some("status 401"), None), of(None, None)), ("status 401".to_owned(), String::new()));
    }
}
