//! Handshakes that depend on the server name (SNI): the connection may be passed through (`sni_passthrough`), or the
//! name may be one that no certificate covers (`sni_strict`).

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

/// Maximum bytes that are read to find the server name. A hello with post-quantum keys has 2 KiB.
const HELLO_BYTES_MAX: usize = 16 << 10;

/// Bytes that are peeked at once.
const PIECE_BYTES: usize = 4 << 10;

/// A client that requested no server name, or an unknown one.
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

/// A client whose hello does not end within the limit.
#[derive(Debug, thiserror::Error)]
#[error("the client's TLS hello is longer than {HELLO_BYTES_MAX} bytes")]
pub(crate) struct LongHello;

/// A handshake whose first message was read.
pub(crate) struct Hello {
    accepted: Accepted,
    /// The bytes of the hello, for a member that gets them unchanged.
    pub(crate) bytes: Vec<u8>,
    stream: TcpStream,
}

impl Hello {
    /// Reads the client's hello, in any division into segments and TLS records.
    ///
    /// # Errors
    /// The bytes are not TLS, the hello is too long, or the client closed the connection.
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
            // The parser may consume only a part. Only that part is read from the socket.
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

    /// The server name that the client requests.
    pub(crate) fn server_name(&self) -> Option<String> {
        let hello = self.accepted.client_hello();
        hello.server_name().map(ToOwned::to_owned)
    }

    /// The connection and the bytes read from it, to be passed through.
    pub(crate) fn into_raw(self) -> (TcpStream, Vec<u8>) {
        (self.stream, self.bytes)
    }

    /// Completes the handshake. With `credentials`, only for a server name that they cover.
    ///
    /// # Errors
    /// The error of the handshake, or [`UnknownName`].
    pub(crate) async fn accept(
        self,
        tls: Arc<ServerConfig>,
        credentials: Option<&ListenerCredentials>,
    ) -> io::Result<TlsStream<TcpStream>> {
        let begun = StartHandshake::from_parts(self.accepted, self.stream);
        finish(begun, tls, credentials).await
    }
}

/// Reads the client's hello, and completes the handshake if the server name is known.
///
/// # Errors
/// The error of the handshake, or [`UnknownName`] if the name is unknown.
pub(crate) async fn accept_known(
    stream: TcpStream,
    tls: Arc<ServerConfig>,
    credentials: &ListenerCredentials,
) -> io::Result<TlsStream<TcpStream>> {
    let begun = LazyConfigAcceptor::new(Acceptor::default(), stream).await?;
    finish(begun, tls, Some(credentials)).await
}

/// With `credentials`, only names that they cover are accepted.
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
    // rustls cannot send this alert when it finds no certificate. Before the server's hello an alert is a plaintext
    // record with two bytes, which the proxy writes itself.
    let mut stream = begun.io;
    let alert = [ALERT, 3, 3, 0, 2, FATAL, refused.alert()];
    // A client that has gone meanwhile is refused as well.
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

/// The content type of an alert record (RFC 8446, 5.1).
const ALERT: u8 = 21;

/// The level of a fatal alert (RFC 8446, 6).
const FATAL: u8 = 2;
