use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::process::Signal;
use tokio::time::{Instant, sleep};

use crate::process::{Process, until};
use crate::proxy::Proxy;

/// How long a busy machine may take for what needs no waiting.
const SOON: Duration = Duration::from_mins(1);

/// A process of a run, started again under its name each time that it was killed.
#[derive(Debug)]
pub struct Member {
    name: String,
    starts: u32,
    arguments: Vec<String>,
    process: Process,
    /// What stands between it and Postgres, if anything does.
    pub proxy: Option<Proxy>,
    /// Whether it was told to end, or killed for good.
    over: bool,
}

impl Member {
    /// What it is: the first part of its name.
    pub fn role(&self) -> &str {
        self.name.split('-').next().unwrap_or_default()
    }

    /// Its name and which start of it this is, as the ledgers and the database know it.
    pub fn full_name(&self) -> String {
        format!("{}.{}", self.name, self.starts)
    }

    /// The process.
    pub fn process(&mut self) -> &mut Process {
        &mut self.process
    }
}

/// The processes of a run.
#[derive(Debug)]
pub struct Crew {
    program: PathBuf,
    url: String,
    folder: PathBuf,
    members: Vec<Member>,
}

impl Crew {
    pub(super) fn new(program: &Path, url: &str, folder: &Path) -> Self {
        Self { program: program.to_owned(), url: url.to_owned(), folder: folder.to_owned(), members: Vec::new() }
    }

    /// Starts a process, `role-number`; `{start}` in its arguments says which start of it this is. Answers with its place.
    ///
    /// # Errors
    /// If it cannot be started.
    pub fn enlist(&mut self, name: &str, arguments: &[&str], proxy: Option<Proxy>) -> anyhow::Result<usize> {
        let arguments: Vec<String> = arguments.iter().map(ToString::to_string).collect();
        let process = self.start(name, 1, &arguments, proxy.as_ref())?;
        self.members.push(Member { name: name.to_owned(), starts: 1, arguments, process, proxy, over: false });
        Ok(self.members.len() - 1)
    }

    fn start(&self, name: &str, no: u32, arguments: &[String], proxy: Option<&Proxy>) -> anyhow::Result<Process> {
        let (url, name) = (proxy.map_or_else(|| self.url.clone(), Proxy::url), format!("{name}.{no}"));
        let joint = if url.contains('?') { '&' } else { '?' };
        // so that the triggers of the database know who writes
        let url = format!("{url}{joint}options[fixture.process]={name}");
        let arguments: Vec<String> = arguments.iter().map(|word| word.replace("{start}", &no.to_string())).collect();
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        Ok(Process::start(&self.program, &url, (&self.folder, &name), &arguments)?)
    }

    /// One of them.
    ///
    /// # Panics
    /// If there is none at this place.
    pub fn member(&mut self, at: usize) -> &mut Member {
        let n = self.members.len();
        self.members.get_mut(at).unwrap_or_else(|| panic!("there are {n} processes, no {at}"))
    }

    /// The places of those that a condition holds for.
    pub fn those(&self, which: impl Fn(&Member) -> bool) -> Vec<usize> {
        self.members.iter().enumerate().filter(|(_, member)| which(member)).map(|(at, _)| at).collect()
    }

    /// Kills one with SIGKILL and starts it again. False if it had ended before.
    ///
    /// # Errors
    /// If it cannot be started.
    pub async fn replace(&mut self, at: usize) -> anyhow::Result<bool> {
        let member = self.member(at);
        let alive = member.process.is_alive();
        member.process.kill().await;
        let (name, no, arguments) = (member.name.clone(), member.starts + 1, member.arguments.clone());
        let proxy = member.proxy.take();
        let started = self.start(&name, no, &arguments, proxy.as_ref());
        let member = self.member(at);
        member.proxy = proxy;
        member.process = started?;
        member.starts = no;
        Ok(alive)
    }

    /// Tells all of some roles to end, and waits. Answers with those that did not end well.
    pub async fn dismiss(&mut self, roles: &[&str]) -> Vec<String> {
        let mut bad = Vec::new();
        for member in self.members.iter_mut().filter(|member| roles.contains(&member.role())) {
            member.over = true;
            // one that has just been started does not listen to signals before it has said something
            let started = Instant::now();
            while member.process.is_alive() && member.process.lines().is_empty() && started.elapsed() < SOON {
                sleep(Duration::from_millis(20)).await;
            }
            if member.process.is_alive() {
                member.process.signal(Signal::TERM);
            }
        }
        for member in self.members.iter_mut().filter(|member| roles.contains(&member.role())) {
            if member.process.exit(SOON).await != Some(0) {
                bad.push(member.full_name());
            }
        }
        bad
    }

    /// Starts again those that have ended though nobody ended them, and answers with their names.
    ///
    /// # Errors
    /// If one cannot be started.
    pub async fn dead(&mut self) -> anyhow::Result<Vec<String>> {
        let mut dead = Vec::new();
        for at in 0..self.members.len() {
            let member = self.member(at);
            if !member.over && !member.process.is_alive() {
                dead.push(member.full_name());
                self.replace(at).await?;
            }
        }
        Ok(dead)
    }

    /// Waits until one has written a line that begins so, and answers with the rest of it.
    ///
    /// # Panics
    /// If it ends before, with its log, or does not say it in a minute.
    pub async fn says(&mut self, at: usize, beginning: &str) -> String {
        let member = self.member(at);
        until(&format!("{} says {beginning:?}", member.full_name()), SOON, async || {
            let alive = member.process.is_alive();
            let said = member.process.lines().iter().find_map(|line| line.strip_prefix(beginning).map(str::to_owned));
            assert!(alive || said.is_some(), "{} has ended:\n{}", member.full_name(), member.process.log());
            said
        })
        .await
    }
}
