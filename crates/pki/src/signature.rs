//! Checking a signature against a bare public key: CRLs, CA certificates, and the handshake's proof of possession.

use rustls::crypto::WebPkiSupportedAlgorithms;
use rustls::{SignatureScheme, crypto};
use rustls_pki_types::SubjectPublicKeyInfoDer;
use webpki::RawPublicKeyEntity;

use crate::certificate::Signed;

/// How a signature fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SignatureFault {
    /// The key did not make it.
    Wrong,
    /// The algorithm, or the key's kind or size, is not supported: nothing is known.
    Unsupported,
}

/// Every algorithm that certificates, CRLs and handshakes may use.
pub(crate) fn algorithms() -> WebPkiSupportedAlgorithms {
    crypto::aws_lc_rs::default_provider().signature_verification_algorithms
}

/// Checks a certificate's or CRL's own signature against the key of its alleged issuer.
///
/// # Errors
/// A signature that this key did not make, or whose algorithm is not supported.
pub(crate) fn check_signed(
    signed: Signed<'_>,
    spki: &SubjectPublicKeyInfoDer<'_>,
) -> Result<(), SignatureFault> {
    let key = RawPublicKeyEntity::try_from(spki).map_err(|_| SignatureFault::Unsupported)?;
    let mut fault = SignatureFault::Unsupported;
    for algorithm in algorithms().all {
        if algorithm.signature_alg_id().as_ref() != signed.algorithm {
            continue;
        }
        match key.verify_signature(*algorithm, signed.message, signed.signature) {
            Ok(()) => return Ok(()),
            Err(webpki::Error::UnsupportedSignatureAlgorithmForPublicKeyContext(_)) => {}
            Err(_) => fault = SignatureFault::Wrong,
        }
    }
    Err(fault)
}

/// Checks what a TLS 1.2 peer signed to show that it holds the key.
///
/// In TLS 1.2 a scheme names a hash and a kind of key, not the curve: each algorithm that fits is tried.
///
/// # Errors
/// As [`check_signed`].
pub(crate) fn check_tls12(
    message: &[u8],
    signature: &[u8],
    scheme: SignatureScheme,
    spki: &SubjectPublicKeyInfoDer<'_>,
) -> Result<(), SignatureFault> {
    let key = RawPublicKeyEntity::try_from(spki).map_err(|_| SignatureFault::Unsupported)?;
    let mut fault = SignatureFault::Unsupported;
    let fitting = algorithms()
        .mapping
        .iter()
        .filter(|(known, _)| *known == scheme);
    for algorithm in fitting.flat_map(|(_, algorithms)| algorithms.iter()) {
        match key.verify_signature(*algorithm, message, signature) {
            Ok(()) => return Ok(()),
            Err(webpki::Error::UnsupportedSignatureAlgorithmForPublicKeyContext(_)) => {}
            Err(_) => fault = SignatureFault::Wrong,
        }
    }
    Err(fault)
}
