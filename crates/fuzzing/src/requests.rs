//! Compares the codec that reads clients' requests and writes responses with the front that it replaced, on the same
//! bytes.
//!
//! Input: one byte that selects the pieces in which the rest arrives and the responses, then everything that the client
//! sends on its connection.
//!
//! Both must receive the same requests, with the same bytes in the bodies, and write the same responses. [`Difference`]
//! lists the permitted differences.

use bytes::{Bytes, BytesMut};
use http::{
    HeaderMap, HeaderName, HeaderValue, Method, Response, StatusCode, Version,
    header::{CONTENT_LENGTH, DATE},
};
use http1::{
    BodyCoding, BodyKind, BodySize, Decoded, Decoder, Fields, RequestHeadReader, ResponseHead,
};

use crate::former_front::{self, Answer, BodyEnd, Received, Served};

pub(crate) fn check(input: &[u8]) {
    let Some((&how, bytes)) = input.split_first() else {
        return;
    };
    // Another request follows the last complete one, so that both fronts must agree on where the last one ends.
    let bytes = match how & 0x80 {
        0 => [bytes, b"GET /last HTTP/1.1\r\nHost: a\r\n\r\n"].concat(),
        _ => bytes.to_vec(),
    };
    let piece = usize::from(how & 0x1f) + 1;
    let answer = |index, version| answer(index + usize::from(how >> 5), version);
    let former = former_front::serve(&bytes, piece, HEAD_BYTES_MAX, answer);
    let whole = serve(bytes.chunks(bytes.len().max(1)), answer);
    compare(&former, &whole);
    for pieces in [bytes.chunks(piece).collect(), growing(&bytes, piece)] {
        let divided = serve(pieces.into_iter(), answer);
        assert_eq!(divided.requests, whole.requests);
        assert_eq!(divided.output, whole.output);
    }
}

/// A permitted difference between the two fronts.
enum Difference {
    /// Both refuse the request, one of them while it reads the head, and the other because of a fault in the head.
    /// hyper does not read a Content-Length next to Transfer-Encoding, and the codec refuses the request if that
    /// Content-Length is not a number.
    BothRefuse,
    /// Only the codec refuses a Content-Length of 2^63 or more. Members that read a signed number refuse it too.
    Length,
    /// Only hyper refuses a body with more than 100 trailers, or with more bytes in them than a head may have. The
    /// codec refuses 16 KiB of extensions and trailers together, which no input here has. Both drop the trailers.
    Trailers,
}

fn compare(former: &Served, codec: &Served) {
    for index in 0..former.requests.len().max(codec.requests.len()) {
        let both = (former.requests.get(index), codec.requests.get(index));
        if difference(both).is_some() {
            return;
        }
        assert_eq!(
            both.0.map(comparable),
            both.1.map(comparable),
            "request {index}"
        );
    }
    // After these responses, hyper may also respond to a request that is incomplete or malformed.
    let (former, codec) = (former.output.escape_ascii(), codec.output.escape_ascii());
    let (former, codec) = (former.to_string(), codec.to_string());
    assert!(former.starts_with(&codec), "{former}\n{codec}");
}

fn difference(both: (Option<&Received>, Option<&Received>)) -> Option<Difference> {
    match both {
        (Some(one), None) | (None, Some(one)) if one.fault.is_some() => {
            Some(Difference::BothRefuse)
        }
        (Some(former), None) if former.length >= Some(1 << 63) => Some(Difference::Length),
        (Some(former), Some(codec)) if former.end == BodyEnd::Trailers => {
            assert_eq!(former.body, codec.body);
            Some(Difference::Trailers)
        }
        _ => None,
    }
}

/// The request without a Content-Length that is there twice, or next to Transfer-Encoding, because hyper drops that
/// field.
fn comparable(request: &Received) -> Received {
    let mut request = request.clone();
    if request.fault.is_some() {
        request.fields.remove(CONTENT_LENGTH);
    }
    request
}

fn map(fields: &Fields) -> HeaderMap {
    let mut map = HeaderMap::new();
    for field in fields.iter() {
        let name = HeaderName::from_bytes(field.name).expect("a name");
        map.append(name, HeaderValue::from_bytes(field.value).expect("a value"));
    }
    map
}

/// Serves these pieces with the codec.
fn serve<'a>(
    pieces: impl Iterator<Item = &'a [u8]>,
    answer: impl Fn(usize, Version) -> Response<Answer>,
) -> Served {
    let mut pieces = pieces.peekable();
    let mut served = Served::default();
    let mut buffer = BytesMut::new();
    let mut heads = RequestHeadReader::new(HEAD_BYTES_MAX);
    loop {
        let read = if buffer.is_empty() {
            Ok(None)
        } else {
            heads.read(&mut buffer)
        };
        let head = match (read, pieces.peek()) {
            (Ok(Some(head)), _) => head,
            (Ok(None), Some(piece)) => {
                buffer.extend_from_slice(piece);
                pieces.next();
                continue;
            }
            (Ok(None), None) | (Err(_), _) => return served,
        };
        let length = match head.body {
            BodyKind::Length(length) => Some(length),
            BodyKind::Chunked | BodyKind::UntilClose => None,
        };
        let (body, end) = read_body(Decoder::of_request(head.body), &mut buffer, &mut pieces);
        let is_complete = end == BodyEnd::Complete;
        let response = answer(served.requests.len(), head.version);
        served.requests.push(Received {
            method: head.method.clone(),
            target: head.target.to_string(),
            version: head.version,
            fields: map(&head.fields),
            fault: head.fault,
            length,
            has_upgrade: head.has_upgrade && head.method != Method::CONNECT,
            body,
            end,
        });
        if !is_complete {
            return served;
        }
        if head.expects_continue {
            let interim = b"HTTP/1.1 100 Continue\r\n\r\n";
            served.output.extend_from_slice(interim);
        }
        if !write(&mut served.output, &response, &head) {
            return served;
        }
    }
}

/// Reads a body up to its end or the end of the pieces.
pub(crate) fn read_body<'a>(
    mut decoder: Decoder,
    buffer: &mut BytesMut,
    pieces: &mut impl Iterator<Item = &'a [u8]>,
) -> (Vec<u8>, BodyEnd) {
    let mut body = Vec::new();
    let end = loop {
        match decoder.decode(buffer) {
            Ok(Decoded::Data(data)) => body.extend_from_slice(&data),
            Ok(Decoded::End) => break BodyEnd::Complete,
            Err(_) => break BodyEnd::Malformed,
            Ok(Decoded::Incomplete) => match pieces.next() {
                Some(piece) => buffer.extend_from_slice(piece),
                None => break BodyEnd::Incomplete,
            },
        }
    };
    assert_eq!(decoder.is_end(), end == BodyEnd::Complete);
    (body, end)
}

/// Writes a response. Returns whether the connection stays open.
fn write(out: &mut Vec<u8>, response: &Response<Answer>, request: &http1::RequestHead) -> bool {
    let answer = response.body();
    let head = ResponseHead {
        status: response.status(),
        version: request.version,
        fields: &Fields::from(response.headers()),
        date: &HeaderValue::from_static("never"),
        body: match &answer.data {
            None => BodySize::None,
            Some(data) if answer.has_length => BodySize::Length(data.len() as u64),
            Some(_) => BodySize::Unknown,
        },
        to_head: request.method == Method::HEAD,
        keeps_alive: request.keeps_alive,
    };
    let coding = head.write(out);
    match &answer.data {
        Some(data) if coding == BodyCoding::Chunked => {
            http1::begin_chunk(out, data.len());
            out.extend_from_slice(data);
            http1::end_chunk(out);
            http1::end_chunks(out);
        }
        Some(data) if coding != BodyCoding::None => out.extend_from_slice(data),
        _ => {}
    }
    request.keeps_alive && coding != BodyCoding::UntilClose
}

/// The response with this number. There are eight.
fn answer(number: usize, version: Version) -> Response<Answer> {
    let has_data = !number.is_multiple_of(4);
    let mut response = Response::new(Answer {
        data: has_data.then_some(Bytes::from_static(b"abc")),
        // In HTTP/1.0, after a body without a length, hyper writes `connection: keep-alive` and closes the connection.
        has_length: number % 4 != 1 || version == Version::HTTP_10,
    });
    *response.status_mut() = match number % 8 {
        // The proxy responds to CONNECT only with errors. After any other response to it, hyper reads no further
        // request.
        5 => StatusCode::NOT_MODIFIED,
        _ => StatusCode::NOT_FOUND,
    };
    let headers = response.headers_mut();
    headers.insert(DATE, HeaderValue::from_static("now"));
    if number % 4 == 3 {
        headers.insert(CONTENT_LENGTH, HeaderValue::from_static("3"));
    }
    response
}

fn growing(mut bytes: &[u8], first: usize) -> Vec<&[u8]> {
    let mut pieces = Vec::new();
    let mut length = first;
    while !bytes.is_empty() {
        length = length * 2 % 61 + 1;
        let (piece, rest) = bytes.split_at(length.min(bytes.len()));
        pieces.push(piece);
        bytes = rest;
    }
    pieces
}

/// A small limit, so that fuzz input reaches it.
const HEAD_BYTES_MAX: usize = 512;

pub(crate) const WORDS: &[&[u8]] = &[
    b"GET / HTTP/1.1\r\n",
    b"GET / HTTP/1.0\r\n",
    b"HEAD / HTTP/1.1\r\n",
    b"PUT /a?b HTTP/1.1\r\n",
    b"CONNECT a:1 HTTP/1.1\r\n",
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    b"Host: a\r\n",
    b"Content-Length: 3\r\n",
    b"Content-Length: 18446744073709551615\r\n",
    b"content-length:",
    b"Transfer-Encoding: chunked\r\n",
    b"transfer-encoding:gzip\r\n",
    b"Expect: 100-continue\r\n",
    b"Connection: close\r\n",
    b"Connection: keep-alive\r\n",
    b"connection:",
    b"Upgrade: x\r\n",
    b"0\r\n\r\n",
    b"3\r\nabc\r\n",
    b"3;a=\"b\\\"\"\r\nabc\r\n",
    b"A: b\r\n",
    b"\r\n\r\n",
    b"\r\n",
    b"\n",
    b"\r",
    b"#",
    b"?",
    b"\"",
    b"<",
    b",",
    b" ",
    b"\t",
    b";",
    b"+",
    b"\xff",
];
