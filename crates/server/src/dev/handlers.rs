use std::sync::Arc;

use postrider::{Arg, BoxError, Handler, Job, Statement, Tx as _, handler};
use postrider_contract::{Event, Verdict};
use sqlx::PgPool;

use super::business;
use super::figures::Figures;

/// Counts each event under its type, in a transaction of its own.
pub(super) fn count(pool: PgPool, figures: Arc<Figures>) -> Arc<dyn Handler> {
    handler(move |job: Arc<Job>, _| {
        let (pool, figures) = (pool.clone(), Arc::clone(&figures));
        async move {
            let event = event(&job)?;
            let id = event.id.to_string();
            run(&pool, &figures, &business::COUNT, &[Arg::Text(&id), Arg::Text(&event.r#type)]).await
        }
    })
}

/// Keeps a row of a search index for each subject.
pub(super) fn index(pool: PgPool, figures: Arc<Figures>) -> Arc<dyn Handler> {
    handler(move |job: Arc<Job>, _| {
        let (pool, figures) = (pool.clone(), Arc::clone(&figures));
        async move {
            let event = event(&job)?;
            let id = event.id.to_string();
            let args =
                [Arg::Text(&event.subject), Arg::Text(&id), Arg::Text(&event.r#type), Arg::Text(event.data.as_str())];
            run(&pool, &figures, &business::INDEX, &args).await
        }
    })
}

fn event(job: &Job) -> Result<&Event, BoxError> {
    job.event.as_ref().ok_or_else(|| "this kind takes jobs of a subscription only: record an event instead".into())
}

async fn run(
    pool: &PgPool,
    figures: &Figures,
    statement: &'static Statement,
    args: &[Arg<'_>],
) -> Result<Verdict, BoxError> {
    pool.acquire().await?.run(statement, args).await?;
    figures.done.add_one();
    Ok(Verdict::Complete)
}
