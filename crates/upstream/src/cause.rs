//! Why an exchange over HTTP failed, in our own words.

use std::{error::Error, io};

pub use pki::Peer;

/// What lies at the bottom of an error of a connection: that of HTTP, TLS or the system.
pub fn cause(error: &(dyn Error + 'static), peer: Peer) -> String {
    pki::cause(error, peer, |error| of_http(error.downcast_ref()?, peer))
}

fn of_http(error: &hyper::Error, peer: Peer) -> Option<String> {
    let (name, message) = (peer.as_str(), peer.message());
    if error.is_incomplete_message() {
        return Some(format!(
            "{name} closed the connection before the {message} was complete"
        ));
    }
    if error.to_string() == UNEXPECTED {
        return Some(format!("{name} sent bytes that belong to no {message}"));
    }
    if error.is_parse_too_large() {
        return Some(format!("the head of the {message} is too large"));
    }
    if error.is_parse() {
        let text = error.to_string();
        let fault = text.replace(" parsed", "");
        return Some(format!("malformed {message}: {fault}"));
    }
    let source = error.source();
    let broken = source.and_then(|source| source.downcast_ref::<io::Error>());
    match broken.map(io::Error::kind) {
        // hyper reports framing that is wrong as bad input.
        Some(io::ErrorKind::InvalidInput) => {
            let fault = pki::cause(broken?, peer, |_| None);
            Some(format!("malformed {message} body: {fault}"))
        }
        None if source.is_none() && (error.is_closed() || error.is_canceled()) => {
            Some("the connection was closed before the request was sent".to_owned())
        }
        _ => None,
    }
}

/// hyper's only name for bytes on an idle connection.
const UNEXPECTED: &str = "received unexpected message from connection";

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use http::Request;
    use http_body_util::{BodyExt, Empty};
    use hyper::client::conn::http1;
    use hyper_util::rt::TokioIo;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    /// What hyper says of a member that answers a request with this and closes.
    async fn answered(answer: &[u8]) -> hyper::Error {
        let (ours, mut theirs) = tokio::io::duplex(1 << 20);
        let (mut sender, connection) = http1::Builder::new()
            .max_buf_size(8 << 10)
            .handshake::<_, Empty<Bytes>>(TokioIo::new(ours))
            .await
            .expect("no handshake");
        let exchange = async {
            let request = Request::get("/").body(Empty::new()).expect("a request");
            let answer = sender.send_request(request).await?;
            answer.into_body().collect().await
        };
        let member = async {
            theirs.read_u8().await.expect("a request");
            theirs.write_all(answer).await.expect("written");
            theirs.shutdown().await.expect("closed");
        };
        let (exchanged, (), _) = tokio::join!(exchange, member, connection);
        exchanged.expect_err("no answer")
    }

    #[tokio::test]
    async fn what_hyper_says_of_a_broken_answer_has_words_of_ours() {
        let large = format!("HTTP/1.1 200 OK\r\nx: {}\r\n\r\n", "x".repeat(16 << 10));
        for (answer, expected) in [
            (
                "",
                "the member closed the connection before the response was complete",
            ),
            (
                "HTTP/1.1 200",
                "the member closed the connection before the response was complete",
            ),
            (
                "HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhalf",
                "the member closed the connection before the response was complete",
            ),
            (
                "SSH-2.0-OpenSSH\r\n\r\n",
                "malformed response: invalid HTTP version",
            ),
            (
                "HTTP/1.1 200 OK\r\nbad header\r\n\r\n",
                "malformed response: invalid HTTP header",
            ),
            (
                "HTTP/1.1 ok\r\n\r\n",
                "malformed response: invalid HTTP status-code",
            ),
            (&large, "the head of the response is too large"),
            (
                "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nxyz\r\n",
                "malformed response body: Invalid chunk size line: missing size digit",
            ),
        ] {
            let error = answered(answer.as_bytes()).await;
            assert_eq!(
                cause(&error, Peer::Member),
                expected,
                "{answer:.40}: {error:?}"
            );
        }
    }
}
