/// What takes a lease from a process that had it, by the names that the nemesis writes. A connection that ends is no reason: its
/// process makes another one before anybody takes it for dead.
const LOSING: [&str; 7] =
    ["kill-worker", "pause", "stall", "black-hole", "kill-postgres", "restart-postgres", "crash-backend"];
/// The target of a fault that befalls everybody.
pub(crate) const EVERYBODY: &str = "postgres";

/// A fault as the nemesis noted it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Blow {
    /// What it was.
    pub kind: String,
    /// The process that it befell, or `postgres`.
    pub target: String,
    /// When it began, in microseconds since 1970.
    pub begin_us: i64,
    /// When it ended; the same as its beginning for what has no duration.
    pub end_us: i64,
    /// Whether it befell anybody.
    pub fired: bool,
}

impl Blow {
    /// Whether a lease that a process had from one moment to another was lost because of this. `aftermath_us`: how long after its end
    /// it may still be felt.
    pub(super) fn explains(&self, process: &str, (given_us, lost_us): (i64, i64), aftermath_us: i64) -> bool {
        self.fired
            && LOSING.contains(&self.kind.as_str())
            && (self.target == process || self.target == EVERYBODY)
            && self.begin_us <= lost_us
            && given_us <= self.end_us.saturating_add(aftermath_us)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loss_is_explained_by_a_fault_of_its_own_process_or_of_everybody_at_its_time() {
        let pause = |target: &str| Blow {
            kind: "pause".to_owned(),
            target: target.to_owned(),
            begin_us: 1_000,
            end_us: 2_000,
            fired: true,
        };
        let explains = |blow: &Blow, given, lost| blow.explains("worker-1.1", (given, lost), 100);
        assert!(explains(&pause("worker-1.1"), 900, 1_500));
        assert!(explains(&pause("postgres"), 2_050, 2_500), "felt after its end");
        assert!(!explains(&pause("worker-1.2"), 900, 1_500), "another start of it");
        assert!(!explains(&pause("worker-1.1"), 500, 999), "lost before");
        assert!(!explains(&pause("worker-1.1"), 2_101, 2_500), "given after");
        assert!(!explains(&Blow { fired: false, ..pause("worker-1.1") }, 900, 1_500));
        assert!(!explains(&Blow { kind: "terminate".to_owned(), ..pause("worker-1.1") }, 900, 1_500));
    }
}
