//! Reads the fields of a certificate tolerantly, including X.509 v1, unknown critical extensions and unusual purposes,
//! so that a refusal can describe the certificate. The content is not trusted until webpki has verified it.

use std::fmt;

use rustls_pki_types::{SubjectPublicKeyInfoDer, UnixTime};
use time::{OffsetDateTime, PrimitiveDateTime, format_description::well_known::Rfc3339};
use x509_parser::certificate::X509Certificate;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::FromDer;

use crate::der::{self, DerError, Element, Reader};

/// A parsed certificate that borrows its bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Certificate<'a> {
    /// The version: 1, 2 or 3.
    pub(crate) version: u8,
    /// The serial's content in its shortest form.
    pub(crate) serial: &'a [u8],
    /// The issuer's Name, the whole element.
    pub(crate) issuer: &'a [u8],
    /// The subject's Name, the whole element.
    pub(crate) subject: &'a [u8],
    pub(crate) not_before: UnixTime,
    pub(crate) not_after: UnixTime,
    /// The whole SubjectPublicKeyInfo.
    pub(crate) spki: &'a [u8],
    /// Basic constraints, key usage, alternative names and name constraints.
    pub(crate) extensions: Extensions<'a>,
    /// The signed bytes, the algorithm and the signature.
    pub(crate) signed: Signed<'a>,
}

/// The extensions that the proxy uses.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Extensions<'a> {
    /// `cA` of the basic constraints; none if there is no such extension.
    pub(crate) is_ca: Option<bool>,
    /// The whole BasicConstraints; none if there is no such extension.
    pub(crate) basic_constraints: Option<&'a [u8]>,
    /// The first byte of the key usage; none if there is no such extension.
    pub(crate) key_usage: Option<u8>,
    /// The whole GeneralNames; none if there is no such extension.
    pub(crate) subject_alt_name: Option<&'a [u8]>,
    /// The whole NameConstraints; none if there is no such extension.
    pub(crate) name_constraints: Option<&'a [u8]>,
    /// The whole ExtKeyUsageSyntax; none if there is no such extension.
    pub(crate) extended_key_usage: Option<&'a [u8]>,
    /// All extensions, one after the other.
    pub(crate) all: &'a [u8],
}

impl Extensions<'_> {
    /// Whether the key may sign certificates: the key usage allows it, or there is no key usage.
    pub(crate) fn signs_certificates(self) -> bool {
        self.key_usage.is_none_or(|bits| bits & 0b0000_0100 != 0)
    }

    /// Whether the key may sign CRLs: the key usage allows it, or there is no key usage.
    pub(crate) fn signs_crls(self) -> bool {
        self.key_usage.is_none_or(|bits| bits & 0b0000_0010 != 0)
    }
}

/// `tbs || algorithm || signature`, the structure of certificates, CRLs and certificate requests.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Signed<'a> {
    /// The signed element.
    pub(crate) message: &'a [u8],
    /// The content of the AlgorithmIdentifier.
    pub(crate) algorithm: &'a [u8],
    pub(crate) signature: &'a [u8],
}

impl<'a> Certificate<'a> {
    /// Parses a certificate.
    ///
    /// # Errors
    /// The bytes are not a certificate.
    pub(crate) fn read(der: &'a [u8]) -> Result<Self, DerError> {
        let (tbs, signed) = Signed::read(der)?;
        let mut tbs = Reader::new(tbs);
        let version = match tbs.optional(der::explicit(0))? {
            None => 1,
            Some(version) => match Reader::new(version.value).expect(der::INTEGER)?.value {
                [number @ 0..=2] => number + 1,
                _ => return Err(DerError::Value),
            },
        };
        let serial = der::shortest(tbs.expect(der::INTEGER)?.value);
        let _algorithm = tbs.expect(der::SEQUENCE)?;
        let issuer = tbs.expect(der::SEQUENCE)?.whole;
        let mut validity = Reader::new(tbs.expect(der::SEQUENCE)?.value);
        let not_before = der::time(validity.any()?)?;
        let not_after = der::time(validity.any()?)?;
        validity.end()?;
        let subject = tbs.expect(der::SEQUENCE)?.whole;
        let spki = tbs.expect(der::SEQUENCE)?.whole;
        Ok(Self {
            version,
            serial,
            issuer,
            subject,
            not_before,
            not_after,
            spki,
            extensions: extensions(tbs)?,
            signed,
        })
    }

    /// The whole SubjectPublicKeyInfo as a rustls type.
    pub(crate) fn public_key(&self) -> SubjectPublicKeyInfoDer<'a> {
        SubjectPublicKeyInfoDer::from(self.spki)
    }

    /// Whether subject and issuer are equal, as in a root certificate.
    pub(crate) fn is_self_issued(&self) -> bool {
        self.subject == self.issuer
    }

    /// Subject, serial and dates in one phrase.
    pub(crate) fn describe(&self) -> String {
        format!(
            "{}, serial {}, valid {} to {}",
            Subject(self.subject),
            Serial(self.serial),
            Day(self.not_before),
            Day(self.not_after),
        )
    }
}

impl<'a> Signed<'a> {
    /// Splits a signed structure. Also returns the content of the signed element.
    pub(crate) fn read(der: &'a [u8]) -> Result<(&'a [u8], Self), DerError> {
        let mut outer = Reader::new(der);
        let whole = outer.expect(der::SEQUENCE)?;
        outer.end()?;
        let mut parts = Reader::new(whole.value);
        let message = parts.expect(der::SEQUENCE)?;
        let algorithm = parts.expect(der::SEQUENCE)?;
        let signature = der::whole_bits(parts.expect(der::BIT_STRING)?.value)?;
        parts.end()?;
        let signed = Self {
            message: message.whole,
            algorithm: algorithm.value,
            signature,
        };
        Ok((message.value, signed))
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Extension<'a> {
    /// The content of its OID.
    pub(crate) id: &'a [u8],
    pub(crate) critical: bool,
    /// The content of its OCTET STRING.
    pub(crate) value: &'a [u8],
}

impl<'a> Extension<'a> {
    /// Parses one element of a sequence of extensions.
    pub(crate) fn read(element: Element<'a>) -> Result<Self, DerError> {
        let mut parts = Reader::new(element.value);
        let id = parts.expect(der::OID)?.value;
        let critical = match parts.optional(der::BOOLEAN)? {
            Some(critical) => der::boolean(critical.value)?,
            None => false,
        };
        let value = parts.expect(der::OCTET_STRING)?.value;
        parts.end()?;
        Ok(Self {
            id,
            critical,
            value,
        })
    }
}

/// A Name in RFC 2253, for messages and for `unchecked`.
pub(crate) struct Subject<'a>(pub(crate) &'a [u8]);

impl fmt::Display for Subject<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", crate::subject_text(self.0))
    }
}

/// Displays a serial in hexadecimal, as `puppetserver ca list` prints it.
pub(crate) struct Serial<'a>(pub(crate) &'a [u8]);

impl fmt::Display for Serial<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digits = match self.0 {
            // The sign byte of a positive number is not printed.
            [0, digits @ ..] if !digits.is_empty() => digits,
            digits => digits,
        };
        write!(f, "0x")?;
        let shown = &digits[..digits.len().min(SERIAL_SHOWN_MAX)];
        for byte in shown {
            write!(f, "{byte:02X}")?;
        }
        if shown.len() == digits.len() {
            Ok(())
        } else {
            write!(f, "…")
        }
    }
}

/// Displays a UTC date and time in the format `2026-11-20T02:25:40Z`.
pub(crate) struct Day(pub(crate) UnixTime);

impl fmt::Display for Day {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = i64::try_from(self.0.as_secs()).unwrap_or(i64::MAX);
        // The last second of the year 9999 is the latest date of a certificate.
        let day = OffsetDateTime::from_unix_timestamp(seconds)
            .unwrap_or_else(|_| PrimitiveDateTime::MAX.truncate_to_second().assume_utc());
        f.write_str(&day.format(&Rfc3339).map_err(|_| fmt::Error)?)
    }
}

/// The DNS names and addresses in a certificate's subjectAltName, each of them once.
pub(crate) fn names(leaf: &[u8]) -> Vec<String> {
    let Ok((_, certificate)) = X509Certificate::from_der(leaf) else {
        return Vec::new();
    };
    let Ok(Some(extension)) = certificate.subject_alternative_name() else {
        return Vec::new();
    };
    let mut names = Vec::new();
    for name in &extension.value.general_names {
        let name = match name {
            GeneralName::DNSName(name) => (*name).to_owned(),
            GeneralName::IPAddress(bytes) => match address(bytes) {
                Some(address) => address.to_string(),
                None => continue,
            },
            _ => continue,
        };
        // Puppet's CA writes the certname twice.
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names
}

fn address(bytes: &[u8]) -> Option<std::net::IpAddr> {
    if let Ok(v4) = <[u8; 4]>::try_from(bytes) {
        return Some(v4.into());
    }
    <[u8; 16]>::try_from(bytes).ok().map(Into::into)
}

fn extensions(mut tbs: Reader<'_>) -> Result<Extensions<'_>, DerError> {
    let mut seen = Extensions::default();
    while !tbs.is_empty() {
        let field = tbs.any()?;
        // Skips the unique identifiers [1] and [2] of v2.
        if field.tag != der::explicit(3) {
            continue;
        }
        seen.all = Reader::new(field.value).expect(der::SEQUENCE)?.value;
        let mut list = Reader::new(seen.all);
        while !list.is_empty() {
            seen.remember(Extension::read(list.any()?)?)?;
        }
    }
    Ok(seen)
}

impl<'a> Extensions<'a> {
    fn remember(&mut self, extension: Extension<'a>) -> Result<(), DerError> {
        match extension.id {
            KEY_USAGE => {
                let bits = Reader::new(extension.value).expect(der::BIT_STRING)?.value;
                // The first byte is the number of unused bits. An empty key usage allows nothing.
                self.key_usage = Some(bits.get(1).copied().unwrap_or(0));
            }
            SUBJECT_ALT_NAME => self.subject_alt_name = Some(extension.value),
            NAME_CONSTRAINTS => self.name_constraints = Some(extension.value),
            EXTENDED_KEY_USAGE => self.extended_key_usage = Some(extension.value),
            BASIC_CONSTRAINTS => {
                self.basic_constraints = Some(extension.value);
                let mut parts =
                    Reader::new(Reader::new(extension.value).expect(der::SEQUENCE)?.value);
                self.is_ca = Some(match parts.optional(der::BOOLEAN)? {
                    Some(is_ca) => der::boolean(is_ca.value)?,
                    None => false,
                });
            }
            _ => {}
        }
        Ok(())
    }
}

pub(crate) const KEY_USAGE: &[u8] = &[0x55, 0x1d, 15];
pub(crate) const SUBJECT_ALT_NAME: &[u8] = &[0x55, 0x1d, 17];
pub(crate) const BASIC_CONSTRAINTS: &[u8] = &[0x55, 0x1d, 19];
pub(crate) const NAME_CONSTRAINTS: &[u8] = &[0x55, 0x1d, 30];
pub(crate) const EXTENDED_KEY_USAGE: &[u8] = &[0x55, 0x1d, 37];

/// Purposes in an extended key usage.
pub(crate) const SERVER_AUTH: &[u8] = &[0x2b, 6, 1, 5, 5, 7, 3, 1];
pub(crate) const CLIENT_AUTH: &[u8] = &[0x2b, 6, 1, 5, 5, 7, 3, 2];

/// Maximum number of bytes of a serial that are printed. A block stores the printed form, so this covers every serial that a
/// block can name.
pub(crate) const SERIAL_SHOWN_MAX: usize = 32;

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn days_are_written_as_utc() {
        for (seconds, text) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (1_709_208_000, "2024-02-29T12:00:00Z"),
            (2_524_607_999, "2049-12-31T23:59:59Z"),
            (253_402_300_799, "9999-12-31T23:59:59Z"),
            (u64::MAX, "9999-12-31T23:59:59Z"),
        ] {
            let time = UnixTime::since_unix_epoch(Duration::from_secs(seconds));
            assert_eq!(Day(time).to_string(), text);
        }
    }

    #[test]
    fn serials_are_written_in_hexadecimal_without_the_sign_byte() {
        for (bytes, text) in [
            (&[0x16][..], "0x16"),
            (&[0, 0x80], "0x80"),
            (&[0], "0x00"),
            (&[], "0x"),
        ] {
            assert_eq!(Serial(bytes).to_string(), text);
        }
    }
}
