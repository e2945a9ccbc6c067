//! A service of our own, reached by HTTP, as the handler of a subscription. In: a leased job and its event. Out: one signed POST, one verdict.
//!
//! Whoever builds the process names the service, so it is trusted: it may be on a private address and without TLS. Nothing is open on the
//! database while the POST runs; what fails is an attempt like any other, with its error.

use std::time::Duration;

use postrider::{Answer, BoxError, Context, Handler, Job, KindSpec, Retry, Verdict};
use postrider_contract::signature::{Secret, sign_v1};
use postrider_contract::{Code, Refused};
use serde::Deserialize;

use crate::body::{Format, content};
use crate::client::{Client, Exchange, Post};
use crate::clock::Clock;
use crate::guard::Guard;
use crate::target::Target;

/// How long a call may take, if nothing else is said.
pub const SERVICE_TIMEOUT: Duration = Duration::from_secs(30);
/// The longest time that one call may take, and the longest that a service may put a job off at once.
const TIMEOUT_MAX: Duration = Duration::from_mins(5);
const SNOOZE_MAX: Duration = Duration::from_hours(24);
/// How much of an answer stands in the error of an attempt, in bytes.
const TOLD_BYTES_MAX: usize = 500;
/// Time beside the call itself: to sign, and to be told of a stop.
const ROOM: Duration = Duration::from_secs(5);

/// A service: where it is, and the secret that it knows us by.
#[derive(Debug, Clone)]
pub struct Service {
    target: Target,
    secret: Secret,
    timeout: Duration,
    client: Client,
    clock: Clock,
}

/// What a service may answer beside its status.
#[derive(Deserialize)]
struct Said {
    verdict: String,
    seconds: Option<u64>,
    reason: Option<String>,
}

impl Service {
    /// A service at a URL, http or https, on any address. Its name is looked up by the system's name servers at each call. The error names the field `url`.
    pub fn new(url: &str, secret: Secret) -> Result<Self, Refused> {
        let client = Client::new(Guard::new(["0.0.0.0/0", "::/0"])?, [])?;
        Ok(Self { target: Target::trusted(url)?, secret, timeout: SERVICE_TIMEOUT, client, clock: Clock::system() })
    }

    /// The same, with so much time for a call, from the look-up of the name to the last byte; 5 minutes at most. The error names the field `timeout`.
    pub fn timeout(mut self, timeout: Duration) -> Result<Self, Refused> {
        if timeout.is_zero() || timeout > TIMEOUT_MAX {
            let message = format!("{} ms is out of range", timeout.as_millis());
            return Err(Refused::new(Code::Option, "timeout", message, "use more than 0 and at most 5 minutes"));
        }
        self.timeout = timeout;
        Ok(self)
    }

    /// The same, with another client: other name servers, other certificate authorities.
    #[must_use]
    pub fn client(mut self, client: Client) -> Self {
        self.client = client;
        self
    }

    /// A kind for the jobs of this service: named `http.` and `name`, in the queue `http`, with a timeout that leaves room for the call. What leaves the
    /// database can be held, and these kinds are held with it.
    pub fn kind(&self, name: &str) -> KindSpec {
        KindSpec {
            queue: "http".to_owned(),
            timeout: self.timeout + ROOM,
            retry: Retry::default(),
            ..KindSpec::new(format!("http.{name}"))
        }
    }

    async fn call(&self, job: &Job, cx: &Context) -> Result<Verdict, BoxError> {
        let Some(event) = job.event.as_ref() else {
            return Ok(Verdict::Discard("the event is not in the log any more".to_owned()));
        };
        let body = content(event, Format::Envelope).body;
        let (id, timestamp) = (event.id.to_string(), self.clock.now().as_secs());
        let signature = sign_v1(std::slice::from_ref(&self.secret), &id, timestamp, &body);
        let mut headers = Vec::with_capacity(7);
        headers.extend(event.traceparent.clone().map(|trace| ("traceparent", trace)));
        headers.extend([
            ("content-type", "application/json".to_owned()),
            ("user-agent", concat!("Postrider/", env!("CARGO_PKG_VERSION")).to_owned()),
            ("webhook-attempt", job.attempt.to_string()),
            ("webhook-id", id),
            ("webhook-timestamp", timestamp.to_string()),
            ("webhook-signature", signature),
        ]);
        let post = Post { headers: &headers, ..Post::new(&self.target, &body, self.timeout) };
        tokio::select! {
            exchange = self.client.post(post) => judge(&exchange).map_err(Into::into),
            () = cx.stop().cancelled() => Err("the call was stopped before its answer".into()),
        }
    }
}

impl Handler for Service {
    fn handle<'a>(&'a self, job: &'a Job, cx: &'a Context) -> Answer<'a> {
        Box::pin(self.call(job, cx))
    }
}

/// 204 and 200 are done, 200 with `{"verdict": "snooze", "seconds": n}` is not yet, 422 with `{"verdict": "discard", "reason": …}` is never; everything else
/// is tried again.
fn judge(exchange: &Exchange) -> Result<Verdict, String> {
    if let Some(failure) = &exchange.failure {
        return Err(failure.to_string());
    }
    let said = serde_json::from_slice::<Said>(&exchange.body).ok();
    let verdict = said.as_ref().map(|said| said.verdict.as_str());
    match (exchange.status, verdict) {
        (Some(204), _) | (Some(200), None | Some("complete")) => Ok(Verdict::Complete),
        (Some(200), Some("snooze")) => match said.and_then(|said| said.seconds).map(Duration::from_secs) {
            Some(wait) if !wait.is_zero() && wait <= SNOOZE_MAX => Ok(Verdict::Snooze(wait)),
            _ => Err("the service answered snooze without seconds between 1 and 86400".to_owned()),
        },
        (Some(422), Some("discard")) => {
            let reason = said.and_then(|said| said.reason).unwrap_or_default();
            Ok(Verdict::Discard(if reason.is_empty() { "the service gave no reason".to_owned() } else { reason }))
        }
        (Some(status), _) => {
            let told = exchange.body.get(..TOLD_BYTES_MAX).unwrap_or(&exchange.body);
            Err(format!("the service answered {status}: {}", String::from_utf8_lossy(told)))
        }
        (None, _) => Err("the service did not answer".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(status: u16, body: &str) -> Result<Verdict, String> {
        judge(&Exchange { status: Some(status), body: body.as_bytes().to_vec(), ..Exchange::default() })
    }

    #[test]
    fn an_answer_is_a_verdict() {
        for (status, body) in [(204, ""), (200, ""), (200, "thanks"), (200, "[]"), (200, r#"{"verdict":"complete"}"#)] {
            assert!(matches!(of(status, body), Ok(Verdict::Complete)), "{status} {body}");
        }
        let snoozed = of(200, r#"{"verdict":"snooze","seconds":90}"#);
        assert!(matches!(snoozed, Ok(Verdict::Snooze(wait)) if wait == Duration::from_secs(90)));
        let discarded = of(422, r#"{"verdict":"discard","reason":"no such customer"}"#);
        assert!(matches!(discarded, Ok(Verdict::Discard(reason)) if reason == "no such customer"));
        for (status, body) in [
            (200, r#"{"verdict":"snooze"}"#),
            (200, r#"{"verdict":"snooze","seconds":0}"#),
            (200, r#"{"verdict":"snooze","seconds":86401}"#),
            (200, r#"{"verdict":"discard","reason":"only with 422"}"#),
            (200, r#"{"verdict":"never heard of"}"#),
            (422, ""),
            (422, r#"{"verdict":"snooze","seconds":9}"#),
            (201, ""),
            (202, ""),
            (301, ""),
            (404, ""),
            (429, ""),
            (500, "on fire"),
        ] {
            assert!(of(status, body).is_err(), "{status} {body}");
        }
        assert_eq!(of(500, "on fire").unwrap_err(), "the service answered 500: on fire");
    }
}
