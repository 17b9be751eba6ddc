//! The CAs that a bundle must contain: the CAs of agents that were seen recently, of members, and of the proxy's own
//! certificates.

use std::collections::HashMap;
use std::fmt::Write;
use std::time::Duration;

use identity::Reason;
use rustls_pki_types::{CertificateDer, UnixTime};
use webpki::KeyUsage;

use crate::anchors::Anchors;
use crate::bundle::Issuer;
use crate::chain::Path;
use crate::fingerprint::Fingerprint;
use crate::store::TrustStore;
use crate::verdict::ChainVerification;

/// The side of a handshake on which a certificate is presented.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CertificatePurpose {
    /// A listener or a member presents it to clients.
    Server,
    /// The proxy presents it to members.
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

impl TrustStore {
    /// Digests of names and keys of the CAs above a certificate that is presented for this purpose. None if this bundle does
    /// not verify the certificate. CRLs are ignored, because a revocation is not a change of the bundle.
    pub fn cas_above(
        &self,
        chain: &[CertificateDer<'_>],
        purpose: CertificatePurpose,
        now: UnixTime,
    ) -> Option<Vec<Fingerprint>> {
        self.without_crls().path_of(chain, purpose, now)
    }

    /// A sentence that names the CRL that revokes a certificate presented for this purpose, or a CA above it. Also `None` if
    /// this bundle does not verify the certificate.
    pub fn revocation_of(
        &self,
        chain: &[CertificateDer<'_>],
        purpose: CertificatePurpose,
        now: UnixTime,
    ) -> Option<String> {
        let (leaf, sent) = chain.split_first()?;
        match self.verify_path(leaf, sent, purpose.usage(), now) {
            Ok(path) => {
                self.anchors.bundle.note_serial(&path.links);
                None
            }
            Err(fault) => (fault.reason == Reason::Revoked).then_some(fault.detail),
        }
    }

    /// Records that an agent that was verified earlier is still connected.
    pub fn note_in_use(&self, verification: &ChainVerification, now: UnixTime) {
        if let Some(chain) = &verification.chain {
            self.anchors.bundle.note_seen(chain.cas(), now);
            self.anchors.bundle.note_serial(&chain.links);
        }
    }

    /// Names of members whose last certificate `before` verifies and this bundle does not. `is_member` returns whether a name
    /// still belongs to a member.
    pub fn members_lost(
        &self,
        before: &Self,
        is_member: impl Fn(&str) -> bool,
        now: UnixTime,
    ) -> Vec<String> {
        let (this, before) = (self.without_crls(), before.without_crls());
        let chains = before.memory.members_seen.chains();
        let verifies = |store: &Self, chain: &[_]| {
            let path = store.path_of(chain, CertificatePurpose::Server, now);
            path.is_some()
        };
        let lost = chains.iter().filter(|(name, chain)| {
            is_member(name) && verifies(&before, chain) && !verifies(&this, chain)
        });
        lost.map(|(name, _)| name.clone()).collect()
    }

    /// Subjects of CAs of `before` that verified agents after `since` and that are missing in this bundle or more restricted.
    pub fn seen_cas_lost(&self, before: &Self, since: UnixTime, now: UnixTime) -> Vec<String> {
        self.anchors.seen_cas_lost(&before.anchors, since, now)
    }

    /// Subjects of these CAs of `before` that are not in this bundle.
    pub fn cas_lost(&self, before: &Self, cas: &[Fingerprint]) -> Vec<String> {
        self.anchors.cas_lost(&before.anchors, cas)
    }

    /// The time at which an agent of each CA was last seen, as text to be stored. It has a line with digest and Unix time for
    /// each CA, and changes at most once an hour for each CA.
    pub fn cas_seen(&self, now: UnixTime) -> String {
        self.anchors.cas_seen(now)
    }

    /// Restores the output of [`cas_seen`](Self::cas_seen). Lines that cannot be parsed and CAs that are not in the bundle
    /// are ignored.
    pub fn restore_cas_seen(&self, text: &str, now: UnixTime) {
        self.anchors.restore_cas_seen(text, now);
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

    /// The same bundle without CRLs, so that no certificate is revoked.
    fn without_crls(&self) -> Self {
        let mut store = self.next();
        store.revocation = self.revocation.without_crls();
        store
    }
}

impl Anchors {
    fn seen_cas_lost(&self, before: &Self, since: UnixTime, now: UnixTime) -> Vec<String> {
        let issuers = before.bundle.issuers.values();
        let was_seen = |ca: &Issuer| {
            ca.seen.clamp(now);
            ca.seen.seconds() >= since.as_secs()
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

    fn cas_lost(&self, before: &Self, cas: &[Fingerprint]) -> Vec<String> {
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

    fn cas_seen(&self, now: UnixTime) -> String {
        let mut lines: Vec<_> = self
            .bundle
            .issuers
            .values()
            .inspect(|ca| ca.seen.clamp(now))
            .map(|ca| (ca.id, ca.seen.seconds()))
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

    fn restore_cas_seen(&self, text: &str, now: UnixTime) {
        let lines: HashMap<_, _> = text
            .lines()
            .filter_map(|line| line.split_once(' '))
            .collect();
        for ca in self.bundle.issuers.values() {
            let stored = lines.get(ca.id.to_string().as_str());
            if let Some(seen) = stored.and_then(|seen| seen.parse().ok()) {
                ca.seen.restore(seen);
                ca.seen.clamp(now);
            }
        }
    }
}

/// How long a CA counts as required after a verified agent of it was seen.
pub const CA_SEEN_WITHIN: Duration = Duration::from_secs(24 * HOUR);
const HOUR: u64 = 3600;
