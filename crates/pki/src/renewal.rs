//! Checks that a CA's response to a renewal is the next certificate of the requesting agent.
//!
//! A CA that does not trust the proxy's identity headers renews the certificate of its TLS client, which is the proxy's
//! own. The next certificate of the agent has the agent's key and subject, so those are checked.

use identity::Subject;

use crate::certificate::{self, Certificate};
use crate::strict_pem;

/// Why a response is not the agent's next certificate.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RenewedCertificateError {
    /// It is not a certificate, or not only one.
    #[error("it is not a single certificate in PEM: {0}")]
    Unreadable(String),
    /// It has another subject.
    #[error("it is a certificate of {0}")]
    Subject(String),
    /// It has the subject, but another key.
    #[error("its key is not the agent's")]
    Key,
}

/// Compares a response with the certificate to be renewed (DER of a verified client).
///
/// # Errors
/// Anything but one PEM certificate with the same subject and key.
pub fn check_renewed_certificate(
    leaf: &[u8],
    answer: &[u8],
) -> Result<(), RenewedCertificateError> {
    let der = strict_pem::only_block(answer, "CERTIFICATE")
        .map_err(RenewedCertificateError::Unreadable)?;
    let read = |der| {
        Certificate::read(der).map_err(|e| RenewedCertificateError::Unreadable(e.to_string()))
    };
    let (renewed, leaf) = (read(&der)?, read(leaf)?);
    if !Subject::is_same(renewed.subject, leaf.subject) {
        let name = certificate::Subject(renewed.subject).to_string();
        return Err(RenewedCertificateError::Subject(name));
    }
    match renewed.spki == leaf.spki {
        true => Ok(()),
        false => Err(RenewedCertificateError::Key),
    }
}
