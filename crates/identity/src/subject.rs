//! A distinguished name, read from DER and spelled by our own escaping.
//!
//! Libraries print names in ways that escape nothing or not everything; a Puppet server reads who the client is from
//! this text, so it is made here, attribute by attribute (RFC 2253, RFC 4514).

use x509_parser::asn1_rs::{Class, ToDer};
use x509_parser::certificate::X509Certificate;
use x509_parser::prelude::FromDer;
use x509_parser::x509::{AttributeTypeAndValue, X509Name};

use crate::agent::SubjectError;
use crate::refusal::{printable, push_hex};

/// A distinguished name: its RDNs in the certificate's order, each of one or more attributes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subject {
    rdns: Vec<Vec<Attribute>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Attribute {
    oid: String,
    /// The characters, where the type is a string type that all readers decode alike.
    text: Option<String>,
    /// The whole encoding of the value.
    der: Vec<u8>,
}

impl Subject {
    /// One printable line for messages about any certificate: subject, serial, issuer. Never fails, always ASCII.
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

    /// A Name, the whole DER element, in RFC 2253: as `unchecked` names issuers. Never fails, always ASCII.
    pub fn name_text(name_der: &[u8]) -> String {
        match X509Name::from_der(name_der) {
            Ok((_, name)) => printable(&Self::of(&name).shown()),
            Err(_) => "(unreadable name)".to_owned(),
        }
    }

    /// The one CN of a Name, the whole DER element; none unless there is exactly one, alone in its RDN.
    pub fn only_cn(name_der: &[u8]) -> Option<String> {
        let (_, name) = X509Name::from_der(name_der).ok()?;
        Self::of(&name).single_cn().ok().map(ToOwned::to_owned)
    }

    pub(crate) fn of(name: &X509Name<'_>) -> Self {
        let rdns = name
            .iter()
            .map(|rdn| rdn.iter().map(Attribute::of).collect());
        Self {
            rdns: rdns.collect(),
        }
    }

    /// RFC 2253: the last RDN first, everything but printable ASCII as `\XX` of its UTF-8 bytes.
    ///
    /// # Errors
    /// If a value holds a control character: some reader would end the name, or the header line, there.
    pub(crate) fn rfc2253(&self) -> Result<String, SubjectError> {
        let mut texts = self
            .rdns
            .iter()
            .flatten()
            .filter_map(|attribute| attribute.text.as_deref());
        if texts.any(|text| text.contains(char::is_control)) {
            return Err(SubjectError::Control);
        }
        if self
            .rdns
            .iter()
            .flatten()
            .any(|attribute| attribute.der.is_empty())
        {
            return Err(SubjectError::StringType);
        }
        Ok(self.spelled())
    }

    /// The one CN of the subject.
    ///
    /// # Errors
    /// Unless there is exactly one CN, alone in its RDN, in a string type that all readers decode alike.
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
            self.spelled()
        }
    }

    fn spelled(&self) -> String {
        let mut out = String::new();
        for (index, rdn) in self.rdns.iter().rev().enumerate() {
            if index > 0 {
                out.push(',');
            }
            for (index, attribute) in rdn.iter().enumerate() {
                if index > 0 {
                    out.push('+');
                }
                attribute.spell(&mut out);
            }
        }
        out
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
        Self {
            oid: attribute.attr_type().to_id_string(),
            text,
            der: value.to_der_vec().unwrap_or_default(),
        }
    }

    fn is_cn(&self) -> bool {
        self.oid == COMMON_NAME
    }

    fn spell(&self, out: &mut String) {
        let name = NAMES
            .iter()
            .find(|(oid, _)| *oid == self.oid)
            .map(|(_, name)| *name);
        out.push_str(name.unwrap_or(&self.oid));
        out.push('=');
        match (&self.text, name) {
            (Some(text), Some(_)) => escape(text, out),
            // RFC 2253 §2.4: a type in dotted form takes its value as '#' and the octets of its encoding.
            _ => hex(&self.der, out),
        }
    }
}

/// A serial number in hexadecimal, as `openssl x509 -serial` and Puppet print it.
pub(crate) fn serial(raw: &[u8]) -> String {
    // DER puts a zero byte before a number whose first bit is set; printers leave it out.
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

/// The characters of a string type by its universal tag; nothing for T61 and Universal, which no two readers decode
/// alike, for other types, and for bytes that the type does not allow.
fn decoded(tag: u32, data: &[u8]) -> Option<String> {
    match tag {
        UTF8_STRING => String::from_utf8(data.to_vec()).ok(),
        NUMERIC_STRING | PRINTABLE_STRING | IA5_STRING | VISIBLE_STRING => data
            .is_ascii()
            .then(|| data.iter().map(|byte| char::from(*byte)).collect()),
        BMP_STRING if data.len().is_multiple_of(2) => {
            // UCS-2: a surrogate is no character of it, and `char::from_u32` refuses it.
            let units = data
                .chunks_exact(2)
                .map(|pair| u32::from(pair[0]) << 8 | u32::from(pair[1]));
            units.map(char::from_u32).collect()
        }
        _ => None,
    }
}

/// RFC 2253 §2.4 and RFC 4514 §2.4, on the careful side: what one of the two escapes is escaped.
fn escape(text: &str, out: &mut String) {
    let last = text.len().saturating_sub(1);
    for (index, byte) in text.bytes().enumerate() {
        match byte {
            b',' | b'+' | b'"' | b'\\' | b'<' | b'>' | b';' | b'=' => {
                out.push('\\');
                out.push(char::from(byte));
            }
            b'#' | b' ' if index == 0 => {
                out.push('\\');
                out.push(char::from(byte));
            }
            b' ' if index == last => out.push_str("\\ "),
            0x20..=0x7e => out.push(char::from(byte)),
            _ => {
                out.push('\\');
                push_hex(out, byte);
            }
        }
    }
}

fn hex(der: &[u8], out: &mut String) {
    out.push('#');
    for byte in der {
        push_hex(out, *byte);
    }
}

const UTF8_STRING: u32 = 12;
const NUMERIC_STRING: u32 = 18;
const PRINTABLE_STRING: u32 = 19;
const IA5_STRING: u32 = 22;
const VISIBLE_STRING: u32 = 26;
const BMP_STRING: u32 = 30;

const COMMON_NAME: &str = "2.5.4.3";

/// The table of RFC 2253 §2.3 and RFC 4514 §3: the names that every implementation knows.
const NAMES: &[(&str, &str)] = &[
    (COMMON_NAME, "CN"),
    ("2.5.4.7", "L"),
    ("2.5.4.8", "ST"),
    ("2.5.4.10", "O"),
    ("2.5.4.11", "OU"),
    ("2.5.4.6", "C"),
    ("2.5.4.9", "STREET"),
    ("0.9.2342.19200300.100.1.25", "DC"),
    ("0.9.2342.19200300.100.1.1", "UID"),
];

#[cfg(test)]
mod tests;
