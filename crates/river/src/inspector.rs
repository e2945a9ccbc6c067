use std::fmt;

use postrider::port::{Page, QueueView, incapable};
use postrider::{Error, Filter, Fut, Inspector, JobId, JobView, State};
use riverqueue::serde_json::{Map, Value};
use riverqueue::{Client, JobListOrderBy, JobListParams, JobRow, JobState, QueueListParams, SortDirection};

use crate::error::told;
use crate::view::{OWNER, micros, queue_here, queue_in_river, state, view};

/// Jobs of one page of a list, at most.
const PAGE_MOST: usize = 200;
/// Queues of which is known whether they are paused.
const QUEUES_MOST: u32 = 10_000;

/// The operator's view of jobs in River's tables.
pub struct RiverInspector {
    client: Client,
}

impl fmt::Debug for RiverInspector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RiverInspector").field("client", &self.client).finish_non_exhaustive()
    }
}

impl RiverInspector {
    pub(crate) fn new(client: Client) -> Self {
        Self { client }
    }

    async fn paused(&self) -> Result<Vec<String>, Error> {
        let queues = self.client.queues().list(QueueListParams::default().limit(QUEUES_MOST)).await;
        let queues = queues.map_err(|error| told("queues", error))?;
        Ok(queues.into_iter().filter(|queue| queue.paused_at.is_some()).map(|queue| queue.name).collect())
    }

    /// The next jobs that match, and the last one that was looked at if there may be more.
    async fn look(
        &self,
        filter: &Filter,
        after: Option<i64>,
        most: usize,
    ) -> Result<(Vec<JobRow>, Option<i64>), Error> {
        let mut params = JobListParams::default()
            .order_by(JobListOrderBy::Id)
            .direction(SortDirection::Descending)
            .limit(u32::try_from(most).unwrap_or(1))
            .kinds(filter.kind.iter().cloned())
            .queues(filter.queue.iter().map(|queue| queue_in_river(queue)))
            .states(filter.states.iter().flat_map(|state| in_river(*state)).copied());
        if let Some(owner) = filter.owner.as_deref().filter(|owner| !owner.is_empty()) {
            params = params.metadata(Map::from_iter([(OWNER.to_owned(), Value::from(owner))]));
        }
        if let Some(after) = after {
            params = params.after_id(after);
        }
        let found = self.client.jobs().list(params).await.map_err(|error| told("list", error))?.jobs;
        let last = found.last().filter(|_| found.len() == most).map(|row| row.id);
        let fits = |row: &JobRow| {
            (filter.states.is_empty() || filter.states.contains(&state(row)))
                && filter.owner.as_deref().is_none_or(|owner| !owner.is_empty() || !row.metadata.contains_key(OWNER))
        };
        Ok((found.into_iter().filter(fits).collect(), last))
    }
}

/// Where River may have a job of a state. It does not tell a first attempt that waits from a later one.
fn in_river(state: State) -> &'static [JobState] {
    match state {
        State::Pending => &[JobState::Available, JobState::Scheduled, JobState::Pending],
        State::Retryable => &[JobState::Retryable, JobState::Available, JobState::Scheduled],
        State::Running => &[JobState::Running],
        State::Completed => &[JobState::Completed],
        State::Discarded => &[JobState::Discarded],
        State::Cancelled => &[JobState::Cancelled],
    }
}

impl Inspector for RiverInspector {
    fn job<'a>(&'a self, id: &'a JobId) -> Fut<'a, Option<JobView>> {
        Box::pin(async move {
            let Ok(key) = id.as_str().parse::<i64>() else { return Ok(None) };
            match self.client.jobs().get(key).await {
                Ok(row) => Ok(Some(view(&row, &self.paused().await?, true)?)),
                Err(riverqueue::Error::NotFound(_)) => Ok(None),
                Err(error) => Err(told("get", error)),
            }
        })
    }

    fn jobs<'a>(&'a self, filter: &'a Filter, after: Option<&'a JobId>, most: usize) -> Fut<'a, Page> {
        Box::pin(async move {
            if filter.args.is_some() {
                return Err(incapable("args", "River's client lists no jobs by their args"));
            }
            if filter.subscription.is_some() {
                return Err(incapable("subscription", "River's client lists no jobs by what made them"));
            }
            if filter.order_key.is_some() || filter.limit_key.is_some() {
                return Err(incapable("order_key", "River has no keys"));
            }
            if !filter.tags.is_empty() {
                return Err(incapable("tags", "River's client lists no jobs by their tags"));
            }
            if filter.from.is_some() || filter.to.is_some() {
                return Err(incapable("from", "River's client lists no jobs by when they were enqueued"));
            }
            let most = most.clamp(1, PAGE_MOST);
            let mut after = after.map(|id| id.as_str().parse().unwrap_or(0));
            let paused = self.paused().await?;
            let mut page = Page::default();
            loop {
                let (rows, last) = self.look(filter, after, most - page.jobs.len()).await?;
                for row in &rows {
                    page.jobs.push(view(row, &paused, false)?);
                }
                after = last;
                page.next = last.map(|last| JobId::new(last.to_string()));
                if last.is_none() || page.jobs.len() == most {
                    return Ok(page);
                }
            }
        })
    }

    fn queues(&self) -> Fut<'_, Vec<QueueView>> {
        Box::pin(async move {
            let queues = self.client.queues().list(QueueListParams::default().limit(QUEUES_MOST)).await;
            let queues = queues.map_err(|error| told("queues", error))?;
            let seen = |queue: riverqueue::Queue| QueueView {
                name: queue_here(&queue.name),
                paused_at: queue.paused_at.map(micros),
            };
            Ok(queues.into_iter().map(seen).collect())
        })
    }
}
