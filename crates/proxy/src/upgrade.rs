//! The protocols that a request asks to switch to, and whether a member's 101 switches to one of them (RFC 9110, 7.8).

use http::{HeaderValue, Method};
use http1::{Fields, RequestHead};
use upstream::MemberHead;

/// The field with the settings for a switch to HTTP/2 (RFC 7540, 3.2.1). The proxy never makes such a switch.
const HTTP2_SETTINGS: &[u8] = b"http2-settings";

/// The protocols that a request asks to switch to, in the client's order and spelling. There is at least one.
#[derive(Clone, Debug)]
pub struct Upgrade(Vec<String>);

impl Upgrade {
    /// The protocols in the `Upgrade` field of an HTTP/1.1 request. `None` if the request may not switch: it must be a GET
    /// without a body, and `Connection` must name the field.
    pub fn requested(method: &Method, fields: &Fields, has_body: bool) -> Option<Self> {
        let lines = |name| elements(fields.all(name));
        let may = *method == Method::GET && !has_body && has_upgrade(lines("connection"));
        let asked = || lines("upgrade").map(ToOwned::to_owned);
        may.then(|| asked().collect()).map(Self)
    }

    /// As [`requested`](Self::requested), and removes what only a switch to HTTP/2 needs.
    pub(crate) fn requested_by(head: &mut RequestHead, has_body: bool) -> Option<Self> {
        head.fields.retain(|field| field.name != HTTP2_SETTINGS);
        Self::requested(&head.method, &head.fields, has_body)
    }

    /// Those of the protocols that a route allows. `None` if it allows none of them.
    #[must_use]
    pub fn allowed(mut self, protocols: &[String]) -> Option<Self> {
        self.0
            .retain(|asked| protocols.iter().any(|one| one.eq_ignore_ascii_case(asked)));
        (!self.0.is_empty()).then_some(self)
    }

    /// The `Upgrade` field for the member.
    pub(crate) fn field(&self) -> HeaderValue {
        let listed = self.0.join(", ");
        HeaderValue::try_from(listed).expect("the route allows tokens alone")
    }

    /// Whether a 101 switches to exactly one of the requested protocols.
    pub(crate) fn is_answered_by(&self, head: &MemberHead) -> bool {
        let lines = |name| elements(head.fields.all(name));
        let mut switched = lines("upgrade");
        match (switched.next(), switched.next()) {
            (Some(one), None) => {
                has_upgrade(lines("connection"))
                    && self.0.iter().any(|asked| asked.eq_ignore_ascii_case(one))
            }
            _ => false,
        }
    }
}

/// Whether the elements of `Connection` name the `Upgrade` field.
fn has_upgrade<'a>(mut elements: impl Iterator<Item = &'a str>) -> bool {
    elements.any(|token| token.eq_ignore_ascii_case("upgrade"))
}

/// The elements of a list, from all lines of a field. A line that is not ASCII has no elements.
fn elements<'a>(lines: impl Iterator<Item = &'a [u8]>) -> impl Iterator<Item = &'a str> {
    lines
        .filter(|line| line.is_ascii())
        .filter_map(|line| std::str::from_utf8(line).ok())
        .flat_map(|line| line.split(','))
        .map(str::trim)
        .filter(|element| !element.is_empty())
}

#[cfg(test)]
mod tests {
    use bytes::BytesMut;
    use http1::RequestHeadReader;

    use super::*;

    const ROUTE: [&str; 2] = ["websocket", "irc/6.9"];

    fn asked(method: &str, fields: &[(&str, &str)], has_body: bool) -> Option<String> {
        let mut request = format!("{method} / HTTP/1.1\r\n");
        for (name, value) in fields {
            request.push_str(&format!("{name}: {value}\r\n"));
        }
        let mut request = BytesMut::from((request + "\r\n").as_bytes());
        let read = RequestHeadReader::new(1024).read(&mut request);
        let mut head = read.expect("a head").expect("a whole head");
        let allowed = ROUTE.map(ToOwned::to_owned);
        let upgrade = Upgrade::requested_by(&mut head, has_body)?.allowed(&allowed)?;
        assert!(head.fields.iter().all(|field| field.name != HTTP2_SETTINGS));
        Some(upgrade.field().to_str().expect("text").to_owned())
    }

    #[test]
    fn only_a_get_with_both_fields_requests_the_protocols_that_the_route_allows() {
        let connection = ("Connection", "keep-alive, Upgrade");
        for (upgrade, expected) in [
            ("websocket", Some("websocket")),
            ("WebSocket", Some("WebSocket")),
            ("h2c, websocket , ,IRC/6.9", Some("websocket, IRC/6.9")),
            ("h2c", None),
            ("web socket", None),
            ("", None),
        ] {
            let fields = [
                connection,
                ("Upgrade", upgrade),
                ("HTTP2-ProxySettings", "AAMAAABk"),
            ];
            assert_eq!(
                asked("GET", &fields, false).as_deref(),
                expected,
                "{upgrade:?}"
            );
            assert_eq!(asked("GET", &fields, true), None, "with a body");
            assert_eq!(asked("POST", &fields, false), None);
            assert_eq!(asked("GET", &fields[1..], false), None, "not nominated");
        }
    }

    #[test]
    fn a_101_names_exactly_one_requested_protocol() {
        let upgrade = Upgrade(vec!["websocket".to_owned(), "irc/6.9".to_owned()]);
        for (fields, expected) in [
            (
                &[("connection", "upgrade"), ("upgrade", "WebSocket")][..],
                true,
            ),
            (&[("connection", "upgrade"), ("upgrade", "h2c")], false),
            (
                &[("connection", "upgrade"), ("upgrade", "websocket, irc/6.9")],
                false,
            ),
            (
                &[
                    ("connection", "upgrade"),
                    ("upgrade", "websocket"),
                    ("upgrade", "h2c"),
                ],
                false,
            ),
            (&[("connection", "upgrade")], false),
            (&[("upgrade", "websocket")], false),
        ] {
            let lines = fields.iter();
            let lines = lines.map(|(name, value)| (name.as_bytes(), value.as_bytes()));
            let head = MemberHead {
                status: http::StatusCode::SWITCHING_PROTOCOLS,
                fields: lines.collect(),
                not_http10: None,
            };
            assert_eq!(upgrade.is_answered_by(&head), expected, "{fields:?}");
        }
    }
}
