//! A TCP or Unix stream, as one type.

use std::{
    io::{self, Read, Write},
    net::{Shutdown, TcpStream},
    os::unix::net::UnixStream,
    time::Duration,
};

use socket2::SockRef;

/// A stream that another thread can close.
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

    /// Half-closes the stream; the peer may have closed it already.
    pub(crate) fn finish(&self) {
        let _ = match self {
            Self::Tcp(stream) => stream.shutdown(Shutdown::Write),
            Self::Unix(stream) => stream.shutdown(Shutdown::Write),
        };
    }

    /// Buffers written bytes until [`finish`](Self::finish), to send them together with the end.
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

    /// Closes the stream; the peer may have closed it already.
    pub(crate) fn close(&self) {
        let _ = match self {
            Self::Tcp(stream) => stream.shutdown(Shutdown::Both),
            Self::Unix(stream) => stream.shutdown(Shutdown::Both),
        };
    }

    /// Resets the stream; a Unix socket is only closed.
    pub(crate) fn reset(&self) {
        if let Self::Tcp(stream) = self {
            // Aborts the connection at once, even if other descriptors refer to it. `close` would take effect only with
            // the last descriptor.
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
