//! What is wrong with a certificate, and in which words its owner and the operator are told.

use identity::{Certname, Reason, Refusal};
use rustls_pki_types::{CertificateDer, UnixTime};

use crate::certificate::{Certificate, Day, Serial, Subject};
use crate::signature;
use crate::store::TrustStore;

/// What is wrong with which certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CertificateFault {
    pub(crate) reason: Reason,
    /// The certificate it is about: subject, serial, issuer, dates.
    pub(crate) certificate: String,
    /// More, as sentences; may be empty.
    pub(crate) detail: String,
}

impl TrustStore {
    /// What webpki's error means, about which certificate.
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
            // Too many CAs above it, or so many candidates that the search was given up.
            Error::MaximumPathDepthExceeded
            | Error::MaximumPathBuildCallsExceeded
            | Error::MaximumSignatureChecksExceeded
            | Error::MaximumNameConstraintComparisonsExceeded => Reason::Depth,
            _ => Reason::Malformed,
        };
        let detail = match reason {
            Reason::UnknownIssuer | Reason::BadSignature => {
                own.as_ref().map(|own| self.issuer_detail(own))
            }
            Reason::CaExpired | Reason::CaNotYetValid => self.untimely_ca(sent, now),
            Reason::Malformed => Some(format!("The reader says: {error}.")),
            _ => None,
        };
        CertificateFault::new(reason, leaf, detail.unwrap_or_default())
    }

    /// Whether a CA of the bundle that has the issuer's name has a key that cannot be verified: aws-lc calls wrong what
    /// such a key has signed.
    fn issuer_is_unverifiable(&self, own: &Certificate<'_>) -> bool {
        let mut issuers = self.bundle.issuers.values();
        issuers.any(|issuer| issuer.has_name(own.issuer) && !signature::is_verifiable(&issuer.spki))
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
        let ours = self.bundle.cas.iter().map(|ca| &*ca.der);
        ours.chain(sent.iter().map(|der| &**der))
            .filter_map(|der| Certificate::read(der).ok())
            .find(|ca| now > ca.not_after || now < ca.not_before)
            .map(|ca| format!("The CA certificate is {}.", ca.describe()))
    }
}

impl CertificateFault {
    pub(crate) fn new(reason: Reason, certificate: &[u8], detail: impl Into<String>) -> Self {
        Self {
            reason,
            certificate: described(certificate),
            detail: detail.into(),
        }
    }
}

/// What the agent's user is told, with what to run.
pub(crate) fn refusal(fault: CertificateFault, leaf: &[u8]) -> Refusal {
    let help = match fault.reason {
        // Another certificate of the agent's would be of no use.
        Reason::Revoked if fault.certificate != described(leaf) => CA_REVOKED.to_owned(),
        Reason::UnknownIssuer | Reason::BadSignature => {
            "On the agent, run puppet ssl verify to compare its CA with the server's. If the agent belongs to this server, \
             run puppet ssl clean, then puppet agent -t."
                .to_owned()
        }
        Reason::NotYetValid | Reason::CaNotYetValid => {
            format!("{CLOCKS} If both are correct, check the clock of the CA server.")
        }
        Reason::Blocked => {
            "Contact the operator of this proxy: proscenium blocks shows why.".to_owned()
        }
        Reason::CaExpired => {
            format!(
                "{CLOCKS} If both are correct, the CA certificate must be renewed, and distributed to the agents and to \
                 the proxy."
            )
        }
        Reason::Expired => format!(
            "{CLOCKS} If both are correct, the agent needs a new certificate. {}",
            renewal(leaf)
        ),
        Reason::Revoked
        | Reason::Subject
        | Reason::WrongPurpose
        | Reason::CriticalExtension
        | Reason::NotAnEndEntity
        | Reason::CertificateVersion
        | Reason::Malformed
        | Reason::UnsupportedAlgorithm => renewal(leaf),
        Reason::CrlMissing | Reason::CrlExpired => CRL_OF_THE_PROXY.to_owned(),
        Reason::Depth | Reason::PathConstraint => String::new(),
    };
    let parts = [fault.detail, help];
    let parts: Vec<_> = parts.into_iter().filter(|part| !part.is_empty()).collect();
    Refusal {
        reason: fault.reason,
        certificate: fault.certificate,
        help: parts.join(" "),
        claimed: claimed_certname(leaf),
    }
}

/// How an agent gets another certificate.
fn renewal(leaf: &[u8]) -> String {
    format!(
        "To get a new certificate: on the CA run puppetserver ca clean --certname {}, on the agent run \
         puppet ssl clean, then puppet agent -t.",
        certname_for_command(leaf)
            .as_ref()
            .map_or("NAME", Certname::as_str)
    )
}

/// The claimed certname where the Puppet CA signs such names, for a command that an operator pastes.
pub(crate) fn certname_for_command(leaf: &[u8]) -> Option<Certname> {
    claimed_certname(leaf).filter(|name| Certname::parse_puppet(name.as_str()).is_ok())
}

/// The certname as the certificate spells it, where the subject has nothing else. Except for its case it is a name that
/// the Puppet CA signs, and so harmless in a command that an operator pastes: possibly no CA has vouched for it.
pub(crate) fn claimed_certname(leaf: &[u8]) -> Option<Certname> {
    let subject = Subject(Certificate::read(leaf).ok()?.subject).to_string();
    let name = subject.strip_prefix("CN=")?;
    Certname::parse_puppet(&name.to_ascii_lowercase()).ok()?;
    Certname::parse(name).ok()
}

pub(crate) fn described(der: &[u8]) -> String {
    match Certificate::read(der) {
        Ok(certificate) => format!(
            "\"{}\" (serial {}, issued by \"{}\", valid {} to {})",
            Subject(certificate.subject),
            Serial(certificate.serial),
            Subject(certificate.issuer),
            Day(certificate.not_before),
            Day(certificate.not_after),
        ),
        Err(_) => "(unreadable)".into(),
    }
}

/// Comes first where a date is at fault: with a wrong clock, cleaning certificates destroys valid ones.
const CLOCKS: &str = "First, check the clocks of the agent and of the proxy.";

const CA_REVOKED: &str = "Every certificate from this CA is refused. Set up a new CA (puppetserver ca setup), then enrol the \
                          agents with it (puppet ssl clean, then puppet agent -t).";

/// A new certificate of the agent's would be refused as well. What the operator has to do is in the alarm.
const CRL_OF_THE_PROXY: &str = "Nothing is wrong with the agent's certificate, so do not clean it. Ask the administrator of \
                                the Puppet servers to provide a current CRL of this CA to the proxy.";

/// CA subjects in a refusal: enough to see that it is another estate, not a list.
const SUBJECTS_SHOWN_MAX: usize = 4;
