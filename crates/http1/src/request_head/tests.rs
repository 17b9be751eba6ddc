//! Request heads, in every division into pieces.

use super::*;

/// Reads a head that arrives in pieces of this size. Returns the head and the bytes after it.
fn read(
    bytes: &[u8],
    piece: usize,
    bytes_max: usize,
) -> Result<Option<(RequestHead, Vec<u8>)>, RefusedHead> {
    let mut reader = RequestHeadReader::new(bytes_max);
    let mut buffer = BytesMut::new();
    let mut pieces = bytes.chunks(piece);
    while let Some(piece) = pieces.next() {
        buffer.extend_from_slice(piece);
        if let Some(head) = reader.read(&mut buffer)? {
            buffer.extend(pieces.flatten());
            return Ok(Some((head, buffer.to_vec())));
        }
    }
    Ok(None)
}

const BYTES_MAX: usize = 64 << 10;

/// Reads a complete head in pieces of every size and checks that the result is the same. Returns what `see` returns.
fn seen<T: PartialEq + std::fmt::Debug>(bytes: &str, see: impl Fn(&RequestHead) -> T) -> T {
    let read = |piece| {
        let read = read(bytes.as_bytes(), piece, BYTES_MAX);
        let (head, rest) = read.expect("a request").expect("a whole head");
        assert_eq!(rest, b"", "{bytes:?} by {piece}");
        see(&head)
    };
    let whole = read(bytes.len());
    for piece in 1..bytes.len() {
        assert_eq!(read(piece), whole, "{bytes:?} by {piece}");
    }
    whole
}

fn refused(bytes: &str, expected: RefusedHead) {
    for piece in 1..=bytes.len() {
        let got = read(bytes.as_bytes(), piece, BYTES_MAX).map(|_| ());
        assert_eq!(got, Err(expected), "{bytes:?} by {piece}");
    }
}

#[test]
fn a_head_is_read_with_its_fields_and_nothing_behind_it() {
    let text = "\r\n\nPUT /a?b=c HTTP/1.1\r\nA: b\r\nC:\t d \r\na:\r\n\r\nrest\r\n\r\n";
    for piece in 1..=text.len() {
        let read = read(text.as_bytes(), piece, BYTES_MAX).expect("a request");
        let (head, rest) = read.expect("a whole head");
        assert_eq!(rest, b"rest\r\n\r\n");
        assert_eq!((head.method, head.version), (Method::PUT, Version::HTTP_11));
        assert_eq!(head.target, "/a?b=c");
        assert_eq!((head.body, head.fault), (BodyKind::Length(0), None));
        let fields = head.fields.iter();
        let fields: Vec<_> = fields.map(|field| (field.text(), field.value)).collect();
        let expected: [(&str, &[u8]); 3] = [("a", b"b"), ("c", b"d"), ("a", b"")];
        assert_eq!(fields, expected, "by {piece}");
    }
}

#[test]
fn heads_follow_each_other() {
    let mut reader = RequestHeadReader::new(BYTES_MAX);
    let mut buffer = BytesMut::from("GET /1 HTTP/1.1\nA: b\n\nGET /2 HTTP/1.1\r\n\r\nGET");
    let mut faults = Vec::new();
    while let Some(head) = reader.read(&mut buffer).expect("a request") {
        faults.push((head.target.to_string(), head.fault, head.fields.len()));
    }
    let expected = [
        ("/1".to_owned(), Some(HeadFault::BareLf), 1),
        ("/2".to_owned(), None, 0),
    ];
    assert_eq!(faults, expected);
    assert_eq!(buffer, "GET");
}

#[test]
fn each_fault_is_found_in_each_of_its_forms() {
    use HeadFault::{BareLf, Fragment, RepeatedLength, TwoFramings};
    const CHUNKED: &str = "Transfer-encoding: chunked\r\n";
    const LENGTH: &str = "CONTENT-LENGTH: 3\r\n";
    let fields = |fields: &[&str]| format!("PUT / HTTP/1.1\r\n{}\r\n", fields.concat());
    for (text, fault) in [
        (fields(&["Host: a\r\n"]), None),
        (fields(&["Host: #a\r\n"]), None),
        (fields(&[CHUNKED]), None),
        (fields(&[LENGTH]), None),
        ("PUT / HTTP/1.1\n\r\n".to_owned(), Some(BareLf)),
        ("PUT / HTTP/1.1\r\n\n".to_owned(), Some(BareLf)),
        (fields(&["A: b\n"]), Some(BareLf)),
        (fields(&["A: b\n", CHUNKED, LENGTH]), Some(BareLf)),
        (fields(&[CHUNKED, LENGTH]), Some(TwoFramings)),
        (fields(&[LENGTH, CHUNKED]), Some(TwoFramings)),
        (fields(&[LENGTH, CHUNKED, LENGTH]), Some(TwoFramings)),
        (fields(&[LENGTH, "A: b\r\n", LENGTH]), Some(RepeatedLength)),
        (fields(&[LENGTH, LENGTH, LENGTH]), Some(RepeatedLength)),
        (
            fields(&[LENGTH, "content-length:03\r\n"]),
            Some(RepeatedLength),
        ),
        ("GET /#a HTTP/1.1\r\n\r\n".to_owned(), Some(Fragment)),
        ("GET /?a# HTTP/1.1\r\n\r\n".to_owned(), Some(Fragment)),
        ("G# / HTTP/1.1\r\n\r\n".to_owned(), Some(Fragment)),
        (
            "GET http://a/#b HTTP/1.1\r\n\r\n".to_owned(),
            Some(Fragment),
        ),
    ] {
        assert_eq!(seen(&text, |head| head.fault), fault, "{text:?}");
    }
}

#[test]
fn a_body_is_framed_by_chunks_or_a_length() {
    for (fields, body) in [
        ("", BodyKind::Length(0)),
        ("Content-Length: 0\r\n", BodyKind::Length(0)),
        ("Content-Length:\t007 \r\n", BodyKind::Length(7)),
        (
            "Content-Length: 9223372036854775807\r\n",
            BodyKind::Length(LENGTH_MAX),
        ),
        ("Transfer-Encoding: Chunked\r\n", BodyKind::Chunked),
        ("Transfer-Encoding: gzip , chunked\r\n", BodyKind::Chunked),
        (
            "Transfer-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n",
            BodyKind::Chunked,
        ),
    ] {
        let text = format!("PUT / HTTP/1.1\r\n{fields}\r\n");
        assert_eq!(seen(&text, |head| head.body), body, "{fields:?}");
    }
}

#[test]
fn a_client_keeps_its_connection_as_its_version_and_connection_fields_say() {
    for (version, lines, expected) in [
        ("1.1", &[][..], true),
        ("1.1", &["close"], false),
        ("1.1", &["Close"], false),
        ("1.1", &["keep-alive"], true),
        ("1.1", &["foo, close ,bar"], false),
        ("1.1", &["foo", "close"], false),
        ("1.1", &["close", "keep-alive"], false),
        ("1.1", &["keep-alive", "close"], false),
        ("1.1", &["closed"], true),
        ("1.1", &["\"close\""], true),
        ("1.1", &["close, é"], true),
        ("1.0", &[], false),
        ("1.0", &["keep-alive"], true),
        ("1.0", &["foo,\tKeep-Alive"], true),
        ("1.0", &["keep-alive", "foo"], true),
        ("1.0", &["foo", "keep-alive"], true),
        ("1.0", &["keep-alive", "close"], false),
        ("1.0", &["close", "keep-alive"], false),
        ("1.0", &["keep-alive, close"], false),
    ] {
        let lines: String = lines
            .iter()
            .map(|line| format!("Connection: {line}\r\n"))
            .collect();
        let text = format!("GET / HTTP/{version}\r\n{lines}\r\n");
        assert_eq!(seen(&text, |head| head.keeps_alive), expected, "{text:?}");
    }
    let both = "PUT / HTTP/1.1\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n";
    assert!(!seen(both, |head| head.keeps_alive));
}

#[test]
fn a_client_waits_for_100_continue_only_in_http_1_1_and_with_a_body() {
    const LENGTH: &str = "Content-Length: 1\r\n";
    const EXPECT: &str = "Expect: 100-Continue\r\n";
    for (version, fields, expected) in [
        ("1.1", [EXPECT, LENGTH], true),
        ("1.1", [LENGTH, EXPECT], true),
        ("1.1", ["Transfer-Encoding: chunked\r\n", EXPECT], true),
        ("1.1", [EXPECT, "Content-Length: 0\r\n"], false),
        ("1.1", [EXPECT, ""], false),
        ("1.1", ["", LENGTH], false),
        ("1.1", ["Expect: 100-continue, a\r\n", LENGTH], false),
        ("1.0", [EXPECT, LENGTH], false),
    ] {
        let text = format!("PUT / HTTP/{version}\r\n{}\r\n", fields.concat());
        assert_eq!(
            seen(&text, |head| head.expects_continue),
            expected,
            "{text:?}"
        );
    }
}

#[test]
fn an_upgrade_field_counts_only_in_http_1_1() {
    for (version, field, expected) in [
        ("1.1", "Upgrade: websocket\r\n", true),
        ("1.0", "Upgrade: websocket\r\n", false),
        ("1.1", "Connection: upgrade\r\n", false),
    ] {
        let text = format!("GET / HTTP/{version}\r\n{field}\r\n");
        assert_eq!(seen(&text, |head| head.has_upgrade), expected, "{text:?}");
    }
}

#[test]
fn a_malformed_head_is_refused() {
    use RefusedHead::{Coding, CodingInHttp10, Field, Http2, Length, Method, Target, Version};
    for (line, expected) in [
        ("", Method),
        ("G(T / HTTP/1.1", Method),
        ("\u{16}\u{3}\u{1}", Method),
        ("SSH-2.0-OpenSSH_9.2", Method),
        (" GET / HTTP/1.1", Method),
        ("GET /\u{0} HTTP/1.1", Target),
        ("GET http://[ HTTP/1.1", Target),
        ("GET", Method),
        ("GET /", Version),
        ("GET  / HTTP/1.1", Target),
        ("GET / HTTP/1.2", Version),
        ("GET / HTTP/2.0", Version),
        ("GET / http/1.1", Version),
        ("GET /  HTTP/1.1", Version),
        ("GET / HTTP/1.1 ", Version),
        ("PRI * HTTP/2.0", Http2),
    ] {
        let empty = if line.is_empty() { "\0" } else { "" };
        refused(&format!("{empty}{line}\r\nHost: a\r\n\r\n"), expected);
    }
    for (fields, expected) in [
        ("A b: c", Field),
        ("A : b", Field),
        (": b", Field),
        ("A", Field),
        (" A: b", Field),
        ("A: b\r\n c", Field),
        ("A: b\rC: d", Field),
        ("A: \0", Field),
        ("A: \u{7f}", Field),
        ("Content-Length: ", Length),
        ("Content-Length: a", Length),
        ("Content-Length: +3", Length),
        ("Content-Length: -3", Length),
        ("Content-Length: 3 3", Length),
        ("Content-Length: 3, 3", Length),
        ("Content-Length: 0x3", Length),
        ("Content-Length: 9223372036854775808", Length),
        ("Content-Length: 18446744073709551615", Length),
        ("Content-Length: 18446744073709551616", Length),
        ("Content-Length: 3\r\nContent-Length: 4", Length),
        ("Transfer-Encoding: chunked\r\nContent-Length: a", Length),
        ("Transfer-Encoding: gzip", Coding),
        ("Transfer-Encoding: ", Coding),
        ("Transfer-Encoding: chunked, gzip", Coding),
        ("Transfer-Encoding: chunked,", Coding),
        ("Transfer-Encoding: xchunked", Coding),
        ("Transfer-Encoding: é, chunked", Coding),
        (
            "Transfer-Encoding: chunked\r\nTransfer-Encoding: gzip",
            Coding,
        ),
    ] {
        refused(&format!("PUT / HTTP/1.1\r\n{fields}\r\n\r\n"), expected);
    }
    refused(
        "PUT / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n",
        CodingInHttp10,
    );
    refused("\r\n\rGET / HTTP/1.1\r\n\r\n", Method);
}

#[test]
fn a_beginning_that_cannot_become_a_request_is_refused_before_its_end() {
    for (bytes, expected) in [
        ("\u{16}\u{3}\u{1}", RefusedHead::Method),
        ("SSH-2.0-OpenSSH_9.2\r\n", RefusedHead::Method),
        ("GET / HTTP/3\r\n", RefusedHead::Version),
        ("GET /\u{1}", RefusedHead::Target),
        ("\r\n\r\nPRI * HTTP/2.0\r\n", RefusedHead::Http2),
    ] {
        let got = read(bytes.as_bytes(), bytes.len(), BYTES_MAX).map(|_| ());
        assert_eq!(got, Err(expected), "{bytes:?}");
    }
    for bytes in [
        "G",
        "GET /",
        "\r\n\r",
        "GET / HTTP/1.1\r\nA: b\r\n",
        "PRI * HT",
    ] {
        let got = read(bytes.as_bytes(), bytes.len(), BYTES_MAX);
        assert!(matches!(got, Ok(None)), "{bytes:?}");
    }
}

#[test]
fn a_head_has_a_limit_in_any_division_into_pieces() {
    const FRAME: &str = "GET /?q HTTP/1.1\r\nA: \r\n\r\n";
    const MAX: usize = 100;
    for (length, empty_lines, query) in [
        (MAX, "", "q"),
        (MAX - 3, "\r\n\n", "q"),
        // Encoding makes each of these bytes two bytes longer.
        (MAX - 6, "", "\"<>"),
    ] {
        for (more, is_read) in [(0, true), (1, false), (1000, false)] {
            let fill = "a".repeat(length + more - FRAME.len() + 1 - query.len());
            let text = FRAME
                .replace(": ", &format!(": {fill}"))
                .replace('q', query);
            assert_eq!(text.len(), length + more);
            let text = format!("{empty_lines}{text}rest");
            for piece in 1..=text.len() {
                let got = read(text.as_bytes(), piece, MAX);
                match (is_read, got) {
                    (true, Ok(Some((_, rest)))) => assert_eq!(rest, b"rest"),
                    (false, Err(RefusedHead::TooLarge)) => {}
                    (_, got) => panic!("{text:?} by {piece}: {got:?}"),
                }
            }
        }
    }
    for endless in ["\r\n", "\n", "a"] {
        for piece in [1, 2, 3, MAX, MAX + 1] {
            let got = read(endless.repeat(MAX).as_bytes(), piece, MAX);
            assert!(
                matches!(got, Err(RefusedHead::TooLarge)),
                "{endless:?} by {piece}"
            );
        }
    }
}

#[test]
fn a_head_has_at_most_100_fields() {
    for (fields, is_read) in [(100, true), (101, false)] {
        let text = format!("GET / HTTP/1.1\r\n{}\r\n", "a:\r\n".repeat(fields));
        for piece in 1..=text.len() {
            match (is_read, read(text.as_bytes(), piece, BYTES_MAX)) {
                (true, Ok(Some((head, _)))) => assert_eq!(head.fields.len(), fields),
                (false, Err(RefusedHead::TooLarge)) => {}
                (_, got) => panic!("{fields} by {piece}: {got:?}"),
            }
        }
    }
}

#[test]
fn a_target_has_a_limit_that_counts_encoded_bytes() {
    for (query, more) in [("?", 0), ("?\"", 2), ("?<>", 4)] {
        for (length, is_read) in [(TARGET_BYTES_MAX, true), (TARGET_BYTES_MAX + 1, false)] {
            let path = "a".repeat(length - more - 1 - query.len());
            let text = format!("GET /{path}{query} HTTP/1.1\r\n\r\n");
            for piece in [1000, TARGET_BYTES_MAX, text.len()] {
                match (is_read, read(text.as_bytes(), piece, 2 * TARGET_BYTES_MAX)) {
                    (true, Ok(Some((head, _)))) => {
                        assert_eq!(head.target.to_string().len(), length);
                    }
                    (false, Err(RefusedHead::TargetTooLong)) => {}
                    (_, got) => panic!("{query:?} by {piece}: {:?}", got.map(|_| ())),
                }
            }
        }
    }
}

#[test]
fn raw_bytes_are_encoded_in_the_query_and_nowhere_else() {
    for (target, expected) in [
        ("/a\"b", "/a\"b"),
        ("/a?b", "/a?b"),
        ("/a\"?b=\"c\"&d=<>?\"", "/a\"?b=%22c%22&d=%3C%3E?%22"),
        ("http://h/?\"", "http://h/?%22"),
    ] {
        let text = format!("GET {target} HTTP/1.1\r\nX: ?\"<>\r\n\r\n");
        let got = seen(&text, |head| {
            let value = head.fields.all("x").next().map(<[u8]>::to_vec);
            (head.target.to_string(), value)
        });
        assert_eq!(got, (expected.to_owned(), Some(b"?\"<>".to_vec())));
    }
}
