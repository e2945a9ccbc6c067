//! The system calls that std does not offer. The only unsafe code of the project; each block says why it is sound.
#![expect(unsafe_code, reason = "signals, the effective user and the death signal have no safe form in std")]

use std::io;
use std::os::unix::process::CommandExt;
use std::process::{self, Command};

/// Signals that Postgres understands.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Signal {
    /// SIGINT: roll back, disconnect everybody, write a checkpoint, end.
    Fast,
    /// SIGQUIT: end at once; the next start recovers.
    Immediate,
    /// SIGKILL: as if the machine had failed, for this one process.
    Kill,
}

impl Signal {
    fn number(self) -> libc::c_int {
        match self {
            Self::Fast => libc::SIGINT,
            Self::Immediate => libc::SIGQUIT,
            Self::Kill => libc::SIGKILL,
        }
    }
}

pub(crate) fn effective_uid() -> u32 {
    // SAFETY: takes nothing, cannot fail, touches no memory of ours.
    unsafe { libc::geteuid() }
}

pub(crate) fn send(pid: u32, signal: Signal) -> io::Result<()> {
    kill(pid, signal.number())
}

/// Whether a process with this id exists (a zombie counts, and so does one of another user).
pub(crate) fn exists(pid: u32) -> bool {
    kill(pid, 0).map_or_else(|error| error.raw_os_error() == Some(libc::EPERM), |()| true)
}

fn kill(pid: u32, signal: libc::c_int) -> io::Result<()> {
    let pid = i32::try_from(pid).ok().filter(|pid| *pid > 0); // 0 and negative ids mean whole groups
    let pid = pid.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "no such process id"))?;
    // SAFETY: plain integers; the kernel checks whether we may.
    if unsafe { libc::kill(pid, signal) } == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// The child gets SIGINT when the thread that spawns it ends; see `spawn.rs` for that thread.
pub(crate) fn end_with_spawner(command: &mut Command) {
    let parent = process::id();
    // SAFETY: the closure runs in the forked child, before exec, where only async-signal-safe calls are allowed: it
    // makes two system calls and allocates nothing (an io::Error from a raw code holds no heap memory).
    unsafe {
        command.pre_exec(move || ask_for_death_signal(parent));
    }
}

#[cfg(target_os = "linux")]
fn ask_for_death_signal(parent: u32) -> io::Result<()> {
    // SAFETY: system calls with plain integers. std has changed the user before this, which would clear the setting.
    let (set, now) = unsafe { (libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGINT), libc::getppid()) };
    if set != 0 {
        return Err(io::Error::last_os_error());
    }
    // The parent may have ended between fork and prctl: then no signal will come.
    if u32::try_from(now) == Ok(parent) { Ok(()) } else { Err(io::Error::from_raw_os_error(libc::ESRCH)) }
}

#[cfg(not(target_os = "linux"))]
#[expect(clippy::unnecessary_wraps, reason = "the same shape as on Linux")]
fn ask_for_death_signal(_parent: u32) -> io::Result<()> {
    Ok(())
}
