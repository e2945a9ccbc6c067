use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::oneshot;

/// What is asked at once.
const ASKED_MOST: usize = 500;

/// One question, and who waits for its answer.
type Asked<Q, A> = (Q, oneshot::Sender<A>);

/// Collects what many deliveries ask of the database at about the same time. One round is under way at a time, so that rounds grow by
/// themselves under load, and a lone question is asked at once.
#[derive(Debug)]
pub(super) struct Gather<Q, A> {
    waiting: Arc<Mutex<Waiting<Q, A>>>,
}

#[derive(Debug)]
struct Waiting<Q, A> {
    asked: Vec<Asked<Q, A>>,
    /// Somebody asks rounds until nobody waits.
    under_way: bool,
}

impl<Q, A> Clone for Gather<Q, A> {
    fn clone(&self) -> Self {
        Self { waiting: Arc::clone(&self.waiting) }
    }
}

impl<Q, A> Default for Gather<Q, A> {
    fn default() -> Self {
        Self { waiting: Arc::new(Mutex::new(Waiting { asked: Vec::new(), under_way: false })) }
    }
}

impl<Q: Send + 'static, A: Send + 'static> Gather<Q, A> {
    /// The answer to a question, of a round that `round` asks: an answer for each question, in their order. None if the round ended without
    /// one. A round goes on when nobody waits for it any more. `linger`: how long the first round waits for others that are about to ask.
    pub(super) async fn ask<F>(
        &self,
        question: Q,
        linger: Duration,
        round: impl Fn(Vec<Q>) -> F + Send + 'static,
    ) -> Option<A>
    where
        F: Future<Output = Vec<A>> + Send + 'static,
    {
        let (answer, answered) = oneshot::channel();
        if self.push((question, answer)) {
            let mut rounds = Rounds { of: Arc::clone(&self.waiting), over: false };
            #[expect(
                clippy::disallowed_methods,
                reason = "it ends by itself, soon after whoever waits for it, and a stop waits for those"
            )]
            tokio::spawn(async move {
                if linger.is_zero() {
                    // those that begin together have all asked then
                    tokio::task::yield_now().await;
                } else {
                    tokio::time::sleep(linger).await;
                }
                while let Some(asked) = rounds.next() {
                    let (questions, answers): (Vec<Q>, Vec<oneshot::Sender<A>>) = asked.into_iter().unzip();
                    for (answer, to) in round(questions).await.into_iter().zip(answers) {
                        // nobody may wait for it any more
                        let _ = to.send(answer);
                    }
                }
            });
        }
        answered.await.ok()
    }

    /// True if nobody asks rounds.
    fn push(&self, asked: Asked<Q, A>) -> bool {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.asked.push(asked);
        !std::mem::replace(&mut waiting.under_way, true)
    }
}

/// Whoever asks rounds. If it ends before nobody waits, whoever waits is told so.
struct Rounds<Q, A> {
    of: Arc<Mutex<Waiting<Q, A>>>,
    over: bool,
}

impl<Q, A> Rounds<Q, A> {
    fn next(&mut self) -> Option<Vec<Asked<Q, A>>> {
        let mut waiting = self.of.lock().unwrap_or_else(PoisonError::into_inner);
        let n = waiting.asked.len().min(ASKED_MOST);
        self.over = n == 0;
        waiting.under_way = !self.over;
        (!self.over).then(|| waiting.asked.drain(..n).collect())
    }
}

impl<Q, A> Drop for Rounds<Q, A> {
    fn drop(&mut self) {
        if self.over {
            return;
        }
        let mut waiting = self.of.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.under_way = false;
        waiting.asked.clear();
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::disallowed_methods, reason = "a test's own tasks end with it")]

    use super::*;

    type Doubles = Gather<u32, u32>;

    #[tokio::test]
    async fn what_is_asked_during_a_round_is_asked_together_in_the_next_and_each_gets_its_own_answer() {
        let gather = Doubles::default();
        let rounds: Arc<Mutex<Vec<usize>>> = Arc::default();
        let (go, gone) = tokio::sync::watch::channel(false);
        let ask = |n: u32| {
            let (gather, rounds, gone) = (gather.clone(), Arc::clone(&rounds), gone.clone());
            tokio::spawn(async move {
                let round = move |asked: Vec<u32>| {
                    rounds.lock().unwrap().push(asked.len());
                    let mut gone = gone.clone();
                    async move {
                        gone.wait_for(|gone| *gone).await.unwrap();
                        asked.into_iter().map(|n| n * 2).collect()
                    }
                };
                gather.ask(n, Duration::ZERO, round).await
            })
        };
        let first = ask(1);
        while rounds.lock().unwrap().is_empty() {
            tokio::task::yield_now().await;
        }
        let others: Vec<_> = (2..=700).map(ask).collect();
        while gather.waiting.lock().unwrap().asked.len() < 699 {
            tokio::task::yield_now().await;
        }
        go.send(true).unwrap();
        assert_eq!(first.await.unwrap(), Some(2));
        for (n, other) in (2..=700).zip(others) {
            assert_eq!(other.await.unwrap(), Some(n * 2));
        }
        assert_eq!(
            *rounds.lock().unwrap(),
            [1, ASKED_MOST, 699 - ASKED_MOST],
            "what is too much waits for the round after"
        );
    }

    #[tokio::test]
    async fn a_round_that_ends_without_answers_leaves_nobody_waiting_and_the_next_one_begins() {
        let gather = Doubles::default();
        let short = |_: Vec<u32>| async { Vec::new() };
        assert_eq!(gather.ask(1, Duration::ZERO, short).await, None);
        let breaks = |_: Vec<u32>| async { panic!("it broke") };
        assert_eq!(gather.ask(1, Duration::ZERO, breaks).await, None);
        assert_eq!(gather.ask(4, Duration::ZERO, |asked| async { asked }).await, Some(4));
    }

    #[tokio::test]
    async fn a_round_goes_on_when_nobody_waits_for_it_any_more() {
        let gather = Doubles::default();
        let (told, mut heard) = tokio::sync::mpsc::unbounded_channel();
        let asked = gather.ask(7, Duration::from_millis(1), move |asked| {
            told.send(asked.clone()).unwrap();
            async { asked }
        });
        assert!(tokio::time::timeout(Duration::ZERO, asked).await.is_err(), "it was dropped before the round began");
        assert_eq!(heard.recv().await, Some(vec![7]));
    }
}
