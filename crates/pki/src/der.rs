//! A small DER parser for CRLs, certificates and certificate requests: tag, length, value and a few value types.
//!
//! CRLs need their own parser, because a parser that creates an object for each entry needs 28 times the memory
//! (docs/decisions/crl-index.md). Certificates and requests need it because x509-parser is more tolerant. It also accepts
//! version 4, times without seconds or with an offset, booleans other than 00 and FF, and damaged basic constraints, and
//! ignores the rest of a name after a part that it cannot parse. It does not return the DER of the signature algorithm, which
//! the proxy compares with webpki's identifiers.
//! webpki cannot be used here, because a refusal must also describe certificates that webpki rejects (X.509 v1, unknown
//! critical extensions).
//! This parser makes no trust decisions: webpki verifies signatures and paths.

use rustls_pki_types::UnixTime;
use time::{Date, Month};

/// Universal tags used here.
pub(crate) const BOOLEAN: u8 = 0x01;
pub(crate) const INTEGER: u8 = 0x02;
pub(crate) const BIT_STRING: u8 = 0x03;
pub(crate) const OCTET_STRING: u8 = 0x04;
pub(crate) const OID: u8 = 0x06;
pub(crate) const UTC_TIME: u8 = 0x17;
pub(crate) const GENERALIZED_TIME: u8 = 0x18;
pub(crate) const SEQUENCE: u8 = 0x30;

/// The tag of `[number] EXPLICIT`.
pub(crate) const fn explicit(number: u8) -> u8 {
    0xa0 | number
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum DerError {
    /// There are fewer bytes than the length says.
    #[error("bad DER: it ends too early")]
    Truncated,
    /// There are bytes after the end of the element.
    #[error("bad DER: bytes after its end")]
    Trailing,
    /// An unexpected tag.
    #[error("bad DER: tag 0x{found:02x} where 0x{expected:02x} is needed")]
    Tag {
        /// The expected tag.
        expected: u8,
        /// The actual tag.
        found: u8,
    },
    /// A length that is indefinite, not in the shortest form, or over four bytes.
    #[error("bad DER: length")]
    Length,
    /// An invalid time.
    #[error("bad DER: time")]
    Time,
    /// An invalid boolean, integer or bit string.
    #[error("bad DER: value")]
    Value,
}

/// One element: tag, value and both together.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Element<'a> {
    /// The tag. Certificates have only tags of one byte.
    pub(crate) tag: u8,
    /// The content bytes.
    pub(crate) value: &'a [u8],
    /// Tag, length and content.
    pub(crate) whole: &'a [u8],
}

/// Reads elements from the start of a slice.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    /// Starts at the first byte.
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    /// The next element with any tag.
    pub(crate) fn any(&mut self) -> Result<Element<'a>, DerError> {
        let [tag, first, after @ ..] = self.rest else {
            return Err(DerError::Truncated);
        };
        // A tag number above 30 needs more bytes. Certificates and CRLs have none.
        if tag & 0x1f == 0x1f {
            return Err(DerError::Value);
        }
        let (length, body) = length(*first, after)?;
        let value = body.get(..length).ok_or(DerError::Truncated)?;
        let end = self.rest.len() - (body.len() - length);
        let whole = &self.rest[..end];
        self.rest = &self.rest[end..];
        Ok(Element {
            tag: *tag,
            value,
            whole,
        })
    }

    /// The next element, which must have this tag.
    pub(crate) fn expect(&mut self, tag: u8) -> Result<Element<'a>, DerError> {
        let element = self.any()?;
        if element.tag == tag {
            Ok(element)
        } else {
            Err(DerError::Tag {
                expected: tag,
                found: element.tag,
            })
        }
    }

    /// The next element if it has this tag; otherwise reads nothing.
    pub(crate) fn optional(&mut self, tag: u8) -> Result<Option<Element<'a>>, DerError> {
        match self.peek() {
            Some(found) if found == tag => self.any().map(Some),
            _ => Ok(None),
        }
    }

    /// The next tag.
    pub(crate) fn peek(&self) -> Option<u8> {
        self.rest.first().copied()
    }

    /// Whether no bytes are left.
    pub(crate) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// Checks that no bytes are left.
    pub(crate) fn end(self) -> Result<(), DerError> {
        self.is_empty().then_some(()).ok_or(DerError::Trailing)
    }
}

/// A UTCTime or GeneralizedTime in the only form that RFC 5280 allows: with seconds and `Z`.
///
/// A time before 1970 becomes 1970. The validity of a certificate may start that early, but no clock is set to such a time.
pub(crate) fn time(element: Element<'_>) -> Result<UnixTime, DerError> {
    let digits = match (element.tag, element.value) {
        (UTC_TIME, [digits @ .., b'Z']) if digits.len() == 12 => digits,
        (GENERALIZED_TIME, [digits @ .., b'Z']) if digits.len() == 14 => digits,
        _ => return Err(DerError::Time),
    };
    let (year, rest) = match element.tag {
        // RFC 5280 §4.1.2.5.1: two digits mean 1950 to 2049.
        UTC_TIME => match number(&digits[..2])? {
            year @ 50.. => (1900 + i32::from(year), &digits[2..]),
            year => (2000 + i32::from(year), &digits[2..]),
        },
        _ => {
            let (century, year) = (number(&digits[..2])?, number(&digits[2..4])?);
            (i32::from(century) * 100 + i32::from(year), &digits[4..])
        }
    };
    let mut parts = [0; 5];
    for (part, digits) in parts.iter_mut().zip(rest.chunks(2)) {
        *part = number(digits)?;
    }
    let seconds = unix_seconds(year, parts).ok_or(DerError::Time)?;
    Ok(UnixTime::since_unix_epoch(std::time::Duration::from_secs(
        u64::try_from(seconds).unwrap_or(0),
    )))
}

/// An INTEGER's content in its shortest form, so that equal numbers are equal bytes.
///
/// DER requires the shortest form, but some CAs do not use it. A certificate must count as revoked if its serial is `00 05` and
/// the CRL lists `05`.
pub(crate) fn shortest(mut integer: &[u8]) -> &[u8] {
    while let [first, second, ..] = integer {
        let padding = matches!((first, second & 0x80), (0x00, 0x00) | (0xff, 0x80));
        if !padding {
            break;
        }
        integer = &integer[1..];
    }
    integer
}

/// The value of a BOOLEAN's content.
pub(crate) fn boolean(value: &[u8]) -> Result<bool, DerError> {
    match value {
        [0x00] => Ok(false),
        [0xff] => Ok(true),
        _ => Err(DerError::Value),
    }
}

/// The bytes of a BIT STRING, which must not have unused bits.
pub(crate) fn whole_bits(value: &[u8]) -> Result<&[u8], DerError> {
    match value {
        [0, bits @ ..] => Ok(bits),
        _ => Err(DerError::Value),
    }
}

fn length(first: u8, after: &[u8]) -> Result<(usize, &[u8]), DerError> {
    if first < 0x80 {
        return Ok((usize::from(first), after));
    }
    let size = usize::from(first & 0x7f);
    if !(1..=LENGTH_BYTES_MAX).contains(&size) {
        return Err(DerError::Length);
    }
    let (bytes, body) = after.split_at_checked(size).ok_or(DerError::Truncated)?;
    let length = bytes
        .iter()
        .fold(0_usize, |length, byte| (length << 8) | usize::from(*byte));
    // Only the shortest form is accepted, because two encodings of one certificate would have two fingerprints.
    if bytes[0] == 0 || length < 0x80 {
        return Err(DerError::Length);
    }
    Ok((length, body))
}

/// The OIDs in the content of a sequence.
pub(crate) fn oids(list: &[u8]) -> Result<Vec<&[u8]>, DerError> {
    let mut list = Reader::new(list);
    let mut oids = Vec::new();
    while !list.is_empty() {
        oids.push(list.expect(OID)?.value);
    }
    Ok(oids)
}

/// A number of two digits.
fn number(digits: &[u8]) -> Result<u8, DerError> {
    match digits {
        [tens @ b'0'..=b'9', ones @ b'0'..=b'9'] => Ok((tens - b'0') * 10 + (ones - b'0')),
        _ => Err(DerError::Time),
    }
}

fn unix_seconds(year: i32, [month, day, hour, minute, second]: [u8; 5]) -> Option<i64> {
    let date = Date::from_calendar_date(year, Month::try_from(month).ok()?, day).ok()?;
    let time = date.with_hms(hour, minute, second).ok()?;
    Some(time.assume_utc().unix_timestamp())
}

/// Four length bytes allow 4 GiB, more than any CRL needs.
const LENGTH_BYTES_MAX: usize = 4;

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(tag: u8, text: &str) -> Result<u64, DerError> {
        time(Element {
            tag,
            value: text.as_bytes(),
            whole: &[],
        })
        .map(|time| time.as_secs())
    }

    #[test]
    fn times_are_read_as_rfc_5280_says() {
        for (tag, text, expected) in [
            (UTC_TIME, "700101000000Z", 0),
            (UTC_TIME, "491231235959Z", 2_524_607_999),
            (UTC_TIME, "500101000000Z", 0),
            (GENERALIZED_TIME, "20240229120000Z", 1_709_208_000),
            (GENERALIZED_TIME, "20500101000000Z", 2_524_608_000),
            (GENERALIZED_TIME, "99991231235959Z", 253_402_300_799),
            (GENERALIZED_TIME, "00000101000000Z", 0),
        ] {
            assert_eq!(seconds(tag, text), Ok(expected), "{text}");
        }
    }

    #[test]
    fn invalid_times_are_refused() {
        for (tag, text) in [
            (UTC_TIME, "7001010000Z"),
            (UTC_TIME, "700101000000+0000"),
            (UTC_TIME, "20240101000000Z"),
            (GENERALIZED_TIME, "20240230000000Z"),
            (GENERALIZED_TIME, "20230229000000Z"),
            (GENERALIZED_TIME, "20240101000000.5Z"),
            (GENERALIZED_TIME, "20240101240000Z"),
            (GENERALIZED_TIME, "2024a101000000Z"),
            (GENERALIZED_TIME, ""),
            (INTEGER, "20240101000000Z"),
        ] {
            assert_eq!(seconds(tag, text), Err(DerError::Time), "{text}");
        }
    }

    #[test]
    fn equal_integers_become_equal_bytes() {
        for (long, short) in [
            (&[0, 5][..], &[5][..]),
            (&[0, 0, 0x80], &[0, 0x80]),
            (&[0xff, 0x80], &[0x80]),
            (&[0xff, 0x7f], &[0xff, 0x7f]),
            (&[0], &[0]),
            (&[0, 0], &[0]),
            (&[], &[]),
        ] {
            assert_eq!(shortest(long), short, "{long:?}");
        }
    }

    #[test]
    fn wrong_lengths_are_refused() {
        for bytes in [
            &[0x30][..],
            &[0x30, 0x80, 0, 0],
            &[0x30, 0x81, 0x05, 0, 0, 0, 0, 0],
            &[0x30, 0x82, 0x00, 0x81],
            &[0x30, 0x85, 1, 1, 1, 1, 1],
            &[0x30, 0x84, 0xff, 0xff, 0xff, 0xff],
            &[0x30, 0x02, 0x00],
            &[0x1f, 0x81, 0x00],
        ] {
            assert!(Reader::new(bytes).any().is_err(), "{bytes:02x?}");
        }
    }
}
