//! When certificates can no longer be verified: the earliest end on the path above them, the CA included.

use rustls_pki_types::{CertificateDer, UnixTime};

use crate::certificate::Certificate;
use crate::store::TrustStore;

impl TrustStore {
    /// The last second in which certificates of the CA with this subject (RFC 2253) can be verified: the earliest end on
    /// the path from the CA to an anchor. With several certificates of the CA, as after its renewal, the last of these
    /// ends counts. `None` if the bundle has no such CA.
    pub fn ca_end(&self, subject: &str) -> Option<UnixTime> {
        let cas = self.anchors.bundle.cas.iter();
        let named = cas.filter(|ca| ca.issuer.text == subject);
        named.map(|ca| ca.path_end).max()
    }

    /// The same for the CA above a chain, the leaf first: the first CA of the bundle on the way up. `None` if the bundle
    /// has none of the chain's issuers.
    pub fn end_above(&self, chain: &[CertificateDer<'_>]) -> Option<UnixTime> {
        let read = chain.iter().filter_map(|der| Certificate::read(der).ok());
        let certificates: Vec<_> = read.collect();
        let mut current = certificates.first()?;
        // At most once for each certificate, so that a loop of issuers ends.
        for _ in &certificates {
            let cas = self.anchors.bundle.cas.iter();
            let above = cas.filter(|ca| ca.issuer.has_name(current.issuer));
            let end = above.map(|ca| ca.path_end).max();
            if end.is_some() {
                return end;
            }
            let mut others = certificates.iter();
            current = others.find(|other| other.subject == current.issuer)?;
        }
        None
    }
}
