//! Decides which clients are accepted and which certificates the proxy presents: fetched and accepted CRLs, blocks, copies of
//! the CA's documents, alarms about all of these, and the renewal of the proxy's own certificates.

#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "it stores CRLs and blocks, and dates are compared with the clock"
)]

mod accept_crl;
pub mod agent_certificates;
mod alarm_schedule;
mod alarms;
mod blocks;
mod ca_kind;
mod ca_requests;
pub mod cas_seen;
pub mod certificates;
mod conditional_request;
mod crl_fetch;
mod crl_fetch_state;
mod crl_hints;
mod crl_storing;
mod date_evidence;
mod document_copies;
pub mod lockout;
mod own_renewal;
pub mod stored_crls;

use std::sync::{Arc, Mutex as SyncMutex};

use admin::CrlFetchStatus;
use config::Fetch;
use fleet::HeardProxy;
use state::{Active, OperatorRecords, StateDirectory, stored_blocks};
use tokio::sync::{Mutex, Notify, watch};

pub use alarms::active_about_trust;
use conditional_request::ConditionalRequest;
use crl_fetch_state::CrlFetchState;
pub use crl_fetch_state::{ShrunkCrl, dropped_message, empty_message};
use own_renewal::OwnRenewals;
pub use own_renewal::{DueCertificate, RenewalFailure, RenewedChain};
use stored_crls::RestoredCrls;

/// Keeps the trust store and the proxy's certificates up to date between reloads.
pub struct TrustKeeper {
    active: Arc<Active>,
    directory: Arc<StateDirectory>,
    records: Arc<OperatorRecords>,
    crl_fetch: CrlFetchState,
    /// Locked by the running fetch of the CA's certificates.
    ca_fetch: Mutex<ConditionalRequest>,
    /// Notified after each change of the blocks, because the block that expires next may have changed.
    blocks_changed: Notify,
    /// Locked while blocks are written to the state directory: the version of the records that was written last.
    storing_blocks: Mutex<u64>,
    own_renewals: OwnRenewals,
    /// Locked while the alarms about the proxy's certificates are compared with their dates.
    assessing: SyncMutex<()>,
    /// The proxies of the fleet, as this proxy last heard from them.
    heard: watch::Sender<Vec<Arc<HeardProxy>>>,
    /// Notified when a fetched CRL has become active.
    crls_changed: Notify,
}

impl TrustKeeper {
    /// Starts with what was restored from the state directory.
    pub fn new(
        active: Arc<Active>,
        directory: Arc<StateDirectory>,
        records: Arc<OperatorRecords>,
        restored: &RestoredCrls,
    ) -> Self {
        Self {
            active,
            directory,
            records,
            crl_fetch: CrlFetchState::new(restored),
            ca_fetch: Mutex::default(),
            blocks_changed: Notify::new(),
            storing_blocks: Mutex::default(),
            own_renewals: OwnRenewals::default(),
            assessing: SyncMutex::default(),
            heard: watch::Sender::default(),
            crls_changed: Notify::new(),
        }
    }

    /// Notes that a reload by an operator is finished. The reload may have fixed what failed before.
    pub fn reloaded(&self) {
        self.fetch_soon();
        self.own_renewals.try_again();
    }

    /// Makes a fetch of the CA's documents due now, before the next interval.
    pub fn fetch_soon(&self) {
        self.crl_fetch.due.notify_one();
    }

    /// Notes what the proxies of the fleet report about themselves.
    pub fn hear(&self, proxies: Vec<Arc<HeardProxy>>) {
        self.heard.send_replace(proxies);
    }

    /// Waits until a fetched CRL has become active.
    pub async fn crls_changed(&self) {
        self.crls_changed.notified().await;
    }

    /// The state of fetching CRLs.
    pub fn fetch_status(&self) -> CrlFetchStatus {
        self.crl_fetch.status(&self.active.trust())
    }

    /// Stores everything that is not stored yet.
    pub async fn store(&self) {
        self.store_blocks().await;
        self.store_accepted_crls().await;
        self.store_unstored_crls().await;
    }

    /// Stores again what could not be written to the state directory.
    pub async fn store_missing(&self) {
        if self.directory.lacks(stored_blocks::FILE) {
            self.store_blocks().await;
        }
        if self.directory.lacks(stored_crls::ACCEPTED_FILE) {
            self.store_accepted_crls().await;
        }
        self.store_unstored_crls().await;
    }

    /// The settings for fetching CRLs, if they are fetched.
    fn fetch_settings(&self) -> Option<Fetch> {
        self.active.foundation().config.trust.fetch
    }
}
