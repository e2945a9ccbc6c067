//! Postgres refuses to run as root. So root lends it another user, and checks that this user can get there.

use std::fs;
use std::os::unix::fs::{MetadataExt, chown};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use crate::error::{Error, Named};
use crate::sys;

/// The user that Postgres runs as instead of root.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Account {
    name: String,
    uid: u32,
    gid: u32,
}

impl Account {
    /// Who Postgres is to become: nobody else unless this process is root.
    pub(crate) fn needed() -> Result<Option<Self>, Error> {
        if sys::effective_uid() != 0 {
            return Ok(None);
        }
        let passwd = Path::new("/etc/passwd");
        let text = fs::read_to_string(passwd).named("read", passwd)?;
        Self::choose(&text).map(Some)
    }

    fn choose(passwd: &str) -> Result<Self, Error> {
        ["postgres", "nobody"].iter().find_map(|name| Self::named(passwd, name)).ok_or_else(|| {
            Error::Account(
                "Postgres does not run as root, and /etc/passwd has neither a user postgres nor nobody to run it as: \
                 add one (useradd --system postgres), or start this as a plain user"
                    .into(),
            )
        })
    }

    fn named(passwd: &str, name: &str) -> Option<Self> {
        passwd.lines().find_map(|line| {
            let mut fields = line.split(':');
            if fields.next() != Some(name) {
                return None;
            }
            let uid = fields.nth(1)?.parse().ok()?;
            let gid = fields.next()?.parse().ok()?;
            (uid != 0).then(|| Self { name: name.to_owned(), uid, gid })
        })
    }

    pub(crate) fn run(&self, command: &mut Command) {
        command.uid(self.uid).gid(self.gid); // std drops the supplementary groups with the user
    }

    pub(crate) fn own(&self, path: &Path) -> Result<(), Error> {
        chown(path, Some(self.uid), Some(self.gid)).named("give away", path)
    }

    /// Refuses if one of the directories above `path`, or `path` itself, shuts this user out.
    pub(crate) fn reaches(&self, path: &Path) -> Result<(), Error> {
        let path = fs::canonicalize(path).named("resolve", path)?;
        for directory in path.ancestors() {
            let found = fs::metadata(directory).named("look at", directory)?;
            if !self.may_pass(found.uid(), found.gid(), found.mode()) {
                return Err(Error::Account(format!(
                    "this is root, so Postgres runs as {user}, and {user} may not enter {shut} on the way to {path}: \
                     choose a home elsewhere, allow it (chmod o+x {shut}), or start this as a plain user",
                    user = self.name,
                    shut = directory.display(),
                    path = path.display(),
                )));
            }
        }
        Ok(())
    }

    fn may_pass(&self, uid: u32, gid: u32, mode: u32) -> bool {
        let execute = if uid == self.uid {
            0o100
        } else if gid == self.gid {
            0o010
        } else {
            0o001
        };
        mode & execute != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOTH: &str = "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65533:nobody:/:/bin/false\n\
                        postgres:x:101:104:,,,:/var/lib/postgresql:/bin/bash\n";

    #[test]
    fn root_becomes_postgres_where_there_is_one_and_nobody_elsewhere() {
        let postgres = Account { name: "postgres".into(), uid: 101, gid: 104 };
        let nobody = Account { name: "nobody".into(), uid: 65534, gid: 65533 };
        assert_eq!(Account::choose(BOTH).unwrap(), postgres);
        assert_eq!(Account::choose(&BOTH.replace("postgres:", "postgrest:")).unwrap(), nobody);
    }

    #[test]
    fn a_user_postgres_that_is_root_itself_is_passed_over() {
        let twin = BOTH.replace("postgres:x:101:", "postgres:x:0:");
        assert_eq!(Account::choose(&twin).unwrap().name, "nobody");
    }

    #[test]
    fn an_empty_passwd_is_refused_with_the_remedy() {
        let refusal = Account::choose("").unwrap_err().to_string();
        assert!(refusal.contains("useradd --system postgres"), "{refusal}");
    }

    #[test]
    fn the_class_that_matches_first_decides_as_in_the_kernel() {
        let account = Account { name: "postgres".into(), uid: 101, gid: 104 };
        assert!(account.may_pass(0, 0, 0o701));
        assert!(!account.may_pass(0, 0, 0o700));
        assert!(!account.may_pass(101, 0, 0o077), "the owner's bits rule the owner");
        assert!(!account.may_pass(0, 104, 0o707), "the group's bits rule the group");
    }
}
