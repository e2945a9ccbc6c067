use std::collections::VecDeque;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use tokio::time::Instant;

use super::judge::{Ended, Judge, Seen};
use super::order;
use super::report::Report;
use super::session::{Answer, Session};
use super::spec::{Expected, Spec, Step};
use super::stage::Stage;
use super::verbs::Memory;
use crate::TestDb;

/// Within this, Postgres has told one of those who wait for each other.
const DEADLOCK: Duration = Duration::from_secs(5);
/// Nobody takes so long, whatever the machine is busy with.
const STUCK: Duration = Duration::from_secs(30);
/// More is not read by anybody.
const WRONG_MAX: usize = 40;
const TOLD_MAX: usize = 3;

/// Runs every order of every spec, one after the other, in one database.
pub async fn run(db: &TestDb, specs: &[Spec]) -> anyhow::Result<Report> {
    let mut runner = Runner {
        judge: Judge::open(db.url()).await?,
        url: db.url().to_owned(),
        staging: Session::open(db.url()).await?,
        stage: Stage::default(),
        sessions: Vec::new(),
        report: Report::default(),
    };
    for spec in specs {
        runner.spec(spec).await.with_context(|| format!("in the spec {:?}", spec.name))?;
        if runner.report.wrong.len() > WRONG_MAX {
            break;
        }
    }
    Ok(runner.report)
}

struct Runner {
    judge: Judge,
    url: String,
    staging: Session,
    stage: Stage,
    sessions: Vec<Session>,
    report: Report,
}

/// One order on its way.
struct Run<'a> {
    spec: &'a Spec,
    memory: Memory,
    /// By session.
    next: Vec<usize>,
    flying: Vec<Option<Flying>>,
    put_off: Vec<VecDeque<usize>>,
    ended: Vec<Ended>,
}

struct Flying {
    step: usize,
    waited: bool,
    before_start: Vec<String>,
}

impl Runner {
    async fn spec(&mut self, spec: &Spec) -> anyhow::Result<()> {
        self.report.specs += 1;
        let (mut seen, mut found) = (Seen::default(), 0);
        while self.sessions.len() < spec.sessions.len() {
            self.sessions.push(Session::open(&self.url).await?);
        }
        let lengths: Vec<usize> = spec.sessions.iter().map(|(_, steps)| steps.len()).collect();
        for spec in spec.alternatives() {
            for order in order::all(&lengths) {
                self.report.orders += 1;
                let (ended, wrong) = self.order(&spec, &order, &mut seen).await?;
                if !wrong.is_empty() {
                    found += 1;
                    if found <= TOLD_MAX {
                        self.report.wrong.push(told(&spec, &order, &ended, &wrong));
                    }
                }
            }
        }
        if found > TOLD_MAX {
            self.report.wrong.push(format!("{}: {} more orders are wrong", spec.name, found - TOLD_MAX));
        }
        let missing = seen.missing(spec).into_iter().map(|missing| format!("{}: {missing}", spec.name));
        self.report.wrong.extend(missing);
        Ok(())
    }

    async fn order(
        &mut self,
        spec: &Spec,
        order: &[usize],
        seen: &mut Seen,
    ) -> anyhow::Result<(Vec<Ended>, Vec<String>)> {
        let sessions = spec.sessions.len();
        let mut run = Run {
            spec,
            memory: self.stage.set(&mut self.staging, &spec.stage).await?,
            next: vec![0; sessions],
            flying: (0..sessions).map(|_| None).collect(),
            put_off: vec![VecDeque::new(); sessions],
            ended: Vec::new(),
        };
        for &session in order {
            let Some(step) = run.next.get_mut(session) else { continue };
            let this = *step;
            *step += 1;
            if run.flying.get(session).is_some_and(Option::is_some) {
                self.report.put_off += 1;
                if let Some(put_off) = run.put_off.get_mut(session) {
                    put_off.push_back(this);
                }
                continue;
            }
            self.start(&mut run, session, this)?;
            self.settle(&mut run).await?;
        }
        let ended = run.ended;
        let stuck = run.flying.iter().flatten().count();
        if stuck > 0 {
            self.release().await?;
            return Ok((ended, vec![format!("{stuck} steps wait for each other or for nobody")]));
        }
        self.report.waited += ended.iter().filter(|end| end.waited).count();
        let picture = if spec.pictures.is_empty() { String::new() } else { self.judge.picture().await? };
        let mut wrong = seen.judge(spec, &ended, &picture);
        wrong.extend(self.judge.broken().await?);
        if spec.drains {
            wrong.extend(self.judge.drain().await?.into_iter().map(|what| format!("after a drain: {what}")));
        }
        Ok((ended, wrong))
    }

    fn start(&mut self, run: &mut Run<'_>, session: usize, step: usize) -> anyhow::Result<()> {
        let before_start = run.ended.iter().map(|end| end.step.clone()).collect();
        let here = run.step(session, step).context("no such step")?;
        let begin = if here.begins { "begin; " } else { "" };
        let statements = format!("{begin}{}", here.act.sql(&run.memory));
        self.sessions.get_mut(session).context("no such session")?.send(statements)?;
        if let Some(flying) = run.flying.get_mut(session) {
            *flying = Some(Flying { step, waited: false, before_start });
        }
        Ok(())
    }

    /// Waits until each statement is answered or waits for another session; runs what was put off once its session is free.
    async fn settle(&mut self, run: &mut Run<'_>) -> anyhow::Result<()> {
        let since = Instant::now();
        loop {
            self.reap(run).await?;
            let flying: Vec<usize> = (0..run.flying.len()).filter(|s| run.flies(*s)).collect();
            if flying.is_empty() {
                return Ok(());
            }
            let blocked = self.blocked(run).await?;
            for (session, flying) in run.flying.iter_mut().enumerate() {
                if let Some(flying) = flying.as_mut().filter(|_| blocked.contains(&session)) {
                    flying.waited = true;
                }
            }
            let all_wait = flying.iter().all(|session| blocked.contains(session));
            // when nobody is left to release anybody, one of them is about to be told of a deadlock
            let anyone_left = (0..run.flying.len()).any(|s| !run.flies(s) && run.has_more(s));
            if all_wait && anyone_left {
                return Ok(());
            }
            if since.elapsed() > if all_wait { DEADLOCK } else { STUCK } {
                return Ok(());
            }
        }
    }

    /// Takes what was answered. A step that waited was released by another one, which has ended before it, whichever of the two
    /// answers came first.
    async fn reap(&mut self, run: &mut Run<'_>) -> anyhow::Result<()> {
        for waited in [false, true] {
            for session in 0..run.flying.len() {
                if waited && (0..run.flying.len()).any(|session| run.flies_and(session, false)) {
                    return Ok(());
                }
                if !run.flies_and(session, waited) {
                    continue;
                }
                let here = self.sessions.get_mut(session).context("no such session")?;
                let Some(answer) = here.reap().await? else { continue };
                run.end(session, answer);
                let put_off = run.put_off.get_mut(session).and_then(VecDeque::pop_front);
                if let Some(step) = put_off {
                    self.start(run, session, step)?;
                }
            }
        }
        Ok(())
    }

    /// The sessions that wait for another one of this run.
    async fn blocked(&mut self, run: &Run<'_>) -> anyhow::Result<Vec<usize>> {
        let pids: Vec<i32> = self.sessions.iter().take(run.flying.len()).map(|session| session.pid).collect();
        let waiting: Vec<i32> =
            sqlx::query_scalar("select pid from unnest($1::int[]) pid where pg_blocking_pids(pid) && $1::int[]")
                .bind(&pids)
                .fetch_all(&mut self.judge.0)
                .await?;
        Ok((0..pids.len()).filter(|s| pids.get(*s).is_some_and(|pid| waiting.contains(pid))).collect())
    }

    /// Ends all sessions, since one of them waits for ever.
    async fn release(&mut self) -> anyhow::Result<()> {
        for session in std::mem::take(&mut self.sessions) {
            sqlx::query_scalar::<_, bool>("select pg_terminate_backend($1, 5000)")
                .bind(session.pid)
                .fetch_one(&mut self.judge.0)
                .await?;
            self.sessions.push(Session::open(&self.url).await?);
        }
        ensure!(self.sessions.iter().all(Session::is_idle), "a session is not new");
        Ok(())
    }
}

impl Run<'_> {
    fn step(&self, session: usize, step: usize) -> Option<&Step> {
        self.spec.sessions.get(session)?.1.get(step)
    }

    fn flies(&self, session: usize) -> bool {
        self.flying.get(session).is_some_and(Option::is_some)
    }

    /// Whether a statement of the session has no answer, and has been seen to wait or not.
    fn flies_and(&self, session: usize, waited: bool) -> bool {
        self.flying.get(session).and_then(Option::as_ref).is_some_and(|flying| flying.waited == waited)
    }

    fn has_more(&self, session: usize) -> bool {
        let steps = self.spec.sessions.get(session).map_or(0, |(_, steps)| steps.len());
        self.next.get(session).is_some_and(|next| *next < steps)
    }

    fn end(&mut self, session: usize, answer: Answer) {
        let Some(flying) = self.flying.get_mut(session).and_then(Option::take) else { return };
        let Some((name, steps)) = self.spec.sessions.get(session) else { return };
        let Some(step) = steps.get(flying.step) else { return };
        let (answer, message) = match answer {
            Ok(rows) => (Expected::Value(step.act.read(rows, &mut self.memory)), String::new()),
            Err((code, message)) => (Expected::Error(code), message),
        };
        let step = format!("{name}{}", flying.step + 1);
        self.ended.push(Ended { step, before_start: flying.before_start, waited: flying.waited, answer, message });
    }
}

fn told(spec: &Spec, order: &[usize], ended: &[Ended], wrong: &[String]) -> String {
    let mut next = vec![0; spec.sessions.len()];
    let mut names = Vec::new();
    for &session in order {
        if let (Some(n), Some((name, _))) = (next.get_mut(session), spec.sessions.get(session)) {
            *n += 1;
            names.push(format!("{name}{n}"));
        }
    }
    let steps: Vec<String> = ended
        .iter()
        .map(|end| format!("{}{}: {:?}", end.step, if end.waited { " (waited)" } else { "" }, end.answer))
        .collect();
    format!("{}\n  order {}\n  {}\n  WRONG {}", spec.name, names.join(" "), steps.join("; "), wrong.join("\n  WRONG "))
}
