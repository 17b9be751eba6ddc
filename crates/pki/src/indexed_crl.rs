//! A CRL with its source, as the revocation index stores it.

use rustls_pki_types::SubjectPublicKeyInfoDer;

use crate::certificate::{Signed, Subject};
use crate::crl::Crl;
use crate::fingerprint::Fingerprint;
use crate::signature;

/// A list of a copy that is newer than the one in force and takes something back.
#[derive(Clone, Debug)]
pub(crate) struct OverruledCrl {
    pub(crate) issuer: Fingerprint,
    /// The list in force.
    pub(crate) by: Fingerprint,
    pub(crate) why: String,
}

impl OverruledCrl {
    /// A list that a file has, if it is such a one.
    pub(crate) fn of(issuer: Fingerprint, crl: &IndexedCrl, active: &IndexedCrl) -> Option<Self> {
        if crl.origin != CrlOrigin::Copy || crl.fingerprint == active.fingerprint {
            return None;
        }
        let lacking = active.crl.serials.missing_from(&crl.crl.serials);
        (lacking > 0).then(|| Self {
            issuer,
            by: active.fingerprint,
            why: format!(
                "the CRL of {} in {} (number {}) is not used, because it drops revocations: it lacks {lacking} of the {} certificates that the active CRL (number {}) revokes. If that is intended, accept the CRL that the CA provides (proscenium crl accept)",
                Subject(&crl.crl.issuer),
                crl.place,
                crl.crl.number_text(),
                active.crl.serials.len(),
                active.crl.number_text(),
            ),
        })
    }
}

/// A CRL that counts, or may come to count.
#[derive(Debug)]
pub(crate) struct IndexedCrl {
    pub(crate) crl: Crl,
    /// Of its DER.
    pub(crate) fingerprint: Fingerprint,
    /// Where it stood: `"crl.pem" block 1`.
    pub(crate) place: String,
    pub(crate) origin: CrlOrigin,
    /// The DER of a stray, for its signature is still to be checked. Empty once that is done.
    pub(crate) unverified: Box<[u8]>,
}

impl IndexedCrl {
    /// Whether this key signed a stray.
    pub(crate) fn is_signed_by(&self, spki: &SubjectPublicKeyInfoDer<'_>) -> bool {
        Signed::read(&self.unverified)
            .is_ok_and(|(_, signed)| signature::check_signed(signed, spki).is_ok())
    }
}

/// Where a CRL came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CrlOrigin {
    /// One of the materials: it is there again when they are read again.
    File,
    /// One of them that something else has fetched.
    Copy,
    /// Handed in: the stores built on this one have it from this one.
    Fetched,
}
