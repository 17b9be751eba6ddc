//! A stand-in's end of a tunnel.

use std::io::{self, Read};

use super::answer::Transport;
use crate::{message::MessageReader, socket::Socket};

/// A connection after a 101. Errors count as its end, because a test compares what the other side received.
pub struct Tunnel<'a> {
    reader: MessageReader,
    io: &'a mut dyn Transport,
    socket: &'a Socket,
}

impl<'a> Tunnel<'a> {
    pub(super) fn new(
        reader: MessageReader,
        io: &'a mut dyn Transport,
        socket: &'a Socket,
    ) -> Self {
        Self { reader, io, socket }
    }

    /// Echoes until the end, then half-closes.
    pub fn echo(&mut self) {
        while let Some(piece) = self.read() {
            if !self.send(&piece) {
                return;
            }
        }
        self.finish();
    }

    /// Reads the next bytes; `None` at the end.
    pub fn read(&mut self) -> Option<Vec<u8>> {
        let waiting = self.reader.pending().len();
        if waiting == 0 {
            self.reader.fill(&mut Dyn(&mut *self.io)).ok()?;
        }
        let ready = self.reader.pending().len();
        let bytes = self.reader.bytes(&mut Dyn(&mut *self.io), ready).ok()?;
        (!bytes.is_empty()).then_some(bytes)
    }

    /// Reads the next `n` bytes, or as many as arrive before the end.
    pub fn read_bytes(&mut self, n: usize) -> Vec<u8> {
        self.reader
            .bytes(&mut Dyn(&mut *self.io), n)
            .unwrap_or_default()
    }

    /// Sends these bytes; returns whether the peer accepted them.
    pub fn send(&mut self, bytes: &[u8]) -> bool {
        self.io
            .write_all(bytes)
            .and_then(|()| self.io.flush())
            .is_ok()
    }

    /// Half-closes the tunnel; reading continues.
    pub fn finish(&mut self) {
        self.io.finish();
    }

    /// Resets the connection.
    pub fn reset(&mut self) {
        self.socket.reset();
    }
}

/// A sized reader for an unsized one.
struct Dyn<'a>(&'a mut dyn Transport);

impl Read for Dyn<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.0.read(into)
    }
}
