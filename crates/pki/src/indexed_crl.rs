//! A CRL with its source, as the revocation index stores it.

use rustls_pki_types::SubjectPublicKeyInfoDer;

use crate::certificate::Signed;
use crate::crl::Crl;
use crate::fingerprint::Fingerprint;
use crate::signature;

/// A CRL that is in use, or may be used later.
#[derive(Debug)]
pub(crate) struct IndexedCrl {
    pub(crate) crl: Crl,
    /// Digest of its DER.
    pub(crate) fingerprint: Fingerprint,
    /// File and PEM block: `"crl.pem" block 1`.
    pub(crate) place: String,
    pub(crate) origin: CrlOrigin,
    /// The DER of a stray CRL, because its signature has not been verified yet. Empty for other CRLs.
    pub(crate) unverified: Box<[u8]>,
}

impl IndexedCrl {
    /// Whether this key has signed the stray CRL.
    pub(crate) fn is_signed_by(&self, spki: &SubjectPublicKeyInfoDer<'_>) -> bool {
        Signed::read(&self.unverified)
            .is_ok_and(|(_, signed)| signature::check_signed(signed, spki).is_ok())
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum CrlOrigin {
    /// A file of the configuration. The next reload reads it again.
    File,
    /// A file that another process fetches.
    Copy,
    /// A CRL that the proxy has fetched. Stores that are built on this one inherit it.
    Fetched,
}
