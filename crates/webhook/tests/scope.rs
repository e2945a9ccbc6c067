//! The function of the application that narrows who gets what: where it says no, says nothing, fails, is refused, and with whose rights it runs.
#![expect(clippy::unwrap_used, reason = "a failed helper is a failed test")]

mod stage;
#[path = "stage/time.rs"]
mod time;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use postrider::inspect::{self, Severity};
use postrider::{Bus, EventTypeSpec, Kind, Order, Settings, Timestamp};
use postrider_testkit::{Sink, TestDb};
use postrider_webhook::{
    Client, Deliverer, EndpointChange, EndpointId, Endpoints, NewEndpoint, NewReplay, Seal, kind_spec, replay_kind,
};
use sqlx::AssertSqlSafe;
use sqlx::postgres::PgPoolOptions;
use stage::{GRACE, SEAL_KEY, Stage, guard};
use time::SOON;

const OUTSIDE: &str = "the event is not in the scope of the endpoint";
const FAILED: &str = "whether the event is in the scope of the endpoint could not be said";
const ENDED: &str = "select count(*) from postrider.done";
const ARGUMENTS: &str = "labels json, owner text, type text, subject text, data json";
/// An endpoint gets what is about its team.
const BY_TEAM: &str = "select labels ->> 'team' = data ->> 'team'";

impl Stage {
    /// Makes the function `app.in_scope` with this body, and declares it.
    async fn scope(&self, body: &str) {
        self.make(body).await;
        self.endpoints.set_scope(Some("app.in_scope")).await.unwrap();
    }

    async fn make(&self, body: &str) {
        let sql = format!(
            "create schema if not exists app;
             create or replace function app.in_scope({ARGUMENTS}) returns boolean language sql stable as $$ {body} $$"
        );
        sqlx::raw_sql(AssertSqlSafe(sql)).execute(self.pool()).await.unwrap();
    }

    async fn of_team(&self, sink: &Sink, team: &str) -> EndpointId {
        let new = NewEndpoint {
            labels: BTreeMap::from([("team".to_owned(), team.to_owned())]),
            ..NewEndpoint::new(team, sink.url(&format!("/{team}")), ["order.*"])
        };
        self.create(new).await.0
    }

    async fn would(&self, data: &str) -> BTreeSet<String> {
        let would = self.endpoints.who_would_get("order.paid", "order/42", data, "").await.unwrap();
        would.into_iter().map(|w| w.name).collect()
    }

    /// State and reason of each delivery, in the order of the events and of the endpoints.
    async fn ends(&self) -> Vec<(String, Option<String>)> {
        let mut deliveries = self.endpoints.deliveries(200).await.unwrap();
        deliveries.reverse();
        deliveries.into_iter().map(|delivery| (delivery.state, delivery.reason)).collect()
    }
}

/// Where the requests went.
fn paths(sink: &Sink) -> Vec<String> {
    sink.requests().iter().map(|r| r.line().split(' ').nth(1).unwrap().trim_start_matches('/').to_owned()).collect()
}

fn told(state: &str, reason: &str) -> (String, Option<String>) {
    (state.to_owned(), Some(reason.to_owned()).filter(|reason| !reason.is_empty()))
}

#[tokio::test]
async fn an_endpoint_gets_what_the_scope_function_says_yes_of_and_the_rest_ends_as_cancelled() {
    let (stage, sink) = (Stage::set().await, Sink::start().await.unwrap());
    for team in ["billing", "stock"] {
        stage.of_team(&sink, team).await;
    }
    stage.scope(BY_TEAM).await;
    for (n, team) in ["billing", "stock", "nobody"].into_iter().enumerate() {
        let data = format!("{{\"team\": \"{team}\"}}");
        let would = stage.would(&data).await;
        stage.record("order.paid", "", &data).await;
        stage.until_number(ENDED, 2 * (i64::try_from(n).unwrap() + 1)).await;
        let expected: BTreeSet<String> = (team != "nobody").then(|| team.to_owned()).into_iter().collect();
        assert_eq!(would, expected);
    }
    assert_eq!(paths(&sink), ["billing", "stock"]);
    let (yes, no) = (told("delivered", ""), told("cancelled", OUTSIDE));
    assert_eq!(stage.ends().await, [yes.clone(), no.clone(), no.clone(), yes, no.clone(), no]);
    let attempts = stage.endpoints.attempts(9).await.unwrap();
    let skipped = attempts.iter().filter(|a| a.outcome.as_deref() == Some("skipped") && a.peer.is_none()).count();
    assert_eq!((skipped, attempts.len()), (4, 6));
    // nobody failed
    assert_eq!(inspect::failures(stage.pool(), None, 9).await.unwrap(), []);
    assert_eq!(stage.number("select coalesce(sum(failed), 0)::bigint from postrider.endpoint_window").await, 0);
    assert_eq!(stage.number("select count(*) from postrider.event where type like 'postrider.%'").await, 0);
    // taken away, it narrows nothing
    stage.endpoints.set_scope(None).await.unwrap();
    assert_eq!(stage.endpoints.scope().await.unwrap(), None);
    assert_eq!(stage.would("{}").await.len(), 2);
    stage.record("order.paid", "", "{}").await;
    stage.until_number(ENDED, 8).await;
    assert_eq!(sink.requests().len(), 4);
    stage.strike().await;
}

#[tokio::test]
async fn where_the_scope_function_fails_or_says_nothing_nothing_is_delivered_everybody_else_is_and_it_is_seen() {
    let (stage, sink) = (Stage::set().await, Sink::start().await.unwrap());
    let (frail, _) = (stage.of_team(&sink, "frail").await, stage.of_team(&sink, "well").await);
    stage.scope("select case when labels ->> 'team' = 'well' then true when data ->> 'n' = '1' then null else 1 / (data ->> 'n')::int = 0 end").await;
    assert_eq!(stage.would("{\"n\": 0}").await, BTreeSet::from(["well".to_owned()]));
    for n in [0, 1, 2] {
        stage.record("order.paid", "", &format!("{{\"n\": {n}}}")).await;
        stage.until_number(ENDED, 2 * (n + 1)).await;
    }
    assert_eq!(paths(&sink).iter().filter(|path| *path == "well").count(), 3, "nobody waits for it");
    let (yes, no) = (told("delivered", ""), told("discarded", FAILED));
    assert_eq!(stage.ends().await, [no.clone(), yes.clone(), no, yes.clone(), yes.clone(), yes]);
    // it is seen: as an alert, as a number, as events of those that were given up, and by whoever asks for it
    let alerts = inspect::alerts(stage.pool()).await.unwrap();
    let alert = alerts.iter().find(|alert| alert.name == "scope_function_fails").unwrap();
    assert_eq!((alert.severity, alert.subject.as_str()), (Severity::Critical, "function app.in_scope"));
    assert!(alert.says.contains(" of 2 deliveries ") && alert.says.contains(" with null: "), "{}", alert.says);
    let figures = stage.endpoints.figures().await.unwrap();
    assert!(figures.iter().any(|f| f.name == "postrider.webhook.scope_failures" && f.value == 2), "{figures:?}");
    assert_eq!(
        stage.number("select count(*) from postrider.event where type = 'postrider.delivery.exhausted'").await,
        2
    );
    let view = stage.endpoints.scope().await.unwrap().unwrap();
    assert_eq!((view.function.as_str(), view.failures), ("app.in_scope", 2));
    assert_eq!(view.error.as_deref(), Some("null: it said neither yes nor no"));
    // put right, what was given up is sent
    stage.make("select true").await;
    assert_eq!(stage.endpoints.redeliver_discarded(frail).await.unwrap(), 2);
    stage.until_number("select count(*) from postrider.done where state = 2", 6).await;
    // and one that is gone lets nothing through
    sqlx::raw_sql("drop function app.in_scope").execute(stage.pool()).await.unwrap();
    stage.record("order.paid", "", "{}").await;
    stage.until_number("select count(*) from postrider.done where state = 3", 2).await;
    assert_eq!((sink.requests().len(), stage.would("{}").await.len()), (6, 0));
    assert!(stage.endpoints.scope().await.unwrap().unwrap().error.unwrap().starts_with("42883: "));
    stage.strike().await;
}

#[tokio::test]
async fn what_is_the_databases_trouble_is_no_answer_of_the_scope_function_and_tried_again() {
    let (stage, sink) = (Stage::set().await, Sink::start().await.unwrap());
    stage.of_team(&sink, "billing").await;
    sqlx::raw_sql(AssertSqlSafe(format!(
        "create schema app;
         create function app.in_scope({ARGUMENTS}) returns boolean language plpgsql stable as $$
         begin raise deadlock_detected; end $$"
    )))
    .execute(stage.pool())
    .await
    .unwrap();
    stage.endpoints.set_scope(Some("app.in_scope")).await.unwrap();
    stage.record("order.paid", "", "{}").await;
    stage.until_number("select count(*) from postrider.later", 1).await;
    assert_eq!((stage.number(ENDED).await, stage.endpoints.scope().await.unwrap().unwrap().failures), (0, 0));
    stage.make("select true").await;
    stage.pass(Duration::from_mins(1)).await;
    stage.until("delivered").await;
    assert_eq!(sink.requests().len(), 1);
    stage.strike().await;
}

#[tokio::test]
async fn the_scope_is_asked_at_each_way_to_an_endpoint_but_a_test() {
    let (stage, sink) = (Stage::set().await, Sink::start().await.unwrap());
    let id = stage.of_team(&sink, "billing").await;
    stage.record("order.paid", "", "{}").await;
    let taken = stage.until("delivered").await.id;
    stage.endpoints.disable(id, "moving house").await.unwrap();
    stage.record("order.paid", "", "{}").await;
    stage.until("held").await;
    stage.scope("select false").await;
    // what was held, what is sent once more, as new, and what is replayed
    stage.endpoints.enable(id).await.unwrap();
    stage.until("cancelled").await;
    stage.endpoints.redeliver(&taken).await.unwrap();
    stage.until_number("select count(*) from postrider.done where state = 4", 2).await;
    stage.endpoints.redeliver_as_new(&taken).await.unwrap();
    stage.until_number("select count(*) from postrider.done where state = 4", 3).await;
    let now = stage.number("select (extract(epoch from clock_timestamp()) * 1000000)::bigint").await;
    let at = Timestamp::from_micros;
    let plan =
        stage.endpoints.plan_replay(id, &NewReplay::new(at(now - 3_600_000_000), at(now))).await.unwrap().unwrap();
    assert!(stage.endpoints.start_replay(plan.id).await.unwrap());
    stage.until_number("select count(*) from postrider.delivery_replay where state = 'done'", 1).await;
    stage.until_number("select count(*) from postrider.done where state = 4", 4).await;
    assert_eq!(sink.requests().len(), 1);
    stage.endpoints.send_test(id).await.unwrap();
    assert_eq!(sink.wait_for(2, SOON).await.len(), 2, "a test tells nothing of anybody");
    // and what Postrider tells of an endpoint
    stage.create(NewEndpoint::new("watcher", sink.url("/watcher"), ["postrider.endpoint.disabled"])).await;
    stage.endpoints.disable(id, "moving house").await.unwrap();
    stage.until_number("select count(*) from postrider.done where state = 4", 5).await;
    assert_eq!(sink.requests().len(), 2);
    stage.strike().await;
}

#[tokio::test]
async fn in_an_ordered_endpoint_what_is_out_of_scope_holds_nobody_up_and_labels_that_change_hold_for_the_next() {
    let (stage, sink) = (Stage::set().await, Sink::start().await.unwrap());
    let new = NewEndpoint { order: Some(Order::Park(1)), ..NewEndpoint::new("stock", sink.url("/in"), ["order.*"]) };
    let (id, _) = stage.create(new).await;
    stage.scope("select coalesce(labels ->> 'team', '') = coalesce(data ->> 'team', '')").await;
    for team in ["\"a\"", "null", "\"b\"", "null"] {
        stage.record("order.paid", "", &format!("{{\"team\": {team}}}")).await;
    }
    stage.until_number(ENDED, 4).await;
    assert_eq!(sink.requests().len(), 2);
    let labels = BTreeMap::from([("team".to_owned(), "b".to_owned())]);
    stage.endpoints.update(id, EndpointChange { labels: Some(labels), ..EndpointChange::default() }).await.unwrap();
    for team in ["\"a\"", "\"b\""] {
        stage.record("order.paid", "", &format!("{{\"team\": {team}}}")).await;
    }
    stage.until_number(ENDED, 6).await;
    assert_eq!(sink.requests().len(), 3);
    stage.strike().await;
}

#[tokio::test]
async fn what_is_no_scope_function_is_refused_with_what_to_do() {
    let stage = Stage::set().await;
    stage.scope("select true").await;
    sqlx::raw_sql(AssertSqlSafe(format!(
        "create function app.volatile({ARGUMENTS}) returns boolean language sql as 'select true';
         create function app.text({ARGUMENTS}) returns text language sql stable as 'select null::text';
         create function app.many({ARGUMENTS}) returns setof boolean language sql stable as 'select true';
         create function app.few(labels json, owner text) returns boolean language sql stable as 'select true';
         create function app.jsonb(labels jsonb, owner text, type text, subject text, data jsonb) returns boolean language sql stable as 'select true';
         create function app.\"Immutable\"({ARGUMENTS}) returns boolean language sql immutable as 'select true'"
    )))
    .execute(stage.pool())
    .await
    .unwrap();
    for (name, says) in [
        ("in_scope", "is not the name of a function in a schema"),
        ("db.app.in_scope", "is not the name of a function in a schema"),
        ("app.in_scope(json)", "is not the name of a function in a schema"),
        ("app.", "is not the name of a function in a schema"),
        ("", "is not the name of a function in a schema"),
        ("app.never", "there is no function app.never(json, text, text, text, json)"),
        ("app.few", "there is no function"),
        ("app.jsonb", "there is no function"),
        ("app.immutable", "there is no function"),
        ("app.text", "does not return a boolean"),
        ("app.many", "does not return a boolean"),
        ("app.volatile", "is volatile"),
    ] {
        let refused = stage.endpoints.set_scope(Some(name)).await.unwrap_err();
        assert_eq!(refused.code().map(postrider::Code::as_str), Some("PR005"), "{name}: {refused}");
        let refused = refused.to_string();
        assert!(refused.contains(" scope: ") && refused.contains(says), "{name}: {refused}");
        assert_eq!(stage.endpoints.scope().await.unwrap().unwrap().function, "app.in_scope");
    }
    stage.endpoints.set_scope(Some("app.\"Immutable\"")).await.unwrap();
    assert_eq!(stage.endpoints.scope().await.unwrap().unwrap().function, "app.\"Immutable\"");
    stage.strike().await;
}

#[tokio::test]
async fn the_scope_function_runs_with_the_rights_of_whoever_delivers_and_reads_only() {
    let (db, sink) = (TestDb::fresh().await, Sink::start().await.unwrap());
    // the role is of the whole server
    let role = format!("courier_{}", std::process::id());
    sqlx::raw_sql(AssertSqlSafe(format!(
        "create role {role}; grant usage on schema postrider to {role};
         grant all on all tables in schema postrider to {role}; grant all on all sequences in schema postrider to {role};
         grant execute on all functions in schema postrider to {role};
         create schema app; grant usage on schema app to {role};
         create table app.secret (n int); create table app.open (n int); grant all on app.open to {role};
         create function app.in_scope({ARGUMENTS}) returns boolean language plpgsql stable as $$
         begin
             if data ->> 'does' = 'read' then
                 return (select count(*) from app.secret) = 0;
             elsif data ->> 'does' = 'write' then
                 insert into app.open values (1);
             end if;
             return current_user = '{role}';
         end $$"
    )))
    .execute(db.pool())
    .await
    .unwrap();
    let sql = format!("set role {role}");
    let courier = PgPoolOptions::new()
        .after_connect(move |connection, _| {
            let sql = AssertSqlSafe(sql.clone());
            Box::pin(async move { sqlx::raw_sql(sql).execute(connection).await.map(drop) })
        })
        .connect(db.url())
        .await
        .unwrap();
    let seal = || Seal::parse([SEAL_KEY]).unwrap();
    let deliverer = Deliverer::new(courier.clone(), seal(), Client::new(guard(), []).unwrap());
    let bus = Bus::builder(db.pool().clone())
        .app("test")
        .types([EventTypeSpec::new("order.paid").public()])
        .kinds([Kind::component(kind_spec()).handler(Arc::new(deliverer)), replay_kind(db.pool().clone())])
        .settings(Settings { beat: Duration::from_millis(100), ..Settings::default() })
        .build()
        .await
        .unwrap();
    let running = bus.start().unwrap();
    let stage = Stage { endpoints: Endpoints::new(courier, seal(), guard()), db, bus, running };
    stage.endpoint("billing", &sink.url("/in")).await;
    stage.endpoints.set_scope(Some("app.in_scope")).await.unwrap();
    for (n, (does, state, error)) in
        [("nothing", "delivered", ""), ("read", "discarded", "42501: "), ("write", "discarded", "0A000: ")]
            .into_iter()
            .enumerate()
    {
        let data = format!("{{\"does\": \"{does}\"}}");
        assert_eq!(stage.would(&data).await.len(), usize::from(n == 0), "{does}");
        stage.record("order.paid", "", &data).await;
        stage.until_number(ENDED, i64::try_from(n).unwrap() + 1).await;
        assert_eq!(stage.ends().await[n].0, state, "{does}");
        let said = stage.endpoints.scope().await.unwrap().unwrap().error.unwrap_or_default();
        assert!(said.starts_with(error), "{does}: {said}");
    }
    assert_eq!((sink.requests().len(), stage.number("select count(*) from app.open").await), (1, 0));
    let Stage { db, running, endpoints, .. } = stage;
    running.stop(GRACE).await;
    endpoints.list().await.unwrap();
    sqlx::raw_sql(AssertSqlSafe(format!("drop owned by {role}; drop role {role}"))).execute(db.pool()).await.unwrap();
}

#[tokio::test]
async fn without_a_scope_function_nothing_is_asked() {
    let (stage, sink) = (Stage::set().await, Sink::start().await.unwrap());
    stage.of_team(&sink, "billing").await;
    // whoever asked it would fail
    sqlx::raw_sql("drop function postrider.ask_scope").execute(stage.pool()).await.unwrap();
    stage.record("order.paid", "", "{}").await;
    stage.until("delivered").await;
    stage.scope("select true").await;
    stage.record("order.paid", "", "{}").await;
    stage.until("discarded").await;
    assert_eq!(sink.requests().len(), 1);
    stage.strike().await;
}
