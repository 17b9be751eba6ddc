//! Name constraints on directory names and e-mail addresses (RFC 5280, 4.2.1.10), which webpki does not support.
//!
//! webpki refuses every certificate below a constraint on directory names. A name is within a subtree if it starts with the
//! attributes of the subtree (X.501). Attributes are compared as in OpenSSL: case and additional blanks are ignored. Puppet and
//! OpenSSL write names in certain forms. A name in another form is refused below such a constraint, because the proxy cannot
//! decide whether it matches.
//!
//! Below a constraint on e-mail addresses, each certificate with an address is refused, whether the address is permitted or
//! not, because no Puppet agent has one. webpki refuses addresses only among the alternative names.

use crate::certificate::Certificate;
use crate::der::{self, DerError, Reader};

/// The constraints of the CAs above a certificate, collected from the anchor down.
#[derive(Debug, Default)]
pub(crate) struct NameConstraints {
    of: Vec<ConstraintsOfCa>,
}

/// The subtrees of one CA.
#[derive(Debug, Default)]
struct ConstraintsOfCa {
    /// Subtrees of directory names.
    permitted: Vec<Attributes>,
    excluded: Vec<Attributes>,
    /// Whether a subtree is for e-mail addresses.
    has_addresses: bool,
    /// Whether there are subtrees of other forms, which webpki checks.
    has_others: bool,
}

/// The attributes of a name in order, each as OID and text.
type Attributes = Vec<(Vec<u8>, String)>;

/// Why the constraints do not permit a certificate.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NameFault {
    /// The extension, the alternative names or the subject cannot be read.
    #[error(
        "a CA above it has name constraints on directory names or e-mail addresses, and they or its names cannot be read: \
         each part of a directory name must be one UTF8String, PrintableString or IA5String"
    )]
    Unreadable(#[from] DerError),
    /// The certificate has an e-mail address, and a CA constrains addresses.
    #[error(
        "a CA above it has name constraints on e-mail addresses; the proxy does not compare addresses, so a certificate \
         with one, in its subject or as an alternative name, is refused below that CA"
    )]
    Address,
    /// There are too many names or subtrees to compare.
    #[error(
        "it has more than {NAMES_MAX} directory names, or a CA above it more than {SUBTREES_MAX} constraints on them"
    )]
    TooMany,
    /// A name is in an excluded subtree, or in no permitted subtree.
    #[error("the name constraints of a CA above it do not permit its directory name \"{0}\"")]
    NotAdmitted(String),
}

/// Whether this module checks all of these NameConstraints (the whole element), so that webpki does not need them.
pub(crate) fn are_checked_here(name_constraints: &[u8]) -> bool {
    ConstraintsOfCa::read(name_constraints).is_ok_and(|constraints| !constraints.has_others)
}

impl NameConstraints {
    /// Adds a CA's NameConstraints (the whole element), which apply to all certificates below it.
    ///
    /// # Errors
    /// The extension violates RFC 5280, or contains names that cannot be compared.
    pub(crate) fn add(&mut self, name_constraints: Option<&[u8]>) -> Result<(), NameFault> {
        let Some(extension) = name_constraints else {
            return Ok(());
        };
        let constraint = ConstraintsOfCa::read(extension)?;
        if constraint.permitted.len() + constraint.excluded.len() > SUBTREES_MAX {
            return Err(NameFault::TooMany);
        }
        self.of.push(constraint);
        Ok(())
    }

    /// Checks the subject and the alternative names of a certificate against all constraints.
    ///
    /// E-mail addresses in the subject always count. RFC 5280 requires that only if there are no alternative names, but a
    /// certificate could evade the constraint by adding an alternative name.
    ///
    /// # Errors
    /// A name is not permitted, or the input is unreadable.
    pub(crate) fn check(&self, certificate: &Certificate<'_>) -> Result<(), NameFault> {
        if self.of.iter().any(|ca| ca.has_addresses) && has_address(certificate)? {
            return Err(NameFault::Address);
        }
        let has_directories =
            |ca: &ConstraintsOfCa| !(ca.permitted.is_empty() && ca.excluded.is_empty());
        if self.of.iter().any(has_directories) {
            self.check_directories(certificate)
        } else {
            Ok(())
        }
    }

    fn check_directories(&self, certificate: &Certificate<'_>) -> Result<(), NameFault> {
        let mut names = vec![certificate.subject];
        let mut list = alternative_names(certificate)?;
        while !list.is_empty() {
            let name = list.any()?;
            if name.tag == DIRECTORY_NAME {
                names.push(name.value);
            }
        }
        if names.len() > NAMES_MAX {
            return Err(NameFault::TooMany);
        }
        for name in names {
            let name = attributes(name)?;
            // RFC 5280 applies no constraint to an empty subject.
            if !name.is_empty() {
                self.of.iter().try_for_each(|one| one.check(&name))?;
            }
        }
        Ok(())
    }
}

impl ConstraintsOfCa {
    fn read(extension: &[u8]) -> Result<Self, DerError> {
        let mut outer = Reader::new(extension);
        let mut lists = Reader::new(outer.expect(der::SEQUENCE)?.value);
        outer.end()?;
        let mut constraint = Self::default();
        let (permitted, excluded) = (&mut constraint.permitted, &mut constraint.excluded);
        for (number, found) in [(0, permitted), (1, excluded)] {
            let Some(list) = lists.optional(der::explicit(number))? else {
                continue;
            };
            let mut list = Reader::new(list.value);
            while !list.is_empty() {
                let mut subtree = Reader::new(list.expect(der::SEQUENCE)?.value);
                let base = subtree.any()?;
                // `minimum` and `maximum` are not allowed.
                subtree.end()?;
                match base.tag {
                    DIRECTORY_NAME => found.push(attributes(base.value)?),
                    RFC822_NAME => constraint.has_addresses = true,
                    tag if OTHER_FORMS.contains(&tag) => constraint.has_others = true,
                    _ => return Err(DerError::Value),
                }
            }
        }
        lists.end()?;
        Ok(constraint)
    }

    fn check(&self, name: &Attributes) -> Result<(), NameFault> {
        let within = |subtrees: &[Attributes]| subtrees.iter().any(|base| name.starts_with(base));
        let permitted = self.permitted.is_empty() || within(&self.permitted);
        if permitted && !within(&self.excluded) {
            Ok(())
        } else {
            let texts: Vec<_> = name.iter().map(|(_, text)| text.as_str()).collect();
            Err(NameFault::NotAdmitted(texts.join(", ")))
        }
    }
}

/// Whether a certificate has an e-mail address, valid or not, among its alternative names or in its subject.
///
/// This does not use x509-parser, which ignores the rest of a name after a part that it cannot parse.
fn has_address(certificate: &Certificate<'_>) -> Result<bool, DerError> {
    let mut names = alternative_names(certificate)?;
    while !names.is_empty() {
        let name = names.any()?;
        match name.tag {
            RFC822_NAME => return Ok(true),
            // An e-mail address that is not ASCII (RFC 9598).
            OTHER_NAME if Reader::new(name.value).expect(der::OID)?.value == SMTP_UTF8_MAILBOX => {
                return Ok(true);
            }
            tag if tag == DIRECTORY_NAME || OTHER_FORMS.contains(&tag) => {}
            _ => return Err(DerError::Value),
        }
    }
    let mut rdns = Reader::new(
        Reader::new(certificate.subject)
            .expect(der::SEQUENCE)?
            .value,
    );
    while !rdns.is_empty() {
        let mut rdn = Reader::new(rdns.expect(SET)?.value);
        while !rdn.is_empty() {
            let mut attribute = Reader::new(rdn.expect(der::SEQUENCE)?.value);
            if attribute.expect(der::OID)?.value == EMAIL_ADDRESS {
                return Ok(true);
            }
        }
    }
    Ok(false)
}

fn alternative_names<'a>(certificate: &Certificate<'a>) -> Result<Reader<'a>, DerError> {
    let Some(names) = certificate.extensions.subject_alt_name else {
        return Ok(Reader::new(&[]));
    };
    let mut outer = Reader::new(names);
    let list = outer.expect(der::SEQUENCE)?.value;
    outer.end()?;
    Ok(Reader::new(list))
}

/// The attributes of a Name (the whole element). Each must be alone in its RDN.
fn attributes(name: &[u8]) -> Result<Attributes, DerError> {
    let mut outer = Reader::new(name);
    let mut rdns = Reader::new(outer.expect(der::SEQUENCE)?.value);
    outer.end()?;
    let mut attributes = Vec::new();
    while !rdns.is_empty() {
        let mut rdn = Reader::new(rdns.expect(SET)?.value);
        let mut attribute = Reader::new(rdn.expect(der::SEQUENCE)?.value);
        rdn.end()?;
        let kind = attribute.expect(der::OID)?.value;
        let value = attribute.any()?;
        attribute.end()?;
        let text = match value.tag {
            UTF8_STRING | PRINTABLE_STRING | IA5_STRING => std::str::from_utf8(value.value),
            _ => return Err(DerError::Value),
        };
        let text = text.map_err(|_| DerError::Value)?.to_lowercase();
        let words: Vec<_> = text.split_whitespace().collect();
        attributes.push((kind.to_vec(), words.join(" ")));
    }
    Ok(attributes)
}

/// The tags of GeneralName.
const OTHER_NAME: u8 = 0xa0;
const RFC822_NAME: u8 = 0x81;
const DIRECTORY_NAME: u8 = 0xa4;
const OTHER_FORMS: [u8; 7] = [OTHER_NAME, 0x82, 0xa3, 0xa5, 0x86, 0x87, 0x88];

/// 1.2.840.113549.1.9.1.
const EMAIL_ADDRESS: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 9, 1];
/// 1.3.6.1.5.5.7.8.9, id-on-SmtpUTF8Mailbox.
const SMTP_UTF8_MAILBOX: &[u8] = &[0x2b, 6, 1, 5, 5, 7, 8, 9];

const SET: u8 = 0x31;
const UTF8_STRING: u8 = 0x0c;
const PRINTABLE_STRING: u8 = 0x13;
const IA5_STRING: u8 = 0x16;

/// Maximum numbers of directory names in one certificate and of subtrees of one CA. Real paths have few. Thousands would be an
/// attack on the proxy's CPU time.
const NAMES_MAX: usize = 64;
const SUBTREES_MAX: usize = 256;
