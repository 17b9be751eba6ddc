//! Raises and clears alarms when a date is reached: a CRL, a CA or a certificate of the proxy may expire without a reload.

use std::time::Duration;

use rustls_pki_types::UnixTime;
use tokio::time::timeout;

use crate::{TrustKeeper, certificates};

/// Maximum time between two checks of the dates.
const CHECK_INTERVAL: Duration = Duration::from_secs(60);

impl TrustKeeper {
    /// Updates the alarms about the active trust store and certificates when they are due, until this future is dropped.
    pub async fn update_alarms_when_due(&self) {
        let mut signals = self.active.shared().signals.subscribe();
        loop {
            self.assess_dates();
            self.active.update_trust_alarms();
            self.update_certificate_alarms();
            self.update_agent_alarms();
            self.active.shared().assess_limits();
            let now = UnixTime::now();
            let of_trust = self.active.generation().trust.next_change(now);
            let generation = self.active.generation();
            let of_certificates = {
                let foundation = self.active.foundation();
                let stores = foundation.stores(&generation.trust);
                certificates::next_change(&certificates::of(&foundation), &stores, now)
            };
            let next = of_trust.into_iter().chain(of_certificates).min();
            // An operator may set the clock meanwhile, so no wait is longer than the interval.
            let wait = next.map_or(CHECK_INTERVAL, |at| remaining(now, at));
            let _ = timeout(wait.min(CHECK_INTERVAL), signals.changed()).await;
        }
    }
}

/// The time until the second `at` starts. Certificates have dates in whole seconds.
fn remaining(now: UnixTime, at: UnixTime) -> Duration {
    Duration::from_secs(at.as_secs().saturating_sub(now.as_secs()))
}
