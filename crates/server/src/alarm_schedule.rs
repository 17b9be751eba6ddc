//! Raises and clears alarms when a date is reached: a CRL, a CA or a certificate of the proxy expires without a reload.

use std::{sync::Arc, time::Duration};

use rustls_pki_types::UnixTime;
use tokio::time::timeout;

use crate::{certificates, shared_state::App};

/// How often the dates are checked when nothing is due.
const CHECK_INTERVAL: Duration = Duration::from_secs(60);

/// Updates the alarms about the active trust store and certificates when they are due, until this future is dropped.
pub(crate) async fn update_when_due(app: Arc<App>) {
    let mut signals = app.shared.signals.subscribe();
    loop {
        app.assess_dates();
        app.active.update_trust_alarms();
        app.update_certificate_alarms();
        app.update_agent_alarms();
        app.shared.assess_limits();
        let now = UnixTime::now();
        let of_trust = app.generation().trust.next_change(now);
        let generation = app.generation();
        let of_certificates = {
            let foundation = app.foundation();
            let stores = foundation.stores(&generation.trust);
            certificates::next_change(&certificates::of(&foundation), &stores, now)
        };
        let next = of_trust.into_iter().chain(of_certificates).min();
        // An operator may set the clock meanwhile, so no wait is longer than the interval.
        let wait = next.map_or(CHECK_INTERVAL, |at| remaining(now, at));
        let _ = timeout(wait.min(CHECK_INTERVAL), signals.changed()).await;
    }
}

/// The time until the second `at` has started. Certificates have dates in whole seconds.
fn remaining(now: UnixTime, at: UnixTime) -> Duration {
    Duration::from_secs(at.as_secs().saturating_sub(now.as_secs()))
}
