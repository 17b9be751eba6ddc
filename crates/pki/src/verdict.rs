//! The verdict on a presented chain, and the data with which the proxy verifies it again: remembered chains, blocks and
//! identity.

use std::sync::Arc;

use identity::{Agent, ChainVerified, ClientIdentity, Reason};
use rustls_pki_types::{CertificateDer, UnixTime};
use webpki::KeyUsage;

use crate::certificate::Certificate;
use crate::chain::{Link, VerifiedChain};
use crate::chain_memory::PresentedDigest;
use crate::deny::{Block, SerialNumber};
use crate::refusal::{CertificateFault, described, refusal};
use crate::store::TrustStore;

/// The verdict on a client, and the data with which the proxy verifies the client again.
#[derive(Clone, Debug)]
pub struct ChainVerification {
    /// The verdict.
    pub identity: ClientIdentity,
    /// The verified path, if there is one.
    pub chain: Option<Arc<VerifiedChain>>,
    /// The certificates as the client sent them, its own certificate first. Empty for an anonymous client.
    pub presented: Arc<[CertificateDer<'static>]>,
    /// The generation of the trust store that verified them.
    pub generation: u64,
}

impl ChainVerification {
    /// Whether the verdict is still valid: the trust store is the same, and every certificate and CRL on which the verdict
    /// depends is still valid.
    ///
    /// A connection calls this on each request. It costs one comparison, and two more for a verified client. A client that was
    /// refused because its certificate is not valid yet stays refused until it reconnects or the trust store changes.
    pub fn is_current(&self, generation: u64, now: UnixTime) -> bool {
        let in_time = self
            .chain
            .as_ref()
            .is_none_or(|chain| chain.latest_begin <= now && now <= chain.good_until);
        self.generation == generation && in_time
    }

    /// The last second in which the verdict is valid without another verification; none if it never expires.
    pub fn good_until(&self) -> Option<UnixTime> {
        self.chain.as_ref().map(|chain| chain.good_until)
    }
}

/// A verdict on a remembered certificate.
#[derive(Clone, Debug)]
pub struct RecalledVerdict {
    /// The agent of the certificate.
    pub agent: Arc<Agent>,
    /// Why the agent is refused now; none if it is accepted. If a date is the reason, it may be a date of the certificate or of
    /// a CA above it.
    pub refused: Option<Reason>,
    /// The block that matches the certificate or its agent.
    pub block: Option<Block>,
    /// Issuer (RFC 2253) and serial of each certificate on the path that is looked up in CRLs. The agent's own certificate is
    /// first.
    pub path: Vec<(String, SerialNumber)>,
}

impl TrustStore {
    /// Verifies the certificates that a client sent, its own certificate first. The handshake verifies that the client holds
    /// the key.
    pub fn verify(&self, chain: &[CertificateDer<'_>], now: UnixTime) -> ChainVerification {
        let presented = chain.iter().map(|der| der.clone().into_owned()).collect();
        self.verify_presented(presented, now)
    }

    /// Verifies a client again that was verified by another store, or by this store at an earlier time.
    ///
    /// While bundle and policy are the same, a valid path is confirmed by issuer key and serial alone, so a new CRL costs no
    /// more than that. Everything else is verified from the certificates again, including refused clients. The verdict is
    /// always the one that a new connection would get.
    pub fn reverify(&self, verification: &ChainVerification, now: UnixTime) -> ChainVerification {
        if let Some(confirmed) = self.confirmed(verification, now) {
            return confirmed;
        }
        self.verify_presented(Arc::clone(&verification.presented), now)
    }

    /// The same verdict under this store, if looking up serials is enough to confirm it. This takes microseconds.
    pub fn confirmed(
        &self,
        verification: &ChainVerification,
        now: UnixTime,
    ) -> Option<ChainVerification> {
        let chain = match &verification.chain {
            Some(chain) => Some(self.confirm(chain, now)?),
            None if verification.presented.is_empty() => None,
            None => return None,
        };
        Some(ChainVerification {
            chain,
            generation: self.generation,
            ..verification.clone()
        })
    }

    /// Whether [`reverify`](Self::reverify) needs no new path. It then takes microseconds; building a path takes hundreds of
    /// them.
    pub fn confirms_by_serial(&self, verification: &ChainVerification) -> bool {
        verification.presented.is_empty()
            || verification
                .chain
                .as_ref()
                .is_some_and(|chain| chain.paths == self.paths)
    }

    fn verify_presented(
        &self,
        presented: Arc<[CertificateDer<'static>]>,
        now: UnixTime,
    ) -> ChainVerification {
        let (identity, chain) = match presented.split_first() {
            None => (ClientIdentity::Anonymous, None),
            Some((leaf, sent)) => match self.admitted(&presented, now) {
                Ok(chain) => {
                    self.anchors.bundle.note_seen(chain.cas(), now);
                    (
                        ClientIdentity::Verified(Arc::clone(&chain.agent)),
                        Some(chain),
                    )
                }
                Err(fault) => {
                    let is_issued = self.is_issued(&fault, leaf, sent);
                    (
                        ClientIdentity::Refused(refusal(fault, leaf, is_issued)),
                        None,
                    )
                }
            },
        };
        ChainVerification {
            identity,
            chain,
            presented,
            generation: self.generation,
        }
    }

    /// Whether a trusted CA has issued a refused certificate, so that its name is proven. Blocks and CRLs are looked up only on a
    /// path whose signatures are valid. For an expired certificate no path is built, so it is verified for its last second.
    fn is_issued(
        &self,
        fault: &CertificateFault,
        leaf: &CertificateDer<'_>,
        sent: &[CertificateDer<'_>],
    ) -> bool {
        match fault.reason {
            Reason::Blocked => true,
            // The owner of a revoked CA can issue any name.
            Reason::Revoked => fault.certificate == described(leaf),
            Reason::Expired => Certificate::read(leaf).is_ok_and(|own| {
                let path = self.verify_path(leaf, sent, KeyUsage::client_auth(), own.not_after);
                path.is_ok()
            }),
            _ => false,
        }
    }

    /// The chain, if it is valid and no block matches it. It is a remembered chain that is still valid, or one that is verified
    /// now.
    fn admitted(
        &self,
        presented: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<Arc<VerifiedChain>, CertificateFault> {
        let known = PresentedDigest::of(presented);
        let remembered = self.memory.chains.get(&known);
        let held = remembered.and_then(|chain| self.confirm(&chain, now));
        self.memory.chains.count(held.is_some());
        if let Some(chain) = held {
            return Ok(chain);
        }
        let (leaf, sent) = presented
            .split_first()
            .ok_or_else(|| CertificateFault::new(Reason::Malformed, &[], ""))?;
        let chain = self.verified(leaf, sent, now)?;
        self.memory.chains.put(&known, &chain);
        match self.deny.of_chain(&chain, now) {
            // The operator can see which block matched, and why. The agent only gets the information that it is blocked.
            Some(_) => Err(CertificateFault::new(Reason::Blocked, leaf, "")),
            None => Ok(chain),
        }
    }

    /// The current verdict on the certificate with this SHA-256, for the path on which it was verified. None if that path is
    /// not remembered. Use it for display only: [`verify`](Self::verify) decides, and would look for another path.
    pub fn recall(&self, fingerprint: &[u8; 32], now: UnixTime) -> Option<RecalledVerdict> {
        let chain = self.memory.chains.chain_of(fingerprint)?;
        let block = self.deny.of_chain(&chain, now).cloned();
        let refused = match self
            .revocation
            .unrevoked(&chain.links, chain.earliest_end, now)
        {
            _ if now > chain.earliest_end => Some(Reason::CaExpired),
            _ if now < chain.latest_begin => Some(Reason::CaNotYetValid),
            Err(fault) => Some(fault.reason),
            Ok(_) => block.as_ref().map(|_| Reason::Blocked),
        };
        let serial_of = |link: &Link| {
            let serial = SerialNumber::of_content(&link.serial);
            (link.issuer.text.clone(), serial)
        };
        Some(RecalledVerdict {
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
    ) -> Result<Arc<VerifiedChain>, CertificateFault> {
        let path = self.verify_path(leaf, sent, KeyUsage::client_auth(), now)?;
        // This is the only place that asserts the proof, because `verify_path` returns a path only if every check has passed.
        let proof = ChainVerified::assertion();
        let agent = Agent::from_leaf(leaf, &self.identity, proof).map_err(|error| {
            CertificateFault::new(Reason::Subject, leaf, format!("In detail: {error}."))
        })?;
        let agent = match path.links.last() {
            Some(own) => agent.with_path(own.fingerprint, path.intermediates),
            None => agent,
        };
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

    /// The same path under this store, if every link is still valid.
    fn confirm(&self, chain: &Arc<VerifiedChain>, now: UnixTime) -> Option<Arc<VerifiedChain>> {
        let in_time = chain.latest_begin <= now && now <= chain.earliest_end;
        let stands = chain.paths == self.paths && in_time;
        if !stands || self.deny.of_chain(chain, now).is_some() {
            return None;
        }
        let good_until = self
            .revocation
            .unrevoked(&chain.links, chain.earliest_end, now)
            .ok()?;
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
}
