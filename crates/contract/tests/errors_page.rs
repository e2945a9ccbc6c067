//! `docs/errors.md` and [`Code::ALL`] say the same.

use std::fs;

use postrider_contract::Code;

/// The rows of the page's table: the code, the name, and whether the other cells say something.
fn rows(page: &str) -> Vec<(String, String, bool)> {
    let cells = |line: &str| -> Vec<String> {
        line.trim_matches('|').split('|').map(|cell| cell.trim().trim_matches('`').to_owned()).collect()
    };
    let row = |line: &str| match cells(line).as_slice() {
        [code, name, rest @ ..] if code.starts_with("PR") => {
            Some((code.clone(), name.clone(), rest.len() == 3 && rest.iter().all(|cell| !cell.is_empty())))
        }
        _ => None,
    };
    page.lines().filter(|line| line.starts_with('|')).filter_map(row).collect()
}

/// What differs between the page and the codes.
fn differences(page: &str) -> Vec<String> {
    let listed = rows(page);
    let mut found: Vec<String> =
        listed.iter().filter(|row| !row.2).map(|row| format!("{} has an empty cell", row.0)).collect();
    let listed: Vec<(String, String)> = listed.into_iter().map(|(code, name, _)| (code, name)).collect();
    let known: Vec<(String, String)> = Code::ALL.iter().map(|code| (code.to_string(), format!("{code:?}"))).collect();
    found.extend(
        known.iter().filter(|row| !listed.contains(row)).map(|row| format!("{} {} is not listed", row.0, row.1)),
    );
    found.extend(
        listed.iter().filter(|row| !known.contains(row)).map(|row| format!("{} {} is not known", row.0, row.1)),
    );
    if found.is_empty() && listed != known {
        found.push("the order is another one, or a row stands twice".to_owned());
    }
    found
}

#[test]
fn the_page_of_errors_lists_every_code_and_no_other() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/errors.md");
    let page = fs::read_to_string(path).unwrap();
    assert_eq!(differences(&page), Vec::<String>::new());
}

#[test]
fn a_page_that_differs_is_found() {
    let page: String = Code::ALL.map(|code| format!("| `{code}` | {code:?} | means | do | raised |\n")).concat();
    assert_eq!(differences(&page), Vec::<String>::new());
    assert_eq!(differences(&page.replace("| `PR004` | Undeclared | means | do | raised |\n", "")).len(), 1);
    assert_eq!(differences(&page.replace("Undeclared", "Unknown")).len(), 2);
    assert_eq!(
        differences(&page.replace("| `PR005` | Option | means | do |", "| `PR005` | Option | means | |")).len(),
        1
    );
    assert_eq!(differences(&format!("{page}| `PR001` | Name | means | do | raised |\n")).len(), 1);
}
