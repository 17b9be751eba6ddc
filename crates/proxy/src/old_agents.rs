//! Events about agents of Puppet 0.25 to 3 that the proxy refuses by its configuration or cannot serve. Each kind of event is
//! logged at most once a minute, with the number of requests or handshakes since the last one.

use std::{
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::Duration,
};

use telemetry::AccessRecord;

/// The events, for all workers.
#[derive(Debug, Default)]
pub(crate) struct OldAgents {
    legacy_paths: Paced,
    old_tls: Paced,
}

/// Occurrences that are logged at most once a minute.
#[derive(Debug, Default)]
struct Paced {
    since_last: AtomicU64,
    /// When the next event may be logged, in milliseconds since the process started. 0 before the first event.
    next_at: AtomicU64,
}

impl OldAgents {
    /// Notes that a request was refused that only `legacy_routes` would serve.
    pub(crate) fn uses_legacy_path(&self, now: Duration, record: &AccessRecord) {
        let Some(requests) = self.legacy_paths.due(now) else {
            return;
        };
        tracing::warn!(
            requests,
            certname = record.proven_certname().map_or("-", |certname| certname),
            address = %record.client.ip().to_canonical(),
            "agents use the URL layout of Puppet 0.25 to 3 and are refused, because legacy_routes is off"
        );
    }

    /// Notes that a client offered no TLS version that the proxy supports.
    pub(crate) fn offers_old_tls(&self, now: Duration, record: &AccessRecord) {
        let Some(handshakes) = self.old_tls.due(now) else {
            return;
        };
        tracing::warn!(
            handshakes,
            address = %record.client.ip().to_canonical(),
            listener = %record.listener,
            "clients offer less than TLS 1.2 and are refused; agents need a Ruby with OpenSSL 1.0.1 or later"
        );
    }
}

impl Paced {
    /// Counts an occurrence. If an event is due, returns the number of occurrences since the last one.
    fn due(&self, now: Duration) -> Option<u64> {
        self.since_last.fetch_add(1, Relaxed);
        let now = u64::try_from(now.as_millis()).unwrap_or(u64::MAX / 2);
        let next_at = self.next_at.load(Relaxed);
        let is_due = now >= next_at
            && self
                .next_at
                .compare_exchange(next_at, now + INTERVAL_MS, Relaxed, Relaxed)
                .is_ok();
        is_due.then(|| self.since_last.swap(0, Relaxed))
    }
}

/// Minimum time between two events of the same kind, in milliseconds.
const INTERVAL_MS: u64 = 60_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_event_a_minute_has_the_number_since_the_last() {
        let paced = Paced::default();
        let at = |seconds| paced.due(Duration::from_secs(seconds));
        let found = [0, 1, 59, 60, 61, 200].map(at);
        assert_eq!(found, [Some(1), None, None, Some(3), None, Some(2)]);
    }
}
