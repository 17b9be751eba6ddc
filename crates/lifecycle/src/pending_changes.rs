//! Alarms about files on disk that the process does not use: a reload that was refused, a configuration that `rollback` has
//! applied, settings that wait for a restart, and another build of the program. A restart would use these files, so an operator
//! must know before it.
//!
//! The files are compared with what runs after each reload and every `[materials] interval`. An edit that no reload has read is
//! not an alarm, because an operator may be writing it.

pub(crate) mod compare;

use std::sync::{Mutex, MutexGuard, PoisonError};

use config::Config;
use state::stamps::Stamps;

/// What a start would do with files that a reload refuses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AtStart {
    /// It would refuse them too.
    Refused,
    /// A start would fail for the same reason as long as that reason lasts, such as an address that is in use.
    Fails,
    /// A start would use the files: only a running process has better ones.
    Used,
    /// A start would run the program that has not taken over.
    OtherProgram,
}

/// How the files on disk relate to the running process.
pub(crate) enum FilesOnDisk {
    /// They are the active files.
    Active,
    /// They differ, and a reload would apply them.
    Valid,
    /// They differ, and a reload would refuse them, for this reason.
    Refused(AtStart, String),
    /// The process is stopping.
    Unknown,
}

/// The state at the start, and the last refused reload, for comparison with the files on disk.
#[derive(Debug)]
pub(crate) struct PendingChanges {
    /// The configuration at the start. Settings that need a restart apply until the process ends.
    started: Config,
    refused: Mutex<Option<RefusedReload>>,
    /// Whether `rollback` has applied the active text, which may not be in the file. Locked while its alarm changes.
    is_rolled_back: Mutex<bool>,
}

/// A refused reload that no later reload has replaced.
#[derive(Clone, Debug, PartialEq, Eq)]
struct RefusedReload {
    /// The stamps of the files that were refused. `None` if another program has failed to take over.
    stamps: Option<Stamps>,
}

impl PendingChanges {
    pub(crate) fn new(started: &Config) -> Self {
        Self {
            started: started.clone(),
            refused: Mutex::default(),
            is_rolled_back: Mutex::default(),
        }
    }

    fn is_rolled_back(&self) -> MutexGuard<'_, bool> {
        self.is_rolled_back
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn started(&self) -> &Config {
        &self.started
    }

    fn refused(&self) -> Option<RefusedReload> {
        let refused = self.refused.lock();
        refused.unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn set_refused(&self, refused: Option<RefusedReload>) {
        *self.refused.lock().unwrap_or_else(PoisonError::into_inner) = refused;
    }
}

impl AtStart {
    /// Whether the next start would fail.
    fn stops_a_start(self) -> bool {
        matches!(self, Self::Refused | Self::Fails)
    }

    /// The error, what the next restart would do, and what to do before it.
    fn message(self, error: &str) -> String {
        let outlook = match self {
            Self::Refused => "the next restart would fail with exit code 78",
            Self::Fails => "the next restart would fail for the same reason",
            Self::Used => "a restart would use the files on disk",
            Self::OtherProgram => "a restart would start that program",
        };
        format!(
            "{error}; {outlook}: correct this, test it with `proscenium check`, and run `proscenium reload`"
        )
    }
}
