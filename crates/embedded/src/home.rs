//! A home holds `data/` (the cluster), `run/` (the socket), `server.log` and `lock`. Whoever holds the lock may start,
//! make or remove what stands there; the system drops it with the process, so that no crash leaves it behind.

use std::env;
use std::fs::{self, DirBuilder, File, OpenOptions, Permissions, TryLockError};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf, absolute};
use std::process;
use std::thread;
use std::time::Duration;

use crate::account::Account;
use crate::error::{Error, Named};
use crate::sys;

/// Where a cluster lives.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Home {
    /// This directory, made if it is not there; what is stored stays.
    Persistent(PathBuf),
    /// A temporary directory, removed when the server stops.
    Ephemeral,
}

/// The longest path of a Unix socket: `sun_path` less its final zero.
const SOCKET_PATH_MAX: usize = if cfg!(target_os = "macos") { 103 } else { 107 };
const SOCKET: &str = ".s.PGSQL.5432";
const EPHEMERAL: &str = "postrider-ephemeral-";
const PAUSE: Duration = Duration::from_millis(20);

/// A home that this process holds.
#[derive(Debug)]
pub(crate) struct Claimed {
    root: PathBuf,
    socket: PathBuf,
    ephemeral: bool,
    account: Option<Account>,
    _lock: File,
}

impl Claimed {
    pub(crate) fn take(home: Home, account: Option<Account>) -> Result<Self, Error> {
        let (root, ephemeral, lock) = match home {
            Home::Persistent(root) => {
                let root = absolute(&root).named("resolve", &root)?;
                if let (Some(account), Some(there)) = (&account, root.ancestors().find(|path| path.exists())) {
                    account.reaches(there)?; // before anything is made below
                }
                make_directory(&root, root_mode(account.as_ref()))?;
                let lock = hold(&root)?.ok_or_else(|| in_use(&root))?;
                (root, false, lock)
            }
            Home::Ephemeral => {
                let (root, lock) = temporary(account.as_ref())?;
                (root, true, lock)
            }
        };
        if let Some(account) = &account {
            account.reaches(&root)?;
        }
        let socket = socket_directory(&root, account.as_ref())?;
        let claimed = Self { root, socket, ephemeral, account, _lock: lock };
        claimed.outwait_an_orphan()?;
        Ok(claimed)
    }

    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    pub(crate) fn data(&self) -> PathBuf {
        self.root.join("data")
    }

    pub(crate) fn log(&self) -> PathBuf {
        self.root.join("server.log")
    }

    pub(crate) fn socket(&self) -> &Path {
        &self.socket
    }

    pub(crate) fn account(&self) -> Option<&Account> {
        self.account.as_ref()
    }

    pub(crate) fn is_ephemeral(&self) -> bool {
        self.ephemeral
    }

    /// The major that made the cluster, if there is one.
    pub(crate) fn major(&self) -> Option<u32> {
        fs::read_to_string(self.data().join("PG_VERSION")).ok()?.trim().parse().ok()
    }

    /// An empty directory for `initdb`, beside the place where the cluster will stand.
    pub(crate) fn nursery(&self) -> Result<PathBuf, Error> {
        let nursery = self.root.join("data.new");
        match fs::remove_dir_all(&nursery) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error).named("remove", &nursery),
            _ => private_directory(&nursery, self.account.as_ref())?,
        }
        Ok(nursery)
    }

    /// The whole cluster appears at once, also after a power cut.
    pub(crate) fn adopt(&self, nursery: &Path) -> Result<(), Error> {
        let data = self.data();
        fs::rename(nursery, &data).named("put the new cluster at", &data)?;
        File::open(&self.root).and_then(|root| root.sync_all()).named("sync", &self.root)
    }

    /// Removes what was temporary. The server must have ended.
    pub(crate) fn leave(&self) -> Result<(), Error> {
        if !self.socket.starts_with(&self.root) {
            drop(fs::remove_dir_all(&self.socket)); // outside only because of its length; found again if it stays
        }
        if !self.ephemeral || !self.root.exists() {
            return Ok(());
        }
        fs::remove_dir_all(&self.root).named("remove", &self.root)
    }

    /// A supervisor that crashed leaves a server that is shutting down, which is waited for, or, where the system has
    /// no death signal, one that runs on, which is refused.
    fn outwait_an_orphan(&self) -> Result<(), Error> {
        for waited in 0..1_500_u32 {
            let Some(orphan) = Postmaster::of(&self.data()) else { return Ok(()) };
            if waited > 250 && !orphan.is_stopping {
                return Err(Error::InUse {
                    home: self.root.clone(),
                    holder: format!("a Postgres that nobody supervises runs there, process {}", orphan.pid),
                    remedy: format!("kill -INT {}", orphan.pid),
                });
            }
            thread::sleep(PAUSE);
        }
        Err(Error::InUse {
            home: self.root.clone(),
            holder: "a Postgres there has been shutting down for half a minute".into(),
            remedy: format!("see {}", self.log().display()),
        })
    }
}

impl Drop for Claimed {
    fn drop(&mut self) {
        drop(self.leave()); // what stays is swept by the next ephemeral start
    }
}

/// What `postmaster.pid` says of a server that is alive.
#[derive(Debug)]
pub(crate) struct Postmaster {
    pub(crate) pid: u32,
    pub(crate) is_ready: bool,
    is_stopping: bool,
}

impl Postmaster {
    /// The live server of a cluster; a file that a dead one left counts for nothing.
    pub(crate) fn of(data: &Path) -> Option<Self> {
        let text = fs::read_to_string(data.join("postmaster.pid")).ok()?;
        let mut lines = text.lines().map(str::trim);
        let pid = lines.next()?.parse().ok()?;
        let status = lines.nth(6).unwrap_or_default();
        is_postgres(pid).then(|| Self { pid, is_ready: status == "ready", is_stopping: status == "stopping" })
    }
}

/// After a crash the id in the file may belong to another program by now, or to a zombie.
fn is_postgres(pid: u32) -> bool {
    if !sys::exists(pid) {
        return false;
    }
    match fs::read_to_string(format!("/proc/{pid}/stat")) {
        Ok(stat) => stat.contains("(postgres)") && !stat.contains(") Z"),
        Err(_) => !Path::new("/proc/self/stat").exists(), // no such files on this system: trust the id
    }
}

/// The lock on a home, or `None` if another supervisor holds it.
fn hold(root: &Path) -> Result<Option<File>, Error> {
    let path = root.join("lock");
    let opened = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path);
    let mut lock = opened.named("open", &path)?;
    match lock.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => return Ok(None),
        Err(TryLockError::Error(error)) => return Err(error).named("lock", &path),
    }
    lock.set_len(0).and_then(|()| write!(lock, "{}", process::id())).named("write", &path)?;
    Ok(Some(lock))
}

fn in_use(root: &Path) -> Error {
    let mut supervisor = String::new();
    drop(File::open(root.join("lock")).and_then(|mut lock| lock.read_to_string(&mut supervisor)));
    let server = Postmaster::of(&root.join("data"));
    let server = server.map_or_else(String::new, |server| format!(" (the server is process {})", server.pid));
    Error::InUse {
        home: root.to_path_buf(),
        holder: format!("process {supervisor} runs its Postgres{server}"),
        remedy: format!("Ctrl-C there, or kill -INT {supervisor}"),
    }
}

/// A new temporary home. Those that crashed processes of this user left are removed on the way.
fn temporary(account: Option<&Account>) -> Result<(PathBuf, File), Error> {
    let own = env::temp_dir(); // which may be root's alone
    let base = if account.is_some_and(|account| account.reaches(&own).is_err()) { PathBuf::from("/tmp") } else { own };
    sweep(&base);
    for turn in 0..10_000_u32 {
        let root = base.join(format!("{EPHEMERAL}{}-{turn}", process::id()));
        match DirBuilder::new().mode(root_mode(account)).create(&root) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => continue,
            made => made.named("make", &root)?,
        }
        set_mode(&root, root_mode(account))?;
        // A sweep of another process may take the lock first and remove the directory: then take the next name.
        if let Ok(Some(lock)) = hold(&root)
            && root.join("lock").exists()
        {
            return Ok((root, lock));
        }
    }
    Err(ErrorKind::AlreadyExists.into()).named("find a free name in", &base)
}

fn sweep(base: &Path) {
    let entries = fs::read_dir(base).into_iter().flatten().flatten();
    for entry in entries.filter(|entry| entry.file_name().to_string_lossy().starts_with(EPHEMERAL)) {
        let root = entry.path();
        let is_ours = entry.metadata().is_ok_and(|found| found.is_dir() && found.uid() == sys::effective_uid());
        if is_ours
            && root.join("lock").exists()
            && let Ok(Some(_lock)) = hold(&root)
            && Postmaster::of(&root.join("data")).is_none()
        {
            drop(fs::remove_dir_all(&root)); // best effort: the next one tries again
        }
    }
}

/// `run/` in the home, or, if that path is too long for a socket, a short one that the home determines.
fn socket_directory(root: &Path, account: Option<&Account>) -> Result<PathBuf, Error> {
    let near = root.join("run");
    if fits(&near) {
        private_directory(&near, account)?;
        return Ok(near);
    }
    let mut hash = DefaultHasher::new();
    root.hash(&mut hash);
    let name = format!("postrider-{}-{:x}", sys::effective_uid(), hash.finish());
    // The runtime directory of a user shuts others out, so it does not serve a root that lends its server a user.
    let runtime = env::var_os("XDG_RUNTIME_DIR").filter(|_| account.is_none()).map(|base| Path::new(&base).join(&name));
    let short = runtime.filter(|short| fits(short)).unwrap_or_else(|| Path::new("/tmp").join(&name));
    private_directory(&short, account)?;
    Ok(short)
}

fn fits(directory: &Path) -> bool {
    directory.join(SOCKET).as_os_str().as_bytes().len() <= SOCKET_PATH_MAX
}

/// A directory of mode 0700 that belongs to whoever runs the server.
fn private_directory(path: &Path, account: Option<&Account>) -> Result<(), Error> {
    match DirBuilder::new().mode(0o700).create(path) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            // In /tmp anybody may have made this name first: a link, or a directory that stays theirs.
            let found = fs::symlink_metadata(path).named("look at", path)?;
            let me = sys::effective_uid();
            if !found.is_dir() || (me != 0 && found.uid() != me) {
                return Err(Error::Account(format!("{} belongs to somebody else: remove it", path.display())));
            }
        }
        made => made.named("make", path)?,
    }
    set_mode(path, 0o700)?;
    account.map_or(Ok(()), |account| account.own(path))
}

fn make_directory(path: &Path, mode: u32) -> Result<(), Error> {
    if path.is_dir() {
        return Ok(());
    }
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent).named("make", parent)?;
    }
    DirBuilder::new().mode(mode).create(path).named("make", path)?;
    set_mode(path, mode)
}

/// A lent user must be able to pass through; nobody else has business in a home.
fn root_mode(account: Option<&Account>) -> u32 {
    if account.is_some() { 0o711 } else { 0o700 }
}

fn set_mode(path: &Path, mode: u32) -> Result<(), Error> {
    fs::set_permissions(path, Permissions::from_mode(mode)).named("set the mode of", path)
}
