//! The steps that act on jobs from outside, and those of jobs that are one with jobs like them.

use super::spec::Step;
use super::verbs::{Act, sql};

fn act(verb: &str, names: &[&str]) -> Step {
    sql(format!(
        "select (j.args ->> 'n') || ':' || a.effect
           from postrider.{verb}(array(select i.id from postrider.job i where i.args ->> 'n' = any ('{{{}}}'))) a
           join postrider.job j on j.id = a.id",
        names.join(",")
    ))
}

/// Cancels jobs by their names: answers like `x:done y:requested`; names that are not there are not answered.
pub fn cancel(names: &[&str]) -> Step {
    act("cancel", names)
}

/// Lets jobs run again: answers like `x:done y:running`.
pub fn retry(names: &[&str]) -> Step {
    act("retry", names)
}

/// Removes jobs: answers like `x:done y:running`.
pub fn delete(names: &[&str]) -> Step {
    act("delete", names)
}

/// Pauses the queue `q`, or lets it go on.
pub fn pause_queue(paused: bool) -> Step {
    sql(format!("select left(postrider.pause('q', {paused})::text, 0)"))
}

/// Enqueues a job of the kind `t.k` that is one with others of its mode and key: answers `x` if it is the first, else `again`.
pub fn enqueue_unique(name: &str, mode: &str, key: &str) -> Step {
    sql(format!(
        "select case when fresh then '{name}' else 'again' end
           from postrider.enqueue('t.k', '{{\"n\":\"{name}\"}}', unique_mode => '{mode}', unique_key => '{key}'{})",
        window(mode, ", unique_for => interval '1 hour'")
    ))
}

/// Enqueues several such jobs, each with its key, in one call: answers with the names of those that are the first of their keys.
pub fn enqueue_unique_many(mode: &str, jobs: &[(&str, &str)]) -> Step {
    let items: Vec<String> = jobs
        .iter()
        .map(|(name, key)| {
            format!(
                r#"{{"kind":"t.k","args":{{"n":"{name}"}},"unique_mode":"{mode}","unique_key":"{key}"{}}}"#,
                window(mode, r#","unique_for":"1 hour""#)
            )
        })
        .collect();
    let names: Vec<String> = jobs.iter().map(|(name, _)| format!("'{name}'")).collect();
    sql(format!(
        "select coalesce(string_agg((array[{}])[at], ' ' order by at) filter (where fresh), '')
           from postrider.enqueue_many('[{}]') with ordinality e (id, fresh, replaced, until, at)",
        names.join(","),
        items.join(",")
    ))
}

fn window<'a>(mode: &str, clause: &'a str) -> &'a str {
    if mode == "within" { clause } else { "" }
}

/// Enqueues a job of the kind `t.k` with an order key and a policy: answers with its name.
pub fn enqueue_ordered(name: &str, key: &str, policy: &str) -> Step {
    sql(format!(
        r#"select left(id::text, 0) || '{name}'
             from postrider.enqueue('t.k', '{{"n":"{name}"}}', order_key => '{key}', order_policy => '{policy}')"#
    ))
}

/// Enqueues a job of the kind `t.k` with a limit key: answers with its name.
pub fn enqueue_limited(name: &str, key: &str) -> Step {
    sql(format!(
        r#"select left(id::text, 0) || '{name}' from postrider.enqueue('t.k', '{{"n":"{name}"}}', limit_key => '{key}')"#
    ))
}

/// Sets how many jobs of a limit key run at a time.
pub fn set_limit(key: &str, most: u32) -> Step {
    sql(format!("select left(postrider.set_limit('q', '{key}', {most})::text, 0)"))
}

/// Acts on a lane: answers `done`, `running`, `busy` or `unknown`.
pub fn act_on_lane(key: &str, act: &str) -> Step {
    sql(format!("select postrider.act_on_lane('q', '{key}', '{act}')"))
}

/// Takes a job that a worker holds into a lease of its own: answers `parted`, or `lost`.
pub fn part(worker: &str, name: &str) -> Step {
    Step::new(Act::Part { worker: worker.to_owned(), name: name.to_owned() })
}
