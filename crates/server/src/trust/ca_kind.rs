//! Finds out at intervals whether the CA server is one that renews the certificates that the proxy forwards, so that an
//! alarm says so before an agent needs a renewal.

use std::{sync::Arc, time::Duration};

use tokio::time::timeout;

use crate::shared_state::App;

/// Time between two examinations. Each is one small request.
const INTERVAL: Duration = Duration::from_secs(60);

/// Examines the CA servers that get renewals now, after each reload by an operator and at intervals, until this future is
/// dropped.
pub(crate) async fn examine_at_intervals(app: Arc<App>) {
    loop {
        let generation = app.generation();
        proxy::examine_cas(&generation, &app.shared.renewal).await;
        let _ = timeout(INTERVAL, app.shared.renewal.permitted()).await;
    }
}
