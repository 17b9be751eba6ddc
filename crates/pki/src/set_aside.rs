//! Rules by which older CRLs of an issuer no longer count, because an operator accepted another CRL in their place.

use std::{cmp::Ordering, fmt, str::FromStr};

use rustls_pki_types::UnixTime;

use crate::fingerprint::{Fingerprint, bytes_of_hex};
use crate::indexed_crl::{CrlOrigin, IndexedCrl};

/// An operator's decision that an issuer's CRLs up to the then active one no longer count, because the operator accepted
/// a CRL that drops revocations. Without the rule, an old copy in a file would revoke the dropped serials again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SetAsideRule {
    pub(crate) issuer: Fingerprint,
    /// The accepted CRL.
    pub(crate) accepted: Fingerprint,
    pub(crate) scope: SetAsideScope,
    /// Its number, if it has one.
    pub(crate) number: Option<Box<[u8]>>,
    /// When the newest of the set-aside CRLs was issued. CRLs that the CA issues later apply.
    pub(crate) made: UnixTime,
    /// Digest of that newest CRL, unless it is the accepted one. Dates have a resolution of one second, and another CRL of
    /// the same second counts.
    pub(crate) replaced: Option<Fingerprint>,
}

/// Which CRLs a rule may set aside for being older. An operator who accepts the CA's response does not drop revocations
/// that a file provides. If the response is the infrastructure CRL, the numbers of the two are independent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SetAsideScope {
    /// Only files provided CRLs.
    All,
    /// CRLs of files.
    Files,
    /// Other CRLs.
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
    /// Whether it is the same decision as a stored rule, which may have accepted other CRLs.
    #[must_use]
    pub fn continues(&self, stored: &str) -> bool {
        let stored = stored.parse().map(|stored: Self| Self {
            accepted: self.accepted,
            ..stored
        });
        stored.as_ref() == Ok(self)
    }

    /// Whether it sets aside everything that another rule of its issuer sets aside.
    pub(crate) fn includes(&self, other: &Self) -> bool {
        let is_below = match (&self.number, &other.number) {
            (Some(own), Some(other)) => (other.len(), other) <= (own.len(), own),
            (None, None) => true,
            _ => false,
        };
        let are_by_age = self.replaced.is_none() && other.replaced.is_none();
        are_by_age && self.scope == other.scope && self.made >= other.made && is_below
    }

    /// Whether the rule sets this CRL of its issuer aside.
    fn covers(&self, crl: &IndexedCrl) -> bool {
        if self.replaced == Some(crl.fingerprint) {
            return true;
        }
        if !self.scope.includes(crl.origin) {
            return false;
        }
        let (made, newest) = (crl.crl.this_update.as_secs(), self.made.as_secs());
        let by_number = crl.crl.compare_number(self.number.as_deref());
        // Without a difference, the date decides.
        let is_below = match by_number.unwrap_or(Ordering::Equal) {
            Ordering::Less => true,
            Ordering::Equal => made < newest,
            Ordering::Greater => false,
        };
        match self.replaced {
            // The accepted CRL was the newest itself: those before it are older by number and by date.
            None => made <= newest && is_below,
            // A copy of a CRL from before the CA was restored. The CA itself may sign one whose date lies before,
            // because its clock was set back: that one counts, and so does its number.
            Some(_) => made < newest && (is_below || crl.origin != CrlOrigin::Fetched),
        }
    }
}

/// Whether an operator has accepted other CRLs of the issuer in place of this one, so that it does not count.
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

/// In place of the number of a CRL without one.
const NO_NUMBER: &str = "none";
/// At the end of a rule for files.
const FILES: &str = "files";
/// At the end of a rule for fetched CRLs.
const FETCHED: &str = "fetched";
