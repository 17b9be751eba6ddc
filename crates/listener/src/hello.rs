//! The ClientHello, and the handshake that follows. Its server name (SNI) may decide that the connection is passed through
//! (`sni_passthrough`), or that it is refused because no certificate covers the name (`sni_strict`).

use std::{
    future::poll_fn,
    io::{self, Read},
    pin::Pin,
    task::{Context, Poll},
};

use pki::ListenerCredentials;
use rustls::server::{Accepted, Acceptor};
use tokio::{
    io::{AsyncRead, AsyncWriteExt, ReadBuf},
    net::TcpStream,
};

use crate::offered_session::offers_session;

/// Maximum bytes of a ClientHello. A ClientHello with post-quantum keys has 2 KiB.
const HELLO_BYTES_MAX: usize = 16 << 10;

/// A client that requested no server name, or an unknown one.
#[derive(Debug, thiserror::Error)]
pub(crate) enum UnknownName {
    #[error(
        "the client requested \"{0}\", but no certificate of this listener is valid for that name"
    )]
    Unrecognized(String),
    #[error("the client requested \"{0}\", which this listener does not pass through")]
    NotPassed(String),
    #[error("the client sent no server name, which this listener requires (sni_strict)")]
    Missing,
}

impl UnknownName {
    /// The alerts of RFC 6066, 3 and RFC 8446, 9.2.
    fn alert(&self) -> u8 {
        match self {
            Self::Unrecognized(_) | Self::NotPassed(_) => 112,
            Self::Missing => 109,
        }
    }
}

/// A client whose ClientHello does not end within the limit.
#[derive(Debug, thiserror::Error)]
#[error("the client's TLS hello is longer than {HELLO_BYTES_MAX} bytes")]
pub(crate) struct LongHello;

/// A handshake whose ClientHello was read. No cryptography has been computed yet.
pub(crate) struct Hello {
    accepted: Accepted,
    bytes: Vec<u8>,
    stream: TcpStream,
}

impl Hello {
    /// Reads the ClientHello, in any division into segments and TLS records.
    ///
    /// # Errors
    /// The bytes are not TLS, the ClientHello is too long, or the client closed the connection.
    pub(crate) async fn read(stream: TcpStream) -> io::Result<Self> {
        let mut acceptor = Acceptor::default();
        let mut socket = Socket {
            stream,
            bytes: Vec::new(),
        };
        loop {
            if poll_fn(|cx| socket.poll_into(cx, &mut acceptor)).await? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            match acceptor.accept() {
                Ok(Some(accepted)) => {
                    return Ok(Self {
                        accepted,
                        bytes: socket.bytes,
                        stream: socket.stream,
                    });
                }
                Ok(None) if socket.bytes.len() < HELLO_BYTES_MAX => {}
                Ok(None) => return Err(io::Error::other(LongHello)),
                Err((error, mut alert)) => {
                    let mut record = Vec::new();
                    if alert.write_all(&mut record).is_ok() {
                        refuse(socket.stream, &record).await;
                    }
                    return Err(io::Error::new(io::ErrorKind::InvalidData, error));
                }
            }
        }
    }

    pub(crate) fn server_name(&self) -> Option<String> {
        let hello = self.accepted.client_hello();
        hello.server_name().map(ToOwned::to_owned)
    }

    /// Whether the client offers a session. The session may be unknown to this listener.
    pub(crate) fn offers_session(&self) -> bool {
        offers_session(&self.bytes)
    }

    pub(crate) fn into_raw(self) -> (TcpStream, Vec<u8>) {
        (self.stream, self.bytes)
    }

    /// Refuses a handshake whose server name these credentials do not cover.
    ///
    /// # Errors
    /// [`UnknownName`].
    pub(crate) async fn require_known(self, credentials: &ListenerCredentials) -> io::Result<Self> {
        match known(self.accepted.client_hello().server_name(), credentials) {
            Ok(()) => Ok(self),
            Err(refused) => Err(self.refuse(refused).await),
        }
    }

    /// Refuses a handshake whose server name is not passed through, on a listener without certificates.
    pub(crate) async fn refuse_name(self) -> io::Error {
        let refused = match self.server_name() {
            Some(name) => UnknownName::NotPassed(name),
            None => UnknownName::Missing,
        };
        self.refuse(refused).await
    }

    async fn refuse(self, refused: UnknownName) -> io::Error {
        // rustls cannot send this alert when it finds no certificate. An alert before the ServerHello is a plaintext record
        // with two bytes, which the proxy writes itself.
        refuse(self.stream, &[ALERT, 3, 3, 0, 2, FATAL, refused.alert()]).await;
        io::Error::other(refused)
    }
}

/// Sends an alert and closes the connection. The handshake counts as refused even if the client has already gone.
pub(crate) async fn refuse(mut stream: TcpStream, alert: &[u8]) {
    if stream.write_all(alert).await.is_ok() {
        let _ = stream.shutdown().await;
    }
}

/// A socket that a parser reads from.
struct Socket {
    stream: TcpStream,
    bytes: Vec<u8>,
}

impl Socket {
    fn poll_into(
        &mut self,
        cx: &mut Context<'_>,
        acceptor: &mut Acceptor,
    ) -> Poll<io::Result<usize>> {
        match acceptor.read_tls(&mut Reader { socket: self, cx }) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Poll::Pending,
            read => Poll::Ready(read),
        }
    }
}

/// [`Socket`] during one poll.
struct Reader<'a, 'b> {
    socket: &'a mut Socket,
    cx: &'a mut Context<'b>,
}

impl Read for Reader<'_, '_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut buffer = ReadBuf::new(buffer);
        let stream = Pin::new(&mut self.socket.stream);
        match stream.poll_read(self.cx, &mut buffer) {
            Poll::Pending => return Err(io::ErrorKind::WouldBlock.into()),
            Poll::Ready(read) => read?,
        }
        let read = buffer.filled();
        self.socket.bytes.extend_from_slice(read);
        Ok(read.len())
    }
}

fn known(name: Option<&str>, credentials: &ListenerCredentials) -> Result<(), UnknownName> {
    match name {
        Some(name) if credentials.are_valid_for(name) => Ok(()),
        Some(name) => Err(UnknownName::Unrecognized(name.to_owned())),
        None => Err(UnknownName::Missing),
    }
}

/// The content type of an alert record (RFC 8446, 5.1).
const ALERT: u8 = 21;

/// The level of a fatal alert (RFC 8446, 6).
const FATAL: u8 = 2;
