//! Waiting for a condition, and never for a fixed time.

use std::{
    thread::sleep,
    time::{Duration, Instant},
};

/// Short enough not to slow a test down, and long enough that polling costs nothing.
const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// Polls `condition` until it returns a value. Returns `None` if `limit` passes first.
pub fn wait_until<T>(limit: Duration, mut condition: impl FnMut() -> Option<T>) -> Option<T> {
    let deadline = Instant::now() + limit;
    loop {
        if let Some(value) = condition() {
            return Some(value);
        }
        if Instant::now() >= deadline {
            return None;
        }
        sleep(POLL_INTERVAL);
    }
}
