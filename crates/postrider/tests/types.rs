//! The catalogue of event types: what is declared, what is recorded by it, what is seen of it. Both doors are one, so most is asked in SQL.
#![expect(clippy::unwrap_used, clippy::disallowed_methods, reason = "a test asks the database itself")]

use std::time::Duration;

use postrider::{
    Bus, Deprecated, Error, EventTypeSpec, Exposure, NewEvent, Payload, Recorder, TypeVersion, Validation,
};
use postrider_testkit::TestDb;
use serde_json::{Value, json};
use sqlx::PgPool;
use sqlx::postgres::{PgDatabaseError, PgPoolOptions};

type Refusal = (String, String, String);

/// The code, the field and the message with its remedy.
fn refusal(error: &sqlx::Error) -> Refusal {
    let error = error.as_database_error().unwrap().downcast_ref::<PgDatabaseError>();
    let told = format!("{}; {}", error.message(), error.hint().unwrap_or_default());
    (error.code().to_owned(), error.column().unwrap_or_default().to_owned(), told)
}

async fn declare_all(pool: &PgPool, declarations: Value) -> Result<(), Refusal> {
    let sql = "select postrider.declare($1::text::json)";
    sqlx::query(sql).bind(declarations.to_string()).execute(pool).await.map(drop).map_err(|e| refusal(&e))
}

async fn declare(pool: &PgPool, generation: i64, kind: Value) -> Result<(), Refusal> {
    declare_all(pool, json!({"app": "test", "generation": generation, "types": [kind]})).await
}

/// An order with a total: the data of most tests.
fn order(validation: &str) -> Value {
    let schema = json!({"type": "object", "required": ["total"], "properties": {"total": {"type": "integer"}}});
    json!({"name": "order.paid", "subject": "order/{id}", "validation": validation,
           "versions": [{"version": 1, "schema": schema, "example": {"total": 1}}]})
}

async fn record(pool: &PgPool, kind: &str, subject: &str, data: &str) -> Result<(), Refusal> {
    let sql = "select postrider.record($1, $2, $3::text::json)";
    let recorded = sqlx::query(sql).bind(kind).bind(subject).bind(data).execute(pool).await;
    recorded.map(drop).map_err(|e| refusal(&e))
}

async fn number(pool: &PgPool, sql: &'static str) -> i64 {
    sqlx::query_scalar(sql).fetch_one(pool).await.unwrap()
}

#[tokio::test]
async fn the_distance_of_two_names_is_the_letters_to_add_drop_change_or_swap() {
    let db = TestDb::fresh().await;
    for (one, other, most, distance) in [
        ("kitten", "sitting", 4, Some(3)),
        ("order.paid", "order.paid", 4, Some(0)),
        ("order.piad", "order.paid", 4, Some(1)),
        ("oder.paid", "order.paid", 4, Some(1)),
        ("order.paidd", "order.paid", 4, Some(1)),
        ("order.payd", "order.paid", 4, Some(1)),
        ("abcd", "badc", 4, Some(2)),
        ("kitten", "sitting", 2, None),
        ("a", "abcdef", 4, None),
        ("abcdef", "uvwxyz", 4, None),
        ("", "abc", 4, Some(3)),
        ("", "", 0, Some(0)),
    ] {
        for (one, other) in [(one, other), (other, one)] {
            let sql = "select postrider.name_distance($1, $2, $3)";
            let told: Option<i32> =
                sqlx::query_scalar(sql).bind(one).bind(other).bind(most).fetch_one(db.pool()).await.unwrap();
            assert_eq!(told, distance, "{one} and {other}, at most {most}");
        }
    }
}

#[tokio::test]
async fn b2_the_nearest_names_are_those_with_the_fewest_letters_to_change() {
    let db = TestDb::fresh().await;
    let names = ["order.paid", "order.placed", "order.sent", "invoice.sent", "user.created"];
    let types: Vec<Value> = names.iter().map(|name| json!({ "name": name })).collect();
    declare_all(db.pool(), json!({ "types": types })).await.unwrap();
    for (wrong, remedy) in [
        ("order.piad", "did you mean 'order.paid', 'order.placed'"),
        ("user.craeted", "did you mean 'user.created'"),
        ("invoices.sent", "did you mean 'invoice.sent'"),
        ("order.refunded.in.part", "did you mean 'order.placed', 'order.paid', 'order.sent'"),
        ("zzz", "declare it first"),
        (&"a".repeat(200), "declare it first"),
    ] {
        let (code, field, told) = record(db.pool(), wrong, "a", "{}").await.unwrap_err();
        assert_eq!((code.as_str(), field.as_str()), ("PR004", "type"));
        assert!(told.contains(remedy), "{wrong}: {told}");
    }
}

#[tokio::test]
async fn a_subject_fits_the_form_that_its_type_declares_or_is_refused() {
    let db = TestDb::fresh().await;
    let types = [
        json!({"name": "a.one", "subject": "order/{id}"}),
        json!({"name": "a.two", "subject": "shop/{shop}/order/{id}.v1"}),
        json!({"name": "a.fixed", "subject": "the (only) one"}),
        json!({"name": "a.free"}),
    ];
    declare_all(db.pool(), json!({ "types": types })).await.unwrap();
    for (kind, subject, fits) in [
        ("a.one", "order/42", true),
        ("a.one", "order/\u{e4} b", true),
        ("a.one", "order/", false),
        ("a.one", "order/1/2", false),
        ("a.one", "orders/1", false),
        ("a.one", "an order/1", false),
        ("a.two", "shop/1/order/2.v1", true),
        ("a.two", "shop/1/order/2xv1", false),
        ("a.two", "shop//order/2.v1", false),
        ("a.fixed", "the (only) one", true),
        ("a.fixed", "the only one", false),
        ("a.free", "anything", true),
    ] {
        let told = record(db.pool(), kind, subject, "{}").await.err();
        assert_eq!(told.is_none(), fits, "{kind} {subject}: {told:?}");
        if let Some((code, field, told)) = told {
            assert_eq!((code.as_str(), field.as_str()), ("PR008", "subject"));
            assert!(told.contains(subject) && told.contains(kind), "{told}");
        }
    }
    for form in ["", "{", "{}", "a}", "{A}", "{a}{b}", "{a}/{a}", "{a b}", "a\nb", &"a".repeat(201)] {
        let (code, field, _) = declare(db.pool(), 0, json!({"name": "a.bad", "subject": form})).await.unwrap_err();
        assert_eq!((code.as_str(), field.as_str()), ("PR005", "subject"), "{form:?}");
    }
}

#[tokio::test]
async fn b7_data_that_do_not_fit_are_refused_by_each_door_with_one_text_and_nothing_is_written() {
    let db = TestDb::fresh().await;
    declare(db.pool(), 0, order("enforce")).await.unwrap();
    let bad = NewEvent::new("order.paid", "order/42", Payload::parse(r#"{"total": "10"}"#).unwrap());
    let mut connection = db.pool().acquire().await.unwrap();
    let Err(Error::Refused(rust)) = Recorder::new().record(&mut *connection, &bad).await else { panic!("recorded") };
    let sql = record(db.pool(), "order.paid", "order/42", r#"{"total": "10"}"#).await.unwrap_err();
    let many = r#"[{"type": "order.paid", "subject": "order/1", "data": {"total": 1}},
                   {"type": "order.paid", "subject": "order/42", "data": {"total": "10"}}]"#;
    let many = sqlx::query("select postrider.record_many($1::text::json)").bind(many).execute(db.pool()).await;
    let expected = "/total is of type string, not integer (order.paid, version 1)";
    assert_eq!((rust.code.as_str(), rust.field.as_str()), ("PR008", "data"));
    assert!(rust.to_string().contains(expected), "{rust}");
    for (code, field, told) in [sql, refusal(&many.unwrap_err())] {
        assert_eq!((code.as_str(), field.as_str()), ("PR008", "data"));
        assert!(told.contains(expected), "{told}");
    }
    assert_eq!(number(db.pool(), "select count(*) from postrider.event").await, 0);
    record(db.pool(), "order.paid", "order/42", r#"{"total": 10.0, "more": 1}"#).await.unwrap();
    assert_eq!(number(db.pool(), "select version::bigint from postrider.event").await, 1);
}

#[tokio::test]
async fn what_is_only_warned_of_is_recorded_with_its_bytes_and_seen_once_for_each_event() {
    let db = TestDb::fresh().await;
    declare(db.pool(), 0, order("warn")).await.unwrap();
    let text = r#"{"total" : "10"}"#;
    record(db.pool(), "order.paid", "order/1", text).await.unwrap();
    record(db.pool(), "order.paid", "order/2", r#"{"total": 2}"#).await.unwrap();
    for _ in 0..2 {
        let sql = "select postrider.record('order.paid', 'order/3', '[]', idempotency_key => 'k')";
        sqlx::query(sql).execute(db.pool()).await.unwrap();
    }
    let mut tx = db.pool().begin().await.unwrap();
    sqlx::query("select postrider.record('order.paid', 'order/4', 'null')").execute(&mut *tx).await.unwrap();
    tx.rollback().await.unwrap();

    let types = postrider::Types::new(db.pool().clone());
    assert_eq!(types.list().await.unwrap()[0].mismatches, 2, "neither the key's second call nor what was rolled back");
    let seen = types.mismatches("order.paid", 10).await.unwrap();
    let problems: Vec<&str> = seen.iter().map(|mismatch| mismatch.problem.as_str()).collect();
    assert_eq!(problems, ["it is of type array, not object", "/total is of type string, not integer"]);
    let kept: String = sqlx::query_scalar("select data::text from postrider.event where id = $1")
        .bind(seen[1].event.as_uuid())
        .fetch_one(db.pool())
        .await
        .unwrap();
    assert_eq!(kept, text);
}

#[tokio::test]
async fn producers_that_are_warned_at_the_same_time_do_not_wait_for_each_other() {
    let db = TestDb::fresh().await;
    declare(db.pool(), 0, order("warn")).await.unwrap();
    let bad = "select postrider.record('order.paid', 'order/1', '[]')";
    let mut open = db.pool().begin().await.unwrap();
    sqlx::query(bad).execute(&mut *open).await.unwrap();
    for _ in 0..3 {
        let mut other = db.pool().begin().await.unwrap();
        sqlx::query("set local lock_timeout = '1ms'").execute(&mut *other).await.unwrap();
        sqlx::query(bad).execute(&mut *other).await.unwrap();
        other.commit().await.unwrap();
    }
    open.commit().await.unwrap();
    assert_eq!(number(db.pool(), "select count(*) from postrider.type_mismatch").await, 4);
}

#[tokio::test]
async fn a_warning_is_forgotten_when_its_event_is_gone() {
    let db = TestDb::fresh().await;
    declare(db.pool(), 0, order("warn")).await.unwrap();
    record(db.pool(), "order.paid", "order/1", "[]").await.unwrap();
    sqlx::query("insert into postrider.type_mismatch select 0, type, version, problem from postrider.type_mismatch")
        .execute(db.pool())
        .await
        .unwrap();
    sqlx::query("select postrider.housekeep('usual')").execute(db.pool()).await.unwrap();
    assert_eq!(number(db.pool(), "select count(*) from postrider.type_mismatch").await, 1);
    assert_eq!(
        number(db.pool(), "select count(*) from postrider.mismatches('order.paid') where event is not null").await,
        1
    );
}

#[tokio::test]
async fn a_version_stays_what_it_is_and_the_next_one_is_compatible_or_says_that_it_is_not() {
    let db = TestDb::fresh().await;
    let version = |n: i64, kind: &str| json!({"version": n, "schema": {"properties": {"a": {"type": kind}}}, "example": {}, "breaking": false});
    let with = |versions: Value| json!({"name": "a.b", "validation": "enforce", "versions": versions});
    let one = with(json!([version(1, "integer")]));
    declare(db.pool(), 1, one.clone()).await.unwrap();
    declare(db.pool(), 1, one.clone()).await.unwrap();
    for (generation, versions, code) in [
        (1, json!([version(1, "number")]), "PR006"),
        (2, json!([version(1, "number")]), "PR006"),
        (1, json!([version(1, "integer"), version(2, "number")]), "PR006"),
        (2, json!([version(1, "integer"), version(2, "string")]), "PR006"),
        (2, json!([version(1, "integer"), version(1, "integer")]), "PR006"),
        (2, json!([version(0, "integer")]), "PR005"),
        (2, json!([version(32_768, "integer")]), "PR005"),
        (2, json!([{"version": "x", "schema": {}, "example": {}}]), "PR005"),
        (2, json!([{"version": 2, "schema": {}}]), "PR005"),
        (2, json!([{"version": 2, "example": {}}]), "PR005"),
        (2, json!([{"version": 2, "schema": {}, "example": {}, "braking": true}]), "PR005"),
        (2, json!([{"version": 2, "schema": {"type": "string"}, "example": {}, "breaking": true}]), "PR008"),
        (2, json!([{"version": 2, "schema": {"if": true}, "example": {}}]), "PR005"),
        (2, json!([]), "PR005"),
    ] {
        let told = declare(db.pool(), generation, with(versions.clone())).await.unwrap_err();
        assert_eq!(told.0, code, "{versions}: {told:?}");
    }
    assert_eq!(
        number(db.pool(), "select count(*) from postrider.type_version").await,
        1,
        "nothing of a refused one stays"
    );

    declare(db.pool(), 2, with(json!([version(1, "integer"), version(2, "number")]))).await.unwrap();
    let mut breaking = version(3, "string");
    breaking["breaking"] = true.into();
    let latest = with(json!([version(2, "number"), breaking]));
    declare(db.pool(), 3, latest.clone()).await.unwrap();
    declare(db.pool(), 3, latest).await.unwrap();
    let late =
        declare(db.pool(), 4, with(json!([version(2, "number"), {"version": 1, "schema": {}, "example": {}}]))).await;
    assert_eq!(late.unwrap_err().0, "PR006", "1 is another one already");
    // an older process goes on, and does not win
    declare(db.pool(), 1, one).await.unwrap();
    let types = postrider::Types::new(db.pool().clone()).list().await.unwrap();
    assert_eq!((types[0].version, types[0].versions.as_slice()), (Some(3), [1, 2, 3].as_slice()));

    // data follow the newest one, or the one that the call says
    assert_eq!(record(db.pool(), "a.b", "s", r#"{"a": 1}"#).await.unwrap_err().0, "PR008");
    for (version, fits) in [("1", Some(true)), ("2", Some(true)), ("3", Some(false)), ("4", None)] {
        let sql = "select postrider.record('a.b', 's', '{\"a\": 1}', version => $1::text::int)";
        let told = sqlx::query(sql).bind(version).execute(db.pool()).await.map_err(|e| refusal(&e).0);
        let expected = match fits {
            Some(true) => None,
            Some(false) => Some("PR008".to_owned()),
            None => Some("PR005".to_owned()),
        };
        assert_eq!(told.err(), expected, "version {version}");
    }
    assert_eq!(number(db.pool(), "select sum(version)::bigint from postrider.event").await, 3);
}

#[tokio::test]
async fn an_option_that_is_none_and_a_type_that_is_replaced_by_nothing_are_refused_by_name() {
    let db = TestDb::fresh().await;
    for (kind, code, field) in [
        (json!({"name": "a.b", "descripton": ""}), "PR005", "descripton"),
        (json!({"name": "a.b", "exposure": "open"}), "PR005", "exposure"),
        (json!({"name": "a.b", "validation": "strict"}), "PR005", "validation"),
        (json!({"name": "a.b", "validation": "warn"}), "PR005", "validation"),
        (json!({"name": "a.b", "versions": {}}), "PR005", "versions"),
        (json!({"name": "a.b", "versions": [1]}), "PR005", "versions"),
        (json!({"name": "a.b", "deprecated": true}), "PR005", "deprecated"),
        (json!({"name": "a.b", "deprecated": {"note": "old"}}), "PR005", "deprecated"),
        (json!({"name": "a.b", "deprecated": {"on": "tomorrow"}}), "PR005", "deprecated"),
        (json!({"name": "a.b", "deprecated": {"on": "2026-01-31", "replaced_by": "a.c"}}), "PR004", "replaced_by"),
        (json!({"name": "a.b", "deprecated": {"on": "2026-01-31", "replaced_by": "a.b"}}), "PR004", "replaced_by"),
    ] {
        let told = declare(db.pool(), 0, kind.clone()).await.unwrap_err();
        assert_eq!((told.0.as_str(), told.1.as_str()), (code, field), "{kind}: {told:?}");
    }
}

#[tokio::test]
async fn what_rust_declares_is_what_the_catalogue_shows_and_schemas_keep_their_bytes() {
    let db = TestDb::fresh().await;
    let schema = Payload::parse("{\"type\":\"object\",  \"maxProperties\" : 1e1}").unwrap();
    let example = Payload::parse("{ \"n\": 1.50 }").unwrap();
    let paid = EventTypeSpec::new("order.paid")
        .description("an order was paid")
        .public()
        .subject("order/{id}")
        .version(TypeVersion::new(1, schema.clone(), example.clone()))
        .validation(Validation::Enforce);
    let payed = EventTypeSpec::new("order.payed")
        .deprecated(Deprecated::on("2026-01-31").note("a slip of the pen").replaced_by("order.paid"));
    let build = |generation, types: Vec<EventTypeSpec>| {
        Bus::builder(db.pool().clone()).app("shop").generation(generation).types(types).build()
    };
    let bus = build(1, vec![paid.clone(), payed.clone()]).await.unwrap();
    build(1, vec![paid.clone(), payed.clone()]).await.unwrap();
    for other in [
        paid.clone().description("something else"),
        paid.clone().subject("orders/{id}"),
        paid.clone().validation(Validation::Warn),
        paid.clone().deprecated(Deprecated::on("2026-01-31")),
    ] {
        let error = build(1, vec![other, payed.clone()]).await.unwrap_err();
        assert_eq!(error.code(), Some(postrider::Code::Conflict), "{error}");
    }
    let types = bus.types();
    let shown = types.list().await.unwrap();
    assert_eq!(shown.len(), 2);
    let view = &shown[0];
    assert_eq!((view.name.as_str(), view.description.as_str()), ("order.paid", "an order was paid"));
    assert_eq!((view.exposure, view.validation), (Exposure::Public, Validation::Enforce));
    assert_eq!((view.subject.as_deref(), view.version), (Some("order/{id}"), Some(1)));
    assert_eq!((view.declared_by.as_str(), view.generation, view.mismatches), ("shop", 1, 0));
    assert_eq!((shown[0].deprecated.as_ref(), shown[1].deprecated.as_ref()), (None, payed.deprecated.as_ref()));
    let version = types.version("order.paid", 1).await.unwrap().unwrap();
    assert_eq!(version, TypeVersion::new(1, schema, example));
    assert_eq!(types.version("order.paid", 2).await.unwrap(), None);
    // what can be told without the database is told at once, all of it
    let nothing = EventTypeSpec::new("a.b").validation(Validation::Warn);
    let twice = EventTypeSpec::new("a.c").version(version.clone()).version(version);
    let Err(Error::Declarations(refused)) = build(1, vec![nothing, twice]).await else { panic!("declared") };
    assert_eq!(refused.iter().map(|r| r.field.as_str()).collect::<Vec<_>>(), ["validation", "versions"]);
}

#[tokio::test]
async fn more_types_than_one_page_are_listed_each_once() {
    let db = TestDb::fresh().await;
    let types: Vec<Value> = (0..450).map(|n| json!({ "name": format!("a.n{n:03}") })).collect();
    declare_all(db.pool(), json!({ "types": types })).await.unwrap();
    let listed = postrider::Types::new(db.pool().clone()).list().await.unwrap();
    let expected: Vec<String> = (0..450).map(|n| format!("a.n{n:03}")).collect();
    assert_eq!(listed.into_iter().map(|view| view.name).collect::<Vec<_>>(), expected);
}

/// Two processes of one application that start at the same time, with a version that is new.
#[tokio::test]
async fn processes_that_declare_a_new_version_at_the_same_time_agree() {
    let db = TestDb::fresh().await;
    let pool = PgPoolOptions::new().max_connections(8).acquire_timeout(Duration::from_mins(1));
    let pool = pool.connect(db.url()).await.unwrap();
    let tasks: Vec<_> = (0..8)
        .map(|_| {
            let pool = pool.clone();
            tokio::spawn(async move { declare(&pool, 1, order("enforce")).await })
        })
        .collect();
    for task in tasks {
        task.await.unwrap().unwrap();
    }
    assert_eq!(number(db.pool(), "select count(*) from postrider.type_version").await, 1);
}
