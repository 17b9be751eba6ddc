//! Access rules at run time: their counters, and events about rules that only observe.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use routing::AccessRule;
use telemetry::RuleMetrics;

/// Minimum time between two events of one rule. Without it, a rule that every request matches would fill the log.
const EVENT_INTERVAL: Duration = Duration::from_secs(60);

/// One access rule at run time.
#[derive(Debug)]
pub struct RuleRuntime {
    metrics: RuleMetrics,
    /// When the last event was logged, in seconds since the process started, plus one. 0 before the first event.
    logged_at: AtomicU64,
    /// Number of requests since then that the rule would have refused.
    since_last: AtomicU64,
}

/// The request that an event is about.
#[derive(Debug)]
pub(crate) struct Observed<'a> {
    pub(crate) rule: &'a AccessRule,
    pub(crate) client: std::net::SocketAddr,
    pub(crate) certname: Option<&'a str>,
    pub(crate) class: &'static str,
}

impl RuleRuntime {
    /// A rule that has not matched a request yet.
    pub fn new(metrics: RuleMetrics) -> Self {
        Self {
            metrics,
            logged_at: AtomicU64::new(0),
            since_last: AtomicU64::new(0),
        }
    }

    /// Counts a request that the rule refused.
    pub(crate) fn refused(&self) {
        self.metrics.refused.inc();
    }

    /// Counts a request that the rule would have refused, and logs an event unless one was logged within the last
    /// minute.
    pub(crate) fn observed(&self, now: Duration, observed: &Observed<'_>) {
        self.metrics.observed.inc();
        if let Some(others) = self.due(now) {
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

    /// If an event is due, returns the number of matching requests since the last event, without this one.
    fn due(&self, now: Duration) -> Option<u64> {
        let now = now.as_secs() + 1;
        let last = self.logged_at.load(Ordering::Relaxed);
        let is_due = last == 0 || now >= last + EVENT_INTERVAL.as_secs();
        let taken = is_due
            && self
                .logged_at
                .compare_exchange(last, now, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok();
        if taken {
            return Some(self.since_last.swap(0, Ordering::Relaxed));
        }
        self.since_last.fetch_add(1, Ordering::Relaxed);
        None
    }
}

#[cfg(test)]
mod tests {
    use telemetry::Metrics;

    use super::*;

    #[test]
    fn an_event_is_due_once_a_minute_with_the_number_of_the_other_requests() {
        let rule = RuleRuntime::new(Metrics::default().access_rule("r"));
        let at = Duration::from_secs;
        let due: Vec<_> = [0, 0, 1, 59, 60, 61, 119, 120, 500]
            .map(|second| rule.due(at(second)))
            .to_vec();
        assert_eq!(
            due,
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
