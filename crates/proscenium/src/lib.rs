//! The command line program. Each command is one function.
//!
//! It is a library so that `cargo xtask reference` can read the declarations of the command line.

// This crate and `server` may use files, the environment and the command line; the crates below `server` may not.
#![allow(clippy::disallowed_methods)]

mod account;
mod arguments;
mod ask;
mod block;
mod check;
mod crl;
mod doctor;
mod exit_codes;
mod failure;
mod log;
mod member_state;
mod output;
mod refusals;
mod status;
mod verbs;
mod version;
mod who;

use std::process::ExitCode;

pub use crate::exit_codes::{ExitCodes, exit_codes, verbs_with_exit_codes};
use crate::{
    arguments::{Arguments, ConfigVerb, Verb},
    failure::Failure,
};

/// Executes the command line of this process.
#[must_use]
pub fn main() -> ExitCode {
    match Arguments::read().and_then(|arguments| perform(&arguments)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}

/// The declaration of the command line, for manual pages and completions.
#[must_use]
pub fn command() -> clap::Command {
    <Arguments as clap::CommandFactory>::command()
}

fn perform(arguments: &Arguments) -> Result<(), Failure> {
    match &arguments.verb {
        Verb::Run(run) => verbs::run(arguments, run),
        Verb::Check(wanted) => check::check(arguments, wanted),
        Verb::Explain(explain) => verbs::explain(arguments, explain),
        Verb::Config(ConfigVerb::Show(show)) => verbs::config_show(arguments, show),
        Verb::Reload(socket) => ask::reload(arguments, socket),
        Verb::ReopenLogs(socket) => ask::reopen_logs(arguments, socket),
        Verb::LogLevel(level) => ask::log_level(arguments, level),
        Verb::Status(status) => ask::status(arguments, status),
        Verb::Crl(verb) => crl::crl(arguments, verb),
        Verb::Ready(members) => member_state::ready(arguments, members),
        Verb::Drain(wanted) => {
            member_state::withdraw(arguments, wanted, admin::AdministrativeState::Drain)
        }
        Verb::Maintenance(wanted) => {
            member_state::withdraw(arguments, wanted, admin::AdministrativeState::Maintenance)
        }
        Verb::Block(whom) => block::block(arguments, whom),
        Verb::Unblock(whom) => block::unblock(arguments, whom),
        Verb::Blocks(blocks) => block::blocks(arguments, blocks),
        Verb::Doctor(wanted) => doctor::doctor(arguments, wanted),
        Verb::Who(whom) => who::who(arguments, whom),
        Verb::Refusals(wanted) => refusals::refusals(arguments, wanted),
        Verb::Version(wanted) => version::version(wanted),
    }
}
