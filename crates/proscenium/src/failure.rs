//! The failures of a verb and their exit codes.

use std::{fmt, process::ExitCode};

use crate::{
    exit_codes::{CONFIGURATION, FAILED, UNAVAILABLE, USAGE},
    output,
};

/// Why the process ends with anything but 0; the numbers are those of sysexits.h.
#[derive(Debug)]
pub(crate) enum Failure {
    /// Nothing failed: help or version is printed, and nothing is left to do.
    Printed,
    /// The verb printed what it found; the exit code is its severity.
    Found(u8),
    /// It was tried and did not work: 1.
    Failed(anyhow::Error),
    /// The command line makes no sense: 64.
    Usage(String),
    /// The host lacks something now, and may have it later: 75. The text is the report.
    Unavailable(String),
    /// The configuration or its materials are refused: 78. The text is the report.
    Configuration(String),
}

impl Failure {
    /// Says why on standard error, and gives the exit code.
    pub(crate) fn report(&self) -> ExitCode {
        match self {
            Self::Printed => ExitCode::SUCCESS,
            Self::Found(code) => ExitCode::from(*code),
            Self::Failed(error) => {
                // `{:#}` prints the causes too, each after a colon.
                output::complain_of_failure(&format!("error: {error:#}"));
                ExitCode::from(FAILED)
            }
            Self::Usage(text) => {
                output::complain_of_failure(text.trim_end());
                ExitCode::from(USAGE)
            }
            Self::Unavailable(report) => {
                output::complain_of_failure(report.trim_end());
                ExitCode::from(UNAVAILABLE)
            }
            Self::Configuration(report) => {
                output::complain_of_failure(report.trim_end());
                ExitCode::from(CONFIGURATION)
            }
        }
    }

    /// It was tried, and this is why it did not work.
    pub(crate) fn because(reason: impl fmt::Display + fmt::Debug + Send + Sync + 'static) -> Self {
        Self::Failed(anyhow::Error::msg(reason))
    }
}

impl From<anyhow::Error> for Failure {
    fn from(error: anyhow::Error) -> Self {
        Self::Failed(error)
    }
}

impl From<config::ConfigReport> for Failure {
    fn from(report: config::ConfigReport) -> Self {
        Self::Configuration(report.render(output::colour()))
    }
}
