//! When certificates can no longer be verified: the earliest expiry of the CAs on the path above them.

use rustls_pki_types::{CertificateDer, UnixTime};

use crate::certificate::Certificate;
use crate::store::TrustStore;

impl TrustStore {
    /// The last second in which certificates of the CA with this subject (RFC 2253) can be verified: the earliest expiry on the
    /// path from the CA to an anchor. If the CA has several certificates, for example after its renewal, the latest of these
    /// times is returned. `None` if the bundle has no such CA.
    pub fn ca_end(&self, subject: &str) -> Option<UnixTime> {
        let cas = self.anchors.bundle.cas.iter();
        let named = cas.filter(|ca| ca.issuer.text == subject);
        named.map(|ca| ca.path_end).max()
    }

    /// The same time for the CA above a chain, which has the leaf first. This is the first CA of the bundle on the way up.
    /// `None` if the bundle has no issuer of the chain.
    pub fn end_above(&self, chain: &[CertificateDer<'_>]) -> Option<UnixTime> {
        let read = chain.iter().filter_map(|der| Certificate::read(der).ok());
        let certificates: Vec<_> = read.collect();
        let mut current = certificates.first()?;
        // At most one step for each certificate, so that the search ends even if issuers form a loop.
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
