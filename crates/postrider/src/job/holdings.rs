use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// What this worker holds: its leases, and the claim calls whose replies are on their way.
///
/// A beat tells both, so that the database can hand back what the worker never received, without taking what it is just receiving.
#[derive(Debug, Default)]
pub(crate) struct Holdings {
    held: Mutex<Held>,
    keyed: AtomicBool,
}

#[derive(Debug, Default)]
struct Held {
    last_call: i64,
    open_calls: BTreeSet<i64>,
    /// How many jobs of each lease have not been told as ended.
    leases: BTreeMap<i64, usize>,
}

impl Holdings {
    fn lock(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A job with a key was claimed.
    pub(crate) fn note_key(&self) {
        self.keyed.store(true, Ordering::Relaxed);
    }

    /// Whether jobs with keys were ever claimed: where one of those has ended, another one may have been let go.
    pub(crate) fn has_keys(&self) -> bool {
        self.keyed.load(Ordering::Relaxed)
    }

    /// A claim is about to be sent.
    pub(crate) fn begin_call(&self) -> i64 {
        let mut held = self.lock();
        held.last_call += 1;
        let call = held.last_call;
        held.open_calls.insert(call);
        call
    }

    /// The same for a call that may be dropped before its reply is here: then it is given up.
    pub(crate) fn call(&self) -> Call<'_> {
        Call { holdings: self, number: self.begin_call() }
    }

    /// The reply of a claim is here, with the lease of each job; or it is given up, with none.
    pub(crate) fn end_call(&self, call: i64, leases: impl IntoIterator<Item = i64>) {
        let mut held = self.lock();
        for lease in leases {
            *held.leases.entry(lease).or_default() += 1;
        }
        held.open_calls.remove(&call);
    }

    /// One job of a lease has been told as ended.
    pub(crate) fn ended(&self, lease: i64) {
        let mut held = self.lock();
        if let Some(open) = held.leases.get_mut(&lease) {
            *open -= 1;
            if *open == 0 {
                held.leases.remove(&lease);
            }
        }
    }

    /// The last call up to which every reply has arrived or is given up, and the leases held.
    pub(crate) fn snapshot(&self) -> (i64, Vec<i64>) {
        let held = self.lock();
        let settled = held.open_calls.first().map_or(held.last_call, |first| first - 1);
        (settled, held.leases.keys().copied().collect())
    }
}

/// A call whose reply is on its way. Dropped, it is given up.
#[derive(Debug)]
pub(crate) struct Call<'a> {
    holdings: &'a Holdings,
    number: i64,
}

impl Call<'_> {
    pub(crate) fn number(&self) -> i64 {
        self.number
    }

    /// The reply is here, with the lease of each job.
    pub(crate) fn end(self, leases: impl IntoIterator<Item = i64>) {
        self.holdings.end_call(self.number, leases);
    }
}

impl Drop for Call<'_> {
    fn drop(&mut self) {
        self.holdings.end_call(self.number, []);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_that_is_dropped_is_given_up_and_one_that_ended_keeps_its_lease() {
        let holdings = Holdings::default();
        drop(holdings.call());
        assert_eq!(holdings.snapshot(), (1, vec![]));
        holdings.call().end([70]);
        assert_eq!(holdings.snapshot(), (2, vec![70]));
    }

    #[test]
    fn a_call_is_settled_when_it_and_all_before_it_have_ended() {
        let holdings = Holdings::default();
        let (a, b) = (holdings.begin_call(), holdings.begin_call());
        assert_eq!(holdings.snapshot(), (0, vec![]));
        holdings.end_call(b, [70, 70]);
        assert_eq!(holdings.snapshot(), (0, vec![70]), "a is still on its way");
        holdings.end_call(a, []);
        assert_eq!(holdings.snapshot(), (2, vec![70]));
    }

    #[test]
    fn a_lease_is_held_until_its_last_job_has_ended() {
        let holdings = Holdings::default();
        let call = holdings.begin_call();
        holdings.end_call(call, [7, 7, 8]);
        holdings.ended(7);
        assert_eq!(holdings.snapshot().1, vec![7, 8]);
        holdings.ended(7);
        holdings.ended(99);
        assert_eq!(holdings.snapshot().1, vec![8]);
    }
}
