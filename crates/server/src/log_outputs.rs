//! Where access records and events are written.

use std::{
    fs, io,
    io::Write,
    os::unix::{fs::OpenOptionsExt, net::UnixDatagram},
    path::Path,
    process,
};

use config::{Config, EventOutput, Output};
use rustix::{
    fs::{OFlags, fcntl_getfl, fcntl_setfl},
    io::Errno,
};
use telemetry::{AccessLogSettings, Daemon, DaemonSettings};

/// Opens the access log's output, anew on each reload so that a rotated file is let go.
///
/// # Errors
/// The path and what the system says.
pub(crate) fn open(output: &Output) -> io::Result<telemetry::SinkOutput> {
    let lines = |writer: Box<dyn Write + Send>| telemetry::SinkOutput::Lines(writer);
    match output {
        Output::Stdout => Ok(lines(Box::new(io::stdout()))),
        Output::File(path) => {
            let name = format!("access log {}", path.display());
            let file = open_file(path).map_err(|error| named(&name, &error))?;
            Ok(lines(Box::new(LogFile { name, file })))
        }
        Output::Daemon(settings) => daemon(settings).map(telemetry::SinkOutput::Daemon),
    }
}

/// A file whose errors name it: there may be several logs, and one of them fails.
struct LogFile {
    name: String,
    file: fs::File,
}

impl Write for LogFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.file.write(bytes);
        written.map_err(|error| named(&self.name, &error))
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

fn named(name: &str, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{name}: {error}"))
}

/// Access logs beside the first, opened.
pub(crate) type OtherLogs<'c> = Vec<(&'c AccessLogSettings, telemetry::SinkOutput)>;

/// Opens the outputs of the access logs beside the first.
///
/// # Errors
/// The path and what the system says, of the first that cannot be opened.
pub(crate) fn open_others(config: &Config) -> io::Result<OtherLogs<'_>> {
    let logs = config.other_access_logs.iter();
    logs.map(|log| Ok((&log.settings, open(&log.output)?)))
        .collect()
}

/// Opens a log file without waiting: a named pipe that no program reads would hold the whole control plane.
fn open_file(path: &Path) -> io::Result<fs::File> {
    let opened = fs::OpenOptions::new()
        .create(true)
        .append(true)
        .mode(0o640)
        .custom_flags(OFlags::NONBLOCK.bits().cast_signed())
        .open(path);
    let file = opened.map_err(|error| match Errno::from_io_error(&error) {
        Some(Errno::NXIO) => io::Error::new(
            error.kind(),
            "no program reads this named pipe, or it is a socket",
        ),
        _ => error,
    })?;
    // The thread that writes the records may wait, so that none is lost while the reader is slow.
    let flags = fcntl_getfl(&file)?;
    fcntl_setfl(&file, flags - OFlags::NONBLOCK)?;
    Ok(file)
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

#[cfg(test)]
mod tests {
    #![allow(clippy::disallowed_methods, reason = "tests read files")]

    use std::{io::Read, sync::mpsc, thread, time::Duration};

    use rustix::fs::{CWD, FileType, Mode, mknodat};

    use super::*;

    const LIMIT: Duration = Duration::from_secs(60);

    #[test]
    fn a_named_pipe_that_no_program_reads_is_an_error_at_once() {
        let place = tempfile::tempdir().expect("a directory");
        let path = place.path().join("access.log");
        mknodat(CWD, &path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).expect("a pipe");
        let open = {
            let output = Output::File(path.clone());
            move || open(&output)
        };
        let (send, opened) = mpsc::channel();
        let first = open.clone();
        thread::spawn(move || send.send(first()));
        let opened = opened.recv_timeout(LIMIT).expect("opening does not wait");
        let error = opened.err().expect("an error").to_string();
        assert!(
            error.contains("access.log") && error.contains("no program reads"),
            "{error}"
        );
        let reader = thread::spawn(move || {
            let mut text = String::new();
            let mut pipe = fs::File::open(path).expect("is there");
            pipe.read_to_string(&mut text).map(|_| text)
        });
        let telemetry::SinkOutput::Lines(mut writer) = opened_by(open) else {
            panic!("a file takes lines");
        };
        // More than a pipe holds: the writer waits for the reader.
        let line = "x".repeat(1 << 17);
        writer.write_all(line.as_bytes()).expect("is written");
        drop(writer);
        assert_eq!(reader.join().expect("ends").expect("is read"), line);
    }

    /// The reader opens its end at its own time.
    fn opened_by(open: impl Fn() -> io::Result<telemetry::SinkOutput>) -> telemetry::SinkOutput {
        loop {
            match open() {
                Ok(output) => return output,
                Err(_) => thread::yield_now(),
            }
        }
    }
}
