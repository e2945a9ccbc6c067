//! Row capture: T1–T4, T6, and what an event tells. What is expected is worked out by hand, or by comparing the table before and after.
#![expect(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a test asks the database itself, and a failed helper is a failed test"
)]

use std::collections::BTreeMap;

use postrider_testkit::TestDb;
use postrider_testkit::capture::{attempt, connect, short, sql, told, value};
use rand::{RngExt, SeedableRng, rngs::StdRng};
use sqlx::{PgConnection, Row as _};

const ORDER: &str = "create table \"order\" (id int primary key, status text, total numeric, note text)";

/// A database with a table that is watched.
async fn watched(table: &str, watch: &str) -> (TestDb, PgConnection) {
    let db = TestDb::fresh().await;
    let mut connection = connect(&db).await;
    sql(&mut connection, table).await;
    sql(&mut connection, watch).await;
    (db, connection)
}

#[tokio::test]
async fn t1_a_change_of_a_watched_column_is_one_event_and_what_changes_nothing_is_none() {
    let watch = r#"select postrider.watch('"order"', columns => '{status,total}')"#;
    let (_db, mut c) = watched(ORDER, watch).await;
    sql(&mut c, r#"insert into "order" values (1, 'new', 10.0, 'a')"#).await;
    let (r#type, subject, data) = told(&mut c).await.remove(0);
    assert_eq!((r#type.as_str(), subject.as_str()), ("order.created", "order/1"));
    assert_eq!(data, r#"{"new": {"id": 1, "total": 10.0, "status": "new"}}"#, "the key and what is watched");

    for (statement, expected) in [
        (r#"update "order" set status = 'paid'"#, 1),
        (r#"update "order" set status = status, total = total"#, 0),
        (r#"update "order" set note = 'b'"#, 0),
        (r#"update "order" set note = null, total = null"#, 1),
        (r#"update "order" set total = null"#, 0),
        (r#"update "order" set total = 'NaN'"#, 1),
        (r#"update "order" set total = 'NaN'"#, 0),
        (r#"update "order" set total = 1.5 where false"#, 0),
        (r#"delete from "order" where false"#, 0),
        (r#"insert into "order" select 2, 'x' where false"#, 0),
    ] {
        sql(&mut c, statement).await;
        assert_eq!(told(&mut c).await.len(), expected, "{statement}");
    }
    sql(&mut c, r#"update "order" set status = 'sent', note = 'c'"#).await;
    let expected =
        r#"{"new": {"id": 1, "total": "NaN", "status": "sent"}, "old": {"id": 1, "total": "NaN", "status": "paid"}}"#;
    assert_eq!(told(&mut c).await[0].2, expected);
}

#[tokio::test]
async fn t1_a_watch_without_columns_follows_the_table_through_its_changes() {
    let (_db, mut c) = watched(ORDER, r#"select postrider.watch('"order"')"#).await;
    sql(&mut c, r#"insert into "order" values (1, 'new')"#).await;
    sql(
        &mut c,
        r#"alter table "order" rename column note to remark; alter table "order" drop column total;
                   alter table "order" add column late text default 'x'"#,
    )
    .await;
    told(&mut c).await;
    sql(&mut c, r#"update "order" set late = 'y'; update "order" set remark = 'z'"#).await;
    let told = told(&mut c).await;
    assert_eq!(told.len(), 2);
    let expected = r#"{"new": {"id": 1, "late": "y", "remark": "z", "status": "new"}, "old": {"id": 1, "late": "y", "remark": null, "status": "new"}}"#;
    assert_eq!(told[1].2, expected);
}

#[tokio::test]
async fn t2_a_delete_carries_the_last_known_subject_and_a_changed_key_is_deleted_and_created() {
    let watch = r#"select postrider.watch('"order"', subject => $x$'note/' || coalesce(new.note, old.note)$x$)"#;
    let (_db, mut c) = watched(ORDER, watch).await;
    sql(&mut c, r#"insert into "order" values (1, 'new', 1, 'n1'), (2, 'new', 1, 'n2'), (3, 'new', 1, null)"#).await;
    assert_eq!(short(&mut c).await, ["created note/n1", "created note/n2", "created order/3"], "null: the key");
    sql(&mut c, r#"update "order" set note = 'n4' where id = 1; delete from "order" where id = 1"#).await;
    assert_eq!(short(&mut c).await, ["updated note/n4", "deleted note/n4"]);
    sql(&mut c, r#"update "order" set id = 7, note = 'n7' where id = 2"#).await;
    assert_eq!(short(&mut c).await, ["deleted note/n2", "created note/n7"]);
}

#[tokio::test]
async fn t2_keys_that_move_onto_each_other_are_told_by_what_became_of_each() {
    let table = "create table t (id int primary key deferrable, v text)";
    let (_db, mut c) = watched(table, "select postrider.watch('t')").await;
    sql(&mut c, "insert into t values (1, 'a'), (2, 'b')").await;
    told(&mut c).await;
    sql(&mut c, "update t set id = id + 1").await;
    let mut shifted = short(&mut c).await;
    shifted.sort();
    assert_eq!(shifted, ["created t/3", "deleted t/1", "updated t/2"]);
    sql(&mut c, "update t set id = 5 - id").await;
    let swapped = told(&mut c).await;
    assert_eq!(swapped.len(), 2, "{swapped:?}");
    assert!(swapped.contains(&(
        "t.updated".into(),
        "t/2".into(),
        r#"{"new": {"v": "b", "id": 2}, "old": {"v": "a", "id": 2}}"#.into()
    )));
}

#[tokio::test]
async fn t3_each_kind_of_statement_tells_each_row_that_it_changed() {
    let (db, mut c) = watched(ORDER, r#"select postrider.watch('"order"')"#).await;
    for (statement, expected) in [
        (
            r#"insert into "order" select i, 'new' from generate_series(3, 1, -1) i order by i desc"#,
            vec!["created order/3", "created order/2", "created order/1"],
        ),
        (
            r#"insert into "order" values (3, 'a'), (4, 'a') on conflict (id) do update set status = excluded.status"#,
            vec!["created order/4", "updated order/3"],
        ),
        (r#"insert into "order" values (3, 'b'), (5, 'b') on conflict do nothing"#, vec!["created order/5"]),
        (r#"insert into "order" values (3, 'a') on conflict (id) do update set status = 'a'"#, vec![]),
        (
            r#"with gone as (delete from "order" where id = 5 returning *) insert into "order" select id + 1, status from gone"#,
            vec!["created order/6", "deleted order/5"],
        ),
        (
            r#"with a as (insert into "order" values (7, 'x')) insert into "order" values (8, 'x')"#,
            vec!["created order/7", "created order/8"],
        ),
        (r#"delete from "order" where id > 5"#, vec!["deleted order/6", "deleted order/7", "deleted order/8"]),
    ] {
        sql(&mut c, statement).await;
        let mut found = short(&mut c).await;
        // which of a statement's operations comes first is the server's choice
        if !statement.contains("generate_series") {
            found.sort();
        }
        assert_eq!(found, expected, "{statement}");
    }
    let mut copy = c.copy_in_raw(r#"copy "order" (id, status) from stdin"#).await.unwrap();
    copy.send("20\tcopied\n10\tcopied\n".as_bytes()).await.unwrap();
    copy.finish().await.unwrap();
    assert_eq!(short(&mut c).await, ["created order/20", "created order/10"]);
    let version: i32 = value(&mut c, "current_setting('server_version_num')").await.parse().unwrap();
    if version >= 150_000 {
        let merge = r#"merge into "order" o using (values (1, 'm'), (30, 'm'), (10, 'gone')) s (id, status) on o.id = s.id
            when matched and s.status = 'gone' then delete when matched then update set status = s.status
            when not matched then insert (id, status) values (s.id, s.status)"#;
        sql(&mut c, merge).await;
        let mut found = short(&mut c).await;
        found.sort();
        assert_eq!(found, ["created order/30", "deleted order/10", "updated order/1"]);
    }
    drop(db);
}

#[tokio::test]
async fn t3_foreign_keys_and_triggers_of_the_table_are_told_as_well() {
    let table = "create table parent (id int primary key); insert into parent values (1), (2);
        create table child (id int primary key, parent int references parent on delete cascade on update cascade);
        insert into child values (10, 1), (11, 1), (12, 2);
        create function upper_only() returns trigger language plpgsql as $$ begin
            if new.id < 0 then return null; end if; new.parent := coalesce(new.parent, 2); return new; end $$;
        create trigger first before insert on child for each row execute function upper_only()";
    let (_db, mut c) = watched(table, "select postrider.watch('child')").await;
    sql(&mut c, "update parent set id = 3 where id = 1; delete from parent where id = 3").await;
    assert_eq!(short(&mut c).await, ["updated child/10", "updated child/11", "deleted child/10", "deleted child/11"]);
    sql(&mut c, "insert into child values (-1, 2), (20, null)").await;
    let told = told(&mut c).await;
    assert_eq!(told.len(), 1, "a row that a trigger kept away is none");
    assert_eq!(told[0].2, r#"{"new": {"id": 20, "parent": 2}}"#);
}

#[tokio::test]
async fn t4_truncate_is_one_event_also_by_a_cascade_and_only_if_it_is_committed() {
    let table = "create table parent (id int primary key); create table child (id int primary key, parent int references parent)";
    let (_db, mut c) = watched(table, "select postrider.watch('child')").await;
    sql(&mut c, "insert into parent values (1); insert into child select i, 1 from generate_series(1, 50) i").await;
    told(&mut c).await;
    sql(&mut c, "begin; truncate child; rollback").await;
    sql(&mut c, "truncate parent cascade").await;
    assert_eq!(told(&mut c).await, [("child.truncated".into(), "child".into(), r#"{"table": "public.child"}"#.into())]);
    sql(&mut c, "truncate child").await;
    assert_eq!(short(&mut c).await, ["truncated child"], "an empty one too: nobody looked");
}

#[tokio::test]
async fn t6_a_savepoint_that_is_rolled_back_takes_its_events_along() {
    let (_db, mut c) = watched(ORDER, r#"select postrider.watch('"order"')"#).await;
    sql(&mut c, r#"begin; insert into "order" values (1); savepoint a; insert into "order" values (2); update "order" set status = 'x';
                   rollback to a; insert into "order" values (3); commit;
                   begin; insert into "order" values (4); rollback"#).await;
    assert_eq!(short(&mut c).await, ["created order/1", "created order/3"]);
    // nor does it matter how the transaction reads, or in how many phases it commits
    sql(&mut c, r#"begin isolation level serializable; insert into "order" values (5); commit;"#).await;
    let prepared =
        r#"begin; set local postrider.wake = 'off'; insert into "order" values (6); prepare transaction 't6'"#;
    sql(&mut c, prepared).await;
    sql(&mut c, "commit prepared 't6'").await;
    assert_eq!(short(&mut c).await, ["created order/5", "created order/6"]);
}

#[tokio::test]
async fn t3_a_partitioned_table_is_watched_through_itself_and_a_row_that_moves_is_told_by_its_key() {
    let table = "create schema shop;
        create table shop.log (id int, day date, v text, primary key (id, day)) partition by range (day);
        create table shop.log_a partition of shop.log for values from ('2026-01-01') to ('2026-02-01');
        create table shop.log_b partition of shop.log for values from ('2026-02-01') to ('2026-03-01')";
    let (_db, mut c) = watched(table, "select postrider.watch('shop.log')").await;
    sql(&mut c, "insert into shop.log values (1, '2026-01-05', 'a'), (2, '2026-02-05', 'b')").await;
    assert_eq!(short(&mut c).await, ["created shop.log/1/2026-01-05", "created shop.log/2/2026-02-05"]);
    sql(&mut c, "update shop.log set day = '2026-02-07' where id = 1").await;
    assert_eq!(short(&mut c).await, ["deleted shop.log/1/2026-01-05", "created shop.log/1/2026-02-07"]);
    sql(&mut c, "create table shop.log_c partition of shop.log for values from ('2026-03-01') to ('2026-04-01');
                 insert into shop.log values (3, '2026-03-01', 'c'); update shop.log set v = v || '.'; truncate shop.log").await;
    let mut found = short(&mut c).await;
    found.sort();
    assert_eq!(
        found,
        [
            "created shop.log/3/2026-03-01",
            "truncated shop.log",
            "updated shop.log/1/2026-02-07",
            "updated shop.log/2/2026-02-05",
            "updated shop.log/3/2026-03-01"
        ]
    );
    // one whose columns stand in another order
    sql(
        &mut c,
        "create table shop.log_d (v text, gone int, day date, id int, primary key (id, day)); alter table shop.log_d drop gone;
         alter table shop.log attach partition shop.log_d for values from ('2026-04-01') to ('2026-05-01');
         insert into shop.log values (4, '2026-04-01', 'd'); update shop.log set v = 'e'",
    )
    .await;
    let told = told(&mut c).await;
    assert_eq!(told[0].2, r#"{"new": {"v": "d", "id": 4, "day": "2026-04-01"}}"#);
    let expected =
        r#"{"new": {"v": "e", "id": 4, "day": "2026-04-01"}, "old": {"v": "d", "id": 4, "day": "2026-04-01"}}"#;
    assert_eq!((told.len(), told[1].2.as_str()), (2, expected));
    // the hole that the guide names
    sql(&mut c, "insert into shop.log_a values (9, '2026-01-09', 'x')").await;
    assert_eq!(short(&mut c).await, Vec::<String>::new());
}

#[tokio::test]
async fn t3_what_a_transaction_works_for_is_the_cause_of_what_it_changes() {
    let (_db, mut c) = watched(ORDER, r#"select postrider.watch('"order"')"#).await;
    sql(&mut c, r#"insert into "order" values (1)"#).await;
    let cause = value(&mut c, "select id from postrider.event").await;
    let changes = format!(
        r#"begin; set local postrider.cause = '{cause}'; insert into "order" values (2), (3); insert into "order" values (4); commit;
           insert into "order" values (5)"#
    );
    sql(&mut c, &changes).await;
    let found = "select string_agg(concat_ws(' ', subject, depth, cause = (select min(id::text)::uuid from postrider.event)), ', ' order by seq)
        from postrider.event where seq > (select min(seq) from postrider.event)";
    assert_eq!(value(&mut c, found).await, "order/2 1 t, order/3 1 t, order/4 1 t, order/5 0");
}

#[tokio::test]
async fn t3_a_type_that_says_how_its_events_look_is_held_to_it() {
    let watch = r#"select postrider.declare('{"app": "s", "types": [{"name": "thing.made", "subject": "thing/{id}"}]}');
        select postrider.watch('thing', types => '{"insert": "thing.made"}', subject => 'new.s')"#;
    let (_db, mut c) = watched("create table thing (id int primary key, s text)", watch).await;
    sql(&mut c, "insert into thing values (1), (2); insert into thing values (3, 'thing/x')").await;
    assert_eq!(short(&mut c).await, ["made thing/1", "made thing/2", "made thing/x"]);
    for statement in ["insert into thing values (4, 'no')", "insert into thing values (5, null), (6, 'no')"] {
        assert_eq!(attempt(&mut c, statement).await.unwrap_err().0, "PR008", "{statement}");
    }
    assert_eq!(short(&mut c).await, Vec::<String>::new());
}

/// Every row of the table, by key.
async fn rows(c: &mut PgConnection) -> BTreeMap<i32, String> {
    let rows = sqlx::query("select id, row_to_json(t)::jsonb::text from t").fetch_all(c).await.unwrap();
    rows.iter().map(|row| (row.get(0), row.get(1))).collect()
}

/// What a statement must have told, by comparing what was there before and after it.
fn difference(before: &BTreeMap<i32, String>, after: &BTreeMap<i32, String>) -> Vec<(String, String, String)> {
    let mut expected = Vec::new();
    for id in before.keys().chain(after.keys().filter(|id| !before.contains_key(id))) {
        let told = |what: &str, data: String| (format!("t.{what}"), format!("t/{id}"), data);
        match (before.get(id), after.get(id)) {
            (Some(old), Some(new)) if old != new => {
                expected.push(told("updated", format!(r#"{{"new": {new}, "old": {old}}}"#)));
            }
            (Some(old), None) => expected.push(told("deleted", format!(r#"{{"old": {old}}}"#))),
            (None, Some(new)) => expected.push(told("created", format!(r#"{{"new": {new}}}"#))),
            _ => {}
        }
    }
    expected.sort();
    expected
}

#[tokio::test]
async fn t3_statements_at_random_tell_exactly_what_is_different_after_them() {
    let plain = "create table t (id int primary key deferrable, a int, b text)";
    let parts = "create table t (id int primary key, a int, b text) partition by hash (id);
        create table t0 partition of t for values with (modulus 2, remainder 0);
        create table t1 partition of t for values with (modulus 2, remainder 1)";
    for (table, seed) in [(plain, 1), (parts, 2)] {
        let (_db, mut c) = watched(table, "select postrider.watch('t')").await;
        let mut dice = StdRng::seed_from_u64(seed);
        let mut seen = 0;
        for _ in 0..150 {
            let (n, m) = (dice.random_range(1..12), dice.random_range(1..12));
            let statement = match dice.random_range(0..8) {
                0 => format!(
                    "insert into t select i, {n}, 'x' from generate_series({n}, {n} + 3) i where not exists (select from t where id = i)"
                ),
                1 => format!("update t set a = {m} where id % 3 = {n} % 3"),
                2 => format!("update t set b = md5(b || {m}) where id <= {n}"),
                3 => format!("delete from t where id = {n} or a = {m}"),
                4 => format!(
                    "update t set id = id + 100 where id = {n} and not exists (select from t where id = {n} + 100)"
                ),
                5 => format!("update t set a = a, b = b where id > {n}"),
                6 => "delete from t where id > 100".to_owned(),
                _ if seed == 1 => format!("update t set id = {n} + 1 - id where id between 1 and {n}"),
                _ => format!(
                    "with gone as (delete from t where id = {n} returning *) insert into t select id + 200, a, b from gone where id < 13"
                ),
            };
            let before = rows(&mut c).await;
            sql(&mut c, &statement).await;
            let mut found = told(&mut c).await;
            found.sort();
            let expected = difference(&before, &rows(&mut c).await);
            seen += expected.len();
            assert_eq!(found, expected, "{statement}");
        }
        assert!(seen > 100, "{seen}: the dice did nothing");
    }
}

#[tokio::test]
async fn t3_values_of_every_sort_are_told_the_same_whatever_the_session_prefers() {
    let table = r#"create schema "We ird"; create domain "We ird".cents as bigint check (value >= 0);
        create table "We ird"."T""x" (id uuid primary key, "Col umn" text, cents "We ird".cents, tags text[], j json, jb jsonb, raw bytea,
            n numeric, f float8, at timestamptz, day date, span interval, twice int generated always as (f::int * 2) stored, "new" text, r int, n2 int, change text)"#;
    let (_db, mut c) = watched(table, r#"select postrider.watch('"We ird"."T""x"')"#).await;
    sql(&mut c, "set timezone = 'Asia/Kolkata'; set datestyle = 'German'; set intervalstyle = 'sql_standard'; set bytea_output = 'escape';
                 set extra_float_digits = -5").await;
    sql(&mut c, r#"insert into "We ird"."T""x" values ('00000000-0000-0000-0000-00000000000a', E'a"\t\x01', 5, '{a,"b,c",null}', '{"b": 1, "a":1E2}',
        '{"b": 1}', '\x00ff', 'Infinity', 0.1, '2026-03-01 05:30+05:30', '01.02.2026', '1 day 02:00', default, 'n')"#).await;
    let data = value(&mut c, "select data from postrider.event").await;
    let expected = r#"{"new" : {"id":"00000000-0000-0000-0000-00000000000a","Col umn":"a\"\t\u0001","cents":5,"tags":["a","b,c",null],"j":{"b": 1, "a":1E2},"jb":{"b": 1},"raw":"\\x00ff","n":"Infinity","f":0.1,"at":"2026-03-01T00:00:00+00:00","day":"2026-02-01","span":"1 day 02:00:00","twice":0,"new":"n","r":null,"n2":null,"change":null}}"#;
    assert_eq!(data, expected);
    let event = value(&mut c, "select type || ' ' || subject from postrider.event").await;
    assert_eq!(event, "we_ird.t_x.created we_ird.t_x/00000000-0000-0000-0000-00000000000a");
    for change in [
        "j = '{\"a\":1E2, \"b\": 1}'",
        "jb = '{\"b\": 2}'",
        "raw = '\\x01'",
        "tags = '{}'",
        "span = '26 hours'",
        "\"new\" = 'm'",
        "f = 'NaN'",
    ] {
        if change.starts_with("f =") {
            sql(&mut c, r#"alter table "We ird"."T""x" drop column twice"#).await;
        }
        told(&mut c).await;
        sql(&mut c, &format!(r#"update "We ird"."T""x" set {change}"#)).await;
        assert_eq!(told(&mut c).await.len(), 1, "{change}");
        sql(&mut c, &format!(r#"update "We ird"."T""x" set {change}"#)).await;
        assert_eq!(told(&mut c).await.len(), 0, "{change} again");
    }
}

#[tokio::test]
async fn c48_what_no_event_can_hold_is_cut_to_the_key_and_the_writer_is_never_refused() {
    let (_db, mut c) =
        watched("create table doc (id text primary key, body text, j json)", "select postrider.watch('doc')").await;
    for (id, body, j, cut) in [
        ("a", "repeat('x', 262144)", "null", Some("size")),
        ("b", "repeat(md5('x'), 8000)", "null", None),
        ("c", "repeat('x', 3000000)", "null", Some("size")),
        ("d", "null", r#"'{"a": "\u0000"}'"#, Some("json")),
        ("e", "null", r#"'"\ud800"'"#, Some("json")),
        ("f", "null", "repeat('[', 200)::text || repeat(']', 200)", Some("json")),
        ("g", "null", "'1e99999'", Some("json")),
        ("h", "null", r#"'"\ud83d\ude00"'"#, None),
    ] {
        sql(&mut c, &format!("insert into doc values ('{id}', {body}, ({j})::json)")).await;
        let data = value(&mut c, "select data from postrider.event").await;
        match cut {
            Some(cut) => assert_eq!(data, format!(r#"{{"key" : {{"id" : "{id}"}}, "cut" : "{cut}"}}"#)),
            None => assert!(data.starts_with(r#"{"new" : {"id""#), "{data:.60}"),
        }
        told(&mut c).await;
    }
    // in one statement, the others are whole
    sql(&mut c, "insert into doc select 'many' || i, case when i % 2 = 0 then repeat('x', 300000) else 'y' end from generate_series(1, 5) i").await;
    let cut =
        value(&mut c, "select string_agg(coalesce(data ->> 'cut', 'whole'), ' ' order by seq) from postrider.event")
            .await;
    assert_eq!(cut, "whole size whole size whole");
}

#[tokio::test]
async fn c48_a_key_that_no_subject_can_hold_is_told_by_its_hash() {
    let (_db, mut c) =
        watched("create table k (id text primary key, s text)", "select postrider.watch('k', subject => 'new.s')")
            .await;
    sql(&mut c, r"insert into k values (E'a\nb', null), (repeat('ü', 300), null), ('', null), ('x', E'\x7f'), ('y', ''), ('z', 'fine')").await;
    let subjects: Vec<String> = told(&mut c).await.into_iter().map(|(_, subject, _)| subject).collect();
    // sha256 by sha256sum
    assert_eq!(subjects[0], "k/a_b#4bf852f253f584e9054043bde2244908");
    assert!(subjects[1].starts_with("k/üü") && subjects[1].len() < 200, "{}", subjects[1]);
    assert_eq!(subjects[2], "k/");
    assert!(subjects[3].starts_with("_#"), "{}", subjects[3]);
    assert_eq!(subjects[4], "k/y");
    assert_eq!(subjects[5], "fine");
}

#[tokio::test]
async fn t1_condition_owner_and_data_are_expressions_over_both_rows() {
    let watch = r#"select postrider.declare('{"app": "shop", "types": [{"name": "order.paid"}]}');
        select postrider.watch('"order"', name => 'paid', operations => '{update}', types => '{"update": "order.paid"}',
            condition => $x$new.status = 'paid' and old.status is distinct from 'paid' -- not again$x$, owner => 'new.note',
            data => $x$json_build_object('from', old.status, 'to', new.status)$x$);
        select postrider.watch('"order"', name => 'gone', operations => '{delete}', condition => 'old.total > 5', data => 'null::jsonb')"#;
    let (_db, mut c) = watched(ORDER, watch).await;
    sql(
        &mut c,
        r#"insert into "order" values (1, 'new', 1, 'north'), (2, null, 9, null); update "order" set status = 'paid';
                   update "order" set status = 'paid'; delete from "order""#,
    )
    .await;
    let found =
        value(&mut c, "select json_agg(array[type, owner, subject, data::text] order by seq) from postrider.event")
            .await;
    let found: Vec<[String; 4]> = serde_json::from_str(&found).unwrap();
    let expected = [
        ["order.paid", "north", "order/1", r#"{"from" : "new", "to" : "paid"}"#],
        ["order.paid", "", "order/2", r#"{"from" : null, "to" : "paid"}"#],
        ["order.deleted", "", "order/2", "null"],
    ];
    assert_eq!(found, expected);
    let refused =
        attempt(&mut c, r#"insert into "order" values (3); update "order" set status = 'paid', note = E'\x01'"#).await;
    assert_eq!(refused.unwrap_err().0, "PR001", "an owner is not made up");
    assert_eq!(value(&mut c, r#"select count(*) from "order""#).await, "0", "nor is half of a statement kept");
}

#[tokio::test]
async fn b7_many_events_by_one_statement_are_refused_as_one_is_and_none_is_written() {
    let watch =
        r#"select postrider.declare('{"app": "shop", "types": [{"name": "order.paid"}, {"name": "order.sent"}]}')"#;
    let (_db, mut c) = watched(ORDER, watch).await;
    let paid = "'{order.paid,order.sent}', '{order/1,order/2}', '{a,\"\"}'";
    sql(
        &mut c,
        &format!(r#"select postrider.record_rows({paid}, array['{{"a":1E2}}', ' 2 ']::json[], '{{null,null}}')"#),
    )
    .await;
    let kept =
        value(&mut c, "select json_agg(array[type, subject, owner, data::text] order by seq) from postrider.event");
    let kept: Vec<[String; 4]> = serde_json::from_str(&kept.await).unwrap();
    let expected = [["order.paid", "order/1", "a", r#"{"a":1E2}"#], ["order.sent", "order/2", "", " 2 "]];
    assert_eq!(kept, expected, "its bytes are kept");
    sql(&mut c, "select postrider.record_rows('{}', '{}', '{}', '{}', '{}'); select postrider.record_rows(null, null, null, null, null)").await;
    told(&mut c).await;
    let big = "array[to_json(repeat('x', 300000))]";
    for (types, subjects, owners, data, code) in [
        ("{order.paid}", "{a,b}", "{a}", "array[1]", "PR005"),
        ("{order.paid}", "{a}", "{}", "array[1]", "PR005"),
        ("{never.declared}", "{a}", "{a}", "array[1]", "PR004"),
        ("{webhook.x}", "{a}", "{a}", "array[1]", "PR004"),
        ("{null}", "{a}", "{a}", "array[1]", "PR001"),
        ("{order.paid}", r#"{""}"#, "{a}", "array[1]", "PR001"),
        ("{order.paid}", "{null}", "{a}", "array[1]", "PR001"),
        ("{order.paid}", "{a}", "{null}", "array[1]", "PR001"),
        ("{order.paid}", "{a}", "{a}", "array[null]", "PR003"),
        ("{order.paid}", "{a}", "{a}", r#"array['"\u0000"']"#, "PR003"),
        ("{order.paid}", "{a}", "{a}", big, "PR002"),
    ] {
        // alone, and behind one that is fine
        for (a, b, c_, d, k) in [("{}", "{}", "{}", "{}", "{}"), ("{order.paid}", "{x}", "{x}", "{1}", "{null}")] {
            let call = format!(
                "select postrider.record_rows('{a}'::text[] || '{types}'::text[], '{b}'::text[] || '{subjects}'::text[],
                    '{c_}'::text[] || '{owners}'::text[], '{d}'::json[] || ({data}::text[])::json[], '{k}'::json[] || '{{null}}'::json[])"
            );
            assert_eq!(attempt(&mut c, &call).await.expect_err(&call).0, code, "{call}");
        }
    }
    assert_eq!(told(&mut c).await, []);
}
