//! The CAs whose agents have connected within the last day. They are stored, so that the proxy knows them after a restart.

use std::{sync::Arc, time::Duration};

use rustls_pki_types::UnixTime;
use state::{StateDirectory, state_directory::StateError, supervise::blocking};
use tokio::time::sleep;

use crate::TrustKeeper;

/// How often the CAs seen are compared with the stored ones.
const STORE_INTERVAL: Duration = Duration::from_secs(60);
/// Name of the file in the state directory.
const FILE: &str = "cas-seen";
/// What a restart loses if the file cannot be written.
const LOST: &str = "after a restart, the proxy does not refuse a bundle that lacks a CA of agents that connected before";
/// Maximum size of the file; it has about 90 bytes for each CA of the bundle.
const FILE_BYTES_MAX: u64 = 1 << 20;

impl TrustKeeper {
    /// Stores the CAs at intervals if they have changed, until this future is dropped.
    pub async fn store_cas_seen_at_intervals(self: Arc<Self>) {
        loop {
            sleep(STORE_INTERVAL).await;
            let keeper = Arc::clone(&self);
            blocking("store-cas-seen", move || keeper.store_cas_seen()).await;
        }
    }

    /// Stores the CAs if they have changed. It blocks. A failure raises the alarm about the state directory.
    pub fn store_cas_seen(&self) {
        let text = self.active.trust().cas_seen(UnixTime::now());
        let stored = self.directory.read(FILE, FILE_BYTES_MAX).ok().flatten();
        if !text.is_empty() && stored.as_deref() != Some(text.as_bytes()) {
            let _ = self.directory.write(FILE, text.as_bytes(), LOST);
        }
    }
}

/// Reads the CAs as the trust store wrote them. The text is empty if there is no file.
///
/// # Errors
/// Why the file cannot be read. Without the file, a CA counts as seen once one of its agents connects.
pub fn read(directory: &StateDirectory) -> Result<String, StateError> {
    let stored = directory.read(FILE, FILE_BYTES_MAX)?;
    Ok(String::from_utf8_lossy(&stored.unwrap_or_default()).into_owned())
}
