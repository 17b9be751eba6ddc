//! Rules that exclude older CRLs of an issuer, because an operator has accepted another CRL in their place.

use std::{cmp::Ordering, fmt, str::FromStr};

use rustls_pki_types::UnixTime;

use crate::fingerprint::{Fingerprint, bytes_of_hex};
use crate::indexed_crl::{CrlOrigin, IndexedCrl};

/// An operator's decision to accept a CRL that drops revocations. The issuer's CRLs up to the one that was active then are no
/// longer used. Without the rule, an old copy in a file would revoke the dropped serials again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SetAsideRule {
    pub(crate) issuer: Fingerprint,
    /// Digest of the accepted CRL.
    pub(crate) accepted: Fingerprint,
    pub(crate) scope: SetAsideScope,
    /// The number of the accepted CRL, if it has one.
    pub(crate) number: Option<Box<[u8]>>,
    /// When the newest of the set-aside CRLs was issued. CRLs that the CA issues later apply.
    pub(crate) made: UnixTime,
    /// Digest of that newest CRL, unless it is the accepted one. The digest is needed because dates have a resolution of one
    /// second, and another CRL from the same second is still used.
    pub(crate) replaced: Option<Fingerprint>,
}

/// Which older CRLs a rule may set aside. An operator who accepts the CA's response does not drop revocations that a file
/// provides. If the response is the infrastructure CRL, its numbers are independent of those in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SetAsideScope {
    /// All CRLs. Used if only files provide CRLs.
    All,
    /// CRLs from files.
    Files,
    /// CRLs that the proxy or another process has fetched.
    Fetched,
}

impl SetAsideScope {
    fn includes(self, origin: CrlOrigin) -> bool {
        match self {
            Self::All => true,
            Self::Files => origin == CrlOrigin::File,
            Self::Fetched => origin != CrlOrigin::File,
        }
    }
}

/// The text is not a stored rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("its content has changed since the proxy wrote it")]
pub struct SetAsideError;

impl SetAsideRule {
    /// Whether this is the same decision as a stored rule. The stored rule may have accepted another CRL.
    #[must_use]
    pub fn continues(&self, stored: &str) -> bool {
        let stored = stored.parse().map(|stored: Self| Self {
            accepted: self.accepted,
            ..stored
        });
        stored.as_ref() == Ok(self)
    }

    /// Whether this rule sets aside everything that another rule for the same issuer sets aside.
    pub(crate) fn includes(&self, other: &Self) -> bool {
        let is_below = match (&self.number, &other.number) {
            (Some(own), Some(other)) => (other.len(), other) <= (own.len(), own),
            (None, None) => true,
            _ => false,
        };
        let are_by_age = self.replaced.is_none() && other.replaced.is_none();
        are_by_age && self.scope == other.scope && self.made >= other.made && is_below
    }

    /// Whether the rule sets aside this CRL of its issuer.
    fn covers(&self, crl: &IndexedCrl) -> bool {
        if self.replaced == Some(crl.fingerprint) {
            return true;
        }
        if !self.scope.includes(crl.origin) {
            return false;
        }
        let (made, newest) = (crl.crl.this_update.as_secs(), self.made.as_secs());
        let by_number = crl.crl.compare_number(self.number.as_deref());
        // If the numbers are equal or missing, the date decides.
        let is_below = match by_number.unwrap_or(Ordering::Equal) {
            Ordering::Less => true,
            Ordering::Equal => made < newest,
            Ordering::Greater => false,
        };
        match self.replaced {
            // The accepted CRL was the newest one, so CRLs that are older by number and by date are set aside.
            None => made <= newest && is_below,
            // The CA was restored. A CRL with a date before that of the replaced CRL is a copy from before, and is set aside.
            // The exception is a fetched CRL with a higher number than the accepted one: the CA has signed it later, after its
            // clock was set back.
            Some(_) => made < newest && (is_below || crl.origin != CrlOrigin::Fetched),
        }
    }
}

/// Whether this CRL is not used, because an operator has accepted another CRL of the issuer in its place.
pub(crate) fn is_set_aside(rules: &[SetAsideRule], issuer: Fingerprint, crl: &IndexedCrl) -> bool {
    let mut of_issuer = rules.iter().filter(|rule| rule.issuer == issuer);
    let is_accepted = |rule: &SetAsideRule| rule.accepted == crl.fingerprint;
    !of_issuer.clone().any(is_accepted) && of_issuer.any(|rule| rule.covers(crl))
}

impl fmt::Display for SetAsideRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} ", self.issuer, self.accepted)?;
        match &self.number {
            Some(number) => number.iter().try_for_each(|byte| write!(f, "{byte:02x}"))?,
            None => f.write_str(NO_NUMBER)?,
        }
        write!(f, " {}", self.made.as_secs())?;
        if let Some(replaced) = &self.replaced {
            write!(f, " {replaced}")?;
        }
        match self.scope {
            SetAsideScope::All => Ok(()),
            SetAsideScope::Files => write!(f, " {FILES}"),
            SetAsideScope::Fetched => write!(f, " {FETCHED}"),
        }
    }
}

impl FromStr for SetAsideRule {
    type Err = SetAsideError;

    fn from_str(text: &str) -> Result<Self, SetAsideError> {
        let mut words: Vec<_> = text.split(' ').collect();
        let scope = match words.last() {
            Some(&FILES) => SetAsideScope::Files,
            Some(&FETCHED) => SetAsideScope::Fetched,
            _ => SetAsideScope::All,
        };
        words.truncate(words.len() - usize::from(scope != SetAsideScope::All));
        let (issuer, accepted, number, made, replaced) = match words[..] {
            [issuer, accepted, number, made] => (issuer, accepted, number, made, None),
            [issuer, accepted, number, made, replaced] => {
                (issuer, accepted, number, made, Some(fingerprint(replaced)?))
            }
            _ => return Err(SetAsideError),
        };
        let seconds = made.parse().map_err(|_| SetAsideError)?;
        Ok(Self {
            issuer: fingerprint(issuer)?,
            accepted: fingerprint(accepted)?,
            scope,
            number: match number {
                NO_NUMBER => None,
                number => Some(bytes_of_hex(number).ok_or(SetAsideError)?.into()),
            },
            made: UnixTime::since_unix_epoch(std::time::Duration::from_secs(seconds)),
            replaced,
        })
    }
}

fn fingerprint(hex: &str) -> Result<Fingerprint, SetAsideError> {
    let bytes = bytes_of_hex(hex).and_then(|bytes| bytes.try_into().ok());
    bytes.map(Fingerprint::from_bytes).ok_or(SetAsideError)
}

/// Written in place of the number if the CRL has none.
const NO_NUMBER: &str = "none";
/// The last word of a rule for files.
const FILES: &str = "files";
/// The last word of a rule for fetched CRLs.
const FETCHED: &str = "fetched";
