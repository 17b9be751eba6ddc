//! Stores the history of events while the process runs.

use std::{
    path::{Path, PathBuf},
    sync::{Arc, MutexGuard, PoisonError},
    time::Duration,
};

use admin::PastEvent;
use state::{
    StateDirectory,
    state_directory::StateError,
    stored_history::{self, HistoryFile},
    supervise::blocking,
};
use tokio::time::sleep;

use crate::{materials::files::configured_state_directory, shared_state::App};

/// How much of the history a crash can lose.
const STORE_INTERVAL: Duration = Duration::from_secs(1);
/// How soon a failed write is tried again.
const RETRY_INTERVAL: Duration = Duration::from_secs(5);

/// The events that the last process with this configuration file has stored, and the path of their file. `None` if there is no
/// such file.
pub fn stored_events(config: &Path) -> Option<(PathBuf, Result<Vec<PastEvent>, StateError>)> {
    let directory = StateDirectory::unopened(&configured_state_directory(config));
    let path = directory.path().join(stored_history::FILE);
    let found = match stored_history::read(&directory) {
        Ok(_) if directory.is_absent(stored_history::FILE) => return None,
        found => found.map(|entries| entries.iter().map(PastEvent::from).collect()),
    };
    Some((path, found))
}

/// Stores new events, until this future is dropped.
pub(crate) async fn store_at_intervals(app: Arc<App>) {
    loop {
        let storing = Arc::clone(&app);
        let stored = blocking("history", move || storing.store_history()).await;
        sleep(match stored {
            Some(true) => STORE_INTERVAL,
            _ => RETRY_INTERVAL,
        })
        .await;
    }
}

impl App {
    /// Stores new events. Blocks. Returns whether all of them are stored.
    pub(crate) fn store_history(&self) -> bool {
        self.history_file().write(&self.events.history)
    }

    pub(crate) fn history_file(&self) -> MutexGuard<'_, HistoryFile> {
        self.history_file
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}
