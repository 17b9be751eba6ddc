//! The first step of a path: the CA right below an anchor, verified here where webpki refuses too much.
//!
//! webpki reads no name constraints on e-mail addresses, knows no exception for CAs that certify another key of their
//! own (self-issued), and compares names byte by byte. By RFC 5280 a path may go on from its first certificate as it went
//! on from the anchor, by what 6.1.4 keeps of it: name, key, constraints, and how many CAs may follow. So these are taken
//! here, and webpki builds and verifies the rest as ever; dates, lists and addresses are judged with the whole path
//! (`path`).
//!
//! Everything else about such a CA has to be plain, or no step is taken and webpki's refusal stands.

use identity::Subject;
use rustls_pki_types::{CertificateDer, TrustAnchor, UnixTime};
use webpki::EndEntityCert;

use crate::bundle::{Bundle, Ca};
use crate::certificate::Certificate;
use crate::der::{self, DerError, Reader};
use crate::email_constraint;
use crate::signature;

/// A CA that an anchor has issued, or the anchor itself by another spelling of its name, for webpki to start from.
#[derive(Debug)]
pub(crate) struct PathStart<'a> {
    /// Its name and key with the anchor's constraints: none of its own, for those that it may have are judged here.
    pub(crate) start: TrustAnchor<'a>,
    /// Its certificate; none of the anchor itself.
    pub(crate) der: Option<&'a CertificateDer<'a>>,
    /// The anchor.
    pub(crate) issuer: &'a Ca,
    path_length: Option<u8>,
}

impl<'a> PathStart<'a> {
    /// The steps that lead further than webpki goes; in nearly every estate there is none.
    pub(crate) fn all(
        bundle: &'a Bundle,
        intermediates: &'a [CertificateDer<'a>],
        now: UnixTime,
    ) -> Vec<Self> {
        let cas: Vec<_> = intermediates.iter().filter_map(read).collect();
        let any_self_issued = cas.iter().any(|(_, ca)| ca.is_self_issued());
        let is_of_use = |ca: &Certificate<'_>| {
            let constrains = ca.extensions.name_constraints.is_some();
            constrains || any_self_issued
        };
        let candidates = cas.into_iter().filter(|(_, ca)| is_of_use(ca));
        Self::among(candidates, bundle, now).collect()
    }

    /// Starts for what spells its issuer's name, the whole element, in other types of strings than that one's own
    /// certificate. Puppet Server does where the CA was imported: it writes the name anew, in UTF-8, in all that it
    /// signs (`SSLUtils.signCertificate`).
    pub(crate) fn respelled(
        bundle: &'a Bundle,
        intermediates: &'a [CertificateDer<'a>],
        name: &'a [u8],
        now: UnixTime,
    ) -> Vec<Self> {
        let Ok(spelled) = Reader::new(name).expect(der::SEQUENCE) else {
            return Vec::new();
        };
        let is_meant = |subject: &[u8]| subject != name && Subject::is_same(subject, name);
        let anchors = anchors(bundle).filter(|(_, ca)| is_meant(&ca.issuer.name));
        let anchors = anchors.map(|(anchor, issuer)| Self {
            start: anchor.clone(),
            der: None,
            issuer,
            path_length: None,
        });
        let cas = intermediates.iter().filter_map(read);
        let below = Self::among(cas.filter(|(_, ca)| is_meant(ca.subject)), bundle, now);
        let all = anchors.chain(below).map(|step| Self {
            start: TrustAnchor {
                subject: spelled.value.into(),
                ..step.start
            },
            ..step
        });
        all.collect()
    }

    /// Those of these CAs that an anchor has issued, as far as they can be steps.
    fn among(
        cas: impl Iterator<Item = (&'a CertificateDer<'a>, Certificate<'a>)>,
        bundle: &'a Bundle,
        now: UnixTime,
    ) -> impl Iterator<Item = Self> {
        cas.flat_map(move |(der, ca)| issuers(bundle, ca.issuer).map(move |above| (der, ca, above)))
            .take(STEPS_MAX)
            .filter_map(move |(der, ca, above)| Self::of(der, &ca, above, now))
    }

    /// RFC 5280, 6.1.3 and 6.1.4, for a first certificate, but for what `path` asks of every CA on a path.
    fn of(
        der: &'a CertificateDer<'a>,
        ca: &Certificate<'a>,
        (anchor, issuer): (&TrustAnchor<'static>, &'a Ca),
        now: UnixTime,
    ) -> Option<Self> {
        let in_time = ca.not_before <= now && now <= ca.not_after;
        // Constraints of names other than addresses are webpki's, which would not see them here.
        let own_constraints = ca.extensions.name_constraints;
        let is_plain = own_constraints.is_none_or(email_constraint::is_of_addresses_alone)
            && !ca.extensions.has_extended_key_usage;
        // 6.1.3 (b): the anchor's constraints do not hold for a self-issued CA, but for all below it.
        let is_admitted = anchor.name_constraints.is_none() || ca.is_self_issued();
        if !(in_time && is_plain && is_admitted) {
            return None;
        }
        // An anchor may have critical extensions that nobody knows, and be of version 1; this one has to be as any other.
        EndEntityCert::try_from(der).ok()?;
        let path_length = path_length(ca.extensions.basic_constraints?).ok()?;
        signature::check_signed(ca.signed, &issuer.issuer.spki[..].into()).ok()?;
        let of_ca = webpki::anchor_from_trusted_cert(der).ok()?;
        Some(Self {
            start: TrustAnchor {
                name_constraints: anchor.name_constraints.clone(),
                ..of_ca
            },
            der: Some(der),
            issuer,
            path_length,
        })
    }

    /// Whether so many CAs may follow; those that certify another key of their own do not count.
    pub(crate) fn admits(&self, below: &[CertificateDer<'_>]) -> bool {
        let counts = |der: &&CertificateDer<'_>| {
            Certificate::read(der).map_or(true, |ca| !ca.is_self_issued())
        };
        let count = below.iter().filter(counts).count();
        self.path_length
            .is_none_or(|length| count <= usize::from(length))
    }
}

fn read<'a>(der: &'a CertificateDer<'a>) -> Option<(&'a CertificateDer<'a>, Certificate<'a>)> {
    Some((der, Certificate::read(der).ok()?))
}

/// The anchors that have this name.
fn issuers<'a>(
    bundle: &'a Bundle,
    name: &'a [u8],
) -> impl Iterator<Item = (&'a TrustAnchor<'static>, &'a Ca)> {
    anchors(bundle).filter(move |(_, above)| *above.issuer.name == *name)
}

/// The anchors, each with its CA.
fn anchors(bundle: &Bundle) -> impl Iterator<Item = (&TrustAnchor<'static>, &Ca)> {
    let anchors = bundle.anchors.iter().zip(&bundle.anchor_cas);
    anchors.filter_map(|(anchor, index)| Some((anchor, bundle.cas.get(*index)?)))
}

/// How many CAs may follow this one, by its BasicConstraints, the whole element; of one that is no CA, nothing.
fn path_length(basic_constraints: &[u8]) -> Result<Option<u8>, DerError> {
    let mut outer = Reader::new(basic_constraints);
    let mut parts = Reader::new(outer.expect(der::SEQUENCE)?.value);
    outer.end()?;
    if !der::boolean(parts.expect(der::BOOLEAN)?.value)? {
        return Err(DerError::Value);
    }
    let length = match parts.optional(der::INTEGER)? {
        None => None,
        Some(length) => match length.value {
            [length @ 0..=0x7f] => Some(*length),
            _ => return Err(DerError::Value),
        },
    };
    parts.end()?;
    Ok(length)
}

/// Signatures that are checked to find steps: an estate has one such CA, if any.
const STEPS_MAX: usize = 4;

#[cfg(test)]
mod tests;
