use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};
use serde::Deserialize;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};
use uuid::Uuid;

use super::{Link, Sky, lock, rest};

const BEAT: Duration = Duration::from_millis(120);
const DEAD_AFTER: Duration = Duration::from_millis(1200);
/// A worker claims no more while it holds so many.
const HELD_MAX: usize = 60;

/// One worker after the other, each of which lives for some seconds and then dies or says goodbye.
pub(super) async fn run(sky: Arc<Sky>, n: u64) -> anyhow::Result<()> {
    let mut dice = sky.dice(4, n);
    while !sky.is_over() {
        let me = Arc::new(Me {
            sky: Arc::clone(&sky),
            id: Uuid::from_u128(dice.random()),
            // one in three knows the rare kind: the others park its jobs
            kinds: if dice.random_bool(0.34) { "t.a,t.b,t.act,s.one,t.rare" } else { "t.b,t.a,s.one,t.act" },
            leaving: AtomicBool::new(false),
            holds: Mutex::default(),
        });
        let mut parts: JoinSet<anyhow::Result<()>> = JoinSet::new();
        // outcomes come from two connections at once, so that batches cross
        for _ in 0..2 {
            parts.spawn(work(Arc::clone(&me), StdRng::seed_from_u64(dice.random())));
        }
        parts.spawn(beat(Arc::clone(&me), StdRng::seed_from_u64(dice.random())));
        let until = Instant::now() + Duration::from_millis(dice.random_range(800..5000));
        while Instant::now() < until && !sky.is_over() && parts.len() == 3 {
            tokio::select! {
                () = sleep(Duration::from_millis(50)) => {}
                Some(ended) = parts.join_next() => ended??,
            }
        }
        if dice.random_bool(0.6) {
            // wherever it is: between two statements or in the middle of one
            parts.shutdown().await;
            sky.count("killed", 1);
        } else {
            me.leaving.store(true, Ordering::Relaxed);
            while let Some(ended) = parts.join_next().await {
                ended??;
            }
            sky.open().await?.one(&format!("select postrider.leave('{}')::text", me.id)).await?;
            sky.count("left", 1);
        }
    }
    Ok(())
}

struct Me {
    sky: Arc<Sky>,
    id: Uuid,
    kinds: &'static str,
    leaving: AtomicBool,
    holds: Mutex<Holds>,
}

/// A job and the lease that it was claimed under.
type Run = (i64, i64);

#[derive(Default)]
struct Holds {
    calls: i64,
    in_flight: BTreeSet<i64>,
    open: BTreeSet<Run>,
    /// What this worker has told the end of: telling it again must change nothing.
    told: Vec<Run>,
}

impl Holds {
    /// The last call up to which every reply is here or given up.
    fn settled(&self) -> i64 {
        self.in_flight.first().map_or(self.calls, |first| first - 1)
    }
}

impl Me {
    fn ends(&self) -> bool {
        self.leaving.load(Ordering::Relaxed) || self.sky.is_over()
    }
}

/// Claims, and tells the ends of attempts, of its own claims and the other connection's.
async fn work(me: Arc<Me>, mut dice: StdRng) -> anyhow::Result<()> {
    let mut link = me.sky.open().await?;
    while !me.ends() {
        if lock(&me.holds).open.len() < HELD_MAX {
            claim(&me, &mut link, &mut dice).await?;
        }
        rest(&mut dice, 10).await;
        finish(&me, &mut link, &mut dice).await?;
    }
    Ok(())
}

async fn claim(me: &Me, link: &mut Link, dice: &mut StdRng) -> anyhow::Result<()> {
    let call = {
        let mut holds = lock(&me.holds);
        holds.calls += 1;
        let call = holds.calls;
        holds.in_flight.insert(call);
        call
    };
    let sql = format!(
        "select lease::text, id::text from postrider.claim('{}', {call}, 'q{}', '{{{}}}', {}, '{{1,2,3,4}}', '{{0,0,0,0}}', '{{0,0,0,0}}', {})
          where lease is not null",
        me.id,
        dice.random_range(0..3),
        me.kinds,
        dice.random_range(1..25),
        [0, 0, 20].get(dice.random_range(0..3)).copied().unwrap_or(0)
    );
    let runs: Vec<Run> = runs(link.ask(&sql).await?);
    me.sky.count("claimed", runs.len() as u64);
    let mut holds = lock(&me.holds);
    holds.in_flight.remove(&call);
    // now and then a reply is lost: the next beat hands its jobs back
    if !dice.random_bool(0.05) {
        holds.open.extend(runs);
    }
    Ok(())
}

fn runs(rows: Vec<Vec<String>>) -> Vec<Run> {
    rows.into_iter()
        .filter_map(|row| {
            let mut columns = row.into_iter().map(|column| column.parse().ok());
            Some((columns.next()??, columns.next()??))
        })
        .collect()
}

async fn finish(me: &Me, link: &mut Link, dice: &mut StdRng) -> anyhow::Result<()> {
    let (batch, again) = batch(me, dice);
    if batch.is_empty() {
        return Ok(());
    }
    let outcomes: BTreeMap<Run, i16> = batch
        .iter()
        .map(|run| {
            let outcome = match dice.random_range(0..100) {
                0..70 => 1,
                70..80 => 2,
                80..85 => 3,
                85..90 => 4,
                90..93 => 5,
                _ => 6,
            };
            (*run, outcome)
        })
        .collect();
    let list = |of: &dyn Fn(&Run) -> String| batch.iter().map(of).collect::<Vec<_>>().join(",");
    let sql = format!(
        "select lease::text, id::text from postrider.finish('{}', '{{{}}}', '{{{}}}', '{{{}}}', '{{{}}}', '{{{}}}')",
        me.id,
        list(&|run| run.0.to_string()),
        list(&|run| run.1.to_string()),
        list(&|run| outcomes.get(run).copied().unwrap_or(1).to_string()),
        list(&|run| (run.1 % 150).to_string()),
        list(&|_| "no".to_owned())
    );
    let in_transaction = dice.random_bool(0.2);
    if in_transaction {
        link.ask("begin").await?;
    }
    let counted = runs(link.ask(&sql).await?);
    if in_transaction {
        rest(dice, 8).await;
        if dice.random_bool(0.4) {
            link.ask("rollback").await?;
            return Ok(());
        }
        link.ask("commit").await?;
    }
    heard(me, &batch, &counted, &outcomes, &again);
    Ok(())
}

/// Some of what is held, in any order, with some that was told before.
fn batch(me: &Me, dice: &mut StdRng) -> (Vec<Run>, BTreeSet<Run>) {
    let holds = lock(&me.holds);
    let mut batch: Vec<Run> = holds.open.iter().copied().filter(|_| dice.random_bool(0.6)).collect();
    let mut again = BTreeSet::new();
    if dice.random_bool(0.2) {
        again.extend(
            holds.told.iter().copied().filter(|run| !holds.open.contains(run) && dice.random_bool(0.1)).take(10),
        );
        batch.extend(&again);
    }
    batch.shuffle(dice);
    (batch, again)
}

fn heard(me: &Me, batch: &[Run], counted: &[Run], outcomes: &BTreeMap<Run, i16>, again: &BTreeSet<Run>) {
    me.sky.count("counted", counted.len() as u64);
    me.sky.count("told twice", again.len() as u64);
    for run in counted {
        if again.contains(run) {
            me.sky.wrong(format!("an outcome counted twice: lease {}, job {}", run.0, run.1));
        }
        // one that is acted on may end again, or be gone
        let ends = matches!(outcomes.get(run), Some(1 | 4 | 5)) && run.1 & 3 != 3;
        if ends && !lock(&me.sky.ended).insert(run.1) {
            me.sky.wrong(format!("job {} ended twice", run.1));
        }
    }
    let mut holds = lock(&me.holds);
    for run in batch {
        holds.open.remove(run);
    }
    holds.told.extend(batch);
}

#[derive(Debug, Deserialize)]
struct Answer {
    lost: Vec<i64>,
    handed_back: u64,
    rescued: u64,
    promoted: u64,
    unparked: u64,
    others: Vec<Other>,
}

#[derive(Debug, Deserialize)]
struct Other {
    worker: Uuid,
    beat: i64,
}

/// Beats, and watches the others.
async fn beat(me: Arc<Me>, mut dice: StdRng) -> anyhow::Result<()> {
    let mut link = me.sky.open().await?;
    let mut seen: HashMap<Uuid, (i64, Instant)> = HashMap::new();
    let mut dead = Vec::new();
    // two workers name their queues in opposite orders
    let queues = if dice.random_bool(0.5) { r#""q0","q1","q2""# } else { r#""q2","q1","q0""# };
    let kinds = me.kinds.split(',').map(|kind| format!("\"{kind}\"")).collect::<Vec<_>>().join(",");
    while !me.ends() {
        let (held, settled) = {
            let holds = lock(&me.holds);
            let leases: BTreeSet<String> = holds.open.iter().map(|run| run.0.to_string()).collect();
            (leases.into_iter().collect::<Vec<_>>().join(","), holds.settled())
        };
        let report = format!(
            r#"{{"app":"storm","version":"0","host":"h","pid":1,"queues":[{queues}],"kinds":[{kinds}],
                "held":[{held}],"settled":{settled},"dead":[{}]}}"#,
            dead.join(",")
        );
        let answer = link.one(&format!("select postrider.tick('{}', '{report}')::text", me.id)).await?;
        let answer: Answer = serde_json::from_str(&answer)?;
        lock(&me.holds).open.retain(|run| !answer.lost.contains(&run.0));
        for (what, n) in [
            ("handed back", answer.handed_back),
            ("rescued", answer.rescued),
            ("promoted", answer.promoted),
            ("unparked", answer.unparked),
        ] {
            me.sky.count(what, n);
        }
        dead = watch(&mut seen, &answer.others);
        sleep(BEAT).await;
    }
    Ok(())
}

/// Those whose beat stood still, as the report says them.
fn watch(seen: &mut HashMap<Uuid, (i64, Instant)>, others: &[Other]) -> Vec<String> {
    seen.retain(|worker, _| others.iter().any(|other| other.worker == *worker));
    let mut dead = Vec::new();
    for other in others {
        let entry = seen.entry(other.worker).or_insert((other.beat, Instant::now()));
        if entry.0 != other.beat {
            *entry = (other.beat, Instant::now());
        } else if entry.1.elapsed() > DEAD_AFTER {
            dead.push(format!(r#"{{"worker":"{}","beat":{}}}"#, other.worker, other.beat));
        }
    }
    dead
}
