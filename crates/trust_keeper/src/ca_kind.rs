//! Finds out at intervals whether the CA server is one that renews the certificates that the proxy forwards, so that an
//! alarm says so before an agent needs a renewal.

use std::time::Duration;

use tokio::time::timeout;

use crate::TrustKeeper;

/// Time between two examinations. Each is one small request.
const INTERVAL: Duration = Duration::from_secs(60);

impl TrustKeeper {
    /// Examines the CA servers that get renewals now, after each reload by an operator and at intervals, until this future is
    /// dropped.
    pub async fn examine_cas_at_intervals(&self) {
        loop {
            let generation = self.active.generation();
            proxy::examine_cas(&generation, &self.active.shared().renewal).await;
            let _ = timeout(INTERVAL, self.active.shared().renewal.permitted()).await;
        }
    }
}
