//! Name constraints on directory names (RFC 5280, 4.2.1.10).
//!
//! webpki does not support them, and refuses every certificate below one. A name is within a subtree if it begins with the
//! attributes of the subtree (X.501), compared as OpenSSL compares them: without case and without additional blanks. Names of
//! other forms than Puppet and OpenSSL write are refused below such a constraint, because nothing shows whether they match.

use crate::certificate::Certificate;
use crate::der::{self, DerError, Reader};

/// The constraints of the CAs above a certificate, collected from the anchor down.
#[derive(Debug, Default)]
pub(crate) struct DirectoryConstraints {
    of: Vec<DirectoryConstraint>,
}

/// The subtrees of one CA.
#[derive(Debug, Default)]
struct DirectoryConstraint {
    permitted: Vec<Attributes>,
    excluded: Vec<Attributes>,
}

/// The attributes of a name from its beginning: OID and text.
type Attributes = Vec<(Vec<u8>, String)>;

/// Why the constraints do not permit a certificate.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum DirectoryFault {
    /// The extension, the alternative names or the subject.
    #[error(
        "a CA above it has name constraints on directory names, and they or its names cannot be compared: each part of a \
         name must be one UTF8String, PrintableString or IA5String"
    )]
    Unreadable(#[from] DerError),
    /// Too many to compare.
    #[error(
        "it has more than {NAMES_MAX} directory names, or a CA above it more than {SUBTREES_MAX} constraints on them"
    )]
    TooMany,
    /// A name in an excluded subtree, or in no permitted one.
    #[error("the name constraints of a CA above it do not permit its directory name \"{0}\"")]
    NotAdmitted(String),
}

/// Whether this module understands the directory names of these NameConstraints (the whole element).
pub(crate) fn is_readable(name_constraints: &[u8]) -> bool {
    DirectoryConstraint::read(name_constraints).is_ok()
}

impl DirectoryConstraints {
    /// Adds a CA's NameConstraints (the whole element), which apply to all certificates below it.
    ///
    /// # Errors
    /// An extension that violates RFC 5280, and names that cannot be compared.
    pub(crate) fn add(&mut self, name_constraints: Option<&[u8]>) -> Result<(), DirectoryFault> {
        let Some(extension) = name_constraints else {
            return Ok(());
        };
        let constraint = DirectoryConstraint::read(extension)?;
        if constraint.permitted.len() + constraint.excluded.len() > SUBTREES_MAX {
            return Err(DirectoryFault::TooMany);
        }
        self.of.push(constraint);
        Ok(())
    }

    /// Checks the subject and the alternative names of a certificate against all constraints.
    ///
    /// # Errors
    /// A name that is not permitted, and unreadable input.
    pub(crate) fn check(&self, certificate: &Certificate<'_>) -> Result<(), DirectoryFault> {
        let mut subtrees = self
            .of
            .iter()
            .flat_map(|one| one.permitted.iter().chain(&one.excluded));
        if subtrees.next().is_none() {
            return Ok(());
        }
        let mut names = vec![certificate.subject];
        if let Some(alternative) = certificate.extensions.subject_alt_name {
            let mut list = Reader::new(Reader::new(alternative).expect(der::SEQUENCE)?.value);
            while !list.is_empty() {
                let name = list.any()?;
                if name.tag == DIRECTORY_NAME {
                    names.push(name.value);
                }
            }
        }
        if names.len() > NAMES_MAX {
            return Err(DirectoryFault::TooMany);
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

impl DirectoryConstraint {
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
                // Neither `minimum` nor `maximum` is allowed.
                subtree.end()?;
                if base.tag == DIRECTORY_NAME {
                    found.push(attributes(base.value)?);
                }
            }
        }
        lists.end()?;
        Ok(constraint)
    }

    fn check(&self, name: &Attributes) -> Result<(), DirectoryFault> {
        let within = |subtrees: &[Attributes]| subtrees.iter().any(|base| name.starts_with(base));
        let permitted = self.permitted.is_empty() || within(&self.permitted);
        match permitted && !within(&self.excluded) {
            true => Ok(()),
            false => {
                let texts: Vec<_> = name.iter().map(|(_, text)| text.as_str()).collect();
                Err(DirectoryFault::NotAdmitted(texts.join(", ")))
            }
        }
    }
}

/// The attributes of a Name (the whole element), each alone in its RDN.
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

/// GeneralName's `[4] directoryName`.
pub(crate) const DIRECTORY_NAME: u8 = 0xa4;

const SET: u8 = 0x31;
const UTF8_STRING: u8 = 0x0c;
const PRINTABLE_STRING: u8 = 0x13;
const IA5_STRING: u8 = 0x16;

/// Maximum number of directory names of one certificate, and of subtrees of one CA. Real paths have few; thousands would be
/// an attack on the proxy's CPU time.
const NAMES_MAX: usize = 64;
const SUBTREES_MAX: usize = 256;
