//! Finds out what an error of webpki means, and which certificate it is about.

use identity::Reason;
use rustls_pki_types::{CertificateDer, UnixTime};

use crate::anchors::Anchors;
use crate::bundle::{Ca, UnusedCa};
use crate::certificate::{Certificate, Subject};
use crate::name_constraints;
use crate::path_start::allows_both;
use crate::refusal::CertificateFault;
use crate::signature;

impl Anchors {
    /// The fault that webpki's error means, with the certificate that it is about.
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
        let unsupported = own.as_ref().and_then(|own| self.policy_obstacle(own));
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
            Error::UnknownIssuer if unsupported.is_some() => Reason::CriticalExtension,
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
            // There are too many CAs above it, or so many candidates that webpki stopped the search.
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
                    None if reason == Reason::CriticalExtension && unsupported.is_some() => {
                        unsupported
                    }
                    None if reason == Reason::CriticalExtension => None,
                    None => own.as_ref().map(|own| self.issuer_detail(own)),
                }
            }
            Reason::CaExpired | Reason::CaNotYetValid => self.untimely_ca(sent, now),
            Reason::Malformed => Some(format!("The parser reports: {error}.")),
            Reason::PathConstraint => self.constraint_detail(error, sent),
            _ => None,
        };
        CertificateFault::new(reason, leaf, detail.unwrap_or_default())
    }

    /// Whether a CA of the bundle with the issuer's name has a key with which signatures cannot be verified. aws-lc reports
    /// signatures by such a key as wrong.
    fn issuer_is_unverifiable(&self, own: &Certificate<'_>) -> bool {
        let mut issuers = self.bundle.issuers.values();
        issuers.any(|issuer| issuer.has_name(own.issuer) && !signature::is_verifiable(&issuer.spki))
    }

    /// The issuer, if its certificate is in the bundle but not used, and no other certificate with this name is used.
    fn unused_issuer(&self, own: &Certificate<'_>) -> Option<&UnusedCa> {
        let mut used = self.bundle.issuers.values();
        let mut unused = self.bundle.unused.iter();
        if used.any(|issuer| issuer.has_name(own.issuer)) {
            None
        } else {
            unused.find(|ca| *ca.name == *own.issuer)
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

    /// Why a CA with critical extensions about policies, which is the issuer or above it, is not the start of a path
    /// (`path_start`).
    fn policy_obstacle(&self, own: &Certificate<'_>) -> Option<String> {
        let mut name: &[u8] = own.issuer;
        let mut of_policies: Option<&Ca> = None;
        for _ in 0..=self.bundle.cas.len() {
            let mut cas = self.bundle.cas.iter();
            let ca = cas.find(|ca| *ca.issuer.name == *name)?;
            let extensions = Certificate::read(&ca.der).ok()?.extensions;
            let usage = extensions.extended_key_usage;
            let constraints = extensions.name_constraints;
            let is_above = of_policies.is_some();
            if of_policies.is_none() && ca.has_critical_policies {
                of_policies = Some(ca);
            }
            if let Some(lowest) = of_policies {
                let what = match (constraints, usage) {
                    (Some(names), _) if is_above && !name_constraints::are_checked_here(names) => {
                        "name constraints"
                    }
                    (_, Some(usage)) if !ca.is_anchor && !allows_both(usage) => {
                        "an extended key usage without both purposes of TLS"
                    }
                    _ => "",
                };
                if !what.is_empty() {
                    let mut issuers = self.bundle.issuers.values();
                    let issuer = issuers.find(|issuer| *issuer.name == *own.issuer)?;
                    signature::check_signed(own.signed, &issuer.spki[..].into()).ok()?;
                    return Some(format!(
                        "In detail: the CA {} has critical extensions about certificate policies, which the proxy does not support together with {what} of {}.",
                        lowest.issuer.text, ca.issuer.text
                    ));
                }
            }
            if ca.is_anchor {
                return None;
            }
            name = &ca.issued_by;
        }
        None
    }

    /// Names the CAs whose name constraints made webpki refuse a certificate.
    fn constraint_detail(
        &self,
        error: &webpki::Error,
        sent: &[CertificateDer<'_>],
    ) -> Option<String> {
        use webpki::Error;
        if !matches!(
            error,
            Error::NameConstraintViolation
                | Error::MalformedNameConstraint
                | Error::InvalidNetworkMaskConstraint
        ) {
            return None;
        }
        let own_cas = self.bundle.cas.iter().map(|ca| &*ca.der);
        let cas = own_cas.chain(sent.iter().map(|der| &**der));
        let cas = cas.filter_map(|der| Certificate::read(der).ok());
        let cas = cas.filter(|ca| ca.extensions.name_constraints.is_some());
        let mut names: Vec<_> = cas.map(|ca| Subject(ca.subject).to_string()).collect();
        names.sort_unstable();
        names.dedup();
        names.truncate(SUBJECTS_SHOWN_MAX);
        Some(format!(
            "In detail: a CA above it has a name constraint that does not permit one of its names, or that the proxy cannot check: one on e-mail addresses, if the certificate has such an address; one on directory names together with DNS names, URIs or IP addresses, or with a directory name that is not of UTF8String, PrintableString or IA5String, one for each part. CAs with name constraints: {}.",
            names.join("; ")
        ))
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

/// Maximum number of CA subjects in a refusal. They are enough to show that the certificate belongs to another site.
const SUBJECTS_SHOWN_MAX: usize = 4;
