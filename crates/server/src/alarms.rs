//! Alarms about the trust store, about fetching CRLs and about the proxy's own certificates.

use std::{collections::BTreeMap, path::PathBuf};

use config::CaOptions;
use pki::TrustStore;
use state::trust_alarms::{self, Times};
use telemetry::{ActiveAlarm, Alarm, Alarms};

use crate::{
    certificates::{self, OwnCertificate},
    trust::crl_fetch_state::CrlFetchState,
};

/// Raises and clears the alarms about CRLs that are fetched or that drop revocations.
pub(crate) fn update_crls(
    alarms: &Alarms,
    state: &CrlFetchState,
    trust: &TrustStore,
    fetches: bool,
) {
    let found = state.alarms(trust, fetches);
    let kinds = [Alarm::CrlFetch, Alarm::CrlShrunk, Alarm::CrlUnusable];
    trust_alarms::replace(alarms, kinds, &found);
}

/// Raises and clears the alarms about CAs of `stores` that expire soon, and about the dates and revocations of the proxy's
/// own certificates, by the CRLs of `stores`.
/// `failures`: why a certificate could not be renewed and what to do, by its file.
pub(crate) fn update_certificates(
    alarms: &Alarms,
    own: &[OwnCertificate],
    stores: &[&TrustStore],
    failures: &BTreeMap<PathBuf, String>,
    ca: &CaOptions,
    times: Times,
) {
    trust_alarms::replace_at(alarms, [Alarm::CaExpiring], times, |now| {
        certificates::ca_alarms(stores, now)
    });
    // The more severe kind first: where it replaces the other, no event says that the alarm is cleared.
    let kinds = [Alarm::CertificateInvalid, Alarm::CertificateExpiring];
    trust_alarms::replace_at(alarms, kinds, times, |now| {
        certificates::alarms(own, stores, failures, ca, now)
    });
}

/// The active alarms about CAs and CRLs.
pub(crate) fn active_about_trust(alarms: &Alarms) -> Vec<ActiveAlarm> {
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
