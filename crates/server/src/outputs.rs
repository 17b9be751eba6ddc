//! Where access records and events are written.

use std::{fs, io, io::Write, os::unix::fs::OpenOptionsExt, os::unix::net::UnixDatagram, process};

use config::{EventOutput, Output};
use telemetry::{Daemon, DaemonSettings};

/// Opens the access log's output, anew on each reload so that a rotated file is let go.
///
/// # Errors
/// The path and what the system says.
pub(crate) fn open(output: &Output) -> io::Result<telemetry::Output> {
    let lines = |writer: Box<dyn Write + Send>| telemetry::Output::Lines(writer);
    match output {
        Output::Stdout => Ok(lines(Box::new(io::stdout()))),
        Output::File(path) => fs::OpenOptions::new()
            .create(true)
            .append(true)
            .mode(0o640)
            .open(path)
            .map(|file| lines(Box::new(file)))
            .map_err(|error| {
                io::Error::new(
                    error.kind(),
                    format!("access log {}: {error}", path.display()),
                )
            }),
        Output::Daemon(settings) => daemon(settings).map(telemetry::Output::Daemon),
    }
}

/// The daemon that events go to; none for standard error.
///
/// # Errors
/// When the system has no socket to give. That nobody listens is no error: a daemon may start later.
pub(crate) fn open_events(output: &EventOutput) -> io::Result<Option<Daemon>> {
    match output {
        EventOutput::Stderr => Ok(None),
        EventOutput::Daemon(settings) => daemon(settings).map(Some),
    }
}

fn daemon(settings: &DaemonSettings) -> io::Result<Daemon> {
    UnixDatagram::unbound()
        .and_then(|socket| Daemon::new(socket, settings, process::id()))
        .map_err(|error| {
            let socket = settings.socket.display();
            io::Error::new(error.kind(), format!("log daemon {socket}: {error}"))
        })
}
