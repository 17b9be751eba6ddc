//! The CAs that a trust store trusts: the bundle, and which of its CAs may use legacy signatures.

use std::sync::Arc;

use rustls_pki_types::CertificateDer;
use webpki::EndEntityCert;

use crate::bundle::{Bundle, Issuer};
use crate::certificate::Certificate;
use crate::fingerprint::Fingerprint;
use crate::legacy_signatures::LegacySignatures;

/// The CA bundle with the exceptions for legacy signatures.
#[derive(Clone, Debug)]
pub(crate) struct Anchors {
    pub(crate) bundle: Arc<Bundle>,
    pub(crate) legacy: Arc<LegacySignatures>,
}

impl Anchors {
    /// Of the CA bundle.
    pub(crate) fn cas(&self) -> Fingerprint {
        self.bundle.fingerprint
    }

    /// Whether this is the subject (RFC 2253) of a CA of the bundle.
    pub(crate) fn knows_issuer(&self, name: &str) -> bool {
        self.bundle
            .issuers
            .values()
            .any(|issuer| issuer.text == name)
    }

    /// Subjects of the bundle's CAs whose signatures of another time are admitted.
    pub(crate) fn legacy_cas(&self) -> impl Iterator<Item = &str> {
        self.legacy.subjects()
    }

    /// The Names of the bundle's CAs, as hints for clients that hold several certificates.
    pub(crate) fn subjects(&self) -> impl Iterator<Item = &[u8]> {
        let mut names: Vec<&[u8]> = self.bundle.cas.iter().map(|ca| &*ca.issuer.name).collect();
        names.sort_unstable();
        names.dedup();
        names.into_iter()
    }

    /// Digests of names and keys of the bundle's CAs, with the names (RFC 2253), in a steady order.
    pub(crate) fn issuers(&self) -> Vec<(Fingerprint, &str)> {
        let issuers = self.bundle.issuers.values();
        let mut issuers: Vec<_> = issuers
            .map(|issuer| (issuer.id, issuer.text.as_str()))
            .collect();
        issuers.sort_unstable();
        issuers
    }

    /// The bundle's intermediates and what the client sent. Agents of Puppet 6 and later send only their own.
    ///
    /// What webpki cannot parse is left out: one odd certificate beside a good chain is no reason to refuse, nor may
    /// it give the reason for a refusal.
    pub(crate) fn intermediates<'a>(
        &'a self,
        sent: &'a [CertificateDer<'_>],
    ) -> Vec<CertificateDer<'a>> {
        let ours = self.bundle.intermediates().map(|ca| &ca.der);
        let theirs = sent
            .iter()
            .filter(|der| EndEntityCert::try_from(*der).is_ok())
            .filter(|der| {
                self.bundle
                    .cas
                    .iter()
                    .all(|ca| ca.der.as_ref() != der.as_ref())
            });
        ours.map(|der| CertificateDer::from(der.as_ref()))
            .chain(theirs.map(|der| CertificateDer::from(der.as_ref())))
            .collect()
    }

    /// The bundle's own copy of a CA's certificate, so that agents share it, or a new one of what the client sent.
    pub(crate) fn shared(&self, der: &CertificateDer<'_>) -> Arc<[u8]> {
        let known = self.bundle.cas.iter().find(|ca| ca.der == *der);
        known.map_or_else(|| der.as_ref().into(), |ca| Arc::clone(&ca.shared))
    }

    /// The bundle's own value for an issuer, or a new one for a CA that the client sent.
    pub(crate) fn issuer(&self, ca: &Certificate<'_>) -> Arc<Issuer> {
        let known = self.bundle.issuers.get(&Issuer::id(ca));
        known.map_or_else(|| Arc::new(Issuer::of(ca)), Arc::clone)
    }
}
