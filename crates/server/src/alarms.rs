//! Alarms that time alone can raise and clear: a CRL, a CA or a certificate of the proxy expires while nothing is reloaded.

use std::{
    sync::Arc,
    time::{Duration, SystemTime},
};

use rustls_pki_types::UnixTime;
use telemetry::{ActiveAlarm, Alarm};
use tokio::time::timeout;

use crate::{app::App, certificates};

/// Raises and clears the alarms about the active trust and certificates when they are due, until it is dropped.
pub(crate) async fn keep(app: Arc<App>) {
    let mut signals = app.shared.signals.subscribe();
    loop {
        app.update_trust_alarms();
        app.update_certificate_alarms();
        app.shared.assess_queues();
        let now = UnixTime::now();
        // An operator may set the clock meanwhile, so no sleep is longer than the interval.
        let of_trust = app.generation().trust.next_change(now);
        let of_certificates = certificates::next_change(&app.state().foundation.certificates, now);
        let next = of_trust.into_iter().chain(of_certificates).min();
        let until = next.map_or(LOOK_INTERVAL, |at| remaining(now, at));
        let _ = timeout(until.min(LOOK_INTERVAL), signals.changed()).await;
    }
}

impl App {
    /// Compares the alarms with what the active trust says now.
    pub(crate) fn update_trust_alarms(&self) {
        let found = self.generation().trust.status(UnixTime::now()).alarms;
        // The more severe first: where it takes the other's place, nothing is cleared.
        for (alarm, refuses) in [(Alarm::AgentsRefused, true), (Alarm::Trust, false)] {
            let of_kind = found.iter().filter(|found| found.refuses == refuses);
            let of_kind: Vec<_> = of_kind
                .map(|found| (found.about.clone(), found.message.clone()))
                .collect();
            let alarms = &self.lasting.metrics.alarms;
            alarms.replace(alarm, &of_kind, SystemTime::now());
        }
    }

    /// Compares the alarms about fetching CRLs with how it stands; without fetching there is none.
    pub(crate) fn update_fetch_alarms(&self) {
        let found = match self.fetch_settings() {
            Some(_) => self.fetching.alarms(),
            None => Vec::new(),
        };
        for alarm in [Alarm::CrlFetch, Alarm::CrlRefused, Alarm::CrlUnusable] {
            let of_kind = found.iter().filter(|(of, _, _)| *of == alarm);
            let of_kind: Vec<_> = of_kind
                .map(|(_, about, message)| (about.clone(), message.clone()))
                .collect();
            let alarms = &self.lasting.metrics.alarms;
            alarms.replace(alarm, &of_kind, SystemTime::now());
        }
    }

    /// Compares the alarms about the proxy's own certificates with their dates now.
    pub(crate) fn update_certificate_alarms(&self) {
        // Held to the end, so that a reload meanwhile does not leave the alarms of the old certificates.
        let state = self.state();
        let found = certificates::alarms(&state.foundation.certificates, UnixTime::now());
        // The more severe first: where it takes the other's place, nothing is cleared.
        for alarm in [Alarm::CertificateInvalid, Alarm::CertificateExpiring] {
            let of_kind = found.iter().filter(|(of, _, _)| *of == alarm);
            let of_kind: Vec<_> = of_kind
                .map(|(_, about, message)| (about.clone(), message.clone()))
                .collect();
            let alarms = &self.lasting.metrics.alarms;
            alarms.replace(alarm, &of_kind, SystemTime::now());
        }
    }

    /// Active alarms about CAs and CRLs.
    pub(crate) fn trust_alarms(&self) -> Vec<ActiveAlarm> {
        let mut alarms = self.lasting.metrics.alarms.active();
        alarms.retain(|active| {
            matches!(
                active.alarm,
                Alarm::Trust
                    | Alarm::AgentsRefused
                    | Alarm::CrlFetch
                    | Alarm::CrlRefused
                    | Alarm::CrlUnusable
            )
        });
        alarms
    }
}

/// Dates and [`UnixTime`] have whole seconds: the second must have begun.
fn remaining(now: UnixTime, at: UnixTime) -> Duration {
    Duration::from_secs(at.as_secs().saturating_sub(now.as_secs()))
}

/// How often the dates are checked when nothing is due.
const LOOK_INTERVAL: Duration = Duration::from_secs(60);
