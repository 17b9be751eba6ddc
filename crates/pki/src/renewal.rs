//! Whether what a CA has answered to a renewal is the next certificate of the agent that asked.
//!
//! A CA that does not believe what a proxy tells it renews the certificate of whoever speaks TLS to it, which is the
//! proxy's own. So the answer is judged by what only the agent's next certificate has: its key and its subject.

use identity::Subject;

use crate::certificate::{self, Certificate};
use crate::strict_pem;

/// Why an answer is not the agent's next certificate.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RenewedCertificateError {
    /// It is no certificate, or not one alone.
    #[error("it is not a single certificate in PEM: {0}")]
    Unreadable(String),
    /// It is somebody else's.
    #[error("it is a certificate of {0}")]
    Subject(String),
    /// It is of that name, over another key.
    #[error("its key is not the agent's")]
    Key,
}

/// Holds an answer against the certificate that was to be renewed, the DER of a verified client's own.
///
/// # Errors
/// If it is anything else than one PEM certificate of the same subject over the same key.
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
