//! Counts of requests that were sent, answered, refused and lost.

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

/// The counted events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Count {
    /// Requests with a complete and correct answer, by protocol.
    Http1,
    Http2,
    /// Requests that were sent, with any outcome.
    Sent,
    /// Requests for which the head of an answer arrived.
    Answered,
    /// Answers that show another agent's identity.
    Crossed,
    /// Requests with a body, and those whose body exceeds the proxy's buffer limit.
    Uploads,
    LargeUploads,
    /// Connections of agents that move few bytes at a time.
    SlowConnections,
    /// Connections of agents.
    Connections,
    /// Connections with a resumed session.
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
    /// Adds one to a count.
    pub(super) fn count(&self, what: Count) {
        self.counts[what as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// The current count.
    pub(super) fn counted(&self, what: Count) -> u64 {
        self.counts[what as usize].load(Ordering::Relaxed)
    }

    /// Requests with a complete and correct answer.
    pub(super) fn answered(&self) -> u64 {
        self.counted(Count::Http1) + self.counted(Count::Http2)
    }

    /// Counts a failed request that an injected fault explains.
    pub(super) fn failed(&self, failure: RequestFailure, cause: &'static str) {
        let mut failures = self.failures.lock().unwrap_or_else(PoisonError::into_inner);
        *failures.entry((failure.as_str(), cause)).or_default() += 1;
    }

    /// How many requests failed, by failure and cause.
    pub(super) fn failures(&self) -> BTreeMap<(&'static str, &'static str), u64> {
        let failures = self.failures.lock().unwrap_or_else(PoisonError::into_inner);
        failures.clone()
    }

    /// Records how long an event took. A time above `limit` is a miss.
    pub(super) fn took(&self, what: &'static str, time: Duration, limit: Duration) {
        let mut slowest = self.slowest.lock().unwrap_or_else(PoisonError::into_inner);
        let most = slowest.entry(what).or_default();
        *most = time.max(*most);
        drop(slowest);
        if time > limit {
            self.miss(format!("{what} after {time:.1?}, more than {limit:?}"));
        }
    }

    /// The longest time that an event took.
    pub(super) fn slowest(&self, what: &'static str) -> Duration {
        let slowest = self.slowest.lock().unwrap_or_else(PoisonError::into_inner);
        slowest.get(what).copied().unwrap_or_default()
    }

    /// Records a miss: a lost request or another violated expectation.
    pub(super) fn miss(&self, what: String) {
        let mut misses = self.misses();
        misses.count += 1;
        if misses.first.len() < MISSES_PRINTED_MAX {
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

/// How many misses are printed one by one.
const MISSES_PRINTED_MAX: usize = 50;
