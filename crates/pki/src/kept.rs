//! Which CAs a bundle must keep: those of agents that were seen lately, of members, and of our own certificates.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustls_pki_types::{CertificateDer, UnixTime};
use webpki::KeyUsage;

use crate::bundle::{Bundle, Fingerprint};
use crate::path::Path;
use crate::settings::UNCHECKED_ALL;
use crate::store::TrustStore;

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

    pub(crate) fn inherit(&self, other: &Self) {
        self.0
            .fetch_max(other.0.load(Ordering::Relaxed), Ordering::Relaxed);
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
    /// Digests of names and keys of the CAs above a server's or an agent's certificate; none if this bundle does not verify
    /// it. CRLs are not looked at: a revocation is no change of the bundle.
    pub fn cas_above(
        &self,
        chain: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Option<Vec<Fingerprint>> {
        self.without_crls().path_of(chain, now)
    }

    /// Subjects of CAs of `before` that are not in this bundle, although agents below them were seen since `since`.
    pub fn seen_cas_lost(&self, before: &Self, since: UnixTime) -> Vec<String> {
        let issuers = before.bundle.issuers.values();
        let is_lost = |id| !self.bundle.issuers.contains_key(id);
        let mut lost: Vec<_> = issuers
            .filter(|ca| ca.seen.0.load(Ordering::Relaxed) >= since.as_secs() && is_lost(&ca.id))
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

    /// Names of members whose certificate, the one they showed last, `before` verifies and this bundle does not.
    pub fn members_lost(&self, before: &Self, now: UnixTime) -> Vec<String> {
        let (this, before) = (self.without_crls(), before.without_crls());
        let chains = before.members_seen.chains();
        let is_lost = |chain: &[_]| {
            before.path_of(chain, now).is_some() && this.path_of(chain, now).is_none()
        };
        let lost = chains.iter().filter(|(_, chain)| is_lost(chain));
        lost.map(|(name, _)| name.clone()).collect()
    }

    /// When agents below each CA were seen last, as text to store: a line of digest and Unix time for each CA. It changes
    /// at most once an hour for each CA.
    pub fn cas_seen(&self) -> String {
        let mut lines: Vec<_> = self
            .bundle
            .issuers
            .values()
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
    pub fn restore_cas_seen(&self, text: &str) {
        let lines: HashMap<_, _> = text
            .lines()
            .filter_map(|line| line.split_once(' '))
            .collect();
        for ca in self.bundle.issuers.values() {
            let stored = lines.get(ca.id.to_string().as_str());
            if let Some(seen) = stored.and_then(|seen| seen.parse().ok()) {
                ca.seen.inherit(&LastSeen(AtomicU64::new(seen)));
            }
        }
    }

    fn path_of(&self, chain: &[CertificateDer<'_>], now: UnixTime) -> Option<Vec<Fingerprint>> {
        let (leaf, sent) = chain.split_first()?;
        let verify = |usage| self.verify(leaf, sent, usage, now).ok();
        let path = verify(KeyUsage::server_auth()).or_else(|| verify(KeyUsage::client_auth()))?;
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
    /// Notes that a verified certificate below these CAs was seen.
    pub(crate) fn note_seen(&self, cas: impl Iterator<Item = Fingerprint>, now: UnixTime) {
        for ca in cas.filter_map(|id| self.issuers.get(&id)) {
            ca.seen.note(now);
        }
    }
}

/// How long a CA is kept after a verified agent below it was seen.
pub const CA_SEEN_WITHIN: Duration = Duration::from_secs(24 * HOUR);
const HOUR: u64 = 3600;
/// Members whose last chain is held, for each trust store towards members.
const MEMBERS_SEEN_MAX: usize = 1024;
