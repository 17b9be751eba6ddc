//! Request heads on their way to a member, with the order of treatment as types.
//!
//! `Scrubbed` can be made only by taking out everything that a client may not say; `Stamped` only from a `Scrubbed`
//! head, by writing our headers last. A member is sent nothing else.

use http::{
    HeaderMap, HeaderName, HeaderValue,
    header::{CONNECTION, EXPECT, IF_RANGE, RANGE, TE, TRAILER, TRANSFER_ENCODING, UPGRADE},
};
use identity::{HeaderForm, IdentityHeaders, OwnNames};

/// Fields that concern one connection (RFC 9110 §7.6.1), whether or not a `Connection` field names them.
/// `Expect` is among them because we answer it ourselves.
const HOP_BY_HOP: [HeaderName; 9] = [
    CONNECTION,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
    HeaderName::from_static("proxy-authenticate"),
    TE,
    TRAILER,
    TRANSFER_ENCODING,
    UPGRADE,
    EXPECT,
];

/// The same names as text: looked for in every head, and sooner compared so than hashed or as names.
fn is_hop_by_hop(name: &str) -> bool {
    matches!(
        name,
        "connection"
            | "keep-alive"
            | "proxy-connection"
            | "proxy-authenticate"
            | "te"
            | "trailer"
            | "transfer-encoding"
            | "upgrade"
            | "expect"
    )
}

/// Fields that frame or address a message: a `Connection` field that names one is no reason to lose it.
const NOT_NOMINATED: [&str; 2] = ["host", "content-length"];

/// The headers that scrubbing removed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Scrubbing {
    /// Identity headers that the client had no business sending.
    pub identity: u32,
    /// Their names.
    pub identity_names: Vec<HeaderName>,
    /// Other names with an underscore.
    pub underscore: u32,
}

/// A head without hop-by-hop fields, without any spelling of an identity header.
#[derive(Clone, Debug)]
pub struct Scrubbed(HeaderMap);

impl Scrubbed {
    /// Takes out hop-by-hop fields and all that any `Connection` line names, then every identity header, those that
    /// the configuration names among them.
    pub fn new(mut headers: HeaderMap, own: &OwnNames) -> (Self, Scrubbing) {
        hop_by_hop(&mut headers);
        let removed = identity::scrub(&mut headers, own);
        (
            Self(headers),
            Scrubbing {
                identity: removed.removed_identity,
                identity_names: removed.identity_names,
                underscore: removed.removed_underscore,
            },
        )
    }

    /// The fields that are left.
    pub fn headers(&self) -> &HeaderMap {
        &self.0
    }

    /// Sets a field of our own that is no identity (forwarding facts, request id, Host).
    pub fn set(&mut self, name: HeaderName, value: HeaderValue) {
        self.0.insert(name, value);
    }

    /// Asks for the whole, whatever part of it the client asked for.
    pub fn remove_range(&mut self) {
        self.0.remove(RANGE);
        self.0.remove(IF_RANGE);
    }

    /// Writes who the client is, last, in the form that the pool's servers read.
    pub fn stamp(
        mut self,
        identity: &IdentityHeaders,
        form: &HeaderForm,
        with_certificate: bool,
    ) -> Stamped {
        identity.stamp(form, &mut self.0, with_certificate);
        Stamped(self.0)
    }
}

/// A head that says who the client is, once and by our word alone.
#[derive(Debug)]
pub struct Stamped(HeaderMap);

impl Stamped {
    pub(crate) fn into_headers(self) -> HeaderMap {
        self.0
    }
}

/// Takes out hop-by-hop fields and everything that any `Connection` line names.
pub fn hop_by_hop(headers: &mut HeaderMap) {
    // Most heads have none.
    if !headers.keys().any(|name| is_hop_by_hop(name.as_str())) {
        return;
    }
    if headers.contains_key(CONNECTION) {
        for name in nominated(headers) {
            headers.remove(name);
        }
    }
    for name in HOP_BY_HOP {
        headers.remove(name);
    }
}

/// Names listed in every `Connection` line; what is no field name is nobody's.
fn nominated(headers: &HeaderMap) -> Vec<HeaderName> {
    headers
        .get_all(CONNECTION)
        .iter()
        .flat_map(|line| line.as_bytes().split(|byte| *byte == b','))
        .filter_map(|token| HeaderName::from_bytes(token.trim_ascii()).ok())
        .filter(|name| !NOT_NOMINATED.contains(&name.as_str()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn heads(fields: &[(&str, &str)]) -> HeaderMap {
        fields
            .iter()
            .map(|(n, v)| {
                (
                    n.parse::<HeaderName>().expect("name"),
                    v.parse::<HeaderValue>().expect("value"),
                )
            })
            .collect()
    }

    #[test]
    fn every_connection_line_is_read_and_its_names_go() {
        let mut headers = HeaderMap::new();
        headers.append(CONNECTION, HeaderValue::from_static("keep-alive, X-One"));
        headers.append(CONNECTION, HeaderValue::from_static(" x-two ,,close"));
        for name in ["x-one", "x-two", "x-three"] {
            headers.insert(HeaderName::from_static(name), HeaderValue::from_static("v"));
        }
        hop_by_hop(&mut headers);
        assert_eq!(
            headers.keys().map(HeaderName::as_str).collect::<Vec<_>>(),
            ["x-three"]
        );
    }

    #[test]
    fn framing_and_host_cannot_be_nominated() {
        let mut headers = heads(&[
            ("connection", "content-length, host"),
            ("content-length", "3"),
            ("host", "puppet"),
        ]);
        hop_by_hop(&mut headers);
        assert_eq!(headers.len(), 2);
    }

    #[test]
    fn both_lists_of_hop_by_hop_fields_are_one() {
        assert!(HOP_BY_HOP.iter().all(|name| is_hop_by_hop(name.as_str())));
        for name in HOP_BY_HOP {
            let mut headers = HeaderMap::new();
            headers.insert(name, HeaderValue::from_static("x"));
            hop_by_hop(&mut headers);
            assert!(headers.is_empty());
        }
    }

    #[test]
    fn hop_by_hop_fields_go_without_being_named() {
        let mut headers = heads(&[
            ("te", "trailers"),
            ("upgrade", "h2c"),
            ("expect", "100-continue"),
            ("accept", "*/*"),
        ]);
        hop_by_hop(&mut headers);
        assert_eq!(headers.len(), 1);
    }
}
