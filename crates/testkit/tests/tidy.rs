//! What no compiler and no lint looks at: sizes, heads of statements, words and calls that do not belong here.
//!
//! Each rule carries a sample that must turn it red and one that must not. What a rule looks for is written in two
//! halves, so that this file passes its own rules.

mod code;
mod paths;
mod repo;

use code::before_tests;
use paths::resolve;
use repo::File;

/// A rule: what it says, how it looks, one bad tree with its number of findings, and one good tree.
struct Rule {
    says: &'static str,
    look: fn(&[File]) -> Vec<String>,
    bad: (usize, fn() -> Vec<File>),
    good: fn() -> Vec<File>,
}

const RULES: &[Rule] = &[
    Rule {
        says: "a Rust file has at most 400 lines before its tests, a test file 800",
        look: length,
        bad: (2, || {
            vec![File::new("crates/a/src/long.rs", &lines(401)), File::new("crates/a/tests/t.rs", &lines(801))]
        }),
        good: || {
            let tested = format!("{}\n#[cfg(test)]\n{}", lines(399), lines(300));
            vec![File::new("crates/a/src/fine.rs", &tested), File::new("crates/a/tests/t.rs", &lines(800))]
        },
    },
    Rule {
        says: "a statement begins with four lines: what it does, Called by:, Locks:, Index:",
        look: head,
        bad: (2, || {
            vec![
                File::new("crates/a/src/job/sql/a.sql", "select 1"),
                File::new(
                    "crates/a/src/job/sql/b.sql",
                    "-- Does.\n-- Called by: x.\n-- Index: y.\n-- Locks: z.\nselect 1",
                ),
            ]
        }),
        good: || {
            let text = "-- Does.\n-- Called by: x.\n-- Locks: none.\n-- Index: y.\nselect 1";
            vec![File::new("crates/a/src/job/sql/a.sql", text), File::new("crates/a/migrations/0001_a.sql", "select 1")]
        },
    },
    Rule {
        says: "a setting lasts until the end of its transaction",
        look: settings,
        bad: (2, || {
            let call =
                concat!("select set_", "config('a.b', f('x, y'), false);\nSELECT Set_", "Config('a', 'b',FALSE)");
            vec![File::new("crates/a/src/sql/a.sql", call)]
        }),
        good: || vec![File::new("a.sql", concat!("select set_", "config('a.b', 'false', true)"))],
    },
    Rule {
        says: "a lock lasts until the end of its transaction, since a pooler's session is nobody's",
        look: locks,
        bad: (3, || {
            let calls =
                concat!("select pg_advisory", "_lock(1), pg_try_advisory", "_lock(2);\npg_advisory", "_lock_shared(1)");
            vec![File::new("crates/a/src/pg.rs", calls)]
        }),
        good: || vec![File::new("a.sql", "select pg_advisory_xact_lock(1), pg_try_advisory_xact_lock(2)")],
    },
    Rule {
        says: "no checked-query macro: it would check against the database of whoever compiles the library",
        look: macros,
        bad: (2, || {
            vec![File::new("crates/a/src/a.rs", concat!("sqlx::quer", "y!(\"x\");\nquery_scal", "ar!(\"x\")"))]
        }),
        good: || vec![File::new("crates/a/src/a.rs", "let query = 1; statement!(\"sql/x.sql\");")],
    },
    Rule {
        says: "no lint is silenced without being expected",
        look: allows,
        bad: (2, || vec![File::new("a.rs", concat!("#[all", "ow(dead_code)]\n#![all", "ow(dead_code)]"))]),
        good: || vec![File::new("a.rs", "#[expect(dead_code, reason = \"sample\")]")],
    },
    Rule {
        says: "nothing is left for later",
        look: leftovers,
        bad: (4, || {
            let text = concat!("tod", "o!();\nunimple", "mented!()\n// FIX", "ME later\n// TOD", "O later");
            vec![File::new("crates/a/src/a.rs", text)]
        }),
        good: || vec![File::new("a.rs", concat!("let tod", "o: Tod", "o = autodoc!();"))],
    },
    Rule {
        says: "no host of a registry, no path of somebody's machine",
        look: places,
        bad: (3, || {
            let text = concat!("see https://crates", ".io/x\nin /ho", "me/me/x\nfrom reg", "istry.npmjs.org");
            vec![File::new("docs/a.md", text)]
        }),
        good: || {
            let lock = concat!("source = \"registry+https://github.com/rust-lang/crates", ".io-index\"");
            let text =
                concat!("https://docs.rs/x, /usr/lib/postgresql, frame", "work/x, /ho", "me/linuxbrew/.linuxbrew");
            vec![File::new("docs/a.md", text), File::new("Cargo.lock", lock)]
        },
    },
    Rule {
        says: "a text says what is, not how it came to be",
        look: diary,
        bad: (3, || {
            let text = concat!("see iss", "ue 12.\nDone in this ses", "sion.\nIn an earlier ses", "sion");
            vec![File::new("docs/a.md", text)]
        }),
        good: || vec![File::new("docs/a.md", "A tissue 1. A session of Postgres keeps its settings; issues are many.")],
    },
    Rule {
        says: "only pg.rs and .sql files of the library name a table",
        look: tables,
        bad: (2, || {
            vec![
                File::new("crates/postrider/migrations/0001_a.sql", "create table postrider.job (id bigint);"),
                File::new(
                    "crates/postrider/src/job/task.rs",
                    "let a = \"select 1 from postrider.job\";\n\"postrider.job j\"",
                ),
            ]
        }),
        good: || {
            let fine = "// the rows of postrider.job\nlet a = \"postrider.job.ended\"; let b = \"postrider.job_id\";\n\
                        let c = \"postrider.job(1)\";\n#[cfg(test)]\nmod tests { const A: &str = \"postrider.job\"; }";
            vec![
                File::new(
                    "crates/postrider/migrations/0001_a.sql",
                    "CREATE TABLE IF NOT EXISTS postrider.job (id bigint);",
                ),
                File::new("crates/postrider/src/job/pg.rs", "const A: &str = \"postrider.job\";"),
                File::new("crates/postrider/src/job/task.rs", fine),
            ]
        },
    },
    Rule {
        says: "a .sql file is included by some Rust file",
        look: included,
        bad: (2, || {
            vec![
                File::new("crates/a/src/job/sql/claim.sql", ""),
                File::new("crates/a/migrations/0001_a.sql", ""),
                File::new("crates/a/src/relay/pg.rs", "statement!(\"sql/claim.sql\")"),
            ]
        }),
        good: || {
            vec![
                File::new("crates/a/src/job/sql/claim.sql", ""),
                File::new("crates/a/migrations/0001_a.sql", ""),
                File::new("crates/a/src/job/pg.rs", "statement!(\"sql/claim.sql\")"),
                File::new("crates/a/migrations/0002_b.sql", ""),
                File::new(
                    "crates/a/src/migrate.rs",
                    "include_str!(\n    \"../migrations/0001_a.sql\"); m!(\"0002_b\")",
                ),
            ]
        },
    },
];

#[test]
fn the_tree_keeps_every_rule() {
    let files = repo::files();
    let found: Vec<String> = RULES
        .iter()
        .flat_map(|rule| (rule.look)(&files).into_iter().map(|at| format!("{at}\n    {}", rule.says)))
        .collect();
    assert!(found.is_empty(), "{} findings:\n{}", found.len(), found.join("\n"));
}

#[test]
fn each_rule_is_red_on_its_bad_sample_and_green_on_its_good_one() {
    for rule in RULES {
        let (expected, bad) = rule.bad;
        let found = (rule.look)(&bad());
        assert_eq!(found.len(), expected, "{}: {found:?}", rule.says);
        let found = (rule.look)(&(rule.good)());
        assert!(found.is_empty(), "{}: {found:?}", rule.says);
    }
}

fn lines(n: usize) -> String {
    "//\n".repeat(n)
}

fn is_test(file: &File) -> bool {
    file.path.contains("/tests/")
}

fn length(files: &[File]) -> Vec<String> {
    let too_long = |file: &File| {
        let (most, text) = if is_test(file) { (800, file.text.as_str()) } else { (400, before_tests(&file.text)) };
        let n = text.lines().count();
        (n > most).then(|| format!("{}: {n} lines", file.path))
    };
    files.iter().filter(|f| f.ends(".rs")).filter_map(too_long).collect()
}

/// Whether the file is one statement of the program, not a migration.
fn is_statement(file: &File) -> bool {
    file.ends(".sql") && file.path.starts_with("crates/") && file.path.contains("/src/")
}

fn head(files: &[File]) -> Vec<String> {
    let wrong = |file: &File| {
        let found: Vec<&str> = file.text.lines().take_while(|line| line.starts_with("--")).collect();
        let fine = match found.as_slice() {
            [what, called, locks, index] => {
                what.len() > 6
                    && called.starts_with("-- Called by: ")
                    && locks.starts_with("-- Locks: ")
                    && index.starts_with("-- Index: ")
            }
            _ => false,
        };
        (!fine).then(|| file.path.clone())
    };
    files.iter().filter(|f| is_statement(f)).filter_map(wrong).collect()
}

/// Where one of the words stands, in the files that are asked for. A word in small letters is found in any.
fn find(files: &[File], asked: fn(&File) -> bool, words: &[&str]) -> Vec<String> {
    let mut found = Vec::new();
    for file in files.iter().filter(|f| asked(f)) {
        for (n, line) in file.text.lines().enumerate() {
            let small = line.to_ascii_lowercase();
            for word in words {
                let line = if word.contains(|c: char| c.is_ascii_uppercase()) { line } else { &small };
                let hits = line.match_indices(word).filter(|(at, _)| begins_a_word(line, *at) && !is_public(line, *at));
                found.extend(hits.map(|_| format!("{}:{}: {word}", file.path, n + 1)));
            }
        }
    }
    found
}

fn begins_a_word(line: &str, at: usize) -> bool {
    !line.get(..at).unwrap_or_default().ends_with(|c: char| c.is_ascii_alphanumeric() || c == '_')
}

/// Homebrew's fixed place on Linux is nobody's home.
fn is_public(line: &str, at: usize) -> bool {
    line.get(at..).unwrap_or_default().starts_with(concat!("/ho", "me/linuxbrew/"))
}

fn is_code(file: &File) -> bool {
    file.ends(".rs") || file.ends(".sql")
}

fn is_rust(file: &File) -> bool {
    file.ends(".rs")
}

fn settings(files: &[File]) -> Vec<String> {
    let mut found = Vec::new();
    for file in files.iter().filter(|f| is_code(f)) {
        let text = file.text.to_ascii_lowercase();
        for (at, name) in text.match_indices(concat!("set_", "config(")) {
            let rest = text.get(at + name.len()..).unwrap_or_default();
            if last_argument(rest).is_some_and(|last| last.trim() == "false") {
                let line = text.get(..at).unwrap_or_default().lines().count().max(1);
                found.push(format!("{}:{line}: {name}…, false)", file.path));
            }
        }
    }
    found
}

/// The last argument of a call whose opening parenthesis has just been read.
fn last_argument(rest: &str) -> Option<&str> {
    let (mut depth, mut from, mut quoted) = (0, 0, false);
    for (at, c) in rest.char_indices() {
        match c {
            '\'' => quoted = !quoted,
            _ if quoted => {}
            '(' => depth += 1,
            ')' if depth == 0 => return rest.get(from..at),
            ')' => depth -= 1,
            ',' if depth == 0 => from = at + 1,
            _ => {}
        }
    }
    None
}

fn locks(files: &[File]) -> Vec<String> {
    let words = [concat!("pg_advisory", "_lock"), concat!("pg_try_advisory", "_lock")];
    find(files, is_code, &words)
}

fn macros(files: &[File]) -> Vec<String> {
    let words = [
        concat!("quer", "y!"),
        concat!("query", "_as!"),
        concat!("query_scal", "ar!"),
        concat!("query_fil", "e!"),
        concat!("query_file", "_as!"),
    ];
    find(files, is_rust, &words)
}

fn allows(files: &[File]) -> Vec<String> {
    find(files, is_rust, &[concat!("#[all", "ow("), concat!("#![all", "ow(")])
}

fn leftovers(files: &[File]) -> Vec<String> {
    let words = [concat!("tod", "o!"), concat!("unimple", "mented!"), concat!("FIX", "ME"), concat!("TO", "DO")];
    find(files, is_code, &words)
}

/// Lock files name registries by their nature.
fn is_written(file: &File) -> bool {
    !file.ends(".lock") && !file.ends("package-lock.json")
}

fn places(files: &[File]) -> Vec<String> {
    let words = [
        concat!("crates", ".io"),
        concat!("static.crates", ".io"),
        concat!("reg", "istry.npmjs"),
        concat!("npmjs", ".com"),
        concat!("pyp", "i.org"),
        concat!("deb.deb", "ian.org"),
        concat!("proxy.gol", "ang.org"),
        concat!("/ho", "me/"),
        concat!("/ro", "ot/"),
        concat!("/us", "ers/"),
        concat!("/wo", "rk/"),
        concat!("/fa", "rm/"),
    ];
    find(files, is_written, &words)
}

fn diary(files: &[File]) -> Vec<String> {
    let whose = ["this", "earlier", "previous", "last", "next", "another"];
    let talk: Vec<String> = whose.iter().map(|whose| format!("{whose} {}", concat!("ses", "sion"))).collect();
    let words: Vec<&str> = talk.iter().map(String::as_str).collect();
    let mut found = find(files, |f| f.ends(".md"), &words);
    for digit in '0'..='9' {
        let number = format!("{} {digit}", concat!("iss", "ue"));
        found.extend(find(files, is_written, &[&number]));
    }
    found
}

/// The tables of the schema `postrider`, as the migrations create them.
fn table_names(files: &[File]) -> Vec<String> {
    let mut names = Vec::new();
    for file in files.iter().filter(|f| f.ends(".sql") && f.path.contains("/migrations/")) {
        for line in file.text.to_ascii_lowercase().lines() {
            let Some((_, rest)) = line.trim_start().strip_prefix("create ").and_then(|r| r.split_once("table ")) else {
                continue;
            };
            let rest = rest.trim_start_matches("if not exists ");
            let name: String =
                rest.chars().take_while(|c| c.is_ascii_alphanumeric() || *c == '_' || *c == '.').collect();
            if name.starts_with("postrider.") {
                names.push(name);
            }
        }
    }
    names.sort();
    names.dedup();
    names
}

fn tables(files: &[File]) -> Vec<String> {
    let names = table_names(files);
    let mut found = Vec::new();
    for file in files.iter().filter(|f| f.ends(".rs") && f.path.starts_with("crates/postrider/src/")) {
        if file.ends("/pg.rs") {
            continue;
        }
        for (n, line) in
            before_tests(&file.text).lines().enumerate().filter(|(_, line)| !line.trim_start().starts_with("//"))
        {
            for name in &names {
                let hits = line.match_indices(name.as_str()).filter(|(at, _)| {
                    let after = line.get(at + name.len()..).unwrap_or_default();
                    !after.starts_with(|c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '('))
                });
                found.extend(hits.map(|_| format!("{}:{}: {name}", file.path, n + 1)));
            }
        }
    }
    found
}

fn included(files: &[File]) -> Vec<String> {
    let mut names = Vec::new();
    let mut quoted: Vec<&str> = Vec::new();
    for file in files.iter().filter(|f| f.ends(".rs")) {
        let words = file.text.split('"').filter(|word| !word.is_empty() && word.len() < 200);
        for word in words {
            if word.contains(".sql") {
                names.push(resolve(&file.path, word));
            }
            quoted.push(word);
        }
    }
    let is_included = |file: &File| {
        // the list of migrations names them without their folder
        let stem = file.path.rsplit('/').next().unwrap_or_default().trim_end_matches(".sql");
        names.contains(&file.path) || file.path.contains("/migrations/") && quoted.contains(&stem)
    };
    let part_of_a_program = |f: &&File| {
        f.ends(".sql") && f.path.starts_with("crates/") && (is_statement(f) || f.path.contains("/migrations/"))
    };
    files.iter().filter(part_of_a_program).filter(|f| !is_included(f)).map(|f| f.path.clone()).collect()
}
