use super::Figures;

/// A number that only grows while a process lives, named by the messaging conventions of OpenTelemetry where those have a name for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Metric {
    /// Its name.
    pub name: &'static str,
    /// What it counts, as OpenTelemetry writes units.
    pub unit: &'static str,
    /// What tells it from others of the same name.
    pub attributes: &'static [(&'static str, &'static str)],
    /// What it says.
    pub says: &'static str,
    /// How many since the process started.
    pub value: u64,
}

const CONSUMED: &str = "messaging.client.consumed.messages";
const SENT: &str = "messaging.client.sent.messages";
const OUTCOMES: &str = "postrider.attempt.outcomes";

impl Figures {
    /// The same as counters with names, units and attributes; `docs/metrics.md` lists them. Each has the attribute `messaging.system` =
    /// `postrider` as well.
    pub fn metrics(&self) -> [Metric; 11] {
        let of = |name, unit, attributes, says, value| Metric { name, unit, attributes, says, value };
        let ended = |attributes, says, value| of(OUTCOMES, "{attempt}", attributes, says, value);
        [
            of(
                "postrider.relay.events",
                "{event}",
                &[],
                "events that the relay of this process turned into jobs",
                self.relayed,
            ),
            of(
                SENT,
                "{message}",
                &[("messaging.operation.name", "relay")],
                "jobs that the relay of this process made",
                self.fanned_out,
            ),
            of(
                CONSUMED,
                "{message}",
                &[("messaging.operation.name", "claim")],
                "jobs that this process claimed",
                self.claimed,
            ),
            ended(&[("outcome", "completed")], "attempts that completed their job", self.completed),
            ended(&[("outcome", "retried")], "attempts that failed and are tried again", self.retried),
            ended(&[("outcome", "snoozed")], "attempts that put their job off", self.snoozed),
            ended(&[("outcome", "discarded")], "attempts after which their job was given up", self.discarded),
            ended(&[("outcome", "released")], "attempts that were given back", self.released),
            ended(&[("outcome", "stale")], "outcomes that came too late: another worker had the job", self.stale),
            of("postrider.job.rescued", "{job}", &[], "jobs of dead workers that this process put back", self.rescued),
            of("postrider.flushes", "{call}", &[], "calls that wrote outcomes", self.flushes),
        ]
    }
}
