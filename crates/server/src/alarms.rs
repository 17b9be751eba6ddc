//! Alarms about the trust store, about fetching CRLs and about the proxy's own certificates.

use std::{collections::BTreeMap, path::PathBuf, time::SystemTime};

use config::CaOptions;
use pki::TrustStore;
use rustls_pki_types::UnixTime;
use telemetry::{ActiveAlarm, Alarm, Alarms};

use crate::{
    certificates::{self, OwnCertificate},
    trust::crl_fetch_state::CrlFetchState,
};

/// Raises and clears the alarms about the dates of CAs and CRLs.
pub(crate) fn update_trust(alarms: &Alarms, trust: &TrustStore) {
    let found = trust.status(UnixTime::now()).alarms;
    // The more severe kind first: where it replaces the other, no event says that the alarm is cleared.
    for (alarm, refuses) in [(Alarm::AgentsRefused, true), (Alarm::Trust, false)] {
        let of_kind = found.iter().filter(|found| found.refuses == refuses);
        let of_kind: Vec<_> = of_kind
            .map(|found| (found.about.clone(), found.message.clone()))
            .collect();
        alarms.replace(alarm, &of_kind, SystemTime::now());
    }
}

/// Raises and clears the alarms about CRLs that are fetched or that drop revocations.
pub(crate) fn update_crls(
    alarms: &Alarms,
    state: &CrlFetchState,
    trust: &TrustStore,
    fetches: bool,
) {
    let found = state.alarms(trust, fetches);
    let kinds = [Alarm::CrlFetch, Alarm::CrlShrunk, Alarm::CrlUnusable];
    replace(alarms, kinds, &found);
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
) {
    let now = UnixTime::now();
    let cas = certificates::ca_alarms(stores, now);
    replace(alarms, [Alarm::CaExpiring], &cas);
    let found = certificates::alarms(own, stores, failures, ca, now);
    // The more severe kind first: where it replaces the other, no event says that the alarm is cleared.
    let kinds = [Alarm::CertificateInvalid, Alarm::CertificateExpiring];
    replace(alarms, kinds, &found);
}

fn replace(
    alarms: &Alarms,
    kinds: impl IntoIterator<Item = Alarm>,
    found: &[(Alarm, String, String)],
) {
    for alarm in kinds {
        let of_kind = found.iter().filter(|(of, _, _)| *of == alarm);
        let of_kind: Vec<_> = of_kind
            .map(|(_, about, message)| (about.clone(), message.clone()))
            .collect();
        alarms.replace(alarm, &of_kind, SystemTime::now());
    }
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
