//! Name constraints on e-mail addresses (RFC 5280, 4.2.1.10 and 7.5).
//!
//! webpki does not support them. Below such a constraint it refuses every certificate with an address among its
//! alternative names, and ignores an address in the subject. This module checks each address against the constraints of
//! every CA above it. It refuses unreadable input and excessive numbers of addresses or constraints.

use crate::certificate::Certificate;
use crate::der::{self, DerError, Reader};
use crate::directory_constraint::{self, DIRECTORY_NAME};

/// The address constraints of the CAs above a certificate, collected from the anchor down.
#[derive(Debug, Default)]
pub(crate) struct EmailConstraints<'a> {
    of: Vec<EmailConstraint<'a>>,
}

/// The constraints of one CA: each subtree as encoded.
#[derive(Debug, Default)]
struct EmailConstraint<'a> {
    permitted: Vec<&'a [u8]>,
    excluded: Vec<&'a [u8]>,
    /// Whether there are subtrees of other name types too, except for directory names.
    has_others: bool,
}

/// Why the constraints do not permit a certificate.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum EmailFault {
    /// The extension, the alternative names or the subject.
    #[error("name constraints, alternative names or a subject on the path cannot be read")]
    Unreadable(#[from] DerError),
    /// An invalid subtree for addresses.
    #[error("a CA above it has a name constraint on e-mail addresses that cannot be read")]
    Constraint,
    /// An invalid address, or one of a kind that cannot be compared.
    #[error(
        "a CA above it has name constraints on e-mail addresses, and one of its addresses cannot be read"
    )]
    Address,
    /// Too many to compare.
    #[error(
        "it has more than {ADDRESSES_MAX} e-mail addresses, or a CA above it more than {SUBTREES_MAX} constraints on them"
    )]
    TooMany,
    /// An address in an excluded subtree, or in no permitted one.
    #[error("the name constraints of a CA above it do not permit its e-mail address \"{0}\"")]
    NotAdmitted(String),
}

/// Whether this module and `directory_constraint` check all of these NameConstraints (the whole element), so that webpki does
/// not need them.
pub(crate) fn are_checked_here(name_constraints: &[u8]) -> bool {
    let addresses = EmailConstraint::read(name_constraints);
    addresses.is_ok_and(|constraint| !constraint.has_others)
        && directory_constraint::is_readable(name_constraints)
}

impl<'a> EmailConstraints<'a> {
    /// Adds a CA's NameConstraints (the whole element), which apply to all certificates below it.
    ///
    /// # Errors
    /// An extension that violates RFC 5280, including one with `minimum` or `maximum`.
    pub(crate) fn add(&mut self, name_constraints: Option<&'a [u8]>) -> Result<(), EmailFault> {
        let Some(extension) = name_constraints else {
            return Ok(());
        };
        let constraint = EmailConstraint::read(extension)?;
        if !constraint.permitted.is_empty() || !constraint.excluded.is_empty() {
            self.of.push(constraint);
        }
        Ok(())
    }

    /// Checks every address of a certificate against all constraints.
    ///
    /// Addresses in the subject always count. RFC 5280 requires that only without alternative names, but otherwise a
    /// certificate could evade the constraint by adding one.
    ///
    /// # Errors
    /// An address that is not permitted, and unreadable input.
    pub(crate) fn check(&self, certificate: &Certificate<'_>) -> Result<(), EmailFault> {
        if self.of.is_empty() {
            return Ok(());
        }
        let mut addresses = alternative_addresses(certificate.extensions.subject_alt_name)?;
        addresses.extend(subject_addresses(certificate.subject)?);
        if addresses.len() > ADDRESSES_MAX {
            return Err(EmailFault::TooMany);
        }
        for address in addresses {
            let mailbox = Mailbox::read(address).ok_or(EmailFault::Address)?;
            self.of
                .iter()
                .try_for_each(|constraint| constraint.check(mailbox))?;
        }
        Ok(())
    }
}

impl<'a> EmailConstraint<'a> {
    fn read(extension: &'a [u8]) -> Result<Self, DerError> {
        let mut outer = Reader::new(extension);
        let mut lists = Reader::new(outer.expect(der::SEQUENCE)?.value);
        outer.end()?;
        let mut constraint = Self::default();
        let (permitted, excluded) = (&mut constraint.permitted, &mut constraint.excluded);
        for (number, found) in [(0, permitted), (1, excluded)] {
            if let Some(list) = lists.optional(der::explicit(number))? {
                constraint.has_others |= subtrees(list.value, found)?;
            }
        }
        lists.end()?;
        Ok(constraint)
    }

    /// All subtrees are parsed before any is used: an unreadable one might exclude the address.
    fn check(&self, mailbox: Mailbox<'_>) -> Result<(), EmailFault> {
        if self.permitted.len() + self.excluded.len() > SUBTREES_MAX {
            return Err(EmailFault::TooMany);
        }
        let within = |subtrees: &[&[u8]]| {
            subtrees.iter().try_fold(false, |within, subtree| {
                let subtree = Subtree::read(subtree).ok_or(EmailFault::Constraint)?;
                Ok::<_, EmailFault>(within | subtree.holds(mailbox))
            })
        };
        let excluded = within(&self.excluded)?;
        let permitted = within(&self.permitted)? || self.permitted.is_empty();
        match permitted && !excluded {
            true => Ok(()),
            false => Err(EmailFault::NotAdmitted(mailbox.to_string())),
        }
    }
}

/// Collects the address bases of a sequence of subtrees; returns whether there are others. `minimum` and `maximum` are
/// not allowed.
fn subtrees<'a>(list: &'a [u8], found: &mut Vec<&'a [u8]>) -> Result<bool, DerError> {
    let mut has_others = false;
    let mut list = Reader::new(list);
    while !list.is_empty() {
        let mut subtree = Reader::new(list.expect(der::SEQUENCE)?.value);
        let base = subtree.any()?;
        subtree.end()?;
        match base.tag {
            RFC822_NAME => found.push(base.value),
            DIRECTORY_NAME => {}
            tag if OTHER_FORMS.contains(&tag) => has_others = true,
            _ => return Err(DerError::Value),
        }
    }
    Ok(has_others)
}

fn alternative_addresses(names: Option<&[u8]>) -> Result<Vec<&[u8]>, EmailFault> {
    let mut found = Vec::new();
    let Some(names) = names else {
        return Ok(found);
    };
    let mut names = Reader::new(Reader::new(names).expect(der::SEQUENCE)?.value);
    while !names.is_empty() {
        let name = names.any()?;
        match name.tag {
            RFC822_NAME => found.push(name.value),
            // An address that is not ASCII (RFC 9598); constraints on addresses apply to it too.
            OTHER_NAME if Reader::new(name.value).expect(der::OID)?.value == SMTP_UTF8_MAILBOX => {
                return Err(EmailFault::Address);
            }
            tag if OTHER_FORMS.contains(&tag) => {}
            _ => return Err(DerError::Value.into()),
        }
    }
    Ok(found)
}

fn subject_addresses(subject: &[u8]) -> Result<Vec<&[u8]>, EmailFault> {
    let mut found = Vec::new();
    let mut names = Reader::new(Reader::new(subject).expect(der::SEQUENCE)?.value);
    while !names.is_empty() {
        let mut attributes = Reader::new(names.expect(SET)?.value);
        while !attributes.is_empty() {
            let mut attribute = Reader::new(attributes.expect(der::SEQUENCE)?.value);
            let kind = attribute.expect(der::OID)?.value;
            let value = attribute.any()?;
            if kind != EMAIL_ADDRESS {
                continue;
            }
            match value.tag {
                IA5_STRING | UTF8_STRING | PRINTABLE_STRING => found.push(value.value),
                _ => return Err(EmailFault::Address),
            }
        }
    }
    Ok(found)
}

/// An unambiguous address: without quotes, comments, literals or characters beyond ASCII.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Mailbox<'a> {
    /// Compared byte by byte.
    local: &'a str,
    /// Compared without case.
    host: &'a str,
}

impl<'a> Mailbox<'a> {
    fn read(address: &'a [u8]) -> Option<Self> {
        let (local, host) = std::str::from_utf8(address).ok()?.split_once('@')?;
        let is_atom = |atom: &str| !atom.is_empty() && atom.bytes().all(is_atom_byte);
        (local.split('.').all(is_atom) && is_host(host)).then_some(Self { local, host })
    }
}

impl std::fmt::Display for Mailbox<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}@{}", self.local, self.host)
    }
}

/// A constraint on addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Subtree<'a> {
    /// One address: `root@example.com`.
    Mailbox(Mailbox<'a>),
    /// Every address at this host, but not at hosts below it: `example.com`.
    Host(&'a str),
    /// Every address at hosts below this one, but not at the host itself; with the leading dot: `.example.com`.
    Domain(&'a str),
}

impl<'a> Subtree<'a> {
    fn read(base: &'a [u8]) -> Option<Self> {
        let text = std::str::from_utf8(base).ok()?;
        if text.contains('@') {
            return Mailbox::read(base).map(Self::Mailbox);
        }
        match text.strip_prefix('.') {
            Some(host) => is_host(host).then_some(Self::Domain(text)),
            None => is_host(text).then_some(Self::Host(text)),
        }
    }

    fn holds(self, mailbox: Mailbox<'_>) -> bool {
        match self {
            Self::Mailbox(one) => {
                one.local == mailbox.local && one.host.eq_ignore_ascii_case(mailbox.host)
            }
            Self::Host(host) => host.eq_ignore_ascii_case(mailbox.host),
            Self::Domain(domain) => {
                let at = mailbox.host.len().checked_sub(domain.len());
                at.and_then(|at| mailbox.host.get(at..))
                    .is_some_and(|end| end.eq_ignore_ascii_case(domain))
            }
        }
    }
}

/// RFC 5322, 3.2.3: atext.
fn is_atom_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-/=?^_`{|}~".contains(&byte)
}

fn is_host(host: &str) -> bool {
    let is_label = |label: &str| {
        !label.is_empty()
            && label
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
    };
    host.split('.').all(is_label)
}

/// GeneralName's `[1] rfc822Name`, and the tags of its other forms.
const RFC822_NAME: u8 = 0x81;
const OTHER_NAME: u8 = 0xa0;
const OTHER_FORMS: [u8; 8] = [OTHER_NAME, 0x82, 0xa3, 0xa4, 0xa5, 0x86, 0x87, 0x88];

const SET: u8 = 0x31;
const UTF8_STRING: u8 = 0x0c;
const PRINTABLE_STRING: u8 = 0x13;
const IA5_STRING: u8 = 0x16;

/// 1.2.840.113549.1.9.1.
const EMAIL_ADDRESS: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 9, 1];
/// 1.3.6.1.5.5.7.8.9, id-on-SmtpUTF8Mailbox.
const SMTP_UTF8_MAILBOX: &[u8] = &[0x2b, 6, 1, 5, 5, 7, 8, 9];

/// Maximum number of addresses of one certificate, and of subtrees of one CA. Real paths have few; thousands would be
/// an attack on the proxy's CPU time.
const ADDRESSES_MAX: usize = 64;
const SUBTREES_MAX: usize = 256;

#[cfg(test)]
mod tests;
