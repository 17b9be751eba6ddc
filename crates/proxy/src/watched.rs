//! The transport that hyper is given: it sees a client's bytes before hyper makes requests of them. What is wrong with a
//! request and not to be seen in what hyper makes of it is refused all the same.

use std::{
    io::{self, IoSlice},
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Poll},
};

use http1::{HeadFault, RequestWatch};
use listener::TlsIo;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// The first head of a connection that has a fault. Atomic since hyper wants a transport that may change threads; this one
/// does not.
#[derive(Debug, Default)]
pub(crate) struct FirstFault(AtomicU64);

/// Bits for the fault; the number of the request is above them.
const FAULT_BITS: u32 = 2;

impl FirstFault {
    fn note(&self, request: u64, fault: HeadFault) {
        if self.0.load(Ordering::Relaxed) == 0 {
            let noted = request << FAULT_BITS | fault as u64;
            self.0.store(noted, Ordering::Relaxed);
        }
    }

    /// The fault of this request of the connection, counted from 0.
    pub(crate) fn of(&self, request: u64) -> Option<HeadFault> {
        let noted = self.0.load(Ordering::Relaxed);
        if noted == 0 || noted >> FAULT_BITS != request {
            return None;
        }
        [
            HeadFault::BareLf,
            HeadFault::TwoFramings,
            HeadFault::Fragment,
        ]
        .into_iter()
        .find(|fault| *fault as u64 == noted & ((1 << FAULT_BITS) - 1))
    }
}

/// A transport whose incoming bytes are watched.
pub(crate) struct Watched {
    io: TlsIo,
    watch: RequestWatch,
    fault: Arc<FirstFault>,
    /// A body's framing is malformed: nothing more is read.
    malformed: bool,
}

impl Watched {
    pub(crate) fn new(io: TlsIo, head_bytes_max: usize, fault: Arc<FirstFault>) -> Self {
        Self {
            io,
            watch: RequestWatch::new(head_bytes_max),
            fault,
            malformed: false,
        }
    }

    /// The transport, when HTTP has ended on it.
    pub(crate) fn into_inner(self) -> TlsIo {
        self.io
    }
}

impl AsyncRead for Watched {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let malformed = || Poll::Ready(Err(io::ErrorKind::InvalidData.into()));
        if this.malformed {
            return malformed();
        }
        let before = buffer.filled().len();
        let polled = Pin::new(&mut this.io).poll_read(cx, buffer);
        let fault = &this.fault;
        let passed = this
            .watch
            .pass(&buffer.filled()[before..], |request, found| {
                fault.note(request, found);
            });
        if let Err((_, good)) = passed {
            // What came before it is read first, and has its answer.
            this.malformed = true;
            buffer.set_filled(before + good);
            if good == 0 {
                return malformed();
            }
        }
        polled
    }
}

impl AsyncWrite for Watched {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write_vectored(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }
}
