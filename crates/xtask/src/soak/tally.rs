//! What was asked, answered, refused and lost.

use std::{
    collections::BTreeMap,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use super::explanation::RequestFailure;

/// Counts of all agents together.
#[derive(Default)]
pub(super) struct Tally {
    counts: [AtomicU64; COUNTED],
    slowest: Mutex<BTreeMap<&'static str, Duration>>,
    failures: Mutex<BTreeMap<(&'static str, &'static str), u64>>,
    misses: Mutex<Misses>,
}

/// What is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Count {
    /// Requests that were answered in full and rightly, by protocol.
    Http1,
    Http2,
    /// Requests that were sent, whatever became of them.
    Sent,
    /// Requests to which the head of an answer came.
    Answered,
    /// Answers that show another agent's identity.
    Crossed,
    /// Requests with a body, and those whose body the proxy cannot buffer whole.
    Uploads,
    LargeUploads,
    /// Connections of agents that move few bytes at a time.
    SlowConnections,
    /// Connections of agents.
    Connections,
    /// Of those, resumed ones.
    Resumed,
    /// Tunnels opened, and messages that came back through them.
    Tunnels,
    Messages,
    Crls,
    Certificates,
    Revoked,
    Reloads,
    Restarts,
    Enrolled,
}

const COUNTED: usize = Count::Enrolled as usize + 1;

#[derive(Default)]
struct Misses {
    count: u64,
    first: Vec<String>,
}

impl Tally {
    /// One more.
    pub(super) fn count(&self, what: Count) {
        self.counts[what as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// How many so far.
    pub(super) fn counted(&self, what: Count) -> u64 {
        self.counts[what as usize].load(Ordering::Relaxed)
    }

    /// Requests that were answered in full and rightly.
    pub(super) fn answered(&self) -> u64 {
        self.counted(Count::Http1) + self.counted(Count::Http2)
    }

    /// A request failed in a way that an injected fault explains.
    pub(super) fn failed(&self, failure: RequestFailure, cause: &'static str) {
        let mut failures = self.failures.lock().unwrap_or_else(PoisonError::into_inner);
        *failures.entry((failure.as_str(), cause)).or_default() += 1;
    }

    /// How many requests failed, by failure and cause.
    pub(super) fn failures(&self) -> BTreeMap<(&'static str, &'static str), u64> {
        let failures = self.failures.lock().unwrap_or_else(PoisonError::into_inner);
        failures.clone()
    }

    /// Something had happened after this long, which is a miss beyond `limit`.
    pub(super) fn took(&self, what: &'static str, time: Duration, limit: Duration) {
        let mut slowest = self.slowest.lock().unwrap_or_else(PoisonError::into_inner);
        let most = slowest.entry(what).or_default();
        *most = time.max(*most);
        drop(slowest);
        if time > limit {
            self.miss(format!("{what} after {time:.1?}, more than {limit:?}"));
        }
    }

    /// The longest that something took.
    pub(super) fn slowest(&self, what: &'static str) -> Duration {
        let slowest = self.slowest.lock().unwrap_or_else(PoisonError::into_inner);
        slowest.get(what).copied().unwrap_or_default()
    }

    /// A request was lost, or something else was not as it has to be.
    pub(super) fn miss(&self, what: String) {
        let mut misses = self.misses();
        misses.count += 1;
        if misses.first.len() < MISSES_KEPT_MAX {
            eprintln!("missed: {what}");
            misses.first.push(what);
        }
    }

    /// How many misses there are.
    pub(super) fn missed(&self) -> u64 {
        self.misses().count
    }

    /// The first misses.
    pub(super) fn first_misses(&self) -> Vec<String> {
        self.misses().first.clone()
    }

    fn misses(&self) -> MutexGuard<'_, Misses> {
        self.misses.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Misses that are told one by one.
const MISSES_KEPT_MAX: usize = 50;
