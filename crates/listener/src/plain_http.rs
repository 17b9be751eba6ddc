//! Plain HTTP on a TLS port: the client gets a readable response in place of a TLS alert.

use std::{io, time::Duration};

use thiserror::Error;
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, copy, sink},
    time::timeout,
};

/// How long the client may take to read the response and to close the connection.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);
/// How many bytes of the request the proxy reads and discards in that time.
const DISCARD_BYTES_MAX: u64 = 64 << 10;

/// The methods of HTTP, and the preface of HTTP/2. Clients of the PROXY protocol or of SSH also begin with letters, and get no
/// HTTP response.
const METHODS: [&str; 10] = [
    "GET ", "HEAD ", "POST ", "PUT ", "DELETE ", "OPTIONS ", "PATCH ", "TRACE ", "CONNECT ", "PRI ",
];
/// How many bytes of a connection show whether it is HTTP.
pub(crate) const FIRST_BYTES: usize = 8;

const TEXT: &str =
    "This port accepts HTTPS only, and the request was plain HTTP. Use an https:// address.\n";

/// A client that sent plain HTTP to a TLS port.
#[derive(Debug, Error)]
#[error("the client sent plain HTTP to a TLS port")]
pub(crate) struct PlainHttp {
    /// The `X-Request-Id` of the response.
    pub(crate) request_id: String,
}

/// Whether a connection that begins with these bytes is HTTP. There is at least one byte, and more may follow.
pub(crate) fn is_http(first: &[u8]) -> bool {
    METHODS.iter().any(|method| {
        let length = method.len().min(first.len());
        method.as_bytes()[..length].eq_ignore_ascii_case(&first[..length])
    })
}

/// The response to every request. `request_id` is the `id` of its access record.
fn response(request_id: &str) -> String {
    format!(
        "HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: {}\r\n\
         X-Request-Id: {request_id}\r\nConnection: close\r\n\r\n{TEXT}",
        TEXT.len()
    )
}

/// Answers a client that sent plain HTTP to a TLS port.
pub(crate) async fn answer(stream: impl AsyncRead + AsyncWrite + Unpin, request_id: &str) {
    send(stream, &response(request_id)).await;
}

/// Sends a response, then waits for the client to close the connection, within limits of time and bytes.
pub(crate) async fn send(mut stream: impl AsyncRead + AsyncWrite + Unpin, response: &str) {
    let exchange = async {
        stream.write_all(response.as_bytes()).await?;
        stream.shutdown().await?;
        // The system resets a socket that is closed with unread bytes. A reset can discard the response before the
        // client reads it.
        copy(&mut stream.take(DISCARD_BYTES_MAX), &mut sink()).await?;
        io::Result::Ok(())
    };
    // An error has no consequence: the client has gone, or took too long.
    let _ = timeout(CLOSE_TIMEOUT, exchange).await;
}

#[cfg(test)]
mod tests {
    use tokio::{io::duplex, runtime, time::Instant};

    use super::*;

    const ID: &str = "0123456789abcdef0123456789abcdef";

    fn run(test: impl Future<Output = ()>) {
        let runtime = runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build();
        runtime.expect("a runtime").block_on(test);
    }

    #[test]
    fn only_http_methods_begin_plain_http() {
        for method in ["GET", "PUT", "POST", "HEAD", "OPTIONS", "PRI", "get"] {
            let request = format!("{method} / HTTP/1.1");
            for length in 1..request.len() {
                assert!(is_http(&request.as_bytes()[..length]), "{method} {length}");
            }
        }
        for first in [0x16, 0x80, 0, b' ', b'\r', b'1', 0xff] {
            assert!(!is_http(&[first]), "{first:#x}");
        }
        for other in ["PROXY TCP4 192.0.2.1", "SSH-2.0-OpenSSH"] {
            assert!(!is_http(&other.as_bytes()[..FIRST_BYTES]), "{other}");
        }
    }

    #[test]
    fn a_client_reads_the_whole_response_and_closes_the_connection() {
        run(async {
            let (mut client, server) = duplex(64 << 10);
            let request = b"PUT /puppet/v3/report/web01 HTTP/1.1\r\n\r\n";
            client.write_all(request).await.expect("room");
            let read = async {
                let mut bytes = Vec::new();
                client.read_to_end(&mut bytes).await.expect("an answer");
                drop(client);
                bytes
            };
            let start = Instant::now();
            let ((), bytes) = tokio::join!(answer(server, ID), read);
            let text = String::from_utf8(bytes).expect("ASCII");
            let (head, body) = text.split_once("\r\n\r\n").expect("a head and a body");
            let declared = format!("Content-Length: {}\r\n", body.len());
            assert!(head.contains(&declared), "{declared}");
            assert!(head.contains(&format!("X-Request-Id: {ID}\r\n")), "{head}");
            assert_eq!(start.elapsed(), Duration::ZERO);
        });
    }

    #[test]
    fn a_client_that_does_not_close_is_disconnected() {
        run(async {
            // The first client has no room for the response, the second never closes the connection.
            for room in [1, 64 << 10] {
                let (client, server) = duplex(room);
                let start = Instant::now();
                answer(server, ID).await;
                assert_eq!(start.elapsed(), CLOSE_TIMEOUT, "{room}");
                drop(client);
            }
        });
    }

    #[test]
    fn a_request_without_an_end_is_read_up_to_a_limit() {
        run(async {
            let (mut client, server) = duplex(4 << 10);
            let write = async {
                let mut sent = 0;
                while let Ok(written) = client.write(&[b'x'; 1 << 10]).await {
                    sent += written as u64;
                }
                sent
            };
            let start = Instant::now();
            let ((), sent) = tokio::join!(answer(server, ID), write);
            assert!(sent <= DISCARD_BYTES_MAX + (4 << 10), "{sent}");
            assert_eq!(start.elapsed(), Duration::ZERO);
        });
    }
}
