use std::time::Duration;

use postrider::{BoxError, Job, Verdict};

use super::End;
use super::letter::Letter;
use crate::judge::Judgement;
use crate::schedule::step_after;

/// How an attempt ended: for its row, for its endpoint, for the engine.
pub(super) struct Ended {
    pub(super) word: &'static str,
    pub(super) reason: String,
    pub(super) verdict: Result<Verdict, BoxError>,
    pub(super) asked: Option<Duration>,
    pub(super) end: End,
}

/// The word on the row, the reason, and what the engine is told. `asked`: how long the answer asked to wait, whatever it was.
pub(super) fn ended(judgement: Judgement, job: &Job, letter: &Letter, asked: Option<Duration>) -> Ended {
    let attempt = job.attempt;
    match judgement {
        Judgement::Delivered => Ended {
            word: "delivered",
            reason: String::new(),
            verdict: Ok(Verdict::Complete),
            asked: None,
            end: End::Nothing,
        },
        Judgement::Failed { reason, .. } if attempt >= letter.max_attempts.min(job.max_attempts) => {
            let told = format!("gave up after {attempt} attempts: {reason}");
            Ended { word: "failed", reason, verdict: Ok(Verdict::Discard(told)), asked, end: End::GivenUp }
        }
        Judgement::Failed { reason, not_before } => {
            let own = letter.steps.as_deref().and_then(|steps| step_after(steps, attempt));
            let verdict = match (own, not_before) {
                (Some(wait), _) => {
                    Ok(Verdict::RetryIn { reason: reason.clone(), wait: wait.max(asked.unwrap_or_default()) })
                }
                (None, Some(after)) => Ok(Verdict::Retry { reason: reason.clone(), after }),
                (None, None) => Err(reason.clone().into()),
            };
            Ended { word: "failed", reason, verdict, asked, end: End::Nothing }
        }
        Judgement::Postponed { wait } => {
            let reason = format!("the endpoint asked to wait {} s", wait.as_secs());
            Ended {
                word: "postponed",
                reason,
                verdict: Ok(Verdict::Snooze(wait)),
                asked: Some(wait),
                end: End::Nothing,
            }
        }
        Judgement::Held { reason, wait } => {
            Ended { word: "postponed", reason, verdict: Ok(Verdict::Snooze(wait)), asked: None, end: End::Nothing }
        }
        Judgement::Discarded { reason } => Ended {
            word: "discarded",
            reason: reason.clone(),
            verdict: Ok(Verdict::Discard(reason)),
            asked: None,
            end: End::GivenUp,
        },
        Judgement::Gone { reason } => Ended {
            word: "discarded",
            reason: reason.clone(),
            verdict: Ok(Verdict::Discard(reason)),
            asked: None,
            end: End::Gone,
        },
    }
}
