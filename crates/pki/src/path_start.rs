//! CAs below an anchor at which a path may start. webpki refuses such paths although RFC 5280 allows them, so the proxy
//! verifies these CAs itself.
//!
//! webpki does not support name constraints on directory names, has no exception for CAs that certify another key of their own
//! (self-issued CAs), compares names byte by byte, and refuses critical extensions about policies (`policies`). By RFC 5280,
//! 6.1.4, a path may continue from its first certificate as it does from the anchor: with the name, key and constraints of that
//! certificate, and the number of CAs that may follow. This module verifies that certificate, and webpki builds and verifies
//! the rest of the path. `path` checks dates, CRLs, and name constraints on directory names and e-mail addresses for the whole
//! path.
//!
//! Such a CA must have no other special properties. Otherwise, the refusal by webpki is final.

use identity::Subject;
use rustls_pki_types::{CertificateDer, TrustAnchor, UnixTime};
use webpki::EndEntityCert;

use crate::bundle::{Bundle, Ca};
use crate::certificate::{CLIENT_AUTH, Certificate, SERVER_AUTH};
use crate::der::{self, DerError, Reader};
use crate::name_constraints;
use crate::signature;

/// The start of a path for webpki: a CA directly below an anchor, or the anchor itself with another encoding of its name.
#[derive(Debug)]
pub(crate) struct PathStart<'a> {
    /// The CA's name and key with the anchor's constraints. This module checks the CA's own constraints.
    pub(crate) trust_anchor: TrustAnchor<'a>,
    /// The CA's certificate, then those of the CAs between it and the anchor. Empty for the anchor itself.
    pub(crate) ders: Vec<&'a CertificateDer<'a>>,
    pub(crate) issuer: &'a Ca,
    path_length: Option<u8>,
}

impl<'a> PathStart<'a> {
    /// The starts that allow paths that webpki refuses. Most sites have none.
    pub(crate) fn all(
        bundle: &'a Bundle,
        intermediates: &'a [CertificateDer<'a>],
        now: UnixTime,
    ) -> Vec<Self> {
        let cas: Vec<_> = intermediates.iter().filter_map(read).collect();
        let any_self_issued = cas.iter().any(|(_, ca)| ca.is_self_issued());
        let is_useful = |ca: &Certificate<'_>| {
            let constrains = ca.extensions.name_constraints.is_some();
            constrains || any_self_issued
        };
        let candidates = cas.into_iter().filter(|(_, ca)| is_useful(ca));
        Self::among(candidates, bundle, now).collect()
    }

    /// The starts for a certificate whose issuer name (the whole element) has other string types than in the issuer's own
    /// certificate. Puppet Server writes such names if the CA was imported, because it encodes the name in UTF-8 in every
    /// certificate that it signs (`SSLUtils.signCertificate`).
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
            trust_anchor: anchor.clone(),
            ders: Vec::new(),
            issuer,
            path_length: None,
        });
        let cas = intermediates.iter().filter_map(read);
        let below = Self::among(cas.filter(|(_, ca)| is_meant(ca.subject)), bundle, now);
        let all = anchors.chain(below).map(|start| Self {
            trust_anchor: TrustAnchor {
                subject: spelled.value.into(),
                ..start.trust_anchor
            },
            ..start
        });
        all.collect()
    }

    /// The starts among `cas`: CAs that an anchor has issued and that pass the checks of [`Self::of`].
    fn among(
        cas: impl Iterator<Item = (&'a CertificateDer<'a>, Certificate<'a>)>,
        bundle: &'a Bundle,
        now: UnixTime,
    ) -> impl Iterator<Item = Self> {
        cas.flat_map(move |(der, ca)| issuers(bundle, ca.issuer).map(move |above| (der, ca, above)))
            .take(STARTS_MAX)
            .filter_map(move |(der, ca, above)| Self::of(der, &ca, above, now))
    }

    /// The start at a CA that an anchor has issued. It must pass the checks of RFC 5280, 6.1.3 and 6.1.4, for a first
    /// certificate, except for the checks that `path` does on every CA.
    fn of(
        der: &'a CertificateDer<'a>,
        ca: &Certificate<'a>,
        (anchor, issuer): (&TrustAnchor<'static>, &'a Ca),
        now: UnixTime,
    ) -> Option<Self> {
        let in_time = ca.not_before <= now && now <= ca.not_after;
        // webpki must check constraints on names other than e-mail addresses and directory names, but it does not see the
        // constraints of a start.
        let own_constraints = ca.extensions.name_constraints;
        let is_plain = own_constraints.is_none_or(name_constraints::are_checked_here)
            && ca.extensions.extended_key_usage.is_none();
        // 6.1.3 (b): the anchor's constraints apply to all CAs below it, except self-issued CAs.
        let is_admitted = anchor.name_constraints.is_none() || ca.is_self_issued();
        if !(in_time && is_plain && is_admitted) {
            return None;
        }
        // An anchor may be of version 1 and have unknown critical extensions. This CA may not.
        EndEntityCert::try_from(der).ok()?;
        let path_length = path_length(ca.extensions.basic_constraints?).ok()?;
        signature::check_signed(ca.signed, &issuer.issuer.spki[..].into()).ok()?;
        let of_ca = webpki::anchor_from_trusted_cert(der).ok()?;
        Some(Self {
            trust_anchor: TrustAnchor {
                name_constraints: anchor.name_constraints.clone(),
                ..of_ca
            },
            ders: vec![der],
            issuer,
            path_length,
        })
    }

    /// The CAs of the bundle with critical extensions about policies, each with its path to an anchor through other CAs
    /// of the bundle. Most sites have none.
    pub(crate) fn with_policies(bundle: &'a Bundle, now: UnixTime) -> Vec<Self> {
        let cas = bundle.intermediates().filter(|ca| ca.has_critical_policies);
        let mut starts = Vec::new();
        let mut signatures = 0;
        for ca in cas {
            Self::climb(vec![ca], bundle, now, &mut signatures, &mut starts);
        }
        starts
    }

    /// Continues the path of a start upwards from its last CA.
    fn climb(
        path: Vec<&'a Ca>,
        bundle: &'a Bundle,
        now: UnixTime,
        signatures: &mut usize,
        starts: &mut Vec<Self>,
    ) {
        let Some(last) = path.last() else { return };
        let Ok(lowest) = Certificate::read(&last.der) else {
            return;
        };
        for above in &bundle.cas {
            let is_on_path = path.iter().any(|ca| ca.issuer.id == above.issuer.id);
            if is_on_path || *above.issuer.name != *last.issued_by || path.len() > CAS_ABOVE_MAX {
                continue;
            }
            *signatures += 1;
            if *signatures > SIGNATURES_MAX {
                return;
            }
            let key = above.issuer.spki[..].into();
            if signature::check_signed(lowest.signed, &key).is_err() {
                continue;
            }
            if above.is_anchor {
                starts.extend(Self::of_path(&path, above, bundle, now))
            } else {
                let path = path.iter().copied().chain([above]).collect();
                Self::climb(path, bundle, now, signatures, starts);
            }
        }
    }

    /// The start at the first of these CAs. Each CA is signed by the next, and the last by the anchor. They must pass the
    /// checks of RFC 5280, 6.1.3 and 6.1.4, except for the checks that `path` does on every CA.
    fn of_path(cas: &[&'a Ca], anchor: &'a Ca, bundle: &Bundle, now: UnixTime) -> Option<Self> {
        let mut of_bundle = anchors(bundle).filter(|(_, issuer)| std::ptr::eq(*issuer, anchor));
        let (above, _) = of_bundle.next()?;
        let mut path_length: Option<usize> = None;
        let mut below = 0;
        for (index, ca) in cas.iter().enumerate() {
            let read = Certificate::read(&ca.der).ok()?;
            let own_length = path_length_of(&read)?;
            if let Some(length) = own_length {
                let left = usize::from(length).checked_sub(below)?;
                path_length = Some(path_length.map_or(left, |known| known.min(left)));
            }
            below += usize::from(!read.is_self_issued());
            // webpki applies the constraints of the lowest CA to the certificates that it verifies. Constraints of other CAs
            // would also have to apply to the CAs on this path.
            let constraints = read.extensions.name_constraints;
            let is_free = constraints.is_none_or(name_constraints::are_checked_here);
            let serves_both = read.extensions.extended_key_usage.is_none_or(allows_both);
            let is_in_time = ca.not_before <= now && now <= ca.not_after;
            if !(is_in_time && serves_both && (is_free || index == 0)) {
                return None;
            }
        }
        if above.name_constraints.is_some() {
            return None;
        }
        let lowest = cas.first()?;
        let mut trust_anchor = webpki::anchor_from_trusted_cert(&lowest.der).ok()?;
        let constraints = Certificate::read(&lowest.der)
            .ok()?
            .extensions
            .name_constraints;
        if constraints.is_some_and(name_constraints::are_checked_here) {
            trust_anchor.name_constraints = None;
        }
        Some(Self {
            trust_anchor,
            ders: cas.iter().map(|ca| &ca.der).collect(),
            issuer: anchor,
            path_length: path_length.map(|length| u8::try_from(length).unwrap_or(u8::MAX)),
        })
    }

    /// Whether these CAs may follow. Self-issued CAs do not count towards the path length.
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

/// The anchors with this name.
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

/// The path length of a CA. None if the certificate is not a CA, or if its BasicConstraints cannot be read.
fn path_length_of(ca: &Certificate<'_>) -> Option<Option<u8>> {
    path_length(ca.extensions.basic_constraints?).ok()
}

/// Whether an ExtKeyUsageSyntax (the whole element) allows both client and server certificates.
pub(crate) fn allows_both(usage: &[u8]) -> bool {
    let mut outer = Reader::new(usage);
    let list = outer
        .expect(der::SEQUENCE)
        .and_then(|list| outer.end().and(Ok(list.value)));
    list.and_then(der::oids).is_ok_and(|purposes| {
        let mut both = [SERVER_AUTH, CLIENT_AUTH].iter();
        both.all(|purpose| purposes.contains(purpose))
    })
}

/// The number of CAs that may follow this one, from its BasicConstraints (the whole element). An error if the certificate is
/// not a CA.
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

/// Maximum number of signatures that are verified to find starts with critical policies.
const SIGNATURES_MAX: usize = 16;

/// Maximum number of CAs on the path of such a start, in addition to the first.
const CAS_ABOVE_MAX: usize = 5;

/// Maximum number of signatures that are verified to find starts. A site has at most one such CA.
const STARTS_MAX: usize = 4;

#[cfg(test)]
mod tests;
