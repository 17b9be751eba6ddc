//! Legacy signatures: RSA with SHA-1, and RSA keys with fewer than 2048 bits. They are accepted only for the CAs in
//! `legacy_signatures`.
//!
//! A CA is found in the bundle once by its name. From then on, only its key matters: these algorithms verify no signature by
//! another key, whatever path contains it.

use std::collections::HashSet;
use std::ops::RangeInclusive;
use std::sync::Arc;

use aws_lc_rs::signature as aws_lc;
use aws_lc_rs::signature::{RsaParameters, UnparsedPublicKey};
use foldhash::fast::RandomState;
use rustls::SignatureScheme;
use rustls_pki_types::{
    AlgorithmIdentifier, InvalidSignature, SignatureVerificationAlgorithm, SubjectPublicKeyInfoDer,
    alg_id,
};

use crate::bundle::{Bundle, Issuer};
use crate::certificate::{Certificate, Signed};
use crate::fingerprint::Fingerprint;
use crate::key::{self, KeyKind};
use crate::signature::{self, SignatureFault};

/// The named CAs, and the algorithms that accept signatures by their keys.
#[derive(Debug, Default)]
pub(crate) struct LegacySignatures {
    issuers: Vec<Arc<Issuer>>,
    algorithms: Vec<NamedKeyAlgorithm>,
}

impl LegacySignatures {
    /// Finds the named CAs in a bundle by their subjects in RFC 2253.
    pub(crate) fn of(bundle: &Bundle, named: &[String]) -> Self {
        let mut issuers: Vec<_> = bundle
            .issuers
            .values()
            .filter(|issuer| named.contains(&issuer.text))
            .cloned()
            .collect();
        if issuers.is_empty() {
            return Self::default();
        }
        issuers.sort_by(|a, b| a.text.cmp(&b.text));
        let keys = issuers
            .iter()
            .filter_map(|issuer| Some(key::parts(&issuer.spki)?.1.into()));
        let keys: Arc<Keys> = Arc::new(keys.collect());
        let algorithms = KINDS.iter().map(|kind| NamedKeyAlgorithm {
            kind,
            keys: Arc::clone(&keys),
        });
        Self {
            issuers,
            algorithms: algorithms.collect(),
        }
    }

    /// Whether no CA of the bundle is named, so that no legacy signature is accepted.
    pub(crate) fn is_empty(&self) -> bool {
        self.issuers.is_empty()
    }

    /// Subjects of the named CAs that are in the bundle.
    pub(crate) fn subjects(&self) -> impl Iterator<Item = &str> {
        self.issuers.iter().map(|issuer| issuer.text.as_str())
    }

    /// Whether this issuer is named.
    pub(crate) fn names(&self, issuer: Fingerprint) -> bool {
        self.issuers.iter().any(|named| named.id == issuer)
    }

    /// Whether a certificate's key is too small for other CAs, and its issuer name is that of a named CA. The name is
    /// unverified, so the verdict on the chain decides.
    pub(crate) fn may_admit_key_of(&self, certificate: &Certificate<'_>) -> bool {
        let mut named = self.issuers.iter();
        is_small_rsa(certificate.spki) && named.any(|issuer| issuer.has_name(certificate.issuer))
    }

    /// The algorithms for building paths: the legacy algorithms first, then the strict ones.
    ///
    /// webpki uses the first algorithm with a matching identifier. The legacy algorithms therefore pass signatures by other
    /// keys on to the strict ones.
    pub(crate) fn algorithms(&self) -> Vec<&dyn SignatureVerificationAlgorithm> {
        let legacy = self.algorithms.iter();
        legacy
            .map(|algorithm| algorithm as &dyn SignatureVerificationAlgorithm)
            .chain(signature::algorithms().all.iter().copied())
            .collect()
    }

    /// Like [`signature::check_signed`], with the key of an issuer that may be a named CA.
    ///
    /// # Errors
    /// The same as for [`signature::check_signed`].
    pub(crate) fn check_signed(
        &self,
        signed: Signed<'_>,
        issuer: &Issuer,
    ) -> Result<(), SignatureFault> {
        let spki = SubjectPublicKeyInfoDer::from(&*issuer.spki);
        if self.names(issuer.id) {
            signature::check_signed_by(signed, &spki, &self.algorithms())
        } else {
            signature::check_signed(signed, &spki)
        }
    }
}

/// Whether a SubjectPublicKeyInfo contains an RSA key that only named CAs may certify.
pub(crate) fn is_small_rsa(spki: &[u8]) -> bool {
    matches!(KeyKind::of(spki), KeyKind::Rsa(bits) if SMALL_RSA_BITS.contains(&bits))
}

/// Whether the signature algorithm requires a named issuer.
pub(crate) fn is_sha1(signed: Signed<'_>) -> bool {
    signed.algorithm == RSA_PKCS1_SHA1.as_ref()
}

/// Verifies the TLS 1.2 handshake signature of a client or member with a small RSA key.
///
/// aws-lc verifies no TLS 1.3 signatures with such a small key.
///
/// # Errors
/// The signature was not made with this key, or its scheme is not PKCS #1 with SHA-256 or SHA-512.
pub(crate) fn check_small_key(
    message: &[u8],
    signature: &[u8],
    scheme: SignatureScheme,
    spki: &[u8],
) -> Result<(), SignatureFault> {
    let parameters = match scheme {
        SignatureScheme::RSA_PKCS1_SHA256 => {
            &aws_lc::RSA_PKCS1_1024_8192_SHA256_FOR_LEGACY_USE_ONLY
        }
        SignatureScheme::RSA_PKCS1_SHA512 => {
            &aws_lc::RSA_PKCS1_1024_8192_SHA512_FOR_LEGACY_USE_ONLY
        }
        _ => return Err(SignatureFault::Unsupported),
    };
    let (_, key) = key::parts(spki).ok_or(SignatureFault::Unsupported)?;
    UnparsedPublicKey::new(parameters, key)
        .verify(message, signature)
        .map_err(|_| SignatureFault::Wrong)
}

/// The signature schemes of a handshake. Schemes that work with small keys come first, because a peer uses the first scheme
/// that it supports.
pub(crate) fn schemes(legacy: &LegacySignatures) -> Vec<SignatureScheme> {
    let mut schemes = signature::algorithms().supported_schemes();
    if !legacy.is_empty() {
        schemes.sort_by_key(|scheme| match scheme {
            SignatureScheme::RSA_PKCS1_SHA256 | SignatureScheme::RSA_PKCS1_SHA512 => 1,
            SignatureScheme::RSA_PKCS1_SHA384
            | SignatureScheme::RSA_PSS_SHA256
            | SignatureScheme::RSA_PSS_SHA384
            | SignatureScheme::RSA_PSS_SHA512 => 2,
            _ => 0,
        });
    }
    schemes
}

/// An algorithm for one kind of signature. If the key belongs to a named CA, it may be small; otherwise the strict algorithm
/// applies.
#[derive(Debug)]
struct NamedKeyAlgorithm {
    kind: &'static SignatureKind,
    keys: Arc<Keys>,
}

/// Keys without their algorithm identifiers.
type Keys = HashSet<Box<[u8]>, RandomState>;

impl SignatureVerificationAlgorithm for NamedKeyAlgorithm {
    fn verify_signature(
        &self,
        public_key: &[u8],
        message: &[u8],
        signature: &[u8],
    ) -> Result<(), InvalidSignature> {
        if !self.keys.contains(public_key) {
            let strict = self.kind.strict.ok_or(InvalidSignature)?;
            return strict.verify_signature(public_key, message, signature);
        }
        UnparsedPublicKey::new(self.kind.legacy, public_key)
            .verify(message, signature)
            .map_err(|_| InvalidSignature)
    }

    fn public_key_alg_id(&self) -> AlgorithmIdentifier {
        alg_id::RSA_ENCRYPTION
    }

    fn signature_alg_id(&self) -> AlgorithmIdentifier {
        self.kind.signature
    }
}

/// One kind of RSA signature: its algorithm identifier, the algorithm that also accepts keys from 1024 bits on, and the strict
/// algorithm. SHA-1 has no strict algorithm.
#[derive(Debug)]
struct SignatureKind {
    signature: AlgorithmIdentifier,
    legacy: &'static RsaParameters,
    strict: Option<&'static dyn SignatureVerificationAlgorithm>,
}

static KINDS: [SignatureKind; 3] = [
    SignatureKind {
        signature: RSA_PKCS1_SHA1,
        legacy: &aws_lc::RSA_PKCS1_1024_8192_SHA1_FOR_LEGACY_USE_ONLY,
        strict: None,
    },
    SignatureKind {
        signature: alg_id::RSA_PKCS1_SHA256,
        legacy: &aws_lc::RSA_PKCS1_1024_8192_SHA256_FOR_LEGACY_USE_ONLY,
        strict: Some(webpki::aws_lc_rs::RSA_PKCS1_2048_8192_SHA256),
    },
    SignatureKind {
        signature: alg_id::RSA_PKCS1_SHA512,
        legacy: &aws_lc::RSA_PKCS1_1024_8192_SHA512_FOR_LEGACY_USE_ONLY,
        strict: Some(webpki::aws_lc_rs::RSA_PKCS1_2048_8192_SHA512),
    },
];

/// sha1WithRSAEncryption, 1.2.840.113549.1.1.5, with its NULL.
const RSA_PKCS1_SHA1: AlgorithmIdentifier = AlgorithmIdentifier::from_slice(&[
    0x06, 0x09, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x05, 0x05, 0x00,
]);

/// Key sizes that aws-lc verifies only with its legacy algorithms. Smaller keys are never verified.
const SMALL_RSA_BITS: RangeInclusive<usize> = 1024..=2047;
