//! A listener that redirects plain HTTP to HTTPS (`redirect_to_https`): one request and one response per connection.
//! The proxy uses only the request line. It trusts no header field and forwards nothing.

use std::io;

use thiserror::Error;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite};

use crate::{plain_http, preface::NoBytes};

/// Bytes that are read at once. Most heads are shorter.
const PIECE_BYTES: usize = 1 << 10;

/// A request that was answered.
#[derive(Debug)]
pub struct Redirected {
    /// The request up to the end of its head, or as much of it as was read.
    head: Vec<u8>,
    /// The status of the response.
    pub status: u16,
    /// Why the response is not a redirect, in kebab case.
    pub reason: Option<&'static str>,
    /// The `X-Request-Id` of the response.
    pub request_id: String,
}

impl Redirected {
    /// Method and target of the request, if it has a request line.
    pub fn request(&self) -> Option<(&[u8], &[u8])> {
        request_line(&self.head).map(|line| (line.method, line.target))
    }
}

/// A client that uses TLS or another protocol on a port for plain HTTP.
#[derive(Debug, Error)]
#[error("the client did not send plain HTTP")]
pub(crate) struct NotHttp;

/// Reads a request and redirects it to `base`, which is `https://` and the name of the proxy.
///
/// # Errors
/// The client closed the connection before the end of the head, or does not use HTTP. Such a client gets no response.
pub(crate) async fn answer(
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    (base, head_bytes_max): (&str, usize),
    request_id: String,
) -> io::Result<Redirected> {
    let head = read_head(&mut stream, head_bytes_max).await?;
    let location = request_line(&head).and_then(|line| Some((line.method, path(line.target)?)));
    let (status, reason) = match &location {
        _ if !is_whole(&head, 0) => (431, Some("head-too-large")),
        None => (400, Some("bad-head")),
        // Clients repeat the method after a 308. After a 301 they may change methods other than GET and HEAD to GET.
        Some((b"GET" | b"HEAD", _)) => (301, None),
        Some(_) => (308, None),
    };
    let location = location.filter(|_| reason.is_none());
    let location = location.map_or_else(String::new, |(_, path)| {
        format!("Location: {base}{path}\r\n")
    });
    let phrase = match status {
        301 => "Moved Permanently",
        308 => "Permanent Redirect",
        400 => "Bad Request",
        _ => "Request Header Fields Too Large",
    };
    let response = format!(
        "HTTP/1.1 {status} {phrase}\r\n{location}Content-Length: 0\r\nX-Request-Id: {request_id}\r\nConnection: close\r\n\r\n"
    );
    plain_http::send(stream, &response).await;
    Ok(Redirected {
        head,
        status,
        reason,
        request_id,
    })
}

/// Reads up to the end of the head, or up to the limit.
async fn read_head(stream: &mut (impl AsyncRead + Unpin), max: usize) -> io::Result<Vec<u8>> {
    let mut head = Vec::new();
    let mut piece = [0; PIECE_BYTES];
    loop {
        let room = PIECE_BYTES.min(max - head.len());
        let length = match stream.read(&mut piece[..room]).await {
            Ok(0) | Err(_) if head.is_empty() => {
                return Err(io::Error::new(io::ErrorKind::ConnectionAborted, NoBytes));
            }
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            length => length?,
        };
        let read_before = head.len();
        head.extend_from_slice(&piece[..length]);
        if !head[0].is_ascii_alphabetic() {
            return Err(io::Error::other(NotHttp));
        }
        if is_whole(&head, read_before) || head.len() == max {
            return Ok(head);
        }
    }
}

/// Whether a head ends in these bytes. The first `seen` bytes are known not to contain its end.
fn is_whole(head: &[u8], seen: usize) -> bool {
    let new = &head[seen.saturating_sub(3)..];
    new.windows(4).any(|end| end == b"\r\n\r\n")
}

struct RequestLine<'a> {
    method: &'a [u8],
    target: &'a [u8],
}

/// The first line of a head, if it is one of HTTP/1.0 or HTTP/1.1.
fn request_line(head: &[u8]) -> Option<RequestLine<'_>> {
    let end = head.windows(2).position(|end| end == b"\r\n")?;
    let mut words = head[..end].split(|byte| *byte == b' ');
    let (method, target) = (words.next()?, words.next()?);
    let is_http = matches!(words.next(), Some(b"HTTP/1.1" | b"HTTP/1.0")) && words.next().is_none();
    let is_method = !method.is_empty() && method.iter().all(u8::is_ascii_alphanumeric);
    // No other byte may enter a header of the response.
    let is_graphic = target.iter().all(u8::is_ascii_graphic);
    (is_http && is_method && is_graphic).then_some(RequestLine { method, target })
}

/// Path and query of a target. The path begins with a slash, so that it cannot change the host of the URL.
fn path(target: &[u8]) -> Option<&str> {
    let target = std::str::from_utf8(target).ok()?;
    if target.starts_with('/') {
        return Some(target);
    }
    // The absolute form, which clients of a forward proxy send.
    let (scheme, rest) = target.split_once("://")?;
    let path = rest.find('/').map_or("/", |start| &rest[start..]);
    scheme.eq_ignore_ascii_case("http").then_some(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn location(target: &str) -> Option<String> {
        let head = format!("GET {target} HTTP/1.1\r\n\r\n");
        let line = request_line(head.as_bytes())?;
        path(line.target).map(ToOwned::to_owned)
    }

    #[test]
    fn the_location_is_the_base_and_a_path_with_a_slash() {
        for (target, expected) in [
            ("/", Some("/")),
            ("/a/b?c=d", Some("/a/b?c=d")),
            ("//evil.example/x", Some("//evil.example/x")),
            ("http://evil.example/x?y", Some("/x?y")),
            ("HTTP://evil.example", Some("/")),
            ("@evil.example/", None),
            (".evil.example/", None),
            ("evil.example:443", None),
            ("ftp://evil.example/", None),
            ("*", None),
            ("", None),
            ("/a\tb", None),
            ("/a\u{e9}", None),
            ("/a\rSet-Cookie:x", None),
            ("/a\nSet-Cookie:x", None),
            ("/a HTTP/1.1 b", None),
        ] {
            assert_eq!(location(target).as_deref(), expected, "{target}");
        }
    }

    #[test]
    fn only_request_lines_of_http_1_are_accepted() {
        for line in [
            "PRI * HTTP/2.0",
            "GET /",
            "GET / HTTP/1.2",
            "GET  / HTTP/1.1",
            " / HTTP/1.1",
            "G\u{0}T / HTTP/1.1",
        ] {
            let head = format!("{line}\r\n\r\n");
            assert!(request_line(head.as_bytes()).is_none(), "{line}");
        }
    }
}
