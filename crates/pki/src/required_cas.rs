//! Which CAs a bundle must keep: those of agents that were seen lately, of members, and of our own certificates.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustls_pki_types::{CertificateDer, UnixTime};
use webpki::KeyUsage;

use crate::bundle::{Bundle, Ca, Fingerprint, Issuer};
use crate::certificate::Certificate;
use crate::path::Path;
use crate::settings::UNCHECKED_ALL;
use crate::store::TrustStore;
use crate::verdict::ChainVerification;

/// When a verified certificate below a CA was seen last, in seconds of Unix time; 0: never.
#[derive(Debug, Default)]
pub(crate) struct LastSeen(AtomicU64);

impl LastSeen {
    /// Rounded up to the hour, so that most certificates change nothing.
    pub(crate) fn note(&self, now: UnixTime) {
        let hour = (now.as_secs() / HOUR + 1) * HOUR;
        if self.0.load(Ordering::Relaxed) < hour {
            self.0.store(hour, Ordering::Relaxed);
        }
    }

    /// A clock that was ahead, or a damaged file, would keep a CA in use until that time has come.
    fn clamp(&self, now: UnixTime) {
        let latest = now.as_secs().saturating_add(HOUR);
        self.0.fetch_min(latest, Ordering::Relaxed);
    }

    pub(crate) fn inherit(&self, other: &Self) {
        self.0
            .fetch_max(other.0.load(Ordering::Relaxed), Ordering::Relaxed);
    }
}

/// The side of a handshake on which a certificate is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CertificatePurpose {
    /// To clients, by a listener or a member.
    Server,
    /// To members.
    Client,
}

impl CertificatePurpose {
    fn usage(self) -> KeyUsage {
        match self {
            Self::Server => KeyUsage::server_auth(),
            Self::Client => KeyUsage::client_auth(),
        }
    }
}

/// The chain that each member showed last, by the name that was dialled.
#[derive(Debug, Default)]
pub(crate) struct MembersSeen(Mutex<BTreeMap<String, Vec<CertificateDer<'static>>>>);

impl MembersSeen {
    pub(crate) fn note(
        &self,
        name: String,
        leaf: &CertificateDer<'_>,
        sent: &[CertificateDer<'_>],
    ) {
        let mut seen = self.chains();
        if seen.len() < MEMBERS_SEEN_MAX || seen.contains_key(&name) {
            let chain = std::iter::once(leaf).chain(sent);
            seen.insert(name, chain.map(|der| der.clone().into_owned()).collect());
        }
    }

    fn chains(&self) -> MutexGuard<'_, BTreeMap<String, Vec<CertificateDer<'static>>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl TrustStore {
    /// Digests of names and keys of the CAs above a certificate that is shown for this purpose; none if this bundle does not
    /// verify it. CRLs are not looked at: a revocation is no change of the bundle.
    pub fn cas_above(
        &self,
        chain: &[CertificateDer<'_>],
        purpose: CertificatePurpose,
        now: UnixTime,
    ) -> Option<Vec<Fingerprint>> {
        self.without_crls().path_of(chain, purpose, now)
    }

    /// Notes that an agent is still connected whose certificate was verified earlier.
    pub fn note_in_use(&self, verification: &ChainVerification, now: UnixTime) {
        if let Some(chain) = &verification.chain {
            self.bundle.note_seen(chain.cas(), now);
        }
    }

    /// Subjects of CAs of `before` by which this bundle does not verify what `before` does, although agents below them were
    /// seen since `since`.
    pub fn seen_cas_lost(&self, before: &Self, since: UnixTime, now: UnixTime) -> Vec<String> {
        let issuers = before.bundle.issuers.values();
        let was_seen = |ca: &Issuer| {
            ca.seen.clamp(now);
            ca.seen.0.load(Ordering::Relaxed) >= since.as_secs()
        };
        let is_lost = |id| {
            let mut known = before.bundle.valid_copies(id, now).peekable();
            known.peek().is_some()
                && !known.any(|known| {
                    let mut copies = self.bundle.valid_copies(id, now);
                    copies.any(|copy| copy.verifies_what(known))
                })
        };
        let mut lost: Vec<_> = issuers
            .filter(|ca| was_seen(ca) && is_lost(ca.id))
            .map(|ca| ca.text.clone())
            .collect();
        lost.sort();
        lost
    }

    /// Subjects of these CAs of `before` that are not in this bundle.
    pub fn cas_lost(&self, before: &Self, cas: &[Fingerprint]) -> Vec<String> {
        let lost = cas
            .iter()
            .filter(|id| !self.bundle.issuers.contains_key(*id));
        let mut lost: Vec<_> = lost
            .filter_map(|id| Some(before.bundle.issuers.get(id)?.text.clone()))
            .collect();
        lost.sort();
        lost.dedup();
        lost
    }

    /// Names of members whose certificate, the one they showed last, `before` verifies and this bundle does not. `is_member`:
    /// whether a name is still that of a member.
    pub fn members_lost(
        &self,
        before: &Self,
        is_member: impl Fn(&str) -> bool,
        now: UnixTime,
    ) -> Vec<String> {
        let (this, before) = (self.without_crls(), before.without_crls());
        let chains = before.members_seen.chains();
        let verifies = |store: &Self, chain: &[_]| {
            let path = store.path_of(chain, CertificatePurpose::Server, now);
            path.is_some()
        };
        let lost = chains.iter().filter(|(name, chain)| {
            is_member(name) && verifies(&before, chain) && !verifies(&this, chain)
        });
        lost.map(|(name, _)| name.clone()).collect()
    }

    /// When agents below each CA were seen last, as text to store: a line of digest and Unix time for each CA. It changes
    /// at most once an hour for each CA.
    pub fn cas_seen(&self, now: UnixTime) -> String {
        let mut lines: Vec<_> = self
            .bundle
            .issuers
            .values()
            .inspect(|ca| ca.seen.clamp(now))
            .map(|ca| (ca.id, ca.seen.0.load(Ordering::Relaxed)))
            .filter(|(_, seen)| *seen > 0)
            .collect();
        lines.sort_unstable();
        lines
            .into_iter()
            .fold(String::new(), |mut text, (id, seen)| {
                let _ = writeln!(text, "{id} {seen}");
                text
            })
    }

    /// Restores what [`cas_seen`](Self::cas_seen) gave. Lines that cannot be read and CAs that are not in the bundle are
    /// left out.
    pub fn restore_cas_seen(&self, text: &str, now: UnixTime) {
        let lines: HashMap<_, _> = text
            .lines()
            .filter_map(|line| line.split_once(' '))
            .collect();
        for ca in self.bundle.issuers.values() {
            let stored = lines.get(ca.id.to_string().as_str());
            if let Some(seen) = stored.and_then(|seen| seen.parse().ok()) {
                ca.seen.inherit(&LastSeen(AtomicU64::new(seen)));
                ca.seen.clamp(now);
            }
        }
    }

    fn path_of(
        &self,
        chain: &[CertificateDer<'_>],
        purpose: CertificatePurpose,
        now: UnixTime,
    ) -> Option<Vec<Fingerprint>> {
        let (leaf, sent) = chain.split_first()?;
        let path = self.verify_path(leaf, sent, purpose.usage(), now).ok()?;
        let Path { links, anchor, .. } = path;
        let mut cas: Vec<_> = links.iter().map(|link| link.issuer.id).collect();
        cas.push(anchor.issuer.id);
        cas.sort_unstable();
        cas.dedup();
        Some(cas)
    }

    /// The same bundle, by which no certificate is revoked.
    fn without_crls(&self) -> Self {
        let mut store = self.next();
        store.settings.unchecked = vec![UNCHECKED_ALL.to_owned()];
        store.settings.issuers.clear();
        store.index.clear();
        store.strays.clear();
        store
    }
}

impl Bundle {
    /// The certificates of a CA that are valid now.
    fn valid_copies(&self, id: Fingerprint, now: UnixTime) -> impl Iterator<Item = &Ca> {
        let copies = self.cas.iter().filter(move |ca| ca.issuer.id == id);
        copies.filter(move |ca| ca.not_before <= now && now <= ca.not_after)
    }

    /// Notes that a verified certificate below these CAs was seen.
    pub(crate) fn note_seen(&self, cas: impl Iterator<Item = Fingerprint>, now: UnixTime) {
        for ca in cas.filter_map(|id| self.issuers.get(&id)) {
            ca.seen.note(now);
        }
    }
}

impl Ca {
    /// Whether it constrains the certificates below it no more than another certificate of the same CA does.
    fn verifies_what(&self, other: &Self) -> bool {
        if self.der == other.der {
            return true;
        }
        let (Ok(own), Ok(other)) = (Certificate::read(&self.der), Certificate::read(&other.der))
        else {
            return false;
        };
        let (own, other) = (own.extensions, other.extensions);
        own.basic_constraints == other.basic_constraints
            && own
                .name_constraints
                .is_none_or(|own| Some(own) == other.name_constraints)
            && own.has_extended_key_usage <= other.has_extended_key_usage
            && own.signs_certificates() >= other.signs_certificates()
    }
}

/// How long a CA is kept after a verified agent below it was seen.
pub const CA_SEEN_WITHIN: Duration = Duration::from_secs(24 * HOUR);
const HOUR: u64 = 3600;
/// Members whose last chain is held, for each trust store towards members.
const MEMBERS_SEEN_MAX: usize = 1024;
