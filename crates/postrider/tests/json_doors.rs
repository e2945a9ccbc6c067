//! Texts that one reader of JSON takes and another does not: both doors say the same of each, and what they take keeps its bytes.
#![expect(clippy::unwrap_used, clippy::disallowed_methods, reason = "a test asks the database itself")]

use postrider::contract::check_json;
use postrider_testkit::TestDb;
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::{Config, TestRunner};
use sqlx::PgPool;

/// White space, literals, numbers, structure, strings, escapes, comments, ranges of numbers: at the edge of what is JSON.
const TEXTS: &[&str] = &[
    "",
    " ",
    "\t\n\r 1 \t\n\r",
    "\u{b}1",
    "\u{c}1",
    "\u{a0}1",
    "\u{2028}1",
    "\u{feff}1",
    "1\u{feff}",
    "null",
    "NULL",
    "nul",
    "True",
    "nan",
    "NaN",
    "Infinity",
    "-Infinity",
    "-0",
    "-0.0",
    "-",
    "+1",
    "01",
    "-01",
    "1.",
    ".1",
    "1.e1",
    "1e",
    "1e+",
    "1E+1",
    "1e-0",
    "0e0",
    "0x1",
    "1_0",
    "1 2",
    "[1,]",
    "[,1]",
    "[1,,2]",
    "[1 2]",
    "{\"a\":1,}",
    "{,}",
    "{\"a\"}",
    "{\"a\" 1}",
    "{a:1}",
    "{1:1}",
    "{'a':1}",
    "{\"a\":1 \"b\":2}",
    "{\"a\":1,\"a\":2}",
    "{\"\":1}",
    "[1]]",
    "[[1]",
    "{}}",
    "{}[]",
    "\"a",
    "a\"",
    "'a'",
    "\"\t\"",
    "\"\n\"",
    "\"\u{1}\"",
    "\"\u{7f}\"",
    "\"\u{80}\"",
    "\"\\t\"",
    "\"\\x41\"",
    "\"\\'\"",
    "\"\\0\"",
    "\"\\a\"",
    "\"\\\"",
    "\"\\\\\"",
    "\"\\u\"",
    "\"\\u12\"",
    "\"\\u123g\"",
    "\"\\U0041\"",
    "\"\\u0041\"",
    "\"\\u0000\"",
    "\"\\u0001\"",
    "\"\\ud800\"",
    "\"\\udc00\"",
    "\"\\ud800\\udc00\"",
    "\"\\udc00\\ud800\"",
    "\"\\ud800\\ud800\"",
    "\"\\ud800\\u0041\"",
    "\"\\ud800\u{fffd}\"",
    "\"\\\\ud800\"",
    "\"\\uD83D\\uDE00\"",
    "\"\\uffff\"",
    "\"\u{10ffff}\"",
    "\"\u{fffe}\"",
    "{\"\\ud800\":1}",
    "{\"\\u0000\":1}",
    "/**/1",
    "1//",
    "#1",
    "[1]#",
    "\\u0031",
    "1e400",
    "-1e400",
    "1e9999",
    "1e10000",
    "1e-10000",
    "1e00000009999",
    "1E+010000",
    "123456789012345678901234567890",
    "0.1234567890123456789012345678901234567890",
    "\u{ff11}",
    "\u{661}",
];

/// What the SQL door says of each text: its SQLSTATE, or nothing; `bytes` if it was taken and came out as another text.
async fn sql(pool: &PgPool, texts: &[String]) -> Vec<Option<String>> {
    let verdict = "create or replace function pg_temp.verdict(t text) returns text language plpgsql as $$
        declare made uuid;
        begin
            made := postrider.record('t.made', 's', t::json);
            return case when (select data::text from postrider.event e where e.seq = postrider.event_seq(made)) <> t then 'bytes' end;
        exception when others then
            return sqlstate;
        end $$";
    let mut connection = pool.acquire().await.unwrap();
    sqlx::query("select postrider.declare('{\"types\": [{\"name\": \"t.made\"}]}')")
        .execute(&mut *connection)
        .await
        .unwrap();
    sqlx::query(verdict).execute(&mut *connection).await.unwrap();
    sqlx::query_scalar("select pg_temp.verdict(t) from unnest($1::text[]) with ordinality u (t, n) order by n")
        .bind(texts)
        .fetch_all(&mut *connection)
        .await
        .unwrap()
}

/// Postgres itself says 22P02 of what is no JSON, and 54001 of what is nested too deep for it, before our door is reached.
fn same(text: &str, sql: Option<&str>) {
    let rust = check_json("data", text).err().map(|refused| refused.code.as_str().to_owned());
    let shown: String = text.chars().take(80).collect();
    match sql {
        Some("22P02" | "54001") => assert_eq!(rust.as_deref(), Some("PR003"), "{shown:?}"),
        other => assert_eq!(rust.as_deref(), other, "{shown:?}"),
    }
}

#[tokio::test]
async fn b7_each_text_that_readers_of_json_disagree_on_gets_one_verdict_at_both_doors() {
    let db = TestDb::fresh().await;
    let deep = |n: usize, open: &str, close: &str| open.repeat(n) + &close.repeat(n);
    let mut texts: Vec<String> = TEXTS.iter().copied().map(str::to_owned).collect();
    texts.extend([
        deep(128, "[", "]"),
        deep(129, "[", "]"),
        deep(64, "{\"a\":[", "]}"),
        deep(65, "{\"a\":[", "]}"),
        "[".repeat(100_000),
        deep(50_000, "[", "]"),
        "9".repeat(4_096),
        "9".repeat(4_097),
        format!("0.{}", "1".repeat(4_094)),
        format!("0.{}", "1".repeat(4_095)),
    ]);
    let told = sql(db.pool(), &texts).await;
    for (text, told) in texts.iter().zip(&told) {
        same(text, told.as_deref());
    }
    let taken = told.iter().filter(|told| told.is_none()).count();
    assert!(taken > 30 && texts.len() - taken > 60, "{taken} of {}", texts.len());
}

#[tokio::test]
async fn b7_a_text_that_is_changed_at_random_gets_one_verdict_at_both_doors() {
    let db = TestDb::fresh().await;
    let mut runner = TestRunner::new(Config::default());
    let seeds = [
        r#"{"a": [1, -2.5e+10, true, null], "b": {"c": "x\u00e9\n\\ \ud83d\ude00", "": []}}"#,
        r#"["\"", "\\\\", {"u": "\u0041"}, 0, 0.0, 1E-7, [[[]]], {"k": {"k": {}}}]"#,
    ];
    let piece = prop::sample::select(vec![
        "", "\\", "\"", "u", "\\u", "0", "-", "e", "E", ".", "+", ",", ":", "[", "]", "{", "}", " ", "\n", "\t",
        "\u{1}", "\\u0000", "\\ud800", "\\udc00", "null", "9", "\u{e9}", "/",
    ]);
    let change = (
        prop::sample::select(seeds.to_vec()),
        prop::collection::vec((any::<prop::sample::Index>(), 0..3_usize, piece), 1..4),
    );
    let mut texts = Vec::new();
    for _ in 0..4_000 {
        let (seed, changes) = change.new_tree(&mut runner).unwrap().current();
        let mut text: Vec<char> = seed.chars().collect();
        for (at, gone, piece) in changes {
            let at = at.index(text.len());
            text.splice(at..(at + gone).min(text.len()), piece.chars());
        }
        texts.push(text.into_iter().collect::<String>());
    }
    let told = sql(db.pool(), &texts).await;
    for (text, told) in texts.iter().zip(&told) {
        same(text, told.as_deref());
    }
    let taken = told.iter().filter(|told| told.is_none()).count();
    assert!((200..3_800).contains(&taken), "the cases must not be all of one side: {taken}");
}
