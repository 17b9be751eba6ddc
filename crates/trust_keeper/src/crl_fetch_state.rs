//! The state of fetching CRLs: the last response, what fails, and which CRLs drop revocations until an operator decides.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::SystemTime,
};

use admin::{CrlFetchStatus, FailingFetch, ShrunkCrlStatus};
use pki::{CrlComparison, DroppedRevocations, EmptyCrl, FetchedCrl, Fingerprint, TrustStore};
use telemetry::{Alarm, FoundAlarm};
use tokio::sync::{Notify, Semaphore};

use crate::{
    conditional_request::ConditionalRequest,
    stored_crls::{AcceptedCrl, RestoredCrls},
};

/// Maximum number of unfinished fetches that operators have requested: one that runs, and one that starts after it and
/// therefore sees every change until then. Each occupies a request slot of the admin socket while it waits for a CA.
const REQUESTED_MAX: usize = 2;

/// The state of fetching CRLs, which outlasts generations.
#[derive(Debug)]
pub(crate) struct CrlFetchState {
    /// Locked by the running fetch: there is one at a time.
    pub(crate) running: tokio::sync::Mutex<ConditionalRequest>,
    /// Slots for fetches that operators request.
    pub(crate) requested: Semaphore,
    /// Locked while CRLs, or what operators have accepted, are written to the state directory.
    pub(crate) storing: tokio::sync::Mutex<()>,
    record: Mutex<CrlFetchRecord>,
    /// Notified when a fetch is due before its interval: after a reload, because other members may have to be asked, and
    /// when the active trust has changed, because the copy for clients may have to change too.
    pub(crate) due: Notify,
}

/// The results of the fetches so far.
#[derive(Debug, Default)]
pub(crate) struct CrlFetchRecord {
    last_attempt: Option<SystemTime>,
    last_response: Option<SystemTime>,
    member: Option<Arc<str>>,
    failing: Option<(SystemTime, String)>,
    /// Messages about the parts of the last response that could not be used.
    unusable_parts: Vec<String>,
    /// Fetched CRLs that drop revocations, by the digest of their issuer: at most one for each CA of the bundle.
    pub(crate) refused: BTreeMap<Fingerprint, ShrunkCrl>,
    pub(crate) accepted: Vec<AcceptedCrl>,
    /// Messages about files of the state directory that could not be used at the start, until a fetch replaces the files.
    pub(crate) unusable_files: Vec<String>,
    /// Messages about stored serials that are damaged, until an operator removes the damaged file.
    pub(crate) damaged_files: Vec<String>,
    /// The digest of the stored CRL of each issuer.
    pub(crate) stored: BTreeMap<Fingerprint, Fingerprint>,
    /// CRLs that are not stored yet, by issuer.
    pub(crate) unstored: BTreeMap<Fingerprint, FetchedCrl>,
    /// The digest of the stored serials of each issuer. These are the revoked serials that its stored CRL does not list.
    pub(crate) retained: BTreeMap<Fingerprint, Fingerprint>,
    /// The generation of the trust store from which these serials were stored last.
    pub(crate) retained_from: Option<u64>,
}

/// A CRL that drops revocations, and how the API shows it.
#[derive(Clone, Debug)]
pub struct ShrunkCrl {
    /// Digest of its issuer.
    pub(crate) key: Fingerprint,
    /// The CRL, if it was fetched since the start. Otherwise, the revocations are missing from all CRLs that are provided now.
    pub(crate) crl: Option<FetchedCrl>,
    /// How the admin API shows it.
    pub status: ShrunkCrlStatus,
    /// Set if the CRL drops no revocation but is empty: why an empty CRL is unlikely.
    pub empty: Option<EmptyCrl>,
}

/// The CRLs of one response, by how they compare with the active ones.
#[derive(Default)]
pub(crate) struct ComparedCrls {
    /// CRLs that are newer or revoke more, and are active now.
    pub(crate) newer: Vec<FetchedCrl>,
    /// CRLs that drop revocations. A CRL that also revokes more is in `newer` too.
    pub(crate) refused: Vec<ShrunkCrl>,
    /// CRLs that were active already.
    pub(crate) active: Vec<FetchedCrl>,
    /// CRLs that are not used because an operator has accepted another CRL in place of each.
    pub(crate) replaced: Vec<FetchedCrl>,
}

impl CrlFetchState {
    /// Starts with what was restored from the state directory.
    pub(crate) fn new(restored: &RestoredCrls) -> Self {
        let record = CrlFetchRecord {
            accepted: restored.accepted.clone(),
            unusable_files: restored
                .unusable
                .iter()
                .filter(|why| !restored.damaged.contains(why))
                .cloned()
                .collect(),
            damaged_files: restored.damaged.clone(),
            stored: restored.stored.clone(),
            retained: restored.retained.clone(),
            ..CrlFetchRecord::default()
        };
        Self {
            running: tokio::sync::Mutex::default(),
            requested: Semaphore::new(REQUESTED_MAX),
            storing: tokio::sync::Mutex::default(),
            record: Mutex::new(record),
            due: Notify::new(),
        }
    }

    pub(crate) fn record(&self) -> MutexGuard<'_, CrlFetchRecord> {
        self.record.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The state as the admin API shows it.
    pub(crate) fn status(&self, trust: &TrustStore) -> CrlFetchStatus {
        let shrunk = self.shrunk(trust).into_iter();
        let shrunk = shrunk.map(|shrunk| shrunk.status).collect();
        let record = self.record();
        CrlFetchStatus {
            last_attempt: record.last_attempt.map(Into::into),
            last_answer: record.last_response.map(Into::into),
            member: record.member.as_ref().map(ToString::to_string),
            failing: record.failing.as_ref().map(|(since, why)| FailingFetch {
                since: (*since).into(),
                why: why.clone(),
            }),
            shrunk,
        }
    }

    /// The CRLs that drop revocations, or are empty without a reason: the fetched CRLs, and for every other CA the CRLs that
    /// are provided now.
    pub(crate) fn shrunk(&self, trust: &TrustStore) -> Vec<ShrunkCrl> {
        let mut shrunk: Vec<_> = self.record().refused.values().cloned().collect();
        for provided in ShrunkCrl::provided(trust) {
            if shrunk.iter().all(|known| known.key != provided.key) {
                shrunk.push(provided);
            }
        }
        shrunk
    }

    /// The alarms that are due: the kind, what the alarm is about, and the message.
    pub(crate) fn alarms(&self, trust: &TrustStore, fetches: bool) -> Vec<FoundAlarm> {
        let dropped = trust.dropped_revocations();
        let all = self.shrunk(trust);
        let shrunk = all.iter().map(|shrunk| {
            let of_key = dropped.iter().find(|dropped| dropped.key == shrunk.key);
            let forgotten = of_key.map_or(0, |dropped| dropped.forgotten);
            let message = match &shrunk.empty {
                Some(empty) => empty_message(empty),
                None => dropped_message(&shrunk.status, forgotten),
            };
            // CAs with the same name have an alarm each.
            let mut namesakes = all
                .iter()
                .filter(|other| other.status.issuer == shrunk.status.issuer);
            let about = match namesakes.nth(1).is_some() {
                false => shrunk.status.issuer.clone(),
                true => format!("{} ({})", shrunk.status.issuer, shrunk.key),
            };
            FoundAlarm::new(Alarm::CrlShrunk, about, message)
        });
        let shrunk: Vec<_> = shrunk.collect();
        let record = self.record();
        let unusable = record.unusable_files.iter().chain(&record.damaged_files);
        let unusable = unusable.map(|why| FoundAlarm::new(Alarm::CrlUnusable, why, why));
        let shrunk = shrunk.into_iter().chain(unusable);
        if !fetches {
            return shrunk.collect();
        }
        let failing = record.failing.iter().map(|(since, why)| {
            let since = admin::Timestamp::from(*since);
            let message = format!(
                "no CRL could be fetched since {since}; the previous CRLs stay active: {why}"
            );
            FoundAlarm::new(Alarm::CrlFetch, "", message)
        });
        let unusable = record.unusable_parts.iter();
        let unusable = unusable.map(|why| FoundAlarm::new(Alarm::CrlUnusable, why, why));
        failing.chain(shrunk).chain(unusable).collect()
    }

    pub(crate) fn note_attempt(&self, at: SystemTime) {
        self.record().last_attempt = Some(at);
    }

    /// Whether the last fetch has failed.
    pub(crate) fn is_failing(&self) -> bool {
        self.record().failing.is_some()
    }

    /// Notes a fetch without a usable response. The same failure keeps the time of its first occurrence.
    pub(crate) fn note_failure(&self, why: &str) {
        let mut record = self.record();
        let since = match &record.failing {
            Some((_, known)) if known == why => return,
            Some((since, _)) => *since,
            None => SystemTime::now(),
        };
        record.failing = Some((since, why.to_owned()));
    }

    pub(crate) fn note_success(&self, member: &Arc<str>, at: SystemTime) {
        let mut record = self.record();
        record.last_response = Some(at);
        record.member = Some(Arc::clone(member));
        record.failing = None;
    }

    /// Forgets the refused CRLs of CAs that have left the bundle.
    pub(crate) fn forget_removed_cas(&self, trust: &TrustStore) {
        let issuers = trust.issuers();
        let is_present = |key: &Fingerprint| issuers.iter().any(|(issuer, _)| issuer == key);
        self.record().refused.retain(|key, _| is_present(key));
    }

    /// Notes the CRLs of a response, and which parts of this and earlier responses could not be used. `keeps_refusals`: whether
    /// the refusals from an earlier response of the same fetch stay as they are.
    pub(crate) fn note_compared(
        &self,
        compared: &ComparedCrls,
        unusable_parts: &[String],
        keeps_refusals: bool,
    ) {
        let mut record = self.record();
        record.unusable_parts = unusable_parts.to_vec();
        if keeps_refusals {
            return;
        }
        for crl in compared.newer.iter().chain(&compared.active) {
            let is_shrunk = |shrunk: &ShrunkCrl| shrunk.key == crl.key();
            if !compared.refused.iter().any(is_shrunk) {
                record.refused.remove(&crl.key());
            }
        }
        for shrunk in &compared.refused {
            let mut shrunk = shrunk.clone();
            // A CA may drop entries every night. The alarm keeps the time at which the first entries were dropped.
            if let Some(known) = record.refused.get(&shrunk.key) {
                shrunk.status.since = known.status.since.clone();
            }
            record.refused.insert(shrunk.key, shrunk);
        }
    }
}

impl ShrunkCrl {
    /// Describes a CRL by its `comparison` with the active CRLs. `None` if it drops no revocation.
    pub(crate) fn of(crl: &FetchedCrl, comparison: CrlComparison) -> Option<Self> {
        let CrlComparison::DropsRevocations {
            active_number,
            is_older,
            lacking,
            accepted_again,
            is_news: _,
        } = comparison
        else {
            return None;
        };
        Some(Self {
            key: crl.key(),
            status: ShrunkCrlStatus {
                issuer: crl.issuer().to_owned(),
                number: crl.number(),
                entries: crl.entries() as u64,
                active_number,
                is_older,
                missing: lacking as u64,
                accepted_again: accepted_again as u64,
                since: SystemTime::now().into(),
            },
            crl: Some(crl.clone()),
            empty: None,
        })
    }

    /// The CRLs that are provided now and that lack revocations or are empty without a reason.
    pub fn provided(trust: &TrustStore) -> impl Iterator<Item = Self> {
        let dropped = trust.dropped_revocations().into_iter().map(Self::from);
        dropped.chain(trust.empty_crls().into_iter().map(Self::from))
    }

    /// Whether both are the same CRL and drop the same number of revocations.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        let digest = |one: &Self| one.crl.as_ref().map(FetchedCrl::fingerprint);
        let dropped = |one: &Self| {
            let status = &one.status;
            (status.number.clone(), status.missing, status.accepted_again)
        };
        digest(self) == digest(other) && dropped(self) == dropped(other)
    }
}

impl From<DroppedRevocations> for ShrunkCrl {
    fn from(dropped: DroppedRevocations) -> Self {
        Self {
            key: dropped.key,
            crl: None,
            empty: None,
            status: ShrunkCrlStatus {
                issuer: dropped.issuer,
                active_number: dropped.number.clone(),
                number: dropped.number,
                entries: dropped.entries as u64,
                is_older: false,
                missing: dropped.missing as u64,
                accepted_again: dropped.accepted_again as u64,
                since: SystemTime::now().into(),
            },
        }
    }
}

impl From<EmptyCrl> for ShrunkCrl {
    fn from(empty: EmptyCrl) -> Self {
        Self {
            key: empty.key,
            crl: None,
            status: ShrunkCrlStatus {
                issuer: empty.issuer.clone(),
                number: "0".to_owned(),
                active_number: "0".to_owned(),
                entries: 0,
                is_older: false,
                missing: 0,
                accepted_again: 0,
                since: SystemTime::now().into(),
            },
            empty: Some(empty),
        }
    }
}

/// The message of the alarm about a CRL that is empty although its CA has issued many certificates.
pub fn empty_message(empty: &EmptyCrl) -> String {
    let EmptyCrl {
        issuer,
        source,
        highest_serial,
        ..
    } = empty;
    let command = ShrunkCrl::from(empty.clone()).status.command();
    format!(
        "the CRL of {issuer} ({source}) has number 0 and no entries, although the CA has issued certificates up to serial \
         number {highest_serial}. The CA serves its infrastructure CRL (enable-infra-crl), or has lost its CRL, and revoked \
         agents are accepted; or it has never revoked a certificate. Revoke a test agent: the proxy must answer it with 403. \
         If it does not, copy the CA's ca_crl.pem and set [trust] crl. If the CRL is right, run {command}"
    )
}

/// The message of the alarm about missing revocations. `forgotten`: how many more there are than the proxy retains.
pub fn dropped_message(status: &ShrunkCrlStatus, forgotten: usize) -> String {
    let forgotten = match forgotten {
        0 => String::new(),
        count => format!(
            "; {count} more exceed what the proxy retains, and these certificates are accepted again"
        ),
    };
    format!(
        "a CRL drops revocations: {status}{forgotten}. If that is intended, run {}: {}",
        status.command(),
        status.consequence()
    )
}
