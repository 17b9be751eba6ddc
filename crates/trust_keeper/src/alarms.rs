//! Alarms about the trust store, about fetching CRLs and about the proxy's own certificates.

use std::{
    collections::BTreeMap,
    path::PathBuf,
    sync::PoisonError,
    time::{Duration, SystemTime},
};

use config::CaOptions;
use pki::TrustStore;
use rustls_pki_types::UnixTime;
use state::trust_alarms::{self, AlarmTimes};
use telemetry::{ActiveAlarm, Alarm, Alarms};

use crate::{
    TrustKeeper,
    agent_certificates::{expiring_agents, expiring_before_their_ca},
    certificates::{self, OwnCertificate, ca_options},
    crl_fetch_state::CrlFetchState,
    date_evidence,
};

/// Raises and clears the alarms about CRLs that are fetched or that drop revocations.
fn update_crls(alarms: &Alarms, state: &CrlFetchState, trust: &TrustStore, fetches: bool) {
    let found = state.alarms(trust, fetches);
    let kinds = [Alarm::CrlFetch, Alarm::CrlShrunk, Alarm::CrlUnusable];
    trust_alarms::replace(alarms, kinds, &found);
}

/// Raises and clears the alarms about CAs of `stores` that expire soon, and about the dates and revocations of the proxy's own
/// certificates. The CRLs of `stores` decide whether a certificate is revoked. `failures` has an entry for each file whose
/// certificate could not be renewed: why, and what to do.
fn update_certificates(
    alarms: &Alarms,
    own: &[OwnCertificate],
    stores: &[&TrustStore],
    failures: &BTreeMap<PathBuf, String>,
    ca: &CaOptions,
    times: AlarmTimes,
) {
    trust_alarms::replace_at(alarms, [Alarm::CaExpiring], times, |now| {
        certificates::ca_alarms(stores, now)
    });
    // The more severe kind comes first: when its alarm replaces one of the other kind, no event logs that the other is cleared.
    let kinds = [Alarm::CertificateInvalid, Alarm::CertificateExpiring];
    trust_alarms::replace_at(alarms, kinds, times, |now| {
        certificates::alarms(own, stores, failures, ca, now)
    });
    alarms.note_cause(
        Alarm::CertificateExpiring,
        (Alarm::CaExpiring, ""),
        |file| {
            let mut of_file = own.iter().filter(|own| own.file.as_os_str() == file);
            of_file.any(|own| own.ends_with_its_ca(stores))
        },
    );
}

impl TrustKeeper {
    /// Updates the alarms about fetched CRLs and about dropped revocations.
    pub fn update_crl_alarms(&self) {
        let (alarms, trust) = (self.active.alarms(), &self.active.trust());
        let fetches = self.fetch_settings().is_some();
        update_crls(alarms, &self.crl_fetch, trust, fetches);
    }

    /// Updates the alarms about the proxy's own certificates from their dates and the active CRLs.
    pub fn update_certificate_alarms(&self) {
        // Locked until the end, so that a concurrent reload does not leave the alarms of the old certificates.
        let assessing = self.assessing.lock();
        let _one_at_a_time = assessing.unwrap_or_else(PoisonError::into_inner);
        let foundation = self.active.foundation();
        let alarms = self.active.alarms();
        let failures = self.own_renewals.failures();
        let generation = self.active.generation();
        let stores = foundation.stores(&generation.trust);
        let ca = ca_options(&generation);
        let own = certificates::of(&foundation);
        update_certificates(alarms, &own, &stores, &failures, &ca, self.active.times());
    }

    /// Compares the clock with the dates of certificates and CRLs.
    pub(crate) fn assess_dates(&self) {
        let now = UnixTime::now();
        let generation = self.active.generation();
        let foundation = self.active.foundation();
        let stores = foundation.stores(&generation.trust);
        let own = certificates::of(&foundation);
        let evidence = date_evidence::of_files(&own, &stores, now);
        let shared = self.active.shared();
        let evidence = date_evidence::with_agents(evidence, &shared.refusals, SystemTime::now());
        shared.note_dates(evidence);
    }

    /// Updates the alarms about certificates of agents from their dates and their last requests.
    pub(crate) fn update_agent_alarms(&self) {
        let (shared, generation) = (self.active.shared(), self.active.generation());
        let now = SystemTime::now();
        shared.renewal.assess_refused(generation.ca.renewal, now);
        let alarms = self.active.alarms();
        match expiring_agents(&shared.agents, &generation.trust, now) {
            (0, _) => alarms.clear(Alarm::AgentsExpiring, ""),
            (count, first) => {
                let first = first.as_deref().unwrap_or("-").escape_default().to_string();
                let message = format!(
                    "the certificates of {count} agents that were seen in the last day expire within 14 days, that of {first} first: `proscenium certificates` lists them. Let agents of Puppet 8 renew them (`[ca] renewal`), or request new ones (operating/ca.md)"
                );
                alarms.raise(Alarm::AgentsExpiring, "", message, now);
                let right = self.active.times().corrected.map(|right| {
                    let right = SystemTime::UNIX_EPOCH + Duration::from_secs(right.as_secs());
                    expiring_agents(&shared.agents, &generation.trust, right).0
                });
                alarms.note_cause(Alarm::AgentsExpiring, (Alarm::ClockOffset, ""), |_| {
                    right == Some(0)
                });
                let renewable = expiring_before_their_ca(&shared.agents, &generation.trust, now);
                alarms.note_cause(Alarm::AgentsExpiring, (Alarm::CaExpiring, ""), |_| {
                    renewable == 0
                });
            }
        }
    }
}

/// The active alarms about CAs and CRLs.
pub fn active_about_trust(alarms: &Alarms) -> Vec<ActiveAlarm> {
    let mut active = alarms.active();
    active.retain(|active| {
        matches!(
            active.alarm,
            Alarm::Trust
                | Alarm::AgentsRefused
                | Alarm::CrlFetch
                | Alarm::CrlShrunk
                | Alarm::CrlUnusable
        )
    });
    active
}
