//! What an error of webpki means, and which certificate it is about.

use identity::Reason;
use rustls_pki_types::{CertificateDer, UnixTime};

use crate::anchors::Anchors;
use crate::bundle::UnusedCa;
use crate::certificate::{Certificate, Subject};
use crate::refusal::CertificateFault;
use crate::signature;

impl Anchors {
    /// What webpki's error means, and which certificate it is about.
    pub(crate) fn fault(
        &self,
        error: &webpki::Error,
        leaf: &CertificateDer<'_>,
        sent: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> CertificateFault {
        use webpki::Error;
        let own = Certificate::read(leaf).ok();
        let expired = own.as_ref().is_some_and(|own| now > own.not_after);
        let early = own.as_ref().is_some_and(|own| now < own.not_before);
        let reason = match error {
            Error::CertExpired { .. } if expired => Reason::Expired,
            Error::CertNotValidYet { .. } if early => Reason::NotYetValid,
            Error::CertExpired { .. } => Reason::CaExpired,
            Error::CertNotValidYet { .. } => Reason::CaNotYetValid,
            Error::UnknownIssuer
                if own.as_ref().is_some_and(|own| {
                    self.unused_issuer(own).is_some_and(|ca| ca.is_by_extension)
                }) =>
            {
                Reason::CriticalExtension
            }
            Error::UnknownIssuer => Reason::UnknownIssuer,
            Error::InvalidSignatureForPublicKey
                if own
                    .as_ref()
                    .is_some_and(|own| self.issuer_is_unverifiable(own)) =>
            {
                Reason::UnsupportedAlgorithm
            }
            Error::InvalidSignatureForPublicKey => Reason::BadSignature,
            Error::UnsupportedSignatureAlgorithmContext(_)
            | Error::UnsupportedSignatureAlgorithmForPublicKeyContext(_) => {
                Reason::UnsupportedAlgorithm
            }
            Error::RequiredEkuNotFoundContext(_) | Error::EmptyEkuExtension => Reason::WrongPurpose,
            Error::UnsupportedCriticalExtension => Reason::CriticalExtension,
            Error::UnsupportedCertVersion => match own.as_ref().map(|own| own.version) {
                Some(1 | 2) => Reason::CertificateVersion,
                _ => Reason::Malformed,
            },
            Error::CaUsedAsEndEntity => Reason::NotAnEndEntity,
            Error::EndEntityUsedAsCa
            | Error::PathLenConstraintViolated
            | Error::NameConstraintViolation
            | Error::MalformedNameConstraint
            | Error::InvalidNetworkMaskConstraint => Reason::PathConstraint,
            // Too many CAs above it, or so many candidates that webpki stopped the search.
            Error::MaximumPathDepthExceeded
            | Error::MaximumPathBuildCallsExceeded
            | Error::MaximumSignatureChecksExceeded
            | Error::MaximumNameConstraintComparisonsExceeded => Reason::Depth,
            _ => Reason::Malformed,
        };
        let detail = match reason {
            Reason::UnknownIssuer | Reason::BadSignature | Reason::CriticalExtension => {
                let unused = own.as_ref().and_then(|own| self.unused_issuer(own));
                match unused {
                    Some(unused) => Some(format!("In detail: {}.", unused.why)),
                    None if reason == Reason::CriticalExtension => None,
                    None => own.as_ref().map(|own| self.issuer_detail(own)),
                }
            }
            Reason::CaExpired | Reason::CaNotYetValid => self.untimely_ca(sent, now),
            Reason::Malformed => Some(format!("The reader says: {error}.")),
            _ => None,
        };
        CertificateFault::new(reason, leaf, detail.unwrap_or_default())
    }

    /// Whether a CA of the bundle with the issuer's name has a key that cannot be verified. aws-lc reports signatures
    /// by such a key as wrong.
    fn issuer_is_unverifiable(&self, own: &Certificate<'_>) -> bool {
        let mut issuers = self.bundle.issuers.values();
        issuers.any(|issuer| issuer.has_name(own.issuer) && !signature::is_verifiable(&issuer.spki))
    }

    /// The issuer, if its certificate is in the bundle and no other certificate of this name is used.
    fn unused_issuer(&self, own: &Certificate<'_>) -> Option<&UnusedCa> {
        let mut used = self.bundle.issuers.values();
        let mut unused = self.bundle.unused.iter();
        match used.any(|issuer| issuer.has_name(own.issuer)) {
            true => None,
            false => unused.find(|ca| *ca.name == *own.issuer),
        }
    }

    fn issuer_detail(&self, leaf: &Certificate<'_>) -> String {
        let mut issuers = self.bundle.issuers.values();
        match issuers.find(|issuer| issuer.has_name(leaf.issuer)) {
            Some(issuer) if *issuer.name == *leaf.issuer => format!(
                "The proxy trusts a CA {}, but that CA's key did not sign this certificate: the CA was recreated, or another CA has the same name.",
                Subject(leaf.issuer)
            ),
            Some(_) => format!(
                "The proxy trusts a CA {} whose own certificate encodes that name with other string types. The CA's key did not sign this certificate, or the CA may not issue certificates: it must be valid now, and a root or directly below a root.",
                Subject(leaf.issuer)
            ),
            None => {
                let mut names: Vec<_> = self
                    .bundle
                    .issuers
                    .values()
                    .map(|issuer| issuer.text.as_str())
                    .collect();
                names.sort_unstable();
                names.dedup();
                names.truncate(SUBJECTS_SHOWN_MAX);
                format!("The proxy trusts {}.", names.join("; "))
            }
        }
    }

    fn untimely_ca(&self, sent: &[CertificateDer<'_>], now: UnixTime) -> Option<String> {
        let own_cas = self.bundle.cas.iter().map(|ca| &*ca.der);
        own_cas
            .chain(sent.iter().map(|der| &**der))
            .filter_map(|der| Certificate::read(der).ok())
            .find(|ca| now > ca.not_after || now < ca.not_before)
            .map(|ca| format!("The CA certificate is {}.", ca.describe()))
    }
}

/// Maximum number of CA subjects in a refusal: enough to see that the certificate belongs to another site.
const SUBJECTS_SHOWN_MAX: usize = 4;
