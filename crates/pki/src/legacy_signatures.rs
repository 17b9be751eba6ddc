//! Signatures of another time: RSA with SHA-1, and RSA keys under 2048 bits, of those CAs alone that
//! `legacy_signatures` names.
//!
//! A name is matched in the bundle, once, and what is admitted afterwards is the key found there. So the algorithms
//! here verify nothing that another key has signed, whatever path is built with them.

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

/// The CAs that are named, and the algorithms that admit what their keys have signed.
#[derive(Debug, Default)]
pub(crate) struct LegacySignatures {
    issuers: Vec<Arc<Issuer>>,
    algorithms: Vec<OfNamedKeys>,
}

impl LegacySignatures {
    /// Finds the named CAs in a bundle, by their subjects in RFC 2253.
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
        let algorithms = KINDS.iter().map(|kind| OfNamedKeys {
            kind,
            keys: Arc::clone(&keys),
        });
        Self {
            issuers,
            algorithms: algorithms.collect(),
        }
    }

    /// Whether no CA of the bundle is named: nothing is admitted.
    pub(crate) fn is_empty(&self) -> bool {
        self.issuers.is_empty()
    }

    /// Subjects of the CAs that are named and there.
    pub(crate) fn subjects(&self) -> impl Iterator<Item = &str> {
        self.issuers.iter().map(|issuer| issuer.text.as_str())
    }

    /// Whether this issuer is one of them.
    pub(crate) fn names(&self, issuer: Fingerprint) -> bool {
        self.issuers.iter().any(|named| named.id == issuer)
    }

    /// Whether a certificate's key is too small for today, and one of them is said to have certified it. Whoever made
    /// the certificate can say so: the verdict on the chain tells.
    pub(crate) fn may_admit_key_of(&self, certificate: &Certificate<'_>) -> bool {
        let mut named = self.issuers.iter();
        is_small_rsa(certificate.spki) && named.any(|issuer| issuer.has_name(certificate.issuer))
    }

    /// What paths are built with: the algorithms of today, and before them ours.
    ///
    /// webpki takes the first whose identifier fits and looks no further; ours hand on to today's what no named key
    /// has signed.
    pub(crate) fn algorithms(&self) -> Vec<&dyn SignatureVerificationAlgorithm> {
        let ours = self.algorithms.iter();
        ours.map(|algorithm| algorithm as &dyn SignatureVerificationAlgorithm)
            .chain(signature::algorithms().all.iter().copied())
            .collect()
    }

    /// As [`signature::check_signed`], by the key of an issuer that may be a named one.
    ///
    /// # Errors
    /// As there.
    pub(crate) fn check_signed(
        &self,
        signed: Signed<'_>,
        issuer: &Issuer,
    ) -> Result<(), SignatureFault> {
        let spki = SubjectPublicKeyInfoDer::from(&*issuer.spki);
        match self.names(issuer.id) {
            true => signature::check_signed_by(signed, &spki, &self.algorithms()),
            false => signature::check_signed(signed, &spki),
        }
    }
}

/// Whether a SubjectPublicKeyInfo is of an RSA key that only named CAs may have certified.
pub(crate) fn is_small_rsa(spki: &[u8]) -> bool {
    matches!(KeyKind::of(spki), KeyKind::Rsa(bits) if SMALL_RSA_BITS.contains(&bits))
}

/// Whether what is signed needs a named issuer for its algorithm's sake.
pub(crate) fn is_sha1(signed: Signed<'_>) -> bool {
    signed.algorithm == RSA_PKCS1_SHA1.as_ref()
}

/// Checks what the holder of a small RSA key has signed in a TLS 1.2 handshake.
///
/// Of the signatures that TLS 1.3 allows, aws-lc verifies none by so small a key.
///
/// # Errors
/// A signature that this key did not make, or a scheme other than PKCS #1 with SHA-256 or SHA-512.
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

/// The schemes of a handshake, those first that small keys can be verified by: a peer picks the first that it can make.
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

/// One kind of signature, by small keys too, if the key is a named CA's; otherwise as today.
#[derive(Debug)]
struct OfNamedKeys {
    kind: &'static Kind,
    keys: Arc<Keys>,
}

/// Keys without their algorithm.
type Keys = HashSet<Box<[u8]>, RandomState>;

impl SignatureVerificationAlgorithm for OfNamedKeys {
    fn verify_signature(
        &self,
        public_key: &[u8],
        message: &[u8],
        signature: &[u8],
    ) -> Result<(), InvalidSignature> {
        if !self.keys.contains(public_key) {
            let today = self.kind.today.ok_or(InvalidSignature)?;
            return today.verify_signature(public_key, message, signature);
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

/// A signature's identifier, what verifies it by keys from 1024 bits, and what verifies it today.
#[derive(Debug)]
struct Kind {
    signature: AlgorithmIdentifier,
    legacy: &'static RsaParameters,
    today: Option<&'static dyn SignatureVerificationAlgorithm>,
}

static KINDS: [Kind; 3] = [
    Kind {
        signature: RSA_PKCS1_SHA1,
        legacy: &aws_lc::RSA_PKCS1_1024_8192_SHA1_FOR_LEGACY_USE_ONLY,
        today: None,
    },
    Kind {
        signature: alg_id::RSA_PKCS1_SHA256,
        legacy: &aws_lc::RSA_PKCS1_1024_8192_SHA256_FOR_LEGACY_USE_ONLY,
        today: Some(webpki::aws_lc_rs::RSA_PKCS1_2048_8192_SHA256),
    },
    Kind {
        signature: alg_id::RSA_PKCS1_SHA512,
        legacy: &aws_lc::RSA_PKCS1_1024_8192_SHA512_FOR_LEGACY_USE_ONLY,
        today: Some(webpki::aws_lc_rs::RSA_PKCS1_2048_8192_SHA512),
    },
];

/// sha1WithRSAEncryption, 1.2.840.113549.1.1.5, with its NULL.
const RSA_PKCS1_SHA1: AlgorithmIdentifier = AlgorithmIdentifier::from_slice(&[
    0x06, 0x09, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x05, 0x05, 0x00,
]);

/// Sizes that aws-lc verifies for legacy use alone; nothing under them is verified at all.
const SMALL_RSA_BITS: RangeInclusive<usize> = 1024..=2047;
