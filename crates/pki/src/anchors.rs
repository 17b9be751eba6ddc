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
    /// Digest of the CA bundle.
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

    /// Subjects of the bundle's CAs whose legacy signatures are accepted.
    pub(crate) fn legacy_cas(&self) -> impl Iterator<Item = &str> {
        self.legacy.subjects()
    }

    /// The Names of the bundle's CAs, as hints for clients that have several certificates.
    pub(crate) fn subjects(&self) -> impl Iterator<Item = &[u8]> {
        let mut names: Vec<&[u8]> = self.bundle.cas.iter().map(|ca| &*ca.issuer.name).collect();
        names.sort_unstable();
        names.dedup();
        names.into_iter()
    }

    /// Digests of names and keys of the bundle's CAs, with the names (RFC 2253), in a fixed order.
    pub(crate) fn issuers(&self) -> Vec<(Fingerprint, &str)> {
        let issuers = self.bundle.issuers.values();
        let mut issuers: Vec<_> = issuers
            .map(|issuer| (issuer.id, issuer.text.as_str()))
            .collect();
        issuers.sort_unstable();
        issuers
    }

    /// The bundle's intermediates and the certificates that the client sent. Agents of Puppet 6 and later send only their own
    /// certificate.
    ///
    /// Certificates that webpki cannot parse are skipped. An unrelated certificate in a valid chain must neither cause a
    /// refusal nor determine its reason.
    pub(crate) fn intermediates<'a>(
        &'a self,
        sent: &'a [CertificateDer<'_>],
    ) -> Vec<CertificateDer<'a>> {
        // Intermediates with critical policies are starts of paths (`path_start`), because webpki refuses them here.
        let own = self.bundle.intermediates();
        let own = own.filter(|ca| !ca.has_critical_policies).map(|ca| &ca.der);
        let presented = sent
            .iter()
            .filter(|der| EndEntityCert::try_from(*der).is_ok())
            .filter(|der| {
                self.bundle
                    .cas
                    .iter()
                    .all(|ca| ca.der.as_ref() != der.as_ref())
            });
        own.map(|der| CertificateDer::from(der.as_ref()))
            .chain(presented.map(|der| CertificateDer::from(der.as_ref())))
            .collect()
    }

    /// The bundle's copy of a CA certificate, so that agents share it. If the bundle does not have it, a new copy.
    pub(crate) fn shared(&self, der: &CertificateDer<'_>) -> Arc<[u8]> {
        let known = self.bundle.cas.iter().find(|ca| ca.der == *der);
        known.map_or_else(|| der.as_ref().into(), |ca| Arc::clone(&ca.shared))
    }

    /// The bundle's value for an issuer, or a new one for a CA that the client sent.
    pub(crate) fn issuer(&self, ca: &Certificate<'_>) -> Arc<Issuer> {
        let known = self.bundle.issuers.get(&Issuer::id(ca));
        known.map_or_else(|| Arc::new(Issuer::of(ca)), Arc::clone)
    }
}
