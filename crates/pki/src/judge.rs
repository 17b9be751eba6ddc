//! The verdict on a presented chain: path, dates, depth, revocation, then who it is.
//!
//! Paths are built and signatures checked by webpki. Each complete path is then judged here, and where it is not
//! acceptable webpki goes on to the next: with a CA renewed, re-keyed or cross-signed, any acceptable path will do.

use std::cell::RefCell;
use std::sync::Arc;

use identity::{Agent, Certname, ChainVerified, ClientIdentity, Reason, Refusal};
use rustls_pki_types::{CertificateDer, SignatureVerificationAlgorithm, UnixTime};
use webpki::{EndEntityCert, KeyUsage, VerifiedPath};

use crate::bundle::{Ca, EMPTY_NAME, Fingerprint, Issuer};
use crate::certificate::{Certificate, Day, Serial, Subject};
use crate::deny::{Block, SerialNumber, fingerprint_of};
use crate::email_constraint::{EmailConstraints, EmailFault};
use crate::first_step::FirstStep;
use crate::legacy;
use crate::remembered::Sent;
use crate::settings::{CrlExpired, Revocation};
use crate::signature;
use crate::store::TrustStore;

/// What a trust store says of a client, and what is needed to say it again.
#[derive(Clone, Debug)]
pub struct Judgement {
    /// The verdict.
    pub identity: ClientIdentity,
    /// The path it rests on, where there is one.
    pub chain: Option<Arc<VerifiedChain>>,
    /// The certificates as the client sent them, its own first; none for an anonymous client.
    pub presented: Arc<[CertificateDer<'static>]>,
    /// The generation of the store that judged.
    pub generation: u64,
}

impl Judgement {
    /// Whether the verdict holds still: same trust, and the clock is where everything it rests on is in time.
    ///
    /// This is what a connection asks on each request: a comparison, and two more for a verified client. A client
    /// refused for a certificate whose time is to come stays refused until it connects anew or the trust changes.
    pub fn is_current(&self, generation: u64, now: UnixTime) -> bool {
        let in_time = self
            .chain
            .as_ref()
            .is_none_or(|chain| chain.latest_begin <= now && now <= chain.good_until);
        self.generation == generation && in_time
    }

    /// The last second for which the verdict holds without asking again; none where no time ends it.
    pub fn good_until(&self) -> Option<UnixTime> {
        self.chain.as_ref().map(|chain| chain.good_until)
    }
}

/// A path that was verified, as far as it is needed to verify it again.
#[derive(Debug)]
pub struct VerifiedChain {
    links: Arc<[Link]>,
    anchor: Anchor,
    /// The latest begin among the certificates on the path, the anchor's among them: a clock may be set back.
    latest_begin: UnixTime,
    /// The earliest end among them.
    earliest_end: UnixTime,
    /// That, or the earliest instant from which a CRL that has run out refuses.
    good_until: UnixTime,
    /// Bundle and policy under which the path was built.
    paths: Fingerprint,
    agent: Arc<Agent>,
}

impl VerifiedChain {
    /// When the first certificate on the path ends.
    pub fn earliest_end(&self) -> UnixTime {
        self.earliest_end
    }

    /// SHA-256 of the client's own certificate: there always is one at the end of a path.
    pub fn fingerprint(&self) -> Option<&[u8; 32]> {
        self.links.last().map(|own| &own.fingerprint)
    }

    /// The agent that it made known.
    pub fn agent(&self) -> &Arc<Agent> {
        &self.agent
    }
}

/// A verdict from memory.
#[derive(Clone, Debug)]
pub struct Recalled {
    /// Whose certificate it is.
    pub agent: Arc<Agent>,
    /// Why it is refused now; where dates say so, those of a CA above it or its own. None: it is not.
    pub refused: Option<Reason>,
    /// The block that it meets.
    pub block: Option<Block>,
    /// Issuer (RFC 2253) and serial of each certificate on its path that lists are asked about, its own first.
    pub path: Vec<(String, SerialNumber)>,
}

/// One certificate on a path, as revocation sees it.
#[derive(Clone, Debug)]
struct Link {
    issuer: Arc<Issuer>,
    /// In its shortest form.
    serial: Box<[u8]>,
    /// SHA-256 of the certificate.
    fingerprint: [u8; 32],
}

/// The CA at which a path ends, as blocks see it: no list is asked about it.
#[derive(Clone, Debug)]
struct Anchor {
    issuer: Arc<Issuer>,
    /// Its serial under its own name; none where another has issued it, whom the bundle does not know.
    serial: Option<Box<[u8]>>,
    fingerprint: [u8; 32],
}

/// What is wrong with which certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fault {
    pub(crate) reason: Reason,
    /// The certificate it is about: subject, serial, issuer, dates.
    pub(crate) certificate: String,
    /// More, as sentences; may be empty.
    pub(crate) detail: String,
}

/// A verified path before it is known whose it is.
pub(crate) struct Path {
    links: Arc<[Link]>,
    anchor: Anchor,
    latest_begin: UnixTime,
    earliest_end: UnixTime,
    good_until: UnixTime,
}

impl TrustStore {
    /// Judges the certificates a client sent, its own first; proof of possession is the handshake's affair.
    pub fn judge(&self, chain: &[CertificateDer<'_>], now: UnixTime) -> Judgement {
        let presented = chain.iter().map(|der| der.clone().into_owned()).collect();
        self.judge_presented(presented, now)
    }

    /// Judges again under this store what another store, or this one at an earlier time, has judged.
    ///
    /// A path that was good is confirmed by (issuer key, serial) alone while bundle and policy are the same; that is
    /// all a CRL swap costs. Whatever is not confirmed is judged anew from the certificates, refused clients too:
    /// the verdict is always what a new connection would get.
    pub fn rejudge(&self, judgement: &Judgement, now: UnixTime) -> Judgement {
        if let Some(chain) = &judgement.chain
            && let Some(chain) = self.confirm(chain, now)
        {
            return Judgement {
                chain: Some(chain),
                generation: self.generation,
                ..judgement.clone()
            };
        }
        self.judge_presented(Arc::clone(&judgement.presented), now)
    }

    /// Whether [`rejudge`](Self::rejudge) has no path to build: microseconds at most, where a path costs hundreds.
    pub fn confirms_by_serial(&self, judgement: &Judgement) -> bool {
        judgement.presented.is_empty()
            || judgement
                .chain
                .as_ref()
                .is_some_and(|chain| chain.paths == self.paths)
    }

    fn judge_presented(
        &self,
        presented: Arc<[CertificateDer<'static>]>,
        now: UnixTime,
    ) -> Judgement {
        let (identity, chain) = match presented.split_first() {
            None => (ClientIdentity::Anonymous, None),
            Some((leaf, _)) => match self.admitted(&presented, now) {
                Ok(chain) => (
                    ClientIdentity::Verified(Arc::clone(&chain.agent)),
                    Some(chain),
                ),
                Err(fault) => (ClientIdentity::Refused(refusal(fault, leaf)), None),
            },
        };
        Judgement {
            identity,
            chain,
            presented,
            generation: self.generation,
        }
    }

    /// The chain, where it is good and nobody on it is blocked: one that is remembered and still holds, else one that is
    /// verified now.
    fn admitted(
        &self,
        presented: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<Arc<VerifiedChain>, Fault> {
        let known = Sent::of(presented);
        let remembered = self.remembered.get(&known);
        let held = remembered.and_then(|chain| self.confirm(&chain, now));
        self.remembered.count(held.is_some());
        if let Some(chain) = held {
            return Ok(chain);
        }
        let (leaf, sent) = presented
            .split_first()
            .ok_or_else(|| Fault::new(Reason::Malformed, &[], ""))?;
        let chain = self.verified(leaf, sent, now)?;
        self.remembered.put(&known, &chain);
        match self.block_of(&chain, now) {
            // Whom and why is the operator's affair; an agent learns only that it is meant.
            Some(_) => Err(Fault::new(Reason::Blocked, leaf, "")),
            None => Ok(chain),
        }
    }

    /// The block that a chain meets, by the agent or by a certificate on it.
    fn block_of(&self, chain: &VerifiedChain, now: UnixTime) -> Option<&Block> {
        if self.deny.is_empty() {
            return None;
        }
        let by = |issuer: &Issuer, serial: Option<&[u8]>, fingerprint: &[u8; 32]| {
            let of_serial = serial.and_then(|s| self.deny.of_serial(&issuer.text, s, now));
            of_serial.or_else(|| self.deny.of_fingerprint(fingerprint, now))
        };
        let on_path = |link: &Link| by(&link.issuer, Some(&link.serial), &link.fingerprint);
        let Anchor {
            issuer,
            serial,
            fingerprint,
        } = &chain.anchor;
        let of_agent = self.deny.of_agent(&chain.agent, now);
        of_agent
            .or_else(|| chain.links.iter().find_map(on_path))
            .or_else(|| by(issuer, serial.as_deref(), fingerprint))
    }

    /// What is said now of the certificate with this SHA-256, by the path on which it was verified; none where that is
    /// not remembered. For people: what decides is [`judge`](Self::judge), which would look for another path.
    pub fn recall(&self, fingerprint: &[u8; 32], now: UnixTime) -> Option<Recalled> {
        let chain = self.remembered.chain_of(fingerprint)?;
        let block = self.block_of(&chain, now).cloned();
        let refused = match self.unrevoked(&chain.links, chain.earliest_end, now) {
            _ if now > chain.earliest_end => Some(Reason::CaExpired),
            _ if now < chain.latest_begin => Some(Reason::CaNotYetValid),
            Err(fault) => Some(fault.reason),
            Ok(_) => block.as_ref().map(|_| Reason::Blocked),
        };
        let serial_of = |link: &Link| {
            let serial = SerialNumber::of_content(&link.serial);
            (link.issuer.text.clone(), serial)
        };
        Some(Recalled {
            agent: Arc::clone(&chain.agent),
            refused,
            block,
            path: chain.links.iter().rev().map(serial_of).collect(),
        })
    }

    fn verified(
        &self,
        leaf: &CertificateDer<'_>,
        sent: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<Arc<VerifiedChain>, Fault> {
        let path = self.verify(leaf, sent, KeyUsage::client_auth(), now)?;
        // The one place that says so: `path` comes from `verify` only when every check on it has passed.
        let proof = ChainVerified::assertion();
        let agent = Agent::from_leaf(leaf, &self.identity, proof).map_err(|error| {
            Fault::new(
                Reason::Subject,
                leaf,
                format!("In detail: {}.", causes(&error)),
            )
        })?;
        Ok(Arc::new(VerifiedChain {
            links: path.links,
            anchor: path.anchor,
            latest_begin: path.latest_begin,
            earliest_end: path.earliest_end,
            good_until: path.good_until,
            paths: self.paths,
            agent: Arc::new(agent),
        }))
    }

    /// The same path under this store, if every link of it still stands.
    fn confirm(&self, chain: &Arc<VerifiedChain>, now: UnixTime) -> Option<Arc<VerifiedChain>> {
        let in_time = chain.latest_begin <= now && now <= chain.earliest_end;
        let stands = chain.paths == self.paths && in_time;
        if !stands || self.block_of(chain, now).is_some() {
            return None;
        }
        let good_until = self.unrevoked(&chain.links, chain.earliest_end, now).ok()?;
        if good_until == chain.good_until {
            return Some(Arc::clone(chain));
        }
        Some(Arc::new(VerifiedChain {
            links: Arc::clone(&chain.links),
            anchor: chain.anchor.clone(),
            latest_begin: chain.latest_begin,
            earliest_end: chain.earliest_end,
            good_until,
            paths: chain.paths,
            agent: Arc::clone(&chain.agent),
        }))
    }

    /// Builds and checks paths from a leaf until one is acceptable in every respect; where none is, once more with the
    /// signatures that named CAs are admitted with.
    ///
    /// # Errors
    /// Why none is: of the paths that lead to an anchor rather than of those that lead nowhere.
    pub(crate) fn verify(
        &self,
        leaf: &CertificateDer<'_>,
        sent: &[CertificateDer<'_>],
        usage: KeyUsage,
        now: UnixTime,
    ) -> Result<Path, Fault> {
        let strict = signature::algorithms().all;
        let fault = match self.verify_by(strict, None, leaf, sent, usage, now) {
            Err(fault) => fault,
            strict => return strict,
        };
        let fault = match self.verify_by_steps(fault, leaf, sent, usage, now) {
            Err(fault) if !self.legacy.is_empty() => fault,
            outcome => return outcome,
        };
        let algorithms = self.legacy.algorithms();
        let lenient = self.verify_by(&algorithms, None, leaf, sent, usage, now);
        lenient.map_err(|other| match other.reason {
            // Not theirs: the fault is what it would be if nobody were named.
            Reason::BadSignature | Reason::UnsupportedAlgorithm => fault,
            _ => other,
        })
    }

    /// Tries the first steps that are taken here, where webpki may have refused what RFC 5280 allows.
    fn verify_by_steps(
        &self,
        mut fault: Fault,
        leaf: &CertificateDer<'_>,
        sent: &[CertificateDer<'_>],
        usage: KeyUsage,
        now: UnixTime,
    ) -> Result<Path, Fault> {
        // Where an anchor has the CA's own name, webpki tells of the signature that is not that anchor's.
        if !matches!(fault.reason, Reason::PathConstraint | Reason::BadSignature) {
            return Err(fault);
        }
        let algorithms = signature::algorithms().all;
        let intermediates = self.intermediates(sent);
        for step in FirstStep::all(&self.bundle, &intermediates, now) {
            match self.verify_by(algorithms, Some(&step), leaf, sent, usage, now) {
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
    fn verify_by(
        &self,
        algorithms: &[&dyn SignatureVerificationAlgorithm],
        step: Option<&FirstStep<'_>>,
        leaf: &CertificateDer<'_>,
        sent: &[CertificateDer<'_>],
        usage: KeyUsage,
        now: UnixTime,
    ) -> Result<Path, Fault> {
        let parsed =
            EndEntityCert::try_from(leaf).map_err(|error| self.fault(&error, leaf, sent, now))?;
        let own = Certificate::read(leaf).map_err(|_| Fault::new(Reason::Malformed, leaf, ""))?;
        if own.issuer == EMPTY_NAME {
            return Err(Fault::new(Reason::Malformed, leaf, "Its issuer is empty."));
        }
        // Whether it was a named CA that certified a small key is looked at when the path is known.
        let may_be_small = !self.legacy.is_empty() && legacy::is_small_rsa(own.spki);
        if !signature::is_verifiable(own.spki) && !may_be_small {
            return Err(Fault::new(
                Reason::UnsupportedAlgorithm,
                leaf,
                UNVERIFIABLE_KEY,
            ));
        }
        let mut intermediates = self.intermediates(sent);
        // Where the path starts, it does not pass.
        intermediates.retain(|der| step.is_none_or(|step| step.der != der));
        let accepted = RefCell::new(None);
        let refused = RefCell::new(None::<Fault>);
        let judge_path = |path: &VerifiedPath<'_>| match self.check_path(leaf, path, step, now) {
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
        let anchors = step.map_or(&self.bundle.anchors[..], |step| {
            std::slice::from_ref(&step.start)
        });
        let outcome = parsed.verify_for_usage(
            algorithms,
            anchors,
            &intermediates,
            now,
            usage,
            None,
            Some(&judge_path),
        );
        match (outcome, accepted.into_inner(), refused.into_inner()) {
            (Ok(_), Some(path), _) => Ok(path),
            (Err(_), _, Some(fault)) => Err(fault),
            (Err(error), _, None) => Err(self.fault(&error, leaf, sent, now)),
            // webpki accepts only what `judge_path` accepted. Should that change, nobody comes in by it.
            (Ok(_), None, _) => Err(Fault::new(Reason::UnknownIssuer, leaf, "")),
        }
    }

    /// The bundle's intermediates and what the client sent. Agents of Puppet 6 and later send only their own.
    ///
    /// What webpki cannot parse is left out: one odd certificate beside a good chain is no reason to refuse, nor may
    /// it give the reason for a refusal.
    fn intermediates<'a>(&'a self, sent: &'a [CertificateDer<'_>]) -> Vec<CertificateDer<'a>> {
        let ours = self.bundle.intermediates().map(|ca| &ca.der);
        let theirs = sent
            .iter()
            .filter(|der| EndEntityCert::try_from(*der).is_ok())
            .filter(|der| {
                self.bundle
                    .cas
                    .iter()
                    .all(|ca| ca.der.as_ref() != der.as_ref())
            });
        ours.map(|der| CertificateDer::from(der.as_ref()))
            .chain(theirs.map(|der| CertificateDer::from(der.as_ref())))
            .collect()
    }

    /// Judges one path on which every signature is right and every certificate but the anchor is in time.
    fn check_path(
        &self,
        leaf: &CertificateDer<'_>,
        path: &VerifiedPath<'_>,
        step: Option<&FirstStep<'_>>,
        now: UnixTime,
    ) -> Result<Path, Fault> {
        let anchor = step
            .map(|step| step.issuer)
            .or_else(|| self.bundle.anchor_ca(path.anchor()))
            .ok_or_else(|| Fault::new(Reason::UnknownIssuer, leaf, ""))?;
        check_time(leaf, anchor, now)?;
        let mut ders: Vec<_> = path
            .intermediate_certificates()
            .map(webpki::Cert::der)
            .collect();
        if let Some(step) = step {
            if !step.admits(&ders) {
                return Err(Fault::new(Reason::PathConstraint, leaf, ""));
            }
            ders.push(step.der.clone());
        }
        if ders.len() > usize::from(self.settings.depth) {
            return Err(Fault::new(
                Reason::Depth,
                leaf,
                format!(
                    "{} intermediate CAs stand between it and {}; the proxy's `depth` allows {}.",
                    ders.len(),
                    anchor.issuer.text,
                    self.settings.depth
                ),
            ));
        }
        let malformed = |_| Fault::new(Reason::Malformed, leaf, "");
        let not_admitted = |fault: EmailFault| {
            Fault::new(Reason::PathConstraint, leaf, format!("In detail: {fault}."))
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
            let next = self.issuer(&ca);
            links.push(Link::new(std::mem::replace(&mut issuer, next), &ca, der));
        }
        let own = Certificate::read(leaf).map_err(malformed)?;
        check_leaf(leaf, &own)?;
        emails.check(&own).map_err(not_admitted)?;
        latest_begin = latest_begin.max(own.not_before);
        earliest_end = earliest_end.min(own.not_after);
        if !signature::is_verifiable(own.spki) && !self.legacy.names(issuer.id) {
            return Err(Fault::new(
                Reason::UnsupportedAlgorithm,
                leaf,
                UNVERIFIABLE_KEY,
            ));
        }
        links.push(Link::new(issuer, &own, leaf));
        let good_until = self.unrevoked(&links, earliest_end, now).map_err(|fault| {
            let revoked = ders
                .iter()
                .rev()
                .chain([leaf])
                .nth(fault.link)
                .unwrap_or(leaf);
            self.revocation_fault(&fault, &links, leaf, revoked)
        })?;
        Ok(Path {
            links: links.into(),
            anchor: Anchor::of(anchor),
            latest_begin,
            earliest_end,
            good_until,
        })
    }

    /// The bundle's own value for an issuer, or a new one for a CA that the client sent.
    fn issuer(&self, ca: &Certificate<'_>) -> Arc<Issuer> {
        let known = self.bundle.issuers.get(&Issuer::id(ca));
        known.map_or_else(|| Arc::new(Issuer::of(ca)), Arc::clone)
    }

    /// Looks the links up in their issuers' CRLs, as far as the policy says; until when the outcome holds.
    fn unrevoked(
        &self,
        links: &[Link],
        earliest_end: UnixTime,
        now: UnixTime,
    ) -> Result<UnixTime, LinkFault> {
        let mut good_until = earliest_end;
        let mut fault = None;
        for (index, link) in links.iter().enumerate() {
            if index + 1 < links.len() && self.spares_cas(&link.issuer) {
                continue;
            }
            match self.check_link(link, now) {
                Ok(until) => good_until = good_until.min(until.unwrap_or(good_until)),
                Err(reason) => {
                    if fault.is_none() || reason == Reason::Revoked {
                        fault = Some(LinkFault {
                            link: index,
                            reason,
                        });
                    }
                }
            }
        }
        fault.map_or(Ok(good_until), Err)
    }

    /// Whether the policy says that CA certificates of this issuer are not looked up.
    fn spares_cas(&self, issuer: &Issuer) -> bool {
        self.settings.policy(&issuer.text).revocation == Revocation::Leaf
    }

    fn check_link(&self, link: &Link, now: UnixTime) -> Result<Option<UnixTime>, Reason> {
        let policy = self.settings.policy(&link.issuer.text);
        let Some(indexed) = self.crl_of(&link.issuer) else {
            return match policy.unchecked {
                true => Ok(None),
                false => Err(Reason::CrlMissing),
            };
        };
        if indexed.crl.serials.contains(&link.serial) {
            return Err(Reason::Revoked);
        }
        match indexed.crl.judged_by_until(policy) {
            Some(end) if now > end => Err(Reason::CrlExpired),
            until => Ok(until),
        }
    }

    fn revocation_fault(
        &self,
        fault: &LinkFault,
        links: &[Link],
        leaf: &CertificateDer<'_>,
        revoked: &CertificateDer<'_>,
    ) -> Fault {
        let issuer = &links[fault.link].issuer;
        let detail = match (fault.reason, self.crl_of(issuer)) {
            (Reason::Revoked, Some(indexed)) => {
                let list = format!(
                    "It is on the CRL of {}, number {}.",
                    issuer.text,
                    indexed.crl.number_text()
                );
                match fault.link + 1 == links.len() {
                    true => list,
                    false => format!(
                        "{list} It is a CA above the certificate {}.",
                        described(leaf)
                    ),
                }
            }
            (Reason::CrlExpired, Some(indexed)) => format!(
                "The CRL of {}, number {}, ended on {}{}; the proxy's operator has to fetch a new one, then run proscenium reload.",
                issuer.text,
                indexed.crl.number_text(),
                indexed
                    .crl
                    .next_update
                    .map_or_else(String::new, |end| Day(end).to_string()),
                self.grace_text(issuer),
            ),
            _ => format!(
                "The proxy has no CRL of {}; its operator has to add it to `[trust] crl` (on the CA: ca_crl.pem), then run proscenium reload.",
                issuer.text
            ),
        };
        // A missing CRL is not the fault of the CA certificate that it would have listed.
        match fault.reason {
            Reason::Revoked => Fault::new(fault.reason, revoked, detail),
            reason => Fault::new(reason, leaf, detail),
        }
    }

    /// What the refusal adds where the list was judged by for some time after its end.
    fn grace_text(&self, issuer: &Issuer) -> &'static str {
        match self.settings.policy(&issuer.text).crl_expired {
            CrlExpired::Grace(_) => {
                ", and the time for which the proxy judges by an old one is over"
            }
            CrlExpired::Reject | CrlExpired::Warn => "",
        }
    }

    /// Whether a CA of the bundle that has the issuer's name has a key that cannot be verified: aws-lc calls wrong what
    /// such a key has signed.
    fn issuer_is_unverifiable(&self, own: &Certificate<'_>) -> bool {
        let mut issuers = self.bundle.issuers.values();
        issuers.any(|issuer| *issuer.name == *own.issuer && !signature::is_verifiable(&issuer.spki))
    }

    /// What webpki's error means, about which certificate.
    fn fault(
        &self,
        error: &webpki::Error,
        leaf: &CertificateDer<'_>,
        sent: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Fault {
        use webpki::Error;
        let own = Certificate::read(leaf).ok();
        let expired = own.as_ref().is_some_and(|own| now > own.not_after);
        let early = own.as_ref().is_some_and(|own| now < own.not_before);
        let reason = match error {
            Error::CertExpired { .. } if expired => Reason::Expired,
            Error::CertNotValidYet { .. } if early => Reason::NotYetValid,
            Error::CertExpired { .. } => Reason::CaExpired,
            Error::CertNotValidYet { .. } => Reason::CaNotYetValid,
            Error::UnknownIssuer => Reason::UnknownIssuer,
            Error::InvalidSignatureForPublicKey
                if own
                    .as_ref()
                    .is_some_and(|own| self.issuer_is_unverifiable(own)) =>
            {
                Reason::UnsupportedAlgorithm
            }
            Error::InvalidSignatureForPublicKey => Reason::BadSignature,
            Error::UnsupportedSignatureAlgorithmContext(_)
            | Error::UnsupportedSignatureAlgorithmForPublicKeyContext(_) => {
                Reason::UnsupportedAlgorithm
            }
            Error::RequiredEkuNotFoundContext(_) | Error::EmptyEkuExtension => Reason::WrongPurpose,
            Error::UnsupportedCriticalExtension => Reason::CriticalExtension,
            Error::UnsupportedCertVersion => match own.as_ref().map(|own| own.version) {
                Some(1 | 2) => Reason::CertificateVersion,
                _ => Reason::Malformed,
            },
            Error::CaUsedAsEndEntity => Reason::NotAnEndEntity,
            Error::EndEntityUsedAsCa
            | Error::PathLenConstraintViolated
            | Error::NameConstraintViolation
            | Error::MalformedNameConstraint
            | Error::InvalidNetworkMaskConstraint => Reason::PathConstraint,
            // Too many CAs above it, or so many candidates that the search was given up.
            Error::MaximumPathDepthExceeded
            | Error::MaximumPathBuildCallsExceeded
            | Error::MaximumSignatureChecksExceeded
            | Error::MaximumNameConstraintComparisonsExceeded => Reason::Depth,
            _ => Reason::Malformed,
        };
        let detail = match reason {
            Reason::UnknownIssuer | Reason::BadSignature => {
                own.as_ref().map(|own| self.issuer_detail(own))
            }
            Reason::CaExpired | Reason::CaNotYetValid => self.untimely_ca(sent, now),
            Reason::Malformed => Some(format!("The reader says: {error}.")),
            _ => None,
        };
        Fault::new(reason, leaf, detail.unwrap_or_default())
    }

    fn issuer_detail(&self, leaf: &Certificate<'_>) -> String {
        let known = self
            .bundle
            .issuers
            .values()
            .any(|issuer| *issuer.name == *leaf.issuer);
        match known {
            true => format!(
                "The proxy knows a CA {}, but its key did not sign this certificate: the CA was made anew, or this is \
                 another one of the same name.",
                Subject(leaf.issuer)
            ),
            false => {
                let mut names: Vec<_> = self
                    .bundle
                    .issuers
                    .values()
                    .map(|issuer| issuer.text.as_str())
                    .collect();
                names.sort_unstable();
                names.dedup();
                names.truncate(SUBJECTS_SHOWN_MAX);
                format!("The proxy trusts {}.", names.join("; "))
            }
        }
    }

    fn untimely_ca(&self, sent: &[CertificateDer<'_>], now: UnixTime) -> Option<String> {
        let ours = self.bundle.cas.iter().map(|ca| &*ca.der);
        ours.chain(sent.iter().map(|der| &**der))
            .filter_map(|der| Certificate::read(der).ok())
            .find(|ca| now > ca.not_after || now < ca.not_before)
            .map(|ca| format!("It is about the CA certificate {}.", ca.describe()))
    }
}

impl Fault {
    pub(crate) fn new(reason: Reason, certificate: &[u8], detail: impl Into<String>) -> Self {
        Self {
            reason,
            certificate: described(certificate),
            detail: detail.into(),
        }
    }
}

impl Link {
    fn new(issuer: Arc<Issuer>, certificate: &Certificate<'_>, der: &[u8]) -> Self {
        Self {
            issuer,
            serial: certificate.serial.into(),
            fingerprint: fingerprint_of(der),
        }
    }
}

impl Anchor {
    fn of(ca: &Ca) -> Self {
        let is_its_own = ca.issued_by == ca.issuer.name;
        let read = Certificate::read(&ca.der).ok().filter(|_| is_its_own);
        Self {
            issuer: Arc::clone(&ca.issuer),
            serial: read.map(|own| own.serial.into()),
            fingerprint: fingerprint_of(&ca.der),
        }
    }
}

/// Which link of a path fails, counted from the anchor down, and why.
struct LinkFault {
    link: usize,
    reason: Reason,
}

/// The anchor's own dates, which webpki does not look at.
fn check_time(leaf: &CertificateDer<'_>, anchor: &Ca, now: UnixTime) -> Result<(), Fault> {
    let about = || format!("It is about the CA certificate {}.", anchor.described);
    match () {
        () if now > anchor.not_after => Err(Fault::new(Reason::CaExpired, leaf, about())),
        () if now < anchor.not_before => Err(Fault::new(Reason::CaNotYetValid, leaf, about())),
        () => Ok(()),
    }
}

/// What webpki does not ask of a CA on a path: that its key may sign certificates, and that it has a name.
fn check_ca(leaf: &CertificateDer<'_>, ca: &Certificate<'_>) -> Result<(), Fault> {
    if ca.subject == EMPTY_NAME || ca.issuer == EMPTY_NAME {
        return Err(Fault::new(
            Reason::PathConstraint,
            leaf,
            "A CA above it has an empty name.",
        ));
    }
    match ca.extensions.signs_certificates() {
        true => Ok(()),
        false => Err(Fault::new(
            Reason::PathConstraint,
            leaf,
            format!(
                "The key usage of {} does not allow to sign certificates.",
                ca.describe()
            ),
        )),
    }
}

/// What webpki does not ask of a certificate that is no CA's: that it constrains nobody (RFC 5280, 4.2.1.10). Whoever
/// signed it took it for a CA's, or signs what it is given.
fn check_leaf(leaf: &CertificateDer<'_>, own: &Certificate<'_>) -> Result<(), Fault> {
    match own.extensions.name_constraints {
        None => Ok(()),
        Some(_) => Err(Fault::new(
            Reason::Malformed,
            leaf,
            "It has name constraints, which only the certificate of a CA may have.",
        )),
    }
}

/// What the agent's user is told, with what to run.
fn refusal(fault: Fault, leaf: &[u8]) -> Refusal {
    let help = match fault.reason {
        // Another certificate of the agent's would be of no use.
        Reason::Revoked if fault.certificate != described(leaf) => CA_REVOKED.to_owned(),
        Reason::UnknownIssuer | Reason::BadSignature => {
            "Compare the agent's CA with the server's (puppet ssl verify). If the agent belongs to this server: \
             on the agent run puppet ssl clean, then puppet agent -t."
                .to_owned()
        }
        Reason::NotYetValid | Reason::CaNotYetValid => {
            "Compare the clocks of agent, CA and proxy.".to_owned()
        }
        Reason::Blocked => {
            "Ask its operator; proscenium blocks lists whom it blocks and why.".to_owned()
        }
        Reason::CaExpired => {
            "The operator has to renew the CA certificate and give it to agents and proxy.".to_owned()
        }
        Reason::Revoked
        | Reason::Expired
        | Reason::Subject
        | Reason::WrongPurpose
        | Reason::CriticalExtension
        | Reason::NotAnEndEntity
        | Reason::CertificateVersion
        | Reason::Malformed
        | Reason::UnsupportedAlgorithm => renewal(leaf),
        Reason::CrlMissing | Reason::CrlExpired | Reason::Depth | Reason::PathConstraint => {
            String::new()
        }
    };
    let parts = [fault.detail, help];
    let parts: Vec<_> = parts.into_iter().filter(|part| !part.is_empty()).collect();
    Refusal {
        reason: fault.reason,
        certificate: fault.certificate,
        help: parts.join(" "),
        claimed: claimed_certname(leaf),
    }
}

/// How an agent gets another certificate.
fn renewal(leaf: &[u8]) -> String {
    format!(
        "To get a new certificate: on the CA run puppetserver ca clean --certname {}, on the agent run \
         puppet ssl clean, then puppet agent -t.",
        claimed_certname(leaf)
            .as_ref()
            .map_or("NAME", Certname::as_str)
    )
}

/// The certname, where the subject is nothing else and harmless in a command that somebody pastes: no CA may have
/// vouched for it.
pub(crate) fn claimed_certname(leaf: &[u8]) -> Option<Certname> {
    let subject = Subject(Certificate::read(leaf).ok()?.subject).to_string();
    Certname::parse_puppet(subject.strip_prefix("CN=")?).ok()
}

fn described(der: &[u8]) -> String {
    match Certificate::read(der) {
        Ok(certificate) => format!(
            "\"{}\" (serial {}, issued by \"{}\", valid {} to {})",
            Subject(certificate.subject),
            Serial(certificate.serial),
            Subject(certificate.issuer),
            Day(certificate.not_before),
            Day(certificate.not_after),
        ),
        Err(_) => "(unreadable)".into(),
    }
}

/// An error and its causes in one sentence.
fn causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(": ");
        text.push_str(&error.to_string());
        cause = error.source();
    }
    text
}

const CA_REVOKED: &str = "Every certificate that this CA issued is refused: the operator has to set up another \
                          (puppetserver ca setup), and agents enrol with it (puppet ssl clean, then puppet agent -t).";

const UNVERIFIABLE_KEY: &str = "Its key is of a kind or size that cannot be verified (RSA under 2048 bits, DSA, another curve).";

/// CA subjects in a refusal: enough to see that it is another estate, not a list.
const SUBJECTS_SHOWN_MAX: usize = 4;
