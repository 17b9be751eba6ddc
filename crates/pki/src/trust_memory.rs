//! The memory of a trust store: verified chains of clients, and the last chain of each member.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustls_pki_types::CertificateDer;

use crate::chain_memory::ChainMemory;

/// The memory that a trust store shares with its successors.
#[derive(Clone, Debug)]
pub(crate) struct TrustMemory {
    /// Shared with every store of the same bundle and policy.
    pub(crate) chains: Arc<ChainMemory>,
    /// Used only in stores for members. Shared with every later store.
    pub(crate) members_seen: Arc<MembersSeen>,
}

/// The last chain of each member, by the name to which the proxy connected.
#[derive(Debug, Default)]
pub(crate) struct MembersSeen(Mutex<BTreeMap<String, Vec<CertificateDer<'static>>>>);

impl MembersSeen {
    pub(crate) fn note(
        &self,
        name: String,
        leaf: &CertificateDer<'_>,
        sent: &[CertificateDer<'_>],
    ) {
        let mut seen = self.chains();
        if seen.len() < MEMBERS_SEEN_MAX || seen.contains_key(&name) {
            let chain = std::iter::once(leaf).chain(sent);
            seen.insert(name, chain.map(|der| der.clone().into_owned()).collect());
        }
    }

    pub(crate) fn chains(&self) -> MutexGuard<'_, BTreeMap<String, Vec<CertificateDer<'static>>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Maximum number of members whose last chain is stored, for each trust store for members.
const MEMBERS_SEEN_MAX: usize = 1024;
