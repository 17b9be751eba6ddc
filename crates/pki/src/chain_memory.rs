//! Remembers verified chains by a digest of the certificates that a client sent, so that signatures are verified once.
//!
//! An entry says that a path is valid under one bundle and one policy, and which agent it belongs to. The caller checks dates,
//! CRLs and blocks again. Each bundle and policy has a memory of its own, which is empty at first.

use std::collections::HashMap;
use std::mem;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use foldhash::fast::RandomState;
use rustls_pki_types::CertificateDer;

use crate::chain::VerifiedChain;
use crate::fingerprint::Fingerprint;

/// Digests of the certificates that a client sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PresentedDigest {
    leaf: Fingerprint,
    /// Digest of all certificates, in order.
    all: Fingerprint,
}

impl PresentedDigest {
    /// Computes the digests of the certificates as received, the client's own certificate first.
    pub(crate) fn of(presented: &[CertificateDer<'_>]) -> Self {
        let leaf = Fingerprint::of(presented.first().map(|der| &**der));
        let all = match presented {
            [] | [_] => leaf,
            several => Fingerprint::of(several.iter().map(|der| &**der)),
        };
        Self { leaf, all }
    }
}

/// Statistics of the memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ChainMemoryStats {
    /// Chains that are remembered now.
    pub chains: usize,
    /// Verdicts that used a remembered chain that was still valid.
    pub hits: u64,
    /// Verdicts that needed a new path.
    pub misses: u64,
}

/// The memory of one bundle and policy.
///
/// Shards with separate locks reduce contention between workers. A client certificate has one entry, whatever else the client
/// sends, so a client cannot fill the memory with one certificate.
#[derive(Debug)]
pub(crate) struct ChainMemory {
    shards: Box<[Mutex<Shard>]>,
    /// Maximum number of chains in one half of a shard.
    half_max: usize,
    /// Shared with the next memory.
    lookups: Arc<Lookups>,
}

#[derive(Debug, Default)]
pub(crate) struct Lookups {
    hits: AtomicU64,
    misses: AtomicU64,
}

impl ChainMemory {
    /// An empty memory for at most this many chains, with the counts of the previous memory.
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

    /// The counts, which the next memory continues.
    pub(crate) fn lookups(&self) -> Arc<Lookups> {
        Arc::clone(&self.lookups)
    }

    /// The chain that was verified from exactly these bytes. The caller checks whether it is still valid.
    pub(crate) fn get(&self, sent: &PresentedDigest) -> Option<Arc<VerifiedChain>> {
        let mut shard = self.lock(sent);
        let (chain, outdated) = shard.get(sent, self.half_max);
        drop(shard);
        drop(outdated);
        chain
    }

    pub(crate) fn put(&self, sent: &PresentedDigest, chain: &Arc<VerifiedChain>) {
        let outdated = self.lock(sent).put(sent, Arc::clone(chain), self.half_max);
        // Dropped outside the lock, because there may be hundreds.
        drop(outdated);
    }

    pub(crate) fn count(&self, hit: bool) {
        let counter = if hit {
            &self.lookups.hits
        } else {
            &self.lookups.misses
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

    /// A chain of the certificate with this SHA-256. Searches all chains; for display only.
    pub(crate) fn chain_of(&self, fingerprint: &[u8; 32]) -> Option<Arc<VerifiedChain>> {
        self.shards.iter().find_map(|shard| {
            let shard = shard.lock().unwrap_or_else(PoisonError::into_inner);
            let mut entries = shard.young.values().chain(shard.old.values());
            let found = entries.find(|entry| entry.chain.fingerprint() == Some(fingerprint));
            found.map(|entry| Arc::clone(&entry.chain))
        })
    }

    fn lock(&self, sent: &PresentedDigest) -> std::sync::MutexGuard<'_, Shard> {
        let shard = usize::from(sent.leaf.as_bytes()[0]) % self.shards.len();
        let shard = &self.shards[shard];
        shard.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

type Chains = HashMap<Fingerprint, RememberedChain, RandomState>;

/// Two halves. A chain that is used moves to the young half. When the young half is full, it becomes the old half, and the
/// chains of the previous old half are dropped.
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
    /// The chain, and the dropped chains.
    fn get(
        &mut self,
        sent: &PresentedDigest,
        half_max: usize,
    ) -> (Option<Arc<VerifiedChain>>, Chains) {
        let known =
            |entry: &RememberedChain| (entry.all == sent.all).then(|| Arc::clone(&entry.chain));
        if let Some(entry) = self.young.get(&sent.leaf) {
            return (known(entry), Chains::default());
        }
        let Some(chain) = self.old.get(&sent.leaf).and_then(known) else {
            return (None, Chains::default());
        };
        let outdated = self.put(sent, Arc::clone(&chain), half_max);
        (Some(chain), outdated)
    }

    /// Stores the chain in the entry of its client certificate. Returns the dropped chains.
    fn put(
        &mut self,
        sent: &PresentedDigest,
        chain: Arc<VerifiedChain>,
        half_max: usize,
    ) -> Chains {
        self.old.remove(&sent.leaf);
        let is_full = self.young.len() >= half_max && !self.young.contains_key(&sent.leaf);
        let outdated = if is_full {
            mem::replace(&mut self.old, mem::take(&mut self.young))
        } else {
            Chains::default()
        };
        if half_max > 0 {
            let all = sent.all;
            self.young.insert(sent.leaf, RememberedChain { all, chain });
        }
        outdated
    }
}

/// More than the number of workers on most machines.
const SHARDS: usize = 16;
/// Below this size, there is only one shard, because small halves would drop chains too soon.
const SHARDED_FROM: usize = 1_024;
