//! Compares how the proxy and hyper's client parse a pool member's response.
//!
//! Input: one byte that selects the request method and the size of the chunks in which the response arrives. The rest
//! is everything that the member sends before it closes the connection.
//!
//! If the proxy parses a complete response, hyper must parse the same one. The proxy may reject responses that hyper
//! accepts.

use bytes::BytesMut;
use http::{
    HeaderMap, Method, Request, StatusCode,
    header::{CONTENT_LENGTH, TRANSFER_ENCODING},
};
use http_body_util::{BodyExt, Empty};
use http1::{Decoded, Decoder, HeadReader, Malformed};
use hyper::client::conn::http1::Builder;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

/// Status code, header fields and body of a complete response.
type CompleteResponse = (StatusCode, Vec<(String, Vec<u8>)>, Vec<u8>);

pub(crate) fn check(input: &[u8]) {
    let Some((&how, bytes)) = input.split_first() else {
        return;
    };
    let method = if how & 1 == 0 {
        Method::GET
    } else {
        Method::HEAD
    };
    let ours = read(&method, bytes, bytes.len().max(1));
    let piecewise = read(&method, bytes, usize::from(how >> 1) % 16 + 1);
    assert_eq!(ours.as_ref().ok(), piecewise.as_ref().ok(), "{bytes:?}");
    let Ok(ours) = ours else {
        return;
    };
    match read_with_hyper(method, bytes) {
        Ok(theirs) => assert_eq!(ours, theirs, "{bytes:?}"),
        // hyper parses trailers and may reject them. The proxy discards them without parsing.
        Err(_) if has_trailer(bytes) => {}
        Err(error) => panic!("{error}: {bytes:?}"),
    }
}

/// Whether the body may contain a trailer section. That is a part which ends with an empty line, and whose last line is
/// not the chunk size 0.
fn has_trailer(bytes: &[u8]) -> bool {
    let text = String::from_utf8_lossy(bytes);
    let ends = ["\n\r\n", "\n\n"].into_iter();
    let ends = ends.filter_map(|end| text.find(end).map(|at| at + end.len()));
    let Some(body) = ends.min() else {
        return false;
    };
    text[body..].split("\r\n\r\n").any(|part| {
        let last = part.rsplit("\r\n").next().unwrap_or_default();
        let size = last.split([';', ' ', '\t']).next().unwrap_or_default();
        u64::from_str_radix(size, 16) != Ok(0)
    })
}

/// Maximum fields of a head: the default of `response_fields_max`.
const FIELDS_MAX: usize = 256;

/// Parses the response as the proxy does.
fn read(method: &Method, bytes: &[u8], piece: usize) -> Result<CompleteResponse, Malformed> {
    let mut pieces = bytes.chunks(piece);
    let mut buffer = BytesMut::new();
    let mut reader = HeadReader::new(FIELDS_MAX);
    let head = loop {
        match reader.read(&mut buffer)? {
            Some(head) if is_interim(head.status) => {}
            Some(head) => break head,
            None => buffer.extend_from_slice(pieces.next().ok_or(Malformed::Incomplete)?),
        }
    };
    let mut decoder = Decoder::of_response(head.body(method)?);
    let mut body = Vec::new();
    loop {
        match decoder.decode(&mut buffer)? {
            Decoded::Data(data) => body.extend_from_slice(&data),
            Decoded::End => return Ok((head.status, fields(&head.fields.to_map()), body)),
            Decoded::Incomplete => match pieces.next() {
                Some(piece) => buffer.extend_from_slice(piece),
                None => decoder.closed()?,
            },
        }
    }
}

fn is_interim(status: StatusCode) -> bool {
    status.is_informational() && status != StatusCode::SWITCHING_PROTOCOLS
}

/// Parses the response with hyper's client.
fn read_with_hyper(method: Method, bytes: &[u8]) -> Result<CompleteResponse, hyper::Error> {
    let runtime = tokio::runtime::Builder::new_current_thread().build();
    runtime.expect("a runtime").block_on(async {
        let (near, mut far) = duplex(1 << 20);
        let mut builder = Builder::new();
        builder
            .max_header_size(http1::HEAD_BYTES_MAX)
            .max_headers(FIELDS_MAX);
        let (mut sender, connection) = builder.handshake(TokioIo::new(near)).await?;
        let member = async move {
            let mut request = Vec::new();
            while !request.ends_with(b"\r\n\r\n") {
                far.read_buf(&mut request).await.expect("a request");
            }
            far.write_all(bytes).await.expect("room for all");
            // hyper may already have closed the connection because it rejected the response.
            let _ = far.shutdown().await;
            far
        };
        let exchange = async {
            let mut request = Request::new(Empty::<bytes::Bytes>::new());
            *request.method_mut() = method;
            let (head, body) = sender.send_request(request).await?.into_parts();
            let body = body.collect().await?.to_bytes();
            Ok((head.status, fields(&head.headers), body.to_vec()))
        };
        // Connection errors after the response do not matter here.
        let (_, whole, _) = tokio::join!(member, exchange, connection);
        whole
    })
}

/// Header fields sorted by name, without `Content-Length` and `Transfer-Encoding`: hyper removes some of them.
fn fields(headers: &HeaderMap) -> Vec<(String, Vec<u8>)> {
    let framing = [CONTENT_LENGTH, TRANSFER_ENCODING];
    let kept_fields = headers.iter().filter(|(name, _)| !framing.contains(name));
    let mut fields: Vec<_> = kept_fields
        .map(|(name, value)| (name.as_str().to_owned(), value.as_bytes().to_vec()))
        .collect();
    fields.sort();
    fields
}

pub(crate) const WORDS: &[&[u8]] = &[
    b"HTTP/1.1 200 OK\r\n",
    b"HTTP/1.0 200 OK\r\n",
    b"HTTP/1.1 100 Continue\r\n\r\n",
    b"HTTP/1.1 101 Switching Protocols\r\n",
    b"HTTP/1.1 204 No Content\r\n",
    b"HTTP/1.1 304 Not Modified\r\n",
    b"Content-Length: 3\r\n",
    b"Content-Length: ",
    b"Transfer-Encoding: chunked\r\n",
    b"Transfer-Encoding: gzip, chunked\r\n",
    b"Connection: close\r\n",
    b"\r\n",
    b"\n",
    b"\r",
    b"\r\n\r\n",
    b"0\r\n\r\n",
    b"3\r\nabc\r\n",
    b"3;a=b\r\n",
    b" ",
    b"\t",
    b",",
    b":",
    b"\0",
];
