//! The transport of a test's client: plain or TLS, as slowly as the test requires.

use std::{
    io::{self, ErrorKind, Read, Write},
    time::{Duration, Instant},
};

use rustls::{ClientConnection, StreamOwned};

use crate::socket::Socket;

/// How a slow client moves bytes: at most this number, then a pause.
#[derive(Clone, Copy)]
pub(crate) struct Trickle {
    pub(crate) bytes: usize,
    pub(crate) rest: Duration,
    /// When the current pause ends.
    pub(crate) until: Instant,
}

pub(crate) enum Io {
    Plain(Socket),
    Tls(Box<StreamOwned<ClientConnection, Forgiving>>),
}

impl Io {
    pub(crate) fn socket(&self) -> &Socket {
        match self {
            Self::Plain(socket) => socket,
            Self::Tls(tls) => &tls.sock.0,
        }
    }
}

impl Read for Io {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Plain(socket) => socket.read(into),
            Self::Tls(tls) => tls.read(into),
        }
    }
}

impl Write for Io {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Plain(socket) => socket.write(bytes),
            Self::Tls(tls) => tls.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Plain(socket) => socket.flush(),
            Self::Tls(tls) => tls.flush(),
        }
    }
}

/// A socket that reports failed writes only on the next read. rustls would otherwise stop at the write, and an alert
/// that has already arrived from the peer would be lost. The socket stores the first bytes that were written, which are
/// the ClientHello.
pub(crate) struct Forgiving(
    pub(crate) Socket,
    pub(crate) Vec<u8>,
    pub(crate) Option<Trickle>,
);

impl Read for Forgiving {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match &mut self.2 {
            None => self.0.read(into),
            Some(trickle) => {
                trickle.rest();
                let length = into.len().min(trickle.bytes);
                self.0.read(&mut into[..length])
            }
        }
    }
}

impl Trickle {
    fn rest(&mut self) {
        let now = Instant::now();
        // The test requested this delay.
        std::thread::sleep(self.until.saturating_duration_since(now));
        let earliest = now.checked_sub(CATCH_UP_MAX).unwrap_or(now);
        self.until = self.until.max(earliest) + self.rest;
    }
}

impl Write for Forgiving {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.1.is_empty() {
            self.1.extend_from_slice(bytes);
        }
        let mut piece = bytes;
        if let Some(trickle) = &mut self.2 {
            trickle.rest();
            piece = &bytes[..bytes.len().min(trickle.bytes)];
        }
        match self.0.write(piece) {
            Err(error) if is_gone(&error) => Ok(bytes.len()),
            written => written,
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

pub(crate) fn is_gone(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::BrokenPipe | ErrorKind::ConnectionReset | ErrorKind::ConnectionAborted
    )
}

/// The maximum time by which a slow client may be behind its rate and still catch up.
const CATCH_UP_MAX: Duration = Duration::from_millis(100);
