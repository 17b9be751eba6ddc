//! Decides which events are logged, and changes that while the process runs.

use std::{
    fmt,
    sync::{Mutex, MutexGuard, PoisonError},
};

/// The filter of events.
pub trait LevelFilter: fmt::Debug + Send + Sync {
    /// Applies a level (`info`) or a list of levels by part (`info,proxy=debug`).
    ///
    /// # Errors
    /// The text is neither; the message says what is expected. The filter stays unchanged.
    fn apply(&self, level: &str) -> Result<(), String>;
}

/// The active log level.
#[derive(Debug)]
pub struct LogLevel {
    active: Mutex<String>,
    filter: Box<dyn LevelFilter>,
}

impl LogLevel {
    /// The level that `filter` already applies.
    pub fn new(active: &str, filter: Box<dyn LevelFilter>) -> Self {
        Self {
            active: Mutex::new(active.to_owned()),
            filter,
        }
    }

    /// The active level.
    pub fn get(&self) -> String {
        self.active().clone()
    }

    /// Applies another level until the process ends, and returns the previous one.
    ///
    /// # Errors
    /// The text is not a level. The previous level stays active.
    pub fn set(&self, level: &str) -> Result<String, String> {
        let mut active = self.active();
        self.filter.apply(level)?;
        Ok(std::mem::replace(&mut *active, level.to_owned()))
    }

    fn active(&self) -> MutexGuard<'_, String> {
        self.active.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
