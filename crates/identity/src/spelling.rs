//! The formats in which servers read a distinguished name. The escaping is safe for all of these servers.
//!
//! In every format, `=` occurs only between a type and its value, and separators occur only between attributes. Even a simple
//! reader therefore finds no second `CN=` in a value.

use crate::DnFormat;
use crate::refusal::push_hex;
use crate::subject::{Attribute, COMMON_NAME, Subject};
use crate::subject_error::SubjectError;

impl Subject {
    /// The subject in `format`, in printable ASCII.
    ///
    /// # Errors
    /// A value contains a control character, at which some reader would end the name or the header line. Or readers of `format`
    /// would read a character of the CN differently.
    pub(crate) fn formatted(&self, format: DnFormat) -> Result<String, SubjectError> {
        let mut attributes = self.rdns.iter().flatten();
        let control = |text: &str| text.contains(char::is_control);
        if attributes.any(|attribute| attribute.text.as_deref().is_some_and(control)) {
            return Err(SubjectError::Control);
        }
        self.check_attributes()?;
        match format {
            // Puppet Server reads names with Bouncy Castle's `IETFUtils`, which drops spaces after a `#` at the beginning of a
            // value.
            DnFormat::Rfc2253 if self.single_cn().is_ok_and(|cn| cn.starts_with("# ")) => {
                Err(SubjectError::Ambiguous('#', format))
            }
            DnFormat::Rfc2253 => Ok(self.rfc2253()),
            DnFormat::OpenSsl => self.literal_cn(format).map(|cn| self.openssl(cn)),
            DnFormat::CnLast => self.literal_cn(format).map(|cn| self.cn_last(cn)),
        }
    }

    /// Refuses attributes for which Puppet Server's parser (Bouncy Castle) throws an exception. After an exception the server
    /// splits the string at slashes, and reads everything after the first `CN=` as the name.
    fn check_attributes(&self) -> Result<(), SubjectError> {
        let mut attributes = self.rdns.iter().flatten();
        if !attributes.clone().all(|attribute| attribute.is_oid) {
            return Err(SubjectError::AttributeType);
        }
        if !attributes.clone().all(|attribute| attribute.is_decoded) {
            return Err(SubjectError::StringType);
        }
        // A single CN without escapes is read correctly, whether or not the server splits the string.
        let is_plain = attributes.clone().count() == 1
            && self.single_cn().is_ok_and(|cn| cn.chars().all(is_literal));
        (is_plain || attributes.all(Attribute::is_in_bounds))
            .then_some(())
            .ok_or(SubjectError::Bounds)
    }

    /// RFC 2253: the last RDN comes first, and everything except printable ASCII is written as `\XX` for each of its UTF-8
    /// bytes.
    pub(crate) fn rfc2253(&self) -> String {
        let rdns = self.rdns.iter().rev();
        rdns.map(|rdn| joined(rdn, escape))
            .collect::<Vec<_>>()
            .join(",")
    }

    /// RFC 2253 for use between double quotes. It contains no quote, and `\` occurs only before two digits. `None` if readers
    /// would undo the escapes of the CN differently.
    pub(crate) fn quotable(&self) -> Option<String> {
        self.literal_cn(DnFormat::CnLast).ok()?;
        let rdns = self.rdns.iter().rev();
        let rdns = rdns.map(|rdn| joined(rdn, escape_all_by_digits));
        Some(rdns.collect::<Vec<_>>().join(","))
    }

    /// The certificate's order, except that the CN is at the end. Separators and escapes are written as two digits, for readers
    /// that split at every comma.
    fn cn_last(&self, cn: &str) -> String {
        let others = self
            .rdns
            .iter()
            .filter(|rdn| !rdn.iter().any(Attribute::is_cn));
        let mut parts: Vec<_> = others.map(|rdn| joined(rdn, escape_by_digits)).collect();
        parts.push(format!("CN={cn}"));
        parts.join(",")
    }

    /// The format of `X509_NAME_oneline`: a `/` before every attribute. OpenSSL escapes only what cannot be printed, as `\xXX`.
    /// Readers undo no escapes. Separators are therefore escaped in the same way, so that no reader splits a value.
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

    /// The CN, if no reader of `format` needs an escape for it. Readers undo escapes differently or not at all.
    fn literal_cn(&self, format: DnFormat) -> Result<&str, SubjectError> {
        let cn = self.single_cn()?;
        match cn.chars().find(|c| !is_literal(*c)) {
            Some(odd) => Err(SubjectError::Ambiguous(odd, format)),
            None => Ok(cn),
        }
    }
}

impl Attribute {
    /// Whether the value is within the bounds of X.520 that servers enforce. Servers count bytes of UTF-8, and their own
    /// escapes. A C must consist of the two letters of ISO 3166.
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
            // RFC 2253, 2.4: the value of a type in dotted form is '#' and the octets of its encoding.
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

/// RFC 2253, 2.4 and RFC 4514, 2.4: escapes everything that either of them escapes.
fn escape(text: &str, out: &mut String) {
    let last = text.len().saturating_sub(1);
    for (index, byte) in text.bytes().enumerate() {
        match byte {
            b',' | b'+' | b'"' | b'\\' | b'<' | b'>' | b';' | b'=' => {
                out.push('\\');
                out.push(char::from(byte));
            }
            b'#' if index == 0 => out.push_str("\\#"),
            // Written as digits, because a space at the end of a header value is not part of the value (RFC 9110, 5.5), even if
            // it is escaped.
            b' ' if index == 0 || index == last => escape_byte("\\", byte, out),
            0x20..=0x7e => out.push(char::from(byte)),
            _ => escape_byte("\\", byte, out),
        }
    }
}

/// Like [`escape`], but with `\XX` for everything except a `#` at the start. A leading `#` is an exception, because some
/// readers undo `\23` before they look for a `#`.
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

/// Like [`escape_by_digits`], without the exception for a leading `#`.
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

/// Whether a character is printable ASCII with no special meaning in any of the formats.
fn is_literal(c: char) -> bool {
    matches!(c, ' '..='~') && !",/+\"'\\<>;=#".contains(c)
}

const COUNTRY: &str = "2.5.4.6";
/// The upper bound `ub-common-name` of X.520.
const CN_BYTES_MAX: usize = 64;

/// The table of RFC 2253, 2.3 and RFC 4514, 3. Every implementation knows these names.
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

/// Names that OpenSSL spells differently, or that are not in the RFCs.
const OPENSSL_NAMES: &[(&str, &str)] = &[
    ("2.5.4.9", "street"),
    ("1.2.840.113549.1.9.1", "emailAddress"),
];

#[cfg(test)]
mod tests;
