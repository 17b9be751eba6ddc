//! Alarms about the trust store, about fetching CRLs and about the proxy's own certificates.

use std::{
    collections::BTreeMap,
    path::PathBuf,
    time::{Duration, SystemTime},
};

use config::CaOptions;
use pki::TrustStore;
use rustls_pki_types::UnixTime;
use telemetry::{ActiveAlarm, Alarm, Alarms};

use crate::{
    certificates::{self, OwnCertificate},
    trust::crl_fetch_state::CrlFetchState,
};

/// The times at which dates are compared: now, and with a right clock if the clock is in doubt.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Times {
    pub(crate) now: UnixTime,
    pub(crate) corrected: Option<UnixTime>,
}

impl Times {
    /// `correction`: seconds to add to the clock.
    pub(crate) fn now(correction: Option<i64>) -> Self {
        let now = UnixTime::now();
        let corrected = correction.map(|seconds| {
            let right = now.as_secs().saturating_add_signed(seconds);
            UnixTime::since_unix_epoch(Duration::from_secs(right))
        });
        Self { now, corrected }
    }
}

/// Raises and clears the alarms about the dates of CAs and CRLs.
pub(crate) fn update_trust(alarms: &Alarms, trust: &TrustStore, times: Times) {
    // The more severe kind first: where it replaces the other, no event says that the alarm is cleared.
    let kinds = [Alarm::AgentsRefused, Alarm::Trust];
    replace_at(alarms, kinds, times, |now| {
        let found = trust.status(now).alarms.into_iter();
        found
            .map(|found| match found.refuses {
                true => (Alarm::AgentsRefused, found.about, found.message),
                false => (Alarm::Trust, found.about, found.message),
            })
            .collect()
    });
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
    times: Times,
) {
    replace_at(alarms, [Alarm::CaExpiring], times, |now| {
        certificates::ca_alarms(stores, now)
    });
    // The more severe kind first: where it replaces the other, no event says that the alarm is cleared.
    let kinds = [Alarm::CertificateInvalid, Alarm::CertificateExpiring];
    replace_at(alarms, kinds, times, |now| {
        certificates::alarms(own, stores, failures, ca, now)
    });
}

/// As [`replace`], with the alarms that `find` returns now. Those that it does not return for a right clock follow from the
/// wrong one.
fn replace_at<const N: usize>(
    alarms: &Alarms,
    kinds: [Alarm; N],
    times: Times,
    find: impl Fn(UnixTime) -> Vec<(Alarm, String, String)>,
) {
    replace(alarms, kinds, &find(times.now));
    let right = times.corrected.map(find);
    for alarm in kinds {
        alarms.note_clock(alarm, |about| {
            let right = right.as_ref();
            right.is_some_and(|right| !right.iter().any(|(of, a, _)| *of == alarm && a == about))
        });
    }
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
