use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use postrider_contract::signature::Secret;
use postrider_webhook::{EndpointId, Endpoints, NewEndpoint};
use rand::{RngExt as _, SeedableRng as _, rngs::StdRng};
use sqlx::PgPool;
use tokio::time::{Instant, sleep};
use uuid::Uuid;

use super::crew::Crew;
use super::fault::FaultLog;
use crate::checker::{self, Table, Terms};
use crate::fixture::note;

const ENDPOINTS: [&str; 2] = ["hook.a", "hook.b"];
const BOOKINGS: &str = "create table public.booking (id uuid, n int, primary key (id, n))";
/// Whether a job waits or runs, or an event waits for the relay, or neither.
const REST: &str = "select case
    when exists (select from postrider.ready) or exists (select from postrider.later)
      or exists (select from postrider.parked) or exists (select from postrider.lease) then 'works'
    when (select count(*) from postrider.event) <> (select events_total from postrider.cut order by no desc limit 1)
    then 'relays' else 'rests' end";

/// How a stage is set.
#[derive(Debug, Clone)]
pub struct Staging {
    /// The fixture's program.
    pub program: PathBuf,
    /// Where dice begin.
    pub seed: u64,
    /// The time between beats, and after how long a worker is dead.
    pub beats: (Duration, Duration),
    /// After how long a delivery is tried again.
    pub retry: Duration,
    /// How many of a hundred deliveries are answered with a failure.
    pub receiver_fails: u32,
}

/// A database with everything declared, receivers that are never killed, and a folder for what everybody writes down.
#[derive(Debug)]
pub struct Stage {
    pool: PgPool,
    folder: PathBuf,
    staging: Staging,
    endpoints: (Endpoints, Vec<EndpointId>),
    /// The processes.
    pub crew: Crew,
    /// What befalls them.
    pub faults: FaultLog,
}

impl Stage {
    /// Declares everything in a migrated database, watches it, and starts the receivers.
    ///
    /// # Errors
    /// Of the database, of the files, of the processes.
    pub async fn set(staging: Staging, pool: PgPool, url: &str) -> anyhow::Result<Self> {
        let folder = std::env::temp_dir().join(format!("postrider-faults-{}", Uuid::new_v4().simple()));
        fs::create_dir_all(&folder)?;
        sqlx::raw_sql(BOOKINGS).execute(&pool).await?;
        checker::watch(&pool).await?;
        let retry_ms = u64::try_from(staging.retry.as_millis())?;
        note::declared(pool.clone(), retry_ms, None, None).build().await?;

        let mut dice = StdRng::seed_from_u64(staging.seed);
        let secrets: Vec<Secret> = ENDPOINTS.iter().map(|_| Secret::generate(dice.random())).collect();
        let known = ENDPOINTS.iter().zip(&secrets).map(|(name, secret)| format!("{name}={}", *secret.reveal()));
        let known: Vec<String> = known.collect();
        let (seed, fails) = (staging.seed.to_string(), staging.receiver_fails.to_string());
        let mut arguments = vec!["receiver", "--seed", &seed, "--fails", &fails];
        for known in &known {
            arguments.extend(["--endpoint", known]);
        }
        let mut crew = Crew::new(&staging.program, url, &folder);
        let receiver = crew.enlist("receiver-1", &arguments, None)?;
        let address = crew.says(receiver, "listening ").await;

        let (seal, guard) = note::seal_and_guard()?;
        let endpoints = Endpoints::new(pool.clone(), seal, guard);
        let mut ids = Vec::new();
        for (name, secret) in ENDPOINTS.iter().zip(secrets) {
            let endpoint = NewEndpoint::new(*name, format!("http://{address}/{name}"), ["order.*"]);
            let new = NewEndpoint { secret: Some(secret), max_in_flight: 32, ..endpoint };
            ids.push(endpoints.create(new).await?.id);
        }
        let faults = FaultLog::create(&folder)?;
        Ok(Self { pool, folder, staging, endpoints: (endpoints, ids), crew, faults })
    }

    /// What is written down.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The database.
    pub fn pool(&self) -> &PgPool {
        &self.pool
    }

    /// How the stage was set.
    pub fn staging(&self) -> &Staging {
        &self.staging
    }

    /// The arguments of a worker of this stage.
    pub fn worker(&self) -> Vec<String> {
        let ms = |duration: Duration| duration.as_millis().to_string();
        let (beat, dead_after) = self.staging.beats;
        let pairs =
            [("--beat-ms", ms(beat)), ("--dead-after-ms", ms(dead_after)), ("--retry-ms", ms(self.staging.retry))];
        let pairs = pairs.into_iter().flat_map(|(name, value)| [name.to_owned(), value]);
        std::iter::once("ledger-worker".to_owned()).chain(pairs).collect()
    }

    /// What must come of what producers make here.
    pub fn terms(&self) -> Terms {
        Terms {
            subscriptions: note::subscriptions(),
            endpoints: ENDPOINTS.map(str::to_owned).to_vec(),
            kind: note::TASK.to_owned(),
            aftermath: self.staging.beats.1 + Duration::from_secs(3),
        }
    }

    /// Ends the producers, waits until everything has come to rest, ends everybody, and writes down what the database says. What has
    /// not come to rest is found there. `patience`: how long jobs are waited for; `relaying`: how long an event may not be relayed while no job is left.
    ///
    /// # Errors
    /// Of the database or of the files.
    pub async fn settle(&mut self, patience: Duration, relaying: Duration) -> anyhow::Result<()> {
        let mut died = self.crew.dismiss(&["producer"]).await;
        let start = Instant::now();
        let mut worked = Instant::now();
        while start.elapsed() < patience && worked.elapsed() < relaying {
            match sqlx::query_scalar::<_, String>(REST).fetch_one(&self.pool).await.as_deref() {
                Ok("rests") => break,
                Ok("relays") => {}
                _ => worked = Instant::now(),
            }
            died.extend(self.crew.dead().await?);
            // receivers that fail on purpose are well: their operator says so, or they would cool down for longer than anybody waits here
            for id in &self.endpoints.1 {
                self.endpoints.0.resume(*id).await?;
            }
            sleep(Duration::from_millis(50)).await;
        }
        died.extend(self.crew.dismiss(&["worker", "relay"]).await);
        died.extend(self.crew.dismiss(&["receiver"]).await);
        for process in died {
            self.faults.died(&process).await?;
        }
        checker::dump(&self.pool, &self.folder).await?;
        Ok(())
    }

    /// Judges what was written down. The files of a red run stay, the others go.
    ///
    /// # Errors
    /// Of the files.
    pub fn judge(&self) -> anyhow::Result<Table> {
        let table = checker::check(&self.folder, &self.terms())?;
        if table.red().is_empty() {
            fs::remove_dir_all(&self.folder)?;
        }
        Ok(table)
    }
}
