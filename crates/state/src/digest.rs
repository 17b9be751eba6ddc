//! Short digests, by which the proxies of a fleet compare what they have.

use pki::Fingerprint;

/// Digits of a digest.
const DIGITS: usize = 16;

/// A short digest. Equal digests mean equal content.
pub fn digest<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> String {
    let mut digest = Fingerprint::of(parts).to_string();
    digest.truncate(DIGITS);
    digest
}
