//! The alarm about a full queue. A refusal that fails an agent's run raises the alarm. A minute without such a refusal clears
//! it.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, SystemTime},
};

use telemetry::{Alarm, Alarms};

/// Pools whose queue was full, with the time of the last refusal, since start. The number of pools bounds the size.
#[derive(Debug, Default)]
pub(crate) struct FullQueues(Mutex<BTreeMap<Arc<str>, Duration>>);

impl FullQueues {
    /// Notes that the full queue of a pool refused a request, and that the agent fails its run because of the refusal.
    pub(crate) fn refused(&self, alarms: &Alarms, pool: &Arc<str>, now: Duration) {
        let mut full = self.full();
        full.insert(Arc::clone(pool), now);
        let message = format!(
            "the queue of pool {pool} is full: requests to it get 503, and agents fail their runs; add members, or raise \
             their limits (max, connections_max) or queue_max"
        );
        alarms.raise(Alarm::QueueFull, pool, message, SystemTime::now());
    }

    /// Clears the alarm for each pool that has had no such refusal for a while.
    pub(crate) fn assess(&self, alarms: &Alarms, now: Duration) {
        let quiet = |_: &Arc<str>, last: &mut Duration| now.saturating_sub(*last) >= QUIET;
        // The lock is held meanwhile, so that a refusal during this loop raises the alarm again.
        let mut full = self.full();
        for (pool, _) in full.extract_if(.., quiet) {
            alarms.clear(Alarm::QueueFull, &pool);
        }
    }

    /// A panic in another thread leaves a valid map.
    fn full(&self) -> MutexGuard<'_, BTreeMap<Arc<str>, Duration>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Time without such a refusal after which the alarm is cleared.
const QUIET: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_alarm_lasts_until_a_minute_has_passed_without_a_refusal() {
        let (full, alarms) = (FullQueues::default(), Alarms::default());
        let seconds = Duration::from_secs;
        let active = || alarms.active().len();
        for (pool, at) in [("compilers", 10), ("ca", 20), ("compilers", 40)] {
            full.refused(&alarms, &pool.into(), seconds(at));
        }
        assert_eq!(active(), 2);
        full.assess(&alarms, seconds(79));
        assert_eq!(active(), 2);
        full.assess(&alarms, seconds(80));
        let left: Vec<_> = alarms.active().iter().map(|alarm| alarm.key()).collect();
        assert_eq!(left, ["queue-full:compilers"]);
        full.assess(&alarms, seconds(100));
        assert_eq!(active(), 0);
    }
}
