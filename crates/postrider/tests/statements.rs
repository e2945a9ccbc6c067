//! Every statement of the library is prepared and described by a real Postgres; its types are compared with `statements.txt`.

use std::fmt::Write as _;

use postrider_testkit::TestDb;
use sqlx::{Column, Either, Executor, SqlSafeStr, Statement as _, TypeInfo};

#[tokio::test]
async fn every_statement_is_valid_and_has_the_types_that_are_written_down() {
    let db = TestDb::fresh().await;
    let mut connection = db.pool().acquire().await.unwrap();
    let mut found = String::new();
    for statement in postrider::statements() {
        let prepared = connection.prepare(statement.sql.into_sql_str()).await;
        let prepared = prepared.unwrap_or_else(|e| panic!("{}: {e}", statement.name));
        let parameters: Vec<String> = match prepared.parameters() {
            Some(Either::Left(types)) => types.iter().map(|t| t.name().to_lowercase()).collect(),
            _ => Vec::new(),
        };
        let columns: Vec<String> = prepared.columns().iter().map(|c| c.type_info().name().to_lowercase()).collect();
        writeln!(found, "{} ({}) -> ({})", statement.name, parameters.join(", "), columns.join(", ")).unwrap();
    }
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/statements.txt");
    if std::env::var_os("POSTRIDER_REGENERATE").is_some() {
        std::fs::write(path, &found).unwrap();
    }
    let expected = std::fs::read_to_string(path).unwrap_or_default();
    assert_eq!(found, expected, "run with POSTRIDER_REGENERATE=1 if the change is meant");
}

#[tokio::test]
async fn no_function_can_be_executed_by_everybody_and_each_pins_its_search_path() {
    let db = TestDb::fresh().await;
    let loose: Vec<String> = sqlx::query_scalar(
        "select p.oid::regprocedure::text from pg_proc p
          where p.pronamespace = 'postrider'::regnamespace
            and (has_function_privilege('public', p.oid, 'execute')
                 -- a body that was parsed when it was made asks no search_path
                 or (p.prosqlbody is null
                     and not exists (select from unnest(p.proconfig) c where c like 'search_path=pg_catalog, pg_temp%')))",
    )
    .fetch_all(db.pool())
    .await
    .unwrap();
    assert_eq!(loose, Vec::<String>::new());
    let tables: Vec<String> = sqlx::query_scalar(
        "select c.oid::regclass::text from pg_class c
          where c.relnamespace = 'postrider'::regnamespace and c.relkind in ('r', 'p', 'v', 'S')
            and (case c.relkind when 'S' then has_sequence_privilege('public', c.oid, 'usage')
                 else has_table_privilege('public', c.oid, 'select') end)",
    )
    .fetch_all(db.pool())
    .await
    .unwrap();
    assert_eq!(tables, Vec::<String>::new());
}

#[tokio::test]
async fn each_verb_is_one_function_without_overloads() {
    let db = TestDb::fresh().await;
    let doubled: Vec<String> = sqlx::query_scalar(
        "select proname::text from pg_proc where pronamespace = 'postrider'::regnamespace group by 1 having count(*) > 1",
    )
    .fetch_all(db.pool())
    .await
    .unwrap();
    assert_eq!(doubled, Vec::<String>::new());
}

#[tokio::test]
async fn the_planner_of_the_hot_functions_is_pinned_and_compiles_nothing() {
    let db = TestDb::fresh().await;
    for function in ["claim", "finish", "relay", "fan_out", "promote"] {
        let settings: Vec<String> = sqlx::query_scalar(
            "select unnest(proconfig) from pg_proc where pronamespace = 'postrider'::regnamespace and proname = $1",
        )
        .bind(function)
        .fetch_all(db.pool())
        .await
        .unwrap();
        // with scans priced out of reach, a plan looks dear enough for the compiler: 0.6 s for a 1 ms statement
        for setting in ["jit=off", "plan_cache_mode=force_generic_plan", "enable_seqscan=off"] {
            assert!(settings.iter().any(|s| s == setting), "{function} lacks {setting}");
        }
    }
}
