//! Why a test's client has no connection or no response.

use std::{
    fmt,
    io::{self, ErrorKind},
};

use rustls::AlertDescription;

/// Why there was no connection or no response.
#[derive(Debug)]
pub enum ClientError {
    /// TCP connect failed.
    Connect(io::Error),
    /// The peer ended TLS with this alert.
    Alert(AlertDescription),
    /// TLS failed on this side.
    Tls(rustls::Error),
    /// The connection ended before a response began.
    Closed,
    /// Nothing arrived in time.
    Timeout,
    /// The response is malformed, or broke off.
    Broken(io::Error),
    /// The stream was reset with this code (HTTP/2).
    Reset(u32),
}

impl ClientError {
    /// The peer's alert, if one arrived.
    pub fn alert(&self) -> Option<AlertDescription> {
        match self {
            Self::Alert(alert) => Some(*alert),
            _ => None,
        }
    }

    /// Whether the connection ended without a response, cleanly or by a reset.
    pub fn is_closed(&self) -> bool {
        match self {
            Self::Closed => true,
            Self::Broken(error) => matches!(
                error.kind(),
                ErrorKind::ConnectionReset | ErrorKind::BrokenPipe
            ),
            _ => false,
        }
    }

    pub(crate) fn of(error: io::Error) -> Self {
        let tls = error
            .get_ref()
            .and_then(|inner| inner.downcast_ref::<rustls::Error>());
        match (tls, error.kind()) {
            (Some(rustls::Error::AlertReceived(alert)), _) => Self::Alert(*alert),
            (Some(tls), _) => Self::Tls(tls.clone()),
            (None, ErrorKind::WouldBlock | ErrorKind::TimedOut) => Self::Timeout,
            (None, _) => Self::Broken(error),
        }
    }
}

impl fmt::Display for ClientError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Connect(error) => write!(f, "connect: {error}"),
            Self::Alert(alert) => write!(f, "alert {alert:?}"),
            Self::Tls(error) => write!(f, "tls: {error}"),
            Self::Closed => f.write_str("closed before an answer"),
            Self::Timeout => f.write_str("nothing came in time"),
            Self::Broken(error) => write!(f, "broken: {error}"),
            Self::Reset(code) => write!(f, "the stream was reset with code {code}"),
        }
    }
}

impl std::error::Error for ClientError {}
