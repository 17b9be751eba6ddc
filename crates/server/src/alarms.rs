//! Alarms that time alone raises or ends, told when they do: a CRL or a CA that runs out while nothing is reloaded.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use pki::TrustStore;
use rustls_pki_types::UnixTime;
use tokio::time::timeout;

use crate::app::App;

/// Tells each alarm of the dates in the trust in force once when it comes, and once when it goes, until it is dropped.
pub(crate) async fn keep(app: Arc<App>) {
    let mut signals = app.shared.signals.subscribe();
    let mut told = BTreeSet::new();
    loop {
        let trust = Arc::clone(&app.generation().trust);
        let now = UnixTime::now();
        let alarms = of_dates(&trust, now);
        for alarm in alarms.difference(&told) {
            tracing::warn!(key = "trust", "{alarm}");
        }
        for alarm in told.difference(&alarms) {
            tracing::info!(key = "trust", "no longer so: {alarm}");
        }
        told = alarms;
        // The clock may be set meanwhile: nobody relies on waking at the right second for longer than this.
        let until = trust
            .next_change(now)
            .map_or(LOOK_INTERVAL, |at| remaining(now, at));
        drop(trust);
        let _ = timeout(until.min(LOOK_INTERVAL), signals.changed()).await;
    }
}

/// Alarms without the warnings of the material itself, which the report of a start or reload tells.
fn of_dates(trust: &TrustStore, now: UnixTime) -> BTreeSet<String> {
    let alarms = trust.status(now).alarms.into_iter();
    alarms
        .filter(|alarm| !trust.warnings().contains(alarm))
        .collect()
}

/// Whole seconds are what dates and [`UnixTime`] have: the second must have begun.
fn remaining(now: UnixTime, at: UnixTime) -> Duration {
    Duration::from_secs(at.as_secs().saturating_sub(now.as_secs()))
}

/// How often the dates are looked at when nothing is due.
const LOOK_INTERVAL: Duration = Duration::from_secs(60);
