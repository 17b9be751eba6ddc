//! Assembly and life cycle: start, reload, drain; the one crate that opens, reads and watches files.
//!
//! A start is a reload from nothing: both go text → [`config::load`] → prepare → commit (DATAFLOW, "one
//! configuration change").

// This crate is where files are opened, and where time and threads begin.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

mod accepting;
mod agent_checks;
mod alarms;
mod app;
mod asking;
mod blocks;
mod cas_seen;
mod certificates;
mod checked;
mod control;
mod crew;
mod dns;
pub mod doctor;
mod edge;
mod explain;
mod fetch_standing;
mod fetching;
mod files;
mod freshness;
mod host;
mod http_date;
mod jrubies;
mod kept;
mod known_labels;
mod listening;
mod lists;
mod lockout;
mod member_states;
mod notify;
mod outputs;
mod passthrough;
mod persistence;
mod prepare;
mod probes;
mod process;
mod reload;
mod reopen;
mod service_manager;
mod signals;
mod socket_file;
mod stamps;
mod state;
mod units;
mod unkept;
mod validator;
mod who;

use std::path::PathBuf;

pub use admin::BuildStatus;
pub use app::{StartError, run};
pub use checked::{CheckOutcome, Checked, check, effective};
pub use explain::{Asked, ExplainAs, Explainer, prepare_for_explain};
pub use proxy::CLOCK_OFFSET_MAX;
pub use telemetry::{Event, Events, LevelFilter, LogLevel, Severity, Told};

/// What the command line says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// The configuration file.
    pub config: PathBuf,
    /// `--ssldir`.
    pub ssldir: Option<PathBuf>,
    /// `--certname`.
    pub certname: Option<String>,
    /// What the program is built from.
    pub build: BuildStatus,
}
