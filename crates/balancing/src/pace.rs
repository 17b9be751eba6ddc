//! Service times: how long each kind of work takes in a pool, and how much slower than other members a member is.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use crate::work::{Task, Work};

/// Moving mean, over all members of a pool, of how long each kind of work keeps a JRuby busy.
#[derive(Debug)]
pub(crate) struct ServiceTimes {
    /// The means in microseconds, in the order of [`Work::ALL`].
    means: [AtomicU32; Work::ALL.len()],
    /// Milliseconds since start at which the members' paces were last moved towards the mean.
    eased_at_ms: AtomicU64,
}

impl Default for ServiceTimes {
    fn default() -> Self {
        Self {
            means: Work::ALL.map(|work| AtomicU32::new(prior(work))),
            eased_at_ms: AtomicU64::new(0),
        }
    }
}

impl ServiceTimes {
    /// How long a request is expected to keep a JRuby busy, in milliseconds. At least 1 if it needs a JRuby.
    pub(crate) fn expected_ms(&self, task: Task) -> u32 {
        if task.without_jruby {
            0
        } else {
            (self.mean(task.work) / 1_000).max(1)
        }
    }

    fn mean(&self, work: Work) -> u32 {
        self.means[work.index()].load(Ordering::Relaxed)
    }

    /// Learns from a request of this kind, which was answered by the member with this `pace`. If `doubtful` is true, as for
    /// errors, a short time is ignored: a member that fails at once must not seem fast.
    pub(crate) fn learn(&self, work: Work, took: Duration, doubtful: bool, pace: &Pace) {
        let took = u32::try_from(took.as_micros()).unwrap_or(u32::MAX);
        let mean = self.mean(work);
        if doubtful && took < mean {
            return;
        }
        let prior = prior(work);
        let bounded = took.clamp(mean / 8, mean.saturating_mul(8));
        let learned = towards(mean, bounded, MEAN_SHARE).clamp(prior / 64, prior * 16);
        self.means[work.index()].store(learned, Ordering::Relaxed);
        pace.learn(took, mean);
    }

    /// Whether to move the paces towards the mean now. True for one caller in each [`EASE_INTERVAL_MS`] milliseconds.
    pub(crate) fn ease_is_due(&self, now: Duration) -> bool {
        let now = u64::try_from(now.as_millis()).unwrap_or(u64::MAX);
        let last = self.eased_at_ms.load(Ordering::Relaxed);
        let swap = |from| {
            let swapped = Ordering::Relaxed;
            self.eased_at_ms
                .compare_exchange(from, now, swapped, swapped)
                .is_ok()
        };
        now.saturating_sub(last) >= EASE_INTERVAL_MS && swap(last)
    }
}

/// Moving mean of a member's service times, as a multiple of the pool's mean for the same kind of work.
#[derive(Debug)]
pub(crate) struct Pace(AtomicU32);

impl Default for Pace {
    fn default() -> Self {
        Self(AtomicU32::new(AVERAGE))
    }
}

impl Pace {
    /// How slow the member is, in halves of the pool's pace: 2 to 16. A member that is less than half slower than the pool
    /// counts as equally fast, because such differences can be due to chance. A faster member gets no advantage.
    pub(crate) fn slowness(&self) -> u64 {
        u64::from(self.0.load(Ordering::Relaxed) / (AVERAGE / 2)).max(2)
    }

    /// A race between workers loses at most one sample.
    fn learn(&self, took: u32, mean: u32) {
        let multiple = u64::from(took) * u64::from(AVERAGE) / u64::from(mean.max(1));
        let multiple = multiple.clamp(u64::from(AVERAGE / 4), u64::from(SLOWEST)) as u32;
        let pace = self.0.load(Ordering::Relaxed);
        self.0
            .store(towards(pace, multiple, PACE_SHARE), Ordering::Relaxed);
    }

    /// Moves the pace towards the pool's pace, because a slow member gets few requests that could show that it is faster now.
    pub(crate) fn ease(&self) {
        let pace = self.0.load(Ordering::Relaxed);
        self.0
            .store(towards(pace, AVERAGE, EASE_SHARE), Ordering::Relaxed);
    }
}

/// `value` moved towards `target` by one part in `share` of the difference.
fn towards(value: u32, target: u32, share: u32) -> u32 {
    if value <= target {
        value + (target - value) / share
    } else {
        value - (value - target) / share
    }
}

/// Assumed duration of a kind of work before any was measured, in microseconds.
fn prior(work: Work) -> u32 {
    match work {
        Work::Catalog => 4_000_000,
        Work::File => 20_000,
        Work::Report => 200_000,
        Work::Other => 50_000,
    }
}

const AVERAGE: u32 = 1 << 16;
const SLOWEST: u32 = 8 * AVERAGE;
/// A pool's mean is over about this number of requests, because catalogs differ by a factor of a hundred.
const MEAN_SHARE: u32 = 64;
const PACE_SHARE: u32 = 16;
const EASE_SHARE: u32 = 8;
const EASE_INTERVAL_MS: u64 = 10_000;

#[cfg(test)]
mod tests {
    use super::*;

    const CATALOG: Task = Task::of(Work::Catalog);

    fn taught(pace: &Pace, times: &ServiceTimes, took: Duration, requests: usize, doubtful: bool) {
        for _ in 0..requests {
            times.learn(Work::Catalog, took, doubtful, pace);
        }
    }

    #[test]
    fn a_pool_learns_how_long_work_takes_within_bounds() {
        let (times, pace) = (ServiceTimes::default(), Pace::default());
        assert_eq!(times.expected_ms(CATALOG), 4_000);
        taught(&pace, &times, Duration::from_secs(12), 500, false);
        assert!((11_500..=12_000).contains(&times.expected_ms(CATALOG)));
        taught(&pace, &times, Duration::from_secs(3_600), 5_000, false);
        assert_eq!(times.expected_ms(CATALOG), 64_000);
        taught(&pace, &times, Duration::ZERO, 5_000, false);
        assert_eq!(times.expected_ms(CATALOG), 62);
    }

    #[test]
    fn one_slow_catalog_changes_little_and_quick_errors_change_nothing() {
        let (times, pace) = (ServiceTimes::default(), Pace::default());
        taught(&pace, &times, Duration::from_secs(90), 1, false);
        assert_eq!(pace.slowness(), 2);
        assert!(times.expected_ms(CATALOG) < 4_600);
        let before = times.expected_ms(CATALOG);
        taught(&pace, &times, Duration::from_millis(1), 1_000, true);
        assert_eq!((times.expected_ms(CATALOG), pace.slowness()), (before, 2));
    }

    #[test]
    fn a_slow_member_is_measured_as_slow_and_recovers_without_requests() {
        let (times, slow, fast) = (ServiceTimes::default(), Pace::default(), Pace::default());
        for _ in 0..100 {
            times.learn(Work::Catalog, Duration::from_secs(20), false, &slow);
            for _ in 0..9 {
                times.learn(Work::Catalog, Duration::from_secs(4), false, &fast);
            }
        }
        assert_eq!(fast.slowness(), 2);
        assert!(slow.slowness() >= 6, "{}", slow.slowness());
        let eased = (1..100).find(|_| {
            slow.ease();
            slow.slowness() == 2
        });
        assert!(eased.is_some_and(|times| times < 20), "{eased:?}");
        assert!(times.ease_is_due(Duration::from_secs(10)));
        assert!(!times.ease_is_due(Duration::from_secs(19)));
    }
}
