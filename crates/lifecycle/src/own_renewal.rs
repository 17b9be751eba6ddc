//! Activates the proxy's own certificates that were renewed, by the rules for materials that change on disk.

use std::sync::Arc;

use rustls_pki_types::UnixTime;
use state::supervise::within;
use trust_keeper::{DueCertificate, RenewalFailure};

use crate::{replace_file_error::ReplaceFileError, shared_state::App};

/// A defect of the proxy; its events have the details.
const PANICKED: &str = "the renewal has ended unexpectedly";

/// Renews the proxy's certificates when they are due, until this future is dropped.
pub(crate) async fn renew_when_due(app: Arc<App>) {
    loop {
        for due in app.trust.due_renewals() {
            // A panic must set the time of the next attempt too: otherwise the CA would sign a certificate at each restart of
            // this task.
            let renewed = within("own-renewal", app.renew(&due)).await;
            let renewed = renewed.unwrap_or_else(|| Err(PANICKED.to_owned().into()));
            app.trust.note_renewal(&due, renewed);
        }
        app.trust.update_certificate_alarms();
        app.trust.until_renewals().await;
    }
}

impl App {
    /// Renews one certificate. Returns when the new one expires.
    async fn renew(self: &Arc<Self>, due: &DueCertificate) -> Result<UnixTime, RenewalFailure> {
        let renewed = self.trust.request_renewal(due).await?;
        let committer = self.committer().await;
        if !self.active.owns_state() {
            return Err("another process has taken over".to_owned().into());
        }
        let (bytes, until) = (renewed.bytes.clone(), renewed.until);
        let store = move || renewed.store();
        committer.replace_file(due.chain(), bytes, store).await?;
        Ok(until)
    }
}

impl From<ReplaceFileError> for RenewalFailure {
    fn from(error: ReplaceFileError) -> Self {
        Self::NotActivated(error.to_string())
    }
}
