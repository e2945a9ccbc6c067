use std::collections::BTreeSet;

use anyhow::Context as _;
use sqlx::{Connection, Executor, PgConnection};

use super::spec::{Expected, Spec, Step};

const INVARIANTS: &str = include_str!("sql/invariants.sql");
const DRAIN: &str = include_str!("sql/drain.sql");
const DRAINED: &str = include_str!("sql/drained.sql");
const PICTURE: &str = include_str!("sql/picture.sql");
const REVIVED: &str = include_str!("sql/revived.sql");
const RELAY: &str = "select case when more then 'more' else why end from postrider.relay(1000)";

/// What one step did in one order.
#[derive(Debug, Clone)]
pub(super) struct Ended {
    /// `a1`.
    pub(super) step: String,
    /// The steps that had ended when it was sent.
    pub(super) before_start: Vec<String>,
    pub(super) waited: bool,
    pub(super) answer: Expected,
    /// What an error said.
    pub(super) message: String,
}

/// What was seen over all orders of a spec: nothing that a spec says may be idle talk.
#[derive(Debug, Default)]
pub(super) struct Seen {
    rules: BTreeSet<(String, usize)>,
    pictures: BTreeSet<String>,
    waits: BTreeSet<String>,
}

impl Seen {
    /// What one order shows to be wrong.
    pub(super) fn judge(&mut self, spec: &Spec, ended: &[Ended], picture: &str) -> Vec<String> {
        let mut wrong = Vec::new();
        for (n, end) in ended.iter().enumerate() {
            let Some(step) = step(spec, &end.step) else { continue };
            let before: Vec<&str> = ended.iter().take(n).map(|end| end.step.as_str()).collect();
            wrong.extend(self.answer(step, end, &before));
            wrong.extend(self.wait(step, end));
        }
        if !spec.pictures.is_empty() && !spec.pictures.iter().any(|known| known == picture) {
            wrong.push(format!("it ends with {picture}"));
        }
        self.pictures.insert(picture.to_owned());
        wrong
    }

    fn answer(&mut self, step: &Step, end: &Ended, before: &[&str]) -> Option<String> {
        if matches!(&end.answer, Expected::Error(code) if step.may_fail.as_ref() == Some(code)) {
            return None;
        }
        let holds = |after: &Option<String>| after.as_deref().is_none_or(|other| before.contains(&other));
        let Some((n, (_, expected))) = step.rules.iter().enumerate().find(|(_, (after, _))| holds(after)) else {
            let failed = matches!(end.answer, Expected::Error(_));
            return failed.then(|| format!("{} fails: {:?} {}", end.step, end.answer, end.message));
        };
        self.rules.insert((end.step.clone(), n));
        (*expected != end.answer)
            .then(|| format!("{} answers {:?} {}, not {expected:?}", end.step, end.answer, end.message))
    }

    fn wait(&mut self, step: &Step, end: &Ended) -> Option<String> {
        let there = |name: &String| end.before_start.contains(name);
        let must = step.waits.iter().any(|(from, until)| there(from) && !there(until));
        if end.waited && must {
            self.waits.insert(end.step.clone());
        }
        match (end.waited, must) {
            (true, false) if !step.may_wait => Some(format!("{} waits", end.step)),
            (false, true) if !step.may_wait => Some(format!("{} does not wait", end.step)),
            _ => None,
        }
    }

    /// What the spec says and no order showed.
    pub(super) fn missing(&self, spec: &Spec) -> Vec<String> {
        let mut wrong = Vec::new();
        for picture in spec.pictures.iter().filter(|picture| !self.pictures.contains(*picture)) {
            wrong.push(format!("it never ends with {picture}"));
        }
        for (name, step) in steps(spec) {
            for n in (0..step.rules.len()).filter(|n| !self.rules.contains(&(name.clone(), *n))) {
                wrong.push(format!("rule {n} of {name} never holds"));
            }
            if !step.waits.is_empty() && !self.waits.contains(&name) {
                wrong.push(format!("{name} never waits"));
            }
        }
        wrong
    }
}

fn steps(spec: &Spec) -> impl Iterator<Item = (String, &Step)> {
    spec.sessions.iter().flat_map(|(session, steps)| {
        steps.iter().enumerate().map(move |(n, step)| (format!("{session}{}", n + 1), step))
    })
}

fn step<'a>(spec: &'a Spec, name: &str) -> Option<&'a Step> {
    steps(spec).find(|(known, _)| known == name).map(|(_, step)| step)
}

/// A connection that looks at the schema as a whole.
pub(crate) struct Judge(pub(super) PgConnection);

impl Judge {
    pub(crate) async fn open(url: &str) -> anyhow::Result<Self> {
        let mut connection = PgConnection::connect(url).await.context("no connection for the judge")?;
        connection.execute(sqlx::raw_sql("set synchronous_commit = off; set jit = off")).await?;
        connection.execute(sqlx::raw_sql(REVIVED)).await?;
        connection.execute(sqlx::raw_sql(DRAIN)).await?;
        Ok(Self(connection))
    }

    /// Where each job is.
    pub(super) async fn picture(&mut self) -> anyhow::Result<String> {
        Ok(self.column(PICTURE).await?.pop().unwrap_or_default())
    }

    /// What is wrong in the schema.
    pub(crate) async fn broken(&mut self) -> anyhow::Result<Vec<String>> {
        Ok(self.column(INVARIANTS).await?)
    }

    /// Relays until nothing is left, lets everything run to its end, and says what could not.
    pub(crate) async fn drain(&mut self) -> anyhow::Result<Vec<String>> {
        loop {
            let relayed = match self.column(RELAY).await {
                Ok(relayed) => relayed.into_iter().next().unwrap_or_default(),
                Err(error) => return Ok(vec![format!("the relay fails: {error}")]),
            };
            match relayed.as_str() {
                "idle" => break,
                // done: what an earlier pass had begun, perhaps; what came after it is the next pass's
                "more" | "done" => {}
                other => return Ok(vec![format!("the relay is {other}")]),
            }
        }
        if let Err(error) = self.column("select pg_temp.drain()::text").await {
            return Ok(vec![format!("what is left cannot run: {error}")]);
        }
        Ok(self.column(DRAINED).await?)
    }

    /// One column of text, by a statement that is planned once.
    async fn column(&mut self, statement: &'static str) -> sqlx::Result<Vec<String>> {
        let rows: Vec<Option<String>> = sqlx::query_scalar(statement).fetch_all(&mut self.0).await?;
        Ok(rows.into_iter().map(Option::unwrap_or_default).collect())
    }
}
