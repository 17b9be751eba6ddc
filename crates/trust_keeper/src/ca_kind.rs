//! Checks at intervals whether the CA server can renew the certificates that the proxy forwards. If it cannot, an alarm is
//! raised before an agent needs a renewal.

use std::time::Duration;

use tokio::time::timeout;

use crate::TrustKeeper;

/// Time between two checks. Each check is one small request.
const INTERVAL: Duration = Duration::from_secs(60);

impl TrustKeeper {
    /// Checks the CA servers that get renewals: at once, after each reload by an operator and at intervals, until this future
    /// is dropped.
    pub async fn examine_cas_at_intervals(&self) {
        loop {
            let generation = self.active.generation();
            proxy::examine_cas(&generation, &self.active.shared().renewal).await;
            let _ = timeout(INTERVAL, self.active.shared().renewal.permitted()).await;
        }
    }
}
