use std::env;
use std::ffi::OsString;
use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use crate::config::{Layers, Problem, Problems};

const FILE: &str = "postrider.toml";

/// Collects what was given: the file, the environment, the flags.
pub(super) fn layers(file: Option<&Path>, flags: Vec<(&'static str, String)>) -> Result<Layers, Problems> {
    Ok(Layers { file: read(file)?, env: environment(env::vars_os())?, flags })
}

fn read(named: Option<&Path>) -> Result<Option<(String, String)>, Problems> {
    let path = named.unwrap_or(Path::new(FILE));
    match fs::read_to_string(path) {
        Ok(text) => Ok(Some((path.display().to_string(), text))),
        Err(e) if e.kind() == ErrorKind::NotFound && named.is_none() => Ok(None),
        Err(e) => {
            let remedy = "name a file that this user can read with --config, or none";
            Err(Problem::new(path.display().to_string(), format!("it cannot be read: {e}"), remedy).into())
        }
    }
}

fn environment(vars: impl Iterator<Item = (OsString, OsString)>) -> Result<Vec<(String, String)>, Problems> {
    let ours = vars.filter_map(|(name, value)| Some((name.into_string().ok()?, value)));
    let ours = ours.filter(|(name, _)| name.starts_with("POSTRIDER_") || name == "DATABASE_URL");
    let text = |(name, value): (String, OsString)| match value.into_string() {
        Ok(value) => Ok((name, value)),
        Err(_) => Err(Problem::new(name, "it is not UTF-8", "write it in UTF-8").into()),
    };
    ours.map(text).collect()
}
