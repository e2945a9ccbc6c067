//! Endpoints as data: what is saved, changed, refused, limited, ordered, and who would get what.
#![expect(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a failed helper is a failed test, and a test asks the database itself"
)]

mod stage;
#[path = "stage/time.rs"]
mod time;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use postrider::{Order, Rate};
use postrider_testkit::{Reply, Request, Sink};
use postrider_webhook::{EndpointChange, EndpointId, Format, Headers, NewEndpoint, On4xx, Retries};
use stage::Stage;
use time::SOON;

const S: fn(u64) -> Duration = Duration::from_secs;

/// How many requests were under way at a time, if each took this long to be answered.
fn most_at_a_time(requests: &[Request], each: Duration) -> usize {
    let under_way = |n: &Request| requests.iter().filter(|m| m.at <= n.at && m.at + each > n.at).count();
    requests.iter().map(under_way).max().unwrap_or_default()
}

fn everything(url: &str) -> NewEndpoint {
    NewEndpoint {
        owner: "acme".into(),
        predicate: Some("$.total > 100".into()),
        order: Some(Order::Park(3)),
        labels: BTreeMap::from([("team".into(), "billing".into())]),
        max_in_flight: 7,
        rate: Some(Rate { starts: 30, per: S(60) }),
        retries: Retries::Steps(vec![S(1), S(7)]),
        timeout: S(3),
        max_attempts: 4,
        on_4xx: On4xx::Discard,
        answer_contains: Some("ok".into()),
        headers: Headers::new([("Authorization", "Bearer s3cret-of-acme")]).unwrap(),
        ..NewEndpoint::new("all", url, ["order.*", "stock.**"])
    }
}

#[tokio::test]
async fn an_endpoint_is_saved_and_changed_with_every_field_and_what_is_not_named_stays() {
    let (stage, sink) = (Stage::set().await, Sink::start().await.unwrap());
    let (id, _) = stage.create(everything(&sink.url("/in"))).await;
    let saved = stage.endpoints.get(id).await.unwrap().unwrap();
    let told = (saved.name.as_str(), saved.owner.as_str(), saved.url.as_str(), saved.revision);
    assert_eq!(told, ("all", "acme", sink.url("/in").as_str(), 1));
    assert_eq!(saved.types, ["order.*", "stock.**"]);
    assert_eq!(saved.predicate.as_deref(), Some(r#"($."total" > 100)"#));
    assert_eq!((saved.order_policy.as_deref(), saved.labels["team"].as_str()), (Some("park:3"), "billing"));
    assert_eq!((saved.max_in_flight, saved.rate_starts, saved.rate_per_ms), (7, Some(30), Some(60_000)));
    assert_eq!((saved.schedule.clone(), saved.steps_ms.clone()), (None, Some(vec![1_000, 7_000])));
    assert_eq!((saved.timeout_ms, saved.max_attempts, saved.on_4xx.as_str()), (3_000, 4, "discard"));
    assert_eq!(
        (saved.answer_contains.as_deref(), saved.header_names.as_slice()),
        (Some("ok"), &["authorization".into()][..])
    );

    let change = EndpointChange { labels: Some(BTreeMap::new()), ..EndpointChange::default() };
    let changed = stage.endpoints.update(id, change).await.unwrap().unwrap();
    let mut expected = saved.clone();
    (expected.labels, expected.revision) = (BTreeMap::new(), 2);
    assert_eq!(changed, expected, "all but the labels is as it was");

    let change = EndpointChange {
        name: Some("few".into()),
        url: Some(sink.url("/other")),
        types: Some(vec!["order.paid".into()]),
        predicate: Some(None),
        order: Some(None),
        max_in_flight: Some(2),
        rate: Some(None),
        retries: Some(Retries::Short),
        timeout: Some(S(9)),
        max_attempts: Some(18),
        on_4xx: Some(On4xx::Retry),
        answer_contains: Some(None),
        headers: Some(Headers::default()),
        ..EndpointChange::default()
    };
    let changed = stage.endpoints.update(id, change).await.unwrap().unwrap();
    assert_eq!(
        (changed.name.as_str(), changed.url, changed.types),
        ("few", sink.url("/other"), vec!["order.paid".into()])
    );
    assert_eq!((changed.predicate, changed.order_policy, changed.rate_starts), (None, None, None));
    assert_eq!((changed.max_in_flight, changed.timeout_ms, changed.max_attempts), (2, 9_000, 18));
    assert_eq!((changed.schedule.as_deref(), changed.steps_ms.map(|steps| steps[1])), (Some("short"), Some(30_000)));
    assert_eq!((changed.on_4xx.as_str(), changed.answer_contains, changed.header_names), ("retry", None, vec![]));
    assert_eq!(stage.endpoints.update(EndpointId(99), EndpointChange::default()).await.unwrap(), None);

    let of = |owner: &'static str| stage.endpoints.page(Some(owner), None, 10);
    assert_eq!((of("acme").await.unwrap().len(), of("globex").await.unwrap().len()), (1, 0));
    assert!(stage.endpoints.page(None, Some(id), 10).await.unwrap().is_empty());
    stage.strike().await;
}

#[tokio::test]
async fn a_format_that_this_program_does_not_know_is_not_lost_with_another_change() {
    let (stage, sink) = (Stage::set().await, Sink::start().await.unwrap());
    let (id, _) = stage.endpoint("billing", &sink.url("/in")).await;
    sqlx::query("update postrider.endpoint set format = 9").execute(stage.pool()).await.unwrap();
    let slower = EndpointChange { timeout: Some(S(2)), ..EndpointChange::default() };
    let refused = stage.endpoints.update(id, slower.clone()).await.unwrap_err().to_string();
    assert!(refused.contains("format: this program does not know format 9"), "{refused}");
    assert_eq!(stage.number("select format::bigint from postrider.endpoint").await, 9);
    let named = EndpointChange { format: Some(Format::Raw), ..slower };
    stage.endpoints.update(id, named).await.unwrap().unwrap();
    assert_eq!(stage.number("select format::bigint from postrider.endpoint").await, 4);
    stage.strike().await;
}

#[tokio::test]
async fn changes_that_meet_lose_nothing() {
    let (stage, sink) = (Stage::set().await, Sink::start().await.unwrap());
    let (id, _) = stage.endpoint("billing", &sink.url("/in")).await;
    let change = |n: u64| {
        let mut change = EndpointChange::default();
        match n {
            0 => change.timeout = Some(S(2)),
            1 => change.max_attempts = Some(3),
            2 => change.max_in_flight = Some(9),
            3 => change.on_4xx = Some(On4xx::Discard),
            _ => change.answer_contains = Some(Some("ok".into())),
        }
        stage.endpoints.update(id, change)
    };
    let all = tokio::join!(change(0), change(1), change(2), change(3), change(4));
    for one in [all.0, all.1, all.2, all.3, all.4] {
        assert!(one.unwrap().is_some());
    }
    let now = stage.endpoints.get(id).await.unwrap().unwrap();
    assert_eq!((now.timeout_ms, now.max_attempts, now.max_in_flight), (2_000, 3, 9));
    assert_eq!((now.on_4xx.as_str(), now.answer_contains.as_deref(), now.revision), ("discard", Some("ok"), 6));
    stage.strike().await;
}

#[tokio::test]
async fn every_refusal_names_its_field_and_what_to_do_and_nothing_is_written() {
    let (stage, sink) = (Stage::set().await, Sink::start().await.unwrap());
    let fine = || NewEndpoint::new("billing", sink.url("/in"), ["order.*"]);
    let (id, _) = stage.create(NewEndpoint { name: "first".into(), ..fine() }).await;
    let before = stage.endpoints.list().await.unwrap();
    let bad = |change: EndpointChange| stage.endpoints.update(id, change);
    let refusals = [
        ("name", stage.endpoints.create(NewEndpoint { name: "first".into(), ..fine() }).await.unwrap_err()),
        (
            "predicate",
            stage.endpoints.create(NewEndpoint { predicate: Some("$.a".into()), ..fine() }).await.unwrap_err(),
        ),
        (
            "predicate",
            bad(EndpointChange { predicate: Some(Some("$.a ==".into())), ..EndpointChange::default() })
                .await
                .unwrap_err(),
        ),
        (
            "url",
            bad(EndpointChange { url: Some("http://10.0.0.1/".into()), ..EndpointChange::default() })
                .await
                .unwrap_err(),
        ),
        ("timeout", bad(EndpointChange { timeout: Some(S(61)), ..EndpointChange::default() }).await.unwrap_err()),
        ("types", bad(EndpointChange { types: Some(vec![]), ..EndpointChange::default() }).await.unwrap_err()),
    ];
    for (field, error) in refusals {
        assert!(error.code().is_some() && error.to_string().contains(&format!(" {field}: ")), "{field}: {error}");
    }
    assert_eq!(stage.endpoints.list().await.unwrap(), before);
    assert_eq!(stage.number("select count(*) from postrider.subscription").await, 1);

    // The function is a door of its own.
    let fields = r#"{"name": "b", "url": "https://a.example.com/", "types": ["a"], "labels": {}, "max_in_flight": 5, "format": 1,
                     "timeout_ms": 1000, "max_attempts": 3, "on_4xx": "retry"}"#;
    for (field, value) in [
        ("name", "null"),
        ("url", "\"\""),
        ("order_by", "\"owner\""),
        ("labels", "[]"),
        ("max_in_flight", "0"),
        ("rate", "1"),
        ("schedule", "1"),
        ("timeout", "999"),
        ("max_attempts", "19"),
        ("on_4xx", "\"maybe\""),
        ("colour", "1"),
    ] {
        let column = match field {
            "rate" => "rate_starts",
            "timeout" => "timeout_ms",
            "schedule" => "steps_ms",
            other => other,
        };
        let value = if field == "schedule" { "[]" } else { value };
        let sql = "select postrider.put_endpoint(7, null, ($1::jsonb || jsonb_build_object($2::text, $3::jsonb))::json, null, null)";
        let refused = sqlx::query(sql).bind(fields).bind(column).bind(value).execute(stage.pool()).await.unwrap_err();
        let refused = refused.into_database_error().unwrap();
        let refused = refused.downcast_ref::<sqlx::postgres::PgDatabaseError>();
        assert_eq!((refused.code(), refused.column()), ("PR005", Some(field)), "{refused}");
        assert!(refused.hint().is_some_and(|hint| !hint.is_empty()));
    }
    stage.strike().await;
}

#[tokio::test]
async fn c56_an_endpoints_own_headers_are_sent_sealed_at_rest_and_never_in_the_place_of_ours() {
    let (stage, sink) = (Stage::set().await, Sink::start().await.unwrap());
    let headers = Headers::new([("Authorization", "Bearer s3cret-of-acme"), ("X-Env", "test")]).unwrap();
    let (id, secret) =
        stage.create(NewEndpoint { headers, ..NewEndpoint::new("billing", sink.url("/in"), ["order.*"]) }).await;
    // A change of something else leaves them as they are.
    let change = EndpointChange { timeout: Some(S(7)), ..EndpointChange::default() };
    stage.endpoints.update(id, change).await.unwrap().unwrap();
    stage.record("order.paid", "", "{}").await;
    stage.until("delivered").await;
    let request = &sink.requests()[0];
    request.verify(&secret).unwrap();
    let value = |name: &str| request.header(name);
    assert_eq!(
        (value("authorization").as_deref(), value("x-env").as_deref()),
        (Some("Bearer s3cret-of-acme"), Some("test"))
    );
    let plain = "select count(*) from postrider.endpoint e, postrider.delivery_attempt a
                  where (e::text || encode(coalesce(e.headers, ''), 'escape') || a::text) like '%s3cret%'";
    assert_eq!(stage.number(plain).await, 0);
    let told = format!("{:?}", stage.endpoints.get(id).await.unwrap());
    assert!(told.contains("authorization") && !told.contains("s3cret"), "{told}");

    // Whoever can write to the table gives them to another endpoint: they do not open there, and nothing is sent without them.
    stage.create(NewEndpoint::new("other", sink.url("/other"), ["order.shipped"])).await;
    sqlx::raw_sql("update postrider.endpoint o set headers = e.headers, headers_key = e.headers_key from postrider.endpoint e where e.name = 'billing' and o.name = 'other'")
        .execute(stage.pool()).await.unwrap();
    stage.record("order.shipped", "", "{}").await;
    let postponed = "select count(*) from postrider.delivery_attempt where outcome = 'postponed' and reason like '%does not belong to this row%'";
    stage.until_number("select count(*) from postrider.delivery_attempt where outcome = 'postponed'", 1).await;
    assert_eq!(stage.number(postponed).await, 1);
    assert!(sink.requests().iter().all(|request| request.line().contains(" /in ")));
    stage.strike().await;
}

#[tokio::test]
async fn who_would_get_an_event_is_who_gets_it() {
    let (stage, sink) = (Stage::set().await, Sink::start().await.unwrap());
    let of = |name: &str, owner: &str, types: &str, predicate: Option<&str>| NewEndpoint {
        owner: owner.to_owned(),
        predicate: predicate.map(str::to_owned),
        ..NewEndpoint::new(name, sink.url(&format!("/{name}")), [types])
    };
    for new in [
        of("instance", "", "order.*", None),
        of("acme-much", "acme", "order.paid", Some("$.total > 100")),
        of("acme-little", "acme", "order.paid", Some("$.total <= 100")),
        of("acme-shipped", "acme", "order.shipped", None),
        of("globex", "globex", "**", None),
    ] {
        stage.create(new).await;
    }
    let mut sent = 0;
    for (r#type, owner, data) in [
        ("order.paid", "acme", r#"{"total": 101}"#),
        ("order.paid", "acme", r#"{"total": 100}"#),
        ("order.paid", "acme", r#"{"total": "many"}"#),
        ("order.paid", "globex", "{}"),
        ("order.shipped", "acme", "{}"),
        ("order.audited", "acme", "{}"),
    ] {
        let would = stage.endpoints.who_would_get(r#type, "order/42", data, owner).await.unwrap();
        let would: BTreeSet<String> = would.into_iter().map(|w| w.name).collect();
        let event = stage.record(r#type, owner, data).await;
        sent += would.len();
        let requests = sink.wait_for(sent, SOON).await;
        let got = requests.iter().filter(|r| r.header("webhook-id").as_ref() == Some(&event));
        let got: BTreeSet<String> =
            got.map(|r| r.line().split(' ').nth(1).unwrap().trim_start_matches('/').to_owned()).collect();
        assert_eq!(got, would, "{type} {owner} {data}");
    }
    for (field, asked) in [
        ("type", stage.endpoints.who_would_get("order.never", "a", "{}", "").await),
        ("data", stage.endpoints.who_would_get("order.paid", "a", "{", "").await),
        ("owner", stage.endpoints.who_would_get("order.paid", "a", "{}", "a\u{1}").await),
    ] {
        let error = asked.unwrap_err();
        assert!(error.to_string().contains(&format!(" {field}: ")), "{field}: {error}");
    }
    stage.strike().await;
    assert_eq!(sink.requests().len(), sent, "nobody else got anything");
}

#[tokio::test]
async fn who_would_get_an_event_tells_of_those_that_are_disabled_or_failing_and_not_of_those_that_are_gone() {
    let (stage, sink) = (Stage::set().await, Sink::start().await.unwrap());
    let mut ids = Vec::new();
    for (name, owner, predicate) in [
        ("enabled", "", None),
        ("disabled", "acme", Some("$.total > 100")),
        ("failing", "acme", None),
        ("deleted", "acme", None),
        ("other", "globex", None),
    ] {
        let new = NewEndpoint {
            owner: owner.to_owned(),
            predicate: predicate.map(str::to_owned),
            ..NewEndpoint::new(name, sink.url(&format!("/{name}")), ["order.paid"])
        };
        ids.push(stage.create(new).await.0);
    }
    stage.endpoints.disable(ids[1], "moving house").await.unwrap();
    sqlx::query("update postrider.endpoint_health set failing_since = clock_timestamp() where endpoint = $1")
        .bind(ids[2].0)
        .execute(stage.pool())
        .await
        .unwrap();
    stage.endpoints.delete(ids[3]).await.unwrap();
    let before =
        stage.number("select (select count(*) from postrider.event) + (select count(*) from postrider.job)").await;
    let mut told = Vec::new();
    for total in [101, 100] {
        let data = format!("{{\"total\": {total}}}");
        let would = stage.endpoints.who_would_get("order.paid", "order/42", &data, "acme").await.unwrap();
        told.push(
            would
                .into_iter()
                .map(|w| format!("{} {} {}", w.name, w.state, w.url == sink.url(&format!("/{}", w.name))))
                .collect::<Vec<_>>(),
        );
    }
    let little = ["enabled enabled true", "failing failing true"];
    assert_eq!(told, [&["enabled enabled true", "disabled disabled true", "failing failing true"][..], &little]);
    let after =
        stage.number("select (select count(*) from postrider.event) + (select count(*) from postrider.job)").await;
    assert_eq!((after, sink.requests().len()), (before, 0), "it only asks");
    // and so it is: what the disabled one would get is held for it
    stage.record("order.paid", "acme", "{\"total\": 101}").await;
    sink.wait_for(2, SOON).await;
    stage.until_number("select count(*) from postrider.parked where key = 'limit:endpoint:2'", 1).await;
    stage.until_number("select count(*) from postrider.job", before + 2).await;
    stage.strike().await;
}

#[tokio::test]
async fn c65_an_endpoint_has_so_many_in_flight_as_it_may_and_a_change_holds_for_the_next() {
    let each = Duration::from_millis(300);
    let (stage, sink) = (Stage::set().await, Sink::start().await.unwrap());
    let new = NewEndpoint { max_in_flight: 2, ..NewEndpoint::new("billing", sink.url("/in"), ["order.*"]) };
    let (id, _) = stage.create(new).await;
    sink.script(vec![Reply::After(each, Box::new(Reply::Status(204))); 30]);
    for _ in 0..10 {
        stage.record("order.paid", "", "{}").await;
    }
    stage.until_number("select count(*) from postrider.done where state = 2", 10).await;
    let first = sink.requests();
    assert_eq!((first.len(), most_at_a_time(&first, each)), (10, 2));
    stage.endpoints.update(id, EndpointChange { max_in_flight: Some(5), ..EndpointChange::default() }).await.unwrap();
    for _ in 0..20 {
        stage.record("order.paid", "", "{}").await;
    }
    stage.until_number("select count(*) from postrider.done where state = 2", 30).await;
    let second = &sink.requests()[10..];
    assert!((3..=5).contains(&most_at_a_time(second, each)), "{}", most_at_a_time(second, each));
    assert_eq!(stage.number("select count(*) from postrider.delivery_attempt").await, 30, "waiting cost no attempt");
    stage.strike().await;
}

#[tokio::test]
async fn a_rate_is_kept_over_all_of_an_endpoints_deliveries() {
    let (stage, sink) = (Stage::set().await, Sink::start().await.unwrap());
    let rate = Some(Rate { starts: 3, per: S(3_600) });
    stage.create(NewEndpoint { rate, ..NewEndpoint::new("billing", sink.url("/in"), ["order.*"]) }).await;
    for _ in 0..8 {
        stage.record("order.paid", "", "{}").await;
    }
    stage.until_number("select count(*) from postrider.done", 3).await;
    stage.until_number("select count(*) from postrider.parked", 5).await;
    assert_eq!(sink.requests().len(), 3);
    stage.pass(S(3_601)).await;
    stage.until_number("select count(*) from postrider.done", 6).await;
    stage.until_number("select count(*) from postrider.parked", 2).await;
    assert_eq!(sink.requests().len(), 6);
    stage.strike().await;
}

#[tokio::test]
async fn deliveries_in_order_wait_for_the_one_before_them_of_their_subject_and_for_no_other() {
    let (stage, sink) = (Stage::set().await, Sink::start().await.unwrap());
    let new = NewEndpoint { order: Some(Order::Block), ..NewEndpoint::new("billing", sink.url("/in"), ["order.*"]) };
    stage.create(new).await;
    // all of them are order/42: the first one fails three times
    sink.script([Reply::Status(500), Reply::Status(500), Reply::Status(500)]);
    let mut events = Vec::new();
    for n in 0..5 {
        events.push(stage.record("order.paid", "", &format!("{{\"n\":{n}}}")).await);
    }
    stage.until_number("select count(*) from postrider.done where state = 2", 5).await;
    let sent: Vec<String> = sink.requests().iter().map(|r| r.header("webhook-id").unwrap()).collect();
    let expected = [&events[0], &events[0], &events[0], &events[0], &events[1], &events[2], &events[3], &events[4]];
    assert_eq!(sent.iter().collect::<Vec<_>>(), expected);
    stage.strike().await;
}

#[tokio::test]
async fn an_endpoints_own_schedule_is_kept_whatever_the_kind_says() {
    let (stage, sink) = (Stage::set().await, Sink::start().await.unwrap());
    let retries = Retries::Steps(vec![S(7_200), S(1)]);
    let new = NewEndpoint { retries, max_attempts: 3, ..NewEndpoint::new("billing", sink.url("/in"), ["order.*"]) };
    stage.create(new).await;
    sink.script([Reply::Status(500), Reply::with_header(500, "retry-after", "9000"), Reply::Status(404)]);
    stage.record("order.paid", "", "{}").await;
    let wait = "select (extract(epoch from max(run_at) - clock_timestamp()))::bigint from postrider.later";
    stage.until_number("select count(*) from postrider.later", 1).await;
    let first = stage.number(wait).await;
    assert!((7_190..=7_920).contains(&first), "{first}: up to a tenth later");
    stage.pass(S(8_000)).await;
    stage.until_number("select count(*) from postrider.delivery_attempt where outcome is not null", 2).await;
    stage.until_number("select count(*) from postrider.later", 1).await;
    let second = stage.number(wait).await;
    assert!((8_980..=9_900).contains(&second), "{second}: what the endpoint asked for is longer");
    stage.pass(S(10_000)).await;
    assert_eq!(stage.until("discarded").await.reason.as_deref(), Some("gave up after 3 attempts: status 404"));
    stage.strike().await;
}

#[tokio::test]
async fn an_answer_of_4xx_may_be_final_and_one_of_2xx_may_have_to_say_something() {
    let (stage, sink) = (Stage::set().await, Sink::start().await.unwrap());
    let new = NewEndpoint {
        on_4xx: On4xx::Discard,
        answer_contains: Some("\"ok\":true".into()),
        ..NewEndpoint::new("billing", sink.url("/in"), ["order.*"])
    };
    stage.create(new).await;
    let good = Reply::with_body(200, "{\"ok\":true}");
    // those with a meaning of their own are tried again all the same
    sink.script([
        Reply::Status(408),
        Reply::Status(425),
        Reply::Status(429),
        Reply::Status(500),
        Reply::with_body(200, "nok"),
        good,
    ]);
    stage.record("order.paid", "", "{}").await;
    stage.until("delivered").await;
    let reasons: Vec<String> =
        stage.endpoints.attempts(9).await.unwrap().into_iter().filter_map(|attempt| attempt.reason).collect();
    let no = "status 200, but the answer does not contain what the endpoint's rule asks for";
    assert_eq!(reasons, [no, "status 500", "status 429", "status 425", "status 408"]);
    sink.script([Reply::Status(422)]);
    stage.record("order.paid", "", "{}").await;
    let why = "status 422, after which the endpoint is not tried again";
    assert_eq!(stage.until("discarded").await.reason.as_deref(), Some(why));
    assert_eq!(sink.requests().len(), 7);
    stage.strike().await;
}
