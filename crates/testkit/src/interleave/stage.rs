use anyhow::bail;

use super::session::Session;
use super::spec::Step;
use super::verbs::{Memory, declare};

const EMPTY: &str = include_str!("sql/empty.sql");
const SAVE: &str = include_str!("sql/stage.sql");

/// What every stage has. `s.one` takes every event, and is never changed.
const DECLARED: &str = r#"{"app":"stage","generation":1,
    "types":[{"name":"order.made"}],
    "kinds":[{"name":"t.k","queue":"q","max_attempts":3},{"name":"t.once","queue":"q","max_attempts":1},
             {"name":"t.other","queue":"q"},{"name":"s.one","queue":"q","max_attempts":3}],
    "subscriptions":[{"name":"s.one","types":["**"],"kind":"s.one"}]}"#;

/// The state before each order. It is reached once, through the functions, and put back from copies before each order.
#[derive(Debug, Default)]
pub(super) struct Stage {
    steps: Option<Vec<Step>>,
    memory: Memory,
}

impl Stage {
    /// Puts the stage there; answers with what its sessions know then.
    pub(super) async fn set(&mut self, session: &mut Session, steps: &[Step]) -> anyhow::Result<Memory> {
        if self.steps.as_deref() != Some(steps) {
            self.build(session, steps).await?;
        }
        run(session, "select saved.restore()::text".to_owned()).await?;
        Ok(self.memory.clone())
    }

    async fn build(&mut self, session: &mut Session, steps: &[Step]) -> anyhow::Result<()> {
        self.steps = None;
        let mut memory = Memory::default();
        run(session, EMPTY.to_owned()).await?;
        let declared = declare(DECLARED);
        for step in std::iter::once(&declared).chain(steps) {
            let begin = if step.begins { "begin; " } else { "" };
            let rows = run(session, format!("{begin}{}", step.act.sql(&memory))).await?;
            step.act.read(rows, &mut memory);
        }
        run(session, SAVE.to_owned()).await?;
        self.steps = Some(steps.to_vec());
        self.memory = memory;
        Ok(())
    }
}

async fn run(session: &mut Session, statements: String) -> anyhow::Result<super::verbs::Rows> {
    match session.ask(statements.clone()).await? {
        Ok(rows) => Ok(rows),
        Err((code, message)) => {
            bail!("the stage fails with {code} {message}: {}", statements.lines().next().unwrap_or_default())
        }
    }
}
