//! Request heads for members. Types enforce the order in which a head is processed.
//!
//! A `Scrubbed` head is made only by removing everything that a client must not send. A `Stamped` head is made only from a
//! `Scrubbed` one, by adding the proxy's headers last. Members receive no other heads.

use http::{HeaderName, HeaderValue, header::CONNECTION};
use http1::{Field, FieldLines, FieldName, Fields};
use identity::{HeaderForm, HeaderRules, IdentityHeaders, OwnNames, ScrubReport, is_removed};

/// Hop-by-hop fields: the same as in [`FieldName::is_hop_by_hop`].
const HOP_BY_HOP: [&str; 9] = [
    "connection",
    "keep-alive",
    "proxy-connection",
    "proxy-authenticate",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "expect",
];

/// Fields that frame or address a message. They remain even if a `Connection` field names them.
const NOT_NOMINATED: [&str; 2] = ["host", "content-length"];

/// The names, in lower case, of the fields that frame or address a message or describe the connection. No setting removes or
/// keeps these fields.
pub fn framing_fields() -> impl Iterator<Item = &'static str> {
    HOP_BY_HOP.into_iter().chain(NOT_NOMINATED)
}

/// A head without hop-by-hop fields and without any spelling of an identity header.
#[derive(Clone, Debug)]
pub struct Scrubbed {
    fields: Fields,
    /// Removed lines that the route may keep.
    set_aside: Fields,
}

impl Scrubbed {
    /// Removes hop-by-hop fields and all fields that a `Connection` line names. Then removes every identity header,
    /// including the names in the configuration.
    pub fn new(mut fields: Fields, own: &OwnNames) -> (Self, ScrubReport) {
        // Most heads need neither step.
        if fields.iter().any(|field| field.known.is_hop_by_hop()) {
            remove_hop_by_hop(&mut fields);
        }
        let mut report = ScrubReport::default();
        let mut set_aside = Fields::default();
        if fields.iter().any(|field| is_removed(field.name, own)) {
            set_aside =
                fields.extract(|field| is_removed(field.name, own) && own.may_keep(field.text()));
            fields.retain(|field| !report.scrubs(field.text(), own));
        }
        (Self { fields, set_aside }, report)
    }

    /// A report of the lines that were set aside and that these rules, of the route and of its pool, do not keep.
    pub fn unkept(&self, rules: [&HeaderRules; 2]) -> ScrubReport {
        ScrubReport::of_unkept(self.set_aside.iter().map(|field| field.text()), rules)
    }

    /// The head that members get under these rules, if it differs from this one. Most routes and pools have no rules.
    pub fn with_rules(&self, rules: [&HeaderRules; 2]) -> Option<Self> {
        if self.set_aside.is_empty() && rules.iter().all(|rules| rules.remove.is_empty()) {
            return None;
        }
        let keeps = |field: Field<'_>| rules.iter().any(|rules| rules.keeps(field.text()));
        let mut fields = self.fields.with(&self.set_aside, keeps);
        fields.retain(|field| !rules.iter().any(|rules| rules.removes(field.text())));
        Some(Self {
            fields,
            set_aside: Fields::default(),
        })
    }

    /// The names of lines that were set aside and that these rules keep, once for each line.
    pub fn kept<'r>(&'r self, rules: [&'r HeaderRules; 2]) -> impl Iterator<Item = &'r str> {
        let names = self.set_aside.iter().map(|field| field.text());
        names.filter(move |name| {
            rules.iter().any(|rules| rules.keeps(name))
                && !rules.iter().any(|rules| rules.removes(name))
        })
    }

    /// The names of the remaining fields that these rules remove, once for each line.
    pub fn removed<'r>(&'r self, rules: [&'r HeaderRules; 2]) -> impl Iterator<Item = &'r str> {
        let names = self.fields.iter().map(|field| field.text());
        names.filter(move |name| rules.iter().any(|rules| rules.removes(name)))
    }

    /// The remaining fields.
    pub fn fields(&self) -> &Fields {
        &self.fields
    }

    /// Adds the proxy's fields. Of the client's identity it adds only the certificate, or nothing without a form.
    pub fn stamp_certificate<'a>(
        &'a self,
        mut own: OwnFields<'a>,
        identity: &'a IdentityHeaders,
        form: Option<&'a HeaderForm>,
    ) -> Stamped<'a> {
        if let Some(form) = form {
            identity.certificate_alone(form, |name, value| {
                own.put(
                    name,
                    bit(name.as_str().as_bytes()),
                    value.map(HeaderValue::as_bytes),
                );
            });
        }
        Stamped {
            clients: &self.fields,
            own,
        }
    }

    /// Adds the proxy's fields, and after them the client's identity in the form of the pool.
    pub fn stamp<'a>(
        &'a self,
        mut own: OwnFields<'a>,
        identity: &'a IdentityHeaders,
        form: &'a HeaderForm,
        with_certificate: bool,
    ) -> Stamped<'a> {
        identity.for_each(form, with_certificate, |name, value| {
            own.put(
                name,
                bit(name.as_str().as_bytes()),
                value.map(HeaderValue::as_bytes),
            );
        });
        Stamped {
            clients: &self.fields,
            own,
        }
    }
}

/// The name of a field that the proxy sets. Its bit is computed at compile time.
#[derive(Debug)]
pub struct OwnName {
    name: HeaderName,
    bit: u64,
}

impl OwnName {
    /// Makes a name in lower case. A constant with any other name does not compile.
    pub const fn new(name: &'static str) -> Self {
        Self {
            name: HeaderName::from_static(name),
            bit: bit(name.as_bytes()),
        }
    }

    fn bytes(&self) -> &[u8] {
        self.name.as_str().as_bytes()
    }
}

/// Fields that the proxy sets in all requests of a connection. Their lines are written once.
#[derive(Debug)]
pub struct OwnLines {
    fields: Vec<(&'static OwnName, Option<HeaderValue>)>,
    bits: u64,
    lines: FieldLines,
}

impl OwnLines {
    /// Makes lines from these fields. Each name must be unique. A name without a value only removes the client's field.
    pub fn new(fields: Vec<(&'static OwnName, Option<HeaderValue>)>) -> Self {
        let lines = fields
            .iter()
            .filter_map(|(name, value)| Some((name.bytes(), value.as_ref()?.as_bytes())));
        Self {
            lines: FieldLines::new(lines).expect("a header value has no control characters"),
            bits: fields.iter().fold(0, |bits, (name, _)| bits | name.bit),
            fields,
        }
    }

    fn holds(&self, name: &[u8]) -> bool {
        self.fields.iter().any(|(own, _)| own.bytes() == name)
    }
}

/// Fields that the proxy sets in a request. Each replaces the client's fields with its name.
#[derive(Debug)]
pub struct OwnFields<'a> {
    /// Only the first `count` of these are used. The array has room for as many fields as requests usually have, so that they
    /// need no allocation.
    usual: [OwnField<'a>; USUAL_FIELDS],
    count: usize,
    /// Further fields, which are necessary because an identity header may have any number of names.
    more: Vec<OwnField<'a>>,
    /// The fields of the connection. They are not used once a field with one of their names was set.
    lines: Option<&'a OwnLines>,
    /// A bit for each name. The bits rule out most other names without a comparison.
    bits: u64,
}

/// A name with its value. `None`: the client's field is removed and not replaced.
type OwnField<'a> = (&'a HeaderName, Option<&'a [u8]>);

impl Default for OwnFields<'_> {
    fn default() -> Self {
        Self::new()
    }
}

impl<'a> OwnFields<'a> {
    /// An empty set of fields.
    pub fn new() -> Self {
        static UNUSED: HeaderName = CONNECTION;
        Self {
            usual: [(&UNUSED, None); USUAL_FIELDS],
            count: 0,
            more: Vec::new(),
            lines: None,
            bits: 0,
        }
    }

    /// A set with the fields of a connection.
    pub fn with_lines(lines: &'a OwnLines) -> Self {
        Self {
            lines: Some(lines),
            bits: lines.bits,
            ..Self::new()
        }
    }

    /// Sets a field, which is then sent exactly once.
    pub fn set(&mut self, name: &'a OwnName, value: &'a [u8]) {
        self.put(&name.name, name.bit, Some(value));
    }

    /// Removes the client's field with this name.
    pub fn remove(&mut self, name: &'a OwnName) {
        self.put(&name.name, name.bit, None);
    }

    fn put(&mut self, name: &'a HeaderName, bit: u64, value: Option<&'a [u8]>) {
        if self.bits & bit != 0 {
            let known = self.usual[..self.count].iter_mut().chain(&mut self.more);
            if let Some(known) = known.into_iter().find(|(own, _)| *own == name) {
                known.1 = value;
                return;
            }
            if let Some(lines) = self
                .lines
                .take_if(|lines| lines.holds(name.as_str().as_bytes()))
            {
                for (other, value) in &lines.fields {
                    self.push(&other.name, value.as_ref().map(HeaderValue::as_bytes));
                }
                return self.put(name, bit, value);
            }
        }
        self.bits |= bit;
        self.push(name, value);
    }

    fn push(&mut self, name: &'a HeaderName, value: Option<&'a [u8]>) {
        match self.usual.get_mut(self.count) {
            Some(free) => {
                *free = (name, value);
                self.count += 1;
            }
            None => self.more.push((name, value)),
        }
    }

    fn holds(&self, name: &[u8]) -> bool {
        let is_in_lines = || self.lines.is_some_and(|lines| lines.holds(name));
        self.bits & bit(name) != 0
            && (self.iter().any(|(own, _)| own.as_str().as_bytes() == name) || is_in_lines())
    }

    fn iter(&self) -> impl Iterator<Item = &OwnField<'a>> {
        self.usual[..self.count].iter().chain(&self.more)
    }
}

/// A head with the client's identity, which only the proxy can write.
#[derive(Debug)]
pub struct Stamped<'a> {
    clients: &'a Fields,
    own: OwnFields<'a>,
}

impl<'a> Stamped<'a> {
    pub(crate) fn set_connection(&mut self, value: &'static [u8]) {
        static NAME: OwnName = OwnName::new("connection");
        self.own.set(&NAME, value);
    }

    pub(crate) fn has_length(&self) -> bool {
        self.clients.get(FieldName::ContentLength).is_some()
    }

    /// The proxy's fields whose lines have already been written.
    pub fn lines(&self) -> Option<&FieldLines> {
        self.own.lines.map(|lines| &lines.lines)
    }

    /// All other fields: the remaining fields of the client, then those of the proxy.
    pub fn fields(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        let clients = self.clients.iter();
        let clients = clients.filter(|field| !self.own.holds(field.name));
        let own = self.own.iter();
        clients
            .map(|field| (field.name, field.value))
            .chain(own.filter_map(|(name, value)| Some((name.as_str().as_bytes(), (*value)?))))
    }
}

/// Distributes header names over 64 bits.
const fn bit(name: &[u8]) -> u64 {
    let last = match name {
        [.., last] => *last,
        [] => 0,
    };
    1 << ((name.len() + last as usize * 3) % 64)
}

/// How many fields the proxy sets in most requests: forwarding, request id, Host and identity.
const USUAL_FIELDS: usize = 12;

/// Removes hop-by-hop fields and everything that a `Connection` line names.
pub fn remove_hop_by_hop(fields: &mut Fields) {
    let mut nominated = Vec::new();
    for line in fields.all("connection") {
        let tokens = line.split(|byte| *byte == b',').map(<[u8]>::trim_ascii);
        let tokens = tokens.filter(|token| !token.is_empty());
        nominated.extend(tokens.map(<[u8]>::to_ascii_lowercase));
    }
    // The names are sorted for a faster search, because a client may name as many fields as fit into a head.
    nominated.sort_unstable();
    fields.retain(|field| match field.known {
        FieldName::Host | FieldName::ContentLength => true,
        known => {
            !known.is_hop_by_hop()
                && nominated
                    .binary_search_by(|name| name.as_slice().cmp(field.name))
                    .is_err()
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    fn heads(fields: &[(&str, &str)]) -> Fields {
        let fields = fields.iter();
        let fields = fields.map(|(name, value)| (name.as_bytes(), value.as_bytes()));
        fields.collect()
    }

    fn left(mut fields: Fields) -> Vec<String> {
        remove_hop_by_hop(&mut fields);
        fields.iter().map(|field| field.text().to_owned()).collect()
    }

    #[test]
    fn fields_named_in_any_connection_line_are_removed() {
        let fields = heads(&[
            ("connection", "keep-alive, X-One"),
            ("x-one", "v"),
            ("connection", " x-two ,,close"),
            ("x-two", "v"),
            ("x-three", "v"),
        ]);
        assert_eq!(left(fields), ["x-three"]);
    }

    #[test]
    fn framing_and_host_cannot_be_nominated() {
        let fields = heads(&[
            ("connection", "content-length, host"),
            ("content-length", "3"),
            ("host", "puppet"),
        ]);
        assert_eq!(left(fields), ["content-length", "host"]);
    }

    #[test]
    fn hop_by_hop_fields_are_removed_without_being_named() {
        for name in HOP_BY_HOP {
            let fields = heads(&[(name, "x"), ("accept", "*/*")]);
            assert_eq!(left(fields), ["accept"], "{name}");
        }
    }

    #[test]
    fn lines_of_a_connection_are_sent_unless_a_field_replaces_them() {
        static FOR: OwnName = OwnName::new("x-forwarded-for");
        static PORT: OwnName = OwnName::new("x-forwarded-port");
        static ID: OwnName = OwnName::new("x-request-id");
        let lines = OwnLines::new(vec![
            (&FOR, Some(HeaderValue::from_static("1"))),
            (&PORT, None),
        ]);
        let headers = heads(&[
            ("x-forwarded-port", "client"),
            ("x-forwarded-for", "client"),
            ("accept", "*/*"),
        ]);
        let scrubbed = Scrubbed {
            fields: headers,
            set_aside: Fields::default(),
        };
        let identity = IdentityHeaders::new(&identity::ClientIdentity::Anonymous, None);
        let form = HeaderForm::default();
        let sent = |own| {
            let stamped = scrubbed.stamp(own, &identity, &form, false);
            let mut head = Vec::new();
            let line = http1::RequestLine {
                method: &http::Method::GET,
                target: &http::Uri::from_static("/"),
                version: http::Version::HTTP_11,
            };
            let (fields, lines) = (stamped.fields(), stamped.lines());
            http1::write_head(&mut head, line, fields, lines, http1::Framing::None).expect("legal");
            String::from_utf8(head).expect("text")
        };
        let mut own = OwnFields::with_lines(&lines);
        own.set(&ID, b"2");
        let expected = "GET / HTTP/1.1\r\naccept: */*\r\nx-request-id: 2\r\nx-client-verify: NONE\r\nx-forwarded-for: 1\r\n\r\n";
        assert_eq!(sent(own), expected);
        let mut own = OwnFields::with_lines(&lines);
        own.set(&PORT, b"3");
        let expected = "GET / HTTP/1.1\r\naccept: */*\r\nx-forwarded-for: 1\r\nx-forwarded-port: 3\r\nx-client-verify: NONE\r\n\r\n";
        assert_eq!(sent(own), expected);
    }

    #[test]
    fn any_number_of_the_proxys_fields_is_sent_each_once() {
        let names: Vec<OwnName> = (0..3 * USUAL_FIELDS)
            .map(|n| format!("x-own-{n}").leak())
            .map(|name| OwnName::new(name))
            .collect();
        let clients = names.iter().map(|name| (name.name.as_str(), "client"));
        let headers = heads(&clients.collect::<Vec<_>>());
        let (scrubbed, _) = Scrubbed::new(headers, &OwnNames::default());
        let mut own = OwnFields::new();
        for value in [&b"first"[..], b"second"] {
            names.iter().for_each(|name| own.set(name, value));
        }
        let identity = IdentityHeaders::new(&identity::ClientIdentity::Anonymous, None);
        let form = HeaderForm::default();
        let stamped = scrubbed.stamp(own, &identity, &form, false);
        let sent: Vec<_> = stamped
            .fields()
            .map(|(name, value)| (std::str::from_utf8(name).expect("text"), value))
            .collect();
        let mut expected: Vec<(&str, &[u8])> = names
            .iter()
            .map(|name| (name.name.as_str(), &b"second"[..]))
            .collect();
        expected.push(("x-client-verify", b"NONE"));
        assert_eq!(sent, expected);
    }

    #[test]
    fn the_proxys_fields_replace_those_of_the_client() {
        static HOST: OwnName = OwnName::new("host");
        static RANGE: OwnName = OwnName::new("range");
        let headers = heads(&[
            ("host", "client"),
            ("range", "bytes=0-1"),
            ("accept", "*/*"),
        ]);
        let (scrubbed, _) = Scrubbed::new(headers, &OwnNames::default());
        let mut own = OwnFields::new();
        own.set(&HOST, b"first");
        own.set(&HOST, b"proxy");
        own.remove(&RANGE);
        let identity = IdentityHeaders::new(&identity::ClientIdentity::Anonymous, None);
        let form = HeaderForm::default();
        let mut stamped = scrubbed.stamp(own, &identity, &form, true);
        stamped.set_connection(b"close");
        let fields: Vec<_> = stamped
            .fields()
            .map(|(name, value)| (std::str::from_utf8(name).expect("text"), value))
            .collect();
        let expected: [(&str, &[u8]); 4] = [
            ("accept", b"*/*"),
            ("host", b"proxy"),
            ("x-client-verify", b"NONE"),
            ("connection", b"close"),
        ];
        assert_eq!(fields, expected);
    }
}
