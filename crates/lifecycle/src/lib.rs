//! The process: start, reload and drain. It opens, reads and watches the files of the configuration.
//!
//! A start and a reload take the same steps: read, [`config::load`], prepare, commit. A start has nothing active before.

#![expect(
    clippy::disallowed_methods,
    reason = "this crate opens files, reads the clock and starts threads for the others"
)]

mod app;
mod check;
mod commit;
mod descriptors;
mod drain;
mod facts;
mod hand_over;
mod host_checks;
mod known_labels;
mod listening;
mod log_outputs;
mod materials;
mod metrics_endpoint;
mod own_renewal;
mod pending_changes;
mod prepare;
mod prepared_start;
mod process;
mod reload;
mod reopen_logs;
mod replace_file_error;
mod rollback;
mod running_socket;
mod service_manager;
mod shared_state;
mod sharing;
mod signals;
mod socket_activation;
mod socket_file;
mod socket_mode;
mod start;
mod state_retry;
mod stored_history;
mod stored_state;
mod worker_threads;

use std::path::PathBuf;

pub use admin::BuildStatus;
pub use app::run;
pub use check::{CheckOutcome, CheckResult, check, effective};
pub use hand_over::{TakeOverError, launch_successor};
pub use known_labels::start_at_zero;
pub use materials::files::crls as crl_files;
pub use membership::jrubies;
pub use prepared_start::{PreparedStart, RestoredGeneration, StateProblem};
pub use process::{ControlOf, LifecycleStatus};
pub use proxy::CLOCK_OFFSET_MAX;
pub use running_socket::running_socket;
pub use shared_state::App;
pub use start::StartError;
pub use state::{PreparedTls, http_date::clock_offset};
pub use stored_history::stored_events;
pub use telemetry::{
    EventDelivery, Events, HistoryEntry, HistoryKind, LevelFilter, LogEvent, LogLevel, Severity,
};
pub use trust_keeper::certificates::{RENEWED_LIFE_MAX, expiry_notice_seconds, renewed_after};

/// The options of the command line that a start depends on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// The configuration file.
    pub config: PathBuf,
    /// `--ssldir`.
    pub ssldir: Option<PathBuf>,
    /// `--certname`.
    pub certname: Option<String>,
    /// Version, commit and features of the program.
    pub build: BuildStatus,
    /// `run --hand-over`: whether to take over from the process that serves.
    pub hand_over: bool,
}
