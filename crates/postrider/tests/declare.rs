//! Declarations are data: the higher generation wins, equal ones must agree, and patterns mean the same in Rust and SQL.
#![expect(clippy::unwrap_used, clippy::disallowed_methods, reason = "a test asks the database itself")]

use postrider::contract::{EventTypeSpec, Pattern};
use postrider::{Bus, Code, Kind, KindSpec, Subscription};
use postrider_testkit::TestDb;
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::{Config, TestRunner};
use sqlx::PgPool;

async fn declare(pool: &PgPool, generation: i64, queue: &str, types: &[&str]) -> Result<Bus, postrider::Error> {
    let kind = Kind::spec(KindSpec { queue: queue.to_owned(), ..KindSpec::new("k.one") });
    let subscription = Subscription::new("s.one", types.iter().copied());
    let builder = Bus::builder(pool.clone()).app("test").generation(generation);
    builder.types(["a.b", "a.c"]).kinds([kind]).subscriptions([subscription]).build().await
}

async fn routes(pool: &PgPool) -> Vec<String> {
    sqlx::query_scalar("select type::text from postrider.route order by 1").fetch_all(pool).await.unwrap()
}

#[tokio::test]
async fn the_same_declaration_again_changes_nothing_and_another_one_needs_a_higher_generation() {
    let db = TestDb::fresh().await;
    declare(db.pool(), 1, "default", &["a.b"]).await.unwrap();
    declare(db.pool(), 1, "default", &["a.b"]).await.unwrap();
    assert_eq!(routes(db.pool()).await, ["a.b"]);

    let error = declare(db.pool(), 1, "default", &["a.*"]).await.unwrap_err();
    assert_eq!(error.code(), Some(Code::Conflict));
    assert!(error.to_string().contains("raise the generation"), "{error}");
    assert_eq!(routes(db.pool()).await, ["a.b"], "a refused declaration changes nothing");

    declare(db.pool(), 2, "other", &["a.*"]).await.unwrap();
    assert_eq!(routes(db.pool()).await, ["a.b", "a.c"]);
    declare(db.pool(), 1, "default", &["a.b"]).await.unwrap();
    assert_eq!(routes(db.pool()).await, ["a.b", "a.c"], "the older one, still running, does not win");
    let queue: String =
        sqlx::query_scalar("select queue from postrider.kind where name = 'k.one'").fetch_one(db.pool()).await.unwrap();
    assert_eq!(queue, "other");
}

#[tokio::test]
async fn a_type_that_is_declared_later_reaches_the_subscriptions_that_wait_for_it() {
    let db = TestDb::fresh().await;
    declare(db.pool(), 0, "default", &["**"]).await.unwrap();
    Bus::builder(db.pool().clone()).types(["x.y.z"]).build().await.unwrap();
    assert_eq!(routes(db.pool()).await, ["a.b", "a.c", "x.y.z"]);
}

#[tokio::test]
async fn an_outward_subscription_is_routed_public_types_only() {
    let db = TestDb::fresh().await;
    let types = [EventTypeSpec::new("a.internal"), EventTypeSpec::new("a.public").public()];
    Bus::builder(db.pool().clone()).types(types).kinds([Kind::new("k.one")]).build().await.unwrap();
    sqlx::query("select postrider.put_subscription('s.out', '{**}', 'k.one', outward => true)")
        .execute(db.pool())
        .await
        .unwrap();
    assert_eq!(routes(db.pool()).await, ["a.public"]);
    // and when a type becomes public, or internal again
    let types = [EventTypeSpec::new("a.internal").public(), EventTypeSpec::new("a.public")];
    Bus::builder(db.pool().clone()).generation(1).types(types).build().await.unwrap();
    assert_eq!(routes(db.pool()).await, ["a.internal"]);
}

#[tokio::test]
async fn a_pattern_means_the_same_in_rust_and_in_sql() {
    let db = TestDb::fresh().await;
    let mut runner = TestRunner::new(Config::default());
    let segment = prop::sample::select(vec!["a", "b", "ab", "a-b", "_", "0"]);
    let name = prop::collection::vec(segment.clone(), 1..5).prop_map(|s| s.join("."));
    let part = prop_oneof![segment, prop::sample::select(vec!["*", "**"])];
    let pattern = prop::collection::vec(part, 1..5).prop_map(|s| s.join("."));
    let mut cases = Vec::new();
    for _ in 0..3_000 {
        let pattern = pattern.new_tree(&mut runner).unwrap().current();
        let name = name.new_tree(&mut runner).unwrap().current();
        cases.push((pattern, name));
    }
    let (patterns, names): (Vec<String>, Vec<String>) = cases.iter().cloned().unzip();
    let sql: Vec<bool> = sqlx::query_scalar("select n ~ postrider.pattern_regex(p) from unnest($1::text[], $2::text[]) with ordinality u (p, n, o) order by o")
        .bind(patterns)
        .bind(names)
        .fetch_all(db.pool())
        .await
        .unwrap();
    let mut matched = 0;
    for ((pattern, name), sql) in cases.iter().zip(sql) {
        let rust = Pattern::parse(pattern).unwrap().matches(name);
        assert_eq!(rust, sql, "{pattern} over {name}");
        matched += usize::from(rust);
    }
    assert!(matched > 100, "the cases must not be all of one side: {matched}");
    for bad in ["", "a*", "a..b", ".a", "***", "A", "a b"] {
        assert!(Pattern::parse(bad).is_err());
        sqlx::query("select postrider.pattern_regex($1)").bind(bad).execute(db.pool()).await.unwrap_err();
    }
}
