//! A distinguished name, read from DER attribute by attribute.
//!
//! Libraries print names with incomplete escapes or none, and Puppet servers read the client's identity from the printed
//! string. This crate therefore formats names itself. `spelling` has the formats.

use x509_parser::asn1_rs::{Class, ToDer};
use x509_parser::certificate::X509Certificate;
use x509_parser::prelude::FromDer;
use x509_parser::x509::{AttributeTypeAndValue, X509Name};

use crate::oid::{dotted_oid, in_dots};
use crate::refusal::{printable, push_hex};
use crate::subject_error::SubjectError;

/// A distinguished name: its RDNs in the certificate's order, each with one or more attributes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subject {
    pub(crate) rdns: Vec<Vec<Attribute>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Attribute {
    /// The type in dotted form, even if only some readers accept it as an OID.
    pub(crate) oid: String,
    /// Whether all readers accept the type as an OID.
    pub(crate) is_oid: bool,
    /// The characters of the value, if all readers decode its string type alike.
    pub(crate) text: Option<String>,
    /// The complete encoding of the value.
    pub(crate) der: Vec<u8>,
    /// Whether every reader can decode the value, from its characters or its encoding.
    pub(crate) is_decoded: bool,
}

impl Subject {
    /// A certificate's subject, serial number and issuer for messages, in one line of printable ASCII. Never fails.
    pub fn describe(certificate_der: &[u8]) -> String {
        let Ok((_, certificate)) = X509Certificate::from_der(certificate_der) else {
            return "(unreadable certificate)".to_owned();
        };
        let text = format!(
            "\"{}\" (serial 0x{}, issued by \"{}\")",
            Self::of(certificate.subject()).shown(),
            serial(certificate.tbs_certificate.raw_serial()),
            Self::of(certificate.issuer()).shown(),
        );
        printable(&text)
    }

    /// A complete Name in DER, formatted by RFC 2253 in printable ASCII. Never fails.
    pub fn name_text(name_der: &[u8]) -> String {
        match X509Name::from_der(name_der) {
            Ok((_, name)) => printable(&Self::of(&name).shown()),
            Err(_) => "(unreadable name)".to_owned(),
        }
    }

    /// The only CN in a complete Name in DER. `None` unless there is exactly one CN, alone in its RDN.
    pub fn only_cn(name_der: &[u8]) -> Option<String> {
        let (_, name) = X509Name::from_der(name_der).ok()?;
        Self::of(&name).single_cn().ok().map(ToOwned::to_owned)
    }

    /// Whether two complete Names in DER are equal: the same attributes in the same order, in any string types. A name that
    /// cannot be read to its last byte equals only a name with the same bytes.
    pub fn is_same(name_der: &[u8], other_der: &[u8]) -> bool {
        let (one, other) = (name_der.len(), other_der.len());
        // The lengths are compared first, because peers may send long names, and each is compared with the name of each CA.
        let may_be = one.max(other) <= one.min(other).saturating_mul(SPELLED_LONGER_MAX);
        name_der == other_der
            || may_be
                && Self::in_utf8(name_der)
                    .is_some_and(|name| Self::in_utf8(other_der).is_some_and(|other| name == other))
    }

    /// A complete Name with all characters in UTF-8, so that equal names have equal bytes. `None` if the name cannot be read to
    /// its last byte.
    pub fn in_utf8(name_der: &[u8]) -> Option<Vec<u8>> {
        let (_, name) = X509Name::from_der(name_der).ok()?;
        (is_whole(&name) && name.as_raw() == name_der).then(|| encoded(&name, Attribute::in_utf8))
    }

    pub(crate) fn of(name: &X509Name<'_>) -> Self {
        let rdns = name
            .iter()
            .map(|rdn| rdn.iter().map(Attribute::of).collect());
        Self {
            rdns: rdns.collect(),
        }
    }

    /// The only CN of the subject.
    ///
    /// # Errors
    /// There is not exactly one CN, alone in its RDN, in a string type that all readers decode alike.
    pub(crate) fn single_cn(&self) -> Result<&str, SubjectError> {
        let mut cns = self
            .rdns
            .iter()
            .flatten()
            .filter(|attribute| attribute.is_cn());
        let cn = cns.next().ok_or(SubjectError::NoCn)?;
        if cns.next().is_some() {
            return Err(SubjectError::SeveralCns);
        }
        if self
            .rdns
            .iter()
            .any(|rdn| rdn.len() > 1 && rdn.iter().any(Attribute::is_cn))
        {
            return Err(SubjectError::MultiValued);
        }
        cn.text.as_deref().ok_or(SubjectError::StringType)
    }

    pub(crate) fn rdn_count(&self) -> usize {
        self.rdns.len()
    }

    fn shown(&self) -> String {
        if self.rdns.is_empty() {
            "(empty)".to_owned()
        } else {
            self.rfc2253()
        }
    }
}

impl Attribute {
    fn of(attribute: &AttributeTypeAndValue<'_>) -> Self {
        let value = attribute.attr_value();
        let primitive = value.class() == Class::Universal && !value.header.constructed();
        let text = if primitive {
            decoded(value.tag().0, value.data)
        } else {
            None
        };
        let kind = attribute.attr_type();
        Self {
            is_decoded: text.is_some() || primitive && is_value(value.tag().0, value.data),
            oid: in_dots(kind),
            is_oid: dotted_oid(kind.as_bytes()).is_some(),
            text,
            der: value.to_der_vec().unwrap_or_default(),
        }
    }

    fn in_utf8(self) -> Vec<u8> {
        match self.text {
            Some(text) => element(UTF8_STRING as u8, text.as_bytes()),
            None => self.der,
        }
    }

    pub(crate) fn is_cn(&self) -> bool {
        self.oid == COMMON_NAME
    }
}

/// Whether a name was read to its last byte. The parser skips bytes that it does not understand at the end of a name or of a
/// part of it.
pub(crate) fn is_whole(name: &X509Name<'_>) -> bool {
    encoded(name, |attribute| attribute.der) == name.as_raw()
}

/// The DER of a Name whose values `value` encodes.
fn encoded(name: &X509Name<'_>, value: impl Fn(Attribute) -> Vec<u8>) -> Vec<u8> {
    let rdns = name.iter().flat_map(|rdn| {
        let attributes = rdn.iter().flat_map(|attribute| {
            let oid = element(OID, attribute.attr_type().as_bytes());
            element(SEQUENCE, &[oid, value(Attribute::of(attribute))].concat())
        });
        element(SET, &attributes.collect::<Vec<_>>())
    });
    element(SEQUENCE, &rdns.collect::<Vec<_>>())
}

pub(crate) fn element(tag: u8, content: &[u8]) -> Vec<u8> {
    let digits = content.len().to_be_bytes();
    let zeros = digits.iter().take_while(|digit| **digit == 0).count();
    let digits = &digits[zeros..];
    let mut out = vec![tag];
    match content.len() {
        length @ 0..0x80 => out.push(length as u8),
        _ => {
            out.push(0x80 | digits.len() as u8);
            out.extend(digits);
        }
    }
    out.extend(content);
    out
}

/// A serial number in hexadecimal, in the same form as `openssl x509 -serial` and Puppet print it.
pub(crate) fn serial(raw: &[u8]) -> String {
    // DER adds a zero byte before a number whose first bit is set. Programs that print serial numbers leave it out.
    let digits = match raw {
        [0, rest @ ..] if !rest.is_empty() => rest,
        all => all,
    };
    let mut out = String::with_capacity(digits.len() * 2);
    for byte in digits {
        push_hex(&mut out, *byte);
    }
    out
}

/// The characters of a string with this universal tag. `None` for T61String and UniversalString, which readers decode
/// differently, for other types, and for bytes that the type does not allow.
fn decoded(tag: u32, data: &[u8]) -> Option<String> {
    match tag {
        UTF8_STRING => String::from_utf8(data.to_vec()).ok(),
        NUMERIC_STRING | PRINTABLE_STRING | IA5_STRING | VISIBLE_STRING => data
            .is_ascii()
            .then(|| data.iter().map(|byte| char::from(*byte)).collect()),
        BMP_STRING if data.len().is_multiple_of(2) => {
            // A surrogate is not a character of UCS-2, and `char::from_u32` refuses it.
            let units = data
                .chunks_exact(2)
                .map(|pair| u32::from(pair[0]) << 8 | u32::from(pair[1]));
            units.map(char::from_u32).collect()
        }
        _ => None,
    }
}

/// Whether the parser of every server accepts a value that this crate does not decode to characters.
fn is_value(tag: u32, data: &[u8]) -> bool {
    match tag {
        // X.520's unique identifier: the number of unused bits in the last byte, followed by the bytes.
        BIT_STRING => matches!(data, [0, ..] | [1..=7, _, ..]),
        OCTET_STRING | UTF8_STRING | NUMERIC_STRING | PRINTABLE_STRING | T61_STRING
        | IA5_STRING | VISIBLE_STRING | GENERAL_STRING | UNIVERSAL_STRING => true,
        _ => false,
    }
}

const OID: u8 = 0x06;
const SEQUENCE: u8 = 0x30;
const SET: u8 = 0x31;

/// Maximum ratio of the lengths of two spellings. UTF-8 uses three bytes for characters that other types store in one or two.
const SPELLED_LONGER_MAX: usize = 3;

const BIT_STRING: u32 = 3;
const OCTET_STRING: u32 = 4;
const UTF8_STRING: u32 = 12;
const NUMERIC_STRING: u32 = 18;
const PRINTABLE_STRING: u32 = 19;
const T61_STRING: u32 = 20;
const IA5_STRING: u32 = 22;
const VISIBLE_STRING: u32 = 26;
const GENERAL_STRING: u32 = 27;
const UNIVERSAL_STRING: u32 = 28;
const BMP_STRING: u32 = 30;

pub(crate) const COMMON_NAME: &str = "2.5.4.3";

#[cfg(test)]
mod tests;
