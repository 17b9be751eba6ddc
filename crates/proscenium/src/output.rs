//! Output of the verbs: answers on standard output, everything else on standard error.

use std::{
    env,
    io::{self, ErrorKind, IsTerminal, Write},
};

use anyhow::Context;

use crate::{failure::Failure, log};

/// Prints an answer and a line end. A closed pipe (`| head`) is not a failure.
pub(crate) fn say(text: &str) -> Result<(), Failure> {
    match writeln!(io::stdout().lock(), "{text}") {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        written => Ok(written.context("cannot write to standard output")?),
    }
}

/// Prints an error and a line end. A failure to print it cannot be reported and is ignored.
pub(crate) fn complain(text: &str) {
    let _ = writeln!(io::stderr().lock(), "{text}");
}

/// Prints why the program ends. The journal reads the priority at the beginning of each line (sd-daemon(3)).
pub(crate) fn complain_of_failure(text: &str) {
    match log::journal_reads_stderr() {
        true => complain(&with_priority(text)),
        false => complain(text),
    }
}

/// Each line with the priority `err`.
fn with_priority(text: &str) -> String {
    let priority = server::Severity::Error as u8;
    let lines: Vec<_> = text
        .lines()
        .map(|line| format!("<{priority}>{line}"))
        .collect();
    lines.join("\n")
}

/// Whether standard error takes colours.
pub(crate) fn colour() -> config::Colour {
    let wanted = env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    if wanted && io::stderr().is_terminal() {
        config::Colour::Always
    } else {
        config::Colour::Never
    }
}
