//! A log daemon on this machine: a socket that receives each record as a datagram.
//!
//! The socket is not connected. The path is looked up for each datagram, so the next record reaches a daemon that was
//! restarted, and no state can become stale.

use std::io::{self, ErrorKind};
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::line::Framing;
use crate::settings::{DaemonSettings, LogProtocol};
use crate::syslog::{self, Severity};
use crate::{journal, syslog::head};

/// A daemon that records go to.
#[derive(Debug)]
pub struct Daemon {
    socket: UnixDatagram,
    settings: DaemonSettings,
    pid: u32,
}

/// The result of a batch that was not sent completely.
#[derive(Debug)]
pub(crate) struct Unsent {
    pub(crate) records: u64,
    /// Why the first unsent record was not sent.
    pub(crate) error: io::Error,
}

impl Daemon {
    /// A daemon with these settings, which receives datagrams from an unbound socket on behalf of the process `pid`. It is not
    /// an error if no daemon listens at its socket yet.
    ///
    /// # Errors
    /// The socket options cannot be set.
    pub fn new(socket: UnixDatagram, settings: &DaemonSettings, pid: u32) -> io::Result<Self> {
        socket.set_nonblocking(true)?;
        socket.set_write_timeout(Some(ROOM_WAIT_MAX))?;
        Ok(Self {
            socket,
            settings: settings.clone(),
            pid,
        })
    }

    /// How access records are framed for this daemon.
    pub(crate) fn framing(&self) -> Framing {
        match self.settings.protocol {
            LogProtocol::Syslog(facility) => {
                Framing::Syslog(head(facility, Severity::Info, self.pid).into())
            }
            LogProtocol::Journal => Framing::Journal,
        }
    }

    /// An event in the daemon's format.
    pub(crate) fn frame_event(
        &self,
        severity: Severity,
        part: &str,
        message: &str,
        fields: &[(&str, String)],
    ) -> Vec<u8> {
        match self.settings.protocol {
            LogProtocol::Syslog(facility) => {
                let mut record = head(facility, severity, self.pid);
                record.extend_from_slice(part.as_bytes());
                record.extend_from_slice(b": ");
                record.extend_from_slice(syslog::text(message, fields).as_bytes());
                syslog::cut(&mut record, 0);
                record
            }
            LogProtocol::Journal => {
                let mut entry = Vec::new();
                journal::push_event(&mut entry, severity, part, message, fields);
                entry
            }
        }
    }

    /// Sends without waiting.
    ///
    /// # Errors
    /// `WouldBlock` if the daemon does not read fast enough. Any other error means that the daemon is absent.
    pub(crate) fn send(&self, datagram: &[u8]) -> io::Result<()> {
        loop {
            match self.socket.send_to(datagram, &self.settings.socket) {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                sent => return sent.map(drop),
            }
        }
    }

    /// Sends a batch from a thread that may wait for a moment. Many systems have a queue of ten datagrams, which fills up
    /// before the system schedules a healthy daemon.
    pub(crate) fn send_batch(&self, batch: &[u8]) -> Result<(), Unsent> {
        let deadline = Instant::now() + BATCH_WAIT_MAX;
        let (mut patient, mut unsent) = (true, None::<Unsent>);
        for datagram in crate::line::datagrams(batch) {
            let mut sent = self.send(datagram);
            if patient && is_full(&sent) {
                sent = self.wait_and_send(datagram);
                patient = !is_full(&sent) && Instant::now() < deadline;
            }
            let Err(error) = sent else { continue };
            match &mut unsent {
                Some(unsent) => unsent.records += 1,
                None => {
                    let error = self.named(&error);
                    unsent = Some(Unsent { records: 1, error });
                }
            }
        }
        unsent.map_or(Ok(()), Err)
    }

    /// Waits in the kernel, for at most `ROOM_WAIT_MAX`.
    fn wait_and_send(&self, datagram: &[u8]) -> io::Result<()> {
        self.socket.set_nonblocking(false)?;
        let sent = self.send(datagram);
        self.socket.set_nonblocking(true)?;
        sent
    }

    pub(crate) fn socket(&self) -> &Path {
        &self.settings.socket
    }

    pub(crate) fn named(&self, error: &io::Error) -> io::Error {
        let socket = self.settings.socket.display();
        let text = match error.kind() {
            ErrorKind::WouldBlock => {
                format!("{socket}: the socket is full because the log daemon does not read from it")
            }
            _ => format!("{socket}: {error}"),
        };
        io::Error::new(error.kind(), text)
    }
}

/// Whether the daemon is present but does not read fast enough.
pub(crate) fn is_full(sent: &io::Result<()>) -> bool {
    sent.as_ref()
        .is_err_and(|error| error.kind() == ErrorKind::WouldBlock)
}

/// How long one access record waits for room. If a daemon reads nothing for this time, waiting longer does not help.
const ROOM_WAIT_MAX: Duration = Duration::from_millis(100);

/// How long all records of one batch may wait together. A reload and the end of the process wait for the batch.
const BATCH_WAIT_MAX: Duration = Duration::from_millis(500);

#[cfg(test)]
mod tests;
