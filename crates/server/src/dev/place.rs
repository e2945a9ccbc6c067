//! Where the database of `dev` is: one of our own on this machine, or one that was named.

use std::fs::{self, OpenOptions};
use std::io::{ErrorKind, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use postrider_embedded::{Home, Options, Postgres};
use secrecy::{ExposeSecret as _, SecretString};

use crate::config::{Config, Problem};
use crate::system;

/// The database that is made on a Postgres of our own.
pub const DATABASE: &str = "postrider";
const KEY_FILE: &str = "seal.key";

/// A database, and the Postgres under it if it is ours to stop.
#[derive(Debug)]
pub struct Place {
    url: SecretString,
    own: Option<Postgres>,
    home: Option<PathBuf>,
    ephemeral: bool,
}

/// Refuses what contradicts itself.
pub fn check(config: &Config, ephemeral: bool) -> Result<(), Problem> {
    let names_database = config.database_url.is_some() && !config.database_url_is_a_fallback;
    if ephemeral && names_database {
        let remedy = "leave one of them out: an ephemeral run starts a Postgres of its own";
        return Err(Problem::new("--ephemeral", "a database is named too", remedy));
    }
    if ephemeral && config.data_dir.is_some() {
        let remedy = "leave one of them out: an ephemeral run keeps nothing";
        return Err(Problem::new("--ephemeral", "a data_dir is named too", remedy));
    }
    Ok(())
}

impl Place {
    /// Finds the database, or starts a Postgres. Call it on the main thread: the server ends with the thread that started it.
    pub fn open(config: &Config, ephemeral: bool) -> anyhow::Result<Self> {
        let named = config.database_url.as_ref().filter(|_| !ephemeral);
        let home = if ephemeral { Home::Ephemeral } else { home(config) };
        if let Some(url) = named {
            let home = match home {
                Home::Persistent(path) => Some(path),
                _ => None,
            };
            return Ok(Self { url: url.clone(), own: None, home, ephemeral });
        }
        let mut options = Options::new(home);
        options.bin.clone_from(&config.pg_bin);
        let own = Postgres::start(options)?;
        let (url, home) = (SecretString::from(own.url(DATABASE)), Some(own.home().to_path_buf()));
        Ok(Self { url, own: Some(own), home, ephemeral })
    }

    /// The URL of the database.
    pub fn url(&self) -> &str {
        self.url.expose_secret()
    }

    /// The URL of the database that is there from the start, if the Postgres is ours and ours may have to be made.
    pub fn first_url(&self) -> Option<String> {
        self.own.as_ref().map(|own| own.url("postgres"))
    }

    /// The command that opens the database in a terminal, if the Postgres is ours.
    pub fn psql_line(&self) -> Option<String> {
        self.own.as_ref().map(|own| own.psql_line(DATABASE))
    }

    /// Where the data lies, if the Postgres is ours, and whether it is kept.
    pub fn data(&self) -> Option<(&Path, bool)> {
        self.own.as_ref().map(|own| (own.home(), !self.ephemeral))
    }

    /// The keys that seal secrets: those that were given, else one that is made once and kept beside the data.
    pub fn seal_keys(&self, config: &Config) -> anyhow::Result<Vec<SecretString>> {
        if let Some(keys) = &config.seal_key {
            return Ok(keys.clone());
        }
        let fresh = || Ok::<_, anyhow::Error>(SecretString::from(STANDARD.encode(system::secret_bytes()?)));
        let key = match &self.home {
            Some(home) if !self.ephemeral => kept_key(home, fresh)?,
            _ => fresh()?,
        };
        Ok(vec![key])
    }

    /// Stops the Postgres, if it is ours.
    pub fn close(self) -> anyhow::Result<()> {
        match self.own {
            Some(own) => own.stop().context("Postgres was not stopped"),
            None => Ok(()),
        }
    }
}

fn home(config: &Config) -> Home {
    config.data_dir.clone().map_or_else(Options::default_home, Home::Persistent)
}

fn kept_key(home: &Path, fresh: impl Fn() -> anyhow::Result<SecretString>) -> anyhow::Result<SecretString> {
    let path = home.join(KEY_FILE);
    match fs::read_to_string(&path) {
        Ok(key) => return Ok(SecretString::from(key.trim().to_owned())),
        Err(e) if e.kind() == ErrorKind::NotFound => {}
        Err(e) => return Err(e).with_context(|| format!("{} cannot be read", path.display())),
    }
    let key = fresh()?;
    fs::create_dir_all(home).with_context(|| format!("{} cannot be made", home.display()))?;
    OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&path)
        .and_then(|mut file| writeln!(file, "{}", key.expose_secret()))
        .with_context(|| format!("{} cannot be written; name a key with seal_key", path.display()))?;
    Ok(key)
}
