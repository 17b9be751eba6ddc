//! The transport under hyper. It inspects a client's bytes before hyper parses them, and refuses faults that hyper
//! accepts without reporting them. It encodes raw bytes of a query that hyper would refuse, and gives a text and a
//! request id to the responses that hyper writes by itself.

use std::{
    io::{self, IoSlice},
    pin::Pin,
    sync::{
        Arc, Mutex, OnceLock, PoisonError,
        atomic::{AtomicU8, AtomicU64, Ordering},
    },
    task::{Context, Poll, ready},
};

use http1::{HeadFault, RequestWatch};
use listener::TlsIo;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::request_id::RequestId;

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
    /// One of [`NO_EXCHANGE`], [`IN_EXCHANGE`] and [`EXCHANGE_ENDED`].
    exchange: AtomicU8,
    /// The id in the response to a head that hyper refused.
    refused: OnceLock<RequestId>,
}

/// The client has all of the responses so far. What hyper writes now is a response of its own.
const NO_EXCHANGE: u8 = 0;
/// A request is being answered.
const IN_EXCHANGE: u8 = 1;
/// hyper has the last byte of a response, and may not have written it.
const EXCHANGE_ENDED: u8 = 2;

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
    /// hyper has parsed a request.
    pub(crate) fn exchange_began(&self) {
        self.exchange.store(IN_EXCHANGE, Ordering::Relaxed);
    }

    /// hyper has the last byte of the response.
    pub(crate) fn exchange_ended(&self) {
        self.exchange.store(EXCHANGE_ENDED, Ordering::Relaxed);
    }

    /// hyper flushes the transport only after it has written everything.
    fn flushed(&self) {
        if self.exchange.load(Ordering::Relaxed) == EXCHANGE_ENDED {
            self.exchange.store(NO_EXCHANGE, Ordering::Relaxed);
        }
    }

    /// The id in the response to the head that hyper refused, if it got one.
    pub(crate) fn refused(&self) -> Option<&RequestId> {
        self.refused.get()
    }

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
    /// Bytes of the client after the first encoded one that hyper's buffer had no room for: at most three times one read.
    encoded: Vec<u8>,
    /// Two random numbers, for the id of a refused head.
    random: (u64, u64),
    /// What is left of the response to a refused head, and how many bytes of hyper it replaces.
    refusal: Option<(Vec<u8>, usize)>,
}

impl Http1Transport {
    /// For a connection that has had this many requests.
    pub(crate) fn new(
        io: TlsIo,
        head_bytes_max: usize,
        notes: Arc<TransportNotes>,
        requests: u64,
        random: (u64, u64),
    ) -> Self {
        Self {
            io: Some(io),
            watch: RequestWatch::new(head_bytes_max, requests),
            notes,
            malformed: false,
            encoded: Vec::new(),
            random,
            refusal: None,
        }
    }

    /// Writes a text and an id in place of a response that hyper writes by itself. `None`: these bytes are not one.
    fn poll_refusal(
        &mut self,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<Option<usize>>> {
        if self.refusal.is_none() && self.notes.exchange.load(Ordering::Relaxed) == NO_EXCHANGE {
            let new = || RequestId::new(self.random.0, self.random.1);
            let refusal = refusal(bytes, || self.notes.refused.get_or_init(new));
            self.refusal = refusal.map(|refusal| (refusal, bytes.len()));
        }
        let Some((mut left, replaced)) = self.refusal.take() else {
            return Poll::Ready(Ok(None));
        };
        while !left.is_empty() {
            match self.io().poll_write(cx, &left) {
                Poll::Ready(written) => {
                    let written = written?;
                    if written == 0 {
                        return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
                    }
                    left.drain(..written);
                }
                Poll::Pending => {
                    self.refusal = Some((left, replaced));
                    return Poll::Pending;
                }
            }
        }
        Poll::Ready(Ok(Some(replaced)))
    }

    /// Encodes raw bytes in the query of what was just read (RFC 3986, 2.1). What hyper's buffer has no room for then comes
    /// with the next reads.
    fn encode_query(&mut self, buffer: &mut ReadBuf<'_>, before: usize) {
        let Some(&first) = self.watch.raw_query().first() else {
            return;
        };
        let mut raw = self.watch.raw_query().iter().peekable();
        for (at, byte) in buffer.filled()[before..].iter().enumerate().skip(first) {
            match raw.next_if_eq(&&at) {
                Some(_) => self.encoded.extend(format!("%{byte:02X}").bytes()),
                None => self.encoded.push(*byte),
            }
        }
        buffer.set_filled(before + first);
        self.take_encoded(buffer);
    }

    fn take_encoded(&mut self, buffer: &mut ReadBuf<'_>) {
        let length = buffer.remaining().min(self.encoded.len());
        buffer.put_slice(&self.encoded[..length]);
        self.encoded.drain(..length);
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
        if !this.encoded.is_empty() {
            this.take_encoded(buffer);
            return Poll::Ready(Ok(()));
        }
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
        this.encode_query(buffer, before);
        polled
    }
}

impl AsyncWrite for Http1Transport {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        match ready!(this.poll_refusal(cx, bytes))? {
            Some(replaced) => Poll::Ready(Ok(replaced)),
            None => this.io().poll_write(cx, bytes),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        this.notes.flushed();
        this.io().poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.get_mut().io().poll_shutdown(cx)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        if let [only] = slices
            && let Some(replaced) = ready!(this.poll_refusal(cx, only))?
        {
            return Poll::Ready(Ok(replaced));
        }
        this.io().poll_write_vectored(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.as_ref().is_some_and(AsyncWrite::is_write_vectored)
    }
}

/// The response that hyper writes to a head that it refuses, with a text and an id. `None`: these bytes are not one.
fn refusal<'n>(bytes: &[u8], id: impl FnOnce() -> &'n RequestId) -> Option<Vec<u8>> {
    const LENGTH: &str = "content-length: 0\r\n";
    let head = std::str::from_utf8(bytes).ok()?;
    let (_, text) = REFUSALS
        .into_iter()
        .find(|(begin, _)| head.starts_with(begin))?;
    let (before, after) = head.split_once(LENGTH)?;
    let (length, id) = (text.len(), id());
    after.ends_with("\r\n\r\n").then(|| {
        let type_and_length =
            format!("content-type: text/plain; charset=utf-8\r\ncontent-length: {length}\r\n");
        format!("{before}{type_and_length}x-request-id: {id}\r\n{after}{text}").into_bytes()
    })
}

/// How the responses begin that hyper writes by itself, and their texts.
const REFUSALS: [(&str, &str); 3] = [
    (
        "HTTP/1.1 400 ",
        "Bad request: the head of the request is malformed, so the request was not read.\n",
    ),
    (
        "HTTP/1.1 414 ",
        "The request was refused: its target (URL) is longer than 64 KiB.\n",
    ),
    (
        "HTTP/1.1 431 ",
        "The request was refused: its head has more bytes than `head_max` allows, or more than 100 headers.\n",
    ),
];
