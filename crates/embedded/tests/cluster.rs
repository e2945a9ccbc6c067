//! A cluster lives as long as it is wanted and no longer, and keeps what was committed.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a failed helper is a failed test")]

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use postrider_embedded::{Error, Home, Options, Postgres, find};

/// A directory of this test's own, which every user may enter; removed at the end.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Self {
        let path = PathBuf::from(format!("/tmp/postrider-embedded-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn home(&self) -> Home {
        Home::Persistent(self.0.join("home"))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.0).unwrap();
    }
}

fn query(postgres: &Postgres, sql: &str) -> String {
    query_through(&postgres.psql_line("postgres"), sql)
}

/// Despite the variables that clients read, which must not matter.
fn query_through(psql_line: &str, sql: &str) -> String {
    let line = format!("{psql_line} -X -A -t -v ON_ERROR_STOP=1 -c \"$SQL\"");
    let output = Command::new("sh")
        .arg("-c")
        .arg(line)
        .env("SQL", sql)
        .env("PGPORT", "1")
        .env("PGHOST", "/nowhere")
        .output()
        .unwrap();
    assert!(output.status.success(), "{sql}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

/// Waits for a condition that another process brings about; half a minute is far more than it takes.
fn until(what: &str, mut holds: impl FnMut() -> bool) {
    for _ in 0..3_000 {
        if holds() {
            return;
        }
        thread::sleep(Duration::from_millis(10));
    }
    panic!("half a minute passed, and not: {what}");
}

fn runs(pid: u32) -> bool {
    if let Ok(stat) = fs::read_to_string(format!("/proc/{pid}/stat")) {
        return !stat.contains(") Z"); // nobody may be there to reap an orphan
    }
    Command::new("sh").args(["-c", &format!("kill -0 {pid}")]).stderr(Stdio::null()).status().unwrap().success()
}

#[cfg(target_os = "linux")]
fn signal(pid: &str, name: &str) {
    assert!(Command::new("sh").args(["-c", &format!("kill -{name} {pid}")]).status().unwrap().success());
}

/// The example as a process of its own, with a cluster in it.
struct Other {
    process: Child,
    server: u32,
    home: PathBuf,
    psql_line: String,
}

impl Other {
    fn start(home: Option<&Path>) -> Self {
        Self::start_with(home, &std::env::temp_dir())
    }

    fn start_with(home: Option<&Path>, temporary: &Path) -> Self {
        let test = std::env::current_exe().unwrap();
        let example = test.parent().unwrap().parent().unwrap().join("examples/cluster");
        assert!(example.is_file(), "build it first: cargo build -p postrider-embedded --examples");
        let mut process = Command::new(example)
            .args(home)
            .env("TMPDIR", temporary)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let output = BufReader::new(process.stdout.take().unwrap());
        let lines: Vec<String> = output.lines().take(3).map(Result::unwrap).collect();
        let [server, home, psql_line] = lines.as_slice() else { panic!("the example printed {lines:?}") };
        Self { process, server: server.parse().unwrap(), home: home.into(), psql_line: psql_line.clone() }
    }

    #[cfg(target_os = "linux")]
    fn kill(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }
}

#[test]
fn an_ephemeral_cluster_answers_through_a_private_socket_only_and_leaves_nothing() {
    let postgres = Postgres::start(Options::new(Home::Ephemeral).setting("max_connections", "37")).unwrap();
    let home = postgres.home().to_path_buf();
    assert_eq!(query(&postgres, "show listen_addresses"), "");
    assert_eq!(query(&postgres, "show fsync"), "on");
    assert_eq!(query(&postgres, "show max_connections"), "37");
    assert_eq!(query(&postgres, "show server_encoding"), "UTF8");
    assert_eq!(query(&postgres, "select current_user"), "postgres");
    assert_eq!(fs::metadata(postgres.socket_dir()).unwrap().mode() & 0o777, 0o700);
    let pid = postgres.pid().unwrap();
    postgres.stop().unwrap();
    assert!(!runs(pid), "the server ended");
    assert!(!home.exists(), "its home is gone");
}

#[test]
fn dropping_a_cluster_stops_it_too() {
    let postgres = Postgres::start(Options::new(Home::Ephemeral)).unwrap();
    let (pid, home) = (postgres.pid().unwrap(), postgres.home().to_path_buf());
    drop(postgres);
    assert!(!runs(pid) && !home.exists());
}

#[test]
fn a_persistent_home_keeps_its_data_from_one_supervisor_to_the_next() {
    let scratch = Scratch::new("keeps");
    let first = Postgres::start(Options::new(scratch.home())).unwrap();
    query(&first, "create table kept as select 42 as answer");
    first.stop().unwrap();
    let second = Postgres::start(Options::new(scratch.home())).unwrap();
    assert_eq!(query(&second, "select answer from kept"), "42");
    second.stop().unwrap();
    let log = fs::read_to_string(scratch.0.join("home/server.log")).unwrap();
    assert!(!log.contains("not properly shut down"), "a stop is a clean one: {log}");
}

#[test]
fn a_killed_server_starts_again_with_all_that_was_committed() {
    let mut postgres = Postgres::start(Options::new(Home::Ephemeral)).unwrap();
    query(&postgres, "create table kept as select 42 as answer");
    // A backend that computes when its postmaster dies does not notice, and holds the shared memory for two seconds. It writes to the log all
    // the while, so that the last lines there do not tell why a start was refused.
    let sql = "do $$ declare until timestamptz := clock_timestamp() + interval '2 s'; \
               begin while clock_timestamp() < until loop raise log 'still here'; end loop; end $$";
    let line = format!("{} -c \"$SQL\"", postgres.psql_line("postgres"));
    let mut busy = Command::new("sh").arg("-c").arg(line).env("SQL", sql).stderr(Stdio::null()).spawn().unwrap();
    until("the backend computes", || {
        query(&postgres, "select count(*) from pg_stat_activity where query like 'do %' and state = 'active'") == "1"
    });
    let killed = postgres.pid().unwrap();
    postgres.kill().unwrap();
    assert!(!runs(killed) && postgres.pid().is_none());
    postgres.restart().unwrap();
    assert_eq!(query(&postgres, "select answer from kept"), "42");
    assert_ne!(postgres.pid(), Some(killed));
    busy.wait().unwrap();
    let log = fs::read_to_string(postgres.log()).unwrap();
    assert!(log.contains("not properly shut down"), "it was a kill: {log}");
}

#[test]
fn a_halted_server_starts_again() {
    let mut postgres = Postgres::start(Options::new(Home::Ephemeral)).unwrap();
    postgres.halt().unwrap();
    assert_eq!(postgres.pid(), None);
    postgres.restart().unwrap();
    assert_eq!(query(&postgres, "select 1"), "1");
    postgres.restart().unwrap();
    assert_eq!(query(&postgres, "select 1"), "1", "a running one is stopped first");
}

#[test]
fn a_second_start_on_a_home_in_use_is_refused_with_the_ids_and_the_remedy() {
    let scratch = Scratch::new("in-use");
    let mut holder = Other::start(Some(&scratch.0.join("home")));
    let (server, supervisor) = (holder.server, holder.process.id());
    let refusal = Postgres::start(Options::new(scratch.home())).unwrap_err();
    assert!(matches!(refusal, Error::InUse { .. }), "{refusal:?}");
    let text = refusal.to_string();
    assert!(text.contains(&format!("process {supervisor} runs its Postgres")), "{text}");
    assert!(text.contains(&format!("the server is process {server}")), "{text}");
    assert!(text.contains(&format!("kill -INT {supervisor}")), "{text}");
    assert!(runs(server), "the one in use is left alone");
    drop(holder.process.stdin.take());
    assert!(holder.process.wait().unwrap().success());
    Postgres::start(Options::new(scratch.home())).unwrap().stop().unwrap();
}

#[test]
#[cfg(target_os = "linux")]
fn the_server_stops_when_the_process_that_started_it_is_killed_and_its_home_can_be_taken_at_once() {
    let scratch = Scratch::new("orphan");
    let mut parent = Other::start(Some(&scratch.0.join("home")));
    let server = parent.server;
    // A stopped backend holds the shutdown up, so that the orphan is certainly there when the next start looks.
    let writer = "select pid from pg_stat_activity where backend_type = 'walwriter'";
    let writer = query_through(&parent.psql_line, writer);
    signal(&writer, "STOP");
    parent.kill();
    let released = thread::spawn(move || {
        thread::sleep(Duration::from_secs(1));
        signal(&writer, "CONT");
    });
    let next = Postgres::start(Options::new(scratch.home())).unwrap();
    released.join().unwrap();
    assert!(!runs(server), "the orphan ended before the next one started");
    next.stop().unwrap();
    let log = fs::read_to_string(scratch.0.join("home/server.log")).unwrap();
    assert!(!log.contains("not properly shut down"), "the orphan ended in order: {log}");
}

#[test]
#[cfg(target_os = "linux")]
fn a_temporary_home_that_a_killed_process_left_is_removed_by_the_next_start() {
    let mut parent = Other::start(None);
    let (server, left) = (parent.server, parent.home.clone());
    parent.kill();
    until("the orphan ends", || !runs(server));
    Postgres::start(Options::new(Home::Ephemeral)).unwrap().stop().unwrap();
    assert!(!left.exists(), "{} was swept", left.display());
}

#[test]
fn the_server_outlives_the_thread_that_asked_for_it() {
    let started = thread::spawn(|| Postgres::start(Options::new(Home::Ephemeral)).unwrap());
    let postgres = started.join().unwrap();
    for _ in 0..20 {
        assert_eq!(query(&postgres, "select 1"), "1"); // a shutdown would refuse new connections at once
    }
}

#[test]
fn a_stale_pid_file_does_not_matter() {
    let scratch = Scratch::new("stale");
    Postgres::start(Options::new(scratch.home())).unwrap().stop().unwrap();
    let mut ended = Command::new("true").spawn().unwrap();
    ended.wait().unwrap();
    let file = scratch.0.join("home/data/postmaster.pid");
    fs::write(file, format!("{}\n/nowhere\n0\n5432\n/tmp\n\n\nready\n", ended.id())).unwrap();
    Postgres::start(Options::new(scratch.home())).unwrap().stop().unwrap();
}

#[test]
fn a_home_whose_initdb_was_interrupted_gets_a_whole_cluster() {
    let scratch = Scratch::new("half");
    let half = scratch.0.join("home/data.new");
    fs::create_dir_all(half.join("base")).unwrap();
    fs::write(half.join("PG_VERSION"), "15\n").unwrap();
    let postgres = Postgres::start(Options::new(scratch.home())).unwrap();
    assert_eq!(query(&postgres, "select 1"), "1");
    assert!(!half.exists());
}

#[test]
fn a_home_too_deep_for_a_socket_gets_a_short_one_that_goes_with_the_server() {
    let scratch = Scratch::new("deep");
    let home = scratch.0.join("a-name-of-fifty-bytes-a-name-of-fifty-bytes-a-name").join("and-more").join("home");
    let postgres = Postgres::start(Options::new(Home::Persistent(home))).unwrap();
    let socket = postgres.socket_dir().to_path_buf();
    assert!(!socket.starts_with(&scratch.0), "{}", socket.display());
    assert_eq!(fs::metadata(&socket).unwrap().mode() & 0o777, 0o700);
    assert_eq!(query(&postgres, "select 1"), "1");
    postgres.stop().unwrap();
    assert!(!socket.exists());
}

#[test]
fn a_server_that_refuses_a_setting_is_reported_with_the_last_lines_of_its_log() {
    let options = Options::new(Home::Ephemeral).setting("shared_buffers", "many");
    let refusal = Postgres::start(options).unwrap_err().to_string();
    assert!(refusal.contains("invalid value for parameter \"shared_buffers\""), "{refusal}");
}

#[test]
fn a_cluster_of_a_major_that_is_not_here_is_refused_and_named() {
    let scratch = Scratch::new("major");
    let data = scratch.0.join("home/data");
    fs::create_dir_all(&data).unwrap();
    fs::write(data.join("PG_VERSION"), "99\n").unwrap();
    let refusal = Postgres::start(Options::new(scratch.home())).unwrap_err().to_string();
    assert!(refusal.contains("no PostgreSQL 99 found"), "{refusal}");
    assert!(refusal.contains("choose another home"), "{refusal}");
    assert!(data.join("PG_VERSION").exists(), "nothing was touched");
}

#[test]
fn the_named_directory_is_the_only_one_looked_at() {
    let scratch = Scratch::new("bin");
    let found = find(None, None).unwrap();
    assert_eq!(find(Some(&found.bin), None).unwrap(), found);
    let refusal = find(Some(&scratch.0), None).unwrap_err().to_string();
    assert!(refusal.contains(&scratch.0.display().to_string()), "{refusal}");
    assert!(refusal.contains("POSTRIDER_PG_BIN"), "{refusal}");
}

#[test]
fn a_postgres_without_initdb_beside_it_is_not_taken() {
    let scratch = Scratch::new("lone");
    std::os::unix::fs::symlink("/bin/true", scratch.0.join("postgres")).unwrap();
    assert!(matches!(find(Some(&scratch.0), None), Err(Error::NotFound(_))));
}

#[test]
fn root_is_told_which_directory_shuts_its_server_out() {
    let scratch = Scratch::new("shut");
    if fs::metadata(&scratch.0).unwrap().uid() != 0 {
        return; // a plain user runs the server as itself
    }
    let shut = scratch.0.join("shut");
    fs::create_dir(&shut).unwrap();
    fs::set_permissions(&shut, std::os::unix::fs::PermissionsExt::from_mode(0o700)).unwrap();
    let refusal = Postgres::start(Options::new(Home::Persistent(shut.join("home")))).unwrap_err();
    assert!(matches!(refusal, Error::Account(_)), "{refusal:?}");
    assert!(refusal.to_string().contains(&format!("chmod o+x {}", shut.display())), "{refusal}");
    assert!(!shut.join("home").exists(), "nothing was made");
}

#[test]
fn a_temporary_directory_of_root_alone_is_passed_over() {
    let scratch = Scratch::new("tmpdir");
    if fs::metadata(&scratch.0).unwrap().uid() != 0 {
        return; // a plain user runs the server as itself
    }
    fs::set_permissions(&scratch.0, std::os::unix::fs::PermissionsExt::from_mode(0o700)).unwrap();
    let mut other = Other::start_with(None, &scratch.0);
    assert_eq!(query_through(&other.psql_line, "select 1"), "1");
    assert!(!other.home.starts_with(&scratch.0), "{}", other.home.display());
    drop(other.process.stdin.take());
    assert!(other.process.wait().unwrap().success());
}
