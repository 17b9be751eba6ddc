//! Chains that were verified before, by all bytes that a client sent: the same signatures are not checked twice.
//!
//! What is remembered is that a path is good under one bundle and one policy, and whose it is. Whoever takes it out looks
//! up dates, CRLs and blocks again; under another bundle or policy there is another, empty memory.

use std::collections::HashMap;
use std::mem;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use foldhash::fast::RandomState;
use rustls_pki_types::CertificateDer;

use crate::chain::VerifiedChain;
use crate::fingerprint::Fingerprint;

/// What a client sent, as far as a memory knows it again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PresentedDigest {
    leaf: Fingerprint,
    /// Of every certificate, in order.
    all: Fingerprint,
}

impl PresentedDigest {
    /// Of the certificates as they came, the client's own first.
    pub(crate) fn of(presented: &[CertificateDer<'_>]) -> Self {
        let leaf = Fingerprint::of(presented.first().map(|der| &**der));
        let all = match presented {
            [] | [_] => leaf,
            several => Fingerprint::of(several.iter().map(|der| &**der)),
        };
        Self { leaf, all }
    }
}

/// How often a verdict found its chain remembered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ChainMemoryStats {
    /// Chains remembered now.
    pub chains: usize,
    /// Verdicts that found theirs, and that it still holds.
    pub hits: u64,
    /// Verdicts for which paths were built.
    pub misses: u64,
}

/// The memory of one bundle and policy.
///
/// It is cut in shards, each behind a lock of its own for a few instructions, so that workers hardly meet. A client
/// certificate has one place, whatever is sent beside it: nobody can fill the memory with one certificate.
#[derive(Debug)]
pub(crate) struct ChainMemory {
    shards: Box<[Mutex<Shard>]>,
    /// Most chains in one half of a shard.
    half_max: usize,
    /// Goes on from memory to memory.
    lookups: Arc<Lookups>,
}

#[derive(Debug, Default)]
pub(crate) struct Lookups {
    hits: AtomicU64,
    misses: AtomicU64,
}

impl ChainMemory {
    /// An empty memory for so many chains at most; it counts on where another has counted.
    pub(crate) fn new(chains_max: usize, lookups: Arc<Lookups>) -> Self {
        let shards = match chains_max {
            ..SHARDED_FROM => 1,
            _ => SHARDS,
        };
        Self {
            shards: (0..shards).map(|_| Mutex::default()).collect(),
            half_max: chains_max / shards / 2,
            lookups,
        }
    }

    /// The counts, to be handed on.
    pub(crate) fn lookups(&self) -> Arc<Lookups> {
        Arc::clone(&self.lookups)
    }

    /// The chain that was verified of exactly these bytes. The caller finds out whether it still holds.
    pub(crate) fn get(&self, sent: &PresentedDigest) -> Option<Arc<VerifiedChain>> {
        let mut shard = self.lock(sent);
        let (chain, outdated) = shard.get(sent, self.half_max);
        drop(shard);
        drop(outdated);
        chain
    }

    /// Remembers what was just verified.
    pub(crate) fn put(&self, sent: &PresentedDigest, chain: &Arc<VerifiedChain>) {
        let outdated = self.lock(sent).put(sent, Arc::clone(chain), self.half_max);
        // Let go without the lock: there may be hundreds.
        drop(outdated);
    }

    /// Counts a verdict.
    pub(crate) fn count(&self, hit: bool) {
        let counter = match hit {
            true => &self.lookups.hits,
            false => &self.lookups.misses,
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn stats(&self) -> ChainMemoryStats {
        let chains = self.shards.iter().map(|shard| {
            let shard = shard.lock().unwrap_or_else(PoisonError::into_inner);
            shard.young.len() + shard.old.len()
        });
        ChainMemoryStats {
            chains: chains.sum(),
            hits: self.lookups.hits.load(Ordering::Relaxed),
            misses: self.lookups.misses.load(Ordering::Relaxed),
        }
    }

    /// A chain of the certificate with this SHA-256. Looks at all of them: for people.
    pub(crate) fn chain_of(&self, fingerprint: &[u8; 32]) -> Option<Arc<VerifiedChain>> {
        self.shards.iter().find_map(|shard| {
            let shard = shard.lock().unwrap_or_else(PoisonError::into_inner);
            let mut places = shard.young.values().chain(shard.old.values());
            let found = places.find(|place| place.chain.fingerprint() == Some(fingerprint));
            found.map(|place| Arc::clone(&place.chain))
        })
    }

    fn lock(&self, sent: &PresentedDigest) -> std::sync::MutexGuard<'_, Shard> {
        let shard = usize::from(sent.leaf.as_bytes()[0]) % self.shards.len();
        let shard = &self.shards[shard];
        shard.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

type Chains = HashMap<Fingerprint, RememberedChain, RandomState>;

/// Two halves: a chain that is asked for moves to the young one, and when that is full it becomes the old one, whose
/// chains nobody has asked for since are forgotten.
#[derive(Debug, Default)]
struct Shard {
    young: Chains,
    old: Chains,
}

#[derive(Debug)]
struct RememberedChain {
    all: Fingerprint,
    chain: Arc<VerifiedChain>,
}

impl Shard {
    /// The chain, and what is forgotten for it.
    fn get(
        &mut self,
        sent: &PresentedDigest,
        half_max: usize,
    ) -> (Option<Arc<VerifiedChain>>, Chains) {
        let known =
            |place: &RememberedChain| (place.all == sent.all).then(|| Arc::clone(&place.chain));
        if let Some(place) = self.young.get(&sent.leaf) {
            return (known(place), Chains::default());
        }
        let Some(chain) = self.old.get(&sent.leaf).and_then(known) else {
            return (None, Chains::default());
        };
        let outdated = self.put(sent, Arc::clone(&chain), half_max);
        (Some(chain), outdated)
    }

    /// Gives the chain the place of its client certificate; what is forgotten for it.
    fn put(
        &mut self,
        sent: &PresentedDigest,
        chain: Arc<VerifiedChain>,
        half_max: usize,
    ) -> Chains {
        self.old.remove(&sent.leaf);
        let is_full = self.young.len() >= half_max && !self.young.contains_key(&sent.leaf);
        let outdated = match is_full {
            true => mem::replace(&mut self.old, mem::take(&mut self.young)),
            false => Chains::default(),
        };
        if half_max > 0 {
            let all = sent.all;
            self.young.insert(sent.leaf, RememberedChain { all, chain });
        }
        outdated
    }
}

/// More than there are workers on most machines.
const SHARDS: usize = 16;
/// Below, one shard: halves of a few chains would forget too soon.
const SHARDED_FROM: usize = 1_024;
