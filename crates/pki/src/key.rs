//! Kind and size of the key in a SubjectPublicKeyInfo, for messages and for the check of small keys.

use std::fmt;

use crate::der::{self, Reader};

/// A public key by its kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KeyKind {
    /// RSA with the modulus size in bits; zero for a malformed key.
    Rsa(usize),
    /// ECDSA with the name of the curve.
    Ecdsa(&'static str),
    Ed25519,
    Other,
}

impl KeyKind {
    /// Parses a whole SubjectPublicKeyInfo.
    pub(crate) fn of(spki: &[u8]) -> Self {
        parts(spki).map_or(Self::Other, |(algorithm, key)| match algorithm {
            _ if algorithm.starts_with(RSA_ENCRYPTION) => Self::Rsa(modulus_bits(key)),
            ED25519 => Self::Ed25519,
            _ => CURVES
                .iter()
                .find(|(_, id)| *id == algorithm)
                .map_or(Self::Other, |(name, _)| Self::Ecdsa(name)),
        })
    }
}

impl fmt::Display for KeyKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rsa(bits) => write!(f, "RSA {bits}"),
            Self::Ecdsa(curve) => write!(f, "ECDSA {curve}"),
            Self::Ed25519 => write!(f, "Ed25519"),
            Self::Other => write!(f, "a key of another kind"),
        }
    }
}

/// The content of the AlgorithmIdentifier and the key's bits.
pub(crate) fn parts(spki: &[u8]) -> Option<(&[u8], &[u8])> {
    let mut parts = Reader::new(Reader::new(spki).expect(der::SEQUENCE).ok()?.value);
    let algorithm = parts.expect(der::SEQUENCE).ok()?.value;
    let bits = der::whole_bits(parts.expect(der::BIT_STRING).ok()?.value).ok()?;
    Some((algorithm, bits))
}

fn modulus_bits(key: &[u8]) -> usize {
    let modulus = || {
        let mut parts = Reader::new(Reader::new(key).expect(der::SEQUENCE).ok()?.value);
        Some(parts.expect(der::INTEGER).ok()?.value)
    };
    let digits = match modulus().unwrap_or_default() {
        [0, digits @ ..] => digits,
        digits => digits,
    };
    let leading = digits
        .first()
        .map_or(0, |first| first.leading_zeros() as usize);
    digits.len() * 8 - leading
}

/// The OID 1.2.840.113549.1.1.1 with its tag.
pub(crate) const RSA_ENCRYPTION: &[u8] = &[
    0x06, 0x09, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x01,
];

/// The OID 1.3.101.112 with its tag.
const ED25519: &[u8] = &[0x06, 0x03, 0x2b, 0x65, 0x70];

/// id-ecPublicKey with the curve, both with their tags.
const CURVES: [(&str, &[u8]); 3] = [
    (
        "P-256",
        &[
            0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01, 0x06, 0x08, 0x2a, 0x86, 0x48,
            0xce, 0x3d, 0x03, 0x01, 0x07,
        ],
    ),
    (
        "P-384",
        &[
            0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01, 0x06, 0x05, 0x2b, 0x81, 0x04,
            0x00, 0x22,
        ],
    ),
    (
        "P-521",
        &[
            0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01, 0x06, 0x05, 0x2b, 0x81, 0x04,
            0x00, 0x23,
        ],
    ),
];
