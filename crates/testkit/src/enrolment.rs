//! An agent's side of enrolment, and the facts that a CA reads from a signing request: name, key, and proof of
//! possession.

use std::fmt;

use rcgen::{
    CertificateParams, DnType, KeyPair, PKCS_ECDSA_P256_SHA256, PKCS_RSA_SHA256, PublicKeyData,
    SignatureAlgorithm,
};
use rustls_pki_types::{CertificateSigningRequestDer, pem::PemObject};
use x509_parser::{
    certification_request::X509CertificationRequest,
    oid_registry::{OID_KEY_TYPE_EC_PUBLIC_KEY, OID_PKCS1_RSAENCRYPTION},
    prelude::FromDer,
};

use crate::{
    ca::{TestCredential, pem_blocks},
    crypto::provider,
};

/// An agent with a key and a signing request, which waits for a certificate.
pub struct Enrolment {
    certname: String,
    key: KeyPair,
    request_pem: String,
}

impl Enrolment {
    /// Creates a key and its signing request.
    ///
    /// # Panics
    /// The name cannot appear in a certificate.
    pub fn new(certname: &str) -> Self {
        let key = KeyPair::generate().expect("P-256 keys can be made");
        let mut params = CertificateParams::default();
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, certname);
        let request = params
            .serialize_request(&key)
            .expect("own parameters can be signed");
        Self {
            certname: certname.to_owned(),
            key,
            request_pem: request.pem().expect("a request can be written as PEM"),
        }
    }

    /// The signing request, in the form that `certificate_request/NAME` accepts.
    pub fn request_pem(&self) -> &str {
        &self.request_pem
    }

    /// The agent's credential, if this is a certificate for its name and key.
    pub fn accept(&self, certificate_pem: &str) -> Option<TestCredential> {
        let der = pem_blocks(certificate_pem, "CERTIFICATE")
            .into_iter()
            .next()?;
        let (_, certificate) = x509_parser::parse_x509_certificate(&der).ok()?;
        let name = certificate.subject().iter_common_name().next()?;
        let fits = certificate.public_key().raw == self.key.subject_public_key_info()
            && name.as_str() == Ok(&self.certname);
        let serial = certificate.serial.to_u64_digits().first().copied()?;
        fits.then(|| TestCredential {
            serial,
            ..TestCredential::from_pem(&self.certname, certificate_pem, &self.key.serialize_pem())
        })
    }
}

/// A signing request whose signature matches its key.
pub(crate) struct SigningRequest {
    pub(crate) certname: String,
    pub(crate) key: RequestedKey,
}

/// Why a CA does not sign a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestError {
    /// There is no request for that name.
    Missing,
    /// The text is not the PEM of a signing request.
    Unreadable,
    /// The subject has no common name.
    Nameless,
    /// The key is neither RSA nor on P-256.
    KeyKind,
    /// The signature was not made with the key of the request.
    Signature,
}

impl fmt::Display for RequestError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Missing => "there is no such signing request",
            Self::Unreadable => "not a signing request in PEM",
            Self::Nameless => "a signing request without a common name",
            Self::KeyKind => "a signing request whose key is neither RSA nor on P-256",
            Self::Signature => "a signing request that was not signed with its own key",
        })
    }
}

impl std::error::Error for RequestError {}

impl SigningRequest {
    pub(crate) fn parse(pem: &[u8]) -> Result<Self, RequestError> {
        let der = CertificateSigningRequestDer::from_pem_slice(pem)
            .map_err(|_| RequestError::Unreadable)?;
        let (_, request) =
            X509CertificationRequest::from_der(&der).map_err(|_| RequestError::Unreadable)?;
        let info = &request.certification_request_info;
        let name = info.subject.iter_common_name().next();
        let certname = name
            .and_then(|name| name.as_str().ok())
            .ok_or(RequestError::Nameless)?
            .to_owned();
        let key = RequestedKey::of(&info.subject_pki)?;
        key.verify(info.raw, &request.signature_value.data)
            .then_some(Self { certname, key })
            .ok_or(RequestError::Signature)
    }
}

/// A public key whose private key only the requester has.
pub(crate) struct RequestedKey {
    bytes: Vec<u8>,
    algorithm: &'static SignatureAlgorithm,
}

impl RequestedKey {
    /// The key of a certificate.
    pub(crate) fn of(
        info: &x509_parser::x509::SubjectPublicKeyInfo<'_>,
    ) -> Result<Self, RequestError> {
        Ok(Self {
            bytes: info.subject_public_key.data.to_vec(),
            algorithm: key_algorithm(info).ok_or(RequestError::KeyKind)?,
        })
    }

    fn verify(&self, message: &[u8], signature: &[u8]) -> bool {
        // An algorithm for another kind of key fails as a wrong signature does, so all can be tried.
        let algorithms = provider().signature_verification_algorithms;
        let mut all = algorithms.all.iter();
        all.any(|algorithm| {
            algorithm
                .verify_signature(&self.bytes, message, signature)
                .is_ok()
        })
    }
}

impl PublicKeyData for RequestedKey {
    fn der_bytes(&self) -> &[u8] {
        &self.bytes
    }

    fn algorithm(&self) -> &'static SignatureAlgorithm {
        self.algorithm
    }
}

fn key_algorithm(
    key: &x509_parser::x509::SubjectPublicKeyInfo<'_>,
) -> Option<&'static SignatureAlgorithm> {
    let kind = &key.algorithm.algorithm;
    // An uncompressed point on P-256 has 65 bytes; points on other curves have a different length.
    if *kind == OID_KEY_TYPE_EC_PUBLIC_KEY && key.subject_public_key.data.len() == 65 {
        Some(&PKCS_ECDSA_P256_SHA256)
    } else if *kind == OID_PKCS1_RSAENCRYPTION {
        Some(&PKCS_RSA_SHA256)
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use base64::{Engine as _, engine::general_purpose::STANDARD};

    use super::*;
    use crate::ca::Ca;

    #[test]
    fn a_signed_request_is_a_certificate_over_the_agents_own_key() {
        let ca = Ca::new();
        let enrolment = Enrolment::new("web01");
        let signed = ca
            .sign(enrolment.request_pem().as_bytes())
            .expect("it signs");
        let credential = enrolment.accept(&signed.cert_pem).expect("it is ours");
        assert_eq!(credential.serial, signed.serial);
        assert!(Enrolment::new("web01").accept(&signed.cert_pem).is_none());
    }

    #[test]
    fn a_request_signed_with_another_key_is_refused() {
        let pem = Enrolment::new("web01").request_pem().to_owned();
        let mut der = CertificateSigningRequestDer::from_pem_slice(pem.as_bytes())
            .expect("a request of ours parses")
            .to_vec();
        // The changed byte is within the name. The request still parses, but the signature does not match.
        let at = der
            .windows(5)
            .position(|bytes| bytes == b"web01")
            .expect("the name is there");
        der[at] = b'X';
        let base64 = STANDARD.encode(&der);
        let forged = format!(
            "-----BEGIN CERTIFICATE REQUEST-----\n{base64}\n-----END CERTIFICATE REQUEST-----\n"
        );
        assert_eq!(
            SigningRequest::parse(forged.as_bytes()).err(),
            Some(RequestError::Signature)
        );
        assert_eq!(
            SigningRequest::parse(b"CSR").err(),
            Some(RequestError::Unreadable)
        );
    }
}
