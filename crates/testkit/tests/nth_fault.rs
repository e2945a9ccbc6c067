//! F09, F08: each operation is cut at each of its messages, in both directions. It is done as a whole or not at all, it may be done
//! again, and its caller is never told that something was not done which was.
#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a failed helper is a failed test")]

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::str::FromStr;
use std::time::Duration;

use postrider::{
    Bus, Error, Jobs, Kind, NewEvent, NewJob, Payload, PgJobs, Recorder, Resolution, Statement, Subscription, Witness,
};
use postrider_testkit::proxy::{At, Cut, Fault, Proxy, Script};
use postrider_testkit::{TestDb, until};
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::{ConnectOptions, Connection, Executor, PgConnection, PgPool};
use tokio::time::{Instant, sleep, timeout};
use uuid::Uuid;

const SOON: Duration = Duration::from_mins(1);
const ME: Uuid = Uuid::from_u128(1);
const OTHER: Uuid = Uuid::from_u128(2);

/// What is cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Op {
    /// An event beside a business row, committed by its caller.
    Record,
    /// An event in a statement of its own, under an idempotency key.
    RecordAlone,
    /// Two jobs beside a business row, committed by their caller.
    Enqueue,
    /// So many jobs in a call of their own.
    EnqueueAlone(usize),
    /// Two jobs to be leased, one to be parked.
    Claim,
    /// The same with a row of a handler that watches claims.
    ClaimWatched,
    /// One outcome of each sort.
    Finish,
    /// A beat that hands back, rescues, promotes and unparks.
    Tick,
    /// Three events for two subscriptions.
    Relay,
    /// A goodbye with jobs still leased.
    Leave,
}

/// What the caller was told.
#[derive(Debug)]
enum Told {
    Done,
    NotDone,
    /// Perhaps done; with the transaction to ask about, if it is known.
    Unknown(Option<Witness>),
}

impl<T> From<Result<T, Error>> for Told {
    fn from(result: Result<T, Error>) -> Self {
        match result {
            Ok(_) => Self::Done,
            Err(error) if error.is_unknown() => Self::Unknown(None),
            Err(_) => Self::NotDone,
        }
    }
}

/// The engine takes each failure of its own for perhaps done.
fn perhaps<T>(result: sqlx::Result<T>) -> Told {
    result.map_or(Told::Unknown(None), |_| Told::Done)
}

const SETUP: &str = "
    create table public.booking (id bigint primary key);
    create table public.base (relayed bigint);
    insert into public.base values (0);";

const CLEAR: &str = "
    delete from postrider.ready; delete from postrider.later; delete from postrider.parked; delete from postrider.lease;
    delete from postrider.done; delete from postrider.attempt; delete from postrider.job; delete from postrider.worker;
    delete from postrider.event; delete from postrider.idempotency; delete from public.booking;
    update public.base set relayed = (select events_total from postrider.cut order by no desc limit 1);";

const FIRST: &str = "00000000-0000-0000-0000-000000000001";

fn seed(op: Op) -> String {
    let me = format!("insert into postrider.worker values ('{FIRST}', 'nth', '', '', 1, '{{default}}', '{{t.a}}');");
    let claim = |worker: &str, call: i64, most: i64| {
        format!(
            "select count(*) from postrider.claim('{worker}', {call}, 'default', '{{t.a}}', {most}, '{{2}}', '{{0}}', '{{0}}');"
        )
    };
    let jobs = |n: i64| format!("select postrider.enqueue('t.a') from generate_series(1, {n});");
    let parts = match op {
        Op::Record | Op::RecordAlone | Op::Enqueue | Op::EnqueueAlone(_) => vec![],
        Op::Claim | Op::ClaimWatched => vec![me, jobs(2), "select postrider.enqueue('t.b');".to_owned()],
        // the seventh stays open, and its lease with it
        Op::Finish => vec![me, jobs(7), claim(FIRST, 1, 7)],
        Op::Leave => vec![me, jobs(2), claim(FIRST, 1, 2)],
        Op::Relay => {
            vec!["select postrider.record('order.made', 'order/' || n) from generate_series(1, 3) n;".to_owned()]
        }
        Op::Tick => vec![
            me,
            format!(
                "insert into postrider.worker (id, app, version, host, pid, queues, kinds, beat) values ('{OTHER}', '', '', '', 2, '{{}}', '{{}}', 5);"
            ),
            jobs(4),
            claim(FIRST, 1, 2), // whose reply was lost
            claim(FIRST, 2, 1), // which is held
            claim(&OTHER.to_string(), 1, 1),
            "select postrider.enqueue('t.b');".to_owned(),
            claim(FIRST, 3, 1), // which parks it
            "select postrider.enqueue('t.a', run_at => clock_timestamp() + interval '1 hour');
             update postrider.later set run_at = clock_timestamp();"
                .to_owned(),
        ],
    };
    // each statement sees what the one before it committed
    [vec![CLEAR.to_owned()], parts].concat().join("\n")
}

/// Where each job is, by its place in the order of ids, and what else there is.
const STATE: &str = "
    with place as (
        select id, 'ready' as name, attempt from postrider.ready
        union all select id, 'later ' || why, attempt from postrider.later
        union all select id, 'parked ' || key, attempt from postrider.parked
        union all select o, 'leased', l.attempts[array_position(l.ids, o)] from postrider.lease l, unnest(l.open) o
        union all select id, 'done ' || ended_as, attempt from postrider.done
    ), job as (select j.id, row_number() over (order by j.id) as n, j.event_seq from postrider.job j)
    select concat_ws('; ',
        (select string_agg(coalesce(j.n::text, 'no job') || ' ' || coalesce(p.name || ' ' || p.attempt, 'nowhere'), ', '
                           order by j.n, p.name) from job j full join place p using (id)),
        (select 'twice: ' || string_agg(id::text, ',') from (select id from place group by id having count(*) > 1) x),
        (select 'open but not of its lease' from postrider.lease where not open <@ ids or open = '{}' limit 1),
        (select 'made by no event' from job j
          where event_seq is not null and not exists (select from postrider.event e where e.seq = j.event_seq) limit 1),
        (select count(*) from postrider.event) || ' events', (select count(*) from public.booking) || ' bookings',
        (select count(*) from postrider.attempt) || ' attempts', (select count(*) from postrider.worker) || ' workers',
        (select events_total from postrider.cut order by no desc limit 1) - (select relayed from public.base) || ' relayed')";

/// The state, with the invariant that holds in every one of them: a job is in exactly one place, and a place holds jobs.
async fn state(pool: &PgPool) -> String {
    let state: String = sqlx::query_scalar(STATE).fetch_one(pool).await.unwrap();
    for broken in ["nowhere", "no job", "twice", "open but", "made by no"] {
        assert!(!state.contains(broken), "{broken}: {state}");
    }
    state
}

fn statement(name: &str) -> &'static Statement {
    postrider::statements().into_iter().find(|statement| statement.name == name).unwrap()
}

async fn claim(connection: &mut PgConnection, call: i64) -> sqlx::Result<usize> {
    let query = statement("sql/claim.sql").query().bind(ME).bind(call).bind("default").bind(vec!["t.a"]).bind(10);
    let query = query.bind(vec![2_i16]).bind(vec![0_i16]).bind(vec![0_i64]).bind(0).bind(vec![0_i64]);
    let rows = query.fetch_all(connection).await?;
    Ok(rows.len())
}

/// A beat; `more` is the rest of its report.
async fn tick(connection: &mut PgConnection, held: &[i64], settled: i64, more: &str) -> sqlx::Result<()> {
    let report = format!(
        r#"{{"app": "nth", "version": "", "host": "", "pid": 1, "queues": ["default"], "held": {held:?}, "settled": {settled}, {more}}}"#
    );
    statement("sql/tick.sql").query().bind(ME).bind(report).bind(None::<String>).fetch_one(connection).await.map(drop)
}

async fn finish(connection: &mut PgConnection, lease: i64, ids: Vec<i64>) -> sqlx::Result<usize> {
    let reasons: Vec<Option<String>> = vec![None, Some("e".into()), None, Some("r".into()), Some("x".into()), None];
    let query = statement("sql/finish.sql").query().bind(ME).bind(vec![lease; 6]).bind(ids);
    let outcomes: Vec<i16> = (1..=6).collect();
    let query = query.bind(outcomes).bind(vec![60_000_i64; 6]).bind(reasons).bind(None::<Vec<String>>);
    Ok(query.fetch_all(connection).await?.len())
}

/// What the worker knows when it begins.
#[derive(Debug, Default)]
struct Known {
    leases: Vec<i64>,
    open: Vec<i64>,
}

impl Known {
    async fn of(pool: &PgPool) -> Self {
        let leases = "select id from postrider.lease where worker = $1 order by id";
        let open = "select o from postrider.lease, unnest(open) o where worker = $1 order by o";
        Self {
            leases: sqlx::query_scalar(leases).bind(ME).fetch_all(pool).await.unwrap(),
            open: sqlx::query_scalar(open).bind(ME).fetch_all(pool).await.unwrap(),
        }
    }
}

impl Op {
    async fn run(self, options: &PgConnectOptions, known: &Known) -> Told {
        if let Self::EnqueueAlone(n) = self {
            let pool = PgPoolOptions::new().max_connections(1).acquire_timeout(SOON).connect_lazy_with(options.clone());
            return PgJobs::new(pool).enqueue(None, &jobs(n)).await.into();
        }
        let Ok(mut connection) = options.connect().await else { return Told::NotDone };
        let c = &mut connection;
        match self {
            Self::Record | Self::Enqueue => beside_a_row(c, self).await,
            Self::RecordAlone => Recorder::new().record(c, &event(Some("once"))).await.into(),
            Self::EnqueueAlone(_) => unreachable!("done above"),
            Self::Claim => perhaps(claim(c, 1).await),
            Self::ClaimWatched => perhaps(claim_watched(c, 1).await),
            Self::Finish => perhaps(finish(c, known.leases[0], known.open[..6].to_vec()).await),
            Self::Tick => {
                let more = format!(r#""kinds": ["t.a", "t.b"], "dead": [{{"worker": "{OTHER}", "beat": 5}}]"#);
                perhaps(tick(c, &known.leases[1..], 3, &more).await)
            }
            Self::Relay => perhaps(statement("sql/relay.sql").query().bind(2_000).bind(false).fetch_one(c).await),
            Self::Leave => perhaps(statement("sql/leave.sql").query().bind(ME).fetch_one(c).await),
        }
    }

    /// What its caller does after it was told `told`, on a connection that works.
    async fn again(self, options: &PgConnectOptions, known: &Known, told: &Told) {
        let mut connection = options.connect().await.unwrap();
        match (self, told) {
            (Self::Record | Self::Enqueue, Told::Unknown(Some(witness)))
                if Recorder::new().resolve(&mut connection, witness.clone()).await.unwrap()
                    == Resolution::Committed =>
            {
                return;
            }
            // the next beat hands back what was not received
            (Self::Claim | Self::ClaimWatched, _) => {
                tick(&mut connection, &[], 1, r#""kinds": ["t.a"]"#).await.unwrap();
                let claimed = match self {
                    Self::Claim => claim(&mut connection, 2).await,
                    _ => claim_watched(&mut connection, 2).await,
                };
                assert_eq!(claimed.unwrap(), 2);
                return;
            }
            _ => {}
        }
        let told = self.run(options, known).await;
        assert!(matches!(told, Told::Done), "{self:?}: {told:?}");
    }
}

fn event(key: Option<&str>) -> NewEvent {
    let event = NewEvent::new("order.made", "order/42", Payload::of(&42).unwrap());
    NewEvent { idempotency_key: key.map(str::to_owned), ..event }
}

fn jobs(n: usize) -> Vec<NewJob> {
    (0..n).map(|i| NewJob::new("t.a", Payload::of(&i).unwrap())).collect()
}

async fn beside_a_row(connection: &mut PgConnection, op: Op) -> Told {
    // a transaction whose commit was never sent is rolled back
    let Ok(mut tx) = connection.begin().await else { return Told::NotDone };
    if tx.execute("insert into public.booking values (1)").await.is_err() {
        return Told::NotDone;
    }
    let witness = if op == Op::Record {
        Recorder::new().record(&mut *tx, &event(None)).await.map(|recorded| Witness::from(&recorded))
    } else {
        let pool = PgPoolOptions::new().connect_lazy_with(PgConnectOptions::new());
        PgJobs::new(pool).enqueue(Some(&mut *tx), &jobs(2)).await.map(|enqueued| Witness::from(&enqueued[0]))
    };
    let Ok(witness) = witness else { return Told::NotDone };
    if tx.commit().await.is_ok() { Told::Done } else { Told::Unknown(Some(witness)) }
}

async fn claim_watched(connection: &mut PgConnection, call: i64) -> sqlx::Result<usize> {
    let mut tx = connection.begin().await?;
    let claimed = claim(&mut tx, call).await?;
    tx.execute("insert into public.booking values (1) on conflict do nothing").await?;
    tx.commit().await?;
    Ok(claimed)
}

/// A database, what stands before it, and what each operation does there when nothing goes wrong.
struct Stage {
    db: TestDb,
    direct: PgConnectOptions,
    proxy: Proxy,
}

/// How many faults there were, and what the operations had done by then.
#[derive(Debug, Default)]
struct Tally {
    points: usize,
    landed: usize,
    unknown: usize,
    told: BTreeMap<&'static str, usize>,
}

impl Stage {
    async fn set() -> Self {
        let db = TestDb::fresh().await;
        let subscriptions = ["a", "b"].map(|name| Subscription::new(format!("note.{name}"), ["order.*"]));
        let bus = Bus::builder(db.pool().clone()).app("nth").types(["order.made"]).subscriptions(subscriptions);
        bus.kinds(["t.a", "t.b"].map(Kind::new)).build().await.unwrap();
        db.pool().execute(SETUP).await.unwrap();
        let proxy = Proxy::before(db.url()).await;
        Self { direct: PgConnectOptions::from_str(db.url()).unwrap(), db, proxy }
    }

    fn through(&self) -> PgConnectOptions {
        PgConnectOptions::from_str(&self.proxy.url()).unwrap().application_name("nth")
    }

    async fn seed(&self, op: Op) -> (Known, String) {
        self.db.pool().execute(sqlx::raw_sql(sqlx::AssertSqlSafe(seed(op)))).await.unwrap();
        (Known::of(self.db.pool()).await, state(self.db.pool()).await)
    }

    /// Waits until the server has ended what came through the proxy.
    async fn nothing_is_under_way(&self) {
        let started = Instant::now();
        let sql =
            "select count(*) from pg_stat_activity where datname = current_database() and application_name = 'nth'";
        while sqlx::query_scalar::<_, i64>(sql).fetch_one(self.db.pool()).await.unwrap() > 0 {
            assert!(started.elapsed() < SOON, "a connection is left");
            sleep(Duration::from_millis(1)).await;
        }
    }

    /// The messages of an operation: those of the client and those of the server; and what it leaves.
    async fn count(&self, op: Op) -> ([RangeInclusive<u64>; 2], String) {
        self.proxy.script(|_| Script::new());
        let base = self.proxy.counts();
        self.through().connect().await.unwrap();
        let connected = self.proxy.counts();
        let (known, before) = self.seed(op).await;
        let told = op.run(&self.through(), &known).await;
        assert!(matches!(told, Told::Done), "{op:?}: {told:?}");
        let all = self.proxy.counts();
        self.nothing_is_under_way().await;
        let after = state(self.db.pool()).await;
        assert_ne!(before, after, "{op:?}");
        let connecting = [connected.frontends() - base.frontends(), connected.backends() - base.backends()];
        let total = [all.frontends() - connected.frontends(), all.backends() - connected.backends()];
        // one operation is cut while it connects as well
        let first = if op == Op::Record { [0, 0] } else { connecting };
        ([first[0] + 1..=total[0], first[1] + 1..=total[1]], after)
    }

    async fn cut(&self, op: Op, (at, cut): (At, Cut), after: &str, tally: &mut Tally) {
        let (known, before) = self.seed(op).await;
        let fired = self.proxy.fired();
        let fault = at.clone();
        self.proxy.script(move |_| Script::new().at(fault.clone(), Fault::Cut(cut)));
        let told = op.run(&self.through(), &known).await;
        self.nothing_is_under_way().await;
        if self.proxy.fired() == fired && matches!((op, &told), (Op::EnqueueAlone(_), Told::Done)) {
            // the pool had not yet looked after the connection that was given back
            return;
        }
        assert_eq!(self.proxy.fired(), fired + 1, "{op:?}: nothing happened {cut:?} {at:?}");
        let pool = self.db.pool();
        let found = state(pool).await;
        let end = |state: &str| state.get(state.len().saturating_sub(400)..).unwrap_or_default().to_owned();
        let (was, is, may_be) = (end(&before), end(&found), end(after));
        assert!(found == before || found == after, "{op:?}, {cut:?} {at:?}: torn\n{was}\n{is}\n{may_be}");
        let landed = found == after;
        tally.points += 1;
        tally.landed += usize::from(landed);
        let word = match &told {
            Told::Done => "done",
            Told::NotDone => "not done",
            Told::Unknown(None) => "unknown",
            Told::Unknown(Some(witness)) => {
                let mut connection = pool.acquire().await.unwrap();
                let resolved = Recorder::new().resolve(&mut *connection, witness.clone()).await.unwrap();
                let truth = if landed { Resolution::Committed } else { Resolution::Aborted };
                assert_eq!(resolved, truth, "{op:?}, {cut:?} {at:?}");
                tally.unknown += 1;
                "unknown"
            }
        };
        *tally.told.entry(word).or_default() += 1;
        match (word, landed) {
            ("done", false) => panic!("{op:?}, {cut:?} {at:?}: it was told as done and is not"),
            ("not done", true) => panic!("{op:?}, {cut:?} {at:?}: it was told as not done and is"),
            _ => {}
        }
        op.again(&self.direct, &known, &told).await;
        let end = state(pool).await;
        if let (Op::EnqueueAlone(n), true) = (op, landed) {
            // nothing tells these jobs from others: who must know enqueues them in a transaction
            let jobs: i64 = sqlx::query_scalar("select count(*) from postrider.ready").fetch_one(pool).await.unwrap();
            assert_eq!(usize::try_from(jobs).unwrap(), 2 * n);
        } else {
            assert_eq!(end, after, "{op:?}, {cut:?} {at:?}: done again");
        }
    }
}

/// Cuts an operation at each of its messages that `asked` is for, in both ways, and tells how it went.
async fn at_every_message(op: Op, asked: fn(u64) -> bool) -> String {
    let stage = Stage::set().await;
    let ([frontend, backend], after) = stage.count(op).await;
    let mut tally = Tally::default();
    // one kind is enough where it takes long
    let cuts = if op == Op::EnqueueAlone(1_001) { &[Cut::Rst][..] } else { &[Cut::Fin, Cut::Rst] };
    for &cut in cuts {
        for n in frontend.clone() {
            stage.cut(op, (At::Frontend(n), cut), &after, &mut tally).await;
        }
        for n in backend.clone().filter(|n| asked(*n)) {
            stage.cut(op, (At::Backend(n), cut), &after, &mut tally).await;
        }
    }
    let Tally { points, landed, unknown, told } = tally;
    assert!(landed > 0 && landed < points, "{op:?}: {landed} of {points} landed");
    format!("{op:?}: {points} cut points, 0 broken; {landed} had landed; told {told:?}; {unknown} resolved")
}

const ALL: fn(u64) -> bool = |_| true;

#[tokio::test]
async fn an_event_and_its_business_row_exist_together_or_not_at_all_and_the_client_can_ask_which() {
    println!("{}", at_every_message(Op::Record, ALL).await);
}

#[tokio::test]
async fn an_event_with_an_idempotency_key_may_be_recorded_again() {
    println!("{}", at_every_message(Op::RecordAlone, ALL).await);
}

#[tokio::test]
async fn jobs_and_their_business_row_exist_together_or_not_at_all_and_the_client_can_ask_which() {
    println!("{}", at_every_message(Op::Enqueue, ALL).await);
}

#[tokio::test]
async fn jobs_of_one_call_are_enqueued_all_or_none() {
    println!("{}", at_every_message(Op::EnqueueAlone(2), ALL).await);
}

#[tokio::test]
async fn jobs_of_one_call_are_enqueued_all_or_none_also_if_they_take_several_statements() {
    // each message that is no row, and some that are
    println!("{}", at_every_message(Op::EnqueueAlone(1_001), |n| n < 30 || n % 199 == 0 || n > 1_020).await);
}

#[tokio::test]
async fn a_claim_whose_reply_was_lost_is_handed_back_and_claimed_again() {
    println!("{}", at_every_message(Op::Claim, ALL).await);
    println!("{}", at_every_message(Op::ClaimWatched, ALL).await);
}

#[tokio::test]
async fn outcomes_that_are_told_again_change_nothing() {
    println!("{}", at_every_message(Op::Finish, ALL).await);
}

#[tokio::test]
async fn a_beat_may_be_told_again() {
    println!("{}", at_every_message(Op::Tick, ALL).await);
}

#[tokio::test]
async fn events_are_fanned_out_once() {
    println!("{}", at_every_message(Op::Relay, ALL).await);
}

#[tokio::test]
async fn a_goodbye_may_be_said_again() {
    println!("{}", at_every_message(Op::Leave, ALL).await);
}

#[tokio::test]
async fn every_commit_that_was_not_answered_is_resolved_as_it_ended() {
    let stage = Stage::set().await;
    let mut tally = Tally::default();
    for op in [Op::Record, Op::Enqueue] {
        let (_, after) = stage.count(op).await;
        for _ in 0..10 {
            for cut in [Cut::Fin, Cut::Rst] {
                for at in [At::Commit(1), At::Committed(1)] {
                    let landed = tally.landed + usize::from(at == At::Committed(1));
                    stage.cut(op, (at, cut), &after, &mut tally).await;
                    assert_eq!(tally.landed, landed);
                }
            }
        }
    }
    println!("{} commits cut, {} resolved as they ended", tally.points, tally.unknown);
    assert_eq!((tally.points, tally.unknown), (80, 80));
}

#[tokio::test]
async fn a_transaction_that_the_server_still_holds_open_is_in_progress() {
    let stage = Stage::set().await;
    stage.seed(Op::Record).await;
    stage.proxy.script(|_| Script::new().at(At::Commit(1), Fault::BlackHole));
    let mut connection = stage.through().connect().await.unwrap();
    let mut tx = connection.begin().await.unwrap();
    let recorded = Recorder::new().record(&mut *tx, &event(None)).await.unwrap();
    timeout(Duration::from_millis(100), tx.commit()).await.unwrap_err();
    let mut clean = stage.direct.connect().await.unwrap();
    let resolved = Recorder::new().resolve(&mut clean, &recorded).await.unwrap();
    assert_eq!(resolved, Resolution::InProgress);
    stage.proxy.act(Fault::Cut(Cut::Rst));
    let ended = until("the server gives it up", SOON, async || {
        let resolved = Recorder::new().resolve(&mut clean, &recorded).await.unwrap();
        (resolved != Resolution::InProgress).then_some(resolved)
    });
    assert_eq!(ended.await, Resolution::Aborted);
}

#[tokio::test]
async fn what_was_refused_or_found_no_connection_was_not_done_and_says_so() {
    let stage = Stage::set().await;
    let (_, before) = stage.seed(Op::EnqueueAlone(1)).await;
    let pool = PgPoolOptions::new().max_connections(1).connect_with(stage.through()).await.unwrap();
    let jobs_of = PgJobs::new(pool.clone());
    let refused = jobs_of.enqueue(None, &[NewJob::new("no.such", Payload::of(&()).unwrap())]).await.unwrap_err();
    assert!(!refused.is_unknown() && !refused.is_transient(), "{refused:?}");
    stage.proxy.refuse(true);
    stage.proxy.act(Fault::Cut(Cut::Fin));
    let down = jobs_of.enqueue(None, &jobs(1)).await.unwrap_err();
    assert!(!down.is_unknown() && down.is_transient(), "{down:?}");
    stage.proxy.refuse(false);
    stage.proxy.script(|_| Script::new().at(At::Saying("postrider.enqueue".to_owned()), Fault::Cut(Cut::Fin)));
    let broken = jobs_of.enqueue(None, &jobs(1)).await.unwrap_err();
    assert!(broken.is_unknown() && broken.is_transient(), "{broken:?}");
    assert_eq!(state(stage.db.pool()).await, before);
}
