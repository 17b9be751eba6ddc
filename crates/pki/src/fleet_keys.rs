//! The seals of records that several proxies share: HMAC-SHA-256 with keys that only the proxies have. The store can withhold a
//! record or return an old one, but it cannot forge a record.

use aws_lc_rs::{
    hmac::{self, HMAC_SHA256},
    rand,
};
use base64::{Engine as _, engine::general_purpose::STANDARD};

/// Bytes of a key.
const KEY_BYTES: usize = 32;
/// Bytes of a seal, which precedes the record.
const SEAL_BYTES: usize = 32;
/// Maximum number of keys in a file. Two are enough while a key is replaced.
const KEYS_MAX: usize = 16;
/// The prefix of all sealed bytes, so that another use of the keys cannot produce the same seal.
const PURPOSE: &[u8] = b"proscenium fleet record 1\0";

/// The keys of a fleet. The first key seals records; records that any of the keys sealed are accepted.
#[derive(Clone, Debug)]
pub struct FleetKeys(Vec<hmac::Key>);

/// The text is not a list of keys.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FleetKeysError {
    /// A line is not a key.
    #[error(
        "line {0} is not a key of {KEY_BYTES} bytes in base64; `proscenium fleet key` prints one"
    )]
    Line(usize),
    /// There is no key, or there are too many.
    #[error(
        "it has {0} keys, and must have 1 to {KEYS_MAX}, one a line; `proscenium fleet key` prints one"
    )]
    Count(usize),
}

impl FleetKeys {
    /// Reads keys, one per line. Empty lines are ignored.
    ///
    /// # Errors
    /// The text is not a list of 1 to 16 keys.
    pub fn parse(text: &str) -> Result<Self, FleetKeysError> {
        let lines = text.lines().map(str::trim).enumerate();
        let lines = lines.filter(|(_, line)| !line.is_empty());
        let keys = lines.map(|(index, line)| {
            let bytes = STANDARD.decode(line).ok();
            let bytes = bytes.filter(|bytes| bytes.len() == KEY_BYTES);
            let bytes = bytes.ok_or(FleetKeysError::Line(index + 1))?;
            Ok(hmac::Key::new(HMAC_SHA256, &bytes))
        });
        let keys = keys.collect::<Result<Vec<_>, _>>()?;
        match keys.len() {
            1..=KEYS_MAX => Ok(Self(keys)),
            count => Err(FleetKeysError::Count(count)),
        }
    }

    /// A new key, as a line of a key file.
    ///
    /// # Errors
    /// The system has no random numbers.
    pub fn generate() -> Result<String, aws_lc_rs::error::Unspecified> {
        let mut bytes = [0; KEY_BYTES];
        rand::fill(&mut bytes)?;
        Ok(STANDARD.encode(bytes))
    }

    /// The bytes with a seal that is valid only under this key of the store.
    #[must_use]
    pub fn seal(&self, key: &str, bytes: &[u8]) -> Vec<u8> {
        let mut context = hmac::Context::with_key(&self.0[0]);
        for part in sealed_parts(key, bytes) {
            context.update(part);
        }
        [context.sign().as_ref(), bytes].concat()
    }

    /// The bytes of a sealed record. `None` if no key of this fleet has sealed them for this key of the store.
    #[must_use]
    pub fn open<'s>(&self, key: &str, sealed: &'s [u8]) -> Option<&'s [u8]> {
        let (seal, bytes) = sealed.split_at_checked(SEAL_BYTES)?;
        let message = sealed_parts(key, bytes).concat();
        let is_ours = |own: &hmac::Key| hmac::verify(own, &message, seal).is_ok();
        self.0.iter().any(is_ours).then_some(bytes)
    }
}

/// The parts that are sealed. A key of the store is text without NUL, so no other key and bytes have the same parts.
fn sealed_parts<'p>(key: &'p str, bytes: &'p [u8]) -> [&'p [u8]; 4] {
    [PURPOSE, key.as_bytes(), b"\0", bytes]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(lines: &[&str]) -> FleetKeys {
        FleetKeys::parse(&lines.join("\n")).expect("keys")
    }

    #[test]
    fn a_record_is_opened_with_each_key_of_the_fleet_at_its_own_place_alone() {
        let [old, new] = [(); 2].map(|()| FleetKeys::generate().expect("random numbers"));
        let sealed = keys(&[&old]).seal("/proscenium/site/blocks/1", b"{}");
        for (reader, key, is_opened) in [
            (keys(&[&old]), "/proscenium/site/blocks/1", true),
            (keys(&[&new, "", &old]), "/proscenium/site/blocks/1", true),
            (keys(&[&new]), "/proscenium/site/blocks/1", false),
            (keys(&[&old]), "/proscenium/site/blocks/2", false),
            (keys(&[&old]), "/proscenium/other/blocks/1", false),
        ] {
            assert_eq!(
                reader.open(key, &sealed),
                is_opened.then_some(&b"{}"[..]),
                "{key}"
            );
        }
        let own = keys(&[&old]);
        for at in 0..sealed.len() {
            let mut forged = sealed.clone();
            forged[at] ^= 1;
            assert_eq!(own.open("/proscenium/site/blocks/1", &forged), None, "{at}");
            assert_eq!(
                own.open("/proscenium/site/blocks/1", &sealed[..at]),
                None,
                "{at}"
            );
        }
    }

    #[test]
    fn a_key_file_says_what_is_wrong_with_it() {
        let key = FleetKeys::generate().expect("random numbers");
        for (text, expected) in [
            (String::new(), FleetKeysError::Count(0)),
            (format!("{key}\n{key}x"), FleetKeysError::Line(2)),
            ("c2hvcnQ=".to_owned(), FleetKeysError::Line(1)),
            (vec![key.as_str(); 17].join("\n"), FleetKeysError::Count(17)),
        ] {
            assert_eq!(FleetKeys::parse(&text).err(), Some(expected), "{text}");
        }
    }
}
