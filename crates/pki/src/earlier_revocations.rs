//! The revocations of an issuer before its CRLs changed. They stay active until an operator accepts the loss, even while the
//! issuer has no CRL at all.

use std::sync::Arc;

use crate::crl::SerialSet;
use crate::fingerprint::Fingerprint;
use crate::indexed_crl::IndexedCrl;

/// The revocations of one issuer so far.
#[derive(Clone, Debug, Default)]
pub(crate) struct EarlierRevocations {
    /// The CRLs that were used.
    pub(crate) lists: Vec<Arc<IndexedCrl>>,
    /// Revoked serials that came from other CRLs.
    pub(crate) dropped: Arc<SerialSet>,
    /// Number of serials that exceeded the maximum of dropped serials. They are no longer revoked.
    pub(crate) forgotten: usize,
}

impl EarlierRevocations {
    /// These revocations together with those of further CRLs and serials.
    pub(crate) fn with(mut self, lists: Vec<Arc<IndexedCrl>>, serials: &SerialSet) -> Self {
        self.lists.extend(lists);
        if serials.len() > 0 {
            let all = self.dropped.iter().chain(serials.iter()).collect();
            self.dropped = Arc::new(SerialSet::new(all));
        }
        self
    }

    /// Whether nothing has been revoked, and no CRL was seen.
    pub(crate) fn is_empty(&self) -> bool {
        self.lists.is_empty() && self.dropped.len() == 0
    }

    pub(crate) fn newest(&self) -> Option<&Arc<IndexedCrl>> {
        self.lists.iter().max_by(|a, b| a.crl.age(&b.crl))
    }

    /// Whether the certificate with this serial was revoked. `serial` is in its shortest form.
    pub(crate) fn revoke(&self, serial: &[u8]) -> bool {
        let mut lists = self.lists.iter();
        self.dropped.contains(serial) || lists.any(|crl| crl.crl.serials.contains(serial))
    }

    /// The revoked serials that none of these CRLs lists.
    pub(crate) fn unlisted_in(&self, crls: &[Arc<IndexedCrl>]) -> SerialSet {
        let listed = self.lists.iter().flat_map(|crl| crl.crl.serials.iter());
        let revoked = self.dropped.iter().chain(listed);
        let is_unlisted = |serial: &&[u8]| !crls.iter().any(|crl| crl.crl.serials.contains(serial));
        SerialSet::new(revoked.filter(is_unlisted).collect())
    }

    /// Whether one of these CRLs lists a serial that was not revoked.
    pub(crate) fn is_extended_by(&self, crls: &[Arc<IndexedCrl>]) -> bool {
        let mut listed = crls.iter().flat_map(|crl| crl.crl.serials.iter());
        listed.any(|serial| !self.revoke(serial))
    }

    /// Digest of all revocations, whatever the order of the CRLs.
    pub(crate) fn digest(&self) -> Fingerprint {
        let mut parts: Vec<_> = self.lists.iter().map(|crl| crl.fingerprint).collect();
        parts.sort_unstable();
        parts.push(Fingerprint::of(self.dropped.iter()));
        Fingerprint::of(parts.iter().map(|part| &part.as_bytes()[..]))
    }

    /// Size of the serials in bytes.
    pub(crate) fn bytes(&self) -> usize {
        let lists = self.lists.iter().map(|crl| crl.crl.serials.bytes());
        lists.sum::<usize>() + self.dropped.bytes()
    }
}
