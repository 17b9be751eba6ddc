//! A stand-in's end of a tunnel.

use std::io::{self, Read};

use super::answer::Transport;
use crate::{message::MessageReader, socket::Socket};

/// A connection after a 101. Its failures are its end: a test looks at what the other side saw.
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

    /// Sends back what comes until nothing more does, then says so.
    pub fn echo(&mut self) {
        while let Some(piece) = self.read() {
            if !self.send(&piece) {
                return;
            }
        }
        self.finish();
    }

    /// What comes next; none: the end.
    pub fn read(&mut self) -> Option<Vec<u8>> {
        let waiting = self.reader.pending().len();
        if waiting == 0 {
            self.reader.fill(&mut Dyn(&mut *self.io)).ok()?;
        }
        let ready = self.reader.pending().len();
        let bytes = self.reader.bytes(&mut Dyn(&mut *self.io), ready).ok()?;
        (!bytes.is_empty()).then_some(bytes)
    }

    /// The next `n` bytes, or as many as come before the end.
    pub fn read_bytes(&mut self, n: usize) -> Vec<u8> {
        self.reader
            .bytes(&mut Dyn(&mut *self.io), n)
            .unwrap_or_default()
    }

    /// Whether the peer took it.
    pub fn send(&mut self, bytes: &[u8]) -> bool {
        self.io
            .write_all(bytes)
            .and_then(|()| self.io.flush())
            .is_ok()
    }

    /// Says that nothing more comes; more may still be read.
    pub fn finish(&mut self) {
        self.io.finish();
    }

    /// Ends it with a reset.
    pub fn reset(&mut self) {
        self.socket.reset();
    }
}

/// A reader of known size around one that has none.
struct Dyn<'a>(&'a mut dyn Transport);

impl Read for Dyn<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.0.read(into)
    }
}
