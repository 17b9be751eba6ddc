//! Checks whether a CA's response to a renewal is the next certificate of the requesting agent, or of the proxy itself.
//!
//! A CA that does not trust the proxy's identity headers renews the certificate of its TLS client, which is the proxy's own
//! certificate. The next certificate of the agent has the agent's key and subject, so the proxy checks both.

use identity::Subject;
use rustls_pki_types::UnixTime;

use crate::certificate::{self, Certificate, Day};
use crate::strict_pem;

/// Why a response is not the agent's next certificate.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RenewedCertificateError {
    /// The response is not a certificate, or contains more than one.
    #[error("it is not a single certificate in PEM: {0}")]
    Unreadable(String),
    /// The certificate has another subject.
    #[error("it is a certificate of {0}")]
    Subject(String),
    /// The certificate has the same subject, but another key.
    #[error("its key is not the agent's")]
    Key,
}

/// Compares a response with the certificate that is to be renewed (the DER of a verified client's certificate).
///
/// # Errors
/// The response is not one PEM certificate with the same subject and key.
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
    (renewed.spki == leaf.spki)
        .then_some(())
        .ok_or(RenewedCertificateError::Key)
}

/// Why a response must not replace a certificate of the proxy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OwnRenewalError {
    /// The response is not a certificate with the same subject.
    #[error(transparent)]
    Unrelated(RenewedCertificateError),
    /// The certificate has another key than the proxy.
    #[error("it has another key than the present certificate")]
    Key,
    /// Another CA issued the certificate, so the intermediate certificates of the file might not match it.
    #[error("it was issued by {0}, which did not issue the present certificate")]
    Issuer(String),
    /// The certificate lacks these names, which clients use.
    #[error("it is not valid for {}, as the present certificate is", .0.join(", "))]
    NamesLost(Vec<String>),
    /// Its key usage, extended key usage or basic constraints differ.
    #[error("it is not valid for the same purposes as the present certificate")]
    Purposes,
    /// Its authorization extensions differ.
    #[error("it has other authorization extensions than the present certificate")]
    Authorization,
    /// Clients would refuse the certificate, because it is not valid yet.
    #[error("it is not valid before {}, so the clock of the CA server or of this host is wrong", Day(*.0))]
    NotYetValid(UnixTime),
    /// The certificate does not expire later than the present one.
    #[error("it expires on {}, not later than the present certificate", Day(*.0))]
    ExpiresEarlier(UnixTime),
}

/// Compares a response with the proxy's certificate (DER) that is to be renewed. The caller must also verify the response with
/// the trust store, because this function does not check signatures.
///
/// # Errors
/// The response is not one PEM certificate with the same subject, key and issuer, with all names and the same purposes, that is
/// valid now and expires later.
pub fn check_own_renewal(
    present: &[u8],
    answer: &[u8],
    now: UnixTime,
) -> Result<(), OwnRenewalError> {
    check_renewed_certificate(present, answer).map_err(|error| match error {
        RenewedCertificateError::Key => OwnRenewalError::Key,
        other => OwnRenewalError::Unrelated(other),
    })?;
    let unreadable =
        |why: String| OwnRenewalError::Unrelated(RenewedCertificateError::Unreadable(why));
    let der = strict_pem::only_block(answer, "CERTIFICATE").map_err(unreadable)?;
    let read = |der| Certificate::read(der).map_err(|error| unreadable(error.to_string()));
    let (renewed, old) = (read(&der)?, read(present)?);
    if !Subject::is_same(renewed.issuer, old.issuer) {
        let issuer = certificate::Subject(renewed.issuer).to_string();
        return Err(OwnRenewalError::Issuer(issuer));
    }
    let lost = names_lost(present, &der);
    if !lost.is_empty() {
        return Err(OwnRenewalError::NamesLost(lost));
    }
    let purposes = |of: &Certificate<'_>| {
        let found = of.extensions;
        (
            found.key_usage,
            found.extended_key_usage.map(<[u8]>::to_vec),
            found.is_ca.unwrap_or(false),
        )
    };
    if purposes(&renewed) != purposes(&old) {
        return Err(OwnRenewalError::Purposes);
    }
    let rights = identity::authorization_extensions;
    if rights(&der) != rights(present) {
        return Err(OwnRenewalError::Authorization);
    }
    if renewed.not_before > now {
        return Err(OwnRenewalError::NotYetValid(renewed.not_before));
    }
    (renewed.not_after > old.not_after && renewed.not_after > now)
        .then_some(())
        .ok_or(OwnRenewalError::ExpiresEarlier(renewed.not_after))
}

/// The names in the subjectAltName of the present certificate that the renewed one lacks.
fn names_lost(present: &[u8], renewed: &[u8]) -> Vec<String> {
    let renewed = certificate::names(renewed);
    let is_kept = |name: &String| renewed.iter().any(|kept| kept.eq_ignore_ascii_case(name));
    let mut names = certificate::names(present);
    names.retain(|name| !is_kept(name));
    names
}
