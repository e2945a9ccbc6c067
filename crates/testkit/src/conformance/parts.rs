use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use postrider::{
    Arg, BoxError, Code, Context, Enqueued, Error, Fut, Job, Jobs, Kind, KindSpec, NewJob, Retry, Row, Statement,
    Timestamp, Tx, Verdict, handler,
};
use sqlx::postgres::PgDatabaseError;
use sqlx::{PgConnection, PgPool};
use tokio::sync::Semaphore;
use tokio::sync::mpsc::UnboundedSender;

use super::Scene;

/// A kind that is tried three times, ten milliseconds apart.
pub fn quick(name: &str) -> KindSpec {
    let retry = Retry::Steps(vec![Duration::from_millis(10)]);
    KindSpec { retry, max_attempts: 3, ..KindSpec::new(name) }
}

/// What handlers wait at until the case lets them pass.
#[derive(Debug, Clone)]
pub struct Gate(Arc<Semaphore>);

impl Default for Gate {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(0)))
    }
}

impl Gate {
    /// Lets so many pass.
    pub fn open(&self, n: usize) {
        self.0.add_permits(n);
    }

    /// Takes back what nobody has used.
    pub fn shut(&self) {
        while let Ok(permit) = self.0.try_acquire() {
            permit.forget();
        }
    }

    /// Passes.
    pub async fn pass(&self) {
        if let Ok(permit) = self.0.acquire().await {
            permit.forget();
        }
    }
}

/// A kind whose handler tells each job that it is given, waits at a gate, and completes it.
pub fn gated(spec: KindSpec, mouth: UnboundedSender<Job>, gate: &Gate) -> Kind {
    let gate = gate.clone();
    Kind::spec(spec).handler(handler(move |job: Arc<Job>, _: Context| {
        let (told, gate) = (mouth.send((*job).clone()), gate.clone());
        async move {
            told.map_err(|_| BoxError::from("the case is over"))?;
            gate.pass().await;
            Ok(Verdict::Complete)
        }
    }))
}

/// A kind whose handler answers at once.
pub fn answering(spec: KindSpec, answer: impl Fn(&Job) -> Result<Verdict, BoxError> + Send + Sync + 'static) -> Kind {
    Kind::spec(spec).handler(handler(move |job: Arc<Job>, _: Context| std::future::ready(answer(&job))))
}

/// A minute after now, by the clock of the database.
pub async fn minute_later(pool: &PgPool) -> Timestamp {
    let sql = "select (extract(epoch from clock_timestamp()) * 1000000)::bigint + 60000000";
    Timestamp::from_micros(sqlx::query_scalar(sql).fetch_one(pool).await.unwrap())
}

/// What was refused: its code and its field.
pub fn refused<T: std::fmt::Debug>(answer: Result<T, Error>) -> (Code, String) {
    match answer {
        Err(Error::Refused(refused)) => (refused.code, refused.field),
        other => panic!("not refused: {other:?}"),
    }
}

/// A transaction that counts the statements that are run in it.
pub struct Counting<'a> {
    tx: &'a mut PgConnection,
    /// So many.
    pub statements: usize,
}

impl std::fmt::Debug for Counting<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Counting").field("statements", &self.statements).finish_non_exhaustive()
    }
}

impl<'a> Counting<'a> {
    /// Over a transaction.
    pub fn new(tx: &'a mut PgConnection) -> Self {
        Self { tx, statements: 0 }
    }
}

impl Tx for Counting<'_> {
    fn run<'a>(&'a mut self, statement: &'static Statement, args: &'a [Arg<'a>]) -> Fut<'a, Vec<Row>> {
        self.statements += 1;
        self.tx.run(statement, args)
    }

    /// Whoever takes the connection is taken to have run something.
    fn as_sqlx(&mut self) -> Option<&mut PgConnection> {
        self.statements += 1;
        self.tx.as_sqlx()
    }
}

/// Puts one job in through a door; answers with its id and whether it is fresh, or with code and field of the refusal.
pub type Door<'a> = Box<dyn Fn(NewJob) -> BoxFuture<'a, Result<(String, bool), (String, String)>> + Send + Sync + 'a>;

/// Every door that the engine of a scene has, by name.
pub fn doors(scene: &Scene) -> Vec<(&'static str, Door<'_>)> {
    let mut doors: Vec<(&'static str, Door<'_>)> = vec![
        ("rust, one", Box::new(|job| Box::pin(rust(scene.jobs(), vec![job])))),
        (
            "rust, many",
            Box::new(|job| {
                // another one beside it: no shortcut for a single one
                let other = NewJob::new(job.kind.clone(), super::json(r#"{"other": true}"#));
                Box::pin(rust(scene.jobs(), vec![job, other]))
            }),
        ),
    ];
    if let Some(pool) = scene.stage().sql() {
        doors.push(("sql, one", Box::new(move |job| Box::pin(sql_one(pool, job)))));
        doors.push(("sql, many", Box::new(move |job| Box::pin(sql_many(pool, job)))));
    }
    doors
}

async fn rust(jobs: Arc<dyn Jobs>, new: Vec<NewJob>) -> Result<(String, bool), (String, String)> {
    match jobs.enqueue(None, &new).await {
        Ok(made) => {
            let Enqueued { id, fresh, .. } = made[0].clone();
            Ok((id.to_string(), fresh))
        }
        Err(Error::Refused(refused)) => Err((refused.code.to_string(), refused.field)),
        Err(other) => panic!("neither done nor refused: {other:?}"),
    }
}

const SQL_ONE: &str =
    "select id::text, fresh from postrider.enqueue($1, $2::json, $3, $4::int, $5::int, $6::timestamptz, $7, $8, $9,
    $10::interval, $11, $12, $13::json, $14, $15, $16)";

async fn sql_one(pool: &PgPool, job: NewJob) -> Result<(String, bool), (String, String)> {
    let window = job.unique.and_then(postrider::Unique::window_ms).map(|ms| format!("{ms} milliseconds"));
    let call = sqlx::query_as(SQL_ONE)
        .bind(&job.kind)
        .bind(job.args.as_str())
        .bind(&job.queue)
        .bind(job.priority)
        .bind(job.max_attempts)
        .bind(job.run_at.map(|at| at.to_string()))
        .bind(&job.owner)
        .bind(job.unique.map(postrider::Unique::name))
        .bind(&job.unique_key)
        .bind(window)
        .bind((job.on_duplicate == postrider::OnDuplicate::Replace).then_some("replace"))
        .bind(&job.idempotency_key)
        .bind(job.retry.as_ref().map(retry_json))
        .bind(&job.order_key)
        .bind(job.order.map(postrider::Order::policy))
        .bind(&job.limit_key);
    call.fetch_one(pool).await.map_err(|error| told(&error))
}

async fn sql_many(pool: &PgPool, job: NewJob) -> Result<(String, bool), (String, String)> {
    let window = job.unique.and_then(postrider::Unique::window_ms).map(|ms| format!("{ms} milliseconds"));
    let options = serde_json::json!({
        "kind": job.kind, "queue": job.queue, "priority": job.priority, "max_attempts": job.max_attempts, "run_at": job.run_at,
        "owner": job.owner, "unique_mode": job.unique.map(postrider::Unique::name), "unique_key": job.unique_key,
        "unique_for": window, "idempotency_key": job.idempotency_key, "order_key": job.order_key,
        "order_policy": job.order.map(postrider::Order::policy), "limit_key": job.limit_key,
        "on_duplicate": (job.on_duplicate == postrider::OnDuplicate::Replace).then_some("replace"),
    });
    // as text: a payload may be one that a serialiser refuses
    let retry = job.retry.as_ref().map_or_else(String::new, |retry| format!(r#","retry":{}"#, retry_json(retry)));
    let text = options.to_string();
    let text = format!(r#"[{},"args":{}{retry}}}]"#, text.trim_end_matches('}'), job.args.as_str());
    let call = sqlx::query_as("select id::text, fresh from postrider.enqueue_many($1::json)").bind(text);
    call.fetch_one(pool).await.map_err(|error| told(&error))
}

fn retry_json(retry: &Retry) -> String {
    match retry {
        Retry::Backoff { first, most } => {
            format!(r#"{{"first_ms":{},"most_ms":{}}}"#, first.as_millis(), most.as_millis())
        }
        Retry::Steps(steps) => {
            let steps: Vec<String> = steps.iter().map(|step| step.as_millis().to_string()).collect();
            format!(r#"{{"steps_ms":[{}]}}"#, steps.join(","))
        }
    }
}

/// The code and the field of an error of the database.
fn told(error: &sqlx::Error) -> (String, String) {
    let pg = error.as_database_error().and_then(|e| e.try_downcast_ref::<PgDatabaseError>());
    let pg = pg.unwrap_or_else(|| panic!("no answer of the database: {error}"));
    (pg.code().to_owned(), pg.column().unwrap_or_else(|| panic!("it names no field: {error}")).to_owned())
}
