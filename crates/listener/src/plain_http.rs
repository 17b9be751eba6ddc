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

/// The same for every request.
const ANSWER: &[u8] = b"HTTP/1.1 400 Bad Request\r\n\
    Content-Type: text/plain; charset=utf-8\r\n\
    Content-Length: 87\r\n\
    Connection: close\r\n\
    \r\n\
    This port accepts HTTPS only, and the request was plain HTTP. Use an https:// address.\n";

/// A client that sent plain HTTP to a port that speaks TLS.
#[derive(Debug, Error)]
#[error("the client sent plain HTTP to a TLS port")]
pub(crate) struct PlainHttp;

/// Whether a connection that begins with this byte speaks HTTP: a method is letters, a TLS handshake begins with 0x16.
pub(crate) fn is_http(first: u8) -> bool {
    first.is_ascii_alphabetic()
}

/// Sends the answer, then waits for the client to close the connection, within limits of time and bytes.
pub(crate) async fn answer(mut stream: impl AsyncRead + AsyncWrite + Unpin) {
    let exchange = async {
        stream.write_all(ANSWER).await?;
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
            assert!(is_http(method.as_bytes()[0]), "{method}");
        }
        for first in [0x16, 0x80, 0, b' ', b'\r', b'1', 0xff] {
            assert!(!is_http(first), "{first:#x}");
        }
    }

    #[test]
    fn the_answer_has_the_length_that_it_declares() {
        let answer = str::from_utf8(ANSWER).expect("ASCII");
        let (head, body) = answer.split_once("\r\n\r\n").expect("a head and a body");
        let declared = format!("Content-Length: {}\r\n", body.len());
        assert!(head.contains(&declared), "{declared}");
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
            let ((), bytes) = tokio::join!(answer(server), read);
            assert_eq!(bytes, ANSWER);
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
                answer(server).await;
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
            let ((), sent) = tokio::join!(answer(server), write);
            assert!(sent <= DISCARD_BYTES_MAX + (4 << 10), "{sent}");
            assert_eq!(start.elapsed(), Duration::ZERO);
        });
    }
}
