use std::fmt;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use rand::SeedableRng as _;
use rand::rngs::StdRng;

use super::stage::{Stage, Staging};
use super::strike::Nemesis;
use crate::checker::Table;
use crate::cluster::TestServer;
use crate::fixture::note;
use crate::proxy::Proxy;

/// A run.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The fixture's program.
    pub program: PathBuf,
    /// Where all dice begin.
    pub seed: u64,
    /// How long faults go on, at least.
    pub lasts: Duration,
    /// How many must befall somebody, at least.
    pub fired_least: u64,
    /// Milliseconds from one fault to the next, at least and at most.
    pub gap_ms: (u64, u64),
    /// How long everything may take to come to rest.
    pub patience: Duration,
}

impl Plan {
    /// A run of some minutes with a fault about every second.
    pub fn new(program: impl Into<PathBuf>, seed: u64, lasts: Duration) -> Self {
        Self {
            program: program.into(),
            seed,
            lasts,
            fired_least: 0,
            gap_ms: (400, 1_600),
            patience: Duration::from_mins(3),
        }
    }
}

/// What came of a run.
#[derive(Debug)]
pub struct Outcome {
    /// What repeats the run.
    pub line: String,
    /// What it came to.
    pub table: Table,
    /// What was written down; it is there only if the run is red.
    pub folder: PathBuf,
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.line)?;
        self.table.fmt(f)?;
        if !self.table.red().is_empty() {
            writeln!(f, "everything that was written down is in {}", self.folder.display())?;
        }
        Ok(())
    }
}

/// Runs a plan on a Postgres of its own: two producers, four workers, two relays, one receiver with two endpoints; a producer and two
/// workers behind proxies.
///
/// # Errors
/// If something could not be run. What is wrong with the library is not an error, but red in the table.
pub async fn run(plan: &Plan) -> anyhow::Result<Outcome> {
    let commit = commit();
    let server = TestServer::start().await;
    let staging = Staging {
        program: plan.program.clone(),
        seed: plan.seed,
        beats: (Duration::from_millis(200), Duration::from_secs(3)),
        retry: Duration::from_millis(300),
        receiver_fails: 7,
    };
    let mut stage = Stage::set(staging, server.pool().clone(), server.url()).await?;
    man(&mut stage, &server, plan.seed).await?;
    let mut nemesis = Nemesis::new(&mut stage, &server, StdRng::seed_from_u64(plan.seed));
    nemesis.rage(plan.lasts, plan.fired_least, plan.gap_ms).await?;
    stage.settle(plan.patience, plan.patience / 3).await?;
    let version: String =
        sqlx::query_scalar("select current_setting('server_version')").fetch_one(server.pool()).await?;
    let table = stage.judge()?;
    let version = version.split(' ').next().unwrap_or_default();
    let line = format!(
        "seed {} commit {commit} postgres {version} seconds {} faults {}",
        plan.seed,
        plan.lasts.as_secs(),
        table.fired()
    );
    Ok(Outcome { line, table, folder: stage.folder().to_owned() })
}

async fn man(stage: &mut Stage, server: &TestServer, seed: u64) -> anyhow::Result<()> {
    let worker = stage.worker();
    let worker: Vec<&str> = worker.iter().map(String::as_str).collect();
    for n in 1..=4 {
        let proxy = if n > 2 { Some(Proxy::before(server.url()).await) } else { None };
        let relays: &[&str] = if n == 1 { &["--relay"] } else { &[] };
        stage.crew.enlist(&format!("worker-{n}"), &[worker.as_slice(), relays].concat(), proxy)?;
    }
    for n in 1..=2 {
        stage.crew.enlist(&format!("relay-{n}"), &[worker.as_slice(), &["--only-relay"]].concat(), None)?;
    }
    for n in 1..=2 {
        let proxy = if n > 1 { Some(Proxy::before(server.url()).await) } else { None };
        // another one at each start, or the same transactions would be meant again
        let seed = format!("{}{n}00{{start}}", seed % 1_000_000_000);
        let arguments = ["producer", "--seed", &seed, "--tasks", "4", "--hold-ms", "150", "--pause-ms", "350"];
        stage.crew.enlist(
            &format!("producer-{n}"),
            &[arguments.as_slice(), &["--jobs", note::TASK]].concat(),
            proxy,
        )?;
    }
    for at in stage.crew.those(|member| matches!(member.role(), "worker" | "relay")) {
        stage.crew.says(at, "started ").await;
    }
    Ok(())
}

/// The commit that this was built from, as far as that can be told: with a plus if files differ from it.
fn commit() -> String {
    let ask = |arguments: &[&str]| {
        let asked = Command::new("git").arg("-C").arg(env!("CARGO_MANIFEST_DIR")).args(arguments).output();
        asked.ok().and_then(|output| String::from_utf8(output.stdout).ok()).unwrap_or_default().trim().to_owned()
    };
    let plus = if ask(&["status", "--porcelain", "--untracked-files=no"]).is_empty() { "" } else { "+" };
    match ask(&["rev-parse", "--short", "HEAD"]) {
        told if told.is_empty() => "unknown".to_owned(),
        told => told + plus,
    }
}
