//! Rules by which older CRLs of an issuer no longer apply, because an operator accepted another CRL in their place.

use std::{fmt, str::FromStr};

use rustls_pki_types::UnixTime;

use crate::fingerprint::Fingerprint;
use crate::indexed_crl::IndexedCrl;

/// An operator's decision that an issuer's CRLs up to the then active one no longer apply, because the operator
/// accepted a CRL with a lower number. Without the rule, the next start would load the old CRL from a file again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SetAsideRule {
    pub(crate) issuer: Fingerprint,
    /// The accepted CRL.
    pub(crate) accepted: Fingerprint,
    /// Its number. CRLs with a lower number need no rule.
    pub(crate) number: Box<[u8]>,
    /// When the newest of the set-aside CRLs was issued. CRLs that the CA issues later apply.
    pub(crate) made: UnixTime,
    /// Digest of that newest CRL. Dates have a resolution of one second, and another CRL of the same second applies.
    /// None in rules that an older version wrote: then no CRL of that second applies.
    pub(crate) replaced: Option<Fingerprint>,
}

/// The text is not a stored rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("its content has changed since the proxy wrote it")]
pub struct SetAsideError;

impl SetAsideRule {
    /// Whether an operator replaced exactly this CRL. Other CRLs that the rule would set aside in a file may be the
    /// CA's newest, if its clock was set back.
    pub(crate) fn replaced(&self, issuer: Fingerprint, crl: &IndexedCrl) -> bool {
        self.issuer == issuer && self.replaced == Some(crl.fingerprint)
    }

    /// Whether the rule sets this CRL of this issuer aside.
    pub(crate) fn covers(&self, issuer: Fingerprint, crl: &IndexedCrl) -> bool {
        let (made, newest) = (crl.crl.this_update.as_secs(), self.made.as_secs());
        let is_replaced = |replaced| replaced == crl.fingerprint;
        self.issuer == issuer
            && self.accepted != crl.fingerprint
            && !crl.crl.is_numbered_below_number(&self.number)
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
