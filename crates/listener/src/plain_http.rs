//! Plain HTTP on a TLS port: the client gets an answer that it can read, in place of a TLS alert.

use std::{io, time::Duration};

use thiserror::Error;
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, copy, sink},
    time::timeout,
};

/// How long the client may take to read the answer and to close the connection.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);
/// How many bytes of the request are read and dropped in that time.
const DISCARD_BYTES_MAX: u64 = 64 << 10;

/// The methods of HTTP, and what a client of HTTP/2 begins with. A client of the PROXY protocol or of SSH, whose first
/// bytes are letters too, gets no answer in HTTP.
const METHODS: [&str; 10] = [
    "GET ", "HEAD ", "POST ", "PUT ", "DELETE ", "OPTIONS ", "PATCH ", "TRACE ", "CONNECT ", "PRI ",
];
/// Bytes of a connection that show whether it speaks HTTP.
pub(crate) const FIRST_BYTES: usize = 8;

const TEXT: &str =
    "This port accepts HTTPS only, and the request was plain HTTP. Use an https:// address.\n";

/// A client that sent plain HTTP to a port that speaks TLS.
#[derive(Debug, Error)]
#[error("the client sent plain HTTP to a TLS port")]
pub(crate) struct PlainHttp {
    /// What the answer's `X-Request-Id` says.
    pub(crate) request_id: String,
}

/// Whether a connection that begins with these bytes speaks HTTP. There is at least one byte; further ones may be on their
/// way.
pub(crate) fn is_http(first: &[u8]) -> bool {
    METHODS.iter().any(|method| {
        let length = method.len().min(first.len());
        method.as_bytes()[..length].eq_ignore_ascii_case(&first[..length])
    })
}

/// The answer to every request. `request_id` is the `id` of its access record.
fn response(request_id: &str) -> String {
    format!(
        "HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: {}\r\n\
         X-Request-Id: {request_id}\r\nConnection: close\r\n\r\n{TEXT}",
        TEXT.len()
    )
}

/// Sends the answer to a client that sent plain HTTP to a port that speaks TLS.
pub(crate) async fn answer(stream: impl AsyncRead + AsyncWrite + Unpin, request_id: &str) {
    send(stream, &response(request_id)).await;
}

/// Sends an answer, then waits for the client to close the connection, within limits of time and bytes.
pub(crate) async fn send(mut stream: impl AsyncRead + AsyncWrite + Unpin, response: &str) {
    let exchange = async {
        stream.write_all(response.as_bytes()).await?;
        stream.shutdown().await?;
        // A socket that is closed with unread bytes is reset, and a reset can discard the answer before the client reads it.
        copy(&mut stream.take(DISCARD_BYTES_MAX), &mut sink()).await?;
        io::Result::Ok(())
    };
    // A client that has gone, or stays too long, has nothing to learn from an error.
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
    fn letters_begin_http_and_nothing_else_does() {
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
    fn a_client_reads_the_whole_answer_and_its_end_ends_the_connection() {
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
    fn a_client_that_stays_is_cut_off() {
        run(async {
            // One client has no room for the answer, one never closes.
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
