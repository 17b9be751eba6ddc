//! The CA bundle: which certificates are anchors, which are intermediates for the path builder, and the keys of both.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use foldhash::fast::RandomState;
use rustls_pki_types::{CertificateDer, SubjectPublicKeyInfoDer, TrustAnchor, UnixTime};
use webpki::EndEntityCert;

use crate::certificate::{Certificate, Subject};
use crate::chain::Link;
use crate::fingerprint::Fingerprint;
use crate::last_seen::{HighestSerial, LastSeen};
use crate::name_constraints;
use crate::pem::{self, Block, Named};
use crate::policies;
use crate::problem::PkiProblem;
use crate::signature::{self, SignatureFault};

/// An issuer of certificates and CRLs: a name *and* a key.
///
/// The key is part of an issuer because a recreated CA has the same name as the old one. The name is part of it because a
/// renamed CA may have the same key, and the CRL of one name does not cover the serials of the other. Names that differ only in
/// their string types are equal.
#[derive(Debug)]
pub(crate) struct Issuer {
    /// Digest of key and name, with the name in UTF-8.
    pub(crate) id: Fingerprint,
    /// The whole DER element of the Name.
    pub(crate) name: Box<[u8]>,
    /// The whole SubjectPublicKeyInfo.
    pub(crate) spki: Box<[u8]>,
    /// The name in RFC 2253.
    pub(crate) text: String,
    /// Whether this certificate allows the key to sign CRLs.
    pub(crate) signs_crls: bool,
    /// When a verified certificate below it was last seen; used only in `Bundle::issuers`.
    pub(crate) seen: LastSeen,
    /// The highest serial among the certificates that clients and the proxy present; used only in `Bundle::issuers`.
    pub(crate) highest_serial: HighestSerial,
}

impl Issuer {
    /// The issuer that a CA certificate describes.
    pub(crate) fn of(ca: &Certificate<'_>) -> Self {
        Self {
            id: Self::id(ca),
            name: ca.subject.into(),
            spki: ca.spki.into(),
            text: Subject(ca.subject).to_string(),
            signs_crls: ca.extensions.signs_crls(),
            seen: LastSeen::default(),
            highest_serial: HighestSerial::default(),
        }
    }

    /// Whether this Name (the whole element) is that of the issuer, whatever its string types.
    pub(crate) fn has_name(&self, name: &[u8]) -> bool {
        identity::Subject::is_same(&self.name, name)
    }

    /// Computes only the digest.
    pub(crate) fn id(ca: &Certificate<'_>) -> Fingerprint {
        let name = identity::Subject::in_utf8(ca.subject);
        Fingerprint::of([name.as_deref().unwrap_or(ca.subject), ca.spki])
    }
}

/// One CA certificate of the bundle.
#[derive(Debug)]
pub(crate) struct Ca {
    pub(crate) der: CertificateDer<'static>,
    /// The same bytes, shared with the agents whose paths include this CA.
    pub(crate) shared: Arc<[u8]>,
    /// File and PEM block: `"ca.pem" block 2`.
    pub(crate) place: String,
    pub(crate) issuer: Arc<Issuer>,
    /// The Name (the whole element) of the issuer of this certificate.
    pub(crate) issued_by: Box<[u8]>,
    pub(crate) not_before: UnixTime,
    pub(crate) not_after: UnixTime,
    /// The earliest expiry on the path from this certificate to an anchor. If there are several paths, the one that expires
    /// last is used.
    pub(crate) path_end: UnixTime,
    pub(crate) signs_crls: bool,
    /// Whether paths may end at this CA.
    pub(crate) is_anchor: bool,
    /// Subject, serial and dates.
    pub(crate) described: String,
    /// Whether it has critical extensions about policies, which webpki does not support (`policies`).
    pub(crate) has_critical_policies: bool,
}

/// A certificate of the bundle that is not used as a CA.
#[derive(Debug)]
pub(crate) struct UnusedCa {
    /// The whole DER element of the Name.
    pub(crate) name: Box<[u8]>,
    /// The certificate and the reason, as a sentence.
    pub(crate) why: String,
    /// Whether a critical extension is the reason.
    pub(crate) is_by_extension: bool,
}

/// The CA certificates of the bundle by role.
#[derive(Debug)]
pub(crate) struct Bundle {
    /// Digest of all certificates in order.
    pub(crate) fingerprint: Fingerprint,
    pub(crate) cas: Vec<Ca>,
    /// The anchors for webpki. webpki does not check an anchor's dates, so `anchor_cas` has the index of the CA for each
    /// anchor.
    pub(crate) anchors: Vec<TrustAnchor<'static>>,
    pub(crate) anchor_cas: Vec<usize>,
    /// The number of the estate of each CA in `cas`. CAs belong to the same estate if they have the same key, or if one has
    /// signed the other, directly or through further CAs.
    pub(crate) estates: Vec<usize>,
    /// Each distinct pair of name and key.
    pub(crate) issuers: HashMap<Fingerprint, Arc<Issuer>, RandomState>,
    pub(crate) unused: Vec<UnusedCa>,
    pub(crate) warnings: Vec<String>,
}

impl Bundle {
    /// Reads all materials. If they are unchanged, returns the previous bundle.
    ///
    /// # Errors
    /// A material that is not PEM or contains a block that is not a certificate (all of them are reported), or a bundle without
    /// a CA.
    pub(crate) fn read(
        materials: &[Named<Vec<u8>>],
        previous: Option<&Arc<Self>>,
    ) -> Result<Arc<Self>, Vec<PkiProblem>> {
        let mut problems = Vec::new();
        let mut blocks = Vec::new();
        for material in materials {
            match pem::certificates(material) {
                Ok(found) => blocks.extend(found),
                Err(problem) => problems.push(problem),
            }
        }
        for block in &blocks {
            if let Err(error) = Certificate::read(&block.der) {
                problems.push(block.malformed("certificate", error));
            }
        }
        if !problems.is_empty() {
            return Err(problems);
        }
        let places = blocks.iter().map(|block| block.name.as_bytes());
        let fingerprint = Fingerprint::of(blocks.iter().map(|block| &*block.der).chain(places));
        if let Some(previous) = previous.filter(|previous| previous.fingerprint == fingerprint) {
            return Ok(Arc::clone(previous));
        }
        let mut warnings = Vec::new();
        let mut cas: Vec<Ca> = Vec::new();
        let (mut unused, mut unused_cas) = (Vec::new(), Vec::new());
        for block in &blocks {
            match Ca::of(block) {
                Ok(ca) if cas.iter().any(|known| known.der == ca.der) => {}
                Ok(ca) => cas.push(ca),
                Err(why) => {
                    let name_and_key = NameAndKey::of(&block.der);
                    unused_cas.extend(name_and_key.as_ref().map(|unused| UnusedCa {
                        name: unused.name.clone(),
                        why: not_used(&block.place(), &why),
                        is_by_extension: matches!(why, NotACa::Extension(_)),
                    }));
                    warnings.push(not_used(&block.place(), &why));
                    unused.extend(name_and_key);
                }
            }
        }
        warnings.extend(remove_cas_below(unused, &mut cas));
        if cas.is_empty() {
            let unusable = warnings.into_iter().map(PkiProblem::CaUnusable);
            return Err(unusable.chain([PkiProblem::NoCa]).collect());
        }
        let mut sorted = Self::sort(fingerprint, cas, warnings);
        sorted.unused = unused_cas;
        for before in previous
            .iter()
            .flat_map(|previous| previous.issuers.values())
        {
            if let Some(ca) = sorted.issuers.get(&before.id) {
                ca.seen.inherit(&before.seen);
                ca.highest_serial.inherit(&before.highest_serial);
            }
        }
        Ok(Arc::new(sorted))
    }

    /// A bundle without a CA.
    pub(crate) fn empty() -> Arc<Self> {
        let none: [&[u8]; 0] = [];
        Arc::new(Self::sort(Fingerprint::of(none), Vec::new(), Vec::new()))
    }

    fn sort(fingerprint: Fingerprint, mut cas: Vec<Ca>, mut warnings: Vec<String>) -> Self {
        let roles: Vec<CaRole> = cas.iter().map(|ca| ca.role(&cas)).collect();
        let mut anchors = Vec::new();
        let mut anchor_cas = Vec::new();
        for (index, (ca, role)) in cas.iter_mut().zip(roles).enumerate() {
            if role == CaRole::Intermediate {
                continue;
            }
            match webpki::anchor_from_trusted_cert(&ca.der) {
                Ok(mut anchor) => {
                    // The proxy checks constraints on addresses and directory names on every path. webpki would refuse every
                    // certificate below them.
                    let is_checked_here = Certificate::read(&ca.der).is_ok_and(|ca| {
                        let constraints = ca.extensions.name_constraints;
                        constraints.is_some_and(name_constraints::are_checked_here)
                    });
                    if is_checked_here {
                        anchor.name_constraints = None;
                    }
                    anchors.push(anchor.to_owned());
                    anchor_cas.push(index);
                    ca.is_anchor = true;
                }
                Err(error) => {
                    warnings.push(not_used(&ca.place, &error));
                    continue;
                }
            }
            if role == CaRole::Orphan {
                warnings.push(format!(
                    "certificate {}: the issuer of CA {} is not in the bundle, so the proxy trusts this CA directly and no CRL can revoke it",
                    ca.place, ca.issuer.text
                ));
            }
        }
        limit_to_paths(&mut cas);
        let issuers = cas
            .iter()
            .map(|ca| (ca.issuer.id, Arc::clone(&ca.issuer)))
            .collect();
        Self {
            fingerprint,
            estates: estates(&cas),
            cas,
            anchors,
            anchor_cas,
            issuers,
            unused: Vec::new(),
            warnings,
        }
    }

    /// The subject of one valid anchor of each estate, in the order of the bundle.
    pub(crate) fn estate_roots(&self, now: UnixTime) -> Vec<&str> {
        let mut seen = Vec::new();
        let anchors = self.cas.iter().zip(&self.estates);
        let anchors = anchors.filter(|(ca, _)| ca.is_anchor && ca.is_in_time(now));
        let first = anchors.filter(|(_, estate)| {
            let is_first = !seen.contains(*estate);
            seen.push(**estate);
            is_first
        });
        first.map(|(ca, _)| ca.issuer.text.as_str()).collect()
    }

    /// Whether the bundle has CAs with both subjects, and no CA with one subject is in the same estate as a CA with the other.
    pub(crate) fn are_separate(&self, one: &str, other: &str) -> bool {
        let of = |name: &str| {
            let cas = self.cas.iter().zip(&self.estates);
            let named = cas.filter(|(ca, _)| ca.issuer.text == name);
            named.map(|(_, estate)| *estate).collect::<Vec<_>>()
        };
        let (one, other) = (of(one), of(other));
        let is_known = !one.is_empty() && !other.is_empty();
        is_known && !one.iter().any(|estate| other.contains(estate))
    }

    /// The CA of an anchor, by its position in `anchors`.
    pub(crate) fn anchor_ca(&self, anchor: &TrustAnchor<'_>) -> Option<&Ca> {
        // Two certificates of one CA result in equal anchors with different dates. Only the addresses of these anchors differ.
        let index = self
            .anchors
            .iter()
            .position(|known| std::ptr::addr_eq(known, anchor))?;
        self.cas.get(*self.anchor_cas.get(index)?)
    }

    /// Whether an issuer is above another CA of the bundle.
    pub(crate) fn is_above_others(&self, issuer: &Issuer) -> bool {
        let mut below = self.intermediates();
        below.any(|ca| issuer.has_name(&ca.issued_by) && ca.issuer.id != issuer.id)
    }

    /// Records that a verified certificate was seen whose path includes these CAs.
    pub(crate) fn note_seen(&self, cas: impl Iterator<Item = Fingerprint>, now: UnixTime) {
        for ca in cas.filter_map(|id| self.issuers.get(&id)) {
            ca.seen.note(now);
        }
    }

    /// Records the serial of the last certificate of a verified path.
    pub(crate) fn note_serial(&self, links: &[Link]) {
        if let Some(own) = links.last()
            && let Some(ca) = self.issuers.get(&own.issuer.id)
        {
            ca.highest_serial.note(&own.serial);
        }
    }

    /// The certificates of a CA that are valid now.
    pub(crate) fn valid_copies(&self, id: Fingerprint, now: UnixTime) -> impl Iterator<Item = &Ca> {
        let copies = self.cas.iter().filter(move |ca| ca.issuer.id == id);
        copies.filter(move |ca| ca.not_before <= now && now <= ca.not_after)
    }

    /// The CA certificates for the path builder, in addition to those from the client.
    pub(crate) fn intermediates(&self) -> impl Iterator<Item = &Ca> {
        self.cas.iter().filter(|ca| !ca.is_anchor)
    }
}

/// Limits the path end of each intermediate to that of the CAs above it. Each pass reaches the CAs one level further down, so
/// the loop ends even if CAs sign each other.
fn limit_to_paths(cas: &mut [Ca]) {
    let signed_by =
        |ca: &Ca, above: &Ca| ca.may_be_signed_by(&above.issuer.name, &above.issuer.spki);
    let above: Vec<Vec<usize>> = cas
        .iter()
        .map(|ca| {
            if ca.is_anchor {
                Vec::new()
            } else {
                (0..cas.len())
                    .filter(|other| cas[*other].der != ca.der && signed_by(ca, &cas[*other]))
                    .collect()
            }
        })
        .collect();
    for _ in 0..cas.len() {
        let mut is_changed = false;
        for (index, above) in above.iter().enumerate() {
            let end = above.iter().map(|above| cas[*above].path_end).max();
            let ca = &mut cas[index];
            let limited = end.map_or(ca.path_end, |end| end.min(ca.path_end));
            is_changed |= limited != ca.path_end;
            ca.path_end = limited;
        }
        if !is_changed {
            return;
        }
    }
}

/// The number of the estate of each CA.
fn estates(cas: &[Ca]) -> Vec<usize> {
    let mut estates: Vec<usize> = (0..cas.len()).collect();
    for (index, ca) in cas.iter().enumerate() {
        for (other, above) in cas.iter().enumerate() {
            // Two intermediates of the same root, which is not in the bundle.
            let is_orphan = |ca: &Ca| ca.is_anchor && ca.issued_by != ca.issuer.name;
            let are_siblings = is_orphan(ca) && is_orphan(above) && ca.issued_by == above.issued_by;
            let is_one_estate = are_siblings
                || ca.issuer.spki == above.issuer.spki
                || ca.may_be_signed_by(&above.issuer.name, &above.issuer.spki);
            if is_one_estate && estates[index] != estates[other] {
                let (joined, kept) = (estates[other], estates[index]);
                for estate in estates.iter_mut().filter(|estate| **estate == joined) {
                    *estate = kept;
                }
            }
        }
    }
    estates
}

/// Removes CAs whose issuer is in the bundle but unusable. As anchors, they would not be subject to the restrictions and the
/// CRL of that issuer.
fn remove_cas_below(mut unused: Vec<NameAndKey>, cas: &mut Vec<Ca>) -> Vec<String> {
    let mut warnings = Vec::new();
    let must_be_removed = |ca: &Ca, unused: &[NameAndKey], cas: &[Ca]| {
        let mut issuers = unused.iter();
        ca.role(cas) == CaRole::Orphan
            && issuers.any(|issuer| ca.may_be_signed_by(&issuer.name, &issuer.spki))
    };
    // Each round removes one CA. CAs below it may then have no issuer any more.
    while let Some(index) = cas.iter().position(|ca| must_be_removed(ca, &unused, cas)) {
        let ca = cas.remove(index);
        let why = format!(
            "its issuer {} is in the bundle but is not a valid CA",
            Subject(&ca.issued_by)
        );
        warnings.push(not_used(&ca.place, &why));
        unused.extend(NameAndKey::of(&ca.der));
    }
    warnings
}

/// Name and key of an unused certificate of the bundle.
struct NameAndKey {
    name: Box<[u8]>,
    spki: Box<[u8]>,
}

impl NameAndKey {
    fn of(der: &[u8]) -> Option<Self> {
        let certificate = Certificate::read(der).ok()?;
        Some(Self {
            name: certificate.subject.into(),
            spki: certificate.spki.into(),
        })
    }
}

fn not_used(place: &str, why: &dyn fmt::Display) -> String {
    format!("certificate {place} is not used as a CA: {why}")
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CaRole {
    /// Self-signed.
    Root,
    /// Signed by another CA of the bundle. Paths continue to that CA, so that its CRL can revoke this one.
    Intermediate,
    /// Its issuer is not in the bundle, which has only an intermediate of an external CA, for example. The operator has added
    /// this CA, so it is trusted as an anchor, like a partial chain in OpenSSL.
    Orphan,
}

impl Ca {
    pub(crate) fn is_in_time(&self, now: UnixTime) -> bool {
        self.not_before <= now && now <= self.not_after
    }

    /// Whether it restricts the certificates below it no more than another certificate of the same CA.
    pub(crate) fn verifies_what(&self, other: &Self) -> bool {
        if self.der == other.der {
            return true;
        }
        let (Ok(own), Ok(other)) = (Certificate::read(&self.der), Certificate::read(&other.der))
        else {
            return false;
        };
        let (own, other) = (own.extensions, other.extensions);
        own.basic_constraints == other.basic_constraints
            && own
                .name_constraints
                .is_none_or(|own| Some(own) == other.name_constraints)
            && own.extended_key_usage.is_some() <= other.extended_key_usage.is_some()
            && own.signs_certificates() >= other.signs_certificates()
    }

    /// Reads a CA certificate, or returns why the certificate is not one.
    fn of(block: &Block) -> Result<Self, NotACa> {
        let der = pem::certificate_der(block);
        let other = NotACa::Other;
        let certificate =
            Certificate::read(&block.der).map_err(|error| other(error.to_string()))?;
        if certificate.subject == EMPTY_NAME {
            return Err(other("its subject is empty".into()));
        }
        match (certificate.version, certificate.extensions.is_ca) {
            (_, Some(true)) => {}
            // Some roots from the 1990s are v1 certificates, which have no such field.
            (1, None) if certificate.is_self_issued() => {}
            _ => {
                return Err(other(format!(
                    "{} is not a CA certificate",
                    certificate.describe()
                )));
            }
        }
        if !certificate.extensions.signs_certificates() {
            return Err(other(format!(
                "the key usage of {} does not allow signing certificates",
                certificate.describe()
            )));
        }
        // webpki accepts an anchor with any critical extension; the proxy does not trust one with an unknown critical
        // extension.
        let mut has_critical_policies = false;
        match EndEntityCert::try_from(&der).map(|_| ()) {
            Ok(()) => {}
            Err(webpki::Error::UnsupportedCertVersion) if certificate.version == 1 => {}
            Err(webpki::Error::UnsupportedCriticalExtension) => {
                let described = |why| format!("{}: {why}", certificate.describe());
                policies::are_harmless(&certificate)
                    .map_err(|why| NotACa::Extension(described(why)))?;
                has_critical_policies = true;
            }
            Err(error) => return Err(other(format!("{}: {error}", certificate.describe()))),
        }
        Ok(Self {
            place: block.place(),
            issuer: Arc::new(Issuer::of(&certificate)),
            issued_by: certificate.issuer.into(),
            not_before: certificate.not_before,
            not_after: certificate.not_after,
            path_end: certificate.not_after,
            signs_crls: certificate.extensions.signs_crls(),
            is_anchor: false,
            described: certificate.describe(),
            has_critical_policies,
            shared: der.as_ref().into(),
            der,
        })
    }

    fn role(&self, cas: &[Self]) -> CaRole {
        // A root's own signature proves nothing, so an old algorithm is accepted.
        if self.may_be_signed_by(&self.issuer.name, &self.issuer.spki) {
            return CaRole::Root;
        }
        // A CA whose signature cannot be checked is not an anchor. Otherwise the root's CRL would have no effect on it.
        if cas
            .iter()
            .any(|ca| self.may_be_signed_by(&ca.issuer.name, &ca.issuer.spki))
        {
            CaRole::Intermediate
        } else {
            CaRole::Orphan
        }
    }

    /// Whether a CA with this name and key has signed the certificate, or may have signed it with an unsupported algorithm.
    fn may_be_signed_by(&self, name: &[u8], spki: &[u8]) -> bool {
        let spki = SubjectPublicKeyInfoDer::from(spki);
        let is_wrong = |certificate: &Certificate<'_>| {
            signature::check_signed(certificate.signed, &spki) == Err(SignatureFault::Wrong)
        };
        *self.issued_by == *name
            && Certificate::read(&self.der).is_ok_and(|certificate| !is_wrong(&certificate))
    }
}

/// Why a certificate of the bundle is not used as a CA.
#[derive(Debug, thiserror::Error)]
enum NotACa {
    /// A critical extension of the certificate.
    #[error("{0}")]
    Extension(String),
    /// Any other reason.
    #[error("{0}")]
    Other(String),
}

/// A Name without an RDN.
pub(crate) const EMPTY_NAME: &[u8] = &[0x30, 0x00];
