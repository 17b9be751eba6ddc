//! The TLS records of a connection, without its socket. They are decrypted and encrypted in buffers that belong to the thread.
//! A connection stores only what is left over.

use std::{
    cell::RefCell,
    io::{self, IoSlice},
    pin::Pin,
    task::{Context, Poll, ready},
};

use rustls::unbuffered::{ConnectionState, EncodeError, InsufficientSizeError, UnbufferedStatus};
use rustls::{CommonState, server::UnbufferedServerConnection};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Bytes of content in one record (RFC 8446, 5.1).
const RECORD_BYTES: usize = 16 << 10;
/// Maximum bytes that one read takes from the socket.
const READ_BYTES_MAX: usize = 128 << 10;
/// Maximum bytes that one write encrypts. The connection stores the bytes that the socket does not accept.
const WRITE_BYTES_MAX: usize = 64 << 10;
/// Maximum bytes of an incomplete record or message, as in rustls's own buffers. Without it, a client could send a
/// message in records that consist of padding.
const PARTIAL_BYTES_MAX: usize = 0xffff;
/// Overhead of one record: header, content type and tag of TLS 1.3, or header, nonce and tag of TLS 1.2.
const OVERHEAD_BYTES: usize = 5 + 8 + 1 + 16;
/// Maximum bytes by which a protected record is longer than its content (RFC 5246, 6.2.3).
const EXPANSION_BYTES_MAX: usize = 2_048;
const ALERT_RECORD_BYTES: usize = 2 + OVERHEAD_BYTES;
/// Room for the bytes that one write encrypts, and for the TLS messages that precede them.
const WRITE_BUFFER_BYTES: usize =
    WRITE_BYTES_MAX + (WRITE_BYTES_MAX / RECORD_BYTES + 1) * OVERHEAD_BYTES;

struct Encrypted {
    /// Bytes of the slices that were encrypted.
    taken: usize,
    /// Encrypted bytes in the buffer.
    length: usize,
}

/// The buffers that all connections of a thread use, one after the other.
struct Buffers {
    incoming: Vec<u8>,
    outgoing: Vec<u8>,
    /// Several slices of one write, side by side.
    joined: Vec<u8>,
}

thread_local! {
    static BUFFERS: RefCell<Buffers> = const { RefCell::new(Buffers {
        incoming: Vec::new(),
        outgoing: Vec::new(),
        joined: Vec::new(),
    }) };
}

impl Buffers {
    /// Lends the buffers. They are allocated when a thread first uses them.
    fn lend<T>(lent: impl FnOnce(&mut Self) -> T) -> T {
        BUFFERS.with_borrow_mut(|buffers| {
            if buffers.incoming.is_empty() {
                buffers.incoming.resize(READ_BYTES_MAX, 0);
                buffers.outgoing.resize(WRITE_BUFFER_BYTES, 0);
                buffers.joined.reserve(RECORD_BYTES);
            }
            lent(buffers)
        })
    }
}

/// The TLS state of a connection, without its socket.
pub(crate) struct Records {
    tls: UnbufferedServerConnection,
    /// The bytes that have arrived of an incomplete record or message.
    partial: Vec<u8>,
    /// During the handshake: the end of the last complete record in `partial` that rustls has seen.
    seen: usize,
    /// Decrypted bytes. Those from `read` on wait to be read.
    plain: Vec<u8>,
    read: usize,
    /// Encrypted bytes. The socket has not accepted those from `sent` on.
    unsent: Vec<u8>,
    sent: usize,
    /// The client has sent a `close_notify`.
    is_closed: bool,
    has_sent_close_notify: bool,
    /// rustls has refused what the client sent. It is not called again, because it asserts that a connection has only one
    /// fault.
    has_failed: bool,
}

impl Records {
    pub(crate) fn new(tls: UnbufferedServerConnection) -> Self {
        Self {
            tls,
            partial: Vec::new(),
            seen: 0,
            plain: Vec::new(),
            read: 0,
            unsent: Vec::new(),
            sent: 0,
            is_closed: false,
            has_sent_close_notify: false,
            has_failed: false,
        }
    }

    pub(crate) fn common(&self) -> &CommonState {
        &self.tls
    }

    /// Adds bytes from the client, which the next [`advance`](Self::advance) processes.
    pub(crate) fn receive(&mut self, bytes: &[u8]) {
        self.partial.extend_from_slice(bytes);
    }

    /// Processes what was received.
    ///
    /// # Errors
    /// The client violates TLS, or was refused. The caller must then send the alert.
    pub(crate) fn advance(&mut self) -> Result<(), rustls::Error> {
        let mut received = std::mem::take(&mut self.partial);
        // Computed before rustls joins the pieces of a message.
        let seen = whole_records(&received, self.seen);
        let processed = self.process(&mut received, &mut |plain, payload| {
            plain.extend_from_slice(payload)
        });
        self.seen = seen.saturating_sub(received.len() - self.partial.len());
        processed
    }

    /// Whether the client has sent a complete record since the last [`advance`](Self::advance), or bytes that cannot begin a
    /// record.
    pub(crate) fn has_whole_record(&self) -> bool {
        let Some(&[content, _, _, high, low]) = self.partial.get(self.seen..self.seen + 5) else {
            return false;
        };
        let length = usize::from(u16::from_be_bytes([high, low]));
        let is_record =
            (20..=23).contains(&content) && length <= RECORD_BYTES + EXPANSION_BYTES_MAX;
        !is_record || self.partial.len() >= self.seen + 5 + length
    }

    /// Whether bytes wait for the socket.
    pub(crate) fn wants_write(&self) -> bool {
        self.sent < self.unsent.len()
    }

    /// Sends what waits for the socket.
    pub(crate) fn poll_send(
        &mut self,
        cx: &mut Context<'_>,
        socket: &mut (impl AsyncRead + AsyncWrite + Unpin),
    ) -> Poll<io::Result<()>> {
        while self.wants_write() {
            let unsent = &self.unsent[self.sent..];
            let sent = ready!(Pin::new(&mut *socket).poll_write(cx, unsent))?;
            if sent == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.sent += sent;
        }
        // The memory is freed, because most connections never store unsent bytes.
        (self.unsent, self.sent) = (Vec::new(), 0);
        Poll::Ready(Ok(()))
    }

    /// Reads bytes from the socket, which the next [`advance`](Self::advance) processes.
    pub(crate) fn poll_receive(
        &mut self,
        cx: &mut Context<'_>,
        socket: &mut (impl AsyncRead + AsyncWrite + Unpin),
    ) -> Poll<io::Result<usize>> {
        Buffers::lend(|buffers| {
            let mut room = ReadBuf::new(&mut buffers.incoming[..RECORD_BYTES]);
            ready!(Pin::new(socket).poll_read(cx, &mut room))?;
            self.receive(room.filled());
            Poll::Ready(Ok(room.filled().len()))
        })
    }

    /// Takes the bytes that wait for the socket.
    pub(crate) fn take_unsent(&mut self) -> Vec<u8> {
        let mut unsent = std::mem::take(&mut self.unsent);
        unsent.drain(..std::mem::take(&mut self.sent));
        unsent
    }

    /// Processes these bytes and stores an incomplete rest. `deliver` gets each decrypted payload, with the bytes that wait to
    /// be read.
    fn process(
        &mut self,
        received: &mut [u8],
        deliver: &mut dyn FnMut(&mut Vec<u8>, &[u8]),
    ) -> Result<(), rustls::Error> {
        let mut start = 0;
        let processed = loop {
            let UnbufferedStatus { mut discard, state } =
                self.tls.process_tls_records(&mut received[start..]);
            let is_done = match state {
                Ok(ConnectionState::ReadTraffic(mut traffic)) => {
                    // `next_record` decrypts nothing, so it cannot fail.
                    while let Some(Ok(record)) = traffic.next_record() {
                        discard += record.discard;
                        deliver(&mut self.plain, record.payload);
                    }
                    false
                }
                Ok(ConnectionState::EncodeTlsData(mut message)) => {
                    let encoded = append(&mut self.unsent, |room| message.encode(room));
                    debug_assert!(encoded.is_ok(), "each message is encoded once");
                    false
                }
                Ok(ConnectionState::TransmitTlsData(messages)) => {
                    messages.done();
                    false
                }
                Ok(ConnectionState::PeerClosed) => {
                    self.is_closed = true;
                    false
                }
                // The proxy accepts no early data, so none arrives.
                Ok(_) => true,
                Err(error) => {
                    start += discard;
                    break Err(error);
                }
            };
            start += discard;
            if is_done {
                break Ok(());
            }
        };
        let rest = &mut received[start..];
        match processed {
            // Bytes after a `close_notify` are ignored (RFC 8446, 6.1).
            Ok(()) if self.is_closed => {}
            Ok(()) if rest.len() > PARTIAL_BYTES_MAX => {
                self.has_failed = true;
                return Err(rustls::InvalidMessage::HandshakePayloadTooLarge.into());
            }
            Ok(()) => self.partial.extend_from_slice(rest),
            Err(_) => {
                self.has_failed = true;
                self.encode_alert(rest);
            }
        }
        processed
    }

    /// Encodes the alert that follows an error. `rest`: the bytes from the client that begin with the fault.
    fn encode_alert(&mut self, rest: &mut [u8]) {
        while let Ok(ConnectionState::EncodeTlsData(mut message)) =
            self.tls.process_tls_records(rest).state
        {
            let start = self.unsent.len();
            let encoded = append(&mut self.unsent, |room| message.encode(room));
            // After the alert rustls is not called again, because the client may have sent a second fault.
            if encoded.is_err() || is_alert(&self.unsent[start..]) {
                return;
            }
        }
    }

    pub(crate) fn has_data(&self) -> bool {
        self.read < self.plain.len()
    }

    pub(crate) fn read_data(&mut self, buffer: &mut ReadBuf<'_>) {
        let stored = &self.plain[self.read..];
        let length = stored.len().min(buffer.remaining());
        buffer.put_slice(&stored[..length]);
        self.read += length;
        if !self.has_data() {
            (self.plain, self.read) = (Vec::new(), 0);
        }
    }

    /// Reads from the socket once and processes the bytes. `false`: the client has closed its direction. `deliver` gets each
    /// decrypted payload, with the bytes that wait to be read.
    ///
    /// # Errors
    /// The client sent bytes that are not TLS, or the connection broke.
    pub(crate) fn poll_data(
        &mut self,
        cx: &mut Context<'_>,
        socket: &mut (impl AsyncRead + AsyncWrite + Unpin),
        wanted: usize,
        deliver: &mut dyn FnMut(&mut Vec<u8>, &[u8]),
    ) -> Poll<io::Result<bool>> {
        if self.is_closed {
            return Poll::Ready(Ok(false));
        }
        if self.has_failed {
            return Poll::Ready(Err(io::ErrorKind::InvalidData.into()));
        }
        let processed: Poll<io::Result<Result<(), rustls::Error>>> = Buffers::lend(|buffers| {
            let kept = self.partial.len();
            let end = READ_BYTES_MAX.min(kept + wanted.max(RECORD_BYTES) + OVERHEAD_BYTES);
            let mut room = ReadBuf::new(&mut buffers.incoming[kept..end]);
            let read = Pin::new(&mut *socket).poll_read(cx, &mut room);
            if read.is_pending() && kept == 0 {
                // A silent connection stores nothing.
                self.partial = Vec::new();
            }
            ready!(read)?;
            let received = room.filled().len();
            if received == 0 {
                return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into()));
            }
            buffers.incoming[..kept].copy_from_slice(&self.partial);
            self.partial.clear();
            let received = &mut buffers.incoming[..kept + received];
            Poll::Ready(Ok(self.process(received, deliver)))
        });
        if let Err(error) = ready!(processed)? {
            // The client may have gone, so the proxy sends the alert once and does not wait.
            let _ = self.poll_send(cx, socket);
            return Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, error)));
        }
        Poll::Ready(Ok(true))
    }

    /// Encrypts these slices and sends them. Bytes that the socket does not accept are stored here.
    ///
    /// # Errors
    /// The connection broke, or TLS on it has ended.
    pub(crate) fn poll_encrypted(
        &mut self,
        cx: &mut Context<'_>,
        socket: &mut (impl AsyncRead + AsyncWrite + Unpin),
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        ready!(self.poll_send(cx, socket))?;
        Buffers::lend(|buffers| {
            let Encrypted { taken, length } = self.encrypt(slices, buffers)?;
            let encrypted = &buffers.outgoing[..length];
            let sent = match Pin::new(socket).poll_write(cx, encrypted) {
                Poll::Pending => 0,
                Poll::Ready(sent) => sent?,
            };
            self.unsent.extend_from_slice(&encrypted[sent..]);
            Poll::Ready(Ok(taken))
        })
    }

    /// Encrypts the beginning of these slices into the buffer for outgoing bytes.
    fn encrypt(&mut self, slices: &[IoSlice<'_>], buffers: &mut Buffers) -> io::Result<Encrypted> {
        if self.has_failed {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        // A response of TLS to the client, such as a key update, precedes the data.
        self.advance().map_err(invalid)?;
        let before = self.unsent.len();
        buffers.outgoing.resize(before + WRITE_BUFFER_BYTES, 0);
        buffers.outgoing[..before].copy_from_slice(&self.unsent);
        self.unsent.clear();
        let Buffers {
            outgoing, joined, ..
        } = buffers;
        let mut encrypted = match slices {
            [slice] => {
                let taken = &slice[..slice.len().min(WRITE_BYTES_MAX)];
                let length = match taken {
                    [] => 0,
                    _ => self.encrypt_one(taken, &mut outgoing[before..])?,
                };
                let taken = taken.len();
                Encrypted { taken, length }
            }
            _ => self.encrypt_joined(slices, joined, &mut outgoing[before..])?,
        };
        encrypted.length += before;
        Ok(encrypted)
    }

    /// Encrypts several slices. One record may hold several slices: many small records would cost more than copying the bytes.
    fn encrypt_joined(
        &mut self,
        slices: &[IoSlice<'_>],
        joined: &mut Vec<u8>,
        outgoing: &mut [u8],
    ) -> io::Result<Encrypted> {
        let (mut taken, mut length) = (0, 0);
        joined.clear();
        for slice in slices {
            let mut rest = &slice[..slice.len().min(WRITE_BYTES_MAX - taken)];
            taken += rest.len();
            while !rest.is_empty() {
                let whole = rest.len() / RECORD_BYTES * RECORD_BYTES;
                if joined.is_empty() && whole > 0 {
                    length += self.encrypt_one(&rest[..whole], &mut outgoing[length..])?;
                    rest = &rest[whole..];
                } else {
                    let (now, later) = rest.split_at(rest.len().min(RECORD_BYTES - joined.len()));
                    joined.extend_from_slice(now);
                    rest = later;
                    if joined.len() == RECORD_BYTES {
                        length += self.encrypt_one(joined, &mut outgoing[length..])?;
                        joined.clear();
                    }
                }
            }
        }
        if !joined.is_empty() {
            length += self.encrypt_one(joined, &mut outgoing[length..])?;
        }
        Ok(Encrypted { taken, length })
    }

    fn encrypt_one(&mut self, bytes: &[u8], room: &mut [u8]) -> io::Result<usize> {
        // rustls must see the incomplete message each time, because it stores positions in it.
        match self.tls.process_tls_records(&mut self.partial).state {
            Ok(ConnectionState::WriteTraffic(mut traffic)) => {
                traffic.encrypt(bytes, room).map_err(io::Error::other)
            }
            Ok(_) => Err(io::ErrorKind::BrokenPipe.into()),
            Err(error) => Err(invalid(error)),
        }
    }

    /// Encrypts the `close_notify`, once.
    pub(crate) fn send_close_notify(&mut self) {
        let is_sent = std::mem::replace(&mut self.has_sent_close_notify, true);
        // Messages that TLS itself has to send precede the `close_notify`.
        if is_sent || self.has_failed || self.advance().is_err() {
            return;
        }
        if let Ok(ConnectionState::WriteTraffic(mut traffic)) =
            self.tls.process_tls_records(&mut self.partial).state
        {
            let start = self.unsent.len();
            self.unsent.resize(start + ALERT_RECORD_BYTES, 0);
            let encrypted = traffic.queue_close_notify(&mut self.unsent[start..]);
            self.unsent
                .truncate(start + encrypted.as_ref().copied().unwrap_or_default());
            if encrypted.is_err() {
                // The room is too small if a key update precedes the `close_notify`. rustls then keeps both, and `advance`
                // encodes them.
                let _ = self.advance();
            }
        }
    }
}

/// Whether a record is an alert: by its type, or by its length where TLS 1.3 encrypts the type.
fn is_alert(record: &[u8]) -> bool {
    const ALERT: u8 = 21;
    const APPLICATION_DATA: u8 = 23;
    match record.first() {
        Some(&ALERT) => true,
        Some(&APPLICATION_DATA) => record.len() == 5 + 2 + 1 + 16,
        _ => false,
    }
}

/// The end of the last complete record. `end` must be the beginning of a record.
fn whole_records(bytes: &[u8], mut end: usize) -> usize {
    while let Some(&[_, _, _, high, low]) = bytes.get(end..end + 5) {
        let next = end + 5 + usize::from(u16::from_be_bytes([high, low]));
        if next > bytes.len() {
            break;
        }
        end = next;
    }
    end
}

/// Appends what `encode` writes. If the room is too small, `encode` returns the required size and is called again.
fn append(
    bytes: &mut Vec<u8>,
    mut encode: impl FnMut(&mut [u8]) -> Result<usize, EncodeError>,
) -> Result<(), EncodeError> {
    let start = bytes.len();
    let encoded = match encode(&mut []) {
        Err(EncodeError::InsufficientSize(InsufficientSizeError { required_size })) => {
            bytes.resize(start + required_size, 0);
            encode(&mut bytes[start..])
        }
        encoded => encoded,
    };
    bytes.truncate(start + encoded.as_ref().copied().unwrap_or_default());
    encoded.map(|_| ())
}

fn invalid(error: rustls::Error) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}

#[cfg(test)]
mod tests;
