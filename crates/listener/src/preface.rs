//! The PROXY header at the beginning of a connection.

use std::{
    io,
    net::{IpAddr, SocketAddr},
};

use proxy_protocol::{HEADER_BYTES_MAX, HeaderError, parse};
use routing::Network;
use thiserror::Error;
use tokio::{io::AsyncReadExt, net::TcpStream};

use crate::connection::Origin;

/// Why a connection was refused before its first byte.
#[derive(Debug, Error)]
pub(crate) enum PrefaceError {
    #[error("the address is not in `proxy_protocol.from` of this listener")]
    Peer,
    #[error(transparent)]
    Header(HeaderError),
}

/// A client that closed the connection, or reset it, without sending a byte.
#[derive(Debug, Error)]
#[error("the client closed the connection without sending data")]
pub(crate) struct NoBytes;

/// Reads the PROXY header that begins every connection of this listener, and not a byte more.
///
/// # Errors
/// The peer is not one of the load balancers, its bytes are not a PROXY header, or it closed the connection.
pub(crate) async fn read(
    stream: &mut TcpStream,
    peer: SocketAddr,
    from: &[Network],
) -> io::Result<Origin> {
    let ip: IpAddr = peer.ip();
    if !from.iter().any(|network| network.contains(ip)) {
        return Err(io::Error::other(PrefaceError::Peer));
    }
    let mut header = Vec::new();
    let mut piece = [0; PIECE_BYTES];
    loop {
        // Peeked, because the bytes after the header belong to TLS or to the member.
        let length = match stream.peek(&mut piece).await {
            Ok(0) | Err(_) if header.is_empty() => {
                return Err(io::Error::new(io::ErrorKind::ConnectionAborted, NoBytes));
            }
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            length => length?,
        };
        let read_before = header.len();
        header.extend_from_slice(&piece[..length]);
        let parsed =
            parse(&header).map_err(|error| io::Error::other(PrefaceError::Header(error)))?;
        let end = parsed.map_or(header.len(), |parsed| parsed.length);
        stream.read_exact(&mut piece[..end - read_before]).await?;
        if let Some(parsed) = parsed {
            return Ok(match parsed.client {
                Some(client) => Origin {
                    client,
                    peer: Some(peer),
                },
                None => Origin {
                    client: peer,
                    peer: None,
                },
            });
        }
        // The header is never longer here, because the parser refuses a longer one as soon as it knows its length.
        debug_assert!(header.len() < HEADER_BYTES_MAX);
    }
}

/// Bytes that are peeked at once. Most headers are shorter.
const PIECE_BYTES: usize = 512;
