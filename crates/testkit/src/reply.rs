//! What a stand-in answers, faults included.

use std::{
    sync::{Arc, Condvar, Mutex, PoisonError},
    time::Duration,
};

/// Holds answers back until the test releases them. Clones are the same gate.
#[derive(Clone, Debug, Default)]
pub struct Gate {
    inner: Arc<(Mutex<bool>, Condvar)>,
}

/// A gate nobody opens any more must not hang a test run.
const HELD_MAX: Duration = Duration::from_secs(60);

impl Gate {
    /// A closed gate.
    pub fn new() -> Self {
        let gate = Self::default();
        gate.hold();
        gate
    }

    /// A gate that lets everything pass until `hold`.
    pub(crate) fn open() -> Self {
        Self::default()
    }

    /// Closes it.
    pub fn hold(&self) {
        *self.inner.0.lock().unwrap_or_else(PoisonError::into_inner) = true;
    }

    /// Opens it for all who wait.
    pub fn release(&self) {
        *self.inner.0.lock().unwrap_or_else(PoisonError::into_inner) = false;
        self.inner.1.notify_all();
    }

    /// Whether it is open.
    pub fn is_open(&self) -> bool {
        !*self.inner.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until it is open.
    pub(crate) fn pass(&self) {
        let (held, opened) = &*self.inner;
        let guard = held.lock().unwrap_or_else(PoisonError::into_inner);
        drop(opened.wait_timeout_while(guard, HELD_MAX, |held| *held));
    }
}

/// An answer and how it is given. Made by `ok`, `json`, `status`, `raw`; the rest changes it.
#[derive(Clone, Debug)]
pub struct Reply {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) content: Content,
    pub(crate) interim: Vec<Vec<u8>>,
    pub(crate) delay: Duration,
    pub(crate) gate: Option<Gate>,
    pub(crate) dribble: Option<(usize, Duration)>,
    pub(crate) hold_after: Option<(u64, Gate)>,
    pub(crate) end_after: Option<(u64, End)>,
    pub(crate) reset: bool,
    pub(crate) close: bool,
    pub(crate) leaves: bool,
}

/// What follows the head.
#[derive(Clone, Debug)]
pub(crate) enum Content {
    /// Framed by Content-Length.
    Length(Vec<u8>),
    /// One chunk each, then trailers.
    Chunks(Vec<Vec<u8>>, Vec<(String, String)>),
    /// No framing: the end of the connection ends it.
    ToClose(Vec<u8>),
    /// So many bytes made on the fly, by Content-Length.
    Stream(u64),
    /// These bytes in place of a message.
    Raw(Vec<u8>),
}

/// How a body is broken off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Close,
    Reset,
}

impl Reply {
    /// 200 with this text.
    pub fn ok(text: &str) -> Self {
        Self::status(200)
            .header("Content-Type", "text/plain")
            .body(text.as_bytes())
    }

    /// 200 with this JSON.
    pub fn json(value: &serde_json::Value) -> Self {
        let text = value.to_string();
        Self::status(200)
            .header("Content-Type", "application/json")
            .body(text.as_bytes())
    }

    /// 101 to this protocol, after which the stand-in has a tunnel: `StandIn::tunnel` says what happens in it.
    pub fn switching(protocol: &str) -> Self {
        Self::status(101)
            .header("Connection", "upgrade")
            .header("Upgrade", protocol)
    }

    /// This status, without a body.
    pub fn status(status: u16) -> Self {
        Self {
            status,
            headers: Vec::new(),
            content: Content::Length(Vec::new()),
            interim: Vec::new(),
            delay: Duration::ZERO,
            gate: None,
            dribble: None,
            hold_after: None,
            end_after: None,
            reset: false,
            close: false,
            leaves: false,
        }
    }

    /// These bytes in place of a message, then the end of the connection.
    pub fn raw(bytes: impl Into<Vec<u8>>) -> Self {
        Self {
            content: Content::Raw(bytes.into()),
            close: true,
            ..Self::status(200)
        }
    }

    /// 200 with `length` bytes made on the fly.
    pub fn stream(length: u64) -> Self {
        let reply = Self::status(200).header("Content-Type", "application/octet-stream");
        Self {
            content: Content::Stream(length),
            ..reply
        }
    }

    /// The connection is reset in place of an answer.
    pub fn reset() -> Self {
        Self {
            reset: true,
            ..Self::status(200)
        }
    }

    /// The connection is closed in place of an answer.
    pub fn hang_up() -> Self {
        Self::raw([])
    }

    /// One more field line.
    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    /// This body, by Content-Length.
    pub fn body(mut self, bytes: &[u8]) -> Self {
        self.content = Content::Length(bytes.to_vec());
        self
    }

    /// This body, one chunk for each piece.
    pub fn chunked(mut self, pieces: &[&[u8]]) -> Self {
        self.content = Content::Chunks(
            pieces.iter().map(|piece| piece.to_vec()).collect(),
            Vec::new(),
        );
        self
    }

    /// A trailer field after the chunks.
    ///
    /// # Panics
    /// If the body is not chunked.
    pub fn trailer(mut self, name: &str, value: &str) -> Self {
        match &mut self.content {
            Content::Chunks(_, trailers) => trailers.push((name.to_owned(), value.to_owned())),
            _ => panic!("only a chunked body has trailers"),
        }
        self
    }

    /// This body, ended by the end of the connection.
    pub fn to_close(mut self, bytes: &[u8]) -> Self {
        self.content = Content::ToClose(bytes.to_vec());
        self
    }

    /// A 1xx answer first.
    pub fn interim(mut self, status: u16, headers: &[(&str, &str)]) -> Self {
        let fields: String = headers
            .iter()
            .map(|(name, value)| format!("{name}: {value}\r\n"))
            .collect();
        self.interim
            .push(format!("HTTP/1.1 {status} Interim\r\n{fields}\r\n").into_bytes());
        self
    }

    /// Waits so long before the head.
    pub fn delay(mut self, time: Duration) -> Self {
        self.delay = time;
        self
    }

    /// Waits for the gate before the head.
    pub fn gate(mut self, gate: &Gate) -> Self {
        self.gate = Some(gate.clone());
        self
    }

    /// Waits for the gate once so many body bytes have gone.
    pub fn gate_after(mut self, bytes: u64, gate: &Gate) -> Self {
        self.hold_after = Some((bytes, gate.clone()));
        self
    }

    /// Sends the body in pieces of `size`, resting `interval` between them.
    pub fn dribble(mut self, size: usize, interval: Duration) -> Self {
        self.dribble = Some((size.max(1), interval));
        self
    }

    /// Closes after so many body bytes, whatever the framing promised.
    pub fn close_after(mut self, bytes: u64) -> Self {
        self.end_after = Some((bytes, End::Close));
        self
    }

    /// Resets after so many body bytes.
    pub fn reset_after(mut self, bytes: u64) -> Self {
        self.end_after = Some((bytes, End::Reset));
        self
    }

    /// Closes the connection after the answer without announcing it, as a server whose idle time has expired.
    pub fn close_unannounced(mut self) -> Self {
        self.leaves = true;
        self
    }

    /// Says `Connection: close` and does so.
    pub fn close(mut self) -> Self {
        self.close = true;
        self
    }
}
