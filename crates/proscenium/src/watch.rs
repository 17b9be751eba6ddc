//! `--watch`: repeats a command that only shows something.

use std::{
    io::{self, IsTerminal},
    thread::sleep,
    time::Duration,
};

use crate::{
    arguments::{Arguments, Fleet, FleetVerb, Verb},
    failure::Failure,
    output,
};

/// Moves the cursor to the top left corner and erases the screen.
const CLEAR: &str = "\x1b[H\x1b[2J";

/// Performs the command once, or with `--watch` until the process is interrupted.
pub(crate) fn repeat(
    arguments: &Arguments,
    perform: impl Fn(&Arguments) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let is_silent = matches!(
        arguments.verb,
        Verb::Run(_)
            | Verb::Top(_)
            | Verb::Fleet(Fleet {
                verb: Some(FleetVerb::Turn(_)),
                ..
            })
    );
    if arguments.json && is_silent {
        return Err(Failure::Usage(
            "error: this command prints no result, so it has no --json".to_owned(),
        ));
    }
    let Some(seconds) = arguments.verb.watch() else {
        return perform(arguments);
    };
    loop {
        if io::stdout().is_terminal() {
            output::print(CLEAR)?;
        }
        match perform(arguments) {
            Ok(()) | Err(Failure::Found(_)) => {}
            // The failure may pass: a proxy that restarts answers again later.
            Err(failure @ Failure::Failed(_)) => {
                failure.report();
            }
            Err(failure) => return Err(failure),
        }
        sleep(Duration::from_secs(seconds));
    }
}
