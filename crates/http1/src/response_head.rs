//! Writes the head of a response to a client.

use http::{HeaderValue, StatusCode, Version};

use crate::{
    fields::{FieldName, Fields},
    request::decimal,
};

/// What is known about a response's body before it is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodySize {
    /// There is none, or its size is not known because the response is to a HEAD request.
    None,
    /// Its number of bytes.
    Length(u64),
    /// Unknown: the body ends when its source ends.
    Unknown,
}

/// How the client recognizes the end of a response's body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyCoding {
    /// No byte of a body may follow: the response is to a HEAD request, or its status has no body.
    None,
    /// By its length.
    Length,
    /// By the last chunk.
    Chunked,
    /// By the end of the connection: HTTP/1.0 has no chunks.
    UntilClose,
}

/// The head of a response: its fields, and what does not follow from them.
#[derive(Clone, Copy, Debug)]
pub struct ResponseHead<'a> {
    /// Status code.
    pub status: StatusCode,
    /// The version of the request, which the response uses too.
    pub version: Version,
    /// All fields. Those that frame the body are replaced according to `body`.
    pub fields: &'a Fields,
    /// The time, which is sent as `Date` if the fields have none.
    pub date: &'a HeaderValue,
    /// Its body.
    pub body: BodySize,
    /// Whether the request was a HEAD.
    pub to_head: bool,
    /// Whether the connection stays open after the response.
    pub keeps_alive: bool,
}

impl ResponseHead<'_> {
    /// Appends the head. Adds a `Connection` field only if the connection differs from the default of the HTTP version.
    pub fn write(&self, out: &mut Vec<u8>) -> BodyCoding {
        let is_10 = self.version == Version::HTTP_10;
        let coding = match self.body {
            _ if self.to_head || !self.may_have_body() => BodyCoding::None,
            BodySize::Unknown if is_10 => BodyCoding::UntilClose,
            BodySize::Unknown => BodyCoding::Chunked,
            BodySize::None | BodySize::Length(_) => BodyCoding::Length,
        };
        self.write_status_line(out);
        let (mut has_length, mut has_connection, mut has_date) = (false, false, false);
        for field in self.fields.iter() {
            match field.known {
                FieldName::ContentLength => match self.body {
                    _ if has_length => continue,
                    BodySize::Length(length) if self.may_have_body() => {
                        has_length = true;
                        length_line(out, length);
                        continue;
                    }
                    BodySize::None if self.to_head => has_length = true,
                    _ => continue,
                },
                FieldName::TransferEncoding => continue,
                FieldName::Connection => has_connection = true,
                FieldName::Date => has_date = true,
                _ => {}
            }
            line(out, field.name, field.value);
        }
        let keeps_alive = self.keeps_alive && coding != BodyCoding::UntilClose;
        match (keeps_alive, is_10) {
            _ if has_connection => {}
            (true, true) => line(out, b"connection", b"keep-alive"),
            (false, false) => line(out, b"connection", b"close"),
            _ => {}
        }
        match self.body {
            _ if has_length => {}
            BodySize::Unknown if coding == BodyCoding::Chunked => {
                line(out, b"transfer-encoding", b"chunked");
            }
            BodySize::None if coding == BodyCoding::Length => length_line(out, 0),
            BodySize::Length(length) if self.may_have_body() => length_line(out, length),
            _ => {}
        }
        if !has_date {
            line(out, b"date", self.date.as_bytes());
        }
        out.extend_from_slice(b"\r\n");
        coding
    }

    fn write_status_line(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(match self.version {
            Version::HTTP_10 => b"HTTP/1.0 ",
            _ => b"HTTP/1.1 ",
        });
        out.extend_from_slice(self.status.as_str().as_bytes());
        out.push(b' ');
        // RFC 9112, 4 allows an empty reason, but old clients require one.
        let reason = self.status.canonical_reason().unwrap_or("<none>");
        out.extend_from_slice(reason.as_bytes());
        out.extend_from_slice(b"\r\n");
    }

    fn may_have_body(&self) -> bool {
        !self.status.is_informational()
            && self.status != StatusCode::NO_CONTENT
            && self.status != StatusCode::NOT_MODIFIED
    }
}

fn line(out: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    out.extend_from_slice(name);
    out.extend_from_slice(b": ");
    out.extend_from_slice(value);
    out.extend_from_slice(b"\r\n");
}

fn length_line(out: &mut Vec<u8>, length: u64) {
    out.extend_from_slice(b"content-length: ");
    decimal(out, length);
    out.extend_from_slice(b"\r\n");
}

#[cfg(test)]
mod tests {
    use super::*;

    const V10: Version = Version::HTTP_10;
    const V11: Version = Version::HTTP_11;
    const ZERO: &str = "content-length: 0\r\n";
    const THREE: &str = "content-length: 3\r\n";
    const CHUNKED: &str = "transfer-encoding: chunked\r\n";

    /// Returns the text of a head, and the coding of the body. `body`: its size, and whether the request was a HEAD.
    fn written(
        version: Version,
        status: u16,
        fields: &[(&'static str, &'static str)],
        (body, to_head): (BodySize, bool),
        keeps_alive: bool,
    ) -> (String, BodyCoding) {
        let fields = fields.iter();
        let fields = fields.map(|(name, value)| (name.as_bytes(), value.as_bytes()));
        let head = ResponseHead {
            status: StatusCode::from_u16(status).expect("a status"),
            version,
            fields: &fields.collect(),
            date: &HeaderValue::from_static("now"),
            body,
            to_head,
            keeps_alive,
        };
        let mut out = b"before".to_vec();
        let coding = head.write(&mut out);
        let text = String::from_utf8(out).expect("text");
        let text = text.strip_prefix("before").expect("an appended head");
        (text.to_owned(), coding)
    }

    #[test]
    fn a_body_and_the_connection_end_as_the_head_says() {
        use BodyCoding::{Chunked, Length as ByLength, None as NotSent, UntilClose};
        use BodySize::{Length, None, Unknown};
        for (statuses, to_head, body, in_10, in_11) in [
            (
                &[200, 404][..],
                false,
                None,
                (ZERO, ByLength),
                (ZERO, ByLength),
            ),
            (
                &[200, 404],
                false,
                Length(0),
                (ZERO, ByLength),
                (ZERO, ByLength),
            ),
            (
                &[200, 404],
                false,
                Length(3),
                (THREE, ByLength),
                (THREE, ByLength),
            ),
            (
                &[200, 404],
                false,
                Unknown,
                ("", UntilClose),
                (CHUNKED, Chunked),
            ),
            (&[200, 404], true, None, ("", NotSent), ("", NotSent)),
            (
                &[200, 404],
                true,
                Length(3),
                (THREE, NotSent),
                (THREE, NotSent),
            ),
            (&[200, 404], true, Unknown, ("", NotSent), ("", NotSent)),
            (&[101, 204, 304], false, None, ("", NotSent), ("", NotSent)),
            (
                &[101, 204, 304],
                false,
                Length(3),
                ("", NotSent),
                ("", NotSent),
            ),
            (
                &[101, 204, 304],
                false,
                Unknown,
                ("", NotSent),
                ("", NotSent),
            ),
            (&[101, 204, 304], true, None, ("", NotSent), ("", NotSent)),
            (
                &[101, 204, 304],
                true,
                Length(3),
                ("", NotSent),
                ("", NotSent),
            ),
            (
                &[101, 204, 304],
                true,
                Unknown,
                ("", NotSent),
                ("", NotSent),
            ),
        ] {
            for status in statuses {
                for (version, (framing, coding)) in [(V10, in_10), (V11, in_11)] {
                    for keeps_alive in [false, true] {
                        let got = written(version, *status, &[], (body, to_head), keeps_alive);
                        let connection = match (version, keeps_alive) {
                            (V10, true) if coding != UntilClose => "connection: keep-alive\r\n",
                            (V11, false) => "connection: close\r\n",
                            _ => "",
                        };
                        let line = got.0.split_inclusive('\n').next().unwrap_or_default();
                        assert!(
                            line.starts_with(&format!("{version:?} {status} ")),
                            "{line}"
                        );
                        let expected = format!("{line}{connection}{framing}date: now\r\n\r\n");
                        assert_eq!(got, (expected, coding), "{body:?} {to_head} {keeps_alive}");
                    }
                }
            }
        }
    }

    #[test]
    fn fields_keep_their_order_and_the_proxys_own_follow() {
        let fields = [("b", "1"), ("a", ""), ("b", "2"), ("set-cookie", "x")];
        let (head, _) = written(V11, 200, &fields, (BodySize::Length(3), false), false);
        let expected = "HTTP/1.1 200 OK\r\nb: 1\r\na: \r\nb: 2\r\nset-cookie: x\r\n\
                        connection: close\r\ncontent-length: 3\r\ndate: now\r\n\r\n";
        assert_eq!(head, expected);
        let own = [
            ("date", "then"),
            ("connection", "upgrade"),
            ("upgrade", "x"),
        ];
        let (head, _) = written(V11, 101, &own, (BodySize::None, false), false);
        let expected = "HTTP/1.1 101 Switching Protocols\r\n\
                        date: then\r\nconnection: upgrade\r\nupgrade: x\r\n\r\n";
        assert_eq!(head, expected);
        let (head, _) = written(V11, 599, &[], (BodySize::None, false), true);
        assert!(head.starts_with("HTTP/1.1 599 <none>\r\n"), "{head}");
    }

    #[test]
    fn framing_fields_are_written_once_and_only_if_they_fit_the_body() {
        use BodySize::{Length, None, Unknown};
        const FIELDS: &[(&str, &str)] = &[
            ("transfer-encoding", "gzip"),
            ("content-length", "3"),
            ("content-length", "3"),
            ("transfer-encoding", "chunked"),
        ];
        for (status, body, to_head, framing) in [
            (200, Length(3), false, THREE),
            (200, Length(4), false, "content-length: 4\r\n"),
            (200, None, false, ZERO),
            (200, None, true, THREE),
            (200, Unknown, false, CHUNKED),
            (200, Length(3), true, THREE),
            (204, Length(3), false, ""),
            (204, None, false, ""),
            (304, Length(3), false, ""),
        ] {
            let (head, _) = written(V11, status, FIELDS, (body, to_head), true);
            let (_, fields) = head.split_once("\r\n").expect("a status line");
            let expected = format!("{framing}date: now\r\n\r\n");
            assert_eq!(fields, expected, "{status} {body:?} {to_head}");
        }
    }
}
