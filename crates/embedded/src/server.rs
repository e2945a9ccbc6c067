use std::collections::VecDeque;
use std::env;
use std::ffi::OsStr;
use std::fmt::Write as _;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead as _, BufReader, Read as _, Seek as _, SeekFrom};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::Duration;

use crate::account::Account;
use crate::error::{Error, Named};
use crate::finder::{self, Installation};
use crate::home::{Claimed, Home, Postmaster};
use crate::spawn::spawn;
use crate::sys::{self, Signal};

const PAUSE: Duration = Duration::from_millis(10);
/// Recovery after a crash may replay a lot.
const READY_PAUSES: u32 = 12_000;
const FAST_PAUSES: u32 = 3_000;
const IMMEDIATE_PAUSES: u32 = 1_000;
/// Old backends end within milliseconds of their postmaster, unless the machine is very busy.
const STARTS_MAX: u32 = 150;
const START_PAUSE: Duration = Duration::from_millis(200);
const LOG_BYTES_MAX: u64 = 8 << 20;
const TAIL_LINES: usize = 20;
/// What a server says that finds memory of its predecessor still in use.
const STILL_ATTACHED: &str = "pre-existing shared memory block";

/// What to start.
#[derive(Debug, Clone)]
pub struct Options {
    /// Where the cluster lives.
    pub home: Home,
    /// Server settings by name, as in `postgresql.conf`: `("max_connections", "300")`. They hold for this run.
    pub settings: Vec<(String, String)>,
    /// The directory of `postgres` and `initdb`. Default: the variable `POSTRIDER_PG_BIN`, else a search.
    pub bin: Option<PathBuf>,
}

impl Options {
    /// A cluster at `home`, with Postgres' own settings.
    pub fn new(home: Home) -> Self {
        Self { home, settings: Vec::new(), bin: None }
    }

    /// Adds a server setting.
    #[must_use]
    pub fn setting(mut self, name: &str, value: &str) -> Self {
        self.settings.push((name.into(), value.into()));
        self
    }

    /// The home of `postrider dev`: `$XDG_DATA_HOME/postrider/dev`, usually `~/.local/share/postrider/dev`. Root's own
    /// directory is closed to the user that Postgres then runs as, so for root it is `/var/lib/postrider/dev`.
    pub fn default_home() -> Home {
        let named = |name| env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
        let base = if sys::effective_uid() == 0 {
            PathBuf::from("/var/lib")
        } else {
            let share = named("XDG_DATA_HOME").or_else(|| Some(named("HOME")?.join(".local/share")));
            share.unwrap_or_else(|| PathBuf::from(".local/share"))
        };
        Home::Persistent(base.join("postrider/dev"))
    }
}

/// A running cluster. Dropping it stops the server; [`Postgres::stop`] also says what went wrong.
#[derive(Debug)]
pub struct Postgres {
    installation: Installation,
    home: Claimed,
    settings: Vec<(String, String)>,
    child: Option<Child>,
}

impl Postgres {
    /// Finds a Postgres, makes the cluster if there is none, starts it and waits until it takes connections.
    ///
    /// # Errors
    /// Whatever [`Error`] names; nothing is left running.
    pub fn start(options: Options) -> Result<Self, Error> {
        let home = Claimed::take(options.home, Account::needed()?)?;
        let installation = finder::find(options.bin.as_deref(), home.major())?;
        if let Some(account) = home.account() {
            account.reaches(&installation.bin)?;
        }
        let mut postgres = Self { installation, home, settings: options.settings, child: None };
        if postgres.home.major().is_none() {
            postgres.make_cluster()?;
        }
        postgres.launch()?;
        Ok(postgres)
    }

    /// A connection URL for a database of this cluster, as user `postgres`. It leaves nothing to the variables
    /// `PGPORT`, `PGSSLMODE` and so on, which clients would otherwise read.
    pub fn url(&self, database: &str) -> String {
        let host = percent_encoded(self.home.socket().as_os_str());
        format!("postgres://postgres@{host}:5432/{}?sslmode=disable", percent_encoded(OsStr::new(database)))
    }

    /// The command that opens a database of this cluster in a terminal.
    pub fn psql_line(&self, database: &str) -> String {
        let own = self.installation.bin.join("psql");
        let psql = if own.is_file() { own } else { PathBuf::from("psql") };
        let socket = self.home.socket().to_string_lossy();
        format!(
            "{} -h {} -p 5432 -U postgres -d {}",
            quoted(&psql.to_string_lossy()),
            quoted(&socket),
            quoted(database)
        )
    }

    /// The directory of the socket, mode 0700.
    pub fn socket_dir(&self) -> &Path {
        self.home.socket()
    }

    /// The directory that holds the cluster, its socket and its log.
    pub fn home(&self) -> &Path {
        self.home.root()
    }

    /// The file the server logs to.
    pub fn log(&self) -> PathBuf {
        self.home.log()
    }

    /// The programs that this cluster runs on.
    pub fn installation(&self) -> &Installation {
        &self.installation
    }

    /// The process id of the server, if it was not stopped or killed through this value.
    pub fn pid(&self) -> Option<u32> {
        self.child.as_ref().map(Child::id)
    }

    /// Stops the server cleanly and removes an ephemeral home.
    ///
    /// # Errors
    /// [`Error::Io`] if the server cannot be signalled or the home not be removed.
    pub fn stop(mut self) -> Result<(), Error> {
        self.halt()?;
        self.home.leave()
    }

    /// Stops the server cleanly and keeps the home, for [`Postgres::restart`].
    ///
    /// # Errors
    /// [`Error::Io`] if the server cannot be signalled.
    pub fn halt(&mut self) -> Result<(), Error> {
        for (signal, pauses) in [(Signal::Fast, FAST_PAUSES), (Signal::Immediate, IMMEDIATE_PAUSES)] {
            self.signal(signal)?;
            for _ in 0..pauses {
                if self.exited()?.is_some() {
                    self.child = None;
                    return Ok(());
                }
                thread::sleep(PAUSE);
            }
        }
        self.kill()
    }

    /// Kills the server's first process with SIGKILL, as a fault would; its backends notice and end by themselves.
    ///
    /// # Errors
    /// [`Error::Io`] if it cannot be signalled.
    pub fn kill(&mut self) -> Result<(), Error> {
        self.signal(Signal::Kill)?;
        if let Some(mut child) = self.child.take() {
            child.wait().named("wait for", &self.installation.bin)?;
        }
        Ok(())
    }

    /// Starts the server again on the same data, after a kill, a halt, or a clean stop of its own.
    ///
    /// # Errors
    /// As [`Postgres::start`].
    pub fn restart(&mut self) -> Result<(), Error> {
        self.halt()?;
        self.launch()
    }

    fn make_cluster(&self) -> Result<(), Error> {
        let nursery = self.home.nursery()?;
        let mut command = self.program("initdb");
        command.args(["-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-locale", "-D"]).arg(&nursery);
        if self.home.is_ephemeral() {
            command.arg("--no-sync"); // a power cut takes the temporary directory anyway; the server itself does sync
        }
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let output = spawn(command).and_then(Child::wait_with_output).named("run initdb of", &self.installation.bin)?;
        if !output.status.success() {
            let printed = [output.stdout, output.stderr].concat();
            let output = String::from_utf8_lossy(&printed).trim_end().to_owned();
            return Err(Error::Initdb { data: nursery, output });
        }
        self.home.adopt(&nursery)
    }

    /// Starts the server; while backends of a killed predecessor live on, it refuses, and is asked again.
    fn launch(&mut self) -> Result<(), Error> {
        for _ in 1..STARTS_MAX {
            match self.launch_once() {
                Ok(Err(failed)) if failed.attached => thread::sleep(START_PAUSE),
                settled => return settled?.map_err(|failed| failed.told(self.home.log())),
            }
        }
        self.launch_once()?.map_err(|failed| failed.told(self.home.log()))
    }

    /// The inner error says why the server refused.
    fn launch_once(&mut self) -> Result<Result<(), Refused>, Error> {
        let path = self.home.log();
        let log = open_log(&path).named("open", &path)?;
        let seen = log.metadata().named("look at", &path)?.len();
        let mut command = self.program("postgres");
        command.arg("-D").arg(self.home.data()).arg("-k").arg(self.home.socket());
        command.args(["-c", "listen_addresses=", "-c", "port=5432", "-c", "unix_socket_permissions=0700"]);
        for (name, value) in &self.settings {
            command.arg("-c").arg(format!("{name}={value}"));
        }
        command.stdin(Stdio::null()).stdout(log.try_clone().named("share", &path)?).stderr(log);
        self.child = Some(spawn(command).named("run postgres of", &self.installation.bin)?);
        let Err(what) = self.wait_until_ready()? else { return Ok(Ok(())) };
        self.child = None;
        let (attached, tail) = since(&path, seen).named("read", &path)?;
        Ok(Err(Refused { what, attached, tail }))
    }

    /// The inner error says how the server failed; it has ended then.
    fn wait_until_ready(&mut self) -> Result<Result<(), String>, Error> {
        for _ in 0..READY_PAUSES {
            if let Some(status) = self.exited()? {
                return Ok(Err(status.to_string()));
            }
            if Postmaster::of(&self.home.data()).is_some_and(|found| found.is_ready && Some(found.pid) == self.pid()) {
                return Ok(Ok(()));
            }
            thread::sleep(PAUSE);
        }
        self.kill()?;
        Ok(Err("not ready after two minutes".into()))
    }

    /// One of the programs, in a process group of its own: Ctrl-C reaches us first, and we stop it in order.
    fn program(&self, name: &str) -> Command {
        let mut command = Command::new(self.installation.bin.join(name));
        for (variable, _) in env::vars_os().filter(|(name, _)| name.as_bytes().starts_with(b"PG")) {
            command.env_remove(variable); // PGDATA, PGPORT, PGOPTIONS … are about another server
        }
        command.env("LC_ALL", "C").current_dir("/").process_group(0);
        if let Some(account) = self.home.account() {
            account.run(&mut command);
        }
        command
    }

    fn signal(&mut self, signal: Signal) -> Result<(), Error> {
        if self.exited()?.is_some() {
            return Ok(());
        }
        let Some(pid) = self.pid() else { return Ok(()) };
        sys::send(pid, signal).named("signal postgres of", &self.home.data())
    }

    /// Set once the server is no more; also when there never was one.
    fn exited(&mut self) -> Result<Option<ExitStatus>, Error> {
        match &mut self.child {
            Some(child) => child.try_wait().named("wait for postgres of", &self.home.data()),
            None => Ok(Some(ExitStatus::default())),
        }
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        drop(self.halt()); // nobody can be told here; `stop` is for those who ask
    }
}

fn open_log(path: &Path) -> io::Result<File> {
    if fs::metadata(path).is_ok_and(|found| found.len() > LOG_BYTES_MAX) {
        fs::rename(path, path.with_extension("log.old"))?;
    }
    OpenOptions::new().create(true).append(true).open(path)
}

/// A start that came to nothing.
struct Refused {
    what: String,
    /// Whether it said that memory of its predecessor is still in use.
    attached: bool,
    tail: String,
}

impl Refused {
    fn told(self, log: PathBuf) -> Error {
        Error::Start { what: self.what, tail: self.tail, log }
    }
}

/// Whether a server said after the first `seen` bytes that memory of its predecessor is still in use, and the last lines. All of them are looked at,
/// however many there are: whoever survived a killed predecessor writes there too.
fn since(path: &Path, seen: u64) -> io::Result<(bool, String)> {
    let mut file = File::open(path)?;
    let now = file.metadata()?.len();
    file.seek(SeekFrom::Start(seen))?;
    let (mut attached, mut last) = (false, VecDeque::new());
    for line in BufReader::new(file).take(now.saturating_sub(seen)).split(b'\n') {
        let line = String::from_utf8_lossy(&line?).into_owned();
        attached |= line.contains(STILL_ATTACHED);
        last.push_back(line);
        if last.len() > TAIL_LINES {
            last.pop_front();
        }
    }
    Ok((attached, Vec::from(last).join("\n")))
}

fn percent_encoded(text: &OsStr) -> String {
    let mut encoded = String::new();
    for byte in text.as_bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(byte) {
            encoded.push(char::from(*byte));
        } else {
            let _ = write!(encoded, "%{byte:02X}"); // writing to a String does not fail
        }
    }
    encoded
}

/// One word for a shell.
fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/._-@+:".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        word.into()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_encodes_every_byte_that_has_a_meaning_in_urls() {
        assert_eq!(percent_encoded(OsStr::new("/tmp/a b%/ü~x-1._")), "%2Ftmp%2Fa%20b%25%2F%C3%BC~x-1._");
    }

    #[test]
    fn a_word_with_blanks_or_quotes_survives_a_shell() {
        for word in ["/usr/bin/psql", "a b", "it's", "$HOME", ""] {
            let echoed = Command::new("sh").arg("-c").arg(format!("printf %s {}", quoted(word))).output().unwrap();
            assert_eq!(String::from_utf8(echoed.stdout).unwrap(), word);
        }
    }

    #[test]
    fn what_a_refused_server_said_is_found_whatever_others_wrote_meanwhile() {
        let path = env::temp_dir().join(format!("postrider-log-{}", std::process::id()));
        let noise = "LOG:  still here\n".repeat(1_000_000);
        let said = "FATAL:  pre-existing shared memory block (key 1, ID 2) is still in use\n";
        fs::write(&path, format!("{said}{noise}{said}{noise}LOG:  the last line\n")).unwrap();
        let (attached, tail) = since(&path, said.len() as u64).unwrap();
        let (elsewhere, _) = since(&path, (said.len() * 2 + noise.len()) as u64).unwrap();
        fs::remove_file(&path).unwrap();
        assert!(attached && !elsewhere, "what was said before the start is not about it");
        assert_eq!((tail.lines().count(), tail.lines().next_back()), (20, Some("LOG:  the last line")));
    }
}
