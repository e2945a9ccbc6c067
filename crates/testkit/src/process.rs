use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tokio::process::{Child, ChildStdin, Command};
use tokio::time::{Instant, sleep, timeout};
use uuid::Uuid;

use crate::ledger::{self, Effect};

/// Starts the fixture's processes for one test and keeps their files together. The files stay if the test fails.
#[derive(Debug)]
pub struct Fixture {
    program: PathBuf,
    url: String,
    folder: PathBuf,
    started: AtomicUsize,
}

impl Fixture {
    /// For a program (`env!("CARGO_BIN_EXE_postrider-fixture")`) and a database.
    ///
    /// # Panics
    /// If the folder for the files cannot be made.
    pub fn new(program: &str, url: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("postrider-fixture-{}", Uuid::new_v4().simple()));
        if let Err(error) = fs::create_dir_all(&folder) {
            panic!("cannot make {}: {error}", folder.display());
        }
        Self { program: program.into(), url: url.to_owned(), folder, started: AtomicUsize::new(0) }
    }

    /// Starts a process with a ledger and a log of its own. It ends when this test does, whatever becomes of it.
    ///
    /// # Panics
    /// If it cannot be started.
    pub fn start(&self, arguments: &[&str]) -> Process {
        self.try_start(arguments).unwrap_or_else(|error| panic!("cannot start {}: {error}", self.program.display()))
    }

    fn try_start(&self, arguments: &[&str]) -> std::io::Result<Process> {
        let n = self.started.fetch_add(1, Ordering::Relaxed);
        let name = format!("{n}-{}", arguments.first().unwrap_or(&"fixture"));
        Process::start(&self.program, &self.url, (&self.folder, &name), arguments)
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln_folder(&self.folder);
        } else {
            let _ = fs::remove_dir_all(&self.folder);
        }
    }
}

#[expect(clippy::print_stderr, reason = "a failed test says where its files are")]
fn eprintln_folder(folder: &std::path::Path) {
    eprintln!("the ledgers and logs of this test: {}", folder.display());
}

/// A process of the fixture.
#[derive(Debug)]
pub struct Process {
    child: Child,
    /// Held here, since waiting for a child closes its standard input.
    _stdin: Option<ChildStdin>,
    ledger: PathBuf,
    log: PathBuf,
}

impl Process {
    /// Starts the fixture's program; its ledger and its log are in the folder, under its name.
    pub(crate) fn start(
        program: &Path,
        url: &str,
        (folder, name): (&Path, &str),
        arguments: &[&str],
    ) -> std::io::Result<Self> {
        let (ledger, log) = (folder.join(format!("{name}.ledger")), folder.join(format!("{name}.log")));
        let mut child = Command::new(program)
            .arg("--url")
            .arg(url)
            .arg("--ledger")
            .arg(&ledger)
            .args(arguments)
            // the process ends when this pipe does
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(File::create(&log)?)
            .kill_on_drop(true)
            .spawn()?;
        let stdin = child.stdin.take();
        Ok(Self { child, _stdin: stdin, ledger, log })
    }

    /// Its id, unless it has ended.
    pub fn pid(&self) -> Option<i32> {
        self.child.id().and_then(|pid| i32::try_from(pid).ok())
    }

    /// Whether it has not ended.
    ///
    /// # Panics
    /// If the system does not tell.
    pub fn is_alive(&mut self) -> bool {
        match self.child.try_wait() {
            Ok(status) => status.is_none(),
            Err(error) => panic!("cannot look at a process: {error}"),
        }
    }

    /// Sends a signal.
    ///
    /// # Panics
    /// If it has ended, with the end of its log.
    pub fn signal(&self, signal: Signal) {
        let sent = self.pid().and_then(Pid::from_raw).map(|pid| kill_process(pid, signal));
        assert_eq!(sent, Some(Ok(())), "no process to signal:\n{}", self.log());
    }

    /// Kills it with SIGKILL and waits until it is gone.
    ///
    /// # Panics
    /// If the system refuses.
    pub async fn kill(&mut self) {
        if let Err(error) = self.child.kill().await {
            panic!("cannot kill a process: {error}");
        }
    }

    /// Waits for its end: its exit code, `None` if a signal ended it.
    ///
    /// # Panics
    /// If it does not end in time, with the end of its log.
    pub async fn exit(&mut self, within: Duration) -> Option<i32> {
        match timeout(within, self.child.wait()).await {
            Ok(Ok(status)) => status.code(),
            Ok(Err(error)) => panic!("cannot wait for a process: {error}"),
            Err(elapsed) => panic!("the process did not end within {within:?}, {elapsed}:\n{}", self.log()),
        }
    }

    /// What it told its ledger so far.
    pub fn lines(&self) -> Vec<String> {
        ledger::lines(&self.ledger)
    }

    /// The effects of its handlers so far.
    pub fn effects(&self) -> Vec<Effect> {
        self.lines().iter().filter_map(|line| Effect::parse(line)).collect()
    }

    /// How often its handlers did this.
    pub fn count(&self, word: &str, kind: &str) -> usize {
        self.effects().iter().filter(|effect| effect.word == word && effect.kind == kind).count()
    }

    /// A figure that it told when it stopped.
    ///
    /// # Panics
    /// If it told none.
    pub fn figure(&self, name: &str) -> u64 {
        let found = self.lines().iter().rev().find_map(|line| {
            let figures = line.strip_prefix("figures ")?;
            figures.split(' ').find_map(|figure| figure.strip_prefix(name)?.strip_prefix('=')?.parse().ok())
        });
        found.unwrap_or_else(|| panic!("it did not tell {name}:\n{}", self.log()))
    }

    /// The end of its log.
    pub fn log(&self) -> String {
        let text = fs::read_to_string(&self.log).unwrap_or_default();
        let from = text.len().saturating_sub(20_000);
        text.get(text.ceil_char_boundary(from)..).unwrap_or_default().to_owned()
    }
}

/// Asks again and again until there is an answer.
///
/// # Panics
/// If there is none in time.
pub async fn until<T, F>(what: &str, within: Duration, mut ask: F) -> T
where
    T: Send,
    F: AsyncFnMut() -> Option<T>,
{
    let start = Instant::now();
    loop {
        if let Some(answer) = ask().await {
            return answer;
        }
        assert!(start.elapsed() < within, "not within {within:?}: {what}");
        sleep(Duration::from_millis(20)).await;
    }
}
