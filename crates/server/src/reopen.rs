//! Opening the log files again, after a rotation has renamed them.

use admin::{LogsReopened, ReopenLogsError};
use config::Output;

use crate::{app::App, outputs};

impl App {
    /// Opens the access log of the active configuration again. The configuration on disk is not read, so unfinished or
    /// broken edits do not matter.
    ///
    /// # Errors
    /// The file cannot be opened; the proxy goes on writing to the file it has open.
    pub(crate) async fn reopen_logs(&self) -> Result<LogsReopened, ReopenLogsError> {
        // A reload opens its log before it is committed: without the lock it could put a renamed file back.
        let _one_at_a_time = self.reloading.lock().await;
        let reopened: Vec<String> = self.reopen_access_log()?.into_iter().collect();
        match reopened.is_empty() {
            true => tracing::info!("no log file to reopen"),
            false => tracing::info!(files = reopened.join(", "), "reopened the log files"),
        }
        Ok(LogsReopened { reopened })
    }

    /// Opens the access log again where it is a file. The caller holds `reloading`.
    pub(crate) fn reopen_access_log(&self) -> Result<Option<String>, ReopenLogsError> {
        let state = self.state();
        let log = &state.foundation.config.access_log;
        let (Output::File(path), Some(sink)) = (&log.output, &state.sink) else {
            return Ok(None);
        };
        let output = outputs::open(&log.output).map_err(|error| {
            tracing::error!(%error, "cannot reopen the access log; the proxy continues to write to the old file");
            ReopenLogsError(error.to_string())
        })?;
        sink.reopen(output, log.settings.format);
        Ok(Some(path.display().to_string()))
    }
}
