//! Linux sends the death signal when the *thread* that spawned a child ends, not when the process does. So every
//! child is spawned by one thread that lives as long as the process, whichever thread asks for it.

use std::io;
use std::process::{Child, Command};
use std::sync::mpsc::{self, Sender};
use std::sync::{Mutex, PoisonError};
use std::thread;

use crate::sys;

type Request = (Command, Sender<io::Result<Child>>);

static SPAWNER: Mutex<Option<Sender<Request>>> = Mutex::new(None);

/// Starts `command`, so that it gets SIGINT when this process ends.
pub(crate) fn spawn(mut command: Command) -> io::Result<Child> {
    sys::end_with_spawner(&mut command);
    let (reply, child) = mpsc::channel();
    spawner()?.send((command, reply)).map_err(|_| gone())?;
    child.recv().map_err(|_| gone())?
}

fn spawner() -> io::Result<Sender<Request>> {
    let mut spawner = SPAWNER.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(requests) = &*spawner {
        return Ok(requests.clone());
    }
    let (requests, inbox) = mpsc::channel::<Request>();
    thread::Builder::new().name("postrider-spawner".into()).spawn(move || {
        // The other end stands in a static, so this loop ends with the process only.
        for (mut command, reply) in inbox {
            // Nobody waits for the answer any more: then the child is not wanted either, and dropping it detaches it
            // until the process ends.
            drop(reply.send(command.spawn()));
        }
    })?;
    Ok(spawner.insert(requests).clone())
}

fn gone() -> io::Error {
    io::Error::other("the thread that spawns Postgres has ended")
}
