//! Several processes on one stage, and what may befall them.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use postrider::{
    BoxError, Context, Error, Filter, Job, JobId, JobView, Kind, KindSpec, Retry, Runtime, Settings, State, Verdict,
    Waits, handler,
};
use sqlx::AssertSqlSafe;
use sqlx::postgres::PgPoolOptions;
use tokio::sync::Semaphore;
use tokio::sync::mpsc::UnboundedSender;

use super::engine::{NativeStage, built};
use super::{App, Scene};
use crate::proxy::{At, Cut, Fault, Proxy, Script};
use crate::until;

/// What may befall the processes and the data of an engine; each engine says how.
pub trait Perils: Send + Sync {
    /// A process whose line to the engine can be cut and mended.
    fn lined(&self, app: App) -> BoxFuture<'_, Result<Lined, Error>>;

    /// A process that no wake-up ever reaches, as long as its line is kept.
    fn deaf(&self, app: App) -> BoxFuture<'_, Result<Lined, Error>>;

    /// Ends every connection to the engine, as its restart would.
    fn interrupt(&self) -> BoxFuture<'_, ()>;

    /// Makes it impossible to put this job back when its worker is dead.
    fn spoil<'a>(&'a self, id: &'a JobId) -> BoxFuture<'a, ()>;

    /// Makes it impossible that an event about `subject` becomes a job of `kind`: the engine's table refuses it and says [`FORBIDDEN`].
    fn forbid<'a>(&'a self, kind: &'a str, subject: &'a str) -> BoxFuture<'a, ()>;

    /// Makes it possible again.
    fn allow(&self) -> BoxFuture<'_, ()>;
}

/// What a table that refuses a job says, among other things.
pub const FORBIDDEN: &str = "forbidden_here";

/// The way from a process to its engine.
pub trait Line: Send + Sync {
    /// Nothing passes from now on: for everybody else the process is dead, but its handlers go on.
    fn cut(&self);

    /// Everything passes again.
    fn mend(&self);
}

/// A process with its line.
pub struct Lined {
    /// The process.
    pub process: Arc<dyn Runtime>,
    /// Its line.
    pub line: Box<dyn Line>,
}

impl fmt::Debug for Lined {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lined").finish_non_exhaustive()
    }
}

impl Lined {
    /// Puts the process to work.
    pub async fn start(self) -> Self {
        self.process.start().await.unwrap_or_else(|error| panic!("cannot start: {error}"));
        self
    }
}

/// How long a worker of [`mortal`] may be silent.
pub const DEAD_AFTER: Duration = Duration::from_millis(600);

/// An application with one kind whose processes are taken for dead soon. A live one may be taken for dead as well on a busy machine: not
/// for cases that say it is not.
pub fn mortal(kind: Kind) -> App {
    let mut app = App::new([kind]);
    app.settings = Settings { dead_after: DEAD_AFTER, ..app.settings };
    app
}

/// One more process on a stage, at work.
pub async fn hire(scene: &Scene, app: App) -> Arc<dyn Runtime> {
    let process = scene.stage().process(app).await.unwrap_or_else(|error| panic!("cannot build: {error}"));
    process.start().await.unwrap_or_else(|error| panic!("cannot start: {error}"));
    process
}

/// One more process on a stage, at work, whose line can be cut.
pub async fn hire_lined(scene: &Scene, app: App) -> Lined {
    let lined = scene.stage().perils().lined(app).await;
    lined.unwrap_or_else(|error| panic!("cannot build: {error}")).start().await
}

/// The first job that is seen in a state.
pub async fn until_some(scene: &Scene, state: State) -> JobView {
    let filter = Filter { states: vec![state], ..Filter::default() };
    until(&format!("something is {}", state.name()), Duration::from_secs(30), async || {
        let page = scene.inspector().jobs(&filter, None, 1).await;
        page.unwrap_or_else(|error| panic!("cannot list: {error}")).jobs.pop()
    })
    .await
}

/// A job as soon as it waits for its time.
pub async fn until_waits(scene: &Scene, id: &JobId) -> JobView {
    until(&format!("{id} waits for its time"), Duration::from_secs(30), async || {
        let view = scene.job(id).await;
        matches!(view.waits, Some(Waits::Scheduled(_) | Waits::Backoff(_) | Waits::Snoozed(_))).then_some(view)
    })
    .await
}

/// What a handler says.
#[derive(Debug, Clone)]
pub struct Said {
    /// Whose handler.
    pub by: &'static str,
    /// True if it begins, false if it was told to stop.
    pub begins: bool,
    /// Its job.
    pub job: Job,
}

impl Said {
    /// Who it is and what it says, for a comparison.
    pub fn word(&self) -> (&'static str, bool) {
        (self.by, self.begins)
    }
}

/// A kind whose failed attempts are tried again at once.
pub fn quick(name: &str) -> KindSpec {
    let retry = Retry::Steps(vec![Duration::from_millis(1)]);
    KindSpec { retry, ..KindSpec::new(name) }
}

/// A kind whose handler says that it begins and stays until it is let go by a permit, or told to stop, which it says as well.
///
/// The args of its job are what it answers then: `"complete"`, `"fail"`, `"snooze"` (for an hour) or `"discard"`; with other args it completes
/// if it was let go, and fails if it was told to stop.
pub fn staying(spec: KindSpec, by: &'static str, mouth: &UnboundedSender<Said>, gate: &Arc<Semaphore>) -> Kind {
    let (mouth, gate) = (mouth.clone(), Arc::clone(gate));
    Kind::spec(spec).handler(handler(move |job: Arc<Job>, cx: Context| {
        let (mouth, gate) = (mouth.clone(), Arc::clone(&gate));
        async move {
            let say = |begins| {
                let said = mouth.send(Said { by, begins, job: (*job).clone() });
                said.map_err(|_| BoxError::from("the case is over"))
            };
            say(true)?;
            let stopped = tokio::select! {
                permit = gate.acquire() => { permit?.forget(); false }
                () = cx.stop().cancelled() => true,
            };
            if stopped {
                say(false)?;
            }
            match job.args.as_str() {
                r#""complete""# => Ok(Verdict::Complete),
                r#""fail""# => Err(BoxError::from("it was to fail")),
                r#""snooze""# => Ok(Verdict::Snooze(Duration::from_hours(1))),
                r#""discard""# => Ok(Verdict::Discard("it was to be discarded".to_owned())),
                _ if stopped => Err(BoxError::from("it was told to stop")),
                _ => Ok(Verdict::Complete),
            }
        }
    }))
}

struct Proxied(Proxy);

impl Line for Proxied {
    fn cut(&self) {
        self.0.refuse(true);
        self.0.act(Fault::Cut(Cut::Rst));
    }

    fn mend(&self) {
        self.0.refuse(false);
    }
}

impl NativeStage {
    async fn behind(&self, proxy: Proxy, app: App) -> Result<Lined, Error> {
        let pool = PgPoolOptions::new().max_connections(8).connect_lazy(&proxy.url()).map_err(Error::Connection)?;
        let process = built(pool, app, self.tune).await?;
        Ok(Lined { process, line: Box::new(Proxied(proxy)) })
    }
}

impl Perils for NativeStage {
    fn lined(&self, app: App) -> BoxFuture<'_, Result<Lined, Error>> {
        Box::pin(async { self.behind(Proxy::before(self.db.url()).await, app).await })
    }

    fn deaf(&self, app: App) -> BoxFuture<'_, Result<Lined, Error>> {
        Box::pin(async {
            let proxy = Proxy::before(self.db.url()).await;
            proxy.script(|hello| match hello.application.as_str() {
                "postrider listen" => Script::new().at(At::Saying("LISTEN".to_owned()), Fault::BlackHole),
                _ => Script::new(),
            });
            self.behind(proxy, app).await
        })
    }

    fn interrupt(&self) -> BoxFuture<'_, ()> {
        Box::pin(async {
            let sql = "select count(pg_terminate_backend(pid)) from pg_stat_activity
                        where datname = current_database() and pid <> pg_backend_pid()";
            sqlx::query_scalar::<_, i64>(sql).fetch_one(self.db.pool()).await.unwrap();
        })
    }

    fn spoil<'a>(&'a self, id: &'a JobId) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            // a lost attempt cannot be noted
            let sql = format!("alter table postrider.attempt add constraint spoiled check (id <> {id})");
            sqlx::raw_sql(AssertSqlSafe(sql)).execute(self.db.pool()).await.unwrap();
        })
    }

    fn forbid<'a>(&'a self, kind: &'a str, subject: &'a str) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            // a trigger of the application: the row of a job does not say what its event is about
            let sql = format!(
                "create function public.forbid() returns trigger language plpgsql as $$ begin
                     if new.kind = '{kind}' and '{subject}' = (select e.subject from postrider.event e where e.seq = new.event_seq) then
                         raise exception '{FORBIDDEN}' using errcode = 'check_violation';
                     end if;
                     return new;
                 end $$;
                 create trigger forbid before insert on postrider.job for each row execute function public.forbid()"
            );
            change(self.db.pool(), &sql).await;
        })
    }

    fn allow(&self) -> BoxFuture<'_, ()> {
        Box::pin(async {
            change(self.db.pool(), "drop trigger forbid on postrider.job; drop function public.forbid()").await;
        })
    }
}

/// Changes tables while workers are at work. It locks all partitions, in an order of its own: whoever meets it may be told of a deadlock,
/// which is nobody's fault, and this is tried again.
async fn change(pool: &sqlx::PgPool, sql: &str) {
    loop {
        match sqlx::raw_sql(AssertSqlSafe(sql.to_owned())).execute(pool).await {
            Ok(_) => return,
            Err(sqlx::Error::Database(error)) if error.code().as_deref() == Some("40P01") => {}
            Err(error) => panic!("{error}"),
        }
    }
}
