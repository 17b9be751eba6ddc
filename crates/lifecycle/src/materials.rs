//! Materials on disk: reading them, noticing changes, and which changes may become active.

pub(crate) mod files;
pub(crate) mod notifier;
pub(crate) mod refresh;
pub(crate) mod units;
pub(crate) mod unrequested_changes;
