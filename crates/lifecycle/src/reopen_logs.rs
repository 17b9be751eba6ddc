//! Opening the log files again after a rotation has renamed them.

use std::{sync::Arc, time::SystemTime};

use admin::{LogsReopened, ReopenLogsError};
use config::AccessLogOutput;
use telemetry::Alarm;

use crate::{
    log_outputs::OpenedAccessLogs,
    shared_state::{App, Committer},
};

impl App {
    /// Opens the access log files of the active configuration again. The configuration on disk is not read, so unfinished
    /// edits do not matter. Processes that have handed over to this one open theirs again too.
    ///
    /// # Errors
    /// A file cannot be opened. The proxy continues to write to the files that it has open.
    pub async fn reopen_logs(self: &Arc<Self>) -> Result<LogsReopened, ReopenLogsError> {
        let reopened = self.committer().await.reopen_access_logs();
        self.hand_over.former.reopen_logs().await;
        let reopened = reopened?;
        match reopened.is_empty() {
            true => tracing::info!("no log file to reopen"),
            false => tracing::info!(files = reopened.join(", "), "reopened the log files"),
        }
        Ok(LogsReopened { reopened })
    }
}

impl Committer<'_> {
    /// Opens the access log files again and returns their paths. The committer excludes a concurrent reload, which could have
    /// opened a file before its rotation and could put it back.
    pub(crate) fn reopen_access_logs(&self) -> Result<Vec<String>, ReopenLogsError> {
        let state = self.app.state();
        let config = &self.app.foundation().config;
        let paths: Vec<_> = std::iter::once(&config.access_log)
            .chain(&config.other_access_logs)
            .filter_map(|log| match &log.output {
                AccessLogOutput::File(path) => Some(path.display().to_string()),
                AccessLogOutput::Stdout | AccessLogOutput::Daemon(_) => None,
            })
            .collect();
        let Some(logs) = state.access_logs.as_ref().filter(|_| !paths.is_empty()) else {
            return Ok(Vec::new());
        };
        let reopened = OpenedAccessLogs::open(config).and_then(|opened| opened.reopen(logs));
        let alarms = &self.app.shared.metrics.alarms;
        reopened.map_err(|error| {
            let message = format!(
                "cannot reopen the access logs: {error}; records go to the files that were open, which a rotation may have removed: make it possible to create the file, and run proscenium reopen-logs"
            );
            alarms.raise(Alarm::AccessLog, "", message, SystemTime::now());
            ReopenLogsError(error.to_string())
        })?;
        alarms.clear(Alarm::AccessLog, "");
        Ok(paths)
    }
}
