//! The CAs whose verified agents were seen lately, stored so that a restart does not forget them.

use std::{sync::Arc, time::Duration};

use pki::TrustStore;
use rustls_pki_types::UnixTime;
use tokio::time::sleep;

use crate::{app::App, state_directory::StateDirectory};

/// Stores them when they have changed, until it is dropped.
pub(crate) async fn keep(app: Arc<App>) {
    loop {
        sleep(STORE_INTERVAL).await;
        let app = Arc::clone(&app);
        let _ = tokio::task::spawn_blocking(move || store(&app)).await;
    }
}

/// Stores them if they have changed. It blocks. That they cannot be stored is an alarm of the state directory.
pub(crate) fn store(app: &App) {
    let text = app.generation().trust.cas_seen(UnixTime::now());
    let stored = app.state_directory.read(NAME, BYTES_MAX).ok().flatten();
    if !text.is_empty() && stored.as_deref() != Some(text.as_bytes()) {
        let _ = app.state_directory.write(NAME, text.as_bytes());
    }
}

/// Restores them at a start. Without them the CAs count from the next connection of their agents.
pub(crate) fn restore(directory: &StateDirectory, trust: &TrustStore) {
    match directory.read(NAME, BYTES_MAX) {
        Ok(stored) => {
            let text = String::from_utf8_lossy(stored.as_deref().unwrap_or_default());
            trust.restore_cas_seen(&text, UnixTime::now());
        }
        Err(error) => tracing::warn!("cannot read which CAs agents used in the last day: {error}"),
    }
}

/// How often they are compared with what is stored.
const STORE_INTERVAL: Duration = Duration::from_secs(60);
/// The file in the state directory.
const NAME: &str = "cas-seen";
/// Largest file: about 90 bytes for each CA of the bundle.
const BYTES_MAX: u64 = 1 << 20;
