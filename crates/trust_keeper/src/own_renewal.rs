//! Renewal of the proxy's own certificates at the Puppet CA, before they expire.
//!
//! The CA renews the certificate with which its TLS client authenticates, and the key stays the same. The proxy therefore
//! presents the certificate that is due, and checks the response. The process stores the new certificate in the chain file and
//! activates it by the rules for materials that change on disk. If a step fails, the file and the active certificate stay as
//! they are, and the alarm about the expiry shows the reason.

mod ca_request;
mod chain_file;
mod failure;

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use config::{CredentialFiles, OwnRenewal};
use pki::{CertificatePurpose, Credential, Named, TrustStore};
use rustls_pki_types::UnixTime;
use tokio::{
    sync::Notify,
    time::{Instant, timeout},
};

pub use failure::RenewalFailure;

use state::{Foundation, supervise::blocking, times::timestamp};

use crate::{
    TrustKeeper,
    certificates::ca_options,
    own_renewal::{
        ca_request::{RenewalAnswer, request_renewal},
        chain_file::ChainFile,
    },
};

/// How often the dates are checked.
const CHECK_INTERVAL: Duration = Duration::from_secs(60);
/// Minimum time between two requests for one certificate, except after a reload. Each request uses a serial number of the CA.
const RETRY_MIN: Duration = Duration::from_secs(3600);
/// Maximum time until a failed renewal is retried.
const RETRY_MAX: Duration = Duration::from_secs(86_400);

/// The latest attempt for each certificate, by its chain file. There is at most one for each certificate of the configuration.
#[derive(Debug, Default)]
pub(crate) struct OwnRenewals {
    attempts: Mutex<BTreeMap<PathBuf, RenewalAttempt>>,
    /// Notified after a reload by an operator.
    again: Notify,
}

#[derive(Debug)]
struct RenewalAttempt {
    /// Why the attempt failed and what to do. `None` if it succeeded.
    failure: Option<String>,
    /// Number of consecutive failures.
    failures: u32,
    /// When the next attempt may begin.
    next: Instant,
}

impl OwnRenewals {
    /// Why certificates were not renewed and what to do, by chain file.
    pub(crate) fn failures(&self) -> BTreeMap<PathBuf, String> {
        let attempts = self.lock();
        let failed = attempts
            .iter()
            .filter_map(|(file, attempt)| Some((file.clone(), attempt.failure.clone()?)));
        failed.collect()
    }

    /// Makes failed renewals due again at once, because an operator may have fixed the cause.
    pub(crate) fn try_again(&self) {
        for attempt in self.lock().values_mut() {
            if attempt.failure.is_some() {
                attempt.next = Instant::now();
            }
        }
        self.again.notify_one();
    }

    fn may_begin(&self, file: &Path) -> bool {
        let attempts = self.lock();
        attempts
            .get(file)
            .is_none_or(|attempt| attempt.next <= Instant::now())
    }

    /// Notes the result of an attempt. Returns whether the failure differs from that of the previous attempt.
    fn note(&self, file: &Path, failure: Option<String>) -> bool {
        let mut attempts = self.lock();
        let before = attempts.remove(file);
        let is_new = before.as_ref().and_then(|before| before.failure.as_ref()) != failure.as_ref();
        let failures = match failure {
            Some(_) => before.map_or(0, |before| before.failures).saturating_add(1),
            None => 0,
        };
        let next = Instant::now() + retry_after(failures);
        let attempt = RenewalAttempt {
            failure,
            failures,
            next,
        };
        attempts.insert(file.to_owned(), attempt);
        is_new
    }

    /// Forgets failed renewals of certificates that are no longer due.
    fn retain(&self, due: &[DueCertificate]) {
        let is_due = |file: &Path| due.iter().any(|due| due.files.chain == file);
        self.lock().retain(|file, attempt| {
            is_due(file) || attempt.failure.is_none() && attempt.next > Instant::now()
        });
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<PathBuf, RenewalAttempt>> {
        self.attempts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A certificate that is to be renewed.
pub struct DueCertificate {
    files: CredentialFiles,
    credential: Credential,
}

impl DueCertificate {
    /// The file of the chain.
    pub fn chain(&self) -> &Path {
        &self.files.chain
    }
}

/// A renewed certificate that is not stored or active yet.
pub struct RenewedChain {
    /// The content of the chain file.
    pub bytes: Vec<u8>,
    /// When the certificate expires.
    pub until: UnixTime,
    file: ChainFile,
}

impl RenewedChain {
    /// Writes the file. It blocks.
    ///
    /// # Errors
    /// Why the file is as before.
    pub fn store(self) -> Result<(), RenewalFailure> {
        Ok(self.file.replace(&self.bytes)?)
    }
}

impl TrustKeeper {
    /// The certificates of the proxy that are to be renewed now.
    pub fn due_renewals(&self) -> Vec<DueCertificate> {
        let foundation = self.active.foundation();
        let is_on = foundation.config.own_renewal.enabled;
        let mut due = match is_on && self.active.is_serving() && self.active.owns_state() {
            true => due_certificates(&foundation, &self.active.trust(), UnixTime::now()),
            false => Vec::new(),
        };
        self.own_renewals.retain(&due);
        due.retain(|due| self.own_renewals.may_begin(due.chain()));
        due
    }

    /// Waits until the certificates that are due may have changed. An operator may set the clock, so the dates are compared at
    /// intervals.
    pub async fn until_renewals(&self) {
        let _ = timeout(CHECK_INTERVAL, self.own_renewals.again.notified()).await;
    }

    /// Notes whether a certificate was renewed, and when the new one expires.
    pub fn note_renewal(&self, due: &DueCertificate, renewed: Result<UnixTime, RenewalFailure>) {
        let ca = ca_options(&self.active.generation());
        let file = due.chain().display();
        let failure = renewed.as_ref().err();
        let message =
            failure.map(|failure| failure.message(due.chain(), due.credential.names(), &ca));
        let is_new = self.own_renewals.note(due.chain(), message.clone());
        match (renewed, message) {
            (Ok(until), _) => tracing::info!(
                "renewed the certificate {file} ({}) at the CA: it is valid until {}",
                due.credential.subject(),
                timestamp(until)
            ),
            (Err(_), Some(message)) if is_new => {
                tracing::warn!("the certificate {file} is due for renewal: {message}");
            }
            (Err(failure), _) => tracing::debug!("{file} is not renewed: {failure}"),
        }
    }

    /// Requests the renewal of one certificate from the CA.
    ///
    /// # Errors
    /// Why there is no renewed certificate.
    pub async fn request_renewal(
        &self,
        due: &DueCertificate,
    ) -> Result<RenewedChain, RenewalFailure> {
        let foundation = self.active.foundation();
        let chain = due.files.chain.clone();
        let active = file_bytes(&foundation, &chain)?;
        if pki::holds_key(&active) {
            let why = "its file also has the private key; put the key in a file of its own";
            return Err(RenewalFailure::NotRenewable(why));
        }
        if !due.credential.authorization_extensions().is_empty() {
            let why =
                "it has an authorization extension, which the proxy does not present to servers";
            return Err(RenewalFailure::NotRenewable(why));
        }
        // Checked before the request, so that a file that cannot be written does not use up serial numbers of the CA.
        let file = {
            let active = active.clone();
            blocking("prepare-chain-file", move || {
                ChainFile::prepare(&chain, active)
            })
            .await
        };
        let file = file.ok_or_else(|| "the file could not be prepared".to_owned())??;
        let generation = self.active.generation();
        let answer = request_renewal(&generation, &foundation, &due.credential).await?;
        let key = file_bytes(&foundation, &due.files.key)?;
        let (bytes, credential) = next_chain(due, &active, key, &answer, &generation.trust)?;
        Ok(RenewedChain {
            bytes,
            until: credential.not_after(),
            file,
        })
    }
}

/// The active bytes of a file.
fn file_bytes(foundation: &Foundation, path: &Path) -> Result<Vec<u8>, RenewalFailure> {
    let material = foundation.materials.get(path);
    let blobs = material.and_then(|material| material.as_ref().ok());
    match blobs.map(|material| material.blobs.as_slice()) {
        Some([blob]) => Ok(blob.bytes.clone()),
        _ => Err(RenewalFailure::NotRenewable("its files are not loaded")),
    }
}

/// Checks a response of the CA, and replaces the first certificate of the file with the new one. Returns the new content of the
/// file and its credential.
fn next_chain(
    due: &DueCertificate,
    active: &[u8],
    key: Vec<u8>,
    answer: &RenewalAnswer,
    trust: &TrustStore,
) -> Result<(Vec<u8>, Credential), RenewalFailure> {
    let unusable = |why: String| RenewalFailure::Unusable {
        member: Arc::clone(&answer.member),
        why,
    };
    let now = UnixTime::now();
    let present = due.credential.chain();
    pki::check_own_renewal(&present[0], &answer.body, now)
        .map_err(|error| unusable(error.to_string()))?;
    let bytes = [answer.body.trim_ascii(), b"\n", after_first(active)].concat();
    let chain = Named::new("the renewed chain", bytes.clone());
    let credential = Credential::parse(&chain, &Named::new("the key", key))
        .map_err(|problem| unusable(problem.to_string()))?;
    if credential.chain()[1..] != present[1..] {
        let why = "the intermediate certificates of the file could not be kept";
        return Err(unusable(why.to_owned()));
    }
    for purpose in [CertificatePurpose::Server, CertificatePurpose::Client] {
        let verifies = |chain| trust.cas_above(chain, purpose, now).is_some();
        if verifies(present) && !verifies(credential.chain()) {
            return Err(unusable("no CA of [trust] ca verifies it".to_owned()));
        }
    }
    Ok((bytes, credential))
}

/// The rest of a chain file after its first certificate.
fn after_first(chain: &[u8]) -> &[u8] {
    let mut windows = chain.windows(END.len());
    let end = windows.position(|window| window == END);
    let rest = end.map_or(&b""[..], |end| &chain[end + END.len()..]);
    rest.trim_ascii_start()
}

/// The last line of a certificate in PEM.
const END: &[u8] = b"-----END CERTIFICATE-----";

/// The certificates of listeners and pools that are due for renewal and that a CA of the bundle has issued.
fn due_certificates(
    foundation: &Foundation,
    trust: &TrustStore,
    now: UnixTime,
) -> Vec<DueCertificate> {
    let config = &foundation.config;
    let settings = config.own_renewal;
    let of_listeners = config.listener_certificates.values().flatten();
    let of_pools = config.pools.iter().filter_map(|pool| pool.tls.as_ref());
    let of_pools = of_pools.map(|tls| &tls.credential);
    let all = config
        .certificates
        .iter()
        .chain(of_listeners)
        .chain(of_pools);
    // Several listeners and pools may use one file.
    let by_file: BTreeMap<_, _> = all.map(|files| (&files.chain, files)).collect();
    let due = by_file.into_values().filter_map(|files| {
        let credential = foundation.credential(files)?;
        let chain = credential.chain();
        let leaf = pki::facts_of(chain.first()?)?;
        let is_due = is_due((leaf.not_before, leaf.not_after), settings, now);
        let issued = || trust.cas_above(chain, CertificatePurpose::Client, now);
        (is_due && issued().is_some()).then(|| DueCertificate {
            files: files.clone(),
            credential: credential.clone(),
        })
    });
    due.collect()
}

/// Whether a certificate is to be renewed now. The CA accepts only valid certificates, so an expired certificate cannot be
/// renewed.
fn is_due(
    (not_before, not_after): (UnixTime, UnixTime),
    settings: OwnRenewal,
    now: UnixTime,
) -> bool {
    let [begin, end, now] = [not_before, not_after, now].map(|time| time.as_secs());
    let last_third = end.saturating_sub(begin) / 3;
    let before = settings.before.as_secs().min(last_third);
    begin <= now && now <= end && end - now <= before
}

/// How long after an attempt the next one may begin: an hour, then twice as long after each failure, up to a day.
fn retry_after(failures: u32) -> Duration {
    let doublings = failures.saturating_sub(1).min(8);
    (RETRY_MIN * 2_u32.pow(doublings)).min(RETRY_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: u64 = 86_400;

    fn at(seconds: u64) -> UnixTime {
        UnixTime::since_unix_epoch(Duration::from_secs(seconds))
    }

    #[test]
    fn a_certificate_is_due_in_the_configured_time_but_not_before_its_last_third() {
        let settings = OwnRenewal {
            enabled: true,
            before: Duration::from_secs(45 * DAY),
        };
        let five_years = (at(0), at(5 * 365 * DAY));
        let ninety_days = (at(0), at(90 * DAY));
        for (validity, now, due) in [
            (five_years, 0, false),
            (five_years, (5 * 365 - 45) * DAY - 1, false),
            (five_years, (5 * 365 - 45) * DAY, true),
            (five_years, 5 * 365 * DAY, true),
            // Expired: the CA refuses it.
            (five_years, 5 * 365 * DAY + 1, false),
            (ninety_days, 60 * DAY - 1, false),
            (ninety_days, 60 * DAY, true),
            // Not valid yet by the clock of this host.
            ((at(10), at(20)), 9, false),
            ((at(10), at(5)), 7, false),
        ] {
            assert_eq!(
                is_due(validity, settings, at(now)),
                due,
                "{validity:?} {now}"
            );
        }
    }

    #[test]
    fn failed_renewals_are_tried_again_at_growing_intervals_and_at_most_once_an_hour() {
        let hours = [0, 1, 2, 3, 4, 5, 6, 7, 100, u32::MAX].map(|failures| {
            let wait = retry_after(failures);
            wait.as_secs() / 3600
        });
        assert_eq!(hours, [1, 1, 2, 4, 8, 16, 24, 24, 24, 24]);
    }

    #[test]
    fn a_failure_is_reported_once_and_a_reload_tries_again() {
        let renewals = OwnRenewals::default();
        let file = Path::new("/etc/puppet.pem");
        assert!(renewals.may_begin(file));
        assert!(renewals.note(file, Some("down".to_owned())));
        assert!(!renewals.may_begin(file));
        assert!(!renewals.note(file, Some("down".to_owned())), "it is known");
        assert!(renewals.note(file, Some("404".to_owned())));
        assert_eq!(renewals.failures()[file], "404");
        renewals.try_again();
        assert!(renewals.may_begin(file));
        renewals.note(file, None);
        assert!(renewals.failures().is_empty());
        // A renewed certificate that is due again at once does not cause an endless series of requests.
        renewals.try_again();
        assert!(!renewals.may_begin(file));
        renewals.retain(&[]);
        assert!(!renewals.may_begin(file));
    }

    #[test]
    fn the_intermediate_certificates_follow_the_first_certificate() {
        let end = "-----END CERTIFICATE-----";
        for (chain, rest) in [
            (format!("a\n{end}\n"), String::new()),
            (format!("a\n{end}\nb\n{end}\n"), format!("b\n{end}\n")),
            (format!("a\r\n{end}\r\nb\r\n{end}"), format!("b\r\n{end}")),
            (String::new(), String::new()),
        ] {
            assert_eq!(after_first(chain.as_bytes()), rest.as_bytes());
        }
    }
}
