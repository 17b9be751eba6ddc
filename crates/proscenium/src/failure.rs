//! The failures of a command and their exit codes.

use std::{fmt, process::ExitCode};

use crate::{
    exit_codes::{CONFIGURATION, FAILED, UNAVAILABLE, USAGE},
    output,
};

/// Why a command ends early or fails. The exit codes are those of sysexits.h.
#[derive(Debug)]
pub(crate) enum Failure {
    /// Not a failure: help or the version is printed, and the command has nothing else to do.
    Printed,
    /// The command printed its findings. The exit code is their severity.
    Found(u8),
    /// The command was executed and failed: exit code 1.
    Failed(anyhow::Error),
    /// The command line is invalid: exit code 64.
    Usage(String),
    /// The host currently lacks something, and a later attempt may work: exit code 75. The string is the report.
    Unavailable(String),
    /// The configuration or its materials are invalid: exit code 78. The string is the report.
    Configuration(String),
}

impl Failure {
    /// Prints the reason on standard error and returns the exit code.
    pub(crate) fn report(&self) -> ExitCode {
        match self {
            Self::Printed => ExitCode::SUCCESS,
            Self::Found(code) => ExitCode::from(*code),
            Self::Failed(error) => {
                // `{:#}` also prints the causes, each after a colon.
                output::print_failure(&format!("error: {error:#}"));
                ExitCode::from(FAILED)
            }
            Self::Usage(text) => {
                output::print_failure(text.trim_end());
                ExitCode::from(USAGE)
            }
            Self::Unavailable(report) => {
                output::print_failure(report.trim_end());
                ExitCode::from(UNAVAILABLE)
            }
            Self::Configuration(report) => {
                output::print_failure(report.trim_end());
                ExitCode::from(CONFIGURATION)
            }
        }
    }

    /// A command that was executed and failed, with the reason.
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
