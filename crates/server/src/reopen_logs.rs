//! Opening the log files again, after a rotation has renamed them.

use admin::{LogsReopened, ReopenLogsError};
use config::Output;

use crate::{app::App, log_outputs};

impl App {
    /// Opens the access log of the active configuration again. The configuration on disk is not read, so unfinished or
    /// broken edits do not matter.
    ///
    /// # Errors
    /// The file cannot be opened; the proxy goes on writing to the file it has open.
    pub(crate) async fn reopen_logs(&self) -> Result<LogsReopened, ReopenLogsError> {
        // A reload opens its log before it is committed: without the lock it could put a renamed file back.
        let _one_at_a_time = self.reloading.lock().await;
        let reopened = self.reopen_access_log()?;
        match reopened.is_empty() {
            true => tracing::info!("no log file to reopen"),
            false => tracing::info!(files = reopened.join(", "), "reopened the log files"),
        }
        Ok(LogsReopened { reopened })
    }

    /// Opens the access logs again that are files; their paths. The caller holds `reloading`.
    pub(crate) fn reopen_access_log(&self) -> Result<Vec<String>, ReopenLogsError> {
        let state = self.state();
        let config = &state.foundation.config;
        let (log, others) = (&config.access_log, &config.other_access_logs);
        let paths: Vec<_> = std::iter::once(log)
            .chain(others)
            .filter_map(|log| match &log.output {
                Output::File(path) => Some(path.display().to_string()),
                Output::Stdout | Output::Daemon(_) => None,
            })
            .collect();
        let Some(sink) = state.sink.as_ref().filter(|_| !paths.is_empty()) else {
            return Ok(Vec::new());
        };
        let reopen = || {
            let (output, others) = (
                log_outputs::open(&log.output)?,
                log_outputs::open_others(config)?,
            );
            sink.reopen((&log.settings, output), others)
        };
        reopen().map_err(|error| {
            tracing::error!(%error, "cannot reopen the access log; the proxy continues to write to the old file");
            ReopenLogsError(error.to_string())
        })?;
        Ok(paths)
    }
}
