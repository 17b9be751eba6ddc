//! Verifies signatures of CRLs, CA certificates, certificate requests and handshakes with a bare public key.

use rustls::crypto::WebPkiSupportedAlgorithms;
use rustls::{SignatureScheme, crypto};
use rustls_pki_types::{SignatureVerificationAlgorithm, SubjectPublicKeyInfoDer};
use webpki::RawPublicKeyEntity;

use crate::certificate::Signed;
use crate::key::{self, KeyKind};

/// Why a signature is not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SignatureFault {
    /// The signature was not made with this key.
    Wrong,
    /// The algorithm, or the key's kind or size, is not supported, so the signature is unverified.
    Unsupported,
}

/// Every algorithm that certificates, CRLs and handshakes may use.
pub(crate) fn algorithms() -> WebPkiSupportedAlgorithms {
    crypto::aws_lc_rs::default_provider().signature_verification_algorithms
}

/// Verifies a certificate's or CRL's signature with the key of its alleged issuer.
///
/// # Errors
/// The signature was not made with this key, or its algorithm is not supported.
pub(crate) fn check_signed(
    signed: Signed<'_>,
    spki: &SubjectPublicKeyInfoDer<'_>,
) -> Result<(), SignatureFault> {
    // aws-lc reports a signature by a key of an unsupported size as wrong.
    if !is_verifiable(spki) {
        return Err(SignatureFault::Unsupported);
    }
    check_signed_by(signed, spki, algorithms().all)
}

/// Verifies a certificate's or CRL's signature with the given algorithms.
///
/// # Errors
/// The same as for [`check_signed`].
pub(crate) fn check_signed_by(
    signed: Signed<'_>,
    spki: &SubjectPublicKeyInfoDer<'_>,
    algorithms: &[&dyn SignatureVerificationAlgorithm],
) -> Result<(), SignatureFault> {
    let key = RawPublicKeyEntity::try_from(spki).map_err(|_| SignatureFault::Unsupported)?;
    let mut fault = SignatureFault::Unsupported;
    for algorithm in algorithms {
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

/// Verifies the signature with which a TLS 1.2 peer proves that it holds the key.
///
/// A TLS 1.2 scheme names a hash and a kind of key, but not the curve, so each matching algorithm is tried.
///
/// # Errors
/// The same as for [`check_signed`].
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

/// Whether an algorithm exists for this key. If not, no client can prove that it holds the key.
///
/// This is checked before the signature arrives, because the failure would look like a forged signature.
pub(crate) fn is_verifiable(spki: &[u8]) -> bool {
    let Some((algorithm, _)) = key::parts(spki) else {
        return false;
    };
    let known = algorithms()
        .all
        .iter()
        .any(|known| known.public_key_alg_id().as_ref() == algorithm);
    known
        && match KeyKind::of(spki) {
            KeyKind::Rsa(bits) => RSA_BITS.contains(&bits),
            _ => true,
        }
}

/// The RSA key sizes that aws-lc verifies.
const RSA_BITS: std::ops::RangeInclusive<usize> = 2048..=8192;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::der;
    use crate::key::RSA_ENCRYPTION;

    /// An RSA key whose modulus has this many bytes, all 0xc1.
    fn rsa(modulus_bytes: u16) -> Vec<u8> {
        let wrap = |tag: u8, content: &[u8]| {
            let length = u16::try_from(content.len()).expect("short").to_be_bytes();
            [&[tag, 0x82][..], &length, content].concat()
        };
        let modulus = [&[0][..], &vec![0xc1; usize::from(modulus_bytes)]].concat();
        let key = wrap(
            der::SEQUENCE,
            &[wrap(der::INTEGER, &modulus), vec![2, 3, 1, 0, 1]].concat(),
        );
        let algorithm = [&[0x30, 13][..], RSA_ENCRYPTION, &[5, 0]].concat();
        let bits = wrap(der::BIT_STRING, &[&[0][..], &key].concat());
        wrap(der::SEQUENCE, &[algorithm, bits].concat())
    }

    #[test]
    fn rsa_keys_are_verifiable_from_2048_to_8192_bits() {
        for (bytes, expected) in [
            (255, false),
            (256, true),
            (512, true),
            (1024, true),
            (1025, false),
        ] {
            assert_eq!(is_verifiable(&rsa(bytes)), expected, "{bytes} bytes");
        }
    }

    #[test]
    fn malformed_keys_are_not_verifiable() {
        for bytes in [&[][..], &[0x30, 0], &[0x30, 2, 0x30, 0], &rsa(256)[..100]] {
            assert!(!is_verifiable(bytes));
        }
    }
}
