//! A handshake that goes on only where the client asks for a name that a certificate is good for (`sni_strict`).

use std::{io, sync::Arc};

use pki::ShownCredentials;
use rustls::{ServerConfig, server::Acceptor};
use tokio::{io::AsyncWriteExt, net::TcpStream};
use tokio_rustls::{LazyConfigAcceptor, server::TlsStream};

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

/// Reads the client's hello, and shakes hands if its name is known.
///
/// # Errors
/// As the handshake fails; [`UnknownName`] where it was not begun.
pub(crate) async fn accept_known(
    stream: TcpStream,
    tls: Arc<ServerConfig>,
    credentials: &ShownCredentials,
) -> io::Result<TlsStream<TcpStream>> {
    let begun = LazyConfigAcceptor::new(Acceptor::default(), stream).await?;
    let Err(refused) = known(begun.client_hello().server_name(), credentials) else {
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

fn known(name: Option<&str>, credentials: &ShownCredentials) -> Result<(), UnknownName> {
    match name {
        Some(name) if credentials.are_good_for(name) => Ok(()),
        Some(name) => Err(UnknownName::Unrecognized(name.to_owned())),
        None => Err(UnknownName::Missing),
    }
}

/// The content type of an alert's record (RFC 8446, 5.1).
const ALERT: u8 = 21;

/// Its level (RFC 8446, 6).
const FATAL: u8 = 2;
