use std::collections::{BTreeMap, BTreeSet};

use postrider_contract::{Code, Refused, SubscriptionSpec, check_name, check_public_name};

use super::Kind;
use crate::port::{Capabilities, check_order};

/// What is wrong with kinds and with the jobs at a time by queue, all of it; what every engine refuses when it is built.
pub fn refusals(kinds: &[Kind], concurrency: &BTreeMap<String, usize>) -> Vec<Refused> {
    let mut refused = Vec::new();
    let mut note = |result: Result<(), Refused>| refused.extend(result.err());
    let mut names = BTreeSet::new();
    for kind in kinds {
        note(check_kind(kind));
        note(once(&mut names, "kind", &kind.spec.name));
    }
    let queues: BTreeSet<&str> =
        kinds.iter().filter(|kind| kind.handler.is_some()).map(|kind| kind.spec.queue.as_str()).collect();
    for (queue, jobs) in concurrency {
        if !queues.contains(queue.as_str()) {
            let message = format!("no kind with a handler waits in queue {queue:?}");
            note(Err(option("concurrency", message, "name a queue of a handled kind")));
        }
        if *jobs == 0 {
            note(Err(option("concurrency", format!("queue {queue:?} may run no job at all"), "use 1 or more")));
        }
    }
    refused
}

pub(super) fn option(field: &str, message: String, remedy: &str) -> Refused {
    Refused::new(Code::Option, field, message, remedy)
}

pub(super) fn once(names: &mut BTreeSet<String>, field: &str, name: &str) -> Result<(), Refused> {
    if names.insert(name.to_owned()) {
        return Ok(());
    }
    Err(Refused::new(Code::Conflict, field, format!("{name:?} is declared twice"), "declare it once"))
}

/// Its predicate is read by the database alone. `elsewhere`: what the engine that makes its jobs can do, if another one does.
pub(super) fn check_subscription(spec: &SubscriptionSpec, elsewhere: Option<Capabilities>) -> Result<(), Refused> {
    let name = &spec.name;
    if let Some(order) = spec.order {
        if spec.order_by.is_none() {
            let message = format!("subscription {name:?} has a policy and no order");
            return Err(option("order_policy", message, "give order_by as well"));
        }
        check_order(order)?;
    }
    let Some(engine) = elsewhere else { return Ok(()) };
    let refused = |field, message, remedy: &str| Err(Refused::new(Code::Capability, field, message, remedy));
    if spec.order_by.is_some() && !engine.order_keys {
        let message = format!("the engine {} of subscription {name:?} keeps no order of keys", engine.engine);
        return refused("order_by", message, "leave it away, or use an engine that has order keys");
    }
    if spec.coalescing {
        let message = format!("the jobs of subscription {name:?} wait in another engine, {}", engine.engine);
        return refused("coalescing", message, "leave it away, or use the native engine");
    }
    Ok(())
}

fn check_kind(kind: &Kind) -> Result<(), Refused> {
    let spec = &kind.spec;
    if kind.component { check_name("kind", &spec.name) } else { check_public_name("kind", &spec.name) }?;
    check_name("queue", &spec.queue)?;
    if !(1..=4).contains(&spec.priority) {
        return Err(option("priority", format!("{} of kind {:?} is not one", spec.priority, spec.name), "use 1 to 4"));
    }
    if !(1..=1000).contains(&spec.max_attempts) {
        let message = format!("{} of kind {:?} is out of range", spec.max_attempts, spec.name);
        return Err(option("max_attempts", message, "use 1 to 1000"));
    }
    if spec.timeout.as_millis() == 0 {
        return Err(option("timeout", format!("kind {:?} gives its attempts no time", spec.name), "use 1 ms or more"));
    }
    check_order(spec.order)
}
