//! How many retries a pool's requests may cause together. Pure: time is an argument.

use std::{
    sync::atomic::{AtomicU32, Ordering},
    time::Duration,
};

use crate::rate::{Rate, SharedBucket};

/// Retries that every pool may make, regardless of its number of requests.
const RETRIES_FLOOR: Rate = Rate {
    per_second: 2,
    burst: 20,
};
/// Maximum number of saved retries.
const SAVED_MAX: u32 = 100;

/// The budget for retries. Each request adds a fraction of a retry, and each retry uses up a whole one. Without a budget, a
/// pool whose members fail would get several times its load because of retries.
#[derive(Debug, Default)]
pub(crate) struct RetryBudget {
    /// Saved retries, in hundredths of a retry.
    saved: AtomicU32,
    floor: SharedBucket,
}

impl RetryBudget {
    /// Counts a request, which adds this many percent of a retry.
    pub(crate) fn save(&self, percent: u32) {
        // Two concurrent workers may exceed the maximum by the part of one request, which does no harm.
        if self.saved.load(Ordering::Relaxed) < SAVED_MAX * 100 {
            self.saved.fetch_add(percent, Ordering::Relaxed);
        }
    }

    /// Counts a retry at `now`. False: no retry is left, and nothing was counted.
    pub(crate) fn admit(&self, now: Duration) -> bool {
        let used = |saved: u32| saved.checked_sub(100);
        if self
            .saved
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, used)
            .is_ok()
        {
            return true;
        }
        self.floor.admit(RETRIES_FLOOR, now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn retries(budget: &RetryBudget, seconds: u64) -> usize {
        let now = Duration::from_secs(seconds);
        (0..10_000).take_while(|_| budget.admit(now)).count()
    }

    #[test]
    fn retries_are_a_share_of_the_requests_and_a_floor() {
        let budget = RetryBudget::default();
        assert_eq!(retries(&budget, 0), 20, "the floor");
        assert_eq!(retries(&budget, 0), 0);
        (0..200).for_each(|_| budget.save(20));
        assert_eq!(retries(&budget, 0), 40);
        assert_eq!(retries(&budget, 5), 10, "the floor again");
    }

    #[test]
    fn a_quiet_time_does_not_save_up_a_storm_of_retries() {
        let budget = RetryBudget::default();
        (0..1_000_000).for_each(|_| budget.save(100));
        assert_eq!(retries(&budget, 0), 120);
    }
}
