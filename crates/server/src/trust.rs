//! Trust while the process runs: blocks, fetched and accepted CRLs, and copies of the CA's documents.

pub(crate) mod accept_crl;
pub(crate) mod blocks;
pub(crate) mod ca_kind;
pub(crate) mod ca_requests;
pub(crate) mod cas_seen;
pub(crate) mod conditional_request;
pub(crate) mod crl_fetch;
pub(crate) mod crl_fetch_state;
mod crl_hints;
pub(crate) mod crl_storing;
pub(crate) mod document_copies;
pub(crate) mod stored_crls;

use tokio::sync::{Mutex, Notify};

use conditional_request::ConditionalRequest;
use crl_fetch_state::CrlFetchState;
use stored_crls::RestoredCrls;

/// What the tasks share that keep the trust store up to date between reloads.
#[derive(Debug)]
pub(crate) struct TrustKeeping {
    pub(crate) crl_fetch: CrlFetchState,
    /// Locked by the running fetch of the CA's certificates.
    pub(crate) ca_fetch: Mutex<ConditionalRequest>,
    /// Notified after each change of the blocks, because another block may be the next to expire.
    pub(crate) blocks_changed: Notify,
    /// Locked while blocks are written to the state directory: the version of the records that was written last.
    pub(crate) storing_blocks: Mutex<u64>,
}

impl TrustKeeping {
    /// Starts with what was restored from the state directory.
    pub(crate) fn new(restored: &RestoredCrls) -> Self {
        Self {
            crl_fetch: CrlFetchState::new(restored),
            ca_fetch: Mutex::default(),
            blocks_changed: Notify::new(),
            storing_blocks: Mutex::default(),
        }
    }
}
