//! A TCP or Unix stream, as one type.

use std::{
    io::{self, Read, Write},
    net::{Shutdown, TcpStream},
    os::unix::net::UnixStream,
    time::Duration,
};

use socket2::SockRef;

/// A stream whose end can be brought about from another thread.
pub(crate) enum Socket {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Socket {
    /// Limits every read and write.
    pub(crate) fn set_timeouts(&self, limit: Duration) -> io::Result<()> {
        match self {
            Self::Tcp(stream) => {
                stream.set_read_timeout(Some(limit))?;
                stream.set_write_timeout(Some(limit))
            }
            Self::Unix(stream) => {
                stream.set_read_timeout(Some(limit))?;
                stream.set_write_timeout(Some(limit))
            }
        }
    }

    /// Tells the peer that nothing more will come; it may be gone already.
    pub(crate) fn finish(&self) {
        let _ = match self {
            Self::Tcp(stream) => stream.shutdown(Shutdown::Write),
            Self::Unix(stream) => stream.shutdown(Shutdown::Write),
        };
    }

    /// Keeps what is written until [`finish`](Self::finish), to send it together with the end.
    pub(crate) fn hold_back(&self) {
        if let Self::Tcp(stream) = self {
            let _ = SockRef::from(stream).set_tcp_cork(true);
        }
    }

    pub(crate) fn try_clone(&self) -> io::Result<Self> {
        match self {
            Self::Tcp(stream) => stream.try_clone().map(Self::Tcp),
            Self::Unix(stream) => stream.try_clone().map(Self::Unix),
        }
    }

    /// Ends it; the peer may be gone already.
    pub(crate) fn close(&self) {
        let _ = match self {
            Self::Tcp(stream) => stream.shutdown(Shutdown::Both),
            Self::Unix(stream) => stream.shutdown(Shutdown::Both),
        };
    }

    /// Ends it with a reset; a Unix socket knows only the plain end.
    pub(crate) fn reset(&self) {
        if let Self::Tcp(stream) = self {
            // Aborts the connection at once, though other descriptors hold it: close would wait for the last.
            let _ = rustix::net::connect_unspec(stream);
        }
        self.close();
    }
}

impl Read for Socket {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.read(into),
            Self::Unix(stream) => stream.read(into),
        }
    }
}

impl Write for Socket {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.write(bytes),
            Self::Unix(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
