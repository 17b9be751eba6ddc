//! The deny list: certificates that the operator blocks, whatever the CRL of their CA says.
//!
//! It applies to full and resumed handshakes, and to open connections when it changes.

use std::collections::{HashMap, HashSet};
use std::fmt;

use foldhash::fast::RandomState;
use identity::{Agent, Certname};
use rustls_pki_types::UnixTime;

use crate::bundle::Issuer;
use crate::certificate::{SERIAL_SHOWN_MAX, Serial};
use crate::chain::{Anchor, Link, VerifiedChain};
use crate::der;

/// The certificates that a block applies to.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum BlockTarget {
    /// Every certificate with this name, from any issuer. Case is ignored, as on Puppet servers.
    Certname(Certname),
    /// The certificate from this issuer (RFC 2253) with this serial, and every certificate that it issued.
    Serial {
        /// The issuer's distinguished name.
        issuer: String,
        /// The serial.
        serial: SerialNumber,
    },
    /// The certificate with this SHA-256 of its DER, and every certificate that it issued.
    Fingerprint([u8; 32]),
}

/// A positive serial number, as in certificates.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SerialNumber(Box<[u8]>);

/// One block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Block {
    /// The certificates that it blocks.
    pub blocked: BlockTarget,
    /// The reason, for the operator.
    pub why: String,
    /// The author of the block.
    pub by: String,
    /// When it was added.
    pub since: UnixTime,
    /// The last second in which it is active; none if it is active until the operator lifts it.
    pub until: Option<UnixTime>,
}

/// All active blocks.
#[derive(Clone, Debug, Default)]
pub struct DenyList {
    blocks: Vec<Block>,
    certnames: HashMap<String, usize, RandomState>,
    serials: HashMap<(String, Box<[u8]>), usize, RandomState>,
    fingerprints: HashMap<[u8; 32], usize, RandomState>,
}

/// The text is not a serial or a fingerprint.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BlockTargetError {
    /// The text is not a hexadecimal number, or is longer than a serial.
    #[error(
        "\"{0}\" is not a serial number: write 1 to {SERIAL_BYTES_MAX} bytes in hexadecimal, as `openssl x509 -serial` prints them"
    )]
    Serial(String),
    /// The text is not 32 bytes in hexadecimal.
    #[error(
        "\"{0}\" is not a SHA-256 fingerprint: write its 32 bytes in hexadecimal, as `openssl x509 -fingerprint -sha256` prints them"
    )]
    Fingerprint(String),
}

impl DenyList {
    /// Maximum number of blocks. It limits memory and output. A site that needs more blocks needs a new CA.
    pub const BLOCKS_MAX: usize = 10_000;

    /// Indexes blocks. If two blocks have the same target, the later one applies. The caller enforces
    /// [`BLOCKS_MAX`](Self::BLOCKS_MAX).
    pub fn new(blocks: impl IntoIterator<Item = Block>) -> Self {
        let blocks: Vec<_> = blocks.into_iter().collect();
        let mut targets: HashSet<&BlockTarget, RandomState> = HashSet::default();
        let latest = blocks
            .iter()
            .rev()
            .filter(|block| targets.insert(&block.blocked));
        let mut latest: Vec<_> = latest.cloned().collect();
        latest.reverse();
        let mut list = Self {
            blocks: latest,
            ..Self::default()
        };
        for (index, block) in list.blocks.iter().enumerate() {
            match &block.blocked {
                BlockTarget::Certname(certname) => {
                    list.certnames.insert(folded(certname), index);
                }
                BlockTarget::Serial { issuer, serial } => {
                    let key = (issuer.clone(), serial.0.clone());
                    list.serials.insert(key, index);
                }
                BlockTarget::Fingerprint(fingerprint) => {
                    list.fingerprints.insert(*fingerprint, index);
                }
            }
        }
        list
    }

    /// The blocks, the oldest first.
    pub fn blocks(&self) -> &[Block] {
        &self.blocks
    }

    /// Whether there is no block.
    pub fn is_empty(&self) -> bool {
        self.blocks.is_empty()
    }

    /// The block that matches an agent by name.
    pub(crate) fn of_agent(&self, agent: &Agent, now: UnixTime) -> Option<&Block> {
        self.of_certname(agent.certname(), now)
    }

    /// The block that matches a certname.
    pub fn of_certname(&self, certname: &Certname, now: UnixTime) -> Option<&Block> {
        if self.certnames.is_empty() {
            return None;
        }
        let index = self.certnames.get(&folded(certname))?;
        Some(&self.blocks[*index]).filter(|block| block.is_active(now))
    }

    /// The block that matches the SHA-256 of a certificate's DER.
    pub(crate) fn of_fingerprint(&self, fingerprint: &[u8; 32], now: UnixTime) -> Option<&Block> {
        if self.fingerprints.is_empty() {
            return None;
        }
        let index = self.fingerprints.get(fingerprint)?;
        Some(&self.blocks[*index]).filter(|block| block.is_active(now))
    }

    /// The block that matches the issuer and serial of a certificate.
    pub(crate) fn of_serial(&self, issuer: &str, serial: &[u8], now: UnixTime) -> Option<&Block> {
        if self.serials.is_empty() {
            return None;
        }
        let index = self.serials.get(&(issuer.to_owned(), serial.into()))?;
        Some(&self.blocks[*index]).filter(|block| block.is_active(now))
    }

    /// The block that matches the agent of a chain or a certificate on it.
    pub(crate) fn of_chain(&self, chain: &VerifiedChain, now: UnixTime) -> Option<&Block> {
        if self.is_empty() {
            return None;
        }
        let by = |issuer: &Issuer, serial: Option<&[u8]>, fingerprint: &[u8; 32]| {
            let of_serial = serial.and_then(|s| self.of_serial(&issuer.text, s, now));
            of_serial.or_else(|| self.of_fingerprint(fingerprint, now))
        };
        let on_path = |link: &Link| by(&link.issuer, Some(&link.serial), &link.fingerprint);
        let Anchor {
            issuer,
            serial,
            fingerprint,
        } = &chain.anchor;
        let of_agent = self.of_agent(&chain.agent, now);
        of_agent
            .or_else(|| chain.links.iter().find_map(on_path))
            .or_else(|| by(issuer, serial.as_deref(), fingerprint))
    }

    /// When the next active block expires.
    pub fn next_end(&self, now: UnixTime) -> Option<UnixTime> {
        let ends = self.blocks.iter().filter_map(|block| block.until);
        ends.filter(|until| *until >= now).min()
    }
}

impl Block {
    /// Whether the block has not expired.
    pub fn is_active(&self, now: UnixTime) -> bool {
        self.until.is_none_or(|until| now <= until)
    }
}

impl SerialNumber {
    /// Parses hexadecimal digits, with or without `0x` and colons.
    ///
    /// # Errors
    /// The text has other characters, or more digits than a serial may have.
    pub fn parse(text: &str) -> Result<Self, BlockTargetError> {
        let wrong = || BlockTargetError::Serial(text.to_owned());
        let mut bytes = hexadecimal(text).ok_or_else(wrong)?;
        let zeros = bytes.iter().take_while(|byte| **byte == 0).count();
        if bytes.len() - zeros > SERIAL_BYTES_MAX {
            return Err(wrong());
        }
        // A sign byte makes the number positive, as the text means it.
        bytes.insert(0, 0);
        Ok(Self(der::shortest(&bytes).into()))
    }
}

impl SerialNumber {
    /// Uses the content of a certificate's serial in its shortest form.
    pub(crate) fn of_content(content: &[u8]) -> Self {
        Self(content.into())
    }

    /// The content of the DER INTEGER, in its shortest form.
    pub(crate) fn content(&self) -> &[u8] {
        &self.0
    }
}

impl BlockTarget {
    /// Parses a SHA-256 fingerprint: hexadecimal digits with or without colons, with or without the prefix `SHA256:` that
    /// Puppet writes.
    ///
    /// # Errors
    /// The text is not 32 bytes in hexadecimal.
    pub fn fingerprint(text: &str) -> Result<Self, BlockTargetError> {
        let wrong = || BlockTargetError::Fingerprint(text.to_owned());
        let digits = text.trim_start_matches("(SHA256) ");
        let digits = digits.strip_prefix("SHA256:").unwrap_or(digits);
        let bytes = hexadecimal(digits).ok_or_else(wrong)?;
        let bytes = bytes.try_into().map_err(|_| wrong())?;
        Ok(Self::Fingerprint(bytes))
    }
}

impl fmt::Display for SerialNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Serial(&self.0).fmt(f)
    }
}

impl fmt::Display for BlockTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Certname(certname) => write!(f, "certname {certname}"),
            Self::Serial { issuer, serial } => write!(f, "serial {serial} of {issuer}"),
            Self::Fingerprint(fingerprint) => {
                f.write_str("fingerprint ")?;
                fingerprint
                    .iter()
                    .try_for_each(|byte| write!(f, "{byte:02X}"))
            }
        }
    }
}

fn folded(certname: &Certname) -> String {
    certname.as_str().to_ascii_lowercase()
}

/// Bytes from hexadecimal digits. If the number of digits is odd, the first digit is a byte of its own. None if there are no
/// digits, other characters, or more digits than any value needs.
fn hexadecimal(text: &str) -> Option<Vec<u8>> {
    let digits = text.strip_prefix("0x").unwrap_or(text);
    let digits: Vec<u8> = digits.bytes().filter(|byte| *byte != b':').collect();
    if digits.is_empty() || digits.len() > 2 * DIGITS_BYTES_MAX {
        return None;
    }
    let nibble = |byte: u8| char::from(byte).to_digit(16).map(|digit| digit as u8);
    let (first, pairs) = digits.split_at(digits.len() % 2);
    let mut bytes = Vec::with_capacity(digits.len() / 2 + 1);
    for byte in first {
        bytes.push(nibble(*byte)?);
    }
    for pair in pairs.chunks_exact(2) {
        bytes.push(nibble(pair[0])? << 4 | nibble(pair[1])?);
    }
    Some(bytes)
}

/// RFC 5280 (4.1.2.2) allows 20 bytes; some CAs use a few more.
const SERIAL_BYTES_MAX: usize = SERIAL_SHOWN_MAX;
/// Maximum number of bytes that are parsed from digits.
const DIGITS_BYTES_MAX: usize = 64;

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn at(seconds: u64) -> UnixTime {
        UnixTime::since_unix_epoch(Duration::from_secs(seconds))
    }

    fn serial(text: &str) -> BlockTarget {
        BlockTarget::Serial {
            issuer: "CN=Puppet CA".to_owned(),
            serial: SerialNumber::parse(text).unwrap(),
        }
    }

    fn block(blocked: BlockTarget, until: Option<u64>) -> Block {
        Block {
            blocked,
            why: "stolen".to_owned(),
            by: "uid 0".to_owned(),
            since: at(1),
            until: until.map(at),
        }
    }

    #[test]
    fn serials_are_parsed_in_common_notations() {
        for (text, content) in [
            ("5", &[5][..]),
            ("0x05", &[5]),
            ("0005", &[5]),
            ("1A2b", &[0x1a, 0x2b]),
            ("1A:2B", &[0x1a, 0x2b]),
            ("A2b", &[0x0a, 0x2b]),
            // A serial of 0x80 has a sign byte in a certificate.
            ("80", &[0, 0x80]),
            ("00", &[0]),
        ] {
            let read = SerialNumber::parse(text).unwrap();
            assert_eq!(&*read.0, content, "{text}");
        }
        for text in [
            "",
            "0x",
            ":",
            "5g",
            "-5",
            "é",
            &"1".repeat(65),
            &"f".repeat(129),
        ] {
            assert!(SerialNumber::parse(text).is_err(), "{text}");
        }
        assert_eq!(SerialNumber::parse("0080").unwrap().to_string(), "0x80");
        let longest = SerialNumber::parse(&"f".repeat(2 * SERIAL_BYTES_MAX)).unwrap();
        let reparsed = SerialNumber::parse(&longest.to_string());
        assert_eq!(
            reparsed,
            Ok(longest),
            "the printed form is stored and parsed again"
        );
    }

    #[test]
    fn fingerprints_are_parsed_in_the_notations_of_openssl_and_puppet() {
        let plain = "ab".repeat(32);
        let colons = ["AB"; 32].join(":");
        for text in [
            plain.clone(),
            colons.clone(),
            format!("SHA256:{colons}"),
            format!("(SHA256) {colons}"),
        ] {
            let read = BlockTarget::fingerprint(&text);
            assert_eq!(read, Ok(BlockTarget::Fingerprint([0xab; 32])), "{text}");
        }
        for text in [&plain[2..], &format!("{plain}ab"), "", "SHA1:ab"] {
            assert!(BlockTarget::fingerprint(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_block_is_active_until_its_last_second() {
        let list = DenyList::new([block(serial("05"), Some(10))]);
        let met = |issuer, serial, now| list.of_serial(issuer, serial, at(now)).is_some();
        assert!(met("CN=Puppet CA", &[5][..], 10));
        assert!(!met("CN=Puppet CA", &[5][..], 11));
        assert!(!met("CN=Puppet CA", &[6][..], 10));
        assert!(!met("CN=Other CA", &[5][..], 10));
        assert_eq!(list.next_end(at(3)), Some(at(10)));
        assert_eq!(list.next_end(at(11)), None);
    }

    #[test]
    fn the_later_of_two_blocks_with_one_target_applies() {
        let list = DenyList::new([block(serial("05"), Some(10)), block(serial("0x05"), None)]);
        assert_eq!(list.blocks().len(), 1);
        assert!(list.of_serial("CN=Puppet CA", &[5], at(99)).is_some());
        assert_eq!(list.next_end(at(0)), None);
    }
}
