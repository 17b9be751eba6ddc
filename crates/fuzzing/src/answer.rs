//! Responses of members as the proxy reads them, beside hyper's client.
//!
//! Input: a byte with the method and the size of the pieces that the response comes in, then all that the member sends before
//! it closes. What the proxy takes for a whole response hyper takes for the same one. The proxy may refuse more.

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

/// Status code, fields and body of a whole response.
type Whole = (StatusCode, Vec<(String, Vec<u8>)>, Vec<u8>);

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
    match by_hyper(method, bytes) {
        Ok(theirs) => assert_eq!(ours, theirs, "{bytes:?}"),
        // hyper parses trailers. The proxy drops them unread.
        Err(_) if has_trailer(bytes) => {}
        Err(error) => panic!("{error}: {bytes:?}"),
    }
}

/// Whether a line that is not a size comes before an empty line behind the head.
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

/// As the proxy reads it.
fn read(method: &Method, bytes: &[u8], piece: usize) -> Result<Whole, Malformed> {
    let mut pieces = bytes.chunks(piece);
    let mut buffer = BytesMut::new();
    let mut reader = HeadReader::default();
    let head = loop {
        match reader.read(&mut buffer, &mut HeaderMap::new())? {
            Some(head) if is_interim(head.status) => {}
            Some(head) => break head,
            None => buffer.extend_from_slice(pieces.next().ok_or(Malformed::Incomplete)?),
        }
    };
    let mut decoder = Decoder::new(head.body(method)?);
    let mut body = Vec::new();
    loop {
        match decoder.decode(&mut buffer)? {
            Decoded::Data(data) => body.extend_from_slice(&data),
            Decoded::End => return Ok((head.status, fields(&head.headers), body)),
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

/// As hyper's client reads it.
fn by_hyper(method: Method, bytes: &[u8]) -> Result<Whole, hyper::Error> {
    let runtime = tokio::runtime::Builder::new_current_thread().build();
    runtime.expect("a runtime").block_on(async {
        let (near, mut far) = duplex(1 << 20);
        let mut builder = Builder::new();
        builder.max_header_size(http1::HEAD_BYTES_MAX);
        let (mut sender, connection) = builder.handshake(TokioIo::new(near)).await?;
        let member = async move {
            let mut request = Vec::new();
            while !request.ends_with(b"\r\n\r\n") {
                far.read_buf(&mut request).await.expect("a request");
            }
            far.write_all(bytes).await.expect("room for all");
            // hyper may have closed it for what it does not like.
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
        // Errors after the response do not matter here.
        let (_, whole, _) = tokio::join!(member, exchange, connection);
        whole
    })
}

/// Fields in order of their names, without those that frame the response: hyper takes some of them out.
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
