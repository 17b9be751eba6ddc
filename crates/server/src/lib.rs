//! Assembly and life cycle: start, reload, drain; the one crate that opens, reads and watches files.
//!
//! A start is a reload from nothing: both go text → [`config::load`] → prepare → commit (DATAFLOW, "one
//! configuration change").

// This crate is where files are opened, and where time and threads begin.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

mod alarms;
mod app;
mod certificates;
mod check;
mod control;
mod dns;
mod explain;
mod host_checks;
mod http_date;
mod known_labels;
mod listening;
mod lockout;
mod log_outputs;
mod materials;
mod members;
mod prepare;
mod prepared_start;
mod proc_status;
mod reload;
mod reopen_logs;
mod service_manager;
mod signals;
mod socket_file;
mod state_directory;
mod state_retry;
mod trust;
mod who;
mod worker_threads;

use std::path::PathBuf;

pub use admin::BuildStatus;
pub use app::{StartError, run};
pub use certificates::expiry_notice_seconds;
pub use check::{CheckOutcome, CheckResult, check, effective};
pub use explain::{ExplainAs, ExplainRequest, Explainer, RequestExplanation, prepare_for_explain};
pub use http_date::clock_offset;
pub use members::jrubies;
pub use prepare::PreparedTls;
pub use prepared_start::{PreparedStart, StateProblem};
pub use proxy::CLOCK_OFFSET_MAX;
pub use telemetry::{EventDelivery, Events, LevelFilter, LogEvent, LogLevel, Severity};

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
}
