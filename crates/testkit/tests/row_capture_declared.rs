//! Row capture: T5, what is refused, whose rights it runs with, and what drift is found.
#![expect(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a test asks the database itself, and a failed helper is a failed test"
)]

use std::time::{Duration, Instant};

use postrider::inspect::{DriftSeverity, Severity, alerts, check_watches, watches};
use postrider_testkit::TestDb;
use postrider_testkit::capture::{attempt, connect, short, sql, told, value};
use sqlx::PgConnection;

const ITEM: &str = "create schema shop; create table shop.item (id int primary key, price numeric, note text)";

/// What the catalogue holds of the triggers and functions of watches, and when it was written.
const CATALOGUE: &str = "select coalesce(string_agg(x, ' ' order by x), '') from (
    select tgname || xmin as x from pg_trigger where tgname like 'postrider%' union all
    select proname || xmin from pg_proc where proname like 'postrider%') y";

async fn database(text: &str) -> (TestDb, PgConnection) {
    let db = TestDb::fresh().await;
    let mut c = connect(&db).await;
    sql(&mut c, text).await;
    (db, c)
}

/// A role of this test: roles belong to the whole server.
fn role(db: &TestDb, name: &str) -> String {
    format!("{name}_{}", db.name())
}

/// Makes roles, runs a part of the test as them, and takes them away again.
async fn without_roles(db: &TestDb, c: &mut PgConnection, names: &[&str]) {
    sql(c, "reset role; reset session authorization").await;
    for name in names {
        let name = role(db, name);
        sql(c, &format!("drop owned by {name} cascade; drop role {name}")).await;
    }
}

async fn problems(db: &TestDb) -> Vec<String> {
    check_watches(db.pool()).await.unwrap().into_iter().map(|drift| drift.problem).collect()
}

#[tokio::test]
async fn t5_declaring_the_same_again_makes_nothing_and_waits_for_nobody() {
    let (db, mut c) = database(ITEM).await;
    let declare = "postrider.watch('shop.item', columns => '{price}', condition => 'new.id > 0', app => 'a')";
    assert_eq!(value(&mut c, declare).await, "true");
    let made = value(&mut c, CATALOGUE).await;
    assert_eq!(made.matches("postrider_watch_shop_item_").count(), 5, "four triggers and a function: {made}");
    // a writer that is open, somebody who rewrites the table, and somebody who declares
    let (mut writer, mut declarer) = (connect(&db).await, connect(&db).await);
    sql(&mut writer, "begin; insert into shop.item values (1)").await;
    sql(&mut declarer, "begin; select postrider.declare('{\"app\": \"b\", \"types\": [{\"name\": \"x.y\"}]}')").await;
    sql(&mut c, "begin").await;
    assert_eq!(value(&mut c, declare).await, "false");
    let locks = "select count(*) from pg_locks where pid = pg_backend_pid() and (relation = 'shop.item'::regclass or locktype = 'advisory')";
    assert_eq!(value(&mut c, locks).await, "0");
    // nor does one who declares the same in a transaction that stays open
    let mut another = connect(&db).await;
    assert_eq!(value(&mut another, declare).await, "false");
    sql(&mut c, "commit").await;
    assert_eq!(value(&mut c, CATALOGUE).await, made);
}

#[tokio::test]
async fn t5_declaring_gives_way_to_a_writer_that_stays_and_names_it() {
    let (db, mut c) = database(ITEM).await;
    let mut writer = connect(&db).await;
    sql(&mut writer, "begin; insert into shop.item values (1)").await;
    let pid = value(&mut writer, "pg_backend_pid()").await;
    let mut other = connect(&db).await;
    let declared = tokio::spawn(async move {
        let began = Instant::now();
        let text = "select postrider.watch('shop.item', patience_ms => 1500)";
        let error = sqlx::raw_sql(text).execute(&mut c).await.unwrap_err();
        (error, began.elapsed(), c)
    });
    // meanwhile nobody queues behind it for longer than it waits itself: a tenth of a second, and the machine's own slowness
    let mut longest = Duration::ZERO;
    for id in 10..40 {
        let began = Instant::now();
        sql(&mut other, &format!("insert into shop.item values ({id})")).await;
        longest = longest.max(began.elapsed());
    }
    let (error, waited, mut c) = declared.await.unwrap();
    let error = error.as_database_error().unwrap();
    assert_eq!(error.code().unwrap(), "55P03");
    let hint = error.downcast_ref::<sqlx::postgres::PgDatabaseError>().hint().unwrap();
    assert!(hint.contains(&pid), "{hint} names {pid}");
    assert!(waited < Duration::from_secs(30), "{waited:?}");
    assert!(longest < Duration::from_millis(1400), "{longest:?}: somebody waited as long as the declaration");
    assert_eq!(value(&mut c, CATALOGUE).await, "");
    sql(&mut writer, "commit").await;
    sql(&mut c, "select postrider.watch('shop.item')").await;
}

#[tokio::test]
async fn t5_processes_that_declare_at_once_make_it_once() {
    let (db, mut c) = database(ITEM).await;
    let mut tasks = Vec::new();
    for _ in 0..6 {
        let mut c = connect(&db).await;
        tasks.push(tokio::spawn(
            async move { value(&mut c, "postrider.watch('shop.item', patience_ms => 60000)").await },
        ));
    }
    let mut made = 0;
    for task in tasks {
        made += usize::from(task.await.unwrap() == "true");
    }
    assert_eq!(made, 1);
    sql(&mut c, "insert into shop.item values (1)").await;
    assert_eq!(short(&mut c).await, ["created shop.item/1"]);
}

#[tokio::test]
async fn t5_the_higher_generation_wins_and_equal_ones_must_agree() {
    let (_db, mut c) = database(ITEM).await;
    let declare = |columns: &str, generation: i32| {
        format!("select postrider.watch('shop.item', columns => '{columns}', generation => {generation})")
    };
    sql(&mut c, &declare("{price}", 1)).await;
    let refused = attempt(&mut c, &declare("{note}", 1)).await.unwrap_err();
    assert_eq!(refused.0, "PR006", "{refused:?}");
    sql(&mut c, &declare("{note}", 2)).await;
    sql(&mut c, &declare("{price}", 1)).await;
    sql(&mut c, "insert into shop.item values (1); update shop.item set price = 1; update shop.item set note = 'x'")
        .await;
    assert_eq!(short(&mut c).await, ["created shop.item/1", "updated shop.item/1"], "an older process changes nothing");
    let refused = attempt(&mut c, "create table other (id int primary key); select postrider.watch('other', name => 'shop.item', generation => 3)").await;
    assert_eq!(refused.unwrap_err().0, "PR006", "a name belongs to one table");
}

#[tokio::test]
async fn t5_each_drift_is_found_and_declaring_again_mends_what_can_be_mended() {
    let function = "(select oid::regprocedure from pg_proc where proname like 'postrider\\_watch%')";
    let trigger = "(select tgname from pg_trigger where tgname like 'postrider\\_watch%update')";
    let run = |text: &str| format!("do $do$ begin execute format($f${text}$f$, {function}, {trigger}); end $do$");
    for (drift, expected, mended) in [
        (run("drop trigger %2$s on shop.item"), vec!["trigger"], true),
        (run("alter table shop.item disable trigger %2$s"), vec!["trigger"], true),
        (run("alter table shop.item enable replica trigger %2$s"), vec!["trigger"], true),
        (
            run("create or replace function %1$s returns trigger language plpgsql as 'begin return null; end'"),
            vec!["function"],
            true,
        ),
        (run("alter function %1$s reset search_path"), vec!["function"], true),
        (run("alter function %1$s security invoker"), vec!["function"], true),
        (run("grant execute on function %1$s to public"), vec!["function"], true),
        (run("drop function %1$s cascade"), vec!["function", "trigger", "trigger", "trigger", "trigger"], true),
        (
            "alter table shop.item drop constraint item_pkey; alter table shop.item add primary key (id, price)".into(),
            vec!["key"],
            true,
        ),
        ("alter table shop.item drop constraint item_pkey".into(), vec!["key"], false),
        ("alter table shop.item rename note to remark".into(), vec!["column"], false),
        ("alter table shop.item drop note".into(), vec!["column"], false),
        ("alter table shop.item rename to thing".into(), vec!["renamed"], false),
        ("drop table shop.item".into(), vec!["gone"], false),
        ("alter table shop.item set unlogged".into(), vec!["unlogged"], false),
        (
            "create table parent (id int not null, price numeric, note text) partition by range (id);
                alter table parent attach partition shop.item for values from (0) to (9)"
                .into(),
            vec!["attached"],
            false,
        ),
        ("delete from postrider.event_type where name = 'shop.item.deleted'".into(), vec!["type"], true),
        ("delete from postrider.watch".into(), vec!["orphan", "orphan", "orphan", "orphan"], true),
    ] {
        let (db, mut c) = database(ITEM).await;
        let declare = "select postrider.watch('shop.item', columns => '{price,note}')";
        sql(&mut c, declare).await;
        assert_eq!(problems(&db).await, Vec::<String>::new());
        sql(&mut c, &drift).await;
        assert_eq!(problems(&db).await, expected, "{drift}");
        if mended {
            sql(&mut c, declare).await;
            assert_eq!(problems(&db).await, Vec::<String>::new(), "{drift}");
            sql(&mut c, "insert into shop.item values (1, 1); update shop.item set note = 'x'; delete from shop.item; truncate shop.item").await;
            assert_eq!(told(&mut c).await.len(), 4, "{drift}");
        }
    }
}

#[tokio::test]
async fn t5_a_renamed_table_stays_watched_and_is_declared_by_its_new_name() {
    let (db, mut c) = database(ITEM).await;
    sql(&mut c, "select postrider.watch('shop.item', name => 'items'); alter table shop.item rename to thing; insert into shop.thing values (1)").await;
    assert_eq!(short(&mut c).await, ["created shop.item/1"]);
    assert_eq!(check_watches(db.pool()).await.unwrap()[0].severity, DriftSeverity::Warning);
    let refused = attempt(&mut c, "select postrider.watch('shop.thing', name => 'items')").await;
    assert_eq!(
        refused,
        Err(("PR006".into(), "watch: 'items' is already declared in another way with generation 0".into()))
    );
    sql(
        &mut c,
        "select postrider.watch('shop.thing', name => 'items', generation => 1); insert into shop.thing values (2)",
    )
    .await;
    assert_eq!(short(&mut c).await, ["created shop.thing/2"]);
    assert_eq!(problems(&db).await, Vec::<String>::new());
}

#[tokio::test]
async fn t5_what_is_wrong_with_a_watch_is_an_alert() {
    let (db, mut c) = database(ITEM).await;
    let alerts = async || {
        let all = alerts(db.pool()).await.unwrap().into_iter().filter(|alert| alert.name == "watch");
        all.map(|alert| (alert.severity, alert.subject)).collect::<Vec<_>>()
    };
    sql(&mut c, "select postrider.watch('shop.item', name => 'items')").await;
    assert_eq!(alerts().await, []);
    sql(&mut c, "alter table shop.item disable trigger user").await;
    let found = alerts().await;
    assert!(
        !found.is_empty() && found.iter().all(|alert| *alert == (Severity::Critical, "watch items".to_owned())),
        "{found:?}"
    );
    sql(&mut c, "alter table shop.item enable trigger user").await;
    assert_eq!(alerts().await, []);
}

#[tokio::test]
async fn t5_the_holes_are_reported_where_somebody_can_take_them() {
    let table = "create table log (id int primary key) partition by range (id); create table log_1 partition of log for values from (0) to (9)";
    let (db, mut c) = database(table).await;
    let writer = role(&db, "writer");
    sql(&mut c, &format!("create role {writer}; select postrider.watch('log'); grant insert on log to {writer}")).await;
    assert_eq!(problems(&db).await, Vec::<String>::new(), "who writes through the parent is seen");
    sql(&mut c, &format!("grant insert on log_1 to {writer}; alter role {writer} in database {} set session_replication_role = 'replica';
                          create publication p for table log; create subscription s connection 'dbname=nowhere' publication p with (connect = false);
                          insert into pg_subscription_rel values ((select oid from pg_subscription), 'log_1'::regclass, 'i', null)", db.name())).await;
    let found = check_watches(db.pool()).await.unwrap();
    assert_eq!(
        found.iter().map(|drift| drift.problem.as_str()).collect::<Vec<_>>(),
        ["partition", "logical", "replica"]
    );
    assert!(found.iter().all(|drift| drift.severity == DriftSeverity::Hole));
    assert!(found[0].says.contains("log_1") && found[0].says.contains(&writer), "{}", found[0].says);
    sql(&mut c, "delete from pg_subscription_rel; alter subscription s set (slot_name = none); drop subscription s")
        .await;
    let inherited = format!(
        "select postrider.unwatch('log'); alter role {writer} in database {} reset session_replication_role;
         create table base (id int primary key); create table child () inherits (base); select postrider.watch('base');
         grant update on child to {writer}",
        db.name()
    );
    sql(&mut c, &inherited).await;
    assert_eq!(problems(&db).await, ["partition"], "a child is one, too");
    without_roles(&db, &mut c, &["writer"]).await;
}

#[tokio::test]
async fn t5_unwatch_leaves_nothing_behind() {
    let (db, mut c) = database(ITEM).await;
    sql(&mut c, "select postrider.watch('shop.item'); select postrider.watch('shop.item', name => 'other')").await;
    assert_eq!(value(&mut c, "postrider.unwatch('shop.item')").await, "true");
    sql(&mut c, "insert into shop.item values (1)").await;
    assert_eq!(told(&mut c).await.len(), 1, "the other one stays");
    assert_eq!(value(&mut c, "postrider.unwatch('other')").await, "true");
    assert_eq!(value(&mut c, "postrider.unwatch('other')").await, "false");
    assert_eq!(value(&mut c, CATALOGUE).await, "");
    sql(&mut c, "select postrider.watch('shop.item'); drop table shop.item; select postrider.unwatch('shop.item')")
        .await;
    assert_eq!(value(&mut c, CATALOGUE).await, "");
    assert!(watches(db.pool()).await.unwrap().is_empty());
}

#[tokio::test]
async fn t5_what_cannot_be_watched_is_refused_with_the_field_and_leaves_nothing() {
    let tables = "create schema shop; create table shop.item (id int primary key, price numeric, note text);
        create table keyless (id int); create view v as select 1 as id; create table log (id int primary key) partition by range (id);
        create table log_1 partition of log for values from (0) to (9); create table unready (id int unique not null)";
    let (_db, mut c) = database(tables).await;
    for (arguments, code, says) in [
        ("null", "PR005", "relation: there is no such table"),
        ("'keyless'", "PR005", "relation: public.keyless has no primary key"),
        ("'unready'", "PR005", "relation: public.unready has no primary key"),
        ("'v'", "PR005", "relation: public.v is not a table that lasts"),
        ("'log_1'", "PR005", "relation: public.log_1 is a partition"),
        ("'postrider.event'", "PR005", "relation: postrider.event belongs to Postrider"),
        ("'pg_class'", "PR005", "relation: pg_class is not a table that lasts"),
        ("'shop.item', name => 'A b'", "PR001", "name: 'A b' is not a name"),
        ("'shop.item', columns => '{nope}'", "PR005", "columns: shop.item has no column nope"),
        ("'shop.item', columns => '{}'", "PR005", "columns: shop.item has no column"),
        ("'shop.item', columns => '{ctid}'", "PR005", "columns: shop.item has no column ctid"),
        ("'shop.item', operations => '{insert,upsert}'", "PR005", "operations: 'upsert' is not an operation"),
        ("'shop.item', operations => '{}'", "PR005", "operations: "),
        (
            "'shop.item', types => '{\"insert\": \"never.declared\"}'",
            "PR004",
            "type: 'never.declared' was never declared",
        ),
        ("'shop.item', types => '{\"insert\": \"postrider.x\"}'", "PR004", "type: 'postrider.x' was never declared"),
        ("'shop.item', types => '{\"upsert\": \"a.b\"}'", "PR005", "types: 'upsert' is not an operation"),
        ("'shop.item', condition => 'new.price'", "PR005", "condition: it is numeric, not boolean"),
        ("'shop.item', condition => 'new.pric > 1'", "PR005", "condition: column new.pric does not exist"),
        ("'shop.item', condition => 'price > 1'", "PR005", "condition: column reference \"price\" is ambiguous"),
        ("'shop.item', condition => ' '", "PR005", "condition: it is not an SQL expression"),
        ("'shop.item', condition => 'true, false'", "PR005", "condition: "),
        ("'shop.item', condition => 'true;'", "PR005", "condition: "),
        ("'shop.item', condition => 'true /*'", "PR005", "condition: "),
        ("'shop.item', condition => '''open'", "PR005", "condition: "),
        ("'shop.item', condition => 'true) or (true'", "PR005", "condition: "),
        ("'shop.item', condition => 'true] or [true'", "PR005", "condition: "),
        ("'shop.item', condition => 'true); drop table shop.item; select (true'", "PR005", "condition: "),
        ("'shop.item', condition => E'true)\\n;drop table shop.item;\\n--'", "PR005", "condition: "),
        ("'shop.item', condition => 'true as x); drop table shop.item; perform cast(1'", "PR005", "condition: "),
        ("'shop.item', condition => '$a$ '", "PR005", "condition: "),
        ("'shop.item', condition => 'exists (select 1)'", "PR005", "condition: it is to look at one row only"),
        ("'shop.item', condition => 'new.id in (select 1)'", "PR005", "condition: it is to look at one row only"),
        ("'shop.item', subject => 'max(new.note)'", "PR005", "subject: it is to look at one row only"),
        ("'shop.item', subject => 'row_number() over ()'", "PR005", "subject: it is to look at one row only"),
        ("'shop.item', subject => 'generate_series(1, 2)'", "PR005", "subject: it is to look at one row only"),
        ("'shop.item', data => '''x'''", "PR005", "data: it is text, not json or jsonb"),
        ("'shop.item', owner => 'new.ctid'", "PR005", "owner: column new.ctid does not exist"),
        ("'shop.item', condition => 'tg_op = ''INSERT'''", "PR005", "condition: column \"tg_op\" does not exist"),
        ("'shop.item', condition => 'is_big(new)'", "PR005", "condition: function is_big(record) does not exist"),
    ] {
        let (found, message) =
            attempt(&mut c, &format!("select postrider.watch({arguments})")).await.expect_err(arguments);
        assert_eq!(found, code, "{arguments}: {message}");
        assert!(message.starts_with(says), "{arguments}: {message}");
    }
    assert_eq!(value(&mut c, CATALOGUE).await, "");
    assert_eq!(value(&mut c, "select count(*) from shop.item").await, "0", "the table is there");
    assert_eq!(value(&mut c, "select count(*) from pg_class where relname like 'postrider_watch%'").await, "0");
    sql(&mut c, "begin isolation level repeatable read").await;
    assert_eq!(attempt(&mut c, "select postrider.watch('shop.item')").await.unwrap_err().0, "PR010");
}
