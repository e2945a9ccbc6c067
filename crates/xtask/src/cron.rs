mod explained; // what they do in another way

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::io::Write as _;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::process::{ExitCode, Stdio};

use anyhow::{Context as _, ensure};
use jiff::tz::{TimeZone, TimeZoneTransition};
use jiff::{SignedDuration, Timestamp};
use postrider::{When, next_runs};
use serde_json::json;
use tokio::process::Command;

use self::explained::EXPLAINED;

const SCRIPTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/cron");
/// Ignored by git; what is compared with is installed here.
const CACHE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../.cache/cron-differential");
/// Around a change of the clock.
const MARGIN: SignedDuration = SignedDuration::from_hours(30);

/// What is looked at around each change of the clock.
const AROUND: &[&str] = &[
    "30 2 * * *",
    "15 1 * * *",
    "0 0 * * *",
    "30 0 * * *",
    "0 3 * * *",
    "30 23 * * *",
    "0,15,30,45 2 * * *",
    "30 1-3 * * *",
    "0 0,12 * * *",
    "*/15 * * * *",
    "7 * * * *",
    "0 */2 * * *",
    "*/20 2 * * *",
];
/// And over the whole time.
const THROUGHOUT: &[&str] =
    &["30 4 1 * *", "0 12 * * 0", "0 5 13 * 5", "45 6 31 1,3,5 *", "0 7 29 2 *", "20 8 * 6 1-5"];
/// In each so many-th zone: one of the libraries takes a second for each of these.
const THROUGHOUT_EACH: usize = 20;

/// What is compared with.
struct Oracle {
    name: &'static str,
    command: Vec<String>,
    zones: Option<(&'static str, &'static str)>,
}

#[derive(Debug, Clone)]
struct Case {
    zone: String,
    cron: &'static str,
    from: i64,
    to: i64,
    /// What the clock does in it.
    change: String,
}

/// Differences of one group, with one explanation or with none.
struct Differences {
    count: usize,
    /// How many minutes after the change.
    within: RangeInclusive<i64>,
    example: String,
}

/// Compares due times with those of two libraries in other languages, in so many zones over so many years; fails if they differ in a way that
/// is not explained.
pub(crate) async fn differential(zones: usize, years: i16) -> anyhow::Result<ExitCode> {
    let oracles = install().await?;
    let cases = cases(zones, years)?;
    let ours: Vec<BTreeSet<i64>> = cases.iter().map(ours).collect::<anyhow::Result<_>>()?;
    let mut out = std::io::stdout();
    let zones: BTreeSet<&str> = cases.iter().map(|case| case.zone.as_str()).collect();
    let due: usize = ours.iter().map(BTreeSet::len).sum();
    writeln!(out, "{} zones, {years} years, {} cases, {due} due times of ours", zones.len(), cases.len())?;
    let mut unexplained = 0;
    for oracle in &oracles {
        let theirs = ask(oracle, &cases).await?;
        let same = ours.iter().zip(&theirs).filter(|(ours, theirs)| Some(*ours) == theirs.as_ref()).count();
        let given_up = theirs.iter().filter(|theirs| theirs.is_none()).count();
        writeln!(out, "{}: {same} of {} cases equal, {given_up} that it gives up", oracle.name, cases.len())?;
        for ((group, why), Differences { count, within, example }) in differences(oracle.name, &cases, &ours, &theirs) {
            unexplained += usize::from(why.is_none());
            let (first, last) = within.into_inner();
            writeln!(out, "  {group}: {count}, {first} to {last} minutes after the change, such as {example}")?;
            writeln!(out, "    {}", why.unwrap_or("NOT EXPLAINED"))?;
        }
    }
    writeln!(out, "{unexplained} groups are not explained")?;
    Ok(if unexplained == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Where an oracle and we differ, and cases that it gives up, by group and explanation.
fn differences(
    oracle: &str,
    cases: &[Case],
    ours: &[BTreeSet<i64>],
    theirs: &[Option<BTreeSet<i64>>],
) -> BTreeMap<(String, Option<&'static str>), Differences> {
    let mut groups = BTreeMap::new();
    for ((case, ours), theirs) in cases.iter().zip(ours).zip(theirs) {
        let change = case.from + MARGIN.as_secs();
        let differing: Vec<(&str, i64)> = match theirs {
            None => vec![("given up", change)],
            Some(theirs) => {
                let (lost, more) = (ours.difference(theirs), theirs.difference(ours));
                lost.map(|at| ("ours only", *at)).chain(more.map(|at| ("theirs only", *at))).collect()
            }
        };
        for (whose, at) in differing {
            let after = (at - change).div_euclid(60);
            let group = format!("{oracle}, {}, {}, {whose}", sort(case.cron), case.change);
            let why = EXPLAINED.iter().find(|known| known.explains(&group, after, &case.zone)).map(|known| known.why);
            let example = || format!("{} {} {}", case.cron, case.zone, shown(at));
            let differences = groups.entry((group, why)).or_insert_with(|| Differences {
                count: 0,
                within: after..=after,
                example: example(),
            });
            differences.count += 1;
            differences.within = after.min(*differences.within.start())..=after.max(*differences.within.end());
        }
    }
    groups
}

/// Whether an expression means wall clock times or goes on in real time.
fn sort(cron: &str) -> &'static str {
    let real = cron.split(' ').take(2).any(|field| field.starts_with('*'));
    if real { "real time" } else { "fixed" }
}

fn shown(at: i64) -> String {
    Timestamp::from_second(at).map_or_else(|_| at.to_string(), |at| at.to_string())
}

fn ours(case: &Case) -> anyhow::Result<BTreeSet<i64>> {
    let (mut due, mut after) = (BTreeSet::new(), case.from * 1_000_000);
    loop {
        let runs =
            next_runs(&When::Cron(case.cron.to_owned()), &case.zone, postrider::Timestamp::from_micros(after), 200)?;
        for run in &runs {
            if run.as_secs() > case.to {
                return Ok(due);
            }
            due.insert(run.as_secs());
        }
        after = runs.last().context("an expression came to its end")?.as_micros();
    }
}

/// Each expression around each change of the clock, and some over all of the time.
fn cases(zones: usize, years: i16) -> anyhow::Result<Vec<Case>> {
    let end = "2026-01-01T00:00:00Z".parse::<Timestamp>()?;
    let begin = end.checked_sub(SignedDuration::from_hours(8_766 * i64::from(years)))?;
    let mut cases = Vec::new();
    for (n, name) in names().into_iter().take(zones).enumerate() {
        let zone = TimeZone::get(&name)?;
        let mut before = zone.to_offset(begin);
        for transition in zone.following(begin).take_while(|transition| transition.timestamp() < end) {
            let change = change(before.seconds(), &transition);
            before = transition.offset();
            let (from, to) = (transition.timestamp().checked_sub(MARGIN)?, transition.timestamp().checked_add(MARGIN)?);
            let case = |cron| Case {
                zone: name.clone(),
                cron,
                from: from.as_second(),
                to: to.as_second(),
                change: change.clone(),
            };
            cases.extend(AROUND.iter().copied().map(case));
        }
        let case = |cron| Case {
            zone: name.clone(),
            cron,
            from: begin.as_second(),
            to: end.as_second(),
            change: "throughout".to_owned(),
        };
        if n % THROUGHOUT_EACH == 0 {
            cases.extend(THROUGHOUT.iter().copied().map(case));
        }
    }
    Ok(cases)
}

fn change(before: i32, transition: &TimeZoneTransition<'_>) -> String {
    let leap = (transition.offset().seconds() - before) / 60;
    match leap {
        0 => "no change".to_owned(),
        1.. => format!("a gap of {leap} minutes"),
        _ => format!("an overlap of {} minutes", -leap),
    }
}

/// Zones of the regions, not those that only stand for an offset.
fn names() -> Vec<String> {
    let regions =
        ["Africa/", "America/", "Antarctica/", "Asia/", "Atlantic/", "Australia/", "Europe/", "Indian/", "Pacific/"];
    let all: BTreeSet<String> = jiff::tz::db().available().map(|name| name.to_string()).collect();
    let mut names: Vec<String> =
        all.into_iter().filter(|name| regions.iter().any(|region| name.starts_with(region))).collect();
    // a part of them is a part of every region
    names
        .sort_by_key(|name| name.bytes().fold(0_u32, |hash, byte| hash.wrapping_mul(31).wrapping_add(u32::from(byte))));
    names
}

async fn ask(oracle: &Oracle, cases: &[Case]) -> anyhow::Result<Vec<Option<BTreeSet<i64>>>> {
    let mut text = String::new();
    for (id, case) in cases.iter().enumerate() {
        writeln!(
            text,
            "{}",
            json!({ "id": id, "zone": case.zone, "cron": case.cron, "from": case.from, "to": case.to })
        )?;
    }
    let path = Path::new(CACHE).join(format!("{}.jsonl", oracle.name));
    std::fs::write(&path, text)?;
    let (program, arguments) = oracle.command.split_first().context("no command")?;
    let mut command = Command::new(program);
    command.args(arguments).stdin(std::fs::File::open(&path)?).stderr(Stdio::inherit());
    if let Some((name, value)) = oracle.zones {
        command.env(name, value);
    }
    let answered = command.output().await.with_context(|| format!("cannot run {program}"))?;
    ensure!(answered.status.success(), "{} failed", oracle.name);
    let mut due = vec![None; cases.len()];
    let mut lines = 0;
    for line in String::from_utf8(answered.stdout)?.lines() {
        let (id, rest) = line.split_once(' ').unwrap_or((line, ""));
        let place = due.get_mut(id.parse::<usize>()?).context("an unknown case")?;
        if rest != "!" {
            *place = Some(rest.split_whitespace().map(str::parse::<i64>).collect::<Result<BTreeSet<_>, _>>()?);
        }
        lines += 1;
    }
    ensure!(lines == cases.len(), "{} answered {lines} of {} cases", oracle.name, cases.len());
    Ok(due)
}

/// The libraries in a folder of their own, in versions that are written down here.
async fn install() -> anyhow::Result<[Oracle; 2]> {
    std::fs::create_dir_all(CACHE)?;
    let cache = PathBuf::from(CACHE).canonicalize()?;
    let python = cache.join("python/bin/python").display().to_string();
    if !cache.join("python/lib").exists() {
        run("python3", &["-m", "venv", &cache.join("python").display().to_string()]).await?;
    }
    run(&python, &["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "cronsim==2.8", "tzdata==2026.6"])
        .await?;
    let node = cache.join("node").display().to_string();
    if !cache.join("node/node_modules/cron-parser").exists() {
        run("npm", &["install", "--silent", "--no-audit", "--no-fund", "--prefix", &node, "cron-parser@5.10.6"])
            .await?;
    }
    let script = |name: &str| format!("{SCRIPTS}/{name}");
    Ok([
        // Python takes the zones of the package that was installed, not those of the machine
        Oracle {
            name: "cronsim",
            command: vec![python, script("cronsim_oracle.py")],
            zones: Some(("PYTHONTZPATH", "")),
        },
        Oracle {
            name: "cron-parser",
            command: vec!["node".to_owned(), script("parser_oracle.mjs"), node],
            zones: None,
        },
    ])
}

async fn run(program: &str, arguments: &[&str]) -> anyhow::Result<()> {
    let ended =
        Command::new(program).args(arguments).status().await.with_context(|| format!("cannot run {program}"))?;
    ensure!(ended.success(), "{program} {} failed", arguments.join(" "));
    Ok(())
}
