//! Imports point one way: between the stages of the library, and between the crates.

mod code;
mod repo;

use code::before_tests;
use repo::File;

/// What each stage of `crates/postrider/src` may import beside [`COMMON`].
const STAGES: &[(&str, &[&str])] = &[
    ("record", &[]),
    ("relay", &["job"]),
    ("job", &[]),
    ("handle", &["job", "complete"]),
    ("complete", &["job"]),
    ("inspect", &[]),
    ("proof", &[]),
    ("schedule", &[]),
    ("run", &["record", "relay", "job", "handle", "complete", "inspect", "schedule", "declare"]),
    ("pg", &[]),
];

/// What every stage may import.
const COMMON: &[&str] = &["pg", "port", "clock", "measure", "error", "contract", "postrider_contract"];

/// What each crate may import of ours, and what its tests may beside that.
const CRATES: &[(&str, &[&str], &[&str])] = &[
    ("contract", &[], &[]),
    ("postrider", &["contract"], &["testkit"]),
    ("webhook", &["contract", "postrider"], &["testkit"]),
    ("embedded", &[], &[]),
    ("server", &["contract", "postrider", "webhook", "embedded"], &["testkit"]),
    ("testkit", &["contract", "postrider", "embedded", "webhook"], &[]),
    ("river", &["contract", "postrider"], &["testkit"]),
    ("xtask", &["contract", "postrider", "webhook", "embedded", "server", "testkit"], &[]),
];

const LIBRARY: &str = "crates/postrider/src/";

#[test]
fn the_stages_of_the_library_import_one_way() {
    let found = stages(&repo::files());
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn the_crates_import_one_way() {
    let found = crates(&repo::files());
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn an_import_against_the_way_is_found() {
    let bad = [
        File::new("crates/postrider/src/lib.rs", "pub use job::{Jobs, claim::Claim};\npub use error::Error;"),
        File::new("crates/postrider/src/record/task.rs", "use crate::relay::cut;"),
        File::new("crates/postrider/src/job/mod.rs", "use crate::{pg::Row, handle, Error};\nuse super::complete;"),
        File::new("crates/postrider/src/complete/pg.rs", "fn f() { crate::relay::cut(); super::super::run::go(); }"),
        File::new("crates/postrider/src/pg.rs", "use crate::{\n    error::Error,\n    record::{a, b},\n};"),
        File::new("crates/postrider/src/inspect/mod.rs", "use crate::Claim;\nuse crate::bus::Bus;"),
    ];
    let found = stages(&bad);
    let expected = [
        "crates/postrider/src/record/task.rs: record imports relay",
        "crates/postrider/src/job/mod.rs: job imports handle",
        "crates/postrider/src/job/mod.rs: write crate::… instead of super::",
        "crates/postrider/src/complete/pg.rs: complete imports relay",
        "crates/postrider/src/complete/pg.rs: write crate::… instead of super::super::",
        "crates/postrider/src/pg.rs: pg imports record",
        "crates/postrider/src/inspect/mod.rs: inspect imports job",
        "crates/postrider/src/inspect/mod.rs: inspect imports bus",
    ];
    assert_eq!(found, expected);
}

#[test]
fn an_import_along_the_way_is_not_found() {
    let good = [
        File::new(
            "crates/postrider/src/lib.rs",
            "pub use job::Job;\npub use error::{Error};\npub mod bus;\npub use postrider_contract::Code;\npub use postrider_contract as contract;",
        ),
        File::new("crates/postrider/src/bus.rs", "use crate::{record, relay, run};"),
        File::new(
            "crates/postrider/src/handle/task.rs",
            "use crate::{job::Job, complete, pg, Job, Error, Code, contract};\nconst A: S = crate::statement!(\"a.sql\");",
        ),
        File::new("crates/postrider/src/job/mod.rs", "//! [`crate::run`]\n#[cfg(test)]\nmod t { use crate::run; }"),
        File::new("crates/postrider/src/run/mod.rs", "use crate::{handle::{self, Registry}, inspect};"),
        File::new("crates/postrider/src/run/task.rs", "use super::Supervisor; /* crate::bus */"),
        File::new("crates/webhook/src/lib.rs", "use crate::anything;"),
    ];
    assert_eq!(stages(&good), Vec::<String>::new());
}

#[test]
fn a_dependency_against_the_way_is_found() {
    let bad = [
        File::new("crates/contract/Cargo.toml", "[dependencies]\npostrider.workspace = true"),
        File::new(
            "crates/postrider/Cargo.toml",
            "[dependencies]\nkit = { package = \"postrider-testkit\", path = \"../x\" }",
        ),
        File::new("crates/embedded/Cargo.toml", "[dev-dependencies]\npostrider-testkit.workspace = true"),
        File::new("crates/webhook/Cargo.toml", "[target.'cfg(unix)'.dependencies.postrider-server]\npath = \"../x\""),
        File::new("crates/fresh/Cargo.toml", "[dependencies]\nserde = \"1\""),
    ];
    let expected = [
        "crates/contract/Cargo.toml: contract imports postrider",
        "crates/postrider/Cargo.toml: postrider imports testkit",
        "crates/embedded/Cargo.toml: embedded imports testkit",
        "crates/webhook/Cargo.toml: webhook imports server",
        "crates/fresh/Cargo.toml: say in this test what the crate may import",
    ];
    assert_eq!(crates(&bad), expected);
}

#[test]
fn a_dependency_along_the_way_is_not_found() {
    let text = "[package]\nname = \"postrider-webhook\"\n[dependencies]\npostrider-contract.workspace = true\n\
                postrider = { workspace = true }\nserde = \"1\"\n[dev-dependencies]\npostrider-testkit.workspace = true\n";
    assert_eq!(crates(&[File::new("crates/webhook/Cargo.toml", text)]), Vec::<String>::new());
}

fn stages(files: &[File]) -> Vec<String> {
    let exported = exports(files);
    let mut found = Vec::new();
    for file in files {
        let Some((stage, may)) = stage_of(file) else { continue };
        let code = without_comments(before_tests(&file.text));
        let mut seen: Vec<String> = Vec::new();
        for name in imports(&code) {
            let home =
                exported.iter().find(|(item, _)| *item == name).map_or(name.as_str(), |(_, home)| home).to_owned();
            let fine = home == stage || may.contains(&home.as_str()) || COMMON.contains(&home.as_str());
            if !fine && !seen.contains(&home) {
                found.push(format!("{}: {stage} imports {home}", file.path));
                seen.push(home);
            }
        }
        let root = if file.ends("/mod.rs") || !file.path.contains(&format!("/{stage}/")) {
            "super::"
        } else {
            "super::super::"
        };
        if code.contains(root) {
            found.push(format!("{}: write crate::… instead of {root}", file.path));
        }
    }
    found
}

/// The stage that a file belongs to, with what it may import; none for the files of the crate's root.
fn stage_of(file: &File) -> Option<(&'static str, &'static [&'static str])> {
    let inside = file.path.strip_prefix(LIBRARY).filter(|_| file.ends(".rs"))?;
    let first = inside.split('/').next()?.trim_end_matches(".rs");
    STAGES.iter().find(|(stage, _)| *stage == first).copied()
}

/// What the crate's root re-exports, and from which module: `crate::Job` is an import of `job`.
fn exports(files: &[File]) -> Vec<(String, String)> {
    let Some(file) = files.iter().find(|f| f.path == format!("{LIBRARY}lib.rs")) else { return Vec::new() };
    let code = without_comments(&file.text);
    let mut found = Vec::new();
    for rest in code.split("pub use ").skip(1) {
        let text = rest.split(';').next().unwrap_or_default();
        let home = first_name(text);
        let items = text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).filter(|item| !item.is_empty());
        found.extend(items.skip(1).map(|item| (item.to_owned(), home.clone())));
        if let Some((_, alias)) = text.split_once(" as ") {
            found.push((alias.trim().to_owned(), alias.trim().to_owned()));
        }
    }
    found
}

/// The first name after each `crate::`, with the branches of `crate::{…}` taken one by one.
fn imports(code: &str) -> Vec<String> {
    let mut found = Vec::new();
    for (at, _) in code.match_indices("crate::") {
        let before = code.get(..at).unwrap_or_default();
        if before.ends_with(|c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '$')) {
            continue;
        }
        let rest = code.get(at + "crate::".len()..).unwrap_or_default();
        match rest.strip_prefix('{') {
            Some(tree) => found.extend(branches(tree)),
            None => found.push(first_name(rest)),
        }
    }
    found.retain(|name| !name.is_empty());
    found
}

/// The first name of each branch of a use tree whose brace has just been read.
fn branches(tree: &str) -> Vec<String> {
    let (mut depth, mut from, mut found) = (0, 0, Vec::new());
    for (at, c) in tree.char_indices() {
        let ends = depth == 0 && matches!(c, ',' | '}');
        if ends {
            found.push(first_name(tree.get(from..at).unwrap_or_default()));
            from = at + 1;
        }
        match c {
            '{' => depth += 1,
            '}' if depth == 0 => break,
            '}' => depth -= 1,
            _ => {}
        }
    }
    found
}

/// The name that a path begins with; empty for a macro, which is at home in no stage.
fn first_name(text: &str) -> String {
    let text = text.trim_start();
    let name: String = text.chars().take_while(|c| c.is_ascii_alphanumeric() || *c == '_').collect();
    if text.get(name.len()..).is_some_and(|rest| rest.starts_with('!')) { String::new() } else { name }
}

fn without_comments(code: &str) -> String {
    let mut text = String::new();
    let mut rest = code;
    while let Some((before, after)) = rest.split_once("/*") {
        text.push_str(before);
        rest = after.split_once("*/").map_or("", |(_, after)| after);
    }
    text.push_str(rest);
    let lines: Vec<&str> = text.lines().map(|line| line.split("//").next().unwrap_or_default()).collect();
    lines.join("\n")
}

fn crates(files: &[File]) -> Vec<String> {
    let mut found = Vec::new();
    for file in files {
        let Some(name) = file.path.strip_prefix("crates/").and_then(|p| p.strip_suffix("/Cargo.toml")) else {
            continue;
        };
        let Some((_, may, tests_may)) = CRATES.iter().find(|(known, _, _)| *known == name) else {
            found.push(format!("{}: say in this test what the crate may import", file.path));
            continue;
        };
        for (section, dependency) in dependencies(&file.text) {
            let fine = may.contains(&dependency.as_str())
                || section.contains("dev-dependencies") && tests_may.contains(&dependency.as_str());
            if !fine {
                found.push(format!("{}: {name} imports {dependency}", file.path));
            }
        }
    }
    found
}

/// Our own crates among the dependencies, each with the section that names it.
fn dependencies(manifest: &str) -> Vec<(String, String)> {
    let mut section = String::new();
    let mut found = Vec::new();
    for line in manifest.lines().map(str::trim).filter(|line| !line.starts_with('#')) {
        if line.starts_with('[') {
            line.clone_into(&mut section);
        }
        if section.contains("dependencies") {
            let words = line.split(|c: char| !(c.is_ascii_alphanumeric() || matches!(c, '-' | '_')));
            let ours =
                words.filter_map(|word| word.strip_prefix("postrider-").or((word == "postrider").then_some(word)));
            found.extend(ours.map(|ours| (section.clone(), ours.to_owned())));
        }
    }
    found
}
