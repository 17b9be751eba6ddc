//! The protocols that a request asks to switch to, and whether a member's 101 grants that (RFC 9110, 7.8).

use http::{
    HeaderMap, HeaderName, HeaderValue, Method,
    header::{CONNECTION, UPGRADE},
    request, response,
};

/// The settings for a switch to HTTP/2 (RFC 7540, 3.2.1), which the proxy never makes.
const HTTP2_SETTINGS: HeaderName = HeaderName::from_static("http2-settings");

/// The protocols that a request asks to switch to, in the client's order and spelling; at least one.
#[derive(Debug)]
pub(crate) struct Upgrade(Vec<String>);

impl Upgrade {
    /// The protocols in the `Upgrade` field of an HTTP/1.1 request. None if the request may not switch: it must be a
    /// GET without a body, and `Connection` must name the field.
    pub(crate) fn requested_by(head: &mut request::Parts, has_body: bool) -> Option<Self> {
        head.headers.remove(HTTP2_SETTINGS);
        let may = head.method == Method::GET && !has_body && nominates_upgrade(&head.headers);
        let asked = || list(&head.headers, &UPGRADE).map(ToOwned::to_owned);
        may.then(|| asked().collect()).map(Self)
    }

    /// The protocols that the route allows, if any.
    pub(crate) fn allowed(mut self, protocols: &[String]) -> Option<Self> {
        self.0
            .retain(|asked| protocols.iter().any(|one| one.eq_ignore_ascii_case(asked)));
        (!self.0.is_empty()).then_some(self)
    }

    /// The `Upgrade` field that a member is sent.
    pub(crate) fn field(&self) -> HeaderValue {
        let listed = self.0.join(", ");
        HeaderValue::try_from(listed).expect("the route allows tokens alone")
    }

    /// Whether a 101 switches to exactly one of the requested protocols.
    pub(crate) fn is_answered_by(&self, head: &response::Parts) -> bool {
        let mut switched = list(&head.headers, &UPGRADE);
        match (switched.next(), switched.next()) {
            (Some(one), None) => {
                nominates_upgrade(&head.headers)
                    && self.0.iter().any(|asked| asked.eq_ignore_ascii_case(one))
            }
            _ => false,
        }
    }
}

fn nominates_upgrade(headers: &HeaderMap) -> bool {
    list(headers, &CONNECTION).any(|token| token.eq_ignore_ascii_case(UPGRADE.as_str()))
}

/// The elements of a list over all lines of a field. A line that is not ASCII text has none.
fn list<'a>(headers: &'a HeaderMap, name: &HeaderName) -> impl Iterator<Item = &'a str> {
    headers
        .get_all(name)
        .iter()
        .filter_map(|line| line.to_str().ok())
        .flat_map(|line| line.split(','))
        .map(str::trim)
        .filter(|element| !element.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROUTE: [&str; 2] = ["websocket", "irc/6.9"];

    fn asked(method: &str, fields: &[(&str, &str)], has_body: bool) -> Option<String> {
        let mut request = http::Request::builder().method(method).uri("/");
        for (name, value) in fields {
            request = request.header(*name, *value);
        }
        let (mut head, ()) = request.body(()).expect("a head").into_parts();
        let allowed = ROUTE.map(ToOwned::to_owned);
        let upgrade = Upgrade::requested_by(&mut head, has_body)?.allowed(&allowed)?;
        assert!(!head.headers.contains_key(HTTP2_SETTINGS));
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
            let mut response = http::Response::builder().status(101);
            for (name, value) in fields {
                response = response.header(*name, *value);
            }
            let (head, ()) = response.body(()).expect("a head").into_parts();
            assert_eq!(upgrade.is_answered_by(&head), expected, "{fields:?}");
        }
    }
}
