//! Information about one certificate: its entries in CRLs, with dates and reasons.

use std::sync::Arc;

use identity::{Certname, Reason};
use rustls_pki_types::UnixTime;

use crate::certificate::{Certificate, Extension, Serial};
use crate::crl::{CrlError, REASON_CODE};
use crate::deny::SerialNumber;
use crate::der::{self, DerError, Reader};
use crate::pem::{self, Named};
use crate::refusal::claimed_certname;
use crate::store::{ActiveCrlStatus, TrustStore};

/// The result of looking up a serial in the active CRLs of one issuer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CrlListing {
    /// The CRL that lists the serial, or else the newest CRL. None if the issuer has no CRL.
    pub crl: Option<ActiveCrlStatus>,
    /// Whether the serial is revoked, by this CRL or by an earlier one. An earlier revocation counts until an operator accepts
    /// that it was dropped.
    pub is_listed: bool,
}

/// A serial's entry in a CRL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CrlEntry {
    /// When the certificate was revoked.
    pub revoked_at: UnixTime,
    /// The reason in the terms of RFC 5280 (5.3.1); none if the CRL gives no reason.
    pub reason: Option<&'static str>,
}

impl TrustStore {
    /// The result for the serial in the CRLs of each CA with this name. There are several such CAs after a renewal with another
    /// key.
    pub fn listings(&self, issuer: &str, serial: &SerialNumber, now: UnixTime) -> Vec<CrlListing> {
        let named = self
            .anchors
            .bundle
            .issuers
            .values()
            .filter(|ca| ca.text == issuer);
        let listing = |ca: &Arc<crate::bundle::Issuer>| {
            let crls = self.revocation.crls_of(ca);
            let crls = crls.as_deref();
            let listing = crls.map(|crls| crls.listing(serial.content()).unwrap_or(&crls.newest));
            CrlListing {
                is_listed: self.revocation.revokes(ca, serial.content()),
                crl: crls
                    .zip(listing)
                    .map(|(crls, listing)| self.revocation.crl_status(crls, listing, now)),
            }
        };
        named.map(listing).collect()
    }

    /// Why a certificate is refused because of its own name, serial and digest: its issuer's CRL, or a block. The function is
    /// meant for many certificates at once. It does not check the CAs above a certificate, and if several CAs have the issuer's
    /// name, the CRL of each must list the serial.
    pub fn is_out(
        &self,
        certname: &str,
        (issuer, serial): (&str, &SerialNumber),
        fingerprint: &[u8; 32],
        now: UnixTime,
    ) -> Option<Reason> {
        let mut named = self
            .anchors
            .bundle
            .issuers
            .values()
            .filter(|ca| ca.text == issuer);
        let is_listed =
            |ca: &Arc<crate::bundle::Issuer>| self.revocation.revokes(ca, serial.content());
        if named.next().is_some_and(is_listed) && named.all(is_listed) {
            return Some(Reason::Revoked);
        }
        let deny = self.deny_list();
        if deny.is_empty() {
            return None;
        }
        let by_name = || deny.of_certname(&Certname::parse(certname).ok()?, now);
        let blocked = deny
            .of_fingerprint(fingerprint, now)
            .or_else(|| deny.of_serial(issuer, serial.content(), now))
            .or_else(by_name);
        blocked.map(|_| Reason::Blocked)
    }
}

/// The content of a certificate, verified or not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateFacts {
    /// Its subject (RFC 2253).
    pub subject: String,
    /// The certname, if the subject is a certname by the rules of Puppet's CA.
    pub certname: Option<String>,
    /// Its serial in hexadecimal.
    pub serial: String,
    /// Its issuer (RFC 2253).
    pub issuer: String,
    /// Start of its validity period.
    pub not_before: UnixTime,
    /// End of its validity period.
    pub not_after: UnixTime,
}

/// The content of a certificate; none for bytes that are not a certificate.
pub fn facts_of(der: &[u8]) -> Option<CertificateFacts> {
    let certificate = Certificate::read(der).ok()?;
    Some(CertificateFacts {
        subject: crate::subject_text(certificate.subject),
        certname: claimed_certname(der).map(|name| name.to_string()),
        serial: Serial(certificate.serial).to_string(),
        issuer: crate::subject_text(certificate.issuer),
        not_before: certificate.not_before,
        not_after: certificate.not_after,
    })
}

/// Looks up a serial in CRLs in PEM. It is slow, but the index stores neither dates nor reasons.
///
/// Unreadable input has no entry. This function does not decide whether a serial is revoked.
pub fn crl_entry_in_pem(
    lists: &Named<Vec<u8>>,
    issuer: &str,
    serial: &SerialNumber,
) -> Option<CrlEntry> {
    let blocks = pem::crls(lists).ok()?;
    let mut lists = blocks.iter();
    lists.find_map(|block| crl_entry_in_der(&block.der, issuer, serial))
}

/// Like [`crl_entry_in_pem`], for the DER of one CRL.
pub fn crl_entry_in_der(list: &[u8], issuer: &str, serial: &SerialNumber) -> Option<CrlEntry> {
    let found = entry_of(list, issuer, serial.content());
    found.ok().flatten()
}

fn entry_of(list: &[u8], issuer: &str, wanted: &[u8]) -> Result<Option<CrlEntry>, CrlError> {
    let (tbs, _signed) = crate::certificate::Signed::read(list)?;
    let mut tbs = Reader::new(tbs);
    let _version = tbs.optional(der::INTEGER)?;
    let _algorithm = tbs.expect(der::SEQUENCE)?;
    let name = tbs.expect(der::SEQUENCE)?.whole;
    if crate::subject_text(name) != issuer {
        return Ok(None);
    }
    let _this_update = der::time(tbs.any()?)?;
    if let Some(der::UTC_TIME | der::GENERALIZED_TIME) = tbs.peek() {
        let _next_update = tbs.any()?;
    }
    let Some(revoked) = tbs.optional(der::SEQUENCE)? else {
        return Ok(None);
    };
    let mut entries = Reader::new(revoked.value);
    while !entries.is_empty() {
        let mut entry = Reader::new(entries.expect(der::SEQUENCE)?.value);
        let serial = der::shortest(entry.expect(der::INTEGER)?.value);
        if serial != wanted {
            continue;
        }
        return Ok(Some(CrlEntry {
            revoked_at: der::time(entry.any()?)?,
            reason: reason(entry.optional(der::SEQUENCE)?)?,
        }));
    }
    Ok(None)
}

fn reason(extensions: Option<der::Element<'_>>) -> Result<Option<&'static str>, DerError> {
    let mut list = Reader::new(extensions.map_or(&[], |extensions| extensions.value));
    while !list.is_empty() {
        let extension = Extension::read(list.any()?)?;
        if extension.id == REASON_CODE {
            let code = Reader::new(extension.value).expect(ENUMERATED)?.value;
            return Ok(match code {
                [code] => REASONS.get(usize::from(*code)).copied(),
                _ => None,
            });
        }
    }
    Ok(None)
}

const ENUMERATED: u8 = 0x0a;

/// CRLReason of RFC 5280 (5.3.1) by number; 7 is not used.
const REASONS: [&str; 11] = [
    "unspecified",
    "keyCompromise",
    "cACompromise",
    "affiliationChanged",
    "superseded",
    "cessationOfOperation",
    "certificateHold",
    "7",
    "removeFromCRL",
    "privilegeWithdrawn",
    "aACompromise",
];
