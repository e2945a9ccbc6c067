use std::time::Duration;

use super::figures::{Counters, Figures};
use crate::handle::Fault;
use crate::measure::Histogram;
use crate::pg::Operation;

/// A number that a process tells of itself, named by the messaging conventions of OpenTelemetry where those have a name for it.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Metric {
    /// Its name.
    pub name: &'static str,
    /// What it counts, as OpenTelemetry writes units.
    pub unit: &'static str,
    /// What tells it from others of the same name. Each has `messaging.system` = `postrider` as well.
    pub attributes: Vec<(&'static str, &'static str)>,
    /// What it says.
    pub says: &'static str,
    /// How much it is.
    pub value: Measured,
}

/// What a metric is by now.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Measured {
    /// How many since the process started: it only grows.
    Counter(u64),
    /// How much there is right now.
    Gauge(f64),
    /// How often something took how long since the process started: each of its numbers only grows.
    Histogram(Histogram),
}

const CONSUMED: &str = "messaging.client.consumed.messages";
const SENT: &str = "messaging.client.sent.messages";
const OUTCOMES: &str = "postrider.attempt.outcomes";
const OPERATION: &str = "messaging.operation.name";
const ERROR: &str = "error.type";

type Attributes<'a> = &'a [(&'static str, &'static str)];

fn metric(
    (name, unit): (&'static str, &'static str),
    attributes: Attributes<'_>,
    says: &'static str,
    value: Measured,
) -> Metric {
    Metric { name, unit, attributes: attributes.to_vec(), says, value }
}

pub(super) fn read(counters: &Counters, now: Duration) -> Vec<Metric> {
    [counted(&counters.read()).to_vec(), attempts(counters), calls(counters), gauges(counters, now).to_vec()].concat()
}

fn counted(figures: &Figures) -> [Metric; 11] {
    let of =
        |name, unit, attributes: Attributes<'_>, says, n| metric((name, unit), attributes, says, Measured::Counter(n));
    let ended = |outcome, says, n| of(OUTCOMES, "{attempt}", &[("outcome", outcome)], says, n);
    let relayed = "events that the relay of this process turned into jobs";
    let rescued = "jobs of dead workers that this process put back";
    [
        of("postrider.relay.events", "{event}", &[], relayed, figures.relayed),
        of(SENT, "{message}", &[(OPERATION, "relay")], "jobs that the relay of this process made", figures.fanned_out),
        of(CONSUMED, "{message}", &[(OPERATION, "claim")], "jobs that this process claimed", figures.claimed),
        ended("completed", "attempts that completed their job", figures.completed),
        ended("retried", "attempts that failed and are tried again", figures.retried),
        ended("snoozed", "attempts that put their job off", figures.snoozed),
        ended("discarded", "attempts after which their job was given up", figures.discarded),
        ended("released", "attempts that were given back", figures.released),
        ended("stale", "outcomes that came too late: another worker had the job", figures.stale),
        of("postrider.job.rescued", "{job}", &[], rescued, figures.rescued),
        of("postrider.flushes", "{call}", &[], "calls that wrote outcomes", figures.flushes),
    ]
}

/// How long attempts waited and took.
fn attempts(counters: &Counters) -> Vec<Metric> {
    let measured = &counters.attempts;
    let waited = "from when a job first became due until its first attempt began";
    let waits = Measured::Histogram(measured.waits.read());
    let mut all = vec![metric(("postrider.job.wait.duration", "s"), &[], waited, waits)];
    let process = (OPERATION, "process");
    let took = |attributes: Attributes<'_>, says, fault| {
        let value = Measured::Histogram(measured.took(fault).read());
        metric(("messaging.process.duration", "s"), attributes, says, value)
    };
    all.push(took(&[process], "attempts that did not fail", None));
    all.extend(Fault::ALL.map(|fault| took(&[process, (ERROR, fault.name())], failed(fault), Some(fault))));
    all
}

const fn failed(fault: Fault) -> &'static str {
    match fault {
        Fault::Error => "attempts that answered with an error",
        Fault::Panic => "attempts that panicked",
        Fault::Timeout => "attempts whose time was over",
        Fault::Stopped => "attempts that were told to stop and were dropped where they waited",
        Fault::Retry => "attempts that asked for another one",
        Fault::Discard => "attempts that discarded their job",
        Fault::MaxAge => "attempts that put their job off for longer than its kind allows",
    }
}

/// How long calls of the database took.
fn calls(counters: &Counters) -> Vec<Metric> {
    let told = [
        (Operation::Claim, "calls that claimed jobs, or found none", "calls to claim jobs that failed"),
        (Operation::Finish, "calls that wrote outcomes", "calls to write outcomes that failed"),
        (Operation::Relay, "calls that turned events into jobs, or found none", "calls of the relay that failed"),
    ];
    let took = |attributes: Attributes<'_>, says, histogram| {
        metric(("messaging.client.operation.duration", "s"), attributes, says, Measured::Histogram(histogram))
    };
    let both = told.map(|(operation, answered, failed)| {
        let (calls, name) = (counters.calls(operation), (OPERATION, operation.name()));
        let other = (ERROR, "_OTHER");
        [took(&[name], answered, calls.answered.read()), took(&[name, other], failed, calls.failed.read())]
    });
    both.concat()
}

/// What this process is at right now.
fn gauges(counters: &Counters, now: Duration) -> [Metric; 3] {
    #[expect(clippy::cast_precision_loss, reason = "no process has so many slots")]
    let level = |n: u64| Measured::Gauge(n as f64);
    let age = Measured::Gauge(counters.beats.age(now).as_secs_f64());
    let running = level(counters.attempts.running.read());
    let slots = level(counters.slots.read());
    [
        metric(("postrider.attempt.running", "{attempt}"), &[], "attempts that run in this process", running),
        metric(
            ("postrider.slots", "{slot}"),
            &[],
            "attempts that this process runs at a time, in all its queues",
            slots,
        ),
        metric(("postrider.beat.age", "s"), &[], "how long ago the last beat was sent that was answered", age),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_figure_is_a_counter_of_its_own() {
        let figures = Figures {
            relayed: 1,
            fanned_out: 2,
            claimed: 3,
            completed: 4,
            retried: 5,
            snoozed: 6,
            discarded: 7,
            released: 8,
            stale: 9,
            rescued: 10,
            flushes: 11,
        };
        let told = counted(&figures).map(|metric| metric.value);
        assert_eq!(told, [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11].map(Measured::Counter));
    }
}
