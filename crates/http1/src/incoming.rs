//! Watches the requests of a client on their way to hyper's parser.
//!
//! hyper accepts what RFC 9112 allows a server to accept: lines that end with a bare LF, a Content-Length beside a
//! Transfer-Encoding, the same Content-Length twice, a fragment in the target, blanks behind a chunk size. The request
//! that hyper returns does not show these faults. The watch does not parse requests a second time. It finds lines, and
//! reads only those that show where the request ends.

use memchr::{memchr, memchr_iter, memchr3, memchr3_iter};

use crate::{chunks::ChunkWatch, malformed::Malformed};

/// A fault in a request head that hyper accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[repr(u8)]
pub enum HeadFault {
    /// A line ends with a bare LF.
    #[error("a line of the request's head ends without a carriage return")]
    BareLf = 1,
    /// The head has both Content-Length and Transfer-Encoding.
    #[error("the request has both Content-Length and Transfer-Encoding")]
    TwoFramings = 2,
    /// The request line contains `#`.
    #[error("the request target has a fragment (#)")]
    Fragment = 3,
    /// The head has more than one Content-Length.
    #[error("the request has more than one Content-Length")]
    RepeatedLength = 4,
}

impl HeadFault {
    /// All faults.
    pub const ALL: [Self; 4] = [
        Self::BareLf,
        Self::TwoFramings,
        Self::Fragment,
        Self::RepeatedLength,
    ];
}

/// The requests of one connection.
#[derive(Debug)]
pub struct RequestWatch {
    state: State,
    /// The beginning of a head that is not complete yet.
    begun: Vec<u8>,
    /// Maximum bytes of a head. hyper refuses larger ones.
    head_bytes_max: usize,
    /// How many heads have passed on the connection.
    heads: u64,
    /// See [`raw_query`](Self::raw_query).
    raw_query: Vec<usize>,
}

#[derive(Debug)]
enum State {
    Head,
    /// The number of bytes that remain of a body.
    Length(u64),
    Chunks(ChunkWatch),
    /// hyper refuses the head, so no request follows.
    Unread,
}

/// Bytes up to which one search is cheaper than the search for the end of the request line.
const USUAL_HEAD_BYTES: usize = 1024;

/// What the watch needs from a head.
#[derive(Debug, Default, PartialEq, Eq)]
struct Seen {
    /// Bytes of the head, including the empty line.
    bytes: usize,
    bare_lf: bool,
    fragment: bool,
    length: Option<u64>,
    repeated_length: bool,
    chunked: bool,
}

impl RequestWatch {
    /// Begins with a new request, after this many others on its connection. A head has at most `head_bytes_max` bytes.
    pub fn new(head_bytes_max: usize, heads: u64) -> Self {
        Self {
            state: State::Head,
            begun: Vec::new(),
            head_bytes_max,
            heads,
            raw_query: Vec::new(),
        }
    }

    /// Where the bytes that [`pass`](Self::pass) watched last have `"`, `<` or `>` behind the first `?` of a request line.
    /// RFC 3986 has them only percent-encoded, and hyper refuses them, but curl and other clients send them as they are.
    pub fn raw_query(&self) -> &[usize] {
        &self.raw_query
    }

    /// How many heads have passed on the connection.
    pub fn heads(&self) -> u64 {
        self.heads
    }

    /// How many requests have passed on the connection. `None` if the last one is incomplete, or a part of another has
    /// passed.
    pub fn whole_requests(&self) -> Option<u64> {
        (matches!(self.state, State::Head) && self.begun.is_empty()).then_some(self.heads)
    }

    /// Watches the next bytes. Calls `found` for each head with a fault, with the number of its request on the
    /// connection, counted from 0.
    ///
    /// # Errors
    /// [`Malformed::Chunk`], with how many bytes before it were well-formed.
    pub fn pass(
        &mut self,
        bytes: &[u8],
        mut found: impl FnMut(u64, HeadFault),
    ) -> Result<(), (Malformed, usize)> {
        let mut passed = 0;
        self.raw_query.clear();
        while passed < bytes.len() {
            let rest = &bytes[passed..];
            if matches!(self.state, State::Head) {
                self.note_raw_query(rest, passed);
            }
            match &mut self.state {
                State::Head => match self.head(rest) {
                    // hyper refuses such a head in any division into pieces.
                    Some((_, seen)) if seen.bytes > self.head_bytes_max => {
                        self.state = State::Unread;
                    }
                    Some((taken, seen)) => {
                        passed += taken;
                        if let Some(fault) = seen.fault() {
                            found(self.heads, fault);
                        }
                        self.heads += 1;
                        self.state = seen.body();
                    }
                    None => return Ok(()),
                },
                State::Length(left) => {
                    let taken = usize::try_from(*left).map_or(rest.len(), |n| n.min(rest.len()));
                    passed += taken;
                    *left -= taken as u64;
                    if *left == 0 {
                        self.state = State::Head;
                    }
                }
                State::Chunks(watch) => {
                    let (taken, ended) =
                        watch.pass(rest).map_err(|(what, n)| (what, passed + n))?;
                    passed += taken;
                    if ended {
                        self.state = State::Head;
                    }
                }
                State::Unread => return Ok(()),
            }
        }
        Ok(())
    }

    /// Notes the raw bytes in the query of the request line that these bytes begin or continue.
    fn note_raw_query(&mut self, bytes: &[u8], passed: usize) {
        let mut start = 0;
        if self.begun.is_empty() {
            let is_line_end = |byte: &&u8| matches!(byte, b'\r' | b'\n');
            start = bytes.iter().take_while(is_line_end).count();
        }
        let rest = &bytes[start..];
        // Most heads have no such byte, and then nothing else is searched.
        let may_have = rest.len() > USUAL_HEAD_BYTES || memchr3(b'"', b'<', b'>', rest).is_some();
        if !may_have || memchr(b'\n', &self.begun).is_some() {
            return;
        }
        let line = &rest[..memchr(b'\n', rest).unwrap_or(rest.len())];
        let query = match memchr(b'?', &self.begun) {
            Some(_) => Some(0),
            None => memchr(b'?', line),
        };
        if let Some(query) = query {
            let raw = memchr3_iter(b'"', b'<', b'>', &line[query..]);
            self.raw_query
                .extend(raw.map(|at| passed + start + query + at));
        }
    }

    /// The head that ends in these bytes, and how many of them belong to it. `None` if the head is incomplete.
    fn head(&mut self, mut bytes: &[u8]) -> Option<(usize, Seen)> {
        let mut empty_lines = 0;
        if self.begun.is_empty() {
            // Empty lines before a request do not belong to it (RFC 9112 §2.2).
            empty_lines = bytes
                .iter()
                .take_while(|byte| matches!(byte, b'\r' | b'\n'))
                .count();
            bytes = &bytes[empty_lines..];
            if let Some(seen) = seen(bytes) {
                return Some((empty_lines + seen.bytes, seen));
            }
        }
        let before = self.begun.len();
        self.begun.extend_from_slice(bytes);
        // The search also finds an empty line that begins in the earlier bytes.
        if has_empty_line(&self.begun[before.saturating_sub(2)..])
            && let Some(seen) = seen(&self.begun)
        {
            self.begun = Vec::new();
            return Some((empty_lines + seen.bytes - before, seen));
        }
        if self.begun.len() > self.head_bytes_max {
            self.begun = Vec::new();
            self.state = State::Unread;
        }
        None
    }
}

impl Seen {
    fn fault(&self) -> Option<HeadFault> {
        match self {
            Self { bare_lf: true, .. } => Some(HeadFault::BareLf),
            Self {
                length: Some(_),
                chunked: true,
                ..
            } => Some(HeadFault::TwoFramings),
            Self {
                repeated_length: true,
                ..
            } => Some(HeadFault::RepeatedLength),
            Self { fragment: true, .. } => Some(HeadFault::Fragment),
            _ => None,
        }
    }

    fn body(&self) -> State {
        match (self.chunked, self.length) {
            (true, _) => State::Chunks(ChunkWatch::new()),
            (false, Some(length)) if length > 0 => State::Length(length),
            (false, _) => State::Head,
        }
    }
}

fn has_empty_line(bytes: &[u8]) -> bool {
    memchr_iter(b'\n', bytes)
        .any(|end| matches!(bytes[end + 1..], [b'\n', ..] | [b'\r', b'\n', ..]))
}

/// The head at the beginning of these bytes, if it is complete.
fn seen(bytes: &[u8]) -> Option<Seen> {
    let mut seen = Seen::default();
    let mut start = 0;
    for end in memchr_iter(b'\n', bytes) {
        let line = match bytes[start..end] {
            [ref line @ .., b'\r'] => line,
            ref line => {
                seen.bare_lf = true;
                line
            }
        };
        match line {
            [] => {
                seen.bytes = end + 1;
                return Some(seen);
            }
            line if start == 0 => seen.fragment = memchr(b'#', line).is_some(),
            [b'c' | b'C', ..] => {
                if let Some(value) = value(line, b"content-length") {
                    seen.repeated_length |= seen.length.is_some();
                    seen.length = Some(number(value));
                }
            }
            [b't' | b'T', ..] => seen.chunked |= value(line, b"transfer-encoding").is_some(),
            _ => {}
        }
        start = end + 1;
    }
    None
}

/// The value of a line, if the line is this field.
fn value<'a>(line: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    let (start, rest) = line.split_at_checked(name.len())?;
    match rest {
        [b':', value @ ..] if start.eq_ignore_ascii_case(name) => Some(value.trim_ascii()),
        _ => None,
    }
}

/// A Content-Length. hyper refuses an invalid one.
fn number(digits: &[u8]) -> u64 {
    let text = std::str::from_utf8(digits).unwrap_or_default();
    text.parse().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Watches these bytes in pieces of this size. Returns the faults, and where the bytes are malformed.
    fn watched(bytes: &str, piece: usize) -> (Vec<(u64, HeadFault)>, u64, Option<usize>) {
        let mut watch = RequestWatch::new(1024, 0);
        let mut found = Vec::new();
        for (index, bytes) in bytes.as_bytes().chunks(piece).enumerate() {
            if let Err((_, at)) = watch.pass(bytes, |head, fault| found.push((head, fault))) {
                return (found, watch.heads, Some(index * piece + at));
            }
        }
        (found, watch.heads, None)
    }

    #[test]
    fn each_head_is_found_with_its_fault_in_any_division_into_pieces() {
        use HeadFault::{BareLf, Fragment, RepeatedLength, TwoFramings};
        const GET: &str = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
        const CHUNKED: &str = "PUT / HTTP/1.1\r\nTransfer-encoding: chunked\r\n\r\n";
        let bad = "PUT / HTTP/1.1\r\ntransfer-Encoding:chunked\r\nContent-Length: 3\r\n\r\n";
        let body = "PUT / HTTP/1.1\r\nCONTENT-LENGTH: \t3 \r\n\r\n";
        for (text, found, heads, malformed) in [
            (String::new(), vec![], 0, None),
            (GET.repeat(3), vec![], 3, None),
            (format!("\r\n\n{GET}\r\n{GET}"), vec![], 2, None),
            (GET.replace("a\r\n\r", "a\n\r"), vec![(0, BareLf)], 1, None),
            (GET.replace("a\r\n\r", "a\r\n"), vec![(0, BareLf)], 1, None),
            (GET.replace("1.1\r", "1.1"), vec![(0, BareLf)], 1, None),
            (
                format!("{GET}{}", GET.replace("/ ", "/#a ")),
                vec![(1, Fragment)],
                2,
                None,
            ),
            (GET.replace(": a", ": #a"), vec![], 1, None),
            // A body that looks like a head is not one.
            (format!("{body}\n\n\n{GET}"), vec![], 2, None),
            (
                format!("{body}\n#\n{}", GET.replace('/', "#")),
                vec![(1, Fragment)],
                2,
                None,
            ),
            (
                format!("{CHUNKED}1\r\n\n\r\n0\r\n\r\n{GET}"),
                vec![],
                2,
                None,
            ),
            (
                format!("{CHUNKED}1 \r\n\n\r\n0\r\n\r\n{GET}"),
                vec![],
                1,
                Some(CHUNKED.len() + 1),
            ),
            (
                format!("{bad}0\r\n\r\n{GET}"),
                vec![(0, TwoFramings)],
                2,
                None,
            ),
            (
                format!(
                    "{}abc{GET}",
                    body.replace("\r\n\r", "\r\ncontent-length:3\r\n\r")
                ),
                vec![(0, RepeatedLength)],
                2,
                None,
            ),
            (
                format!("GET / HTTP/1.1\r\nA: {}\r\n\r\n", "a".repeat(2000)),
                vec![],
                0,
                None,
            ),
        ] {
            for piece in (1..text.len().clamp(2, 200)).chain([1 << 20]) {
                let got = watched(&text, piece);
                assert_eq!(
                    got,
                    (found.clone(), heads, malformed),
                    "{text:?} by {piece}"
                );
            }
        }
    }

    #[test]
    fn raw_bytes_are_found_in_the_query_of_a_request_line_and_nowhere_else() {
        let get = "GET /a\"<>?b=^\"c^\"&d=^<^>?^\" HTTP/1.1\r\nX: ?\"<>\r\n\r\n";
        let put = "PUT /a HTTP/1.1\r\nReferer: /?\"\r\nContent-Length: 12\r\n\r\nGET /?\"<> \r\n";
        let marked = format!("\r\n{get}{put}{get}GET /?^<");
        // A caret marks each expected byte.
        let mut text = String::new();
        let mut expected = Vec::new();
        for character in marked.chars() {
            match character {
                '^' => expected.push(text.len()),
                character => text.push(character),
            }
        }
        for piece in 1..=text.len() {
            let mut watch = RequestWatch::new(1024, 0);
            let mut found = Vec::new();
            for (index, bytes) in text.as_bytes().chunks(piece).enumerate() {
                assert_eq!(watch.pass(bytes, |_, _| {}), Ok(()));
                found.extend(watch.raw_query().iter().map(|at| index * piece + at));
            }
            assert_eq!(found, expected, "in pieces of {piece}");
        }
    }

    #[test]
    fn a_head_has_a_limit_in_any_division_into_pieces() {
        const FRAME: &str = "GET / HTTP/1.1\r\nA: \n\r\n";
        for (length, found, heads) in [
            (1024, vec![(0, HeadFault::BareLf)], 1),
            (1025, vec![], 0),
            (5000, vec![], 0),
        ] {
            // Empty lines before the head do not count.
            let fill = "a".repeat(length - FRAME.len());
            let text = format!("\r\n\r\n{}", FRAME.replace(": ", &format!(": {fill}")));
            for piece in [1, 2, 3, 100, 1023, 1024, 1025, 1028, 1029, 1 << 20] {
                let got = watched(&text, piece);
                assert_eq!(got, (found.clone(), heads, None), "{length} by {piece}");
            }
        }
    }

    #[test]
    fn the_watch_buffers_at_most_one_head_and_one_piece() {
        let mut watch = RequestWatch::new(1024, 0);
        for bytes in [&b"\r\n"[..], b"x"] {
            for _ in 0..10_000 {
                let passed = watch.pass(bytes, |_, _| {});
                assert_eq!(passed, Ok(()));
                assert!(watch.begun.len() <= 1025);
            }
        }
        assert!(matches!(watch.state, State::Unread));
        assert_eq!((watch.begun.capacity(), watch.heads()), (0, 0));
    }

    #[test]
    fn a_request_is_whole_if_no_byte_of_another_has_passed() {
        let mut watch = RequestWatch::new(1024, 7);
        for (bytes, whole) in [
            (&b""[..], Some(7)),
            (b"\r\n", Some(7)),
            (b"G", None),
            (b"ET / HTTP/1.1\r\n\r\n", Some(8)),
            (b"PUT / HTTP/1.1\r\nContent-Length: 2\r\n\r\n", None),
            (b"a", None),
            (b"b", Some(9)),
            (
                b"PUT / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n",
                None,
            ),
            (b"\r\n\r\n", Some(10)),
        ] {
            assert_eq!(watch.pass(bytes, |_, _| {}), Ok(()));
            assert_eq!(watch.whole_requests(), whole, "{bytes:?}");
        }
    }
}
