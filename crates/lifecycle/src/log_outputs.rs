//! The outputs that access records and events are written to.

use std::{
    fs, io,
    os::unix::{fs::OpenOptionsExt, net::UnixDatagram},
    path::Path,
    process,
    sync::Arc,
};

use config::{AccessLogOutput, Config, EventOutput};
use rustix::{
    fs::{OFlags, fcntl_getfl, fcntl_setfl},
    io::Errno,
};
use telemetry::{AccessLogSettings, AccessLogs, Daemon, DaemonSettings, Metrics, SinkOutput};

/// The opened outputs of all access logs of a configuration.
pub(crate) struct OpenedAccessLogs {
    first: OpenedAccessLog,
    others: Vec<OpenedAccessLog>,
}

struct OpenedAccessLog {
    settings: AccessLogSettings,
    output: SinkOutput,
}

impl OpenedAccessLogs {
    /// Opens the outputs of all access logs.
    ///
    /// # Errors
    /// The path and the error of the operating system, for the first log that cannot be opened.
    pub(crate) fn open(config: &Config) -> io::Result<Self> {
        let open = |log: &config::AccessLog| -> io::Result<_> {
            Ok(OpenedAccessLog {
                settings: log.settings.clone(),
                output: open(&log.output)?,
            })
        };
        Ok(Self {
            first: open(&config.access_log)?,
            others: config
                .other_access_logs
                .iter()
                .map(open)
                .collect::<Result<_, _>>()?,
        })
    }

    /// Starts the access logs of the process.
    ///
    /// # Errors
    /// The operating system provides no thread.
    pub(crate) fn start(self, metrics: &Arc<Metrics>) -> io::Result<AccessLogs> {
        let first = self.first;
        let logs = AccessLogs::start(&first.settings, first.output, metrics)?;
        let (settings, outputs) = parts(self.others);
        logs.set_others(settings.iter().zip(outputs).collect())?;
        Ok(logs)
    }

    /// Makes running access logs continue with these outputs. A rotated file is closed.
    ///
    /// # Errors
    /// The operating system provides no thread for an additional log. The others continue.
    pub(crate) fn reopen(self, logs: &AccessLogs) -> io::Result<()> {
        let first = self.first;
        let (settings, outputs) = parts(self.others);
        let others = settings.iter().zip(outputs).collect();
        logs.reopen((&first.settings, first.output), others)
    }
}

/// [`AccessLogs`] borrows the settings and owns the outputs.
fn parts(logs: Vec<OpenedAccessLog>) -> (Vec<AccessLogSettings>, Vec<SinkOutput>) {
    logs.into_iter()
        .map(|log| (log.settings, log.output))
        .unzip()
}

/// Opens the output of one access log.
///
/// # Errors
/// The path and the error of the operating system.
fn open(output: &AccessLogOutput) -> io::Result<SinkOutput> {
    match output {
        AccessLogOutput::Stdout => {
            let name = "standard output".to_owned();
            Ok(SinkOutput::Lines(name, Box::new(io::stdout())))
        }
        AccessLogOutput::File(path) => {
            let name = path.display().to_string();
            let file = open_file(path).map_err(|error| {
                io::Error::new(error.kind(), format!("access log {name}: {error}"))
            })?;
            Ok(SinkOutput::Lines(name, Box::new(file)))
        }
        AccessLogOutput::Daemon(settings) => daemon(settings).map(SinkOutput::Daemon),
    }
}

/// Opens a log file without waiting: a named pipe without a reader would block the whole control plane.
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
    // The thread that writes the records waits for a slow reader, so that no record is lost.
    let flags = fcntl_getfl(&file)?;
    fcntl_setfl(&file, flags - OFlags::NONBLOCK)?;
    Ok(file)
}

/// The log daemon that events are sent to. `None` for standard error.
///
/// # Errors
/// The operating system provides no socket. A daemon that does not listen is not an error, because it may start later.
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

    use std::{
        io::{Read, Write as _},
        sync::mpsc,
        thread,
        time::Duration,
    };

    use rustix::fs::{CWD, FileType, Mode, mknodat};

    use super::*;

    const LIMIT: Duration = Duration::from_secs(60);

    #[test]
    fn a_named_pipe_that_no_program_reads_is_an_error_at_once() {
        let place = tempfile::tempdir().expect("a directory");
        let path = place.path().join("access.log");
        mknodat(CWD, &path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).expect("a pipe");
        let open = {
            let output = AccessLogOutput::File(path.clone());
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
        let SinkOutput::Lines(_, mut writer) = opened_by(open) else {
            panic!("a file takes lines");
        };
        // This is more than a pipe holds, so the writer has to wait for the reader.
        let line = "x".repeat(1 << 17);
        writer.write_all(line.as_bytes()).expect("is written");
        drop(writer);
        assert_eq!(reader.join().expect("ends").expect("is read"), line);
    }

    /// Opens the output as soon as the reader has opened the pipe.
    fn opened_by(open: impl Fn() -> io::Result<SinkOutput>) -> SinkOutput {
        loop {
            match open() {
                Ok(output) => return output,
                Err(_) => thread::yield_now(),
            }
        }
    }
}
