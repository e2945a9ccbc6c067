use std::io;
use std::path::{Path, PathBuf};

/// Why no cluster runs. Each text says what to do about it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// No usable Postgres on this machine.
    #[error("{0}")]
    NotFound(String),
    /// Root has no other user to become, or that user cannot reach a directory.
    #[error("{0}")]
    Account(String),
    /// Somebody else runs this cluster.
    #[error("{} is in use: {holder}. Stop that one first ({remedy}), or give this run a home of its own", .home.display())]
    InUse {
        /// The home of the cluster.
        home: PathBuf,
        /// Who holds it, with process ids.
        holder: String,
        /// The command that ends the holder.
        remedy: String,
    },
    /// `initdb` failed.
    #[error("initdb could not make a cluster in {}:\n{output}", .data.display())]
    Initdb {
        /// The directory it worked in.
        data: PathBuf,
        /// What it printed.
        output: String,
    },
    /// `postgres` ended, or did not become ready in time.
    #[error("postgres did not start ({what}); the last lines of {}:\n{tail}", .log.display())]
    Start {
        /// How it ended.
        what: String,
        /// The server's log.
        log: PathBuf,
        /// Its last lines, those of this start only.
        tail: String,
    },
    /// The system refused a file or a process.
    #[error("cannot {action} {}: {source}", .path.display())]
    Io {
        /// What was tried, as a verb.
        action: &'static str,
        /// On what.
        path: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
}

/// Adds to an I/O error what was tried on which path.
pub(crate) trait Named<T> {
    fn named(self, action: &'static str, path: &Path) -> Result<T, Error>;
}

impl<T> Named<T> for io::Result<T> {
    fn named(self, action: &'static str, path: &Path) -> Result<T, Error> {
        self.map_err(|source| Error::Io { action, path: path.to_path_buf(), source })
    }
}
