//! The command line program. Each command is one function.
//!
//! It is a library so that `cargo xtask reference` can read the declarations of the command line.

// This crate and `lifecycle` may use files, the environment and the command line; the crates below `state` may not.
#![expect(
    clippy::disallowed_methods,
    reason = "the program reads files and the environment"
)]

mod account;
mod arguments;
mod ask;
mod block;
mod check;
mod columns;
mod completion;
mod crl;
mod doctor;
mod events;
mod exit_codes;
mod explain;
mod failure;
mod fleet;
mod fleet_turn;
mod fleet_wait;
mod init;
mod log;
mod member_state;
mod member_table;
mod new_file;
mod output;
mod progress;
mod refusals;
mod requests;
mod rollback;
mod status;
mod support_bundle;
mod top;
mod trace;
mod ui;
mod verbs;
mod version;
mod watch;
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
    if let Some(code) = lifecycle::launch_successor(std::env::args_os().skip(1)) {
        return code;
    }
    if completion::answer(std::env::args_os().skip(1)) {
        return ExitCode::SUCCESS;
    }
    match Arguments::read().and_then(|arguments| watch::repeat(&arguments, perform)) {
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
        Verb::Init(wanted) => init::init(arguments, wanted),
        Verb::Run(run) => verbs::run(arguments, run),
        Verb::Check(wanted) => check::check(arguments, wanted),
        Verb::Explain(explain) => explain::explain(arguments, explain),
        Verb::Config(ConfigVerb::Diff(shown)) => ask::config_diff(arguments, &shown.socket),
        Verb::Config(ConfigVerb::Show(show)) => verbs::config_show(arguments, show),
        Verb::Reload(reload) => ask::reload(arguments, reload),
        Verb::Rollback(wanted) => rollback::rollback(arguments, wanted),
        Verb::ReopenLogs(socket) => ask::reopen_logs(arguments, socket),
        Verb::LogLevel(level) => ask::log_level(arguments, level),
        Verb::Status(parts) => ask::status(arguments, parts),
        Verb::Events(wanted) => events::events(arguments, wanted),
        Verb::Requests(shown) => requests::requests(arguments, &shown.socket),
        Verb::Certificates(shown) => requests::certificates(arguments, &shown.socket),
        Verb::Trace(wanted) => trace::trace(arguments, wanted),
        Verb::Top(socket) => top::top(arguments, socket),
        Verb::Ui(wanted) => ui::ui(arguments, wanted),
        Verb::SupportBundle(wanted) => support_bundle::write(arguments, wanted),
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
        Verb::Fleet(wanted) => fleet::fleet(arguments, wanted),
        Verb::Blocks(shown) => block::blocks(arguments, &shown.socket),
        Verb::Doctor(wanted) => doctor::doctor(arguments, wanted),
        Verb::Who(whom) => who::who(arguments, whom),
        Verb::Refusals(wanted) => refusals::refusals(arguments, wanted),
        Verb::Version => version::version(arguments),
    }
}
