//! Where events go: standard error, as the journal or a person at a terminal likes them.

use std::{env, fs, io, os::unix::fs::MetadataExt};

use tracing_subscriber::EnvFilter;

use crate::{failure::Failure, output};

/// Starts writing events to standard error.
///
/// `level` is a level or a list of `part=level`; what it says nothing of is at `error`.
pub(crate) fn start(level: &str) -> Result<(), Failure> {
    let filter = EnvFilter::try_new(level).map_err(|error| {
        Failure::Usage(format!(
            "error: --log {level:?}: {error}; it takes error, warn, info, debug or trace, or a list like info,proxy=debug"
        ))
    })?;
    let events = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(output::colour() == config::Colour::Always)
        .with_writer(io::stderr);
    if journal_reads_stderr() {
        // The journal has its own clock.
        events.without_time().init();
    } else {
        events.init();
    }
    Ok(())
}

/// Whether standard error is the journal's: it names its socket in `JOURNAL_STREAM`, which children of a service
/// inherit even where their standard error goes elsewhere (systemd.exec(5)).
fn journal_reads_stderr() -> bool {
    let Ok(stream) = env::var("JOURNAL_STREAM") else {
        return false;
    };
    fs::metadata("/dev/stderr")
        .is_ok_and(|stderr| stream == format!("{}:{}", stderr.dev(), stderr.ino()))
}
