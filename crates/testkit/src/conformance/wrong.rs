//! Engines that are wrong on purpose. Each turns exactly the cases red that it should, which proves that they can be.

mod list; // each of them

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use postrider::port::{Plan, Step};
use postrider::{
    Act, Capabilities, Effect, Enqueued, Error, Filter, Fut, Inspector, JobId, Jobs, NewJob, Runtime, Schedules,
    Stopped, Tx, Waited,
};
use sqlx::PgPool;

use super::crew::Perils;
use super::{App, Engine, Native, Stage};

pub use list::WRONG;

/// A wrong engine.
#[derive(Debug)]
pub struct Wrong {
    /// What it does that it should not.
    pub says: &'static str,
    how: How,
    /// The families that it plays in, by letter.
    pub among: &'static str,
    /// Cases of them on which it may or may not be seen, by the beginning of their names.
    pub maybe: &'static [&'static str],
    /// The cases of them that it turns red, by the beginning of their names.
    pub red: &'static [&'static str],
}

#[derive(Debug)]
enum How {
    /// A function of the database with another text in it: its name, what is there, what takes its place.
    Altered(&'static str, &'static str, &'static str),
    /// Another function in place of one.
    Replaced(&'static str),
    /// A decorator.
    Decorated(Fault),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    /// Jobs are enqueued beside the caller's transaction.
    Beside,
    /// Each queue has a slot more than was asked for.
    Roomy,
}

impl Wrong {
    /// The engine.
    pub fn engine(&self) -> Box<dyn Engine> {
        match self.how {
            How::Altered(function, from, to) => Box::new(Native::altered(alter(function, from, to))),
            How::Replaced(sql) => Box::new(Native::altered(sql)),
            How::Decorated(fault) => Box::new(Faulty { fault, inner: Native::default() }),
        }
    }
}

/// Replaces a text in a function of the database; fails if it is not there.
fn alter(function: &str, from: &str, to: &str) -> String {
    format!(
        "do $do$
         declare
             was text := (select pg_get_functiondef(p.oid) from pg_proc p
                           where p.pronamespace = 'postrider'::regnamespace and p.proname = '{function}');
             becomes text := replace(was, $from${from}$from$, $to${to}$to$);
         begin
             if becomes = was then
                 raise exception 'this is not in {function}';
             end if;
             execute becomes;
         end $do$"
    )
}

/// The native engine with a fault in front of it.
#[derive(Debug)]
struct Faulty {
    fault: Fault,
    inner: Native,
}

impl Engine for Faulty {
    fn fresh(&self) -> BoxFuture<'_, Box<dyn Stage>> {
        Box::pin(async {
            let inner = self.inner.fresh().await;
            Box::new(FaultyStage { fault: self.fault, inner }) as Box<dyn Stage>
        })
    }
}

struct FaultyStage {
    fault: Fault,
    inner: Box<dyn Stage>,
}

impl Stage for FaultyStage {
    fn pool(&self) -> &PgPool {
        self.inner.pool()
    }

    fn process(&self, mut app: App) -> BoxFuture<'_, Result<Arc<dyn Runtime>, Error>> {
        Box::pin(async move {
            if self.fault == Fault::Roomy {
                app.concurrency.iter_mut().for_each(|(_, jobs)| *jobs += 1);
            }
            let inner = self.inner.process(app).await?;
            Ok(Arc::new(FaultyRuntime { fault: self.fault, inner }) as Arc<dyn Runtime>)
        })
    }

    fn sql(&self) -> Option<&PgPool> {
        self.inner.sql()
    }

    fn schedules(&self) -> Option<Schedules> {
        self.inner.schedules()
    }

    fn elapse(&self, time: Duration) -> BoxFuture<'_, ()> {
        self.inner.elapse(time)
    }

    fn forget<'a>(&'a self, id: &'a JobId) -> BoxFuture<'a, ()> {
        self.inner.forget(id)
    }

    fn rob<'a>(&'a self, id: &'a JobId) -> BoxFuture<'a, ()> {
        self.inner.rob(id)
    }

    fn looked_ahead(&self) -> BoxFuture<'_, u64> {
        self.inner.looked_ahead()
    }

    fn perils(&self) -> &dyn Perils {
        self.inner.perils()
    }
}

struct FaultyRuntime {
    fault: Fault,
    inner: Arc<dyn Runtime>,
}

impl Runtime for FaultyRuntime {
    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }

    fn jobs(&self) -> Arc<dyn Jobs> {
        if self.fault == Fault::Beside { Arc::new(Beside(self.inner.jobs())) } else { self.inner.jobs() }
    }

    fn inspector(&self) -> Arc<dyn Inspector> {
        self.inner.inspector()
    }

    fn start(&self) -> Fut<'_, ()> {
        self.inner.start()
    }

    fn stop(&self, grace: Duration) -> Fut<'_, Stopped> {
        self.inner.stop(grace)
    }
}

/// Jobs that do not care for transactions.
struct Beside(Arc<dyn Jobs>);

impl fmt::Debug for Beside {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Beside")
    }
}

impl Jobs for Beside {
    fn capabilities(&self) -> Capabilities {
        self.0.capabilities()
    }

    fn enqueue<'a>(&'a self, _: Option<&'a mut dyn Tx>, jobs: &'a [NewJob]) -> Fut<'a, Vec<Enqueued>> {
        self.0.enqueue(None, jobs)
    }

    fn act<'a>(&'a self, tx: Option<&'a mut dyn Tx>, act: Act, ids: &'a [JobId]) -> Fut<'a, Vec<Effect>> {
        self.0.act(tx, act, ids)
    }

    fn plan<'a>(&'a self, act: Act, filter: &'a Filter) -> Fut<'a, Plan> {
        self.0.plan(act, filter)
    }

    fn step<'a>(&'a self, plan: &'a Plan, after: Option<&'a JobId>) -> Fut<'a, Step> {
        self.0.step(plan, after)
    }

    fn pause<'a>(&'a self, queue: &'a str, paused: bool) -> Fut<'a, ()> {
        self.0.pause(queue, paused)
    }

    fn wait<'a>(&'a self, id: &'a JobId, timeout: Duration) -> Fut<'a, Waited> {
        self.0.wait(id, timeout)
    }
}
