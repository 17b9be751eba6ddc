//! Assembly and life cycle: start, reload, drain; the one crate that opens, reads and watches files.
//!
//! A start is a reload from nothing: both go text → [`config::load`] → prepare → commit (DATAFLOW, "one
//! configuration change").

// This crate is where files are opened, and where time and threads begin.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

mod accepting;
mod alarms;
mod app;
mod asking;
mod blocks;
mod checked;
mod control;
mod crew;
pub mod doctor;
mod edge;
mod explain;
mod fetch_standing;
mod fetching;
mod files;
mod freshness;
mod lists;
mod notify;
mod outputs;
mod prepare;
mod probes;
mod reload;
mod stamps;
mod state;
mod unkept;
mod validator;
mod who;

use std::path::PathBuf;

pub use app::{StartError, run};
pub use blocks::KeptBlocksError;
pub use checked::{Checked, check, effective};
pub use explain::{Asked, ExplainAs, Explainer, prepare_for_explain};
pub use telemetry::{Event, Events, Severity, Told};

/// What the command line says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// The configuration file.
    pub config: PathBuf,
    /// `--ssldir`.
    pub ssldir: Option<PathBuf>,
    /// `--certname`.
    pub certname: Option<String>,
}
