//! Request heads on their way to a member, with the order of treatment as types.
//!
//! `Scrubbed` can be made only by taking out everything that a client may not say; `Stamped` only from a `Scrubbed`
//! head, by writing our headers last. A member is sent nothing else.

use http::{
    HeaderMap, HeaderName,
    header::{CONNECTION, CONTENT_LENGTH, EXPECT, TE, TRAILER, TRANSFER_ENCODING, UPGRADE},
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

    pub(crate) fn into_headers(self) -> HeaderMap {
        self.0
    }

    /// Puts our fields beside those of the client, and who the client is, last, in the form that the pool's servers read.
    pub fn stamp<'a>(
        &'a self,
        mut own: OwnFields<'a>,
        identity: &'a IdentityHeaders,
        form: &'a HeaderForm,
        with_certificate: bool,
    ) -> Stamped<'a> {
        identity.tell(form, with_certificate, |name, value| match value {
            Some(value) => own.set(name, value.as_bytes()),
            None => own.remove(name),
        });
        Stamped {
            clients: &self.0,
            own,
        }
    }
}

/// Fields of ours in a request. Each stands in the place of whatever the client sent under its name.
#[derive(Debug, Default)]
pub struct OwnFields<'a> {
    fields: Vec<(&'a HeaderName, Option<&'a [u8]>)>,
    /// A bit for each name, by which most other names are told apart without a comparison.
    bits: u64,
}

impl<'a> OwnFields<'a> {
    /// None, with room for as many as most requests get.
    pub fn new() -> Self {
        Self {
            fields: Vec::with_capacity(USUAL_FIELDS),
            bits: 0,
        }
    }

    /// Says this, once.
    pub fn set(&mut self, name: &'a HeaderName, value: &'a [u8]) {
        self.put(name, Some(value));
    }

    /// Says nothing under this name.
    pub fn remove(&mut self, name: &'a HeaderName) {
        self.put(name, None);
    }

    fn put(&mut self, name: &'a HeaderName, value: Option<&'a [u8]>) {
        if let Some(at) = self.position(name) {
            self.fields[at].1 = value;
            return;
        }
        self.bits |= bit(name);
        self.fields.push((name, value));
    }

    fn position(&self, name: &HeaderName) -> Option<usize> {
        if self.bits & bit(name) == 0 {
            return None;
        }
        self.fields.iter().position(|(own, _)| *own == name)
    }
}

/// A head that says who the client is, once and by our word alone.
#[derive(Debug)]
pub struct Stamped<'a> {
    clients: &'a HeaderMap,
    own: OwnFields<'a>,
}

impl<'a> Stamped<'a> {
    /// Says how long the connection lasts.
    pub(crate) fn set_connection(&mut self, value: &'static [u8]) {
        static NAME: HeaderName = CONNECTION;
        self.own.set(&NAME, value);
    }

    /// Whether the client said how long the body is.
    pub(crate) fn has_length(&self) -> bool {
        self.clients.contains_key(CONTENT_LENGTH)
    }

    /// All fields: those of the client that are left, then ours.
    pub fn fields(&self) -> impl Iterator<Item = (&'a HeaderName, &[u8])> {
        let clients = self.clients.iter();
        let clients = clients.filter(|(name, _)| self.own.position(name).is_none());
        let own = self.own.fields.iter();
        clients
            .map(|(name, value)| (name, value.as_bytes()))
            .chain(own.filter_map(|(name, value)| Some((*name, (*value)?))))
    }
}

/// Spreads the names that are in use over 64 bits.
fn bit(name: &HeaderName) -> u64 {
    let name = name.as_str().as_bytes();
    let last = name.last().copied().unwrap_or_default();
    1 << ((name.len() + usize::from(last) * 3) % 64)
}

/// Fields of ours in most requests: forwarding, request id, Host and identity.
const USUAL_FIELDS: usize = 12;

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
    use http::HeaderValue;

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

    #[test]
    fn our_fields_stand_in_the_place_of_the_clients() {
        static HOST: HeaderName = http::header::HOST;
        static RANGE: HeaderName = http::header::RANGE;
        let headers = heads(&[
            ("host", "theirs"),
            ("range", "bytes=0-1"),
            ("accept", "*/*"),
        ]);
        let (scrubbed, _) = Scrubbed::new(headers, &OwnNames::default());
        let mut own = OwnFields::new();
        own.set(&HOST, b"first");
        own.set(&HOST, b"ours");
        own.remove(&RANGE);
        let identity = IdentityHeaders::new(&identity::ClientIdentity::Anonymous, None);
        let form = HeaderForm::default();
        let mut stamped = scrubbed.stamp(own, &identity, &form, true);
        stamped.set_connection(b"close");
        let fields: Vec<_> = stamped
            .fields()
            .map(|(name, value)| (name.as_str(), value))
            .collect();
        let expected: [(&str, &[u8]); 4] = [
            ("accept", b"*/*"),
            ("host", b"ours"),
            ("x-client-verify", b"NONE"),
            ("connection", b"close"),
        ];
        assert_eq!(fields, expected);
    }
}
