use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use postrider::port::Attempt;
use postrider::{Code, Error, Fut, Payload, Refused};
use riverqueue::WorkContext;
use sqlx::{PgPool, Postgres, Transaction};
use tokio::sync::watch;

use crate::error::told;
use crate::view::OUTPUT;

/// The largest output that is kept, in bytes.
const OUTPUT_BYTES_MAX: usize = 65_536;

/// What the handler tells of its progress.
pub(crate) type Told = watch::Receiver<Option<(u8, String)>>;

/// One attempt of a job in River.
pub(crate) struct InRiver {
    context: WorkContext,
    pool: PgPool,
    committed: AtomicBool,
    output: Mutex<Option<Payload>>,
    progress: watch::Sender<Option<(u8, String)>>,
}

impl fmt::Debug for InRiver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InRiver").field("context", &self.context).finish_non_exhaustive()
    }
}

impl InRiver {
    pub(crate) fn new(context: WorkContext, pool: PgPool) -> Self {
        let progress = watch::Sender::new(None);
        Self { context, pool, committed: AtomicBool::new(false), output: Mutex::default(), progress }
    }

    pub(crate) fn is_committed(&self) -> bool {
        self.committed.load(Ordering::SeqCst)
    }

    pub(crate) fn told(&self) -> Told {
        self.progress.subscribe()
    }

    /// Hands the output over to River, which keeps it with the end of the attempt.
    pub(crate) fn keep_output(&self) -> Result<(), Error> {
        let output = self.output.lock().unwrap_or_else(PoisonError::into_inner).take();
        output.map_or(Ok(()), |output| {
            let kept = self.context.metadata_set(OUTPUT, output.as_str());
            kept.map_err(|_| Error::Row { statement: "river_job", column: 0, expected: "an output" })
        })
    }
}

impl Attempt for InRiver {
    fn begin(&self) -> Fut<'_, Transaction<'static, Postgres>> {
        Box::pin(async move { self.pool.begin().await.map_err(Error::Connection) })
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
            self.keep_output()?;
            match self.context.job_complete_tx(tx).await {
                Ok(_) => Ok(true),
                Err(riverqueue::Error::JobNotRunning { .. } | riverqueue::Error::NotFound(_)) => Ok(false),
                Err(error) => Err(told("job_complete_tx", error)),
            }
        })
    }

    fn completed(&self) {
        self.committed.store(true, Ordering::SeqCst);
    }

    fn progress(&self, percent: u8, note: &str) {
        self.progress.send_replace(Some((percent, note.replace('\0', "\\0"))));
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
