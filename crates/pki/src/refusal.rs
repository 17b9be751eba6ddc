//! What is wrong with a certificate, and the messages about it for the agent's user and the operator.

use identity::{Certname, Reason, Refusal};

use crate::certificate::{Certificate, Day, Serial, Subject};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CertificateFault {
    pub(crate) reason: Reason,
    /// The certificate: subject, serial, issuer, dates.
    pub(crate) certificate: String,
    /// Further sentences; may be empty.
    pub(crate) detail: String,
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

/// The refusal for the agent's user, with commands to run.
pub(crate) fn refusal(fault: CertificateFault, leaf: &[u8], is_issued: bool) -> Refusal {
    let help = match fault.reason {
        // Another certificate from the same CA would also be refused.
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
        is_issued,
    }
}

/// Text that explains how an agent gets a new certificate.
fn renewal(leaf: &[u8]) -> String {
    format!(
        "To get a new certificate: on the CA run puppetserver ca clean --certname {}, on the agent run \
         puppet ssl clean, then puppet agent -t.",
        certname_for_command(leaf)
            .as_ref()
            .map_or("NAME", Certname::as_str)
    )
}

/// The claimed certname for a command that an operator pastes, if the Puppet CA signs such names.
pub(crate) fn certname_for_command(leaf: &[u8]) -> Option<Certname> {
    claimed_certname(leaf).filter(|name| Certname::parse_puppet(name.as_str()).is_ok())
}

/// The certname as spelled in the certificate, if the subject has no other attribute. Apart from its case, it is a name that
/// the Puppet CA signs, so it is safe in a command that an operator pastes. It is unverified.
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

/// The first advice if a date is at fault: if a clock is wrong, cleaning certificates would destroy valid ones.
const CLOCKS: &str = "First, check the clocks of the agent and of the proxy.";

const CA_REVOKED: &str = "Every certificate from this CA is refused. Set up a new CA (puppetserver ca setup), then enrol the \
                          agents with it (puppet ssl clean, then puppet agent -t).";

/// Advice if a new certificate would also be refused. The alarm shows what the operator must do.
const CRL_OF_THE_PROXY: &str = "Nothing is wrong with the agent's certificate, so do not clean it. Ask the administrator of \
                                the Puppet servers to provide a current CRL of this CA to the proxy.";
