//! A distinguished name as text, in the formats that servers read, by our own escaping.
//!
//! Whatever the format, a `=` stands between a type and its value and nowhere else, and separators stand between
//! attributes and nowhere else: no reader, however crude, finds a second `CN=` in a value.

use crate::DnFormat;
use crate::refusal::push_hex;
use crate::subject::{Attribute, COMMON_NAME, Subject};
use crate::subject_error::SubjectError;

impl Subject {
    /// The subject as a server is told it: printable ASCII.
    ///
    /// # Errors
    /// If a value holds a control character (some reader would end the name, or the header line, there), or if the CN
    /// has a character that readers of `format` do not take as it stands.
    pub(crate) fn told(&self, format: DnFormat) -> Result<String, SubjectError> {
        let mut attributes = self.rdns.iter().flatten();
        let control = |text: &str| text.contains(char::is_control);
        if attributes.any(|attribute| attribute.text.as_deref().is_some_and(control)) {
            return Err(SubjectError::Control);
        }
        self.check_attributes()?;
        match format {
            // Puppet Server's reader (Bouncy Castle's `IETFUtils`) loses spaces after a `#` that a value begins with.
            DnFormat::Rfc2253 if self.single_cn().is_ok_and(|cn| cn.starts_with("# ")) => {
                Err(SubjectError::Ambiguous('#', format))
            }
            DnFormat::Rfc2253 => Ok(self.rfc2253()),
            DnFormat::OpenSsl => self.literal_cn(format).map(|cn| self.openssl(cn)),
            DnFormat::CnLast => self.literal_cn(format).map(|cn| self.cn_last(cn)),
        }
    }

    /// Puppet Server's parser (Bouncy Castle) throws at what it cannot make an attribute of, whatever is told in the CN,
    /// and the server then cuts the same text at slashes: everything behind the first `CN=` is the name.
    fn check_attributes(&self) -> Result<(), SubjectError> {
        let mut attributes = self.rdns.iter().flatten();
        if !attributes.clone().all(|attribute| attribute.is_oid) {
            return Err(SubjectError::AttributeType);
        }
        if !attributes.clone().all(|attribute| attribute.is_decoded) {
            return Err(SubjectError::StringType);
        }
        // Cut at slashes or not, a CN that stands alone and needs no escape is read as it is.
        let is_plain = attributes.clone().count() == 1
            && self.single_cn().is_ok_and(|cn| cn.chars().all(is_literal));
        match is_plain || attributes.all(Attribute::is_in_bounds) {
            true => Ok(()),
            false => Err(SubjectError::Bounds),
        }
    }

    /// RFC 2253: the last RDN first, everything but printable ASCII as `\XX` of its UTF-8 bytes.
    pub(crate) fn rfc2253(&self) -> String {
        let rdns = self.rdns.iter().rev();
        rdns.map(|rdn| joined(rdn, escape))
            .collect::<Vec<_>>()
            .join(",")
    }

    /// RFC 2253 for a place between double quotes: no quote stands in it, and no `\` but before two digits. None where
    /// readers would undo the CN differently.
    pub(crate) fn quotable(&self) -> Option<String> {
        self.literal_cn(DnFormat::CnLast).ok()?;
        let rdns = self.rdns.iter().rev();
        let rdns = rdns.map(|rdn| joined(rdn, escape_all_by_digits));
        Some(rdns.collect::<Vec<_>>().join(","))
    }

    /// The certificate's order, the CN at the end. What separates or escapes is written as its two digits, for readers
    /// that cut at every comma.
    fn cn_last(&self, cn: &str) -> String {
        let others = self
            .rdns
            .iter()
            .filter(|rdn| !rdn.iter().any(Attribute::is_cn));
        let mut parts: Vec<_> = others.map(|rdn| joined(rdn, escape_by_digits)).collect();
        parts.push(format!("CN={cn}"));
        parts.join(",")
    }

    /// `X509_NAME_oneline`: every attribute behind a `/`. OpenSSL escapes only what cannot be printed, as `\xXX`;
    /// readers undo no escape, so separators are written that way too and no value is cut.
    fn openssl(&self, cn: &str) -> String {
        let mut out = String::new();
        for attribute in self.rdns.iter().flatten() {
            out.push('/');
            out.push_str(attribute.name(OPENSSL_NAMES).unwrap_or(&attribute.oid));
            out.push('=');
            match &attribute.text {
                Some(_) if attribute.is_cn() => out.push_str(cn),
                Some(text) => escape_as_oneline(text, &mut out),
                None => hex(&attribute.der, &mut out),
            }
        }
        out
    }

    /// The CN, where every reader of `format` takes it as it stands: they undo escapes differently or not at all.
    fn literal_cn(&self, format: DnFormat) -> Result<&str, SubjectError> {
        let cn = self.single_cn()?;
        match cn.chars().find(|c| !is_literal(*c)) {
            Some(odd) => Err(SubjectError::Ambiguous(odd, format)),
            None => Ok(cn),
        }
    }
}

impl Attribute {
    /// X.520's bounds, as far as servers insist on them. They count bytes of UTF-8, and escapes in their own way: a C is
    /// what it has to be, ISO 3166's two letters.
    fn is_in_bounds(&self) -> bool {
        match (self.oid.as_str(), &self.text) {
            (COMMON_NAME, Some(cn)) => cn.len() <= CN_BYTES_MAX,
            (COUNTRY, Some(c)) => c.len() == 2 && c.bytes().all(|byte| byte.is_ascii_alphabetic()),
            _ => true,
        }
    }

    fn spell(&self, out: &mut String, escape: fn(&str, &mut String)) {
        let name = self.name(NAMES);
        out.push_str(name.unwrap_or(&self.oid));
        out.push('=');
        match (&self.text, name) {
            (Some(text), Some(_)) => escape(text, out),
            // RFC 2253 §2.4: a type in dotted form takes its value as '#' and the octets of its encoding.
            _ => hex(&self.der, out),
        }
    }

    fn name(&self, names: &[(&str, &'static str)]) -> Option<&'static str> {
        let known = names.iter().chain(NAMES).find(|(oid, _)| *oid == self.oid);
        known.map(|(_, name)| *name)
    }
}

fn joined(rdn: &[Attribute], escape: fn(&str, &mut String)) -> String {
    let mut out = String::new();
    for (index, attribute) in rdn.iter().enumerate() {
        if index > 0 {
            out.push('+');
        }
        attribute.spell(&mut out, escape);
    }
    out
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
            b'#' if index == 0 => out.push_str("\\#"),
            // By its digits: a blank at the end of a header's value is no part of it (RFC 9110, 5.5), escaped or not.
            b' ' if index == 0 || index == last => escape_byte("\\", byte, out),
            0x20..=0x7e => out.push(char::from(byte)),
            _ => escape_byte("\\", byte, out),
        }
    }
}

/// The same with `\XX` for all, but for a `#` at the start: `\23` is undone before some look for one there.
fn escape_by_digits(text: &str, out: &mut String) {
    let last = text.len().saturating_sub(1);
    for (index, byte) in text.bytes().enumerate() {
        match byte {
            b'#' if index == 0 => out.push_str("\\#"),
            b' ' if index == 0 || index == last => escape_byte("\\", byte, out),
            _ if byte.is_ascii() && is_literal(char::from(byte)) => out.push(char::from(byte)),
            _ => escape_byte("\\", byte, out),
        }
    }
}

/// The same without an exception.
fn escape_all_by_digits(text: &str, out: &mut String) {
    let last = text.len().saturating_sub(1);
    for (index, byte) in text.bytes().enumerate() {
        let at_edge = index == 0 || index == last;
        match char::from(byte) {
            ' ' if at_edge => escape_byte("\\", byte, out),
            c if byte.is_ascii() && is_literal(c) => out.push(c),
            _ => escape_byte("\\", byte, out),
        }
    }
}

fn escape_as_oneline(text: &str, out: &mut String) {
    for byte in text.bytes() {
        match char::from(byte) {
            c if byte.is_ascii() && is_literal(c) => out.push(c),
            _ => escape_byte("\\x", byte, out),
        }
    }
}

fn escape_byte(prefix: &str, byte: u8, out: &mut String) {
    out.push_str(prefix);
    push_hex(out, byte);
}

fn hex(der: &[u8], out: &mut String) {
    out.push('#');
    for byte in der {
        push_hex(out, *byte);
    }
}

/// Printable ASCII that separates, escapes, quotes or introduces nothing in any of the formats.
fn is_literal(c: char) -> bool {
    matches!(c, ' '..='~') && !",/+\"'\\<>;=#".contains(c)
}

const COUNTRY: &str = "2.5.4.6";
/// ub-common-name.
const CN_BYTES_MAX: usize = 64;

/// The table of RFC 2253 §2.3 and RFC 4514 §3: the names that every implementation knows.
const NAMES: &[(&str, &str)] = &[
    (COMMON_NAME, "CN"),
    ("2.5.4.7", "L"),
    ("2.5.4.8", "ST"),
    ("2.5.4.10", "O"),
    ("2.5.4.11", "OU"),
    (COUNTRY, "C"),
    ("2.5.4.9", "STREET"),
    ("0.9.2342.19200300.100.1.25", "DC"),
    ("0.9.2342.19200300.100.1.1", "UID"),
];

/// Where OpenSSL has another name, or one that the RFCs do not have.
const OPENSSL_NAMES: &[(&str, &str)] = &[
    ("2.5.4.9", "street"),
    ("1.2.840.113549.1.9.1", "emailAddress"),
];

#[cfg(test)]
mod tests;
