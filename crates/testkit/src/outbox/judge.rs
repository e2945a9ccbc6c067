use std::fmt;

use postrider::proof;
use sqlx::PgPool;

/// Pairs of a committed event and a subscription without a job; jobs beyond the first of a pair; jobs of no event; jobs of subscriptions with an order that come before
/// one of their key with a lower number; numbers of a key that no event has; and what the writers committed and the log does not have.
const JUDGE: &str = "
with made as (select event_seq as seq, subscription, count(*) as n from postrider.job where event_seq is not null group by 1, 2),
     pairs as (select e.seq, s.id as subscription from postrider.event e cross join postrider.subscription s),
     keyed as (select e.subject as key, (e.data::text)::bigint as n, j.subscription, j.id
                 from postrider.job j join postrider.event e on e.seq = j.event_seq
                 join postrider.subscription s on s.id = j.subscription and s.order_by is not null),
     ordered as (select n, lag(n) over (partition by subscription, key order by id) as before from keyed)
select array[
    (select count(*) from postrider.event),
    (select count(*) from postrider.job where event_seq is not null),
    (select count(*) from pairs left join made using (seq, subscription) where made.n is null),
    (select coalesce(sum(n - 1), 0)::bigint from made where n > 1),
    (select count(*) from made where not exists (select from postrider.event e where e.seq = made.seq)),
    (select count(*) from ordered where before >= n),
    (select coalesce(sum(abs(coalesce(a.n, 0) - coalesce(e.n, 0))), 0)::bigint
       from public.account a full join (select subject as key, count(*) as n from postrider.event group by 1) e using (key)),
    abs((select sum(committed) from public.told)::bigint - (select count(*) from postrider.event))]";

/// What came of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutboxReport {
    /// Events that committed.
    pub events: i64,
    /// Jobs that were made of them.
    pub jobs: i64,
    /// Pairs of an event and a subscription without a job.
    pub lost: i64,
    /// Jobs beyond the first of a pair.
    pub doubled: i64,
    /// Jobs of no event.
    pub ghosts: i64,
    /// Jobs that come before an earlier one of their key.
    pub out_of_order: i64,
    /// Numbers of keys that are no events, or the other way round.
    pub torn: i64,
    /// Difference between what the writers committed and what is there.
    pub untold: i64,
    /// What `verify` finds.
    pub findings: Vec<String>,
}

impl OutboxReport {
    /// Whether nothing is wrong.
    pub fn is_clean(&self) -> bool {
        self.lost + self.doubled + self.ghosts + self.out_of_order + self.torn + self.untold == 0
            && self.findings.is_empty()
    }
}

impl fmt::Display for OutboxReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} events became {} jobs: {} lost, {} doubled, {} ghosts, {} out of order, {} torn, {} untold; verify: {}",
            self.events,
            self.jobs,
            self.lost,
            self.doubled,
            self.ghosts,
            self.out_of_order,
            self.torn,
            self.untold,
            if self.findings.is_empty() { "whole".to_owned() } else { self.findings.join("; ") }
        )
    }
}

/// Looks at what is there, when nobody writes and everything is relayed.
pub async fn judge(pool: &PgPool) -> anyhow::Result<OutboxReport> {
    let counted: Vec<i64> = sqlx::query_scalar(JUDGE).fetch_one(pool).await?;
    let [events, jobs, lost, doubled, ghosts, out_of_order, torn, untold] = counted[..] else {
        anyhow::bail!("the judge counts in another way")
    };
    let findings = proof::verify(pool, None, None).await?.findings;
    Ok(OutboxReport { events, jobs, lost, doubled, ghosts, out_of_order, torn, untold, findings })
}
