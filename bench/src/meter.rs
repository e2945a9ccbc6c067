//! What a process and the server cost: processor time, memory, log bytes; and how busy the machine is with others.

use std::fs;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, Result};
use nix::time::{ClockId, clock_getcpuclockid, clock_gettime};
use nix::unistd::Pid;
use sqlx::PgPool;

/// Microseconds since the epoch: one clock for every process of this machine.
pub(crate) fn unix_us() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_micros()).unwrap_or(i64::MAX)
}

/// The processor time of one process so far, all its threads.
pub(crate) fn cpu_of(pid: u32) -> Option<Duration> {
    let clock = clock_getcpuclockid(Pid::from_raw(i32::try_from(pid).ok()?)).ok()?;
    clock_gettime(clock).ok().map(Duration::from)
}

/// The processor time of this process so far.
pub(crate) fn own_cpu() -> Duration {
    clock_gettime(ClockId::CLOCK_PROCESS_CPUTIME_ID).map(Duration::from).unwrap_or_default()
}

/// The processor time of the whole server so far: what lives, and what its first process has waited for.
pub(crate) fn server_cpu(postmaster: u32) -> Duration {
    let living: Duration = children(postmaster).into_iter().filter_map(cpu_of).sum();
    living + cpu_of(postmaster).unwrap_or_default() + ended_children(postmaster).unwrap_or_default()
}

fn children(parent: u32) -> Vec<u32> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    let pids = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter(|pid| stat(*pid).and_then(|fields| fields.get(1)?.parse().ok()) == Some(parent)).collect()
}

/// The fields of `/proc/<pid>/stat` from the state on, which is field 3 of proc(5).
fn stat(pid: u32) -> Option<Vec<String>> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    Some(text.get(text.rfind(')')? + 2..)?.split(' ').map(str::to_owned).collect())
}

/// Fields 16 and 17 of proc(5), in hundredths of a second.
fn ended_children(pid: u32) -> Option<Duration> {
    let fields = stat(pid)?;
    let ticks = |at: usize| fields.get(at)?.parse::<u64>().ok();
    Some(Duration::from_millis((ticks(13)? + ticks(14)?) * 10))
}

/// The memory that a process has in use, and the most that it had, in MB.
pub(crate) fn rss_mb(pid: u32) -> Option<(f64, f64)> {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let kb = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name))?;
        line.trim_start_matches(':').trim().trim_end_matches(" kB").parse::<f64>().ok()
    };
    Some((kb("VmRSS")? / 1024.0, kb("VmHWM")? / 1024.0))
}

/// The processor time that this machine has spent at all, and the number of its processors.
fn machine_cpu() -> Option<(Duration, usize)> {
    let text = fs::read_to_string("/proc/stat").ok()?;
    let all = text.lines().next()?;
    // user, nice, system; then idle and iowait, which are not work; then irq and softirq
    let ticks: Vec<u64> = all.split_whitespace().skip(1).filter_map(|n| n.parse().ok()).collect();
    let busy: u64 = [0, 1, 2, 5, 6].iter().filter_map(|at| ticks.get(*at)).sum();
    let processors = text.lines().filter(|line| line.starts_with("cpu")).count() - 1;
    Some((Duration::from_millis(busy * 10), processors))
}

/// `/proc/loadavg`, as it is.
pub(crate) fn load() -> String {
    fs::read_to_string("/proc/loadavg").unwrap_or_default().trim().to_owned()
}

/// Waits for a machine that others leave alone, at most `most`; answers with the share of its processors that they took last.
pub(crate) async fn quiet(most: Duration) -> f64 {
    let mut waited = Duration::ZERO;
    loop {
        let before = machine_cpu();
        tokio::time::sleep(Duration::from_secs(1)).await;
        waited += Duration::from_secs(1);
        let share = match (before, machine_cpu()) {
            (Some((before, processors)), Some((after, _))) => {
                after.saturating_sub(before).as_secs_f64() / f64::from(u32::try_from(processors).unwrap_or(1))
            }
            _ => 0.0,
        };
        if share < 0.1 || waited >= most {
            return share;
        }
    }
}

/// What others took of the machine while something was measured.
#[derive(Debug)]
pub(crate) struct Others {
    machine: Duration,
    mine: Duration,
    processors: usize,
    started: SystemTime,
    postmaster: u32,
}

impl Others {
    pub(crate) fn start(postmaster: u32) -> Self {
        let (machine, processors) = machine_cpu().unwrap_or_default();
        let mine = own_cpu() + server_cpu(postmaster);
        Self { machine, mine, processors: processors.max(1), started: SystemTime::now(), postmaster }
    }

    /// Their share of all processors, in per cent; `child` is what a worker of ours took meanwhile.
    pub(crate) fn share(&self, child: Duration) -> f64 {
        let machine = machine_cpu().unwrap_or_default().0.saturating_sub(self.machine);
        let mine = (own_cpu() + server_cpu(self.postmaster)).saturating_sub(self.mine) + child;
        let wall = self.started.elapsed().unwrap_or_default().as_secs_f64();
        let processors = f64::from(u32::try_from(self.processors).unwrap_or(1));
        machine.saturating_sub(mine).as_secs_f64() / wall / processors * 100.0
    }
}

/// Where the log is, in bytes.
pub(crate) async fn wal(pool: &PgPool) -> Result<f64> {
    let text: String = sqlx::query_scalar("select (pg_current_wal_insert_lsn() - '0/0')::text").fetch_one(pool).await?;
    text.parse().context("a position in the log")
}
