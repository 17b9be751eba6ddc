//! The verdict on a presented chain, and what is needed to say it again: remembered chains, blocks, then who it is.

use std::sync::Arc;

use identity::{Agent, ChainVerified, ClientIdentity, Reason};
use rustls_pki_types::{CertificateDer, UnixTime};
use webpki::KeyUsage;

use crate::chain::{Link, VerifiedChain};
use crate::chain_memory::PresentedDigest;
use crate::deny::{Block, SerialNumber};
use crate::refusal::{CertificateFault, refusal};
use crate::store::TrustStore;

/// What a trust store says of a client, and what is needed to say it again.
#[derive(Clone, Debug)]
pub struct ChainVerification {
    /// The verdict.
    pub identity: ClientIdentity,
    /// The path it rests on, where there is one.
    pub chain: Option<Arc<VerifiedChain>>,
    /// The certificates as the client sent them, its own first; none for an anonymous client.
    pub presented: Arc<[CertificateDer<'static>]>,
    /// The generation of the store that judged.
    pub generation: u64,
}

impl ChainVerification {
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

/// A verdict from memory.
#[derive(Clone, Debug)]
pub struct RecalledVerdict {
    /// Whose certificate it is.
    pub agent: Arc<Agent>,
    /// Why it is refused now; where dates say so, those of a CA above it or its own. None: it is not.
    pub refused: Option<Reason>,
    /// The block that it meets.
    pub block: Option<Block>,
    /// Issuer (RFC 2253) and serial of each certificate on its path that lists are asked about, its own first.
    pub path: Vec<(String, SerialNumber)>,
}

impl TrustStore {
    /// Judges the certificates a client sent, its own first; proof of possession is the handshake's affair.
    pub fn verify(&self, chain: &[CertificateDer<'_>], now: UnixTime) -> ChainVerification {
        let presented = chain.iter().map(|der| der.clone().into_owned()).collect();
        self.verify_presented(presented, now)
    }

    /// Judges again under this store what another store, or this one at an earlier time, has judged.
    ///
    /// A path that was good is confirmed by (issuer key, serial) alone while bundle and policy are the same; that is
    /// all a CRL swap costs. Whatever is not confirmed is judged anew from the certificates, refused clients too:
    /// the verdict is always what a new connection would get.
    pub fn reverify(&self, verification: &ChainVerification, now: UnixTime) -> ChainVerification {
        if let Some(confirmed) = self.confirmed(verification, now) {
            return confirmed;
        }
        self.verify_presented(Arc::clone(&verification.presented), now)
    }

    /// The same verdict under this store, where looking serials up is enough for it: microseconds at most.
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

    /// Whether [`reverify`](Self::reverify) has no path to build: microseconds at most, where a path costs hundreds.
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
            Some((leaf, _)) => match self.admitted(&presented, now) {
                Ok(chain) => {
                    self.anchors.bundle.note_seen(chain.cas(), now);
                    (
                        ClientIdentity::Verified(Arc::clone(&chain.agent)),
                        Some(chain),
                    )
                }
                Err(fault) => (ClientIdentity::Refused(refusal(fault, leaf)), None),
            },
        };
        ChainVerification {
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
            // Whom and why is the operator's affair; an agent learns only that it is meant.
            Some(_) => Err(CertificateFault::new(Reason::Blocked, leaf, "")),
            None => Ok(chain),
        }
    }

    /// What is said now of the certificate with this SHA-256, by the path on which it was verified; none where that is
    /// not remembered. For people: what decides is [`verify`](Self::verify), which would look for another path.
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
        // The one place that says so: `path` comes from `verify` only when every check on it has passed.
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

    /// The same path under this store, if every link of it still stands.
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
