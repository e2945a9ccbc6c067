use std::fmt::Write as _;

use super::names::{Default, NAMES};

const HEAD: &str = "# Configuration

<!-- Made from `crates/server/src/config/names.rs`; a test compares. -->

Every name is a key of `postrider.toml`, an environment variable and a flag. A flag wins over the environment, the
environment over the file. `DATABASE_URL` is read only where nothing else names a database. Lists are written
`[\"a\", \"b\"]` in the file and `a,b` elsewhere.

The file is `postrider.toml` in the working directory, if there is one; `--config FILE` or `POSTRIDER_CONFIG` names
another, which must exist. What is given as a flag can be read by every user of the machine: name secrets in the file or
the environment. A key, a variable that begins with `POSTRIDER_`, or a flag that is not on this page is
refused, and so is a value that contradicts another one: the program says which and what to do, and exits with 2.

";

/// The page `docs/configuration.md`.
pub fn page() -> String {
    let mut page = String::from(HEAD);
    page.push_str(
        "| Key | Environment | Flag | Takes | Default | Used by | Meaning |\n|---|---|---|---|---|---|---|\n",
    );
    for name in NAMES {
        let default = match name.default {
            Default::Text("") => "empty".to_owned(),
            Default::Text(text) => format!("`{text}`"),
            Default::Said(said) => said.to_owned(),
        };
        let used = name.commands.iter().map(|c| format!("`{c}`")).collect::<Vec<_>>().join(", ");
        let (key, env, flag) = (name.key, name.env(), name.flag());
        // Writing to a String cannot fail.
        let _ = writeln!(
            page,
            "| `{key}` | `{env}` | `--{flag}` | {} | {default} | {used} | {} |",
            name.takes, name.meaning
        );
    }
    page
}
