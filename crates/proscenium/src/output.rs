//! Output of the commands: results on standard output, everything else on standard error.

use std::{
    env,
    io::{self, ErrorKind, IsTerminal, Write},
};

use anyhow::Context;

use serde::Serialize;

use crate::{failure::Failure, log};

/// Prints a result and a newline. A closed pipe (`| head`) is not an error.
pub(crate) fn print(text: &str) -> Result<(), Failure> {
    match writeln!(io::stdout().lock(), "{text}") {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        written => Ok(written.context("cannot write to standard output")?),
    }
}

/// Prints a result: as JSON (`--json`) or as text.
pub(crate) fn answer<T: Serialize>(
    json: bool,
    answer: &T,
    text: impl FnOnce(&T) -> String,
) -> Result<(), Failure> {
    if json {
        print(&serde_json::to_string_pretty(answer).context("a result is JSON")?)
    } else {
        print(text(answer).trim_end())
    }
}

/// Prints a message on standard error and a newline. A failure to print it cannot be reported and is ignored.
pub(crate) fn print_error(text: &str) {
    let _ = writeln!(io::stderr().lock(), "{text}");
}

/// Prints why the command failed. The journal reads the priority at the start of each line (sd-daemon(3)).
pub(crate) fn print_failure(text: &str) {
    if log::journal_reads_stderr() {
        print_error(&with_priority(text))
    } else {
        print_error(text)
    }
}

/// Adds the priority `err` to each line.
fn with_priority(text: &str) -> String {
    let priority = lifecycle::Severity::Error as u8;
    let lines: Vec<_> = text
        .lines()
        .map(|line| format!("<{priority}>{line}"))
        .collect();
    lines.join("\n")
}

/// Whether results on standard output are coloured.
pub(crate) fn is_stdout_coloured() -> bool {
    is_colour_wanted() && io::stdout().is_terminal()
}

/// Whether the environment allows colours (no-color.org).
fn is_colour_wanted() -> bool {
    env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

/// Whether messages on standard error are coloured.
pub(crate) fn colour() -> config::Colour {
    if is_colour_wanted() && io::stderr().is_terminal() {
        config::Colour::Always
    } else {
        config::Colour::Never
    }
}
