//! The machine's log daemon: a socket that takes one record as one datagram.
//!
//! The socket of ours is connected to nobody. The path is looked up for each datagram, so that a daemon that has started
//! anew is found by the next record, and there is no state that could be wrong.

use std::io::{self, ErrorKind};
use std::os::unix::net::UnixDatagram;
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

/// What became of a batch that was not sent whole.
#[derive(Debug)]
pub(crate) struct Unsent {
    pub(crate) records: u64,
    /// Why the first of them was not.
    pub(crate) error: io::Error,
}

impl Daemon {
    /// The daemon of these settings, through an unbound socket, on behalf of the process `pid`. That nobody listens
    /// there yet is no error.
    ///
    /// # Errors
    /// When the socket takes no options.
    pub fn new(socket: UnixDatagram, settings: &DaemonSettings, pid: u32) -> io::Result<Self> {
        socket.set_nonblocking(true)?;
        socket.set_write_timeout(Some(ROOM_WAIT_MAX))?;
        Ok(Self {
            socket,
            settings: settings.clone(),
            pid,
        })
    }

    /// How access records are framed for it.
    pub(crate) fn framing(&self) -> Framing {
        match self.settings.protocol {
            LogProtocol::Syslog(facility) => {
                Framing::Syslog(head(facility, Severity::Info, self.pid).into())
            }
            LogProtocol::Journal => Framing::Journal,
        }
    }

    /// An event as it goes there.
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

    /// Sends, or says at once why not.
    ///
    /// # Errors
    /// `WouldBlock` where the daemon does not read as fast as is sent; else that it is not there.
    pub(crate) fn send(&self, datagram: &[u8]) -> io::Result<()> {
        loop {
            match self.socket.send_to(datagram, &self.settings.socket) {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                sent => return sent.map(drop),
            }
        }
    }

    /// Sends a batch, from a thread that may wait for a moment: a queue of ten, which many systems have, is full
    /// before a daemon that is well has woken up.
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

    /// Waits in the kernel, for `ROOM_WAIT_MAX`.
    fn wait_and_send(&self, datagram: &[u8]) -> io::Result<()> {
        self.socket.set_nonblocking(false)?;
        let sent = self.send(datagram);
        self.socket.set_nonblocking(true)?;
        sent
    }

    /// An error with the socket that it is about.
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

/// Whether the daemon is there and does not read.
pub(crate) fn is_full(sent: &io::Result<()>) -> bool {
    sent.as_ref()
        .is_err_and(|error| error.kind() == ErrorKind::WouldBlock)
}

/// How long one access record waits for room. A daemon that reads nothing for so long does not get better by waiting.
const ROOM_WAIT_MAX: Duration = Duration::from_millis(100);

/// How long the records of one batch wait together: a reload and the end of the process wait for the batch.
const BATCH_WAIT_MAX: Duration = Duration::from_millis(500);

#[cfg(test)]
mod tests;
