//! Rules by which older CRLs of an issuer no longer apply, because an operator accepted another CRL in their place.

use std::{fmt, str::FromStr};

use rustls_pki_types::UnixTime;

use crate::fingerprint::Fingerprint;
use crate::indexed_crl::IndexedCrl;

/// What an operator has said no longer counts: an issuer's lists up to one that was in force, for a list with a lower
/// number took its place. Without it the next start would find the old one in a file and put it in force.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SetAsideRule {
    pub(crate) issuer: Fingerprint,
    /// The list that was accepted.
    pub(crate) accepted: Fingerprint,
    /// Its number: nothing below it has to be set aside.
    pub(crate) number: Box<[u8]>,
    /// When the newest of those set aside was made: whatever the CA makes later counts.
    pub(crate) made: UnixTime,
    /// That newest one: dates have seconds, and another that was made within the same one counts. None where a version
    /// that did not know wrote it: then none of that second counts.
    pub(crate) replaced: Option<Fingerprint>,
}

/// A text that is none of what was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("its content has changed since the proxy wrote it")]
pub struct SetAsideError;

impl SetAsideRule {
    /// Whether a list is the very one that an operator has replaced. Others that would be set aside in a file may be the
    /// CA's newest: its clock may be behind what it was.
    pub(crate) fn replaced(&self, issuer: Fingerprint, list: &IndexedCrl) -> bool {
        self.issuer == issuer && self.replaced == Some(list.fingerprint)
    }

    /// Whether a list of this issuer is one of those that no longer count.
    pub(crate) fn covers(&self, issuer: Fingerprint, list: &IndexedCrl) -> bool {
        let (made, newest) = (list.crl.this_update.as_secs(), self.made.as_secs());
        let is_replaced = |replaced| replaced == list.fingerprint;
        self.issuer == issuer
            && self.accepted != list.fingerprint
            && !list.crl.is_numbered_below_number(&self.number)
            && (made < newest || made == newest && self.replaced.is_none_or(is_replaced))
    }
}

impl fmt::Display for SetAsideRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} ", self.issuer, self.accepted)?;
        self.number
            .iter()
            .try_for_each(|byte| write!(f, "{byte:02x}"))?;
        write!(f, " {}", self.made.as_secs())?;
        match &self.replaced {
            Some(replaced) => write!(f, " {replaced}"),
            None => Ok(()),
        }
    }
}

impl FromStr for SetAsideRule {
    type Err = SetAsideError;

    fn from_str(text: &str) -> Result<Self, SetAsideError> {
        let words: Vec<_> = text.split(' ').collect();
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
            number: bytes(number)?.into(),
            made: UnixTime::since_unix_epoch(std::time::Duration::from_secs(seconds)),
            replaced,
        })
    }
}

fn fingerprint(hex: &str) -> Result<Fingerprint, SetAsideError> {
    let bytes = bytes(hex)?.try_into().map_err(|_| SetAsideError)?;
    Ok(Fingerprint::from_bytes(bytes))
}

fn bytes(hex: &str) -> Result<Vec<u8>, SetAsideError> {
    let digits: Option<Vec<u32>> = hex.chars().map(|digit| digit.to_digit(16)).collect();
    match digits {
        Some(digits) if digits.len() % 2 == 0 => Ok(digits
            .chunks_exact(2)
            .map(|pair| (pair[0] << 4 | pair[1]) as u8)
            .collect()),
        _ => Err(SetAsideError),
    }
}
