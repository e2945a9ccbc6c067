use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use postrider_contract::{Code, Payload, Refused};
use sqlx::{PgPool, Postgres, Transaction};
use uuid::Uuid;

use super::Running;
use crate::complete::{self, Ended, Outcome};
use crate::error::{Error, Fut};
use crate::job::Holdings;
use crate::pg::{Arg, Statement, Tx as _, borrow};
use crate::port::{Attempt, Job};

pub(super) const PART: Statement = crate::statement!("sql/part.sql");

/// The largest output that is kept, in bytes.
const OUTPUT_BYTES_MAX: usize = 65_536;

/// What handlers told of their progress since the last beat, by lease and job.
#[derive(Debug, Default)]
pub(crate) struct Told(Mutex<BTreeMap<(i64, i64), (u8, String)>>);

impl Told {
    fn tell(&self, lease: i64, id: i64, percent: u8, note: &str) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert((lease, id), (percent, note.to_owned()));
    }

    /// Everything that was told, once.
    pub(crate) fn take(&self) -> BTreeMap<(i64, i64), (u8, String)> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// What every attempt of this process shares.
pub(crate) struct Handled {
    pub(crate) worker: Uuid,
    /// The application's own, in which attempts may end.
    pub(crate) pool: PgPool,
    pub(crate) holdings: Arc<Holdings>,
    pub(crate) told: Told,
}

/// One attempt of the native engine.
pub(super) struct Native {
    shared: Arc<Handled>,
    running: Arc<Running>,
    id: i64,
    lease: AtomicI64,
    parted: AtomicBool,
    committed: AtomicBool,
    output: Mutex<Option<Payload>>,
}

impl fmt::Debug for Native {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Native").field("id", &self.id).field("lease", &self.lease).finish_non_exhaustive()
    }
}

impl Native {
    pub(super) fn new(shared: Arc<Handled>, running: Arc<Running>, job: &Job) -> Self {
        Self {
            shared,
            running,
            id: job.key,
            lease: AtomicI64::new(job.lease),
            parted: AtomicBool::new(false),
            committed: AtomicBool::new(false),
            output: Mutex::new(None),
        }
    }

    /// The lease that it runs under by now.
    pub(super) fn lease(&self) -> i64 {
        self.lease.load(Ordering::SeqCst)
    }

    pub(super) fn is_committed(&self) -> bool {
        self.committed.load(Ordering::SeqCst)
    }

    pub(super) fn take_output(&self) -> Option<Payload> {
        self.output.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Moves to a lease of its own: a batch may not wait for a transaction of the application.
    async fn part(&self) -> Result<(), Error> {
        let old = self.lease();
        // should it have landed without an answer, or the handler be dropped where it waits, the next beat hands the job back, and this
        // attempt does not count
        let call = self.shared.holdings.call();
        self.running.parting(old, self.id, true);
        let answer = async {
            let worker = self.shared.worker.to_string();
            let args = [Arg::Text(&worker), Arg::Int(old), Arg::Int(self.id), Arg::Int(call.number())];
            let rows = borrow(&self.shared.pool).await?.run(&PART, &args).await?;
            rows.first().filter(|row| row.opt(0).is_some()).map(|row| row.int(0)).transpose()
        };
        match answer.await {
            Ok(Some(own)) => {
                self.lease.store(own, Ordering::SeqCst);
                self.running.moved((old, self.id), (own, self.id));
                call.end([own]);
                self.shared.holdings.ended(old);
                self.parted.store(true, Ordering::SeqCst);
                Ok(())
            }
            Ok(None) => {
                self.running.parting(old, self.id, false);
                self.running.cancel(old, self.id);
                Err(Error::LeaseLost)
            }
            Err(error) => {
                self.running.parting(old, self.id, false);
                Err(error)
            }
        }
    }
}

impl Attempt for Native {
    fn begin(&self) -> Fut<'_, Transaction<'static, Postgres>> {
        Box::pin(async move {
            if !self.parted.load(Ordering::SeqCst) {
                self.part().await?;
            }
            self.shared.pool.begin().await.map_err(Error::connecting)
        })
    }

    fn complete<'a>(
        &'a self,
        tx: &'a mut Transaction<'static, Postgres>,
        output: Option<&'a Payload>,
    ) -> Fut<'a, bool> {
        Box::pin(async move {
            if let Some(output) = output {
                self.output(output.clone())?;
            }
            let ended = Ended::Completed(self.output.lock().unwrap_or_else(PoisonError::into_inner).clone());
            let outcome = Outcome { lease: self.lease(), id: self.id, ended };
            Ok(!complete::finish(tx, self.shared.worker, &[outcome]).await?.is_empty())
        })
    }

    fn completed(&self) {
        self.committed.store(true, Ordering::SeqCst);
    }

    fn progress(&self, percent: u8, note: &str) {
        self.shared.told.tell(self.lease(), self.id, percent, note);
    }

    fn output(&self, output: Payload) -> Result<(), Error> {
        if output.as_str().len() > OUTPUT_BYTES_MAX {
            let message = format!("{} bytes are more than {OUTPUT_BYTES_MAX}", output.as_str().len());
            return Err(Refused::new(Code::Size, "output", message, "keep it elsewhere and leave its address").into());
        }
        *self.output.lock().unwrap_or_else(PoisonError::into_inner) = Some(output);
        Ok(())
    }
}
