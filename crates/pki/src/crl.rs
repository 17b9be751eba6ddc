//! One CRL as an index: issuer, number, dates and a compact set of serials. Its signature is verified once, separately.
//!
//! webpki uses the first CRL with a matching name and verifies its signature over the whole CRL at every handshake (25 ms for a
//! million entries). The proxy parses a CRL once, and the time of a lookup hardly depends on the size of the CRL.

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
    /// The content of the CRL number in its shortest form. It is never negative. None if the CA does not number its CRLs.
    pub(crate) number: Option<Box<[u8]>>,
    pub(crate) this_update: UnixTime,
    /// The `nextUpdate` date. RFC 5280 requires it; a CRL without it never expires.
    pub(crate) next_update: Option<UnixTime>,
    pub(crate) serials: SerialSet,
}

/// Why a CRL cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum CrlError {
    /// The bytes are not a CRL.
    #[error(transparent)]
    Der(#[from] DerError),
    /// A well-formed CRL of an unsupported kind.
    #[error(transparent)]
    Unusable(#[from] Unusable),
}

/// Why a well-formed CRL cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Unusable {
    /// The CRL number is negative, longer than 20 bytes, or marked critical.
    #[error("its CRL number is invalid")]
    BadNumber,
    /// The CRL contains only changes since another CRL.
    #[error("it is a delta CRL; provide the complete CRL")]
    Delta,
    /// The CRL covers only some of the issuer's certificates, or certificates of other issuers.
    #[error(
        "it is a partitioned or indirect CRL (issuing distribution point); provide the complete CRL"
    )]
    Partitioned,
    /// RFC 5280 §5.2 and §5.3 forbid the use of a CRL with an unknown critical extension.
    #[error("it has a critical extension that the proxy does not support")]
    CriticalExtension,
}

impl Crl {
    /// Parses a CRL.
    ///
    /// # Errors
    /// The bytes are not a CRL, or a CRL of an unsupported kind.
    pub(crate) fn read(bytes: &[u8]) -> Result<Self, CrlError> {
        let (tbs, _signed) = Signed::read(bytes)?;
        let mut tbs = Reader::new(tbs);
        match tbs.optional(der::INTEGER)? {
            // Version 1 has no extensions, so it covers all certificates of its issuer.
            None => {}
            // DER requires that the default is left out, but OpenSSL scripts can write it.
            Some(version) if version.value == [0] || version.value == [1] => {}
            Some(_) => return Err(DerError::Value.into()),
        }
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
        let number = match extensions {
            Some(list) => crl_number(list.value)?,
            None => None,
        };
        Ok(Self {
            issuer,
            number: number.map(Into::into),
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

    /// The last second in which an issuer's policy accepts the CRL; none if the policy sets no end.
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

    /// Compares the ages of two CRLs of one issuer: by number if both have a number, then by date, then by the number of
    /// entries. With equal numbers and dates, the CRL with more entries counts as newer, because it is stricter. If only some
    /// CRLs have numbers, this order is not transitive, so it must not be used for sorting.
    pub(crate) fn age(&self, other: &Self) -> Ordering {
        let by_number = match (&self.number, &other.number) {
            (Some(one), Some(other)) => (one.len(), one).cmp(&(other.len(), other)),
            _ => Ordering::Equal,
        };
        by_number
            .then_with(|| self.this_update.as_secs().cmp(&other.this_update.as_secs()))
            .then_with(|| self.serials.len().cmp(&other.serials.len()))
    }

    /// Whether this CRL has a lower number than the other. If one of them has no number, whether its date is earlier.
    pub(crate) fn is_before(&self, other: &Self) -> bool {
        let by_date = || self.this_update.as_secs() < other.this_update.as_secs();
        let by_number = self.compare_number(other.number.as_deref());
        by_number.map_or_else(by_date, Ordering::is_lt)
    }

    /// Compares the number of this CRL with another number. None if one of the two is missing.
    pub(crate) fn compare_number(&self, number: Option<&[u8]>) -> Option<Ordering> {
        let (own, other) = (self.number.as_deref()?, number?);
        Some((own.len(), own).cmp(&(other.len(), other)))
    }

    /// The number in decimal if it fits, otherwise in hexadecimal. `none` if there is no number.
    pub(crate) fn number_text(&self) -> String {
        match self.number.as_deref() {
            None => "none".to_owned(),
            Some(number) if number.len() <= 15 => {
                let digits = number.iter();
                let number = digits.fold(0_u128, |n, byte| (n << 8) | u128::from(*byte));
                number.to_string()
            }
            Some(number) => crate::certificate::Serial(number).to_string(),
        }
    }
}

/// Serials of revoked certificates. All serials of one length are stored as one run of sorted numbers, without a pointer for
/// each.
///
/// A million serials of 20 bytes need 20 MB, and twice as much for a moment while they are sorted.
#[derive(Debug, Default)]
pub(crate) struct SerialSet {
    /// For each length: the length, and the sorted numbers without separators.
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

/// Reads the CRL number from the extensions of a CRL. It refuses CRLs that do not list all revocations of their issuer, such as
/// delta CRLs.
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

/// A positive number without its sign byte, so that the longer of two numbers is the greater one.
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
            // A critical reason or date makes no difference, because a listed serial counts as revoked whatever the reason.
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

/// RFC 5280 §5.2.3 allows at most 20 octets. One more is for the sign.
const CRL_NUMBER_BYTES_MAX: usize = 21;

#[cfg(test)]
mod tests;
