//! The transport under hyper. It inspects a client's bytes before hyper parses them, and refuses faults that hyper
//! accepts without reporting them.

use std::{
    io::{self, IoSlice},
    pin::Pin,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Poll},
};

use http1::{HeadFault, RequestWatch};
use listener::TlsIo;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// What a transport reports to its connection. The fields are atomic because hyper requires a transport that can be
/// sent to another thread; this one never is.
#[derive(Debug, Default)]
pub(crate) struct TransportNotes {
    /// The first head with a fault.
    fault: AtomicU64,
    /// How many requests were read completely, with nothing of the next one; [`WITHIN`]: a request is incomplete.
    whole: AtomicU64,
    /// The transport, after hyper has dropped it.
    released: Mutex<Option<TlsIo>>,
}

/// Part of a request has been read.
const WITHIN: u64 = u64::MAX;

/// Bits for the fault. The number of the request is above them.
const FAULT_BITS: u32 = 3;

impl TransportNotes {
    fn note(&self, request: u64, fault: HeadFault) {
        if self.fault.load(Ordering::Relaxed) == 0 {
            let noted = request << FAULT_BITS | fault as u64;
            self.fault.store(noted, Ordering::Relaxed);
        }
    }

    /// The fault of this request of the connection, counted from 0.
    pub(crate) fn fault_of(&self, request: u64) -> Option<HeadFault> {
        let noted = self.fault.load(Ordering::Relaxed);
        if noted == 0 || noted >> FAULT_BITS != request {
            return None;
        }
        HeadFault::ALL
            .into_iter()
            .find(|fault| *fault as u64 == noted & ((1 << FAULT_BITS) - 1))
    }
}

impl TransportNotes {
    /// Whether exactly this many requests have been read, and nothing of the next one.
    pub(crate) fn is_between(&self, requests: u64) -> bool {
        self.whole.load(Ordering::Relaxed) == requests
    }

    /// Takes the transport that hyper has dropped.
    pub(crate) fn take(&self) -> Option<TlsIo> {
        let mut released = self.released.lock().unwrap_or_else(PoisonError::into_inner);
        released.take()
    }
}

/// A transport whose incoming bytes are inspected.
pub(crate) struct Http1Transport {
    /// None only after it was taken out.
    io: Option<TlsIo>,
    watch: RequestWatch,
    notes: Arc<TransportNotes>,
    /// A body's framing is malformed: nothing more is read.
    malformed: bool,
}

impl Http1Transport {
    /// For a connection that has had this many requests.
    pub(crate) fn new(
        io: TlsIo,
        head_bytes_max: usize,
        notes: Arc<TransportNotes>,
        requests: u64,
    ) -> Self {
        Self {
            io: Some(io),
            watch: RequestWatch::new(head_bytes_max, requests),
            notes,
            malformed: false,
        }
    }

    /// The transport, after HTTP has ended on it.
    pub(crate) fn into_inner(mut self) -> Option<TlsIo> {
        self.io.take()
    }

    fn io(&mut self) -> Pin<&mut TlsIo> {
        let io = self.io.as_mut();
        Pin::new(io.expect("it is taken out at the end alone"))
    }
}

impl Drop for Http1Transport {
    fn drop(&mut self) {
        let mut released = self
            .notes
            .released
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        *released = self.io.take();
    }
}

impl AsyncRead for Http1Transport {
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
        let polled = this.io().poll_read(cx, buffer);
        let notes = &this.notes;
        let passed = this
            .watch
            .pass(&buffer.filled()[before..], |request, found| {
                notes.note(request, found);
            });
        if let Err((_, good)) = passed {
            // The bytes before the fault are passed on first, so that their requests are answered.
            this.malformed = true;
            buffer.set_filled(before + good);
            if good == 0 {
                return malformed();
            }
        }
        let whole = this.watch.whole_requests().unwrap_or(WITHIN);
        this.notes.whole.store(whole, Ordering::Relaxed);
        polled
    }
}

impl AsyncWrite for Http1Transport {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.get_mut().io().poll_write(cx, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.get_mut().io().poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.get_mut().io().poll_shutdown(cx)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.get_mut().io().poll_write_vectored(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.as_ref().is_some_and(AsyncWrite::is_write_vectored)
    }
}
