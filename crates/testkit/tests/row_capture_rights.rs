//! Row capture: whose rights it runs with (S9, S10), and how it comes to a handler from a declaration in Rust.

use std::time::Duration;

use postrider::inspect::{check_watches, watches};
use postrider::{Bus, Code, Error, Operation, Subscription, Watch};
use postrider_testkit::TestDb;
use postrider_testkit::capture::{attempt, connect, short, sql, told, value};
use postrider_testkit::conformance::telling;
use sqlx::PgConnection;

/// What a role needs that declares watches of its own tables.
const DECLARES: &str =
    "grant usage on schema postrider to {role}; grant execute on function postrider.watch, postrider.plan_watch,
    postrider.try_expressions, postrider.note_watch, postrider.unwatch, postrider.plan_unwatch, postrider.forget_watch,
    postrider.record_rows to {role}";

struct Roles<'a> {
    db: &'a TestDb,
    c: PgConnection,
}

impl<'a> Roles<'a> {
    /// Roles belong to the whole server, so each test has its own.
    async fn make(db: &'a TestDb, names: &[&str]) -> Self {
        let mut roles = Self { db, c: connect(db).await };
        for name in names {
            let text = format!("create role {}", roles.name(name));
            sql(&mut roles.c, &text).await;
        }
        roles
    }

    fn name(&self, name: &str) -> String {
        format!("{name}_{}", self.db.name())
    }

    /// Replaces {name} by the role of that name.
    fn text(&self, text: &str) -> String {
        let mut text = text.to_owned();
        for name in ["owner", "writer", "thief", "member"] {
            text = text.replace(&format!("{{{name}}}"), &self.name(name));
        }
        text
    }

    async fn run(&mut self, text: &str) {
        let text = self.text(text);
        sql(&mut self.c, &text).await;
    }

    /// Runs as a role; what is refused.
    async fn run_as(&mut self, role: &str, text: &str) -> Result<(), (String, String)> {
        let text = self.text(text);
        let role = self.name(role);
        sql(&mut self.c, &format!("set session authorization {role}")).await;
        let result = attempt(&mut self.c, &text).await;
        sql(&mut self.c, "reset session authorization").await;
        result
    }

    async fn end(mut self, names: &[&str]) {
        for name in names {
            let name = self.name(name);
            sql(&mut self.c, &format!("drop owned by {name} cascade; drop role {name}")).await;
        }
    }
}

#[tokio::test]
async fn s9_who_writes_needs_no_right_on_postrider_and_the_owner_only_those_that_the_guide_names() {
    let db = TestDb::fresh().await;
    let mut r = Roles::make(&db, &["owner", "writer"]).await;
    r.run("create schema shop authorization {owner}; grant usage on schema shop to {writer}").await;
    r.run_as("owner", "create table shop.item (id int primary key, price int); grant all on shop.item to {writer}")
        .await
        .unwrap();
    r.run(&DECLARES.replace("{role}", "{owner}").replace("postrider.record_rows", "postrider.unwatch")).await;
    let refused = r.run_as("owner", "select postrider.watch('shop.item')").await.unwrap_err();
    assert!(refused.0 == "PR005" && refused.1.contains("may not record events"), "{refused:?}");
    r.run(&DECLARES.replace("{role}", "{owner}")).await;
    r.run_as("owner", "select postrider.watch('shop.item')").await.unwrap();
    r.run_as("writer", "insert into shop.item values (1, 1); update shop.item set price = 2; truncate shop.item")
        .await
        .unwrap();
    assert_eq!(short(&mut r.c).await, ["created shop.item/1", "updated shop.item/1", "truncated shop.item"]);
    for text in ["select * from postrider.watch", "select * from postrider.event", "select postrider.watches()"] {
        assert_eq!(r.run_as("owner", text).await.unwrap_err().0, "42501", "{text}");
    }
    // a right that is taken away refuses the writer, and is found
    r.run("revoke execute on function postrider.record_rows from {owner}").await;
    assert_eq!(r.run_as("writer", "insert into shop.item values (2, 1)").await.unwrap_err().0, "42501");
    assert_eq!(check_watches(db.pool()).await.unwrap()[0].problem, "right");
    r.end(&["owner", "writer"]).await;
}

#[tokio::test]
async fn s9_nobody_but_the_owner_declares_changes_or_ends_a_watch() {
    let db = TestDb::fresh().await;
    let mut r = Roles::make(&db, &["owner", "thief", "member"]).await;
    r.run("grant {owner} to {member}; create schema shop authorization {owner}; grant usage on schema shop to {thief}")
        .await;
    for role in ["owner", "thief", "member"] {
        r.run(&DECLARES.replace("{role}", &format!("{{{role}}}"))).await;
    }
    r.run_as("owner", "create table shop.item (id int primary key, price int); grant all on shop.item to {thief}")
        .await
        .unwrap();
    let theft = "select postrider.watch('shop.item', condition => 'pg_catalog.pg_sleep(0) is null')";
    assert_eq!(r.run_as("thief", theft).await.unwrap_err().0, "PR005");
    r.run_as("member", "select postrider.watch('shop.item')").await.unwrap();
    let owner =
        value(&mut r.c, "select distinct proowner::regrole from pg_proc where proname like 'postrider\\_watch\\_%'")
            .await;
    assert_eq!(owner, r.name("owner"), "whoever declares, it runs as the owner");
    for text in [
        "select postrider.watch('shop.item')",
        "select postrider.watch('shop.item', generation => 9)",
        "select postrider.note_watch('shop.item'::regclass, '{}')",
        "select postrider.note_watch('shop.item'::regclass, '{\"generation\": 9}')",
        "select postrider.note_watch('shop.item'::regclass, '{\"name\": \"other\"}')",
        "select postrider.unwatch('shop.item')",
        "select postrider.forget_watch('shop.item')",
    ] {
        assert_eq!(r.run_as("thief", text).await.unwrap_err().0, "PR005", "{text}");
    }
    let kept = value(&mut r.c, "select string_agg(name || generation, ' ') from postrider.watch").await;
    assert_eq!(kept, "shop.item0");
    r.run_as("owner", "select postrider.unwatch('shop.item')").await.unwrap();
    r.end(&["owner", "thief", "member"]).await;
}

#[tokio::test]
async fn s9_an_expression_runs_as_the_owner_of_the_table_also_when_a_superuser_declares_it_and_writes() {
    let db = TestDb::fresh().await;
    let mut r = Roles::make(&db, &["owner"]).await;
    r.run("create schema shop authorization {owner}").await;
    r.run(&DECLARES.replace("{role}", "{owner}")).await;
    r.run_as(
        "owner",
        "create table shop.item (id int primary key, note text);
        create function shop.who() returns text language sql as 'select current_user::text'",
    )
    .await
    .unwrap();
    // planning computes what is immutable: that is the owner's, too
    r.run_as(
        "owner",
        "create function shop.once() returns text language plpgsql immutable as
        $$ begin if current_user <> '{owner}' then raise 'as %', current_user; end if; return 'x'; end $$",
    )
    .await
    .unwrap();
    r.run(
        "select postrider.watch('shop.item', subject => 'shop.who()', condition => 'shop.once() = ''x''');
           insert into shop.item values (1)",
    )
    .await;
    assert_eq!(told(&mut r.c).await[0].1, r.name("owner"), "not who writes, and not who declared");
    let stolen =
        "select postrider.watch('shop.item', name => 'b', condition => 'pg_catalog.pg_read_file(new.note) is null')";
    let refused = attempt(&mut r.c, stolen).await.unwrap_err();
    assert!(refused.1.contains("permission denied"), "{refused:?}: a superuser's right is not lent");
    r.end(&["owner"]).await;
}

#[tokio::test]
async fn s9_nobody_borrows_the_function_of_a_watch_or_leads_it_astray() {
    let db = TestDb::fresh().await;
    let mut r = Roles::make(&db, &["owner", "thief"]).await;
    r.run("create schema shop authorization {owner}; grant usage on schema shop to {thief}; create schema den authorization {thief}").await;
    r.run(&DECLARES.replace("{role}", "{owner}")).await;
    r.run_as("owner", r"create table shop.item (id int primary key, note text); grant all on shop.item to {thief};
        select postrider.watch('shop.item', name => 'item', condition => $x$new.note <> 'a\' and length(new.note) > 0$x$)").await.unwrap();
    let function =
        value(&mut r.c, "select oid::regprocedure from pg_proc where proname like 'postrider\\_watch\\_%'").await;
    let borrowed = format!("create table den.t (id int primary key, note text);
        create trigger t after insert on den.t referencing new table as new_rows for each statement execute function {function}");
    assert_eq!(r.run_as("thief", &borrowed).await.unwrap_err().0, "42501");
    // what a writer can set: a path with functions and operators of its own, tables of those names, how quotes are read
    let astray = r"create function den.length(text) returns int language plpgsql as $$ begin raise 'as %', current_user; end $$;
        create temp table new_rows (id int, note text); create function pg_temp.length(text) returns int language sql as 'select 1/0';
        set search_path = pg_temp, den, pg_catalog; set standard_conforming_strings = off; set transform_null_equals = on; set row_security = off;
        insert into shop.item values (1, 'b')";
    r.run_as("thief", astray).await.unwrap();
    assert_eq!(short(&mut r.c).await, ["created shop.item/1"]);
    // a function that lies in wait under the name that a watch will have
    r.run("drop table if exists pg_temp.new_rows; grant create on schema shop to {thief}").await;
    let label = value(&mut r.c, "postrider.watch_label('next')").await;
    r.run_as(
        "thief",
        &format!(
            "create function shop.{label}() returns trigger language plpgsql as 'begin return null; end';
        grant execute on function shop.{label}() to {{thief}}"
        ),
    )
    .await
    .unwrap();
    let _ = r
        .run_as("owner", "select postrider.watch('shop.item', name => 'next')")
        .await
        .expect_err("it belongs to somebody else");
    r.run("select postrider.watch('shop.item', name => 'next')").await;
    let rights = value(
        &mut r.c,
        &format!("select proowner::regrole || ' ' || proacl::text from pg_proc where proname = '{label}'"),
    )
    .await;
    let owner = r.name("owner");
    assert_eq!(rights, format!("{owner} {{{owner}=X/{owner}}}"));
    r.end(&["owner", "thief"]).await;
}

#[tokio::test]
async fn t1_a_watch_is_declared_with_the_rest_and_its_events_come_to_a_handler() {
    let db = TestDb::fresh().await;
    let mut c = connect(&db).await;
    sql(&mut c, r#"create schema shop; create table shop."Order" (id int primary key, total int, note text)"#).await;
    let (mouth, mut ear) = tokio::sync::mpsc::unbounded_channel();
    let watch = Watch::table(r#"shop."Order""#)
        .name("orders")
        .columns(["total"])
        .operations([Operation::Insert, Operation::Update])
        .event(Operation::Update, "order.changed")
        .when("new.total > 1")
        .data("json_build_object('total', new.total)")
        .owner("'north'");
    let build = || {
        let kind = telling("t.tell", mouth.clone());
        let handler = kind.handled_by().cloned().unwrap();
        Bus::builder(db.pool().clone())
            .app("shop")
            .types(["order.changed"])
            .subscriptions([Subscription::new("t.tell", ["shop.order.*", "order.*"]).handler(handler)])
            .watches([watch.clone()])
            .build()
    };
    let bus = build().await.unwrap();
    build().await.unwrap();
    let running = bus.start().unwrap();
    sql(&mut c, r#"insert into shop."Order" values (1, 1), (2, 2); update shop."Order" set total = 3"#).await;
    let mut subjects = Vec::new();
    for _ in 0..3 {
        let job = tokio::time::timeout(Duration::from_mins(1), ear.recv()).await.unwrap().unwrap();
        let event = job.event.unwrap();
        subjects.push(format!("{} {} {} {}", event.r#type, event.subject, event.owner, event.data.as_str()));
    }
    running.stop(Duration::from_mins(1)).await;
    subjects.sort();
    assert_eq!(
        subjects,
        [
            r#"order.changed shop.order/1 north {"total" : 3}"#,
            r#"order.changed shop.order/2 north {"total" : 3}"#,
            r#"shop.order.created shop.order/2 north {"total" : 2}"#
        ]
    );
    let listed = watches(db.pool()).await.unwrap();
    let types = [
        (Operation::Insert, "shop.order.created"),
        (Operation::Update, "order.changed"),
        (Operation::Delete, "shop.order.deleted"),
    ];
    let types = types.map(|(operation, name)| (operation, name.to_owned()));
    assert_eq!(listed[0].watch, Watch { types: types.into_iter().collect(), ..watch });
    assert_eq!((listed[0].key_columns.as_slice(), listed[0].declared_by.as_str()), (&["id".to_owned()][..], "shop"));
    assert_eq!(check_watches(db.pool()).await.unwrap(), []);
}

#[tokio::test]
async fn t5_a_declaration_that_is_refused_says_of_which_table_and_declares_nothing() {
    let db = TestDb::fresh().await;
    let mut c = connect(&db).await;
    sql(&mut c, "create table a (id int primary key); create table b (id int)").await;
    let builder = || Bus::builder(db.pool().clone()).types(["x.y"]);
    let Err(Error::Refused(refused)) = builder().watches([Watch::table("a"), Watch::table("b")]).build().await else {
        panic!("it was declared")
    };
    assert_eq!((refused.code, refused.field.as_str()), (Code::Option, "relation"));
    assert!(refused.message.starts_with("watch of b: "), "{refused}");
    assert_eq!(value(&mut c, "select count(*) from postrider.event_type").await, "0");
    let wrong = [
        Watch::table("a").name("A"),
        Watch::table("a").operations([]),
        Watch::table("b").columns(Vec::<String>::new()),
        Watch::table("c").event(Operation::Insert, "postrider.x"),
    ];
    let Err(Error::Declarations(all)) = builder().watches(wrong).build().await else { panic!("it was declared") };
    let fields: Vec<&str> = all.iter().map(|refused| refused.field.as_str()).collect();
    assert_eq!(fields, ["name", "operations", "columns", "types"]);
}
