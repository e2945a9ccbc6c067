use std::collections::BTreeMap;

use uuid::Uuid;

use super::spec::Step;

/// The columns of an answer, as text.
pub(super) type Rows = Vec<Vec<Option<String>>>;

/// One statement.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Act {
    Sql(String),
    /// Answers with the jobs and their attempts; the slot remembers the leases.
    Claim {
        worker: String,
        slot: String,
        most: u32,
        in_line: u32,
    },
    /// Answers with the jobs that counted. Without names it is all that the slots hold.
    Finish {
        worker: String,
        slots: Vec<String>,
        told: Told,
    },
    Tick {
        worker: String,
        held: Vec<String>,
        settled: i64,
        dead: Vec<(String, i64)>,
    },
    /// The slot of the worker remembers the new lease.
    Part {
        worker: String,
        name: String,
    },
    /// A commit in some orders and a rollback in others.
    End,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Told {
    All(Outcome),
    Some(Vec<(String, Outcome)>),
}

/// How an attempt ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// It did what it was for.
    Completed,
    /// It failed; the job is due again at once.
    Failed,
    /// The job is due again at once, and no attempt is spent.
    Snoozed,
    /// The handler refused the job.
    Refused,
    /// It failed for the last time.
    Exhausted,
    /// It never began.
    Released,
}

impl Outcome {
    /// All of them.
    pub const ALL: [Self; 6] =
        [Self::Completed, Self::Failed, Self::Snoozed, Self::Refused, Self::Exhausted, Self::Released];

    pub(crate) fn code(self) -> i16 {
        match self {
            Self::Completed => 1,
            Self::Failed => 2,
            Self::Snoozed => 3,
            Self::Refused => 4,
            Self::Exhausted => 5,
            Self::Released => 6,
        }
    }
}

/// What the sessions know by themselves: the leases that they were answered with.
#[derive(Debug, Clone, Default)]
pub(super) struct Memory {
    /// By slot: lease, job, name.
    held: BTreeMap<String, Vec<(String, String, String)>>,
    names: BTreeMap<String, String>,
}

impl Act {
    /// The statement, in view of what was answered so far.
    pub(super) fn sql(&self, memory: &Memory) -> String {
        match self {
            Self::Sql(sql) => sql.clone(),
            Self::End => "commit".to_owned(),
            Self::Part { worker: who, name } => {
                let held = memory.held.get(who).into_iter().flatten().find(|(_, _, held)| held == name);
                let (lease, id) = held.map_or(("0", "0"), |(lease, id, _)| (lease.as_str(), id.as_str()));
                format!("select postrider.part('{}', {lease}, {id}, 1)::text", worker(who))
            }
            Self::Claim { worker: who, most, in_line, .. } => format!(
                "select lease::text, id::text, coalesce(args ->> 'n', event_subject || '@' || (
                            select s.name from postrider.subscription s where s.id = subscription)), attempt::text
                   from postrider.claim('{}', 1, 'q', '{{t.k,t.once,s.one}}', {most}, '{{1,2,3,4}}', '{{0,0,0,0}}', '{{0,0,0,0}}', {in_line})",
                worker(who)
            ),
            Self::Finish { worker: who, slots, told } => {
                let held = || slots.iter().filter_map(|slot| memory.held.get(slot)).flatten();
                let ends: Vec<(&str, &str, i16)> = match told {
                    Told::All(outcome) => {
                        held().map(|(lease, id, _)| (lease.as_str(), id.as_str(), outcome.code())).collect()
                    }
                    Told::Some(names) => names
                        .iter()
                        .filter_map(|(name, outcome)| {
                            let (lease, id, _) = held().find(|(_, _, held)| held == name)?;
                            Some((lease.as_str(), id.as_str(), outcome.code()))
                        })
                        .collect(),
                };
                let list = |of: fn(&(&str, &str, i16)) -> String| ends.iter().map(of).collect::<Vec<_>>().join(",");
                let (leases, ids) = (list(|end| end.0.to_owned()), list(|end| end.1.to_owned()));
                let (codes, delays, reasons) =
                    (list(|end| end.2.to_string()), list(|_| "0".to_owned()), list(|_| "no".to_owned()));
                format!(
                    "select id::text from postrider.finish('{}', '{{{leases}}}', '{{{ids}}}', '{{{codes}}}', '{{{delays}}}', '{{{reasons}}}')",
                    worker(who)
                )
            }
            Self::Tick { worker: who, held, settled, dead } => {
                let mut leases: Vec<&str> = held
                    .iter()
                    .filter_map(|slot| memory.held.get(slot))
                    .flatten()
                    .map(|(lease, _, _)| lease.as_str())
                    .collect();
                leases.dedup();
                let dead: Vec<String> = dead
                    .iter()
                    .map(|(dead, beat)| format!(r#"{{"worker":"{}","beat":{beat}}}"#, worker(dead)))
                    .collect();
                format!(
                    "select format('back %s rescued %s promoted %s unparked %s lost %s', j ->> 'handed_back', j ->> 'rescued',
                                   j ->> 'promoted', j ->> 'unparked', json_array_length(j -> 'lost'))
                       from postrider.tick('{}', '{{\"app\":\"spec\",\"version\":\"0\",\"host\":\"h\",\"pid\":1,\"queues\":[\"q\"],
                            \"kinds\":[\"t.k\",\"t.once\",\"s.one\"],\"held\":[{}],\"settled\":{settled},\"dead\":[{}]}}') j",
                    worker(who),
                    leases.join(","),
                    dead.join(",")
                )
            }
        }
    }

    /// What an answer says, and what is remembered of it.
    pub(super) fn read(&self, rows: Rows, memory: &mut Memory) -> String {
        let mut words: Vec<String> = Vec::new();
        let mut kept = Vec::new();
        for row in rows {
            let mut columns = row.into_iter().map(Option::unwrap_or_default);
            let mut next = || columns.next().unwrap_or_default();
            match self {
                Self::Claim { .. } => {
                    let (lease, id, name, attempt) = (next(), next(), next(), next());
                    if lease.is_empty() {
                        words.push("again".to_owned());
                        continue;
                    }
                    words.push(format!("{name}/{attempt}"));
                    memory.names.insert(id.clone(), name.clone());
                    kept.push((lease, id, name));
                }
                Self::Part { worker, name } => {
                    let own = next();
                    words.push(if own.is_empty() { "lost" } else { "parted" }.to_owned());
                    let held = memory.held.get_mut(worker).into_iter().flatten().find(|(_, _, held)| held == name);
                    if let Some((lease, _, _)) = held.filter(|_| !own.is_empty()) {
                        *lease = own;
                    }
                }
                Self::Finish { .. } => {
                    let id = next();
                    words.push(memory.names.get(&id).cloned().unwrap_or(id));
                }
                _ => words.push(next()),
            }
        }
        if let Self::Claim { slot, .. } = self {
            memory.held.entry(slot.clone()).or_default().extend(kept);
        }
        words.sort();
        words.join(" ")
    }
}

/// The uuid of a worker, made of its name.
pub fn worker(name: &str) -> Uuid {
    Uuid::from_u128(name.bytes().fold(0, |number, byte| number << 8 | u128::from(byte)))
}

/// Any statement whose columns are text; answers with the first column of all rows.
pub fn sql(statement: impl Into<String>) -> Step {
    Step::new(Act::Sql(statement.into()))
}

/// The same step, as the first one of a transaction.
pub fn begin(mut step: Step) -> Step {
    step.begins = true;
    step
}

/// Commits.
pub fn commit() -> Step {
    sql("commit")
}

/// Rolls back.
pub fn rollback() -> Step {
    sql("rollback")
}

/// Commits; and in further orders, where everybody else commits, rolls back.
pub fn end() -> Step {
    Step::new(Act::End)
}

/// Claims up to `most` jobs of the queue `q` of the kinds `t.k`, `t.once` and `s.one`: answers like `x/1 y/1`.
pub fn claim(worker: &str, most: u32) -> Step {
    claim_as(worker, worker, most)
}

/// The same, and remembers the leases under another name than the worker's.
pub fn claim_as(worker: &str, slot: &str, most: u32) -> Step {
    Step::new(Act::Claim { worker: worker.to_owned(), slot: slot.to_owned(), most, in_line: 0 })
}

/// Claims up to `most` jobs, and up to nine that come after them in their order.
pub fn claim_lines(name: &str, most: u32) -> Step {
    Step::new(Act::Claim { worker: name.to_owned(), slot: name.to_owned(), most, in_line: 9 })
}

/// Ends everything that the worker was ever answered with: answers with the jobs that counted.
pub fn finish(worker: &str, outcome: Outcome) -> Step {
    Step::new(Act::Finish { worker: worker.to_owned(), slots: vec![worker.to_owned()], told: Told::All(outcome) })
}

/// Ends some jobs, as the leases say that are remembered under the names; told to be from the first one.
pub fn finish_of(slots: &[&str], outcomes: &[(&str, Outcome)]) -> Step {
    let told = outcomes.iter().map(|(name, outcome)| ((*name).to_owned(), *outcome)).collect();
    let worker = slots.first().copied().unwrap_or_default().to_owned();
    Step::new(Act::Finish { worker, slots: slots.iter().map(ToString::to_string).collect(), told: Told::Some(told) })
}

/// A beat of a worker that holds nothing and waits for no reply.
pub fn tick(worker: &str) -> Step {
    tick_with(worker, &[], 9, &[])
}

/// A beat of a worker that holds the leases remembered under some names, has the replies of its calls up to `settled` (a claim is
/// always call 1), and has seen others dead at a beat.
pub fn tick_with(worker: &str, held: &[&str], settled: i64, dead: &[(&str, i64)]) -> Step {
    Step::new(Act::Tick {
        worker: worker.to_owned(),
        held: held.iter().map(ToString::to_string).collect(),
        settled,
        dead: dead.iter().map(|(dead, beat)| ((*dead).to_owned(), *beat)).collect(),
    })
}

/// Rescues what a worker holds that was seen dead at a beat: answers with how many jobs.
pub fn rescue(dead: &str, beat: i64) -> Step {
    sql(format!("select postrider.rescue('{}', {beat})::text", worker(dead)))
}

/// A worker says goodbye: answers with how many jobs were handed back.
pub fn leave(name: &str) -> Step {
    sql(format!("select postrider.leave('{}')::text", worker(name)))
}

/// Moves due jobs: answers with how many.
pub fn promote() -> Step {
    sql("select postrider.promote(100)::text")
}

/// Releases parked jobs of some queues that are of some kinds, or strict: answers with how many.
pub fn unpark(queues: &str, kinds: &str) -> Step {
    sql(format!("select postrider.unpark('{{{queues}}}', '{{{kinds}}}')::text"))
}

/// One pass of the relay: answers like `2/2 done`, `0/0 idle`, `0/0 busy` with events and jobs.
pub fn relay(most: u32) -> Step {
    sql(format!("select format('%s/%s %s', n, jobs, why) from postrider.relay({most})"))
}

/// Records an event of the type `order.made`: answers with its subject.
pub fn record(subject: &str) -> Step {
    sql(format!("select left(postrider.record('order.made', '{subject}')::text, 0) || '{subject}'"))
}

/// Records an event under an idempotency key, `e1` to `e9` or `old` by its name: answers with the name of the one that the key stands for.
pub fn record_once(name: &str, key: &str) -> Step {
    // events under one key are the same but for their trace, which tells them apart; the next statement sees what the function did or
    // waited for
    sql(format!(
        "do $$ begin perform postrider.record('order.made', '{key}', idempotency_key => '{key}',
             traceparent => '00-' || md5('{name}') || '-00f067aa0ba902b7-01'); end $$;
         select n from postrider.event e join postrider.idempotency i on e.seq = postrider.event_seq(i.event_id)
           join unnest('{{e1,e2,e3,e4,e5,e6,e7,e8,e9,old}}'::text[]) n on substr(e.traceparent, 4, 32) = md5(n)
          where i.key = '{key}'"
    ))
}

/// Enqueues a job of a kind: answers with its name.
pub fn enqueue(kind: &str, name: &str) -> Step {
    sql(format!(r#"select left(id::text, 0) || '{name}' from postrider.enqueue('{kind}', '{{"n":"{name}"}}')"#))
}

/// Enqueues a job that is due in an hour.
pub fn enqueue_later(kind: &str, name: &str) -> Step {
    sql(format!(
        r#"select left(id::text, 0) || '{name}'
             from postrider.enqueue('{kind}', '{{"n":"{name}"}}', run_at => clock_timestamp() + interval '1 hour')"#
    ))
}

/// Declares, as `postrider.declare` takes it.
pub fn declare(declarations: &str) -> Step {
    sql(format!("select '' from postrider.declare('{declarations}')"))
}

/// Puts a subscription.
pub fn put_subscription(name: &str, types: &str, kind: &str) -> Step {
    sql(format!("select left(postrider.put_subscription('{name}', '{{{types}}}', '{kind}')::text, 0)"))
}

/// Drops a subscription by its name: answers whether it was there.
pub fn drop_subscription(name: &str) -> Step {
    sql(format!(
        "select coalesce((select postrider.drop_subscription(s.id) from postrider.subscription s where s.name = '{name}'), false)::text"
    ))
}

/// Moves a unit to its next epoch if it is due: answers whether it was.
pub fn advance(unit: &str) -> Step {
    sql(format!("select postrider.advance_epoch('{unit}')::text"))
}

/// Housekeeping: answers with what it advanced and how many keys it forgot.
pub fn housekeep() -> Step {
    sql("select format('%s %s', j ->> 'advanced', j ->> 'keys_forgotten') from postrider.housekeep() j")
}
