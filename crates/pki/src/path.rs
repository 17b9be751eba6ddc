//! Paths from a certificate to an anchor: signatures, dates, depth, constraints, revocation.
//!
//! Paths are built and signatures checked by webpki. Each complete path is then judged here, and where it is not
//! acceptable webpki goes on to the next: with a CA renewed, re-keyed or cross-signed, any acceptable path will do.

use std::cell::RefCell;
use std::sync::Arc;

use identity::Reason;
use rustls_pki_types::{CertificateDer, SignatureVerificationAlgorithm, UnixTime};
use webpki::{EndEntityCert, KeyUsage, VerifiedPath};

use crate::bundle::{Ca, EMPTY_NAME};
use crate::certificate::Certificate;
use crate::chain::{Anchor, Link, Path};
use crate::email_constraint::{EmailConstraints, EmailFault};
use crate::legacy_signatures;
use crate::path_start::PathStart;
use crate::refusal::CertificateFault;
use crate::signature;
use crate::store::TrustStore;

impl TrustStore {
    /// Builds and checks paths from a leaf until one is acceptable in every respect; where none is, once more with the
    /// signatures that named CAs are admitted with.
    ///
    /// # Errors
    /// Why none is: of the paths that lead to an anchor rather than of those that lead nowhere.
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
            // Not theirs: the fault is what it would be if nobody were named.
            Reason::BadSignature | Reason::UnsupportedAlgorithm => fault,
            _ => other,
        })
    }

    /// Tries the first steps that are taken here, where webpki may have refused what RFC 5280 allows.
    fn verify_from_starts(
        &self,
        mut fault: CertificateFault,
        leaf: &CertificateDer<'_>,
        sent: &[CertificateDer<'_>],
        usage: KeyUsage,
        now: UnixTime,
    ) -> Result<Path, CertificateFault> {
        let intermediates = self.anchors.intermediates(sent);
        let steps = match (fault.reason, Certificate::read(leaf)) {
            // Where an anchor has the CA's own name, webpki tells of the signature that is not that anchor's.
            (Reason::PathConstraint | Reason::BadSignature, _) => {
                PathStart::all(&self.anchors.bundle, &intermediates, now)
            }
            (Reason::UnknownIssuer, Ok(own)) => {
                PathStart::respelled(&self.anchors.bundle, &intermediates, own.issuer, now)
            }
            _ => return Err(fault),
        };
        let algorithms = signature::algorithms().all;
        for step in steps {
            match self.verify_path_with(algorithms, Some(&step), leaf, sent, usage, now) {
                Ok(path) => return Ok(path),
                Err(other) => match other.reason {
                    // The path is another's.
                    Reason::UnknownIssuer | Reason::BadSignature => {}
                    _ => fault = other,
                },
            }
        }
        Err(fault)
    }

    /// Builds paths that end at the bundle's anchors, or at a first step below one.
    fn verify_path_with(
        &self,
        algorithms: &[&dyn SignatureVerificationAlgorithm],
        step: Option<&PathStart<'_>>,
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
        // Whether it was a named CA that certified a small key is looked at when the path is known.
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
        // Where the path starts, it does not pass.
        intermediates.retain(|der| step.is_none_or(|step| step.der != Some(der)));
        let accepted = RefCell::new(None);
        let refused = RefCell::new(None::<CertificateFault>);
        let check_path_found =
            |path: &VerifiedPath<'_>| match self.check_path(leaf, path, step, now) {
                Ok(path) => {
                    accepted.replace(Some(path));
                    Ok(())
                }
                Err(fault) => {
                    let mut first = refused.borrow_mut();
                    // Revoked is the one that a user of the agent can act on; else the first path found is the likeliest.
                    if first.is_none() || fault.reason == Reason::Revoked {
                        *first = Some(fault);
                    }
                    Err(webpki::Error::UnknownRevocationStatus)
                }
            };
        let anchors = step.map_or(&self.anchors.bundle.anchors[..], |step| {
            std::slice::from_ref(&step.start)
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
            // webpki accepts only what `check_path_found` accepted. Should that change, nobody comes in by it.
            (Ok(_), None, _) => Err(CertificateFault::new(Reason::UnknownIssuer, leaf, "")),
        }
    }

    /// Judges one path on which every signature is right and every certificate but the anchor is in time.
    fn check_path(
        &self,
        leaf: &CertificateDer<'_>,
        path: &VerifiedPath<'_>,
        step: Option<&PathStart<'_>>,
        now: UnixTime,
    ) -> Result<Path, CertificateFault> {
        let anchor = step
            .map(|step| step.issuer)
            .or_else(|| self.anchors.bundle.anchor_ca(path.anchor()))
            .ok_or_else(|| CertificateFault::new(Reason::UnknownIssuer, leaf, ""))?;
        check_time(leaf, anchor, now)?;
        let mut ders: Vec<_> = path
            .intermediate_certificates()
            .map(webpki::Cert::der)
            .collect();
        if let Some(step) = step {
            if !step.admits(&ders) {
                return Err(CertificateFault::new(Reason::PathConstraint, leaf, ""));
            }
            ders.extend(step.der.cloned());
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
        let not_admitted = |fault: EmailFault| {
            CertificateFault::new(Reason::PathConstraint, leaf, format!("In detail: {fault}."))
        };
        let mut links = Vec::with_capacity(ders.len() + 1);
        let mut issuer = Arc::clone(&anchor.issuer);
        let (mut latest_begin, mut earliest_end) = (anchor.not_before, anchor.not_after);
        let mut emails = EmailConstraints::default();
        let of_anchor = Certificate::read(&anchor.der).map_err(malformed)?;
        emails
            .add(of_anchor.extensions.name_constraints)
            .map_err(not_admitted)?;
        // From the anchor down, so that each certificate's issuer is at hand.
        for der in ders.iter().rev() {
            let ca = Certificate::read(der).map_err(malformed)?;
            check_ca(leaf, &ca)?;
            // RFC 5280, 6.1.3 (b): a CA that certifies a key of its own is not constrained, an agent always is.
            if !ca.is_self_issued() {
                emails.check(&ca).map_err(not_admitted)?;
            }
            emails
                .add(ca.extensions.name_constraints)
                .map_err(not_admitted)?;
            latest_begin = latest_begin.max(ca.not_before);
            earliest_end = earliest_end.min(ca.not_after);
            let next = self.anchors.issuer(&ca);
            links.push(Link::new(std::mem::replace(&mut issuer, next), &ca, der));
        }
        let own = Certificate::read(leaf).map_err(malformed)?;
        check_leaf(leaf, &own)?;
        emails.check(&own).map_err(not_admitted)?;
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

/// The anchor's own dates, which webpki does not look at.
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

/// What webpki does not ask of a CA on a path: that its key may sign certificates, and that it has a name.
fn check_ca(leaf: &CertificateDer<'_>, ca: &Certificate<'_>) -> Result<(), CertificateFault> {
    if ca.subject == EMPTY_NAME || ca.issuer == EMPTY_NAME {
        return Err(CertificateFault::new(
            Reason::PathConstraint,
            leaf,
            "A CA above it has an empty name.",
        ));
    }
    match ca.extensions.signs_certificates() {
        true => Ok(()),
        false => Err(CertificateFault::new(
            Reason::PathConstraint,
            leaf,
            format!(
                "The key usage of {} does not allow signing certificates.",
                ca.describe()
            ),
        )),
    }
}

/// What webpki does not ask of a certificate that is no CA's: that it constrains nobody (RFC 5280, 4.2.1.10). Whoever
/// signed it took it for a CA's, or signs what it is given.
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
