//! Stores again what could not be written to the state directory, as soon as the directory can be used.
//!
//! Nothing else tries again: an unchanged CRL is not fetched again, and an operator blocks a client once.

use std::{sync::Arc, time::Duration};

use state::supervise::blocking;
use tokio::time::sleep;

use crate::shared_state::App;

/// How long the stored state may differ from the active one once the directory can be used again.
const RETRY_INTERVAL: Duration = Duration::from_secs(5);

/// Tries again what has failed, until this future is dropped.
pub(crate) async fn store_again(app: Arc<App>) {
    // The text of the start, which no reload has stored.
    app.store_applied_text().await;
    loop {
        sleep(RETRY_INTERVAL).await;
        if app.state_directory.trouble().is_some() {
            app.store_missing().await;
        }
    }
}

impl App {
    async fn store_missing(self: &Arc<Self>) {
        self.trust.store_missing().await;
        self.membership.store_missing().await;
        self.store_missing_text().await;
        let directory = Arc::clone(&self.state_directory);
        blocking("test-state-directory", move || directory.try_again()).await;
    }
}
