//! The addresses that a listener can bind: an IP address with a port, or a Unix socket.

use std::{fmt, net::SocketAddr, path::PathBuf, str::FromStr};

/// An address that a listener accepts connections on.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum ListenAddress {
    /// An IP address and a port.
    Ip(SocketAddr),
    /// The path of a Unix socket.
    Unix(PathBuf),
}

impl ListenAddress {
    /// The IP address and port, if it is not a Unix socket.
    pub fn ip(&self) -> Option<SocketAddr> {
        match self {
            Self::Ip(address) => Some(*address),
            Self::Unix(_) => None,
        }
    }

    /// The path, if it is a Unix socket.
    pub fn path(&self) -> Option<&PathBuf> {
        match self {
            Self::Ip(_) => None,
            Self::Unix(path) => Some(path),
        }
    }
}

impl<A: Into<SocketAddr>> From<A> for ListenAddress {
    fn from(address: A) -> Self {
        Self::Ip(address.into())
    }
}

impl FromStr for ListenAddress {
    type Err = std::net::AddrParseError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.strip_prefix("unix:") {
            Some(path) => Ok(Self::Unix(path.into())),
            None => text.parse().map(Self::Ip),
        }
    }
}

impl fmt::Display for ListenAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ip(address) => address.fmt(f),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

/// Permissions of the file of a Unix socket. Default 0660.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SocketMode(pub u32);

impl FromStr for SocketMode {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let is_octal =
            matches!(text.len(), 3 | 4) && text.bytes().all(|b| (b'0'..b'8').contains(&b));
        let mode = u32::from_str_radix(text, 8).map_err(|_| ())?;
        (is_octal && mode <= 0o777).then_some(Self(mode)).ok_or(())
    }
}

impl fmt::Display for SocketMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:04o}", self.0)
    }
}
