//! A stand-in compiler that simulates JRubies, `max-queued-requests` and warm-up.

use std::{
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread,
    time::Duration,
};

use serde_json::json;
use testkit::{Recorded, Reply, StandIn};

pub(super) struct Compiler {
    stand_in: StandIn,
    jrubies: Arc<JRubies>,
}

/// Counts since the last reset.
#[derive(Clone, Copy, Default)]
pub(super) struct Seen {
    pub(super) served: usize,
    pub(super) longest_queue: usize,
    pub(super) refused: usize,
}

struct JRubies {
    count: usize,
    state: Mutex<State>,
    returned: Condvar,
}

#[derive(Default)]
struct State {
    busy: usize,
    waiting: usize,
    /// Number of requests since the start of the server.
    warmth: usize,
    seen: Seen,
}

impl Compiler {
    pub(super) fn start(name: &str, count: usize) -> Self {
        let jrubies = Arc::new(JRubies {
            count,
            state: Mutex::default(),
            returned: Condvar::new(),
        });
        jrubies.state().warmth = usize::MAX / 2;
        let stand_in = StandIn::start(name);
        let borrowed = Arc::clone(&jrubies);
        stand_in.answer(move |request| borrowed.answer(request));
        Self { stand_in, jrubies }
    }

    pub(super) fn name(&self) -> &str {
        self.stand_in.name()
    }

    pub(super) fn address(&self) -> String {
        self.stand_in.address()
    }

    /// Stops the compiler at once. It accepts requests again after a while, without warm-up.
    pub(super) fn restart(&self) {
        self.stand_in.kill();
        thread::sleep(RESTART);
        self.jrubies.state().warmth = 0;
        self.stand_in.restart();
    }

    pub(super) fn seen(&self) -> Seen {
        self.jrubies.state().seen
    }

    pub(super) fn forget(&self) {
        self.stand_in.forget();
        self.jrubies.state().seen = Seen::default();
    }
}

impl JRubies {
    fn answer(&self, request: &Recorded) -> Option<Reply> {
        if request.is_jruby_reading() {
            return Some(self.metrics());
        }
        if request.is_probe() {
            return None;
        }
        let mut state = self.state();
        if state.busy >= self.count {
            if state.waiting >= QUEUE_FACTOR * self.count {
                state.seen.refused += 1;
                return Some(
                    Reply::status(503)
                        .header("X-Puppet-Version", "7.23.0")
                        .header("Retry-After", "600"),
                );
            }
            state.waiting += 1;
            state.seen.longest_queue = state.seen.longest_queue.max(state.waiting);
            while state.busy >= self.count {
                state = self
                    .returned
                    .wait(state)
                    .unwrap_or_else(PoisonError::into_inner);
            }
            state.waiting -= 1;
        }
        state.busy += 1;
        let warm = WARM_AFTER * self.count;
        let coldness = warm.saturating_sub(state.warmth) as f64 / warm as f64;
        drop(state);
        thread::sleep(work(request.path()).mul_f64(1.0 + 3.0 * coldness));
        let mut state = self.state();
        state.busy -= 1;
        state.warmth = state.warmth.saturating_add(1);
        state.seen.served += 1;
        drop(state);
        self.returned.notify_one();
        Some(Reply::json(&json!({})).header("X-Puppet-Version", "7.23.0"))
    }

    fn metrics(&self) -> Reply {
        let state = self.state();
        Reply::jrubies(&json!({
            "num-jrubies": self.count,
            "num-free-jrubies": self.count - state.busy,
            "requested-count": state.seen.served,
            "borrow-timeout-count": 0,
            "average-borrow-time": 100,
            "average-wait-time": 0,
        }))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A catalog takes 60 to 340 ms, depending on the agent's name. Other requests take some milliseconds.
fn work(path: &str) -> Duration {
    let Some((_, name)) = path.split_once("/puppet/v3/catalog/") else {
        return Duration::from_millis(4);
    };
    let number: u64 = name
        .bytes()
        .fold(0, |sum, byte| (sum * 31 + u64::from(byte)) % 1_009);
    Duration::from_millis(60 + number % 8 * 40)
}

/// `max-queued-requests` per JRuby.
const QUEUE_FACTOR: usize = 12;
/// Requests per JRuby until it is warm. This is a tenth of what a JVM needs.
const WARM_AFTER: usize = 30;
/// Time from the stop to the next start.
const RESTART: Duration = Duration::from_millis(1_200);
