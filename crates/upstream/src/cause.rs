//! Why an exchange with a member failed, in plain words.

use std::error::Error;

use pki::Peer;

use crate::conversation::WireError;

/// The innermost cause of an error on a member's connection, as reported by HTTP, TLS or the system.
pub fn cause(error: &(dyn Error + 'static)) -> String {
    pki::cause(error, Peer::Member, |error| of_http(error.downcast_ref()?))
}

fn of_http(error: &WireError) -> Option<String> {
    match error {
        // The source of this error has the message of the system or of TLS.
        WireError::Io(_) => None,
        error => Some(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use bytes::Bytes;
    use http::{Method, Uri, Version};
    use http_body_util::Empty;
    use http1::{Decoder, RequestLine};
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;
    use crate::{
        conversation::Conversation,
        io::{MemberIo, MemberTransport},
        wire::Wire,
    };

    /// The error of a request to a member that sends these bytes and closes.
    async fn answered(answer: &[u8]) -> WireError {
        let (near, mut far) = tokio::io::duplex(1 << 20);
        let mut wire = Wire::new(MemberIo::new(MemberTransport::Memory(Box::new(near)), None));
        let exchange = async {
            let line = RequestLine {
                method: &Method::GET,
                target: &Uri::from_static("/"),
                version: Version::HTTP_11,
            };
            let begun = Conversation::begin(
                &mut wire,
                line,
                [].into_iter(),
                None,
                false,
                Empty::<Bytes>::new(),
                256,
            );
            let mut conversation = begun?;
            let head = poll_fn(|cx| conversation.poll_head(&mut wire, cx)).await?;
            let mut decoder =
                Decoder::of_response(head.body(line.method).map_err(WireError::Head)?);
            while let Some(data) =
                poll_fn(|cx| conversation.poll_data(&mut decoder, &mut wire, cx)).await
            {
                data?;
            }
            Ok(())
        };
        let member = async {
            far.read_u8().await.expect("a request");
            far.write_all(answer).await.expect("written");
            far.shutdown().await.expect("closed");
        };
        let (exchanged, ()) = tokio::join!(exchange, member);
        exchanged.expect_err("no answer")
    }

    #[tokio::test]
    async fn errors_of_a_response_are_described_in_plain_words() {
        let large = format!("HTTP/1.1 200 OK\r\nx: {}\r\n\r\n", "x".repeat(64 << 10));
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
                "malformed response: it does not begin with HTTP/1.0 or HTTP/1.1",
            ),
            (
                "HTTP/1.1 200 OK\r\nbad header\r\n\r\n",
                "malformed response: a line of its head is not a header field",
            ),
            (
                "HTTP/1.1 ok\r\n\r\n",
                "malformed response: its status line has no status code with three digits",
            ),
            (&large, "malformed response: its head has more than 64 KiB"),
            (
                "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nxyz\r\n",
                "malformed response body: invalid chunk",
            ),
        ] {
            let error = answered(answer.as_bytes()).await;
            assert_eq!(cause(&error), expected, "{answer:.40}: {error:?}");
        }
    }
}
