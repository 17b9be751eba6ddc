//! An open connection of a test's client: it sends the bytes that a test writes, and returns the bytes that the peer
//! sends.

use std::{
    io::{self, ErrorKind, Read, Write},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use rustls::HandshakeKind;

use crate::{
    client_error::ClientError,
    hello,
    http2::{Session, StreamOutcome, frame},
    message::{
        Body, BodyFraming, Headers, Interim, MessageReader, Response, response_framing,
        response_head,
    },
    transport::{Io, is_gone},
};

/// An open connection.
pub struct TestConnection {
    pub(crate) io: Io,
    pub(crate) session: Option<Session>,
    pub(crate) reader: MessageReader,
    pub(crate) host: String,
    pub(crate) timeout: Duration,
    pub(crate) ended: bool,
    pub(crate) may_be_early: bool,
    pub(crate) answers: Arc<AtomicUsize>,
}

impl TestConnection {
    /// Sends a request: Host, an agent's fields, Content-Length if there is a body, then `headers` unchanged.
    ///
    /// # Errors
    /// The peer does not accept the bytes.
    pub fn send(
        &mut self,
        method: &str,
        target: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> Result<(), ClientError> {
        let mut bytes = self.head(
            method,
            target,
            headers,
            Some(body.len()).filter(|n| *n > 0 || method == "POST"),
        );
        bytes.extend_from_slice(body);
        self.send_raw(&bytes)
    }

    /// Sends a request with one chunk for each piece.
    ///
    /// # Errors
    /// The peer does not accept the bytes.
    pub fn send_chunked(
        &mut self,
        method: &str,
        target: &str,
        headers: &[(&str, &str)],
        pieces: &[&[u8]],
    ) -> Result<(), ClientError> {
        let mut fields = headers.to_vec();
        fields.push(("Transfer-Encoding", "chunked"));
        let mut bytes = self.head(method, target, &fields, None);
        for piece in pieces.iter().filter(|piece| !piece.is_empty()) {
            bytes.extend_from_slice(format!("{:x}\r\n", piece.len()).as_bytes());
            bytes.extend_from_slice(piece);
            bytes.extend_from_slice(b"\r\n");
        }
        bytes.extend_from_slice(b"0\r\n\r\n");
        self.send_raw(&bytes)
    }

    /// The bytes of a head, as `send` sends them.
    pub fn head(
        &self,
        method: &str,
        target: &str,
        headers: &[(&str, &str)],
        length: Option<usize>,
    ) -> Vec<u8> {
        let mut head = format!("{method} {target} HTTP/1.1\r\n");
        let given = |name: &str| headers.iter().any(|(n, _)| n.eq_ignore_ascii_case(name));
        for (name, value) in [
            ("Host", self.host.as_str()),
            ("Accept", "*/*"),
            ("X-Puppet-Version", "8.10.0"),
        ] {
            if !given(name) {
                head.push_str(&format!("{name}: {value}\r\n"));
            }
        }
        if let Some(length) = length.filter(|_| !given("content-length")) {
            head.push_str(&format!("Content-Length: {length}\r\n"));
        }
        for (name, value) in headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        head.push_str("\r\n");
        head.into_bytes()
    }

    /// Sends these bytes. Over TLS, the next read reports a closed connection, with the peer's alert.
    ///
    /// # Errors
    /// The peer does not accept them.
    pub fn send_raw(&mut self, bytes: &[u8]) -> Result<(), ClientError> {
        if let Some(session) = &mut self.session {
            return session.say(&mut self.io, bytes).map_err(ClientError::of);
        }
        self.send_bytes(bytes)
    }

    /// Sends these bytes unchanged, even over HTTP/2.
    ///
    /// # Errors
    /// The peer does not accept them.
    pub fn send_bytes(&mut self, bytes: &[u8]) -> Result<(), ClientError> {
        self.io
            .write_all(bytes)
            .and_then(|()| self.io.flush())
            .map_err(ClientError::of)
    }

    /// Reads the next response, to a request other than HEAD.
    ///
    /// # Errors
    /// The response does not arrive.
    #[track_caller]
    pub fn read_response(&mut self) -> Result<Response, ClientError> {
        self.read_response_to("GET")
    }

    /// Reads the next response, to a request with this method; 1xx responses are collected.
    ///
    /// # Errors
    /// The response does not arrive.
    ///
    /// # Panics
    /// A trusted header reached the client.
    #[track_caller]
    pub fn read_response_to(&mut self, method: &str) -> Result<Response, ClientError> {
        let mut interim = Vec::new();
        loop {
            let answer = self.read_head_to(method, std::mem::take(&mut interim))?;
            if (100..=199).contains(&answer.status) && answer.status != 101 {
                interim = answer.interim;
                interim.push(Interim {
                    status: answer.status,
                    headers: answer.headers,
                });
                continue;
            }
            return self.read_body_of(answer);
        }
    }

    /// Reads the next head, which may be a 1xx; `read_body_of` reads the body.
    ///
    /// # Errors
    /// The head does not arrive.
    #[track_caller]
    pub fn read_head(&mut self) -> Result<Response, ClientError> {
        self.read_head_to("GET", Vec::new())
    }

    /// Reads the body after a head that `read_head` returned.
    ///
    /// # Errors
    /// The body breaks off.
    pub fn read_body_of(&mut self, mut response: Response) -> Result<Response, ClientError> {
        self.read_body_into(&mut response)?;
        Ok(response)
    }

    /// Reads the body after a head that `read_head` returned. If the body breaks off, the response has the bytes that
    /// arrived.
    ///
    /// # Errors
    /// The body breaks off.
    pub fn read_body_into(&mut self, response: &mut Response) -> Result<(), ClientError> {
        self.answers.fetch_add(1, Ordering::SeqCst);
        if let (Some(session), Some(stream)) = (&mut self.session, response.stream) {
            session.body_into(&mut self.io, stream, &mut response.body)?;
            if let BodyFraming::Length(length) = response.framing
                && length != response.body.length
            {
                let what = format!("{length} bytes were said, {} came", response.body.length);
                return Err(ClientError::Broken(io::Error::other(what)));
            }
            session.settle(&mut self.io)?;
            response.last = session.is_last();
            return Ok(());
        }
        self.reader
            .body_into(&mut self.io, response.framing, &mut response.body)
            .map_err(ClientError::of)
    }

    #[track_caller]
    fn read_head_to(
        &mut self,
        method: &str,
        interim: Vec<Interim>,
    ) -> Result<Response, ClientError> {
        if self.session.is_some() {
            return self.read_stream_head(method, interim);
        }
        let raw = match self.reader.head(&mut self.io) {
            Ok(raw) => raw.ok_or(ClientError::Closed)?,
            // Before the first byte, a close without close_notify counts as a clean close.
            Err(error)
                if error.kind() == ErrorKind::UnexpectedEof && self.reader.pending().is_empty() =>
            {
                return Err(ClientError::Closed);
            }
            Err(error) => return Err(ClientError::of(error)),
        };
        let (version, status, reason, headers) =
            response_head(&raw).map_err(ClientError::Broken)?;
        assert_nothing_trusted(&headers);
        let framing = response_framing(method, status, &headers).map_err(ClientError::Broken)?;
        let body = Body::default();
        Ok(Response {
            status,
            version,
            reason,
            headers,
            framing,
            body,
            interim,
            raw_head: raw,
            stream: None,
            last: false,
        })
    }

    #[track_caller]
    fn read_stream_head(
        &mut self,
        method: &str,
        interim: Vec<Interim>,
    ) -> Result<Response, ClientError> {
        let session = self.session.as_mut().expect("it speaks HTTP/2");
        let head = session.head(&mut self.io)?;
        assert_nothing_trusted(&head.headers);
        let framing = response_framing(method, head.status, &head.headers);
        let framing = match framing.map_err(ClientError::Broken)? {
            // In HTTP/2 the end of a body is explicit, as it is with chunks.
            BodyFraming::ToClose if head.bodiless => BodyFraming::None,
            BodyFraming::ToClose => BodyFraming::Chunked,
            framing => framing,
        };
        let lines = head.headers.0.iter();
        let raw_head: String = lines
            .map(|(name, value)| format!("{name}: {value}\r\n"))
            .collect();
        Ok(Response {
            status: head.status,
            version: "HTTP/2".to_owned(),
            reason: String::new(),
            headers: head.headers,
            framing,
            body: Body::default(),
            interim,
            raw_head: raw_head.into_bytes(),
            stream: Some(head.stream),
            last: false,
        })
    }

    /// Opens a stream with these fields, byte for byte and in this order.
    ///
    /// # Errors
    /// The peer does not accept the frames.
    ///
    /// # Panics
    /// The connection speaks HTTP/1.1.
    pub fn open(
        &mut self,
        fields: &[(impl AsRef<[u8]>, impl AsRef<[u8]>)],
        end: bool,
    ) -> Result<u32, ClientError> {
        let session = self.session.as_mut().expect("it speaks HTTP/2");
        session
            .open(&mut self.io, fields, end)
            .map_err(ClientError::of)
    }

    pub(crate) fn is_http2(&self) -> bool {
        self.session.is_some()
    }

    /// The number of a new stream whose frames the test writes itself.
    ///
    /// # Panics
    /// The connection speaks HTTP/1.1.
    pub fn reserve_stream(&mut self) -> u32 {
        self.session.as_mut().expect("it speaks HTTP/2").reserve()
    }

    /// Sends one frame unchanged.
    ///
    /// # Errors
    /// The peer does not accept the frame.
    pub fn send_frame(
        &mut self,
        kind: u8,
        flags: u8,
        stream: u32,
        payload: &[u8],
    ) -> Result<(), ClientError> {
        self.send_bytes(&frame(kind, flags, stream, payload))
    }

    /// Sends a stream's data as far as its window now allows; returns the number of bytes.
    ///
    /// # Errors
    /// The peer does not accept the data.
    ///
    /// # Panics
    /// The connection speaks HTTP/1.1.
    pub fn send_ahead(&mut self, stream: u32) -> Result<usize, ClientError> {
        let session = self.session.as_mut().expect("it speaks HTTP/2");
        session
            .data_ahead(&mut self.io, stream)
            .map_err(ClientError::of)
    }

    /// The peer's value for this setting, as far as its settings have been read.
    pub fn announced(&self, setting: u16) -> Option<u32> {
        let session = self.session.as_ref().expect("it speaks HTTP/2");
        session.announced(setting)
    }

    /// Reads until the stream ends; returns how it ended.
    ///
    /// # Panics
    /// The connection speaks HTTP/1.1, or the stream does not end.
    #[track_caller]
    pub fn outcome(&mut self, stream: u32) -> StreamOutcome {
        let session = self.session.as_mut().expect("it speaks HTTP/2");
        session.outcome(&mut self.io, stream)
    }

    /// Waits until the peer has read everything that was sent.
    ///
    /// # Errors
    /// The connection fails.
    ///
    /// # Panics
    /// The connection speaks HTTP/1.1.
    pub fn settle(&mut self) -> Result<(), ClientError> {
        let session = self.session.as_mut().expect("it speaks HTTP/2");
        session.settle(&mut self.io)
    }

    /// Whether the peer has announced that it accepts no more requests on this connection, or has closed it.
    pub fn is_last(&self) -> bool {
        self.session.as_ref().is_some_and(Session::is_last)
    }

    /// Sends one GET on this connection, and reads the response.
    ///
    /// # Panics
    /// There is no response.
    #[track_caller]
    pub fn get(&mut self, target: &str) -> Response {
        self.request("GET", target, &[], b"")
    }

    /// Sends one request on this connection, and reads the response.
    ///
    /// # Panics
    /// There is no response.
    #[track_caller]
    pub fn request(
        &mut self,
        method: &str,
        target: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> Response {
        self.try_request(method, target, headers, body)
            .unwrap_or_else(|error| panic!("{method} {target}: {error}"))
    }

    /// Sends one request on this connection, and reads the response.
    ///
    /// # Errors
    /// The response does not arrive.
    #[track_caller]
    pub fn try_request(
        &mut self,
        method: &str,
        target: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> Result<Response, ClientError> {
        self.send(method, target, headers, body)
            .or_else(ignore_broken_pipe)?;
        self.read_response_to(method)
    }

    /// Reads everything up to the end of the connection. An alert counts as an end.
    pub fn read_to_close(&mut self) -> Vec<u8> {
        if let Some(session) = &mut self.session {
            let before = session.received();
            while session.pump(&mut self.io).unwrap_or(false) {}
            self.ended = true;
            return vec![0; session.received() - before];
        }
        while self.reader.fill(&mut self.io).is_ok_and(|n| n > 0) {}
        self.ended = true;
        self.reader.pending().to_vec()
    }

    /// Reads the next `n` bytes of a tunnel, or as many as arrive before its end. An unclean end is an error.
    ///
    /// # Errors
    /// The connection fails.
    pub fn read_bytes(&mut self, n: usize) -> Result<Vec<u8>, ClientError> {
        let bytes = self
            .reader
            .bytes(&mut self.io, n)
            .map_err(ClientError::of)?;
        self.ended = bytes.len() < n;
        Ok(bytes)
    }

    /// Reads some bytes of a body as they arrive, 0 at its end, for readers that are slow on purpose.
    ///
    /// # Errors
    /// The connection fails.
    pub fn read_some(&mut self, into: &mut [u8]) -> Result<usize, ClientError> {
        assert!(
            self.session.is_none(),
            "what a stream brings is read by `read_piece`"
        );
        self.io.read(into).map_err(ClientError::of)
    }

    /// Whether the peer closes the connection within `limit` without sending anything first.
    pub fn is_closed_within(&mut self, limit: Duration) -> bool {
        self.closed_after(limit).is_some()
    }

    /// How long the peer took to close the connection; `None` if it sent bytes, or did not close it within `limit`.
    pub fn closed_after(&mut self, limit: Duration) -> Option<Duration> {
        let start = Instant::now();
        if self.session.is_some() {
            return self.stream_closed_after(start, limit);
        }
        if self.ended || !self.reader.pending().is_empty() {
            return self.ended.then_some(Duration::ZERO);
        }
        self.io
            .socket()
            .set_timeouts(limit.max(Duration::from_millis(1)))
            .ok()?;
        let end = self.reader.fill(&mut self.io);
        // The socket, and so its timeout, may not exist any more.
        let _ = self.io.socket().set_timeouts(self.timeout);
        self.ended = match end {
            Ok(n) => n == 0,
            Err(error) => !matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut),
        };
        self.ended.then(|| start.elapsed())
    }

    fn stream_closed_after(&mut self, start: Instant, limit: Duration) -> Option<Duration> {
        let session = self.session.as_mut()?;
        while start.elapsed() < limit {
            let left = limit.saturating_sub(start.elapsed());
            self.io
                .socket()
                .set_timeouts(left.max(Duration::from_millis(1)))
                .ok()?;
            let silent = session.is_silent_to_end(&mut self.io);
            let _ = self.io.socket().set_timeouts(self.timeout);
            match silent {
                Ok(true) => self.ended = true,
                Ok(false) => return None,
                Err(error) => {
                    self.ended =
                        !matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut);
                }
            }
            if self.ended {
                return Some(start.elapsed());
            }
        }
        None
    }

    /// Half-closes the connection; responses may still arrive.
    pub fn half_close(&mut self) {
        if let Io::Tls(tls) = &mut self.io {
            tls.conn.send_close_notify();
            let _ = tls.flush();
        }
        self.io.socket().finish();
    }

    /// Sends these bytes below TLS, where the peer expects TLS records.
    ///
    /// # Errors
    /// The peer does not accept them.
    pub fn send_below_tls(&mut self, bytes: &[u8]) -> Result<(), ClientError> {
        let Io::Tls(tls) = &mut self.io else {
            panic!("a plain connection has nothing below it");
        };
        tls.sock.write_all(bytes).map_err(ClientError::of)
    }

    /// Sends close_notify and, if `leaves`, closes the connection in the same segment. Returns the raw bytes that the
    /// peer sends after that until it closes.
    ///
    /// # Errors
    /// The peer does not close in time, or not cleanly.
    pub fn last_words(mut self, leaves: bool) -> Result<Vec<u8>, ClientError> {
        let Io::Tls(tls) = &mut self.io else {
            panic!("a plain connection has no end of TLS");
        };
        tls.conn.send_close_notify();
        if leaves {
            tls.sock.0.hold_back();
        }
        let _ = tls.flush();
        if leaves {
            tls.sock.0.finish();
        }
        self.as_on_the_wire()
    }

    /// Half-closes the connection without a TLS alert. Returns the raw bytes that the peer sends after that until it
    /// closes.
    ///
    /// # Errors
    /// The peer does not close in time, or not cleanly.
    pub fn words_to_who_ends_without(mut self) -> Result<Vec<u8>, ClientError> {
        self.io.socket().finish();
        self.as_on_the_wire()
    }

    fn as_on_the_wire(&mut self) -> Result<Vec<u8>, ClientError> {
        let Io::Tls(tls) = &mut self.io else {
            panic!("a plain connection has no end of TLS");
        };
        let mut words = Vec::new();
        tls.sock.read_to_end(&mut words).map_err(ClientError::of)?;
        Ok(words)
    }

    /// Resets the connection.
    pub fn reset(self) {
        self.io.socket().reset();
    }

    /// Whether this TLS session was resumed.
    pub fn resumed(&self) -> bool {
        matches!(&self.io, Io::Tls(tls) if tls.conn.handshake_kind() == Some(HandshakeKind::Resumed))
    }

    /// The ticket in the ClientHello, as it was sent. Its first 16 bytes name the server's key.
    pub fn offered_ticket(&self) -> Option<Vec<u8>> {
        match &self.io {
            Io::Tls(tls) => hello::ticket(&tls.sock.1),
            Io::Plain(_) => None,
        }
    }

    /// Whether the offered session allows early data.
    pub fn may_be_early(&self) -> bool {
        self.may_be_early
    }

    /// The server's certificates, DER, leaf first.
    pub fn peer_certificates(&self) -> Vec<Vec<u8>> {
        match &self.io {
            Io::Tls(tls) => tls
                .conn
                .peer_certificates()
                .unwrap_or_default()
                .iter()
                .map(|c| c.to_vec())
                .collect(),
            Io::Plain(_) => Vec::new(),
        }
    }
}

/// Asserts for every response that no trusted header reaches the client.
#[track_caller]
fn assert_nothing_trusted(headers: &Headers) {
    for (name, value) in &headers.0 {
        let name = name.to_ascii_lowercase().replace(['_', '.'], "-");
        let trusted = TRUSTED_PREFIXES
            .iter()
            .any(|prefix| name.starts_with(prefix));
        assert!(
            !trusted,
            "a trusted header leaked to the client: {name}: {value}"
        );
    }
}

/// Prefixes of header names that only members may see.
const TRUSTED_PREFIXES: &[&str] = &[
    "x-client-",
    "x-ssl-",
    "ssl-client-",
    "x-forwarded-",
    "x-real-ip",
    "client-cert",
    "x-authentication",
];

/// Ignores a failed write: a server that answers early may have stopped reading, and its response is what counts.
pub(crate) fn ignore_broken_pipe(error: ClientError) -> Result<(), ClientError> {
    match error {
        ClientError::Broken(cause) if is_gone(&cause) => Ok(()),
        error => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[should_panic(expected = "leaked")]
    fn a_trusted_header_in_an_answer_fails_the_test() {
        assert_nothing_trusted(&Headers(vec![(
            "X_Client.DN".to_owned(),
            "CN=x".to_owned(),
        )]));
    }

    #[test]
    fn framing_none_reads_nothing() {
        let mut reader = MessageReader::new();
        let body = reader
            .body(&mut &b"rest"[..], BodyFraming::None)
            .expect("nothing to read");
        assert_eq!(body.length, 0);
    }
}
