//! The revoked serials of one issuer that a stored CRL does not list, as text that the proxy stores and reads again at a start.
//!
//! They come from earlier CRLs, whose signatures were verified then. The text has a digest against damage, but no signature. An
//! account that can write the text can only revoke more certificates with it, or delete it like any other file of the state
//! directory.

use crate::crl::SerialSet;
use crate::fingerprint::Fingerprint;

/// Revoked serials of one issuer.
#[derive(Debug, Default)]
pub struct RetainedSerials(pub(crate) SerialSet);

/// The text is not what the proxy wrote.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("its content has changed since the proxy wrote it")]
pub struct RetainedSerialsError;

impl RetainedSerials {
    /// Whether there are no serials.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.len() == 0
    }

    /// Digest of the serials.
    #[must_use]
    pub fn fingerprint(&self) -> Fingerprint {
        Fingerprint::of(self.0.iter())
    }

    /// The text: a line with the digest, then one hexadecimal serial on each line.
    #[must_use]
    pub fn text(&self) -> String {
        let mut text = String::with_capacity(HEADER.len() + 66 + 2 * self.0.bytes() + self.0.len());
        text.push_str(&format!("{HEADER}{}\n", self.fingerprint()));
        for serial in self.0.iter() {
            serial
                .iter()
                .for_each(|byte| text.push_str(&format!("{byte:02x}")));
            text.push('\n');
        }
        text
    }

    /// Parses a text in this format.
    ///
    /// # Errors
    /// The text has changed since the proxy wrote it.
    pub fn read(text: &[u8]) -> Result<Self, RetainedSerialsError> {
        let text = std::str::from_utf8(text).map_err(|_| RetainedSerialsError)?;
        let text = text.strip_prefix(HEADER).ok_or(RetainedSerialsError)?;
        let mut lines = text.lines();
        let digest = lines.next().ok_or(RetainedSerialsError)?;
        let serials: Option<Vec<Vec<u8>>> = lines.map(crate::fingerprint::bytes_of_hex).collect();
        let serials = serials.ok_or(RetainedSerialsError)?;
        if serials.iter().any(Vec::is_empty) {
            return Err(RetainedSerialsError);
        }
        let read = Self(SerialSet::new(serials.iter().map(Vec::as_slice).collect()));
        if read.fingerprint().to_string() == digest {
            Ok(read)
        } else {
            Err(RetainedSerialsError)
        }
    }
}

const HEADER: &str = "# Revoked serials that the stored CRL of this issuer does not list. Delete nothing here; see proscenium crl accept.\nsha256 ";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_read_as_it_was_written_and_refused_if_it_was_changed() {
        let serials: [&[u8]; 3] = [&[5], &[1, 0], &[0x7f; 20]];
        for count in 0..=serials.len() {
            let set = RetainedSerials(SerialSet::new(serials[..count].to_vec()));
            let text = set.text();
            let read = RetainedSerials::read(text.as_bytes()).expect("its own text");
            assert_eq!(read.fingerprint(), set.fingerprint());
            assert_eq!((read.0.len(), read.is_empty()), (count, count == 0));
            for changed in [
                text.replacen('5', "6", 1),
                text.replace("7f", "7e"),
                text[1..].to_owned(),
                format!("{text}05\n00"),
                format!("{text}\n"),
                format!("{text}zz\n"),
                format!("{text}0\n"),
            ] {
                let outcome = RetainedSerials::read(changed.as_bytes());
                assert!(changed == text || outcome.is_err(), "{changed}");
            }
        }
        assert!(RetainedSerials::read(&[0xff]).is_err());
        assert!(RetainedSerials::read(b"").is_err());
    }
}
