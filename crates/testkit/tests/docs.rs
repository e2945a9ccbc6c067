//! The pages tell the truth: links lead somewhere, a promise names the test that proves it, a program is one that compiles.

mod paths;
mod repo;

use paths::resolve;
use repo::File;

/// Headings under which every item of a list must name its test.
const PROMISING: &[&str] = &["What it promises", "Invariants"];

/// The page and the program that stands first in it, with the most lines that it may have.
const FIRST_PROGRAM: (&str, &str, usize) = ("README.md", "examples/01_record_and_handle.rs", 25);

#[test]
fn every_relative_link_leads_to_a_file_and_a_heading() {
    let found = broken_links(&repo::files());
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn every_promise_names_a_test_that_exists() {
    let found = unproven(&repo::files());
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn the_first_program_of_the_readme_is_the_first_example() {
    let found = first_program(&repo::files());
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn a_link_to_nowhere_is_found() {
    let page = "# One page\n[a](b.md) [b](gone.md) [c](b.md#second-part) [d](b.md#third) [e](#one-page) [f](#two)\n\
                ![g](../x.png) [h](https://example.com/x) [i](../src)\n```text\n[j](gone-too.md)\n```\n`[k](gone-three.md)`\n";
    let files =
        [File::new("docs/a.md", page), File::new("docs/b.md", "# B\n## Second *part*\n"), File::new("src/lib.rs", "")];
    let expected = ["docs/a.md:2: gone.md", "docs/a.md:2: b.md#third", "docs/a.md:2: #two", "docs/a.md:3: ../x.png"];
    assert_eq!(broken_links(&files), expected);
}

#[test]
fn a_promise_without_its_test_is_found() {
    let page = "# A\nIt holds (test: `it_holds`).\nSo does this (tests: `it_holds`, `it_is_gone`).\n## What it promises\n\
                - It holds (test: `it_holds`).\n- It shines,\n  brightly.\n- Both\n  of them (test: `helper`)\n## Other\n- free\n";
    let code = "#[test]\nfn it_holds() {}\n\nfn nothing() {}\n\n\n\n\n\n\nfn helper() {}\n";
    let files = [File::new("README.md", page), File::new("crates/a/tests/a.rs", code)];
    let expected = [
        "README.md:3: no test is called it_is_gone",
        "README.md:6: this promise names no test",
        "README.md:9: no test is called helper",
    ];
    assert_eq!(unproven(&files), expected);
}

#[test]
fn a_program_that_is_not_the_example_is_found() {
    let (page, path, _) = FIRST_PROGRAM;
    let example = "//! The first program.\n\nfn main() {\n    go();\n}\n";
    let tree = |readme: &str, example: &str| first_program(&[File::new(page, readme), File::new(path, example)]).len();
    assert_eq!(tree("```rust\nfn main() {\n    go();\n}\n```\n", example), 0);
    assert_eq!(tree("```sh\n./dev\n```\n```rust\nfn main() {}\n```\n", example), 1, "another program");
    assert_eq!(tree("no program", example), 1);
    let long = format!("fn main() {{\n{}}}\n", "    go();\n".repeat(24));
    assert_eq!(tree(&format!("```rust\n{long}```\n"), &long), 1, "26 lines");
}

fn pages(files: &[File]) -> impl Iterator<Item = &File> {
    files.iter().filter(|f| f.ends(".md"))
}

/// The lines of a page with their numbers, without fenced blocks and without `code`.
fn prose(page: &File) -> Vec<(usize, String)> {
    let mut fenced = false;
    let mut lines = Vec::new();
    for (n, line) in page.text.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            fenced = !fenced;
        } else if !fenced {
            lines.push((n + 1, line.to_owned()));
        }
    }
    lines
}

fn broken_links(files: &[File]) -> Vec<String> {
    let mut found = Vec::new();
    for page in pages(files) {
        for (n, line) in prose(page) {
            let text: String = line.split('`').step_by(2).collect::<Vec<_>>().join("`");
            for link in text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
                if !link.contains("://") && !link.starts_with("mailto:") && !leads_somewhere(files, &page.path, link) {
                    found.push(format!("{}:{n}: {link}", page.path));
                }
            }
        }
    }
    found
}

fn leads_somewhere(files: &[File], from: &str, link: &str) -> bool {
    let (path, heading) = link.split_once('#').map_or((link, None), |(path, heading)| (path, Some(heading)));
    let target = if path.is_empty() { from.to_owned() } else { resolve(from, path) };
    let page = files.iter().find(|f| f.path == target);
    match (page, heading) {
        (Some(page), Some(heading)) => {
            prose(page).iter().any(|(_, line)| line.starts_with('#') && anchor(line.trim_start_matches('#')) == heading)
        }
        (Some(_), None) => true,
        (None, _) => heading.is_none() && files.iter().any(|f| f.path.starts_with(&format!("{target}/"))),
    }
}

/// The anchor that a heading gets: lower case, spaces as hyphens, other signs gone.
fn anchor(heading: &str) -> String {
    let kept = heading.trim().chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    kept.map(|c| if c == ' ' { '-' } else { c.to_ascii_lowercase() }).collect()
}

fn unproven(files: &[File]) -> Vec<String> {
    let tests = test_names(files);
    let mut found = Vec::new();
    for page in pages(files) {
        let mut promising = false;
        let mut item: Option<(usize, String)> = None;
        let lines = prose(page);
        for (n, line) in lines.iter().map(|(n, line)| (*n, line.as_str())).chain([(0, "#")]) {
            for name in named_tests(line) {
                if !tests.contains(&name) {
                    found.push(format!("{}:{n}: no test is called {name}", page.path));
                }
            }
            let ends = line.starts_with('#') || line.starts_with("- ") || line.trim().is_empty();
            if ends
                && let Some((at, text)) = item.take()
                && named_tests(&text).is_empty()
            {
                found.push(format!("{}:{at}: this promise names no test", page.path));
            }
            if line.starts_with('#') {
                promising = PROMISING.contains(&line.trim_start_matches('#').trim());
            } else if promising && line.starts_with("- ") {
                item = Some((n, line.to_owned()));
            } else if let Some((_, text)) = &mut item {
                text.push(' ');
                text.push_str(line.trim());
            }
        }
    }
    found
}

/// The names in `(test: …)` and `(tests: …, …)`.
fn named_tests(text: &str) -> Vec<String> {
    let mut names = Vec::new();
    for opening in ["(test: ", "(tests: "] {
        for inside in text.split(opening).skip(1).filter_map(|rest| rest.split(')').next()) {
            names.extend(inside.split('`').skip(1).step_by(2).map(str::to_owned));
        }
    }
    names
}

/// Functions that have an attribute with the word `test` right above them.
fn test_names(files: &[File]) -> Vec<String> {
    let mut names = Vec::new();
    for file in files.iter().filter(|f| f.ends(".rs")) {
        let mut marked = false;
        for line in file.text.lines().map(str::trim) {
            if line.starts_with("#[") {
                marked |= line.contains("test");
            } else if let Some((_, rest)) = line.split_once("fn ").filter(|_| marked) {
                names.push(rest.chars().take_while(|c| c.is_ascii_alphanumeric() || *c == '_').collect());
                marked = false;
            } else if !line.starts_with("//") {
                marked = false;
            }
        }
        // a case is a test once it stands in the list of its family
        let cases = file.text.lines().map(str::trim).filter(|_| file.path.contains("/src/conformance/"));
        let listed =
            |line: &str| line.strip_suffix(',').filter(|name| name.chars().all(is_of_a_name)).map(str::to_owned);
        names.extend(cases.filter_map(listed));
    }
    names
}

fn is_of_a_name(c: char) -> bool {
    c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_'
}

fn first_program(files: &[File]) -> Vec<String> {
    let (page, path, most) = FIRST_PROGRAM;
    let text = |path: &str| files.iter().find(|f| f.path == path).map_or("", |f| f.text.as_str());
    let shown = text(page).split("```rust\n").nth(1).and_then(|rest| rest.split("```").next()).unwrap_or_default();
    let example = program(text(path));
    let mut found = Vec::new();
    if shown.trim().is_empty() || shown.trim() != example {
        found.push(format!("the first program of {page} is not {path}"));
    }
    let lines = example.lines().count();
    if lines > most {
        found.push(format!("{path} has {lines} lines, a first program has at most {most}"));
    }
    found
}

/// An example without the comments and attributes of its file.
fn program(text: &str) -> &str {
    let start = text.lines().take_while(|l| l.starts_with("//!") || l.starts_with("#![") || l.trim().is_empty());
    let skipped: usize = start.map(|line| line.len() + 1).sum();
    text.get(skipped..).unwrap_or_default().trim()
}
