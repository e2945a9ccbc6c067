use std::collections::BTreeSet;

use postrider_contract::{Refused, Schedule, When, check_json, check_name, check_owner, check_public_name};
use serde_json::json;

use super::check::{once, option};
use super::write::ms;
use crate::job::Known;
use crate::schedule::refuse_times;

/// Runs of what was missed, at most.
const MISSED_MOST: u16 = 100;

/// What is wrong with schedules, all of it. Their kinds are among those that the application declares.
pub(super) fn refusals(schedules: &[Schedule], kinds: &Known) -> Vec<Refused> {
    let mut refused = Vec::new();
    let mut names = BTreeSet::new();
    for schedule in schedules {
        let Schedule { name, when, zone, kind, .. } = schedule;
        let mut note = |result: Result<(), Refused>| refused.extend(result.err());
        note(check_public_name("schedule", name));
        note(once(&mut names, "schedule", name));
        note(check_public_name("kind", kind).and_then(|()| kinds.check(kind)));
        note(check_json("args", schedule.args.as_str()).map(drop));
        note(check_owner(&schedule.owner));
        note(check_options(schedule));
        refused.extend(refuse_times(name, when, zone));
    }
    refused
}

fn check_options(schedule: &Schedule) -> Result<(), Refused> {
    let name = &schedule.name;
    if let Some(queue) = &schedule.queue {
        check_name("queue", queue)?;
    }
    if let Some(priority) = schedule.priority.filter(|priority| !(1..=4).contains(priority)) {
        return Err(option("priority", format!("{priority} of schedule {name:?} is not one"), "use 1 to 4"));
    }
    if let Some(most) = schedule.max_attempts.filter(|most| !(1..=1000).contains(most)) {
        return Err(option("max_attempts", format!("{most} of schedule {name:?} is out of range"), "use 1 to 1000"));
    }
    if let Some(most) = schedule.missed.most().filter(|most| !(1..=MISSED_MOST).contains(most)) {
        let message = format!("schedule {name:?} runs {most} of those that it missed");
        return Err(option("missed", message, "use 1 to 100, or Missed::Skip"));
    }
    Ok(())
}

/// A schedule as SQL takes it.
pub(super) fn schedule_json(schedule: &Schedule) -> serde_json::Value {
    let (cron, every_ms) = match &schedule.when {
        When::Cron(cron) => (Some(cron), None),
        When::Every(period) => (None, Some(ms(*period))),
    };
    json!({
        "name": schedule.name, "cron": cron, "every_ms": every_ms, "zone": schedule.zone, "kind": schedule.kind,
        // as text: its bytes are kept
        "args_text": schedule.args.as_str(), "owner": schedule.owner, "queue": schedule.queue, "priority": schedule.priority,
        "max_attempts": schedule.max_attempts, "missed": schedule.missed.name(), "missed_most": schedule.missed.most(),
        "overlap": schedule.overlap.name(), "run_at_start": schedule.run_at_start,
    })
}
