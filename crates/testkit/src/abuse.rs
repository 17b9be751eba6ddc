//! Clients that occupy resources without using them: they send slowly, do not read, or open no flow-control window.

use std::{io, vec::IntoIter};

use crate::{
    client::Client,
    client_error::ClientError,
    connection::TestConnection,
    hpack::encode,
    http2::{flag, frame, kind, setting},
};

/// Makes the client wait for `100 Continue`, so that it sends its body only when the proxy reads it.
const EXPECT: [(&str, &str); 1] = [("Expect", "100-continue")];
/// Number of bytes with which a slow head continues.
const SLOW_BYTES: usize = 16 << 10;
/// A client that does not read has a small receive buffer, so that the buffers of the proxy fill.
const RECEIVE_BUFFER_BYTES: usize = 4 << 10;

/// A connection of such a client.
pub struct Attacker {
    /// The connection, which a test may use afterwards.
    pub connection: TestConnection,
    rest: IntoIter<u8>,
    /// Whether the rest is sent unchanged, within a frame that has begun.
    within_frame: bool,
}

impl Attacker {
    /// Begins a head and does not end it. Over HTTP/2 the head is a HEADERS frame without END_HEADERS, and `step` sends
    /// a CONTINUATION frame byte by byte.
    ///
    /// # Errors
    /// The proxy does not accept the connection or the bytes.
    pub fn slow_head(client: &Client, target: &str) -> Result<Self, ClientError> {
        let mut connection = client.connect()?;
        if connection.is_http2() {
            // Within a head no other frame may follow, not even the acknowledgement of the proxy's settings, so it is
            // sent first.
            connection.settle()?;
            let stream = connection.reserve_stream();
            let fields = [
                (":method", "GET"),
                (":scheme", "https"),
                (":authority", "puppet"),
                (":path", target),
            ];
            connection.send_frame(kind::HEADERS, flag::END_STREAM, stream, &encode(&fields))?;
            let rest = frame(kind::CONTINUATION, 0, stream, &[0; SLOW_BYTES]);
            return Ok(Self {
                connection,
                rest: rest.into_iter(),
                within_frame: true,
            });
        }
        let head = connection.head("GET", target, &[], None);
        let without_end = head.strip_suffix(b"\r\n\r\n").unwrap_or(&head);
        connection.send_raw(without_end)?;
        Ok(Self::new(connection, vec![b'x'; SLOW_BYTES]))
    }

    /// Begins an upload of `length` bytes and sends `sent` of them once the proxy asks for the body.
    ///
    /// # Errors
    /// The proxy does not accept the connection or the bytes, or refuses the request.
    pub fn slow_body(
        client: &Client,
        target: &str,
        length: usize,
        sent: usize,
    ) -> Result<Self, ClientError> {
        let mut connection = client.connect()?;
        let head = connection.head("PUT", target, &EXPECT, Some(length));
        connection.send_raw(&head)?;
        let interim = connection.read_head()?;
        if interim.status != 100 {
            let what = format!("answered {} before the body", interim.status);
            return Err(ClientError::Broken(io::Error::other(what)));
        }
        connection.send_raw(&vec![b'x'; sent])?;
        Ok(Self::new(connection, vec![b'x'; length - sent]))
    }

    /// Requests `target` and does not read the answer.
    ///
    /// # Errors
    /// The proxy does not accept the connection or the bytes.
    pub fn without_reading(client: &Client, target: &str) -> Result<Self, ClientError> {
        let client = client.clone().receive_buffer(RECEIVE_BUFFER_BYTES);
        let mut connection = client.connect()?;
        let head = connection.head("GET", target, &[], None);
        connection.send_raw(&head)?;
        Ok(Self::new(connection, Vec::new()))
    }

    /// Requests `target` on several streams of one HTTP/2 connection, none of which may send a byte
    /// (SETTINGS_INITIAL_WINDOW_SIZE = 0).
    ///
    /// # Errors
    /// The proxy does not accept the connection or the bytes.
    pub fn without_window(
        client: &Client,
        target: &str,
        streams: usize,
    ) -> Result<Self, ClientError> {
        let mut connection = client.connect()?;
        let [high, low] = setting::INITIAL_WINDOW_SIZE.to_be_bytes();
        connection.send_frame(kind::SETTINGS, 0, 0, &[high, low, 0, 0, 0, 0])?;
        let head = connection.head("GET", target, &[], None);
        for _ in 0..streams {
            connection.send_raw(&head)?;
        }
        Ok(Self::new(connection, Vec::new()))
    }

    fn new(connection: TestConnection, rest: Vec<u8>) -> Self {
        Self {
            connection,
            rest: rest.into_iter(),
            within_frame: false,
        }
    }

    /// Sends one more byte, if the attack has more to send.
    ///
    /// # Errors
    /// The connection has ended.
    pub fn step(&mut self) -> Result<(), ClientError> {
        match self.rest.next() {
            Some(byte) if self.within_frame => self.connection.send_bytes(&[byte]),
            Some(byte) => self.connection.send_raw(&[byte]),
            None => Ok(()),
        }
    }
}
