//! How warm a restarted member is, and its smaller weight during slow start. Pure: time is an argument.

use std::{
    sync::atomic::{AtomicU32, AtomicU64, Ordering},
    time::Duration,
};

use crate::settings::SlowStartSettings;

/// The progress of one member from cold to warm. It has no timer: responses, probes and the status query the progress.
#[derive(Debug, Default)]
pub(crate) struct Warmup {
    /// Length of slow start in milliseconds. 0: no slow start, and [`WARM_MS`] make the member warm.
    duration_ms: AtomicU64,
    /// Requests per JRuby that make the member warm. 0: only time makes it warm.
    requests: AtomicU32,
    /// Configured JRubies. 0: not configured.
    jrubies: AtomicU32,
    /// Milliseconds since start at which the member became cold. 0: it is warm. [`PENDING`]: the time is not known yet.
    since_ms: AtomicU64,
    /// Requests that the member has answered since then.
    served: AtomicU32,
}

impl Warmup {
    pub(crate) fn configure(&self, settings: &SlowStartSettings, jrubies: Option<u32>) {
        let duration_ms = u64::try_from(settings.duration.as_millis()).unwrap_or(u64::MAX);
        self.duration_ms.store(duration_ms, Ordering::Relaxed);
        self.requests.store(settings.requests, Ordering::Relaxed);
        self.jrubies.store(jrubies.unwrap_or(0), Ordering::Relaxed);
    }

    /// Makes the member cold from now on.
    pub(crate) fn begin(&self) {
        self.served.store(0, Ordering::Relaxed);
        self.since_ms.store(PENDING, Ordering::Relaxed);
    }

    /// Starts the time again, because the member got no requests until now. Its earlier responses still count.
    pub(crate) fn restart_clock(&self) {
        if self.is_active() {
            self.since_ms.store(PENDING, Ordering::Relaxed);
        }
    }

    /// Copies the state of a member that is the same server under another name.
    pub(crate) fn take_over(&self, other: &Self) {
        let copy = |to: &AtomicU64, from: &AtomicU64| {
            to.store(from.load(Ordering::Relaxed), Ordering::Relaxed);
        };
        copy(&self.duration_ms, &other.duration_ms);
        copy(&self.since_ms, &other.since_ms);
        let served = other.served.load(Ordering::Relaxed);
        self.served.store(served, Ordering::Relaxed);
    }

    #[inline]
    pub(crate) fn is_active(&self) -> bool {
        self.since_ms.load(Ordering::Relaxed) != 0
    }

    pub(crate) fn count(&self) {
        self.served.fetch_add(1, Ordering::Relaxed);
    }

    /// Percentage of the weight at `progress` percent of the warm-up.
    pub(crate) fn weight(&self, progress: u32) -> u32 {
        match self.duration_ms.load(Ordering::Relaxed) {
            0 => 100,
            _ => START_PERCENT + (100 - START_PERCENT) * progress / 100,
        }
    }

    /// Progress in percent at `now` (time since start). At 100, the member is warm from now on. Either enough time or enough
    /// requests make it warm.
    pub(crate) fn progress(&self, jrubies: Option<u32>, now: Duration) -> u32 {
        let now_ms = u64::try_from(now.as_millis()).unwrap_or(u64::MAX).max(1);
        let since_ms = match self.since_ms.load(Ordering::Relaxed) {
            0 => return 100,
            PENDING => {
                self.since_ms.store(now_ms, Ordering::Relaxed);
                now_ms
            }
            since_ms => since_ms,
        };
        let parts = |done: u64, all: u64| match all {
            0 => 0,
            all => done.min(all).saturating_mul(100) / all,
        };
        let duration_ms = match self.duration_ms.load(Ordering::Relaxed) {
            0 => WARM_MS,
            duration_ms => duration_ms,
        };
        let by_time = parts(now_ms.saturating_sub(since_ms), duration_ms);
        let configured = Some(self.jrubies.load(Ordering::Relaxed)).filter(|count| *count > 0);
        let jrubies = configured.or(jrubies).unwrap_or(JRUBIES_ASSUMED);
        let requests = u64::from(self.requests.load(Ordering::Relaxed)) * u64::from(jrubies);
        let by_requests = parts(self.served.load(Ordering::Relaxed).into(), requests);
        let done = by_time.max(by_requests) as u32;
        if done >= 100 {
            // If the member was restarted meanwhile, it stays cold.
            let (warm, relaxed) = (0, Ordering::Relaxed);
            let _ = (self.since_ms).compare_exchange(since_ms, warm, relaxed, relaxed);
        }
        done
    }
}

/// Value of `since_ms`: the time starts with the next call that passes the time.
const PENDING: u64 = u64::MAX;
/// Percentage of its weight that a cold member has.
const START_PERCENT: u32 = 10;
/// Time after which a member is warm if there is no slow start.
const WARM_MS: u64 = 300_000;
/// Assumed number of JRubies if neither the configuration nor the member gives one: the default of Puppet Server on five or
/// more cores.
const JRUBIES_ASSUMED: u32 = 4;

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(seconds: u64, requests: u32) -> SlowStartSettings {
        SlowStartSettings {
            duration: Duration::from_secs(seconds),
            requests,
        }
    }

    fn cold(requests: u32, jrubies: Option<u32>) -> Warmup {
        let warmup = Warmup::default();
        warmup.configure(&settings(100, requests), jrubies);
        assert!(!warmup.is_active());
        warmup.begin();
        assert!(warmup.is_active());
        warmup
    }

    const fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn time_alone_makes_a_member_warm() {
        let warmup = cold(300, Some(4));
        let progress = [1_000, 1_010, 1_050, 1_099].map(|now| warmup.progress(None, at(now)));
        assert_eq!(progress, [0, 10, 50, 99]);
        assert_eq!(progress.map(|done| warmup.weight(done)), [10, 19, 55, 99]);
        assert!(warmup.is_active());
        assert_eq!(warmup.progress(None, at(1_100)), 100);
        assert!(!warmup.is_active());
        assert_eq!(warmup.progress(None, at(1_101)), 100);
    }

    #[test]
    fn requests_make_a_member_warm_sooner_by_its_jrubies() {
        for (configured, shown, all) in [
            (Some(2), Some(5), 200),
            (None, Some(5), 500),
            (None, None, 400),
        ] {
            let warmup = cold(100, configured);
            assert_eq!(warmup.progress(shown, at(1)), 0);
            (0..all / 2).for_each(|_| warmup.count());
            assert_eq!(warmup.progress(shown, at(2)), 50);
            (all / 2..all).for_each(|_| warmup.count());
            assert_eq!(warmup.progress(shown, at(2)), 100, "{all}");
        }
        let by_time_alone = cold(0, Some(1));
        (0..1_000).for_each(|_| by_time_alone.count());
        assert_eq!(by_time_alone.progress(None, at(1)), 0);
    }

    #[test]
    fn a_restart_begins_again_and_a_wait_without_requests_does_not_count() {
        let warmup = cold(100, Some(1));
        warmup.progress(None, at(1));
        (0..30).for_each(|_| warmup.count());
        warmup.restart_clock();
        assert_eq!(warmup.progress(None, at(99)), 30);
        warmup.begin();
        assert_eq!(warmup.progress(None, at(99)), 0);
    }

    #[test]
    fn without_slow_start_a_member_has_its_whole_weight_while_it_is_cold() {
        let warmup = cold(0, None);
        warmup.configure(&settings(0, 0), None);
        assert_eq!(warmup.progress(None, at(1)), 0);
        assert_eq!(warmup.progress(None, at(151)), 50);
        assert_eq!((warmup.weight(0), warmup.weight(50)), (100, 100));
        assert_eq!(warmup.progress(None, at(301)), 100);
    }
}
