//! Extensions about certificate policies that a CA certificate marks as critical.
//!
//! webpki refuses a certificate with such extensions. The proxy requires no policy. By RFC 5280, 6.1, every path is then valid
//! whatever these extensions contain, unless one of them requires an explicit policy. OpenSSL, nginx and HAProxy accept such
//! CAs too.

use identity::dotted_oid;

use crate::certificate::{
    BASIC_CONSTRAINTS, Certificate, EXTENDED_KEY_USAGE, Extension, KEY_USAGE, NAME_CONSTRAINTS,
    SUBJECT_ALT_NAME,
};
use crate::der::{self, DerError, Reader};

/// Whether all critical extensions that webpki does not support are about policies and require none.
///
/// # Errors
/// Which critical extension makes the CA unusable, as the second part of a sentence.
pub(crate) fn are_harmless(ca: &Certificate<'_>) -> Result<(), String> {
    let mut seen = Vec::new();
    let mut list = Reader::new(ca.extensions.all);
    while !list.is_empty() {
        let extension = list.any().and_then(Extension::read).map_err(unreadable)?;
        if seen.contains(&extension.id) {
            return Err("it has an extension twice".to_owned());
        }
        seen.push(extension.id);
        match extension.id {
            // By RFC 5280, 6.1.4, this extension applies even if it is not critical.
            POLICY_CONSTRAINTS if requires_policy(extension.value).map_err(unreadable)? => {
                return Err("its policyConstraints (requireExplicitPolicy) require certificate policies, which the proxy does not check".to_owned());
            }
            _ if !extension.critical => {}
            CERTIFICATE_POLICIES if !are_readable(extension.value).map_err(unreadable)? => {
                return Err("its critical certificatePolicies have a qualifier that the proxy does not support".to_owned());
            }
            CERTIFICATE_POLICIES | POLICY_MAPPINGS | POLICY_CONSTRAINTS | INHIBIT_ANY_POLICY => {}
            id if SUPPORTED.contains(&id) => {}
            id => {
                return Err(format!(
                    "it has the critical extension {}, which the proxy does not support",
                    dotted_oid(id).unwrap_or_else(|| "whose identifier is malformed".to_owned())
                ));
            }
        }
    }
    Ok(())
}

fn unreadable(error: DerError) -> String {
    format!("its extensions cannot be read ({error})")
}

/// Whether PolicyConstraints have a `requireExplicitPolicy`, after whatever number of CAs it applies.
fn requires_policy(value: &[u8]) -> Result<bool, DerError> {
    let mut outer = Reader::new(value);
    let mut parts = Reader::new(outer.expect(der::SEQUENCE)?.value);
    outer.end()?;
    let requires = parts.optional(REQUIRE_EXPLICIT_POLICY)?.is_some();
    let _inhibit_policy_mapping = parts.optional(INHIBIT_POLICY_MAPPING)?;
    parts.end()?;
    Ok(requires)
}

/// Whether each qualifier in CertificatePolicies is one of RFC 5280, 4.2.1.4. An unknown qualifier in a critical extension must
/// not be ignored.
fn are_readable(value: &[u8]) -> Result<bool, DerError> {
    let mut outer = Reader::new(value);
    let mut policies = Reader::new(outer.expect(der::SEQUENCE)?.value);
    outer.end()?;
    while !policies.is_empty() {
        let mut policy = Reader::new(policies.expect(der::SEQUENCE)?.value);
        let _policy = policy.expect(der::OID)?;
        let qualifiers = policy.optional(der::SEQUENCE)?;
        policy.end()?;
        let mut qualifiers = Reader::new(qualifiers.map_or(&[], |list| list.value));
        while !qualifiers.is_empty() {
            let mut qualifier = Reader::new(qualifiers.expect(der::SEQUENCE)?.value);
            if !QUALIFIERS.contains(&qualifier.expect(der::OID)?.value) {
                return Ok(false);
            }
        }
    }
    Ok(true)
}

const CERTIFICATE_POLICIES: &[u8] = &[0x55, 0x1d, 32];
const POLICY_MAPPINGS: &[u8] = &[0x55, 0x1d, 33];
const POLICY_CONSTRAINTS: &[u8] = &[0x55, 0x1d, 36];
const INHIBIT_ANY_POLICY: &[u8] = &[0x55, 0x1d, 54];
const REQUIRE_EXPLICIT_POLICY: u8 = 0x80;
const INHIBIT_POLICY_MAPPING: u8 = 0x81;

/// The extensions that webpki supports: key usage, alternative names, basic constraints, name constraints, CRL distribution
/// points and extended key usage.
const SUPPORTED: [&[u8]; 6] = [
    KEY_USAGE,
    SUBJECT_ALT_NAME,
    BASIC_CONSTRAINTS,
    NAME_CONSTRAINTS,
    &[0x55, 0x1d, 31],
    EXTENDED_KEY_USAGE,
];

/// id-qt-cps and id-qt-unotice.
const QUALIFIERS: [&[u8]; 2] = [&[0x2b, 6, 1, 5, 5, 7, 2, 1], &[0x2b, 6, 1, 5, 5, 7, 2, 2]];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_explicit_policy_and_unknown_qualifiers_are_found() {
        for (value, requires) in [
            (&[0x30, 3, 0x80, 1, 0][..], Ok(true)),
            (&[0x30, 3, 0x80, 1, 9], Ok(true)),
            (&[0x30, 3, 0x81, 1, 0], Ok(false)),
            (&[0x30, 0], Ok(false)),
            (&[0x30, 2, 0x05, 0], Err(())),
        ] {
            assert_eq!(
                requires_policy(value).map_err(|_| ()),
                requires,
                "{value:x?}"
            );
        }
        let any = [0x06, 4, 0x55, 0x1d, 0x20, 0];
        let policy = |qualifier: &[u8]| {
            let qualifiers = [&[0x30, qualifier.len() as u8], qualifier].concat();
            let policy = [&any[..], &qualifiers].concat();
            let policy = [&[0x30, policy.len() as u8], &policy[..]].concat();
            [&[0x30, policy.len() as u8], &policy[..]].concat()
        };
        let cps = [0x30, 13, 0x06, 8, 0x2b, 6, 1, 5, 5, 7, 2, 1, 0x16, 1, b'x'];
        let other = [0x30, 5, 0x06, 1, 0x2a, 0x05, 0];
        assert_eq!(are_readable(&policy(&cps)), Ok(true));
        assert_eq!(are_readable(&policy(&other)), Ok(false));
        assert!(are_readable(&[0x30, 2, 0x05, 0]).is_err());
    }
}
