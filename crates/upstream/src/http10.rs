//! HTTP/1.0 towards members: which connections can be reused, and which responses are invalid.

use http::{
    Method, StatusCode,
    header::{CONTENT_LENGTH, TRANSFER_ENCODING},
};
use http1::{BodyKind, Fields, Head};

use crate::{
    conversation::WireError,
    exchange::{Answered, parts},
};

/// What HTTP/1.0 does not allow in a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotHttp10 {
    /// An interim response (1xx).
    Interim,
    /// A transfer coding.
    TransferEncoding,
}

/// Marks a response that HTTP/1.0 does not allow. After any other response the connection is reused only if the member sent
/// `keep-alive` and the response has a length, whatever version the response has.
pub(crate) fn read(head: Head, method: &Method, had_interim: bool) -> Result<Answered, WireError> {
    let not_http10 = if had_interim || head.status == StatusCode::SWITCHING_PROTOCOLS {
        NotHttp10::Interim
    } else if head.fields.contains(&TRANSFER_ENCODING) {
        NotHttp10::TransferEncoding
    } else {
        let kind = head.body(method).map_err(WireError::Head)?;
        let lasts = head.fields.contains(&CONTENT_LENGTH) && keeps_alive(&head.fields);
        return Ok((parts(head), kind, lasts));
    };
    let mut parts = parts(head);
    parts.not_http10 = Some(not_http10);
    Ok((parts, BodyKind::UntilClose, false))
}

fn keeps_alive(fields: &Fields) -> bool {
    let has = |wanted: &[u8]| {
        let lines = fields.all("connection");
        let mut tokens = lines.flat_map(|line| line.split(|byte| *byte == b','));
        tokens.any(|token| token.trim_ascii().eq_ignore_ascii_case(wanted))
    };
    has(b"keep-alive") && !has(b"close")
}

#[cfg(test)]
mod tests {
    use bytes::BytesMut;
    use http1::HeadReader;

    use super::*;

    fn answer(
        status: StatusCode,
        fields: &[(&'static str, &'static str)],
        had_interim: bool,
    ) -> (Option<NotHttp10>, bool) {
        let mut text = format!("HTTP/1.1 {} \r\n", status.as_str());
        for (name, value) in fields {
            text += &format!("{name}: {value}\r\n");
        }
        let mut bytes = BytesMut::from((text + "\r\n").as_bytes());
        let head = HeadReader::new(fields.len()).read(&mut bytes);
        let head = head.expect("a head").expect("its end");
        let (parts, _, lasts) = read(head, &Method::GET, had_interim).expect("an answer");
        (parts.not_http10, lasts)
    }

    #[test]
    fn a_connection_is_reused_after_keep_alive_and_a_response_with_a_length() {
        for (fields, expected) in [
            (
                &[("content-length", "3"), ("connection", "keep-alive")][..],
                true,
            ),
            (
                &[
                    ("content-length", "3"),
                    ("connection", "Upgrade, Keep-Alive"),
                ],
                true,
            ),
            (&[("content-length", "3")], false),
            (&[("connection", "keep-alive")], false),
            (&[("content-length", "3"), ("connection", "close")], false),
            (
                &[
                    ("content-length", "3"),
                    ("connection", "keep-alive"),
                    ("connection", "close"),
                ],
                false,
            ),
        ] {
            assert_eq!(
                answer(StatusCode::OK, fields, false),
                (None, expected),
                "{fields:?}"
            );
        }
    }

    #[test]
    fn responses_that_http_1_0_does_not_allow_are_marked() {
        let fields = [("content-length", "3"), ("connection", "keep-alive")];
        let interim = (Some(NotHttp10::Interim), false);
        assert_eq!(answer(StatusCode::OK, &fields, true), interim);
        assert_eq!(
            answer(StatusCode::SWITCHING_PROTOCOLS, &fields, false),
            interim
        );
        for fields in [
            &[("transfer-encoding", "chunked")][..],
            &[
                ("transfer-encoding", "chunked"),
                ("content-length", "3"),
                ("connection", "keep-alive"),
            ],
        ] {
            let coded = (Some(NotHttp10::TransferEncoding), false);
            assert_eq!(answer(StatusCode::OK, fields, false), coded);
        }
    }
}
