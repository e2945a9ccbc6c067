//! The system's clock and dice; everything else is given a moment or a die.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::Context as _;
use rand::TryRng as _;
use rand::rngs::SysRng;

/// A moment on the monotonic clock, for measuring.
#[expect(clippy::disallowed_methods, reason = "this is the clock that the others ask")]
pub fn now() -> Instant {
    Instant::now()
}

/// The time of day since 1970, for what the receiver compares with a signature's timestamp.
#[expect(clippy::disallowed_methods, reason = "this is the clock that the others ask")]
pub fn since_epoch() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// Bytes that nobody can guess, from the system.
pub fn secret_bytes() -> anyhow::Result<[u8; 32]> {
    let mut bytes = [0; 32];
    SysRng.try_fill_bytes(&mut bytes).context("the system gives no random bytes")?;
    Ok(bytes)
}
