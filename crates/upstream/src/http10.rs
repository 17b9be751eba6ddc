//! HTTP/1.0 to members: what is asked so, and which answers are none.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use http::{
    HeaderMap, HeaderValue, Method, Request, Version,
    header::{CONNECTION, CONTENT_LENGTH, TRANSFER_ENCODING},
    response,
};
use http_body::Body;

/// Whether a member has sent an interim response (1xx).
pub(crate) type Interim = Arc<AtomicBool>;

/// In the extensions of an answer that HTTP/1.0 does not have: it cannot be passed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotHttp10 {
    /// An interim response (1xx).
    Interim,
    /// A transfer coding.
    TransferEncoding,
}

/// Makes a request one of HTTP/1.0. Its body has a known length.
pub(crate) fn prepare<B: Body>(request: &mut Request<B>) -> Interim {
    *request.version_mut() = Version::HTTP_10;
    let has_body = !matches!(
        *request.method(),
        Method::GET | Method::HEAD | Method::DELETE
    );
    let is_empty = request.body().is_end_stream();
    let headers = request.headers_mut();
    headers.insert(CONNECTION, HeaderValue::from_static("keep-alive"));
    // RFC 1945, 7.2.2: a request that has a body must say its length.
    if has_body && is_empty && !headers.contains_key(CONTENT_LENGTH) {
        headers.insert(CONTENT_LENGTH, HeaderValue::from_static("0"));
    }
    let seen = Interim::default();
    let interim = Arc::clone(&seen);
    hyper::ext::on_informational(request, move |_| interim.store(true, Ordering::Relaxed));
    seen
}

/// Marks an answer that HTTP/1.0 does not have. Otherwise whether the connection may serve again: only where the member says
/// so and where its answer ends, whatever version the member names in it.
pub(crate) fn lasts(head: &mut response::Parts, interim: &Interim) -> bool {
    let not_http10 = if interim.load(Ordering::Relaxed) || head.status.is_informational() {
        NotHttp10::Interim
    } else if head.headers.contains_key(TRANSFER_ENCODING) {
        NotHttp10::TransferEncoding
    } else {
        return head.headers.contains_key(CONTENT_LENGTH) && keeps_alive(&head.headers);
    };
    head.extensions.insert(not_http10);
    false
}

fn keeps_alive(headers: &HeaderMap) -> bool {
    let lines = headers.get_all(CONNECTION);
    let has = |wanted: &[u8]| {
        let mut tokens = lines
            .iter()
            .flat_map(|line| line.as_bytes().split(|byte| *byte == b','));
        tokens.any(|token| token.trim_ascii().eq_ignore_ascii_case(wanted))
    };
    has(b"keep-alive") && !has(b"close")
}

#[cfg(test)]
mod tests {
    use http::{Response, StatusCode};

    use super::*;

    fn answer(fields: &[(&'static str, &'static str)]) -> response::Parts {
        let mut head = Response::new(()).into_parts().0;
        for (name, value) in fields {
            head.headers.append(*name, HeaderValue::from_static(value));
        }
        head
    }

    #[test]
    fn a_connection_lasts_where_the_member_says_so_and_its_answer_has_a_length() {
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
            (
                &[
                    ("transfer-encoding", "chunked"),
                    ("content-length", "3"),
                    ("connection", "keep-alive"),
                ],
                false,
            ),
        ] {
            let mut head = answer(fields);
            assert_eq!(
                lasts(&mut head, &Interim::default()),
                expected,
                "{fields:?}"
            );
        }
    }

    #[test]
    fn what_http_1_0_does_not_have_is_marked() {
        let fields = [("content-length", "3"), ("connection", "keep-alive")];
        let mut head = answer(&fields);
        let interim = Interim::default();
        interim.store(true, Ordering::Relaxed);
        assert!(!lasts(&mut head, &interim));
        assert_eq!(head.extensions.get(), Some(&NotHttp10::Interim));
        let mut head = answer(&fields);
        head.status = StatusCode::SWITCHING_PROTOCOLS;
        assert!(!lasts(&mut head, &Interim::default()));
        assert_eq!(head.extensions.get(), Some(&NotHttp10::Interim));
        let mut head = answer(&[("transfer-encoding", "chunked")]);
        assert!(!lasts(&mut head, &Interim::default()));
        assert_eq!(head.extensions.get(), Some(&NotHttp10::TransferEncoding));
    }
}
