//! Paths from a certificate to an anchor: signatures, dates, depth, constraints and revocation.
//!
//! webpki builds the paths and checks signatures. This module checks each complete path. If it refuses a path, webpki tries the
//! next one: with a renewed, re-keyed or cross-signed CA, any acceptable path is enough.

use std::cell::RefCell;
use std::sync::Arc;

use identity::Reason;
use rustls_pki_types::{CertificateDer, SignatureVerificationAlgorithm, UnixTime};
use webpki::{EndEntityCert, KeyUsage, VerifiedPath};

use crate::bundle::{Ca, EMPTY_NAME};
use crate::certificate::Certificate;
use crate::chain::{Anchor, Link, Path};
use crate::legacy_signatures;
use crate::name_constraints::{NameConstraints, NameFault};
use crate::path_start::PathStart;
use crate::refusal::CertificateFault;
use crate::signature;
use crate::store::TrustStore;

impl TrustStore {
    /// Builds and checks paths from a leaf until one is acceptable. If no path is acceptable, it tries again with the legacy
    /// signatures of the named CAs.
    ///
    /// # Errors
    /// Why no path is acceptable; faults of paths that lead to an anchor take precedence.
    pub(crate) fn verify_path(
        &self,
        leaf: &CertificateDer<'_>,
        sent: &[CertificateDer<'_>],
        usage: KeyUsage,
        now: UnixTime,
    ) -> Result<Path, CertificateFault> {
        let strict = signature::algorithms().all;
        let fault = match self.verify_path_with(strict, None, leaf, sent, usage, now) {
            Err(fault) => fault,
            strict => return strict,
        };
        let fault = match self.verify_from_starts(fault, leaf, sent, usage, now) {
            Err(fault) if !self.anchors.legacy.is_empty() => fault,
            outcome => return outcome,
        };
        let algorithms = self.anchors.legacy.algorithms();
        let lenient = self.verify_path_with(&algorithms, None, leaf, sent, usage, now);
        lenient.map_err(|other| match other.reason {
            // No named CA made the signature, so the fault is reported as if no CA were named.
            Reason::BadSignature | Reason::UnsupportedAlgorithm => fault,
            _ => other,
        })
    }

    /// Tries the starts of [`PathStart`], because webpki may have refused a path that RFC 5280 allows.
    fn verify_from_starts(
        &self,
        mut fault: CertificateFault,
        leaf: &CertificateDer<'_>,
        sent: &[CertificateDer<'_>],
        usage: KeyUsage,
        now: UnixTime,
    ) -> Result<Path, CertificateFault> {
        let intermediates = self.anchors.intermediates(sent);
        let mut starts = match (fault.reason, Certificate::read(leaf)) {
            // If an anchor has the same name as the CA, webpki reports that the anchor's signature is wrong.
            (Reason::PathConstraint | Reason::BadSignature, _) => {
                PathStart::all(&self.anchors.bundle, &intermediates, now)
            }
            (Reason::UnknownIssuer, Ok(own)) => {
                PathStart::respelled(&self.anchors.bundle, &intermediates, own.issuer, now)
            }
            _ => Vec::new(),
        };
        starts.extend(PathStart::with_policies(&self.anchors.bundle, now));
        let algorithms = signature::algorithms().all;
        for start in starts {
            match self.verify_path_with(algorithms, Some(&start), leaf, sent, usage, now) {
                Ok(path) => return Ok(path),
                Err(other) => match other.reason {
                    // The path does not belong to this start.
                    Reason::UnknownIssuer | Reason::BadSignature => {}
                    _ => fault = other,
                },
            }
        }
        Err(fault)
    }

    /// Builds paths that end at the bundle's anchors, or at a start below an anchor.
    fn verify_path_with(
        &self,
        algorithms: &[&dyn SignatureVerificationAlgorithm],
        start: Option<&PathStart<'_>>,
        leaf: &CertificateDer<'_>,
        sent: &[CertificateDer<'_>],
        usage: KeyUsage,
        now: UnixTime,
    ) -> Result<Path, CertificateFault> {
        let parsed = EndEntityCert::try_from(leaf)
            .map_err(|error| self.anchors.fault(&error, leaf, sent, now))?;
        let own = Certificate::read(leaf)
            .map_err(|_| CertificateFault::new(Reason::Malformed, leaf, ""))?;
        if own.issuer == EMPTY_NAME {
            return Err(CertificateFault::new(
                Reason::Malformed,
                leaf,
                "Its issuer is empty.",
            ));
        }
        // Whether a named CA has certified a small key is checked once the path is known.
        let may_be_small =
            !self.anchors.legacy.is_empty() && legacy_signatures::is_small_rsa(own.spki);
        if !signature::is_verifiable(own.spki) && !may_be_small {
            return Err(CertificateFault::new(
                Reason::UnsupportedAlgorithm,
                leaf,
                UNVERIFIABLE_KEY,
            ));
        }
        let mut intermediates = self.anchors.intermediates(sent);
        // A path must not pass through its own start.
        intermediates.retain(|der| start.is_none_or(|start| !start.ders.contains(&der)));
        let accepted = RefCell::new(None);
        let refused = RefCell::new(None::<CertificateFault>);
        let check_path_found =
            |path: &VerifiedPath<'_>| match self.check_path(leaf, path, start, now) {
                Ok(path) => {
                    accepted.replace(Some(path));
                    Ok(())
                }
                Err(fault) => {
                    let mut first = refused.borrow_mut();
                    // A revocation is preferred, because the user can act on it. Otherwise the first path found is the most
                    // likely one.
                    if first.is_none() || fault.reason == Reason::Revoked {
                        *first = Some(fault);
                    }
                    Err(webpki::Error::UnknownRevocationStatus)
                }
            };
        let anchors = start.map_or(&self.anchors.bundle.anchors[..], |start| {
            std::slice::from_ref(&start.trust_anchor)
        });
        let outcome = parsed.verify_for_usage(
            algorithms,
            anchors,
            &intermediates,
            now,
            usage,
            None,
            Some(&check_path_found),
        );
        match (outcome, accepted.into_inner(), refused.into_inner()) {
            (Ok(_), Some(path), _) => Ok(path),
            (Err(_), _, Some(fault)) => Err(fault),
            (Err(error), _, None) => Err(self.anchors.fault(&error, leaf, sent, now)),
            // webpki accepts only paths that `check_path` accepted. If webpki ever changes that, the proxy accepts no client.
            (Ok(_), None, _) => Err(CertificateFault::new(Reason::UnknownIssuer, leaf, "")),
        }
    }

    /// Checks one path. webpki has verified all its signatures, and the dates of all its certificates except the anchor.
    fn check_path(
        &self,
        leaf: &CertificateDer<'_>,
        path: &VerifiedPath<'_>,
        start: Option<&PathStart<'_>>,
        now: UnixTime,
    ) -> Result<Path, CertificateFault> {
        let anchor = start
            .map(|start| start.issuer)
            .or_else(|| self.anchors.bundle.anchor_ca(path.anchor()))
            .ok_or_else(|| CertificateFault::new(Reason::UnknownIssuer, leaf, ""))?;
        check_time(leaf, anchor, now)?;
        let mut ders: Vec<_> = path
            .intermediate_certificates()
            .map(webpki::Cert::der)
            .collect();
        if let Some(start) = start {
            if !start.admits(&ders) {
                return Err(CertificateFault::new(Reason::PathConstraint, leaf, ""));
            }
            ders.extend(start.ders.iter().copied().cloned());
        }
        if ders.len() > usize::from(self.revocation.settings.depth) {
            return Err(CertificateFault::new(
                Reason::Depth,
                leaf,
                format!(
                    "{} intermediate CAs are between it and {}; the proxy's `depth` allows {}.",
                    ders.len(),
                    anchor.issuer.text,
                    self.revocation.settings.depth
                ),
            ));
        }
        let malformed = |_| CertificateFault::new(Reason::Malformed, leaf, "");
        let refused = |fault: NameFault| {
            CertificateFault::new(Reason::PathConstraint, leaf, format!("In detail: {fault}."))
        };
        let mut links = Vec::with_capacity(ders.len() + 1);
        let mut issuer = Arc::clone(&anchor.issuer);
        let (mut latest_begin, mut earliest_end) = (anchor.not_before, anchor.not_after);
        let mut constraints = NameConstraints::default();
        let of_anchor = Certificate::read(&anchor.der).map_err(malformed)?;
        constraints
            .add(of_anchor.extensions.name_constraints)
            .map_err(refused)?;
        // From the anchor down, so that the issuer of each certificate is known.
        for der in ders.iter().rev() {
            let ca = Certificate::read(der).map_err(malformed)?;
            check_ca(leaf, &ca)?;
            // RFC 5280, 6.1.3 (b): constraints do not apply to a self-issued CA, and always apply to an agent.
            if !ca.is_self_issued() {
                constraints.check(&ca).map_err(refused)?;
            }
            constraints
                .add(ca.extensions.name_constraints)
                .map_err(refused)?;
            latest_begin = latest_begin.max(ca.not_before);
            earliest_end = earliest_end.min(ca.not_after);
            let next = self.anchors.issuer(&ca);
            links.push(Link::new(std::mem::replace(&mut issuer, next), &ca, der));
        }
        let own = Certificate::read(leaf).map_err(malformed)?;
        check_leaf(leaf, &own)?;
        constraints.check(&own).map_err(refused)?;
        latest_begin = latest_begin.max(own.not_before);
        earliest_end = earliest_end.min(own.not_after);
        if !signature::is_verifiable(own.spki) && !self.anchors.legacy.names(issuer.id) {
            return Err(CertificateFault::new(
                Reason::UnsupportedAlgorithm,
                leaf,
                UNVERIFIABLE_KEY,
            ));
        }
        links.push(Link::new(issuer, &own, leaf));
        let good_until = self
            .revocation
            .unrevoked(&links, earliest_end, now)
            .map_err(|fault| {
                let revoked = ders
                    .iter()
                    .rev()
                    .chain([leaf])
                    .nth(fault.link)
                    .unwrap_or(leaf);
                self.revocation
                    .revocation_fault(&fault, &links, leaf, revoked)
            })?;
        Ok(Path {
            links: links.into(),
            intermediates: ders.iter().map(|der| self.anchors.shared(der)).collect(),
            anchor: Anchor::of(anchor),
            latest_begin,
            earliest_end,
            good_until,
        })
    }
}

/// Checks the anchor's dates, which webpki ignores.
fn check_time(
    leaf: &CertificateDer<'_>,
    anchor: &Ca,
    now: UnixTime,
) -> Result<(), CertificateFault> {
    let about = || format!("The CA certificate is {}.", anchor.described);
    match () {
        () if now > anchor.not_after => {
            Err(CertificateFault::new(Reason::CaExpired, leaf, about()))
        }
        () if now < anchor.not_before => {
            Err(CertificateFault::new(Reason::CaNotYetValid, leaf, about()))
        }
        () => Ok(()),
    }
}

/// Checks that webpki does not do: the key of a CA on the path may sign certificates, and the CA has a name.
fn check_ca(leaf: &CertificateDer<'_>, ca: &Certificate<'_>) -> Result<(), CertificateFault> {
    if ca.subject == EMPTY_NAME || ca.issuer == EMPTY_NAME {
        return Err(CertificateFault::new(
            Reason::PathConstraint,
            leaf,
            "A CA above it has an empty name.",
        ));
    }
    if ca.extensions.signs_certificates() {
        Ok(())
    } else {
        Err(CertificateFault::new(
            Reason::PathConstraint,
            leaf,
            format!(
                "The key usage of {} does not allow signing certificates.",
                ca.describe()
            ),
        ))
    }
}

/// A check that webpki does not do: only a CA may have name constraints (RFC 5280, 4.2.1.10). If a leaf has them, its signer
/// took it for a CA certificate, or signs any request.
fn check_leaf(leaf: &CertificateDer<'_>, own: &Certificate<'_>) -> Result<(), CertificateFault> {
    match own.extensions.name_constraints {
        None => Ok(()),
        Some(_) => Err(CertificateFault::new(
            Reason::Malformed,
            leaf,
            "It has name constraints, which only CA certificates may have.",
        )),
    }
}

const UNVERIFIABLE_KEY: &str = "The proxy does not support its type or size of key (RSA under 2048 bits, DSA, or an unsupported curve).";
