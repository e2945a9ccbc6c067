//! Which Postgres of this machine: the named one, else the highest major of PATH and of the known places.

use std::env;
use std::ffi::OsStr;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::error::Error;

/// The oldest major that Postrider works with.
const OLDEST: u32 = 14;

/// Where packages put the server's programs; `*` stands for a version.
const PLACES: &[&str] = &[
    "/usr/lib/postgresql/*/bin",                          // Debian, Ubuntu
    "/usr/pgsql-*/bin",                                   // RPMs of the PostgreSQL project
    "/usr/libexec/postgresql*",                           // Alpine
    "/usr/lib/postgresql*/bin",                           // openSUSE
    "/usr/bin",                                           // Fedora, Arch
    "/opt/homebrew/opt/postgresql@*/bin",                 // Homebrew on Apple silicon
    "/usr/local/opt/postgresql@*/bin",                    // Homebrew on Intel
    "/home/linuxbrew/.linuxbrew/opt/postgresql@*/bin",    // Homebrew on Linux
    "/Applications/Postgres.app/Contents/Versions/*/bin", // Postgres.app
    "/Library/PostgreSQL/*/bin",                          // EDB on macOS
    "/opt/PostgreSQL/*/bin",                              // EDB on Linux
    "/opt/local/lib/postgresql*/bin",                     // MacPorts
    "/run/current-system/sw/bin",                         // NixOS
    "/nix/var/nix/profiles/default/bin",                  // Nix
    "/usr/local/pgsql/bin",                               // built from source
];

/// The server's programs of one Postgres.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Installation {
    /// The directory with `postgres` and `initdb`.
    pub bin: PathBuf,
    /// 15, for 15.8.
    pub major: u32,
    /// As `postgres --version` says it, without its name: `15.8 (Debian 15.8-0)`.
    pub version: String,
}

/// Finds the Postgres to use.
///
/// `bin` (else the variable `POSTRIDER_PG_BIN`) names the directory of its programs and is then the only one looked
/// at. Otherwise the highest major of at least 14 wins. `major` asks for exactly that one: an existing cluster can be
/// read by no other.
///
/// # Errors
/// [`Error::NotFound`], with the command that installs one on this system.
pub fn find(bin: Option<&Path>, major: Option<u32>) -> Result<Installation, Error> {
    let named = bin.map(Path::to_path_buf).or_else(|| env::var_os("POSTRIDER_PG_BIN").map(PathBuf::from));
    if let Some(named) = named {
        return suits(inspect(&named), major).ok_or_else(|| Error::NotFound(unusable(&named, major)));
    }
    let here: Vec<Installation> = candidates().iter().filter_map(|directory| inspect(directory)).collect();
    choose(&here, major).ok_or_else(|| Error::NotFound(nothing_found(&here, major, &install_command())))
}

fn candidates() -> Vec<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let profile = env::var_os("HOME").map(|home| Path::new(&home).join(".nix-profile/bin"));
    let places = PLACES.iter().flat_map(|place| expand(place));
    env::split_paths(&path).chain(places).chain(profile).collect()
}

/// The existing directories that match a path with at most one `*`.
fn expand(place: &str) -> Vec<PathBuf> {
    let Some((before, after)) = place.split_once('*') else {
        return vec![PathBuf::from(place)];
    };
    let (parent, prefix) = before.rsplit_once('/').unwrap_or(("", before));
    let Ok(entries) = fs::read_dir(parent) else {
        return Vec::new();
    };
    entries
        .flatten()
        .filter(|entry| entry.file_name().to_str().is_some_and(|name| name.starts_with(prefix)))
        .map(|entry| PathBuf::from(format!("{}{after}", entry.path().display())))
        .collect()
}

/// What stands in a directory, or at the end of a link there: `postgres`, with `initdb` beside it.
fn inspect(directory: &Path) -> Option<Installation> {
    let named = if directory.file_name() == Some(OsStr::new("postgres")) && directory.is_file() {
        directory.to_path_buf()
    } else {
        directory.join("postgres")
    };
    let postgres = fs::canonicalize(named).ok()?;
    let bin = postgres.parent()?;
    if !bin.join("initdb").is_file() {
        return None;
    }
    let output = Command::new(&postgres).arg("--version").stdin(Stdio::null()).output().ok()?;
    let (major, version) = parse_version(str::from_utf8(&output.stdout).ok()?)?;
    Some(Installation { bin: bin.to_path_buf(), major, version })
}

/// `postgres (PostgreSQL) 15.8 (Debian 15.8-0+deb12u1)` → 15 and the rest of the line.
fn parse_version(line: &str) -> Option<(u32, String)> {
    let version = line.trim().strip_prefix("postgres (PostgreSQL) ")?;
    let digits = version.split(|c: char| !c.is_ascii_digit()).next()?;
    Some((digits.parse().ok()?, version.to_owned()))
}

fn choose(here: &[Installation], major: Option<u32>) -> Option<Installation> {
    // max_by_key takes the last of equals; reversed, the first place that was looked at wins.
    here.iter().rev().filter_map(|one| suits(Some(one.clone()), major)).max_by_key(|one| one.major)
}

fn suits(found: Option<Installation>, major: Option<u32>) -> Option<Installation> {
    found.filter(|one| one.major >= OLDEST && major.is_none_or(|major| one.major == major))
}

fn unusable(named: &Path, major: Option<u32>) -> String {
    format!(
        "no usable Postgres in {}: it must hold postgres and initdb of {}. Name the directory of the server's programs \
         (POSTRIDER_PG_BIN=/usr/lib/postgresql/15/bin), or unset POSTRIDER_PG_BIN to search",
        named.display(),
        wanted(major),
    )
}

fn nothing_found(here: &[Installation], major: Option<u32>, install: &str) -> String {
    let mut text = format!("no {} found on PATH or in the usual places", wanted(major));
    for one in here {
        let _ = write!(text, "\n  not usable: {} in {}", one.version, one.bin.display());
    }
    if major.is_some() {
        text += "\nThis cluster was made by that version and no other can open it: install it, or choose another home.";
    }
    text + &format!(
        "\nInstall it:  {install}\nor point POSTRIDER_PG_BIN at the directory that holds postgres and initdb"
    )
}

fn wanted(major: Option<u32>) -> String {
    major.map_or_else(|| format!("PostgreSQL {OLDEST} or newer"), |major| format!("PostgreSQL {major}"))
}

fn install_command() -> String {
    if cfg!(target_os = "macos") {
        return "brew install postgresql@18".into();
    }
    let release = fs::read_to_string("/etc/os-release").unwrap_or_default();
    let sudo = if crate::sys::effective_uid() == 0 { "" } else { "sudo " };
    match install_for(&release) {
        Some(command) => format!("{sudo}{command}"),
        None => "your system's package of the PostgreSQL server".into(),
    }
}

/// The command for the system that `/etc/os-release` describes.
fn install_for(release: &str) -> Option<&'static str> {
    let field = |key: &str| {
        let value = release.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix('='));
        value.unwrap_or_default().trim_matches(['"', '\'']).to_owned()
    };
    let names = format!("{} {}", field("ID"), field("ID_LIKE"));
    names.split_whitespace().find_map(|name| match name {
        "debian" | "ubuntu" => Some("apt-get install postgresql"),
        "fedora" | "rhel" | "centos" => Some("dnf install postgresql-server"),
        "alpine" => Some("apk add postgresql17"),
        "arch" => Some("pacman -S postgresql"),
        "suse" | "opensuse" => Some("zypper install postgresql-server"),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(bin: &str, major: u32) -> Installation {
        Installation { bin: bin.into(), major, version: format!("{major}.1") }
    }

    #[test]
    fn versions_are_read_as_the_packages_print_them() {
        for (line, major, version) in [
            ("postgres (PostgreSQL) 15.8 (Debian 15.8-0+deb12u1)\n", 15, "15.8 (Debian 15.8-0+deb12u1)"),
            ("postgres (PostgreSQL) 18devel\n", 18, "18devel"),
            ("postgres (PostgreSQL) 9.6.24\n", 9, "9.6.24"),
        ] {
            assert_eq!(parse_version(line), Some((major, version.to_owned())));
        }
        assert_eq!(parse_version("pg_ctl: no server\n"), None);
    }

    #[test]
    fn the_highest_major_wins_and_among_equals_the_first_place() {
        let here = [one("/a", 15), one("/b", 17), one("/c", 17), one("/d", 13)];
        assert_eq!(choose(&here, None), Some(one("/b", 17)));
    }

    #[test]
    fn an_existing_cluster_gets_its_own_major_and_no_other() {
        let here = [one("/a", 15), one("/b", 17)];
        assert_eq!(choose(&here, Some(15)), Some(one("/a", 15)));
        assert_eq!(choose(&here, Some(16)), None);
    }

    #[test]
    fn a_major_before_14_is_not_taken_and_is_named_in_the_error() {
        let here = [one("/old/bin", 13)];
        assert_eq!(choose(&here, None), None);
        let text = nothing_found(&here, None, "apt-get install postgresql");
        assert!(text.contains("PostgreSQL 14 or newer"), "{text}");
        assert!(text.contains("13.1 in /old/bin"), "{text}");
        assert!(text.contains("Install it:  apt-get install postgresql"), "{text}");
    }

    #[test]
    fn the_error_names_the_one_command_of_each_system() {
        for (release, command) in [
            ("PRETTY_NAME=\"Debian GNU/Linux 12\"\nID=debian\n", "apt-get install postgresql"),
            ("ID=linuxmint\nID_LIKE=\"ubuntu debian\"\n", "apt-get install postgresql"),
            ("ID=\"rocky\"\nID_LIKE=\"rhel centos fedora\"\n", "dnf install postgresql-server"),
            ("ID=alpine\nVERSION_ID=3.22.1\n", "apk add postgresql17"),
        ] {
            assert_eq!(install_for(release), Some(command), "{release}");
        }
        assert_eq!(install_for("ID=plan9\n"), None);
    }

    #[test]
    fn a_star_stands_for_the_rest_of_one_name() {
        let root = env::temp_dir().join(format!("postrider-places-{}", std::process::id()));
        for version in ["pgsql-15", "pgsql-17", "other-1"] {
            fs::create_dir_all(root.join(version).join("bin")).unwrap();
        }
        let mut found = expand(&format!("{}/pgsql-*/bin", root.display()));
        found.sort();
        fs::remove_dir_all(&root).unwrap();
        assert_eq!(found, [root.join("pgsql-15/bin"), root.join("pgsql-17/bin")]);
        assert_eq!(expand("/nowhere-at-all/*/bin"), Vec::<PathBuf>::new());
    }
}
