//! Which events are logged, and a change of that while the process runs.

use std::{
    fmt,
    sync::{Mutex, MutexGuard, PoisonError},
};

/// What decides whether an event is logged.
pub trait LevelFilter: fmt::Debug + Send + Sync {
    /// Applies a level (`info`) or a list of levels by part (`info,proxy=debug`).
    ///
    /// # Errors
    /// It is neither of them; the sentence says what is expected. Nothing changes then.
    fn apply(&self, level: &str) -> Result<(), String>;
}

/// The active log level.
#[derive(Debug)]
pub struct LogLevel {
    active: Mutex<String>,
    filter: Box<dyn LevelFilter>,
}

impl LogLevel {
    /// The level that `filter` has applied already.
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
    /// It is not a level; the previous one stays active.
    pub fn set(&self, level: &str) -> Result<String, String> {
        let mut active = self.active();
        self.filter.apply(level)?;
        Ok(std::mem::replace(&mut *active, level.to_owned()))
    }

    fn active(&self) -> MutexGuard<'_, String> {
        self.active.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
