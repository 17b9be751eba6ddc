//! What the rules of access have done: counters of each, and events about those that only observe.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use routing::AccessRule;
use telemetry::RuleMetrics;

/// Time between two events of one rule: every request may be one that it would refuse.
const EVENT_INTERVAL: Duration = Duration::from_secs(60);

/// One rule of access at work.
#[derive(Debug)]
pub struct RuleRuntime {
    metrics: RuleMetrics,
    /// Seconds of the process's life, and one, at which an event last told of it; 0 before the first.
    told_at: AtomicU64,
    /// Requests that it would have refused since then.
    untold: AtomicU64,
}

/// Who asked for what, in an event.
#[derive(Debug)]
pub(crate) struct Observed<'a> {
    pub(crate) rule: &'a AccessRule,
    pub(crate) client: std::net::SocketAddr,
    pub(crate) certname: Option<&'a str>,
    pub(crate) class: &'static str,
}

impl RuleRuntime {
    /// One that has done nothing yet.
    pub fn new(metrics: RuleMetrics) -> Self {
        Self {
            metrics,
            told_at: AtomicU64::new(0),
            untold: AtomicU64::new(0),
        }
    }

    /// Counts a request that the rule refused.
    pub(crate) fn refused(&self) {
        self.metrics.refused.inc();
    }

    /// Counts a request that the rule would have refused, and tells of it unless it was told of others just now.
    pub(crate) fn observed(&self, now: Duration, observed: &Observed<'_>) {
        self.metrics.observed.inc();
        if let Some(others) = self.turn(now) {
            let Observed {
                rule,
                client,
                certname,
                class,
            } = observed;
            tracing::warn!(
                rule = %rule.name, %client, certname = certname.unwrap_or("-"), class, others,
                "an observed access rule would have refused a request"
            );
        }
    }

    /// Whether an event is due, and of how many requests beside this one none has told.
    fn turn(&self, now: Duration) -> Option<u64> {
        let now = now.as_secs() + 1;
        let last = self.told_at.load(Ordering::Relaxed);
        let due = last == 0 || now >= last + EVENT_INTERVAL.as_secs();
        let taken = due
            && self
                .told_at
                .compare_exchange(last, now, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok();
        if taken {
            return Some(self.untold.swap(0, Ordering::Relaxed));
        }
        self.untold.fetch_add(1, Ordering::Relaxed);
        None
    }
}

#[cfg(test)]
mod tests {
    use telemetry::Metrics;

    use super::*;

    #[test]
    fn a_rule_is_told_of_once_a_minute_with_the_number_of_the_others() {
        let rule = RuleRuntime::new(Metrics::default().access_rule("r"));
        let at = Duration::from_secs;
        let turns: Vec<_> = [0, 0, 1, 59, 60, 61, 119, 120, 500]
            .map(|second| rule.turn(at(second)))
            .to_vec();
        assert_eq!(
            turns,
            [
                Some(0),
                None,
                None,
                None,
                Some(3),
                None,
                None,
                Some(2),
                Some(0)
            ]
        );
    }
}
