//! Handshakes that depend on the server name (SNI): it may be one that is passed through (`sni_passthrough`), or one that
//! no certificate covers (`sni_strict`).

use std::{io, sync::Arc};

use pki::ListenerCredentials;
use rustls::{
    ServerConfig,
    server::{Accepted, Acceptor},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};
use tokio_rustls::{LazyConfigAcceptor, StartHandshake, server::TlsStream};

/// Maximum bytes that are read to find the server name. A hello with keys against quantum computers has 2 KiB.
const HELLO_BYTES_MAX: usize = 16 << 10;

/// Bytes that are looked at at once.
const PIECE_BYTES: usize = 4 << 10;

/// A client that asked for no name, or for one that nobody has here.
#[derive(Debug, thiserror::Error)]
pub(crate) enum UnknownName {
    #[error(
        "the client requested \"{0}\", but no certificate of this listener is valid for that name"
    )]
    Unrecognized(String),
    #[error("the client sent no server name, which this listener requires (sni_strict)")]
    Missing,
}

impl UnknownName {
    /// The alerts of RFC 6066, 3 and RFC 8446, 9.2.
    fn alert(&self) -> u8 {
        match self {
            Self::Unrecognized(_) => 112,
            Self::Missing => 109,
        }
    }
}

/// A client whose hello has no end within the limit.
#[derive(Debug, thiserror::Error)]
#[error("the client's TLS hello is longer than {HELLO_BYTES_MAX} bytes")]
pub(crate) struct LongHello;

/// A handshake whose first message was read.
pub(crate) struct Hello {
    accepted: Accepted,
    /// The bytes that it was read from, for a member that gets them as they came.
    pub(crate) bytes: Vec<u8>,
    stream: TcpStream,
}

impl Hello {
    /// Reads the client's hello, however it is cut into segments and TLS records.
    ///
    /// # Errors
    /// It is no TLS, or is too long, or the client closed the connection.
    pub(crate) async fn read(mut stream: TcpStream) -> io::Result<Self> {
        let mut acceptor = Acceptor::default();
        let mut bytes = Vec::new();
        let mut piece = [0; PIECE_BYTES];
        loop {
            let length = stream.peek(&mut piece).await?;
            let mut unread = &piece[..length];
            if unread.is_empty() {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            // It may take less than all: only what it has taken is taken from the socket.
            let taken = acceptor.read_tls(&mut unread)?;
            if taken == 0 {
                return Err(io::Error::other(LongHello));
            }
            stream.read_exact(&mut piece[..taken]).await?;
            bytes.extend_from_slice(&piece[..taken]);
            match acceptor.accept() {
                Ok(Some(accepted)) => {
                    return Ok(Self {
                        accepted,
                        bytes,
                        stream,
                    });
                }
                Ok(None) if bytes.len() < HELLO_BYTES_MAX => {}
                Ok(None) => return Err(io::Error::other(LongHello)),
                Err((error, mut alert)) => {
                    let mut record = Vec::new();
                    let written = alert.write_all(&mut record);
                    if written.is_ok() && stream.write_all(&record).await.is_ok() {
                        let _ = stream.shutdown().await;
                    }
                    return Err(io::Error::new(io::ErrorKind::InvalidData, error));
                }
            }
        }
    }

    /// The name that it asks for.
    pub(crate) fn server_name(&self) -> Option<String> {
        let hello = self.accepted.client_hello();
        hello.server_name().map(ToOwned::to_owned)
    }

    /// The connection, to be passed through with the bytes that were read.
    pub(crate) fn into_raw(self) -> (TcpStream, Vec<u8>) {
        (self.stream, self.bytes)
    }

    /// Goes on with the handshake; where only known names are served, if it asks for one.
    ///
    /// # Errors
    /// As the handshake fails; [`UnknownName`].
    pub(crate) async fn accept(
        self,
        tls: Arc<ServerConfig>,
        credentials: Option<&ListenerCredentials>,
    ) -> io::Result<TlsStream<TcpStream>> {
        let begun = StartHandshake::from_parts(self.accepted, self.stream);
        finish(begun, tls, credentials).await
    }
}

/// Reads the client's hello, and shakes hands if its name is known.
///
/// # Errors
/// As the handshake fails; [`UnknownName`] where it was not begun.
pub(crate) async fn accept_known(
    stream: TcpStream,
    tls: Arc<ServerConfig>,
    credentials: &ListenerCredentials,
) -> io::Result<TlsStream<TcpStream>> {
    let begun = LazyConfigAcceptor::new(Acceptor::default(), stream).await?;
    finish(begun, tls, Some(credentials)).await
}

/// `credentials`: where only names that they are good for are served.
async fn finish(
    begun: StartHandshake<TcpStream>,
    tls: Arc<ServerConfig>,
    credentials: Option<&ListenerCredentials>,
) -> io::Result<TlsStream<TcpStream>> {
    let known = credentials.map_or(Ok(()), |credentials| {
        known(begun.client_hello().server_name(), credentials)
    });
    let Err(refused) = known else {
        return begun.into_stream(tls).await;
    };
    // rustls has no such alert to send for a certificate that is not chosen: a record of two bytes, in the clear, as
    // everything is before the server's hello.
    let mut stream = begun.io;
    let alert = [ALERT, 3, 3, 0, 2, FATAL, refused.alert()];
    // Who has gone meanwhile is refused all the same.
    if stream.write_all(&alert).await.is_ok() {
        let _ = stream.shutdown().await;
    }
    Err(io::Error::other(refused))
}

fn known(name: Option<&str>, credentials: &ListenerCredentials) -> Result<(), UnknownName> {
    match name {
        Some(name) if credentials.are_valid_for(name) => Ok(()),
        Some(name) => Err(UnknownName::Unrecognized(name.to_owned())),
        None => Err(UnknownName::Missing),
    }
}

/// The content type of an alert's record (RFC 8446, 5.1).
const ALERT: u8 = 21;

/// Its level (RFC 8446, 6).
const FATAL: u8 = 2;
