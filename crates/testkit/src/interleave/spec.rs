use super::verbs::Act;

/// What a step is expected to answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Expected {
    Value(String),
    Error(String),
}

/// One statement of a session, and what is expected of it. Steps are called by their session and their place in it: `a1`, `b2`.
#[derive(Debug, Clone, PartialEq)]
pub struct Step {
    pub(super) act: Act,
    /// Whether a transaction begins with it.
    pub(super) begins: bool,
    /// The first one whose step has ended says what is expected; `None` is always so.
    pub(super) rules: Vec<(Option<String>, Expected)>,
    /// It waits exactly if the first of a pair has ended when it starts and the second has not.
    pub(super) waits: Vec<(String, String)>,
    /// It may wait or not.
    pub(super) may_wait: bool,
    /// It may fail with this SQLSTATE, whatever the rules say.
    pub(super) may_fail: Option<String>,
}

impl Step {
    pub(super) fn new(act: Act) -> Self {
        Self { act, begins: false, rules: Vec::new(), waits: Vec::new(), may_wait: false, may_fail: None }
    }

    /// Answers so, where no earlier rule says otherwise.
    #[must_use]
    pub fn gives(self, value: &str) -> Self {
        self.rule(None, Expected::Value(value.to_owned()))
    }

    /// Answers so if the other step has ended before.
    #[must_use]
    pub fn gives_after(self, other: &str, value: &str) -> Self {
        self.rule(Some(other), Expected::Value(value.to_owned()))
    }

    /// Fails with an SQLSTATE, where no earlier rule says otherwise.
    #[must_use]
    pub fn fails(self, code: &str) -> Self {
        self.rule(None, Expected::Error(code.to_owned()))
    }

    /// Fails with an SQLSTATE if the other step has ended before.
    #[must_use]
    pub fn fails_after(self, other: &str, code: &str) -> Self {
        self.rule(Some(other), Expected::Error(code.to_owned()))
    }

    /// Waits if it comes between two steps, which are often the first and the last of another transaction.
    #[must_use]
    pub fn waits(mut self, from: &str, until: &str) -> Self {
        self.waits.push((from.to_owned(), until.to_owned()));
        self
    }

    /// May wait; without this and [`waits`](Self::waits) it must not.
    #[must_use]
    pub fn may_wait(mut self) -> Self {
        self.may_wait = true;
        self
    }

    /// May fail with an SQLSTATE, whatever else is said: of two that wait for each other, Postgres chooses one.
    #[must_use]
    pub fn may_fail(mut self, code: &str) -> Self {
        self.may_fail = Some(code.to_owned());
        self
    }

    fn rule(mut self, after: Option<&str>, expected: Expected) -> Self {
        self.rules.push((after.map(str::to_owned), expected));
        self
    }
}

/// Sessions that are run in every order.
#[derive(Debug, Clone, PartialEq)]
pub struct Spec {
    pub(super) name: String,
    pub(super) stage: Vec<Step>,
    pub(super) sessions: Vec<(String, Vec<Step>)>,
    pub(super) pictures: Vec<String>,
    pub(super) drains: bool,
}

impl Spec {
    /// A spec of no session; the name says what holds.
    pub fn new(name: impl Into<String>) -> Self {
        Self { name: name.into(), stage: Vec::new(), sessions: Vec::new(), pictures: Vec::new(), drains: true }
    }

    /// What is done before each order, after the declarations that every stage has.
    #[must_use]
    pub fn stage(mut self, steps: impl IntoIterator<Item = Step>) -> Self {
        self.stage.extend(steps);
        self
    }

    /// One more session.
    #[must_use]
    pub fn session(mut self, name: &str, steps: impl IntoIterator<Item = Step>) -> Self {
        self.sessions.push((name.to_owned(), steps.into_iter().collect()));
        self
    }

    /// One way in which it may end: where each job is, by name. All ways are to be told, and each must be seen.
    #[must_use]
    pub fn ends(mut self, picture: &str) -> Self {
        self.pictures.push(picture.to_owned());
        self
    }

    /// Not everything can run to its end afterwards.
    #[must_use]
    pub fn without_drain(mut self) -> Self {
        self.drains = false;
        self
    }

    /// The spec with each [`end`](super::end) replaced: all of them commits, or one of them a rollback.
    pub(super) fn alternatives(&self) -> Vec<Self> {
        let ends: Vec<usize> = (0..self.sessions.len())
            .filter(|s| self.sessions.get(*s).is_some_and(|(_, steps)| steps.iter().any(|step| step.act == Act::End)))
            .collect();
        let ended = |undone: Option<usize>| {
            let mut spec = self.clone();
            for (n, (_, steps)) in spec.sessions.iter_mut().enumerate() {
                for step in steps.iter_mut().filter(|step| step.act == Act::End) {
                    step.act = Act::Sql(if undone == Some(n) { "rollback" } else { "commit" }.to_owned());
                }
            }
            spec
        };
        std::iter::once(ended(None)).chain(ends.into_iter().map(|n| ended(Some(n)))).collect()
    }
}
