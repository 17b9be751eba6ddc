//! The protocol of a connection.

use std::{fmt::Display, pin::Pin};

use crate::{connection::Conn, worker::Worker};

/// A protocol on a connection: a future that ends with it.
pub(crate) trait ConnectionProtocol: Future<Output = Result<(), Self::Error>> {
    type Error: Display;

    /// Accepts no more requests, and ends after the running ones are answered.
    fn graceful_shutdown(self: Pin<&mut Self>);

    /// Called between requests: releases everything but the transport until the next request. Protocols that cannot do
    /// so do nothing.
    fn rest(self: Pin<&mut Self>) {}

    /// Records an error of the client that ended the connection.
    fn record_error(worker: &Worker, conn: &Conn, error: &Self::Error);
}
