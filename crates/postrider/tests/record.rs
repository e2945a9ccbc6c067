//! An event exists if and only if its transaction commits, and its bytes are kept.
#![expect(clippy::unwrap_used, clippy::disallowed_methods, reason = "a test asks the database itself")]

use postrider::{
    Bus, Code, Error, Jobs, NewEvent, NewJob, Payload, PgJobs, Recorder, Resolution, Tx, Witness, contract,
};
use postrider_testkit::TestDb;
use sqlx::PgPool;

async fn declare(pool: &PgPool) {
    Bus::builder(pool.clone())
        .types(["order.paid", "order.sent"])
        .kinds([postrider::Kind::new("mail.send")])
        .build()
        .await
        .unwrap();
}

async fn count(pool: &PgPool) -> i64 {
    sqlx::query_scalar("select count(*) from postrider.event").fetch_one(pool).await.unwrap()
}

fn event(data: &str) -> NewEvent {
    NewEvent::new("order.paid", "order/42", Payload::parse(data).unwrap())
}

#[tokio::test]
async fn b1_an_event_exists_if_and_only_if_its_transaction_commits_also_under_savepoints() {
    let db = TestDb::fresh().await;
    declare(db.pool()).await;
    let recorder = Recorder::new();

    let mut tx = db.pool().begin().await.unwrap();
    recorder.record(&mut *tx, &event("1")).await.unwrap();
    tx.rollback().await.unwrap();
    assert_eq!(count(db.pool()).await, 0);

    let mut tx = db.pool().begin().await.unwrap();
    recorder.record(&mut *tx, &event("2")).await.unwrap();
    for (data, keep) in [("3", false), ("4", true)] {
        let mut savepoint = sqlx::Acquire::begin(&mut tx).await.unwrap();
        recorder.record(&mut *savepoint, &event(data)).await.unwrap();
        if keep { savepoint.commit().await.unwrap() } else { savepoint.rollback().await.unwrap() }
    }
    tx.commit().await.unwrap();
    let kept: Vec<String> =
        sqlx::query_scalar("select data::text from postrider.event order by seq").fetch_all(db.pool()).await.unwrap();
    assert_eq!(kept, ["2", "4"]);
}

#[tokio::test]
async fn b5_the_order_within_a_transaction_is_kept_also_across_savepoints_and_doors() {
    let db = TestDb::fresh().await;
    declare(db.pool()).await;
    let recorder = Recorder::new();
    let mut tx = db.pool().begin().await.unwrap();
    recorder.record(&mut *tx, &event("1")).await.unwrap();
    let mut savepoint = sqlx::Acquire::begin(&mut tx).await.unwrap();
    recorder.record(&mut *savepoint, &event("2")).await.unwrap();
    // another transaction in between draws numbers too
    let mut other = db.pool().acquire().await.unwrap();
    recorder.record(&mut *other, &event("0")).await.unwrap();
    savepoint.commit().await.unwrap();
    let many = r#"select postrider.record_many('[{"type": "order.sent", "subject": "s", "data": 3}, {"type": "order.paid", "subject": "s", "data": 4}]')"#;
    sqlx::query(many).execute(&mut *tx).await.unwrap();
    recorder.record(&mut *tx, &event("5")).await.unwrap();
    tx.commit().await.unwrap();
    let sql = "select string_agg(data::text, ' ' order by seq) from postrider.event where data::text <> '0'";
    let kept: String = sqlx::query_scalar(sql).fetch_one(db.pool()).await.unwrap();
    assert_eq!(kept, "1 2 3 4 5");
}

#[tokio::test]
async fn b6_a_recorder_that_recorded_in_a_transaction_is_bound_to_nothing() {
    let db = TestDb::fresh().await;
    declare(db.pool()).await;
    let recorder = Recorder::new();
    let mut first = db.pool().begin().await.unwrap();
    recorder.record(&mut *first, &event("1")).await.unwrap();
    let mut second = db.pool().begin().await.unwrap();
    recorder.record(&mut *second, &event("2")).await.unwrap();
    first.rollback().await.unwrap();
    second.commit().await.unwrap();
    recorder.record(&mut *db.pool().acquire().await.unwrap(), &event("3")).await.unwrap();
    let sql = "select string_agg(data::text, ' ' order by seq) from postrider.event";
    let kept: String = sqlx::query_scalar(sql).fetch_one(db.pool()).await.unwrap();
    assert_eq!(kept, "2 3");
}

#[tokio::test]
async fn b2_an_undeclared_type_is_refused_with_the_nearest_names() {
    let db = TestDb::fresh().await;
    declare(db.pool()).await;
    let mut connection = db.pool().acquire().await.unwrap();
    let wrong = NewEvent::new("order.payed", "order/42", Payload::parse("{}").unwrap());
    let Err(Error::Refused(refused)) = Recorder::new().record(&mut *connection, &wrong).await else {
        panic!("it was recorded")
    };
    assert_eq!((refused.code, refused.field.as_str()), (Code::Undeclared, "type"));
    assert!(refused.remedy.contains("'order.paid'"), "{}", refused.remedy);
    assert_eq!(count(db.pool()).await, 0);
}

#[tokio::test]
async fn b3_the_bytes_of_the_data_are_kept_by_both_doors() {
    let db = TestDb::fresh().await;
    declare(db.pool()).await;
    let texts =
        ["{ \"b\":1.0,\n \"a\" : 12345678901234567890123, \"a\":1E2 }", " [ ] ", "\"\\ud83d\\ude00 ü\"", "null"];
    let mut connection = db.pool().acquire().await.unwrap();
    for text in texts {
        Recorder::new().record(&mut *connection, &event(text)).await.unwrap();
        sqlx::query("select postrider.record('order.paid', 'order/42', $1::text::json)")
            .bind(text)
            .execute(&mut *connection)
            .await
            .unwrap();
    }
    let kept: Vec<String> =
        sqlx::query_scalar("select data::text from postrider.event order by seq").fetch_all(db.pool()).await.unwrap();
    let expected: Vec<&str> = texts.iter().flat_map(|text| [*text, *text]).collect();
    assert_eq!(kept, expected);
}

#[tokio::test]
async fn b4_recording_works_inside_a_transaction_that_is_prepared() {
    let db = TestDb::fresh().await;
    declare(db.pool()).await;
    let mut connection = db.pool().acquire().await.unwrap();
    for statement in [
        "begin",
        "set local postrider.wake = 'off'",
        "select postrider.record('order.paid', 'order/42')",
        "prepare transaction 'b4'",
        "commit prepared 'b4'",
    ] {
        sqlx::query(statement).execute(&mut *connection).await.unwrap_or_else(|e| panic!("{statement}: {e}"));
    }
    assert_eq!(count(db.pool()).await, 1);
}

#[tokio::test]
async fn b7_both_doors_accept_and_refuse_the_same_payloads() {
    let db = TestDb::fresh().await;
    declare(db.pool()).await;
    let nested = |depth: usize| "[".repeat(depth) + &"]".repeat(depth);
    let objects = |depth: usize| "{\"a\":".repeat(depth) + "1" + &"}".repeat(depth);
    let texts = [
        "{}".to_owned(),
        r#""\\u0000""#.to_owned(),
        r#""\u0000""#.to_owned(),
        r#""\\\u0000""#.to_owned(),
        r#"{"\u0000":1}"#.to_owned(),
        r#""\ud800""#.to_owned(),
        r#""\udc00\ud800""#.to_owned(),
        r#""\uD83D\uDE00\uD83D""#.to_owned(),
        r#""\ud83d\ude00""#.to_owned(),
        r#""\\ud800""#.to_owned(),
        "1e9999".to_owned(),
        "1e10000".to_owned(),
        "[1E-00009999]".to_owned(),
        "-1.5E+123456".to_owned(),
        r#""1e123456""#.to_owned(),
        "9".repeat(4_096),
        "9".repeat(4_097),
        format!("-{}", "9".repeat(4_095)),
        format!("-{}", "9".repeat(4_096)),
        format!("\"{}\"", "9".repeat(5_000)),
        nested(128),
        nested(129),
        objects(128),
        objects(129),
        format!("[{}]", vec![nested(127); 3].join(",")),
        format!("[{}]", vec![nested(128); 3].join(",")),
        format!("[{}]", vec!["{}"; 500].join(",")),
        format!("\"{}\"", "[".repeat(500)),
        format!("[\"{}\",{}]", "\\\"[".repeat(200), nested(127)),
        format!("\"{}\"", "a".repeat(262_142)),
        format!("\"{}\"", "a".repeat(262_143)),
        format!("\"{}\"", "ä".repeat(131_071)),
        format!("\"{}\"", "ä".repeat(131_072)),
    ];
    for text in texts {
        let rust = contract::check_json("data", &text).err().map(|refused| refused.code.as_str().to_owned());
        let sql = sqlx::query("select postrider.record('order.paid', 'order/42', $1::text::json)")
            .bind(&text)
            .execute(db.pool())
            .await;
        let sql = sql.err().map(|e| e.as_database_error().unwrap().code().unwrap().into_owned());
        let shown: String = text.chars().take(60).collect();
        assert_eq!(rust, sql, "{shown}");
        if sql.is_none() {
            // what is accepted can be held by jsonb, which operators' filters need
            sqlx::query("select $1::text::jsonb")
                .bind(&text)
                .execute(db.pool())
                .await
                .unwrap_or_else(|e| panic!("{shown}: {e}"));
        }
    }
}

#[tokio::test]
async fn b7_both_doors_refuse_the_same_names() {
    let db = TestDb::fresh().await;
    declare(db.pool()).await;
    let long = "a".repeat(513);
    for (kind, subject, owner, code) in [
        ("Order.Paid", "order/42", "", "PR001"),
        ("order..paid", "order/42", "", "PR001"),
        ("'; drop table x", "order/42", "", "PR001"),
        ("postrider.made.up", "order/42", "", "PR004"),
        ("order.paid", "", "", "PR001"),
        ("order.paid", "a\nb", "", "PR001"),
        ("order.paid", "a\u{85}b", "", "PR001"),
        ("order.paid", &long, "", "PR001"),
        ("order.paid", "order/42", "a\tb", "PR001"),
    ] {
        let mut new = NewEvent::new(kind, subject, Payload::parse("{}").unwrap());
        owner.clone_into(&mut new.owner);
        let mut connection = db.pool().acquire().await.unwrap();
        let rust = Recorder::new().record(&mut *connection, &new).await.unwrap_err().code().unwrap();
        let sql = sqlx::query("select postrider.record($1, $2, '{}', $3)")
            .bind(kind)
            .bind(subject)
            .bind(owner)
            .execute(db.pool())
            .await;
        let sql = sql.unwrap_err().as_database_error().unwrap().code().unwrap().into_owned();
        assert_eq!((rust.as_str(), sql.as_str()), (code, code), "{kind} {subject:?} {owner:?}");
    }
}

#[tokio::test]
async fn c50_a_refusal_before_any_statement_leaves_the_transaction_usable() {
    let db = TestDb::fresh().await;
    declare(db.pool()).await;
    let jobs = PgJobs::new(db.pool().clone());
    let mut tx = db.pool().begin().await.unwrap();
    let bad_subject = NewEvent::new("order.paid", "", Payload::parse("{}").unwrap());
    Recorder::new().record(&mut *tx, &bad_subject).await.unwrap_err();
    jobs.enqueue(Some(&mut *tx), &[NewJob::new("Bad Kind", Payload::parse("{}").unwrap())]).await.unwrap_err();
    jobs.enqueue(Some(&mut *tx), &[NewJob::new("webhook.deliver", Payload::parse("{}").unwrap())]).await.unwrap_err();
    Recorder::new().record(&mut *tx, &event("1")).await.unwrap();
    tx.commit().await.unwrap();
    assert_eq!(count(db.pool()).await, 1);
}

#[tokio::test]
async fn e11_recording_again_with_the_same_key_answers_with_the_first_id() {
    let db = TestDb::fresh().await;
    declare(db.pool()).await;
    let keyed = NewEvent { idempotency_key: Some("k1".to_owned()), ..event("1") };
    let mut ids = Vec::new();
    for _ in 0..2 {
        let mut connection = db.pool().acquire().await.unwrap();
        ids.push(Recorder::new().record(&mut *connection, &keyed).await.unwrap().id);
    }
    assert_eq!(ids[0], ids[1]);
    let other_owner = NewEvent { owner: "acme".to_owned(), ..keyed };
    let mut connection = db.pool().acquire().await.unwrap();
    assert_ne!(Recorder::new().record(&mut *connection, &other_owner).await.unwrap().id, ids[0]);
    assert_eq!(count(db.pool()).await, 2);
}

#[tokio::test]
async fn e11_concurrent_records_with_one_key_make_one_event_also_when_the_first_rolls_back() {
    let db = TestDb::fresh().await;
    declare(db.pool()).await;
    let keyed = NewEvent { idempotency_key: Some("k1".to_owned()), ..event("1") };
    let mut first = db.pool().begin().await.unwrap();
    Recorder::new().record(&mut *first, &keyed).await.unwrap();
    let waiting: Vec<_> = (0..4)
        .map(|_| {
            let (pool, keyed) = (db.pool().clone(), keyed.clone());
            tokio::spawn(async move {
                let mut tx = pool.begin().await.unwrap();
                let id = Recorder::new().record(&mut *tx, &keyed).await.unwrap().id;
                tx.commit().await.unwrap();
                id
            })
        })
        .collect();
    first.rollback().await.unwrap();
    let mut ids = Vec::new();
    for task in waiting {
        ids.push(task.await.unwrap());
    }
    assert!(ids.windows(2).all(|pair| pair[0] == pair[1]), "{ids:?}");
    assert_eq!(count(db.pool()).await, 1);
}

#[tokio::test]
async fn f08_the_transaction_of_a_lost_reply_can_be_asked_about() {
    let db = TestDb::fresh().await;
    declare(db.pool()).await;
    let recorder = Recorder::new();
    let mut asking = db.pool().acquire().await.unwrap();
    let mut tx = db.pool().begin().await.unwrap();
    let told = recorder.record(&mut *tx, &event("1")).await.unwrap();
    assert_eq!(recorder.resolve(&mut *asking, &told).await.unwrap(), Resolution::InProgress);
    tx.commit().await.unwrap();
    assert_eq!(recorder.resolve(&mut *asking, &told).await.unwrap(), Resolution::Committed);
    let mut tx = db.pool().begin().await.unwrap();
    let told = recorder.record(&mut *tx, &event("1")).await.unwrap();
    tx.rollback().await.unwrap();
    assert_eq!(recorder.resolve(&mut *asking, &told).await.unwrap(), Resolution::Aborted);
}

#[tokio::test]
async fn f08_jobs_tell_of_their_transaction_as_events_do_and_so_does_what_met_an_earlier_one() {
    let db = TestDb::fresh().await;
    declare(db.pool()).await;
    let recorder = Recorder::new();
    let mut asking = db.pool().acquire().await.unwrap();
    let keyed = NewEvent { idempotency_key: Some("k".to_owned()), ..event("1") };
    let first = recorder.record(&mut *asking, &keyed).await.unwrap();
    for commits in [true, false] {
        let mut tx = db.pool().begin().await.unwrap();
        let jobs = [NewJob::new("mail.send", Payload::of(&1).unwrap())];
        let made = PgJobs::new(db.pool().clone()).enqueue(Some(&mut *tx), &jobs).await.unwrap();
        let met = recorder.record(&mut *tx, &keyed).await.unwrap();
        assert_eq!(met.id, first.id);
        for witness in [Witness::from(&made[0]), Witness::from(&met)] {
            assert_eq!(recorder.resolve(&mut *asking, witness).await.unwrap(), Resolution::InProgress);
        }
        if commits {
            tx.commit().await.unwrap();
        } else {
            tx.rollback().await.unwrap();
        }
        let truth = if commits { Resolution::Committed } else { Resolution::Aborted };
        for witness in [Witness::from(&made[0]), Witness::from(&met)] {
            assert_eq!(recorder.resolve(&mut *asking, witness).await.unwrap(), truth);
        }
    }
}

/// By hand, what the transaction of an event or a job became, as SQL asks.
async fn resolve_by_hand(pool: &PgPool, arguments: &str) -> Result<String, String> {
    let sql = format!("select postrider.resolve({arguments})");
    let asked = sqlx::query_scalar(sqlx::AssertSqlSafe(sql)).fetch_one(pool).await;
    asked.map_err(|e| e.as_database_error().unwrap().message().to_owned())
}

#[tokio::test]
async fn resolve_in_sql_knows_what_is_gone_or_was_never_here_and_names_a_wrong_argument() {
    let db = TestDb::fresh().await;
    let pool = db.pool();
    let current: String = sqlx::query_scalar("select pg_current_xact_id()::text").fetch_one(pool).await.unwrap();
    // an event and a job of a partition that is not there any more; ids that no server gave out yet
    let gone_event = format!("'{current}', postrider.event_id(now(), (7::bigint << 46) | 1)");
    let gone_job = format!("'{current}', null, (7::bigint << 46) | 1, now()");
    for arguments in [gone_event.as_str(), gone_job.as_str(), "'1152921504606846976'"] {
        assert_eq!(resolve_by_hand(pool, arguments).await.unwrap(), "unknown", "{arguments}");
    }
    assert_eq!(resolve_by_hand(pool, &format!("'{current}'")).await.unwrap(), "committed");
    for (arguments, field) in [("'x'", "xid"), ("null", "xid"), ("''", "xid"), ("'5', null, 7", "told_at")] {
        let refused = resolve_by_hand(pool, arguments).await.unwrap_err();
        assert!(refused.contains(field), "{arguments}: {refused}");
    }
}

#[tokio::test]
async fn an_event_is_found_by_its_id_through_the_primary_key() {
    let db = TestDb::fresh().await;
    declare(db.pool()).await;
    let mut connection = db.pool().acquire().await.unwrap();
    let id = Recorder::new().record(&mut *connection, &event("1")).await.unwrap().id;
    assert_eq!(id.as_uuid().get_version_num(), 7);
    let (seq, found): (i64, bool) =
        sqlx::query_as("select seq, postrider.event_seq($1) = seq from postrider.event where id = $1")
            .bind(id.as_uuid())
            .fetch_one(db.pool())
            .await
            .unwrap();
    assert!(found && seq > 0);
    // the time in the id is the time of the record, to the millisecond (RFC 9562)
    let (seconds, nanos) = id.as_uuid().get_timestamp().unwrap().to_unix();
    let millis: i64 =
        sqlx::query_scalar("select floor(extract(epoch from recorded_at) * 1000)::bigint from postrider.event")
            .fetch_one(db.pool())
            .await
            .unwrap();
    assert_eq!(i64::try_from(seconds).unwrap() * 1000 + i64::from(nanos / 1_000_000), millis);
}

#[tokio::test]
async fn every_option_of_record_many_is_known_or_refused() {
    let db = TestDb::fresh().await;
    declare(db.pool()).await;
    let mut connection = db.pool().acquire().await.unwrap();
    let many = r#"[{"type":"order.paid","subject":"a","data":{"n" :1.0}},{"type":"order.sent","subject":"b","owner":"acme","occurred_at":"2020-01-01T00:00:00Z"}]"#;
    let ids: Vec<uuid::Uuid> = sqlx::query_scalar("select postrider.record_many($1::text::json)")
        .bind(many)
        .fetch_all(&mut *connection)
        .await
        .unwrap();
    assert_eq!(ids.len(), 2);
    let rows: Vec<(String, String, String)> =
        sqlx::query_as("select subject, owner, data::text from postrider.event order by seq")
            .fetch_all(db.pool())
            .await
            .unwrap();
    assert_eq!(rows, [("a".into(), String::new(), "{\"n\" :1.0}".into()), ("b".into(), "acme".into(), "{}".into())]);
    for (bad, field) in
        [(r#"[{"type":"order.paid","subject":"a","dat":1}]"#, "dat"), (r#"{"type":"order.paid"}"#, "events")]
    {
        let error = (&mut *connection as &mut dyn Tx)
            .as_sqlx()
            .map(|c| sqlx::query("select postrider.record_many($1::text::json)").bind(bad).fetch_all(c))
            .unwrap()
            .await
            .unwrap_err();
        let error = error.as_database_error().unwrap();
        assert!(error.message().starts_with(&format!("{field}: ")), "{}", error.message());
    }
}
