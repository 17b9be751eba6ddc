//! Limits of this host that prevent the proxy from opening or accepting a connection.

use std::io;

/// A limit of this host. Clients that open many connections use up descriptors, memory for sockets and ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum HostLimit {
    /// The process has as many open descriptors as its limit allows (EMFILE).
    ProcessDescriptors,
    /// The system has as many open files as `fs.file-max` allows (ENFILE).
    SystemDescriptors,
    /// The kernel has no memory for a socket (ENOMEM, ENOBUFS).
    Memory,
    /// No local port is free (EADDRNOTAVAIL).
    Ports,
}

/// `EMFILE` of Linux (asm-generic/errno-base.h). `std` has no kind for it.
const EMFILE: i32 = 24;
/// `ENFILE` of Linux (asm-generic/errno-base.h).
const ENFILE: i32 = 23;
/// `ENOBUFS` of Linux (asm-generic/errno.h).
const ENOBUFS: i32 = 105;

impl HostLimit {
    /// The limit that caused this error, if one did.
    pub fn of(error: &io::Error) -> Option<Self> {
        match (error.raw_os_error(), error.kind()) {
            (Some(EMFILE), _) => Some(Self::ProcessDescriptors),
            (Some(ENFILE), _) => Some(Self::SystemDescriptors),
            (Some(ENOBUFS), _) | (_, io::ErrorKind::OutOfMemory) => Some(Self::Memory),
            (_, io::ErrorKind::AddrNotAvailable) => Some(Self::Ports),
            _ => None,
        }
    }
}
