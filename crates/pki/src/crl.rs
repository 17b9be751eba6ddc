//! One CRL as an index: issuer, number, dates and a compact set of serials. Its signature is verified once, separately.
//!
//! webpki uses the first CRL with a matching name and verifies its signature over the whole CRL at every handshake (25
//! ms at a million entries). The proxy parses a CRL once; the time of a lookup hardly depends on its size.

use std::cmp::Ordering;
use std::time::Duration;

use rustls_pki_types::UnixTime;

use crate::certificate::{Extension, Signed};
use crate::der::{self, DerError, Reader};
use crate::settings::{CrlExpired, IssuerPolicy};

/// A parsed, unverified CRL. Its signature must be verified with the issuer's key.
#[derive(Debug)]
pub(crate) struct Crl {
    /// The issuer's Name, the whole element.
    pub(crate) issuer: Box<[u8]>,
    /// The content of the CRL number in its shortest form; never negative.
    pub(crate) number: Box<[u8]>,
    pub(crate) this_update: UnixTime,
    /// Required by RFC 5280; a CRL without it never expires.
    pub(crate) next_update: Option<UnixTime>,
    pub(crate) serials: SerialSet,
}

/// Why a CRL cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum CrlError {
    /// Not a CRL.
    #[error(transparent)]
    Der(#[from] DerError),
    /// A well-formed CRL of an unsupported kind.
    #[error(transparent)]
    Unusable(#[from] Unusable),
}

/// Why a well-formed CRL cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Unusable {
    /// Version 1 has no number, so the newer of two CRLs is unknown.
    #[error(
        "it is an X.509 v1 CRL; configure the CA to issue v2 CRLs (openssl: crl_extensions with crlNumber)"
    )]
    Version1,
    /// No CRL number. RFC 5280 §5.2.3 requires one, and it decides which of two CRLs is newer.
    #[error("it has no CRL number")]
    NoNumber,
    /// A CRL number that is negative, over 20 bytes, or marked critical.
    #[error("its CRL number is invalid")]
    BadNumber,
    /// Contains only changes since another CRL.
    #[error("it is a delta CRL; provide the complete CRL")]
    Delta,
    /// Covers only some of the issuer's certificates, or those of other issuers.
    #[error(
        "it is a partitioned or indirect CRL (issuing distribution point); provide the complete CRL"
    )]
    Partitioned,
    /// RFC 5280 §5.2 and §5.3 forbid the use of such a CRL.
    #[error("it has a critical extension that the proxy does not support")]
    CriticalExtension,
}

impl Crl {
    /// Parses a CRL.
    ///
    /// # Errors
    /// Bytes that are not a CRL, or a CRL of an unsupported kind.
    pub(crate) fn read(bytes: &[u8]) -> Result<Self, CrlError> {
        let (tbs, _signed) = Signed::read(bytes)?;
        let mut tbs = Reader::new(tbs);
        let has_version = match tbs.optional(der::INTEGER)? {
            None => false,
            // DER omits the default; OpenSSL scripts can write it.
            Some(version) if version.value == [0] => false,
            Some(version) if version.value == [1] => true,
            Some(_) => return Err(DerError::Value.into()),
        };
        let _algorithm = tbs.expect(der::SEQUENCE)?;
        let issuer = tbs.expect(der::SEQUENCE)?.whole.into();
        let this_update = der::time(tbs.any()?)?;
        let next_update = match tbs.peek() {
            Some(der::UTC_TIME | der::GENERALIZED_TIME) => Some(der::time(tbs.any()?)?),
            _ => None,
        };
        let revoked = tbs.optional(der::SEQUENCE)?;
        let extensions = tbs.optional(der::explicit(0))?;
        tbs.end()?;
        let serials = SerialSet::read(revoked.map_or(&[], |list| list.value))?;
        if !has_version {
            return Err(Unusable::Version1.into());
        }
        let number = match extensions {
            Some(list) => crl_number(list.value)?,
            None => None,
        };
        Ok(Self {
            issuer,
            number: number.ok_or(Unusable::NoNumber)?.into(),
            this_update,
            next_update,
            serials,
        })
    }

    /// Whether `nextUpdate` has passed.
    pub(crate) fn is_expired(&self, now: UnixTime) -> bool {
        self.next_update
            .is_some_and(|next_update| next_update < now)
    }

    /// The last second in which an issuer's policy accepts it; none if the policy sets no end.
    pub(crate) fn accepted_until(&self, policy: IssuerPolicy) -> Option<UnixTime> {
        let grace = match policy.crl_expired {
            // An expired CRL is better than none, and an unchecked issuer needs none.
            _ if policy.unchecked => return None,
            CrlExpired::Warn => return None,
            CrlExpired::Reject => Duration::ZERO,
            CrlExpired::Grace(grace) => grace,
        };
        let end = self.next_update?.as_secs().saturating_add(grace.as_secs());
        Some(UnixTime::since_unix_epoch(Duration::from_secs(end)))
    }

    /// Compares by number, then by date, then by length: of two equal CRLs, the stricter one counts as newer.
    pub(crate) fn age(&self, other: &Self) -> Ordering {
        let by_number = (self.number.len(), &self.number).cmp(&(other.number.len(), &other.number));
        by_number
            .then_with(|| self.this_update.as_secs().cmp(&other.this_update.as_secs()))
            .then_with(|| self.serials.len().cmp(&other.serials.len()))
    }

    pub(crate) fn is_numbered_below(&self, other: &Self) -> bool {
        self.is_numbered_below_number(&other.number)
    }

    pub(crate) fn is_numbered_below_number(&self, number: &[u8]) -> bool {
        (self.number.len(), &*self.number) < (number.len(), number)
    }

    /// The number as decimal if it fits, otherwise hexadecimal.
    pub(crate) fn number_text(&self) -> String {
        match self.number.len() {
            ..=15 => {
                let number = self
                    .number
                    .iter()
                    .fold(0_u128, |n, byte| (n << 8) | u128::from(*byte));
                number.to_string()
            }
            _ => crate::certificate::Serial(&self.number).to_string(),
        }
    }
}

/// Serials of revoked certificates: for each length one run of sorted numbers, without a pointer each.
///
/// A million serials of 20 bytes take 20 MB, and twice that briefly while they are sorted.
#[derive(Debug, Default)]
pub(crate) struct SerialSet {
    /// `(length, sorted numbers without separators)`, for each length.
    runs: Vec<(usize, Box<[u8]>)>,
    /// Number of serials.
    count: usize,
}

impl SerialSet {
    /// Reads the serials of the revoked certificates, entry by entry.
    fn read(list: &[u8]) -> Result<Self, CrlError> {
        let mut serials = Vec::new();
        let mut entries = Reader::new(list);
        while !entries.is_empty() {
            let mut entry = Reader::new(entries.expect(der::SEQUENCE)?.value);
            let serial = der::shortest(entry.expect(der::INTEGER)?.value);
            if serial.is_empty() {
                return Err(DerError::Value.into());
            }
            let _revoked_at = der::time(entry.any()?)?;
            if let Some(extensions) = entry.optional(der::SEQUENCE)? {
                refuse_critical(extensions.value)?;
            }
            entry.end().map_err(CrlError::Der)?;
            serials.push(serial);
        }
        Ok(Self::new(serials))
    }

    /// The set of these serials, each in its shortest form.
    pub(crate) fn new(mut serials: Vec<&[u8]>) -> Self {
        serials.sort_unstable_by(|a, b| a.len().cmp(&b.len()).then_with(|| a.cmp(b)));
        serials.dedup();
        let runs = serials
            .chunk_by(|a, b| a.len() == b.len())
            .map(|run| (run[0].len(), run.concat().into_boxed_slice()))
            .collect();
        Self {
            runs,
            count: serials.len(),
        }
    }

    /// Whether the set contains a serial in its shortest form.
    pub(crate) fn contains(&self, serial: &[u8]) -> bool {
        let Some((length, run)) = self.runs.iter().find(|(length, _)| *length == serial.len())
        else {
            return false;
        };
        let (mut low, mut high) = (0, run.len() / length);
        while low < high {
            let middle = low + (high - low) / 2;
            match run[middle * length..(middle + 1) * length].cmp(serial) {
                Ordering::Equal => return true,
                Ordering::Less => low = middle + 1,
                Ordering::Greater => high = middle,
            }
        }
        false
    }

    /// The serials, by length and then by value.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &[u8]> {
        let runs = self.runs.iter();
        runs.flat_map(|(length, run)| run.chunks_exact(*length))
    }

    /// Size of the serials in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.runs.iter().map(|(_, run)| run.len()).sum()
    }

    /// Number of serials.
    pub(crate) fn len(&self) -> usize {
        self.count
    }
}

/// The CRL number in a CRL's extensions. Refuses the kinds of CRL that are incomplete.
fn crl_number(explicit: &[u8]) -> Result<Option<&[u8]>, CrlError> {
    let mut outer = Reader::new(explicit);
    let mut list = Reader::new(outer.expect(der::SEQUENCE)?.value);
    outer.end()?;
    let mut number = None;
    while !list.is_empty() {
        let extension = Extension::read(list.any()?)?;
        match extension.id {
            CRL_NUMBER => {
                let mut value = Reader::new(extension.value);
                let integer = der::shortest(value.expect(der::INTEGER)?.value);
                value.end()?;
                let negative = integer.first().is_none_or(|first| first & 0x80 != 0);
                if negative
                    || extension.critical
                    || number.is_some()
                    || integer.len() > CRL_NUMBER_BYTES_MAX
                {
                    return Err(Unusable::BadNumber.into());
                }
                number = Some(without_sign(integer));
            }
            DELTA_CRL_INDICATOR => return Err(Unusable::Delta.into()),
            ISSUING_DISTRIBUTION_POINT => return Err(Unusable::Partitioned.into()),
            _ if extension.critical => return Err(Unusable::CriticalExtension.into()),
            _ => {}
        }
    }
    Ok(number)
}

/// A positive number without its sign byte, so that a longer one is greater.
fn without_sign(integer: &[u8]) -> &[u8] {
    match integer {
        [0, digits @ ..] => digits,
        digits => digits,
    }
}

fn refuse_critical(extensions: &[u8]) -> Result<(), CrlError> {
    let mut list = Reader::new(extensions);
    while !list.is_empty() {
        let extension = Extension::read(list.any()?)?;
        match (extension.id, extension.critical) {
            (CERTIFICATE_ISSUER, _) => return Err(Unusable::Partitioned.into()),
            // A critical reason or date changes nothing: a listed serial is revoked for any reason.
            (REASON_CODE | INVALIDITY_DATE, _) | (_, false) => {}
            (_, true) => return Err(Unusable::CriticalExtension.into()),
        }
    }
    Ok(())
}

const CRL_NUMBER: &[u8] = &[0x55, 0x1d, 20];
pub(crate) const REASON_CODE: &[u8] = &[0x55, 0x1d, 21];
const INVALIDITY_DATE: &[u8] = &[0x55, 0x1d, 24];
const DELTA_CRL_INDICATOR: &[u8] = &[0x55, 0x1d, 27];
const ISSUING_DISTRIBUTION_POINT: &[u8] = &[0x55, 0x1d, 28];
const CERTIFICATE_ISSUER: &[u8] = &[0x55, 0x1d, 29];

/// RFC 5280 §5.2.3: at most 20 octets, plus one for the sign.
const CRL_NUMBER_BYTES_MAX: usize = 21;

#[cfg(test)]
mod tests;
