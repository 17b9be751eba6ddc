//! HTTP/2 without a library, frame by frame: HTTP/1.1 input of a test is sent as streams, and any frame can be sent
//! unchanged.

use std::{
    collections::{BTreeMap, VecDeque},
    io::{self, ErrorKind, Read, Write},
};

use httlib_hpack::Decoder;

use crate::{
    client_error::ClientError,
    hpack::encode,
    message::{Body, BodyFraming, Headers, request_framing, request_head},
};

/// The connection preface.
pub const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Kinds of frames (RFC 9113, 6).
pub mod kind {
    #![expect(missing_docs, reason = "the names are the protocol's")]
    pub const DATA: u8 = 0;
    pub const HEADERS: u8 = 1;
    pub const PRIORITY: u8 = 2;
    pub const RST_STREAM: u8 = 3;
    pub const SETTINGS: u8 = 4;
    pub const PING: u8 = 6;
    pub const GOAWAY: u8 = 7;
    pub const WINDOW_UPDATE: u8 = 8;
    pub const CONTINUATION: u8 = 9;
}

/// Flags of frames.
pub mod flag {
    #![expect(missing_docs, reason = "the names are the protocol's")]
    pub const ACK: u8 = 1;
    pub const END_STREAM: u8 = 1;
    pub const END_HEADERS: u8 = 4;
    pub const PADDED: u8 = 8;
    pub const PRIORITY: u8 = 32;
}

/// Settings (RFC 9113, 6.5.2; RFC 8441, 3).
pub mod setting {
    #![expect(missing_docs, reason = "the names are the protocol's")]
    pub const INITIAL_WINDOW_SIZE: u16 = 4;
    pub const ENABLE_CONNECT_PROTOCOL: u16 = 8;
}

/// Initial size of a window.
const WINDOW_BYTES: i64 = 65_535;
const FRAME_BYTES_MAX: usize = 16_384;

/// The end of a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StreamOutcome {
    /// A complete response with this status code.
    Answered(u16),
    /// The peer reset the stream with this code.
    Reset(u32),
    /// The peer closed the connection with this code.
    GoneAway(u32),
    /// The connection ended without a GOAWAY.
    Closed,
}

/// One frame, unchanged.
pub fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut frame = (payload.len() as u32).to_be_bytes()[1..].to_vec();
    frame.extend([kind, flags]);
    frame.extend(stream.to_be_bytes());
    frame.extend(payload);
    frame
}

/// The client's side of a connection.
pub(crate) struct Session {
    inbox: Vec<u8>,
    decoder: Decoder<'static>,
    next_stream: u32,
    /// Streams whose responses have not been read, oldest first.
    waiting: VecDeque<u32>,
    streams: BTreeMap<u32, Stream>,
    /// An incomplete header block: stream, whether the stream ends with it, and its bytes.
    partial: Option<(u32, bool, Vec<u8>)>,
    window: i64,
    window_initial: i64,
    /// The peer's settings.
    announced: BTreeMap<u16, u32>,
    spoken: Http1Input,
    goodbye: Option<u32>,
    pongs: u64,
    pings: u64,
    ended: bool,
}

/// The state of a stream.
#[derive(Default)]
struct Stream {
    heads: VecDeque<Vec<(String, String)>>,
    data: VecDeque<Vec<u8>>,
    trailers: Headers,
    ended: bool,
    reset: Option<u32>,
    window: i64,
}

/// HTTP/1.1 input that is not yet a complete message, and the position in it.
#[derive(Default)]
struct Http1Input {
    bytes: Vec<u8>,
    body: Option<(u32, BodyFraming)>,
}

/// The head of a response.
pub(crate) struct AnswerHead {
    pub(crate) stream: u32,
    pub(crate) status: u16,
    pub(crate) headers: Headers,
    pub(crate) bodiless: bool,
}

impl Session {
    /// Sends the preface and settings.
    pub(crate) fn begin(io: &mut impl Write) -> io::Result<Self> {
        io.write_all(&[PREFACE, &frame(kind::SETTINGS, 0, 0, &[])].concat())?;
        Ok(Self {
            inbox: Vec::new(),
            decoder: Decoder::default(),
            next_stream: 1,
            waiting: VecDeque::new(),
            streams: BTreeMap::new(),
            partial: None,
            window: WINDOW_BYTES,
            window_initial: WINDOW_BYTES,
            announced: BTreeMap::new(),
            spoken: Http1Input::default(),
            goodbye: None,
            pongs: 0,
            pings: 0,
            ended: false,
        })
    }

    /// Whether the peer has announced the end of the connection, or has closed it.
    pub(crate) fn is_last(&self) -> bool {
        self.ended || self.goodbye.is_some()
    }

    /// Opens a stream with these fields, byte for byte.
    pub(crate) fn open(
        &mut self,
        io: &mut impl Write,
        fields: &[(impl AsRef<[u8]>, impl AsRef<[u8]>)],
        end: bool,
    ) -> io::Result<u32> {
        let stream = self.reserve();
        let block = encode(fields);
        let mut frames = Vec::new();
        let pieces = block.chunks(FRAME_BYTES_MAX);
        let count = pieces.len();
        for (index, piece) in pieces.enumerate() {
            let kind = if index == 0 {
                kind::HEADERS
            } else {
                kind::CONTINUATION
            };
            let end_stream = if end && index == 0 {
                flag::END_STREAM
            } else {
                0
            };
            let end_headers = if index + 1 == count {
                flag::END_HEADERS
            } else {
                0
            };
            frames.extend(frame(kind, end_stream | end_headers, stream, piece));
        }
        io.write_all(&frames)?;
        Ok(stream)
    }

    /// Reserves the number of a stream whose frames a test writes itself.
    pub(crate) fn reserve(&mut self) -> u32 {
        let stream = self.next_stream;
        self.next_stream += 2;
        let known = Stream {
            window: self.window_initial,
            ..Stream::default()
        };
        self.streams.insert(stream, known);
        self.waiting.push_back(stream);
        stream
    }

    /// Sends HTTP/1.1 input as streams, as far as it is complete.
    ///
    /// # Panics
    /// The input has no equivalent in HTTP/2; a test with such bytes is for HTTP/1.1 only.
    pub(crate) fn say(&mut self, io: &mut (impl Read + Write), bytes: &[u8]) -> io::Result<()> {
        self.spoken.bytes.extend_from_slice(bytes);
        loop {
            match self.spoken.body {
                None => {
                    let Some(end) = find(&self.spoken.bytes, b"\r\n\r\n") else {
                        return Ok(());
                    };
                    let raw: Vec<u8> = self.spoken.bytes.drain(..end + 4).collect();
                    self.say_head(io, &raw)?;
                }
                Some((stream, BodyFraming::Length(left))) => {
                    let length = (self.spoken.bytes.len() as u64).min(left) as usize;
                    if length == 0 {
                        return Ok(());
                    }
                    let rest = self.spoken.bytes.split_off(length);
                    let piece = std::mem::replace(&mut self.spoken.bytes, rest);
                    let left = left - length as u64;
                    self.spoken.body = (left > 0).then_some((stream, BodyFraming::Length(left)));
                    self.data(io, stream, &piece, left == 0)?;
                }
                Some((stream, _)) => {
                    let Some((piece, length)) = chunk(&self.spoken.bytes) else {
                        return Ok(());
                    };
                    self.spoken.bytes.drain(..length);
                    if piece.is_empty() {
                        self.spoken.body = None;
                    }
                    self.data(io, stream, &piece, piece.is_empty())?;
                }
            }
        }
    }

    fn say_head(&mut self, io: &mut impl Write, raw: &[u8]) -> io::Result<()> {
        let head = request_head(raw).unwrap_or_else(|error| panic!("{error}: HTTP/1.1 alone"));
        let framing = request_framing(&head.headers)
            .unwrap_or_else(|error| panic!("{error}: HTTP/1.1 alone"));
        let mut fields = vec![
            (":method".to_owned(), head.method),
            (":scheme".to_owned(), "https".to_owned()),
            (
                ":authority".to_owned(),
                head.headers.only("host").to_owned(),
            ),
            (":path".to_owned(), head.target),
        ];
        for (name, value) in head.headers.0 {
            let name = name.to_ascii_lowercase();
            match name.as_str() {
                "host" | "transfer-encoding" => {}
                "connection" | "upgrade" | "te" | "trailer" => {
                    panic!("{name}: {value} is said in HTTP/1.1 alone")
                }
                _ => fields.push((name, value)),
            }
        }
        let bodiless = matches!(framing, BodyFraming::None | BodyFraming::Length(0));
        let stream = self.open(io, &fields, bodiless)?;
        self.spoken.body = (!bodiless).then_some((stream, framing));
        Ok(())
    }

    /// Sends a stream's data as its window allows. Data for a stream that has ended is dropped.
    pub(crate) fn data(
        &mut self,
        io: &mut (impl Read + Write),
        stream: u32,
        mut data: &[u8],
        end: bool,
    ) -> io::Result<()> {
        loop {
            let Some(state) = self.streams.get_mut(&stream) else {
                return Ok(());
            };
            if state.reset.is_some() {
                return Ok(());
            }
            let room = state.window.min(self.window).max(0) as usize;
            let length = data.len().min(room).min(FRAME_BYTES_MAX);
            if length > 0 || data.is_empty() {
                let last = end && length == data.len();
                state.window -= length as i64;
                self.window -= length as i64;
                let flags = if last { flag::END_STREAM } else { 0 };
                if length > 0 || last {
                    io.write_all(&frame(kind::DATA, flags, stream, &data[..length]))?;
                }
                data = &data[length..];
                if data.is_empty() {
                    return Ok(());
                }
            } else if !self.pump(io)? {
                return Err(ErrorKind::BrokenPipe.into());
            }
        }
    }

    /// Sends a stream's data as far as its window now allows; returns the number of bytes.
    pub(crate) fn data_ahead(&mut self, io: &mut impl Write, stream: u32) -> io::Result<usize> {
        let Some(state) = self.streams.get_mut(&stream) else {
            return Ok(0);
        };
        let room = state.window.min(self.window).max(0) as usize;
        state.window -= room as i64;
        self.window -= room as i64;
        for piece in vec![b'x'; room].chunks(FRAME_BYTES_MAX) {
            io.write_all(&frame(kind::DATA, 0, stream, piece))?;
        }
        Ok(room)
    }

    /// The peer's value for this setting.
    pub(crate) fn announced(&self, setting: u16) -> Option<u32> {
        self.announced.get(&setting).copied()
    }

    /// Reads the head of the oldest unread response, which may be a 1xx.
    pub(crate) fn head(&mut self, io: &mut (impl Read + Write)) -> Result<AnswerHead, ClientError> {
        let Some(stream) = self.waiting.front().copied() else {
            return self.rest(io);
        };
        loop {
            let state = self.streams.entry(stream).or_default();
            if let Some(fields) = state.heads.pop_front() {
                let status = fields
                    .iter()
                    .find(|(name, _)| name == ":status")
                    .and_then(|(_, value)| value.parse().ok())
                    .ok_or_else(|| broken("an answer without a status"))?;
                if !(100..=199).contains(&status) {
                    self.waiting.pop_front();
                }
                let pseudo = |(name, _): &(String, String)| !name.starts_with(':');
                return Ok(AnswerHead {
                    stream,
                    status,
                    headers: Headers(fields.into_iter().filter(pseudo).collect()),
                    bodiless: state.ended && state.data.is_empty(),
                });
            }
            if let Some(code) = state.reset {
                self.waiting.pop_front();
                return Err(ClientError::Reset(code));
            }
            if !self.pump(io).map_err(ClientError::of)? {
                return Err(ClientError::Closed);
            }
        }
    }

    /// Reads to the end of the connection, because no request awaits a response.
    fn rest(&mut self, io: &mut (impl Read + Write)) -> Result<AnswerHead, ClientError> {
        while self.pump(io).map_err(ClientError::of)? {}
        Err(ClientError::Closed)
    }

    /// Reads the next piece of a stream's data; none at its end.
    pub(crate) fn piece(
        &mut self,
        io: &mut (impl Read + Write),
        stream: u32,
    ) -> Result<Option<Vec<u8>>, ClientError> {
        loop {
            let state = self.streams.entry(stream).or_default();
            if let Some(piece) = state.data.pop_front() {
                return Ok(Some(piece));
            }
            if state.ended {
                return Ok(None);
            }
            if state.reset.is_some() {
                return Err(broken("the stream was reset"));
            }
            if !self.pump(io).map_err(ClientError::of)? {
                return Err(broken("the connection ended within a body"));
            }
        }
    }

    /// Reads the whole body of a stream. If the body breaks off, `body` has the bytes that arrived.
    pub(crate) fn body_into(
        &mut self,
        io: &mut (impl Read + Write),
        stream: u32,
        body: &mut Body,
    ) -> Result<(), ClientError> {
        while let Some(piece) = self.piece(io, stream)? {
            body.push(&piece);
        }
        if let Some(state) = self.streams.remove(&stream) {
            body.trailers = state.trailers;
        }
        Ok(())
    }

    /// Waits until the peer has read and answered everything. An announced end of the connection is separate from a
    /// response, so it may follow.
    pub(crate) fn settle(&mut self, io: &mut (impl Read + Write)) -> Result<(), ClientError> {
        self.pings += 1;
        if io.write_all(&frame(kind::PING, 0, 0, b"settle..")).is_err() {
            self.ended = true;
        }
        while self.pongs < self.pings && !self.ended {
            self.pump(io).map_err(ClientError::of)?;
        }
        Ok(())
    }

    /// Reads until the stream ends; returns how it ended.
    pub(crate) fn outcome(&mut self, io: &mut (impl Read + Write), stream: u32) -> StreamOutcome {
        self.waiting.retain(|waiting| *waiting != stream);
        loop {
            let state = self.streams.entry(stream).or_default();
            if let Some(code) = state.reset {
                return StreamOutcome::Reset(code);
            }
            if state.ended {
                let status = state
                    .heads
                    .back()
                    .and_then(|fields| fields.first()?.1.parse().ok());
                return StreamOutcome::Answered(status.unwrap_or_default());
            }
            let more = self.pump(io);
            if !matches!(more, Ok(true)) {
                assert!(
                    !more.is_err_and(|error| error.kind() == ErrorKind::WouldBlock),
                    "stream {stream} had no outcome in time"
                );
                return match self.goodbye {
                    Some(code) => StreamOutcome::GoneAway(code),
                    None => StreamOutcome::Closed,
                };
            }
        }
    }

    /// Reads until the connection ends. True if only control frames arrived.
    pub(crate) fn is_silent_to_end(&mut self, io: &mut (impl Read + Write)) -> io::Result<bool> {
        if self.ended {
            return Ok(true);
        }
        let before = self.received();
        while self.pump(io)? {
            if self.received() != before {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Number of bytes of data that have arrived and that no test has read.
    pub(crate) fn received(&self) -> usize {
        let of =
            |stream: &Stream| stream.heads.len() + stream.data.iter().map(Vec::len).sum::<usize>();
        self.streams.values().map(of).sum()
    }

    /// Reads one frame and handles it; false at the end.
    pub(crate) fn pump(&mut self, io: &mut (impl Read + Write)) -> io::Result<bool> {
        while self.inbox.len() < 9 || self.inbox.len() < 9 + frame_length(&self.inbox) {
            let mut piece = [0; 16 << 10];
            let read = match io.read(&mut piece) {
                Ok(read) => read,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) if error.kind() == ErrorKind::UnexpectedEof => 0,
                Err(error) => {
                    self.ended |=
                        !matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut);
                    return Err(error);
                }
            };
            if read == 0 {
                self.ended = true;
                return Ok(false);
            }
            self.inbox.extend_from_slice(&piece[..read]);
        }
        let length = frame_length(&self.inbox);
        let frame: Vec<u8> = self.inbox.drain(..9 + length).collect();
        let (kind, flags) = (frame[3], frame[4]);
        let stream = number(&frame[5..9]) & 0x7fff_ffff;
        self.take(io, kind, flags, stream, &frame[9..])?;
        Ok(true)
    }

    fn take(
        &mut self,
        io: &mut impl Write,
        kind: u8,
        flags: u8,
        stream: u32,
        payload: &[u8],
    ) -> io::Result<()> {
        match kind {
            kind::DATA => {
                assert_eq!(flags & flag::PADDED, 0, "our peer pads nothing");
                let state = self.streams.entry(stream).or_default();
                if !payload.is_empty() {
                    state.data.push_back(payload.to_vec());
                }
                state.ended |= flags & flag::END_STREAM != 0;
                if !payload.is_empty() {
                    let more = (payload.len() as u32).to_be_bytes();
                    let mut frames = frame(kind::WINDOW_UPDATE, 0, 0, &more);
                    if !state.ended {
                        frames.extend(frame(kind::WINDOW_UPDATE, 0, stream, &more));
                    }
                    // A peer that has closed the connection reads no more. The next read reports the end.
                    let _ = io.write_all(&frames);
                }
            }
            kind::HEADERS | kind::CONTINUATION => {
                let (stream, end, mut block) = self.partial.take().unwrap_or((
                    stream,
                    flags & flag::END_STREAM != 0,
                    Vec::new(),
                ));
                block.extend_from_slice(payload);
                if flags & flag::END_HEADERS == 0 {
                    self.partial = Some((stream, end, block));
                    return Ok(());
                }
                self.take_fields(stream, end, &block)?;
            }
            kind::RST_STREAM => {
                self.streams.entry(stream).or_default().reset = Some(number(payload));
            }
            kind::SETTINGS if flags & flag::ACK == 0 => {
                for setting in payload.chunks_exact(6) {
                    let (name, value) = (
                        u16::from_be_bytes([setting[0], setting[1]]),
                        number(&setting[2..]),
                    );
                    self.announced.insert(name, value);
                    if name != setting::INITIAL_WINDOW_SIZE {
                        continue;
                    }
                    let initial = i64::from(value);
                    let change = initial - self.window_initial;
                    self.window_initial = initial;
                    self.streams
                        .values_mut()
                        .for_each(|state| state.window += change);
                }
                let _ = io.write_all(&frame(kind::SETTINGS, flag::ACK, 0, &[]));
            }
            kind::PING if flags & flag::ACK == 0 => {
                let _ = io.write_all(&frame(kind::PING, flag::ACK, 0, payload));
            }
            kind::PING => self.pongs += 1,
            kind::GOAWAY => self.goodbye = Some(number(&payload[4..8])),
            kind::WINDOW_UPDATE => match stream {
                0 => self.window += i64::from(number(payload)),
                stream => {
                    self.streams.entry(stream).or_default().window += i64::from(number(payload));
                }
            },
            _ => {}
        }
        Ok(())
    }

    fn take_fields(&mut self, stream: u32, end: bool, block: &[u8]) -> io::Result<()> {
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        let mut fields = Vec::new();
        self.decoder
            .decode(&mut block.to_vec(), &mut fields)
            .map_err(|error| io::Error::new(ErrorKind::InvalidData, error))?;
        let fields: Vec<_> = fields
            .into_iter()
            .map(|(name, value, _)| (text(name), text(value)))
            .collect();
        for (name, _) in &fields {
            assert!(
                ![
                    "connection",
                    "keep-alive",
                    "transfer-encoding",
                    "upgrade",
                    "proxy-connection"
                ]
                .contains(&name.as_str())
                    && !name.bytes().any(|byte| byte.is_ascii_uppercase()),
                "{name} in an answer over HTTP/2"
            );
        }
        let state = self.streams.entry(stream).or_default();
        state.ended |= end;
        match fields.first() {
            Some((name, _)) if name == ":status" => state.heads.push_back(fields),
            _ => state.trailers.0.extend(fields),
        }
        Ok(())
    }
}

/// The first chunk in `bytes`, if it is complete, and its length with its framing.
fn chunk(bytes: &[u8]) -> Option<(Vec<u8>, usize)> {
    let line = find(bytes, b"\r\n")?;
    let size = std::str::from_utf8(&bytes[..line])
        .ok()
        .and_then(|size| usize::from_str_radix(size, 16).ok())
        .unwrap_or_else(|| panic!("a chunk that HTTP/1.1 alone can say"));
    let end = line + 2 + size + 2;
    let whole = bytes.len() >= end;
    whole.then(|| (bytes[line + 2..line + 2 + size].to_vec(), end))
}

fn frame_length(frame: &[u8]) -> usize {
    usize::from(frame[0]) << 16 | usize::from(frame[1]) << 8 | usize::from(frame[2])
}

fn number(bytes: &[u8]) -> u32 {
    bytes
        .iter()
        .take(4)
        .fold(0, |number, byte| number << 8 | u32::from(*byte))
}

fn find(haystack: &[u8], needle: &[u8]) -> Option<usize> {
    haystack
        .windows(needle.len())
        .position(|window| window == needle)
}

fn broken(what: &str) -> ClientError {
    ClientError::Broken(io::Error::new(ErrorKind::UnexpectedEof, what.to_owned()))
}
