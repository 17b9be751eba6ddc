//! The protocol of a connection.

use std::{fmt::Display, pin::Pin};

use crate::{connection::Conn, worker::Worker};

/// A protocol on a connection. The future completes when the connection ends.
pub(crate) trait ConnectionProtocol: Future<Output = Result<(), Self::Error>> {
    type Error: Display;

    /// Accepts no more requests, and ends the connection after the running requests are answered.
    fn graceful_shutdown(self: Pin<&mut Self>);

    /// Called between requests. Releases everything except the transport until the next request. Protocols that cannot do that
    /// do nothing.
    fn rest(self: Pin<&mut Self>) {}

    /// Records an error of the client that ended the connection.
    fn record_error(worker: &Worker, conn: &Conn, error: &Self::Error);
}
