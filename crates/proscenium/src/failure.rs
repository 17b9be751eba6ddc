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
        let code = match self {
            Self::Printed => return ExitCode::SUCCESS,
            Self::Found(code) => return ExitCode::from(*code),
            Self::Failed(_) => FAILED,
            Self::Usage(_) => USAGE,
            Self::Unavailable(_) => UNAVAILABLE,
            Self::Configuration(_) => CONFIGURATION,
        };
        match self {
            Self::Failed(_) => output::print_failure(&format!("error: {self}")),
            _ => output::print_failure(&self.to_string()),
        }
        ExitCode::from(code)
    }

    /// A command that was executed and failed, with the reason.
    pub(crate) fn because(reason: impl fmt::Display + fmt::Debug + Send + Sync + 'static) -> Self {
        Self::Failed(anyhow::Error::msg(reason))
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Printed | Self::Found(_) => Ok(()),
            // `{:#}` also prints the causes, each after a colon.
            Self::Failed(error) => write!(f, "{error:#}"),
            Self::Usage(text) | Self::Unavailable(text) | Self::Configuration(text) => {
                f.write_str(text.trim_end())
            }
        }
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
