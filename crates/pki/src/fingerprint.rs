//! SHA-256 digests: of bundles, CRLs and issuers, and the fingerprints of certificates.

use std::fmt;

use aws_lc_rs::digest;

/// A SHA-256 digest that identifies its input.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Fingerprint([u8; 32]);

impl Fingerprint {
    /// Digest of parts. Each part is preceded by its length, so that no two sequences of parts result in the same input.
    pub fn of<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> Self {
        let mut context = digest::Context::new(&digest::SHA256);
        for part in parts {
            context.update(&(part.len() as u64).to_be_bytes());
            context.update(part);
        }
        let mut bytes = [0; 32];
        bytes.copy_from_slice(context.finish().as_ref());
        Self(bytes)
    }

    /// A digest that was stored.
    pub(crate) fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// The 32 bytes.
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// The bytes that hexadecimal digits encode; none if the text has other characters.
pub(crate) fn bytes_of_hex(hex: &str) -> Option<Vec<u8>> {
    let digits: Option<Vec<u32>> = hex.chars().map(|digit| digit.to_digit(16)).collect();
    let digits = digits.filter(|digits| digits.len() % 2 == 0)?;
    let pairs = digits.chunks_exact(2);
    Some(pairs.map(|pair| (pair[0] << 4 | pair[1]) as u8).collect())
}

/// SHA-256 of a certificate's DER, as `openssl x509 -fingerprint -sha256` prints it.
pub fn fingerprint_of(der: &[u8]) -> [u8; 32] {
    let mut bytes = [0; 32];
    bytes.copy_from_slice(digest::digest(&digest::SHA256, der).as_ref());
    bytes
}
