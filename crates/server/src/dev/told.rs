//! What a run comes to, told at its end.

use std::time::Duration;

use super::live::{Moment, duration, number};

/// A run, over.
#[derive(Debug, Clone)]
pub struct Told {
    /// How long it took.
    pub time: Duration,
    /// The last figures.
    pub moment: Moment,
    /// Jobs and deliveries that the events became.
    pub jobs: u64,
    /// Webhooks that the receiver refused for the moment.
    pub failed: u64,
    /// Webhooks that it took again.
    pub repeated: u64,
    /// Webhooks whose signature was not right.
    pub unsigned: u64,
    /// How the bus stopped.
    pub stopped: Stopped,
}

/// How the bus stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stopped {
    /// Nothing was running any more.
    Drained,
    /// So many jobs were still running after the grace.
    Abandoned(usize),
    /// A second signal cut it.
    Cut,
}

impl Told {
    /// The summary, line by line.
    pub fn lines(&self) -> Vec<String> {
        let n = number;
        let mut lines = vec![
            format!("recorded    {} events in {}", n(self.moment.recorded), duration(self.time)),
            format!("fanned out  {} events into {} jobs", n(self.moment.fanned_out), n(self.jobs)),
            format!("done        {} jobs of the two handlers", n(self.moment.done)),
            format!("delivered   {} webhooks, each signature verified", n(self.moment.delivered)),
            format!(
                "receiver    refused {} for the moment, took {} again, found {} badly signed",
                n(self.failed),
                n(self.repeated),
                n(self.unsigned)
            ),
            format!("waiting     {} for their turn or their next attempt", n(self.moment.waiting)),
        ];
        if let Some((p50, p99)) = self.moment.latency {
            lines.push(format!("latency     p50 {}  p99 {}, commit to delivered", duration(p50), duration(p99)));
        }
        lines
    }

    /// What did not go as it should.
    pub fn complaint(&self) -> Option<String> {
        match self.stopped {
            _ if self.unsigned > 0 => Some(format!("{} webhooks were badly signed", self.unsigned)),
            Stopped::Drained => None,
            Stopped::Abandoned(jobs) => {
                Some(format!("{jobs} jobs were still running after the grace; they run again at the next start"))
            }
            Stopped::Cut => Some("the stop was cut; what was running runs again at the next start".to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told() -> Told {
        let latency = Some((Duration::from_micros(3_100), Duration::from_millis(12)));
        let moment = Moment { recorded: 1_980, fanned_out: 1_980, done: 3_960, delivered: 3_957, waiting: 3, latency };
        let time = Duration::from_millis(10_040);
        Told { time, moment, jobs: 7_920, failed: 331, repeated: 0, unsigned: 0, stopped: Stopped::Drained }
    }

    #[test]
    fn the_summary_tells_every_figure() {
        let lines = told().lines();
        assert_eq!(lines[0], "recorded    1 980 events in 10.0 s");
        assert_eq!(lines[1], "fanned out  1 980 events into 7 920 jobs");
        assert_eq!(lines[3], "delivered   3 957 webhooks, each signature verified");
        assert_eq!(lines[4], "receiver    refused 331 for the moment, took 0 again, found 0 badly signed");
        assert_eq!(lines[6], "latency     p50 3.1 ms  p99 12 ms, commit to delivered");
    }

    #[test]
    fn only_a_stop_in_order_without_a_bad_signature_ends_well() {
        let mut told = told();
        assert_eq!(told.complaint(), None);
        told.stopped = Stopped::Abandoned(2);
        assert!(told.complaint().is_some_and(|complaint| complaint.starts_with("2 jobs")));
        told.stopped = Stopped::Cut;
        assert!(told.complaint().is_some());
        told = Told { unsigned: 1, stopped: Stopped::Drained, ..told };
        assert!(told.complaint().is_some_and(|complaint| complaint.contains("badly signed")));
    }
}
