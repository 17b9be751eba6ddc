//! Writing to the audit log, with an alarm if that fails.

use std::{sync::Arc, time::SystemTime};

use admin::AuditEntry;
use telemetry::Alarm;

use crate::{
    operators::{account, append, audit_log},
    shared_state::App,
};

impl App {
    /// Writes lines to the audit log. They are written even if the future is dropped: an operator who disconnects does not
    /// stop the line.
    pub(crate) fn audit(&self, entries: Vec<AuditEntry>) -> impl Future<Output = ()> + use<> {
        let settings = self.foundation().config.admin.clone();
        let path = audit_log(&settings, self.state_directory.path());
        let alarms = Arc::clone(&self.shared.metrics.alarms);
        let written = tokio::task::spawn_blocking(move || {
            let appended = append(&path, &entries);
            alarms.assess(Alarm::AuditLog, "", SystemTime::now(), || {
                let error = appended.as_ref().err()?;
                Some(format!(
                    "cannot write to the audit log {}: {error}; changes of operators are in the events only: free space on its file system, make it writable for the account of the service, or set [admin] audit_log to another path",
                    path.display()
                ))
            });
            let Err(error) = appended else {
                return;
            };
            for entry in entries {
                let account = account(&entry);
                let AuditEntry {
                    action,
                    subject,
                    why,
                    result,
                    uid,
                    ..
                } = entry;
                let path = path.display();
                tracing::error!(
                    %error, %path, action, %subject, why, result, uid, account,
                    "cannot write to the audit log: this event is the only record of the change"
                );
            }
        });
        async move { written.await.unwrap_or_default() }
    }
}
