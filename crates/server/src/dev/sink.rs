//! A receiver of webhooks on loopback that verifies what it takes.

use std::collections::{HashSet, VecDeque};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, State};
use axum::http::{HeaderMap, StatusCode};
use axum::routing::post;
use axum::{Router, serve};
use postrider_contract::signature::{Received, Secret, Trust, verify};
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use super::figures::Figures;
use super::mood;
use crate::system;

/// How many ids each door remembers to tell a repeated webhook from a new one.
const SEEN_MAX: usize = 100_000;
/// The largest request that is read; an envelope is a little larger than the largest payload.
const BODY_BYTES_MAX: usize = 1024 * 1024;
const SEED: u64 = 17;

/// The receiver that `dev` brings along: two doors on loopback, one that always takes and one that fails at times.
/// Both verify every request as a receiver should.
#[derive(Debug)]
pub struct Sink {
    /// The door that never fails on purpose.
    pub steady: Door,
    /// The door that fails at times.
    pub shaky: Door,
    figures: Arc<Figures>,
}

/// One path of the receiver.
#[derive(Debug)]
pub struct Door {
    fails_at_times: bool,
    secret: OnceLock<Secret>,
    memory: Mutex<Memory>,
}

#[derive(Debug)]
struct Memory {
    dice: StdRng,
    requests: u64,
    seen: HashSet<Vec<u8>>,
    order: VecDeque<Vec<u8>>,
}

impl Memory {
    /// Whether an id is there for the first time.
    fn is_new(&mut self, id: &[u8]) -> bool {
        if !self.seen.insert(id.to_vec()) {
            return false;
        }
        self.order.push_back(id.to_vec());
        if self.order.len() > SEEN_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            self.seen.remove(&oldest);
        }
        true
    }
}

impl Door {
    fn new(fails_at_times: bool, seed: u64) -> Self {
        let (dice, requests) = (StdRng::seed_from_u64(seed), 0);
        let memory = Memory { dice, requests, seen: HashSet::new(), order: VecDeque::new() };
        Self { fails_at_times, secret: OnceLock::new(), memory: Mutex::new(memory) }
    }

    /// Tells the door which secret its sender signs with; before that it answers 503. The first one stays.
    pub fn trust(&self, secret: Secret) {
        // Set once by construction: each run makes its own doors and its own endpoints.
        drop(self.secret.set(secret));
    }

    fn with_memory<T>(&self, f: impl FnOnce(&mut Memory) -> T) -> T {
        f(&mut self.memory.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Sink {
    /// A receiver that has seen nothing yet.
    pub fn new(figures: Arc<Figures>) -> Self {
        Self { steady: Door::new(false, SEED), shaky: Door::new(true, SEED), figures }
    }

    /// Serves `/steady` and `/shaky` until it is told to stop.
    pub async fn serve(self: Arc<Self>, listener: TcpListener, stop: CancellationToken) -> anyhow::Result<()> {
        let router = Router::new()
            .route("/steady", post(take_steady))
            .route("/shaky", post(take_shaky))
            .layer(DefaultBodyLimit::max(BODY_BYTES_MAX))
            .with_state(self);
        serve(listener, router).with_graceful_shutdown(async move { stop.cancelled().await }).await?;
        Ok(())
    }

    /// Judges one request; pure but for what the door remembers.
    pub fn judge(&self, door: &Door, headers: &HeaderMap, body: &[u8], now: i64) -> StatusCode {
        let Some(secret) = door.secret.get() else { return StatusCode::SERVICE_UNAVAILABLE };
        let header = |name| headers.get(name).map_or(&[][..], |value| value.as_bytes());
        let id = header("webhook-id");
        let received =
            Received { id, timestamp: header("webhook-timestamp"), signature: header("webhook-signature"), body };
        if verify(&received, &Trust::secrets(std::slice::from_ref(secret)), now).is_err() {
            self.figures.unsigned.add_one();
            return StatusCode::UNAUTHORIZED;
        }
        let (fails, is_new) = door.with_memory(|memory| {
            let fails = door.fails_at_times && mood::fails(memory.requests, memory.dice.random());
            memory.requests += 1;
            (fails, !fails && memory.is_new(id))
        });
        if fails {
            self.figures.failed.add_one();
            return StatusCode::SERVICE_UNAVAILABLE;
        }
        if !is_new {
            self.figures.repeated.add_one();
            return StatusCode::NO_CONTENT;
        }
        self.figures.delivered.add_one();
        if !door.fails_at_times
            && let Some(id) = std::str::from_utf8(id).ok().and_then(|id| id.parse().ok())
        {
            self.figures.arrived(id, system::now());
        }
        StatusCode::NO_CONTENT
    }
}

fn now() -> i64 {
    i64::try_from(system::since_epoch().as_secs()).unwrap_or(i64::MAX)
}

async fn take_steady(State(sink): State<Arc<Sink>>, headers: HeaderMap, body: Bytes) -> StatusCode {
    sink.judge(&sink.steady, &headers, &body, now())
}

async fn take_shaky(State(sink): State<Arc<Sink>>, headers: HeaderMap, body: Bytes) -> StatusCode {
    sink.judge(&sink.shaky, &headers, &body, now())
}
