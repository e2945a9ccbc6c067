//! Runs the built binary and reads what it prints.

use std::collections::BTreeMap;
use std::env;
use std::fs;
use std::io::{BufRead, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;

const PAUSE: Duration = Duration::from_millis(50);
/// A loaded machine needs long to make a cluster.
const PAUSES: u32 = 2_400;

/// The binary with nothing of the environment that would configure it, in a directory without a configuration.
pub(crate) fn postrider(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_postrider"));
    for (name, _) in env::vars_os() {
        let ours = name.to_str().is_some_and(|name| name.starts_with("POSTRIDER_") && name != "POSTRIDER_PG_BIN");
        if ours || name == "DATABASE_URL" {
            command.env_remove(&name);
        }
    }
    command.args(args).current_dir(env::temp_dir()).stdin(Stdio::null());
    command
}

/// A file of real events, if this machine has one: `POSTRIDER_EVENTS`, else the data beside the repository.
pub(crate) fn real_events() -> Option<PathBuf> {
    let beside = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data/github-events.ndjson.gz");
    env::var_os("POSTRIDER_EVENTS").map(PathBuf::from).or(Some(beside)).filter(|path| path.is_file())
}

/// A running binary, killed when it is dropped.
pub(crate) struct Running {
    child: Child,
    printed: Arc<Mutex<Vec<String>>>,
    readers: Vec<JoinHandle<()>>,
}

/// How a run ended and what it printed, both streams.
pub(crate) struct Ended {
    pub(crate) status: ExitStatus,
    pub(crate) printed: Vec<String>,
}

impl Running {
    pub(crate) fn start(args: &[&str]) -> Self {
        let mut command = postrider(args);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the binary starts");
        let printed = Arc::new(Mutex::new(Vec::new()));
        let streams: [Box<dyn std::io::Read + Send>; 2] =
            [Box::new(child.stdout.take().expect("piped")), Box::new(child.stderr.take().expect("piped"))];
        let readers = streams.map(|stream| {
            let printed = Arc::clone(&printed);
            thread::spawn(move || {
                for line in BufReader::new(stream).lines().map_while(Result::ok) {
                    printed.lock().expect("no reader panics").push(line);
                }
            })
        });
        Self { child, printed, readers: readers.into() }
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn printed(&self) -> Vec<String> {
        self.printed.lock().expect("no reader panics").clone()
    }

    /// What follows a word at the beginning of a line, once it is printed.
    pub(crate) fn told(&mut self, word: &str) -> String {
        let told = |lines: &[String]| lines.iter().find_map(|line| Some(line.strip_prefix(word)?.trim().to_owned()));
        for _ in 0..PAUSES {
            if let Some(told) = told(&self.printed()) {
                return told;
            }
            assert!(self.child.try_wait().expect("it can be asked").is_none(), "it ended: {:?}", self.printed());
            thread::sleep(PAUSE);
        }
        panic!("it never told {word}: {:?}", self.printed());
    }

    /// Where its page is.
    pub(crate) fn page(&mut self) -> SocketAddr {
        let url = self.told("Page ");
        url.trim_start_matches("http://").trim_end_matches('/').parse().expect("an address")
    }

    pub(crate) fn signal(&self, name: &str) {
        let sent = Command::new("kill").args(["-s", name, &self.child.id().to_string()]).status();
        assert!(sent.expect("kill runs").success());
    }

    pub(crate) fn end(mut self) -> Ended {
        let status = 'status: {
            for _ in 0..PAUSES {
                if let Some(status) = self.child.try_wait().expect("it can be asked") {
                    break 'status status;
                }
                thread::sleep(PAUSE);
            }
            panic!("it does not end: {:?}", self.printed());
        };
        for reader in self.readers.drain(..) {
            reader.join().expect("no reader panics");
        }
        Ended { status, printed: self.printed() }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It has ended already where the test went well.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

impl Ended {
    /// The numbers of the summary's line that begins with a word.
    pub(crate) fn numbers(&self, word: &str) -> Vec<u64> {
        let line = self.printed.iter().rev().find(|line| line.starts_with(word));
        let line = line.unwrap_or_else(|| panic!("no {word}: {:?}", self.printed));
        let (mut numbers, mut open) = (Vec::new(), false);
        // Groups of three digits are joined by single spaces: "1 234" is one number.
        for part in line.split(' ') {
            match part.parse::<u64>() {
                Ok(group) if open && part.len() == 3 => {
                    let last: &mut u64 = numbers.last_mut().expect("a number is open");
                    *last = *last * 1_000 + group;
                }
                Ok(number) => {
                    numbers.push(number);
                    open = true;
                }
                Err(_) => open = false,
            }
        }
        numbers
    }
}

/// One GET: the status, the headers in lower case, the body.
pub(crate) fn get(address: SocketAddr, path: &str) -> (u16, BTreeMap<String, String>, String) {
    get_as(address, &address.to_string(), path)
}

/// The same, under another host name.
pub(crate) fn get_as(address: SocketAddr, host: &str, path: &str) -> (u16, BTreeMap<String, String>, String) {
    let mut stream = TcpStream::connect(address).expect("it listens");
    stream.set_read_timeout(Some(Duration::from_secs(10))).expect("a time-out can be set");
    write!(stream, "GET {path} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n").expect("it takes a request");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("it answers");
    let (head, body) = answer.split_once("\r\n\r\n").expect("a head and a body");
    let mut lines = head.lines();
    let status = lines.next().and_then(|line| line.split(' ').nth(1)?.parse().ok()).expect("a status");
    let headers = lines.filter_map(|line| line.split_once(": ")).map(|(n, v)| (n.to_lowercase(), v.to_owned()));
    (status, headers.collect(), body.to_owned())
}

/// Asks a path again and again until the answer is as wanted.
pub(crate) fn until(address: SocketAddr, path: &str, wanted: impl Fn(u16, &str) -> bool) -> String {
    let mut last = String::new();
    for _ in 0..PAUSES {
        let (status, _, body) = get(address, path);
        if wanted(status, &body) {
            return body;
        }
        last = body;
        thread::sleep(PAUSE);
    }
    panic!("{path} never was as wanted: {last}");
}

/// The processes that name a path on their command line.
pub(crate) fn processes_of(path: &Path) -> Vec<String> {
    let path = path.to_str().expect("UTF-8");
    let entries = fs::read_dir("/proc").expect("Linux").filter_map(Result::ok);
    let lines = entries.filter_map(|entry| fs::read(entry.path().join("cmdline")).ok());
    lines.map(|line| String::from_utf8_lossy(&line).replace('\0', " ")).filter(|line| line.contains(path)).collect()
}
