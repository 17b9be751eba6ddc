//! The fields of a message, as ranges of the bytes that were received.

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, HeaderName, HeaderValue};

use crate::chunks::is_token;

/// The name of a field that the proxy itself reads. It is determined once, when the head is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldName {
    /// `connection`
    Connection,
    /// `content-length`
    ContentLength,
    /// `date`
    Date,
    /// `expect`
    Expect,
    /// `host`
    Host,
    /// `keep-alive`
    KeepAlive,
    /// `proxy-authenticate`
    ProxyAuthenticate,
    /// `proxy-connection`
    ProxyConnection,
    /// `referer`
    Referer,
    /// `te`
    Te,
    /// `trailer`
    Trailer,
    /// `transfer-encoding`
    TransferEncoding,
    /// `upgrade`
    Upgrade,
    /// `user-agent`
    UserAgent,
    /// `x-puppet-version`
    XPuppetVersion,
    /// Any other name.
    Other,
}

impl FieldName {
    /// The variant for a name in lower case.
    pub fn of(name: &[u8]) -> Self {
        match name.len() {
            2 if name == b"te" => Self::Te,
            4 if name == b"host" => Self::Host,
            4 if name == b"date" => Self::Date,
            6 if name == b"expect" => Self::Expect,
            7 if name == b"trailer" => Self::Trailer,
            7 if name == b"upgrade" => Self::Upgrade,
            7 if name == b"referer" => Self::Referer,
            10 if name == b"connection" => Self::Connection,
            10 if name == b"user-agent" => Self::UserAgent,
            10 if name == b"keep-alive" => Self::KeepAlive,
            14 if name == b"content-length" => Self::ContentLength,
            16 if name == b"x-puppet-version" => Self::XPuppetVersion,
            16 if name == b"proxy-connection" => Self::ProxyConnection,
            17 if name == b"transfer-encoding" => Self::TransferEncoding,
            18 if name == b"proxy-authenticate" => Self::ProxyAuthenticate,
            _ => Self::Other,
        }
    }

    /// Whether a field is hop-by-hop (RFC 9110, 7.6.1), even if no `Connection` field names it. `Expect` counts as hop-by-hop,
    /// because the proxy responds to it itself.
    pub fn is_hop_by_hop(self) -> bool {
        matches!(
            self,
            Self::Connection
                | Self::KeepAlive
                | Self::ProxyConnection
                | Self::ProxyAuthenticate
                | Self::Te
                | Self::Trailer
                | Self::TransferEncoding
                | Self::Upgrade
                | Self::Expect
        )
    }
}

/// One field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field<'a> {
    /// The name as a variant.
    pub known: FieldName,
    /// Its name in lower case, a token (RFC 9110, 5.1).
    pub name: &'a [u8],
    /// Its value, without white space at both ends and without control characters except tabs.
    pub value: &'a [u8],
}

impl<'a> Field<'a> {
    /// The name of the field as a string.
    pub fn text(&self) -> &'a str {
        // A token is ASCII.
        std::str::from_utf8(self.name).unwrap_or_default()
    }
}

/// The fields of a message: first those that were received, in the order of their lines, then those that were added.
#[derive(Clone, Debug, Default)]
pub struct Fields {
    bytes: Bytes,
    lines: Vec<Line>,
    added: Vec<(HeaderName, HeaderValue)>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Line {
    pub(crate) known: FieldName,
    pub(crate) name: (u32, u32),
    pub(crate) value: (u32, u32),
}

impl Fields {
    pub(crate) fn new(bytes: Bytes, lines: Vec<Line>) -> Self {
        Self {
            bytes,
            lines,
            added: Vec::new(),
        }
    }

    /// All fields.
    pub fn iter(&self) -> impl Iterator<Item = Field<'_>> {
        let lines = self.lines.iter().map(|line| field(&self.bytes, line));
        lines.chain(self.added.iter().map(|(name, value)| added(name, value)))
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.lines.len() + self.added.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The value of the first received field of this kind.
    pub fn get(&self, known: FieldName) -> Option<&[u8]> {
        let line = self.lines.iter().find(|line| line.known == known)?;
        Some(field(&self.bytes, line).value)
    }

    /// The value of the first field with this name.
    pub fn value(&self, name: &HeaderName) -> Option<&[u8]> {
        let name = name.as_str().as_bytes();
        let mut fields = self.iter();
        fields
            .find(|field| field.name == name)
            .map(|field| field.value)
    }

    /// Whether there is a field with this name.
    pub fn contains(&self, name: &HeaderName) -> bool {
        self.value(name).is_some()
    }

    /// Adds a field after the others.
    pub fn append(&mut self, name: HeaderName, value: HeaderValue) {
        self.added.push((name, value));
    }

    /// Adds a field, and removes all other fields with its name.
    pub fn insert(&mut self, name: HeaderName, value: HeaderValue) {
        self.remove(&name);
        self.append(name, value);
    }

    /// Removes all fields with this name.
    pub fn remove(&mut self, name: &HeaderName) {
        self.retain(|field| field.name != name.as_str().as_bytes());
    }

    /// The same fields as a map.
    pub fn to_map(&self) -> HeaderMap {
        let mut map = HeaderMap::with_capacity(self.len());
        for field in self.iter() {
            let name = HeaderName::from_lowercase(field.name);
            if let (Ok(name), Ok(value)) = (name, HeaderValue::from_bytes(field.value)) {
                map.append(name, value);
            }
        }
        map
    }

    /// The values of all fields with this name. The name must be in lower case.
    pub fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a [u8]> {
        let named = self
            .iter()
            .filter(move |field| field.name == name.as_bytes());
        named.map(|field| field.value)
    }

    /// Keeps only the fields for which `keeps` returns true.
    pub fn retain(&mut self, mut keeps: impl FnMut(Field<'_>) -> bool) {
        let bytes = &self.bytes;
        self.lines.retain(|line| keeps(field(bytes, line)));
        self.added.retain(|(name, value)| keeps(added(name, value)));
    }

    /// These fields, followed by those of `others` for which `has` returns true. Both must be fields of the same head.
    pub fn with(&self, others: &Self, mut has: impl FnMut(Field<'_>) -> bool) -> Self {
        let mut all = self.clone();
        let of_others = others.lines.iter();
        all.lines
            .extend(of_others.filter(|line| has(field(&others.bytes, line))));
        all
    }

    /// Removes and returns the fields for which `takes` returns true. Call this before any field is added.
    pub fn extract(&mut self, mut takes: impl FnMut(Field<'_>) -> bool) -> Self {
        let bytes = self.bytes.clone();
        let taken = self.lines.extract_if(.., |line| takes(field(&bytes, line)));
        Self {
            lines: taken.collect(),
            bytes,
            added: Vec::new(),
        }
    }
}

fn added<'a>(name: &'a HeaderName, value: &'a HeaderValue) -> Field<'a> {
    let name = name.as_str().as_bytes();
    Field {
        known: FieldName::of(name),
        name,
        value: value.as_bytes(),
    }
}

fn field<'a>(bytes: &'a [u8], line: &Line) -> Field<'a> {
    let part = |(start, end): (u32, u32)| bytes.get(start as usize..end as usize);
    Field {
        known: line.known,
        name: part(line.name).unwrap_or_default(),
        value: part(line.value).unwrap_or_default(),
    }
}

/// Reads the field in a line that ends with the LF at `end`, and changes its name to lower case. `true`: the LF is bare.
/// `None`: the line is not a field.
pub(crate) fn read_line(head: &mut [u8], start: usize, end: usize) -> Option<(Line, bool)> {
    let text = head.get_mut(start..end).unwrap_or_default();
    let is_bare = text.last() != Some(&b'\r');
    let text_end = text.len() - usize::from(!is_bare);
    let text = &mut text[..text_end];
    let mut name_end = 0;
    for byte in text.iter_mut() {
        match LOWER_CASE[*byte as usize] {
            0 => break,
            lower => *byte = lower,
        }
        name_end += 1;
    }
    if name_end == 0 || text.get(name_end) != Some(&b':') {
        return None;
    }
    let (name, value) = (&text[..name_end], &text[name_end + 1..]);
    // One pass without a branch costs less than a search that stops at the first control character.
    let is_control = |byte: u8| (byte < b' ' && byte != b'\t') | (byte == 0x7f);
    if value
        .iter()
        .fold(false, |any, byte| any | is_control(*byte))
    {
        return None;
    }
    let is_blank = |byte: &&u8| matches!(byte, b' ' | b'\t');
    let before = value.iter().take_while(is_blank).count();
    let behind = value[before..].iter().rev().take_while(is_blank).count();
    let at = |offset: usize| (start + offset) as u32;
    let line = Line {
        known: FieldName::of(name),
        name: (at(0), at(name_end)),
        value: (at(name_end + 1 + before), at(text.len() - behind)),
    };
    Some((line, is_bare))
}

/// The lower case of each byte that a token may have; 0 for all other bytes.
static LOWER_CASE: [u8; 256] = lower_case();

const fn lower_case() -> [u8; 256] {
    let mut table = [0; 256];
    let mut byte = 0_u8;
    loop {
        if is_token(byte) {
            table[byte as usize] = byte.to_ascii_lowercase();
        }
        if byte == 255 {
            return table;
        }
        byte += 1;
    }
}

/// Collects fields from their names, in lower case, and values.
impl<'a> FromIterator<(&'a [u8], &'a [u8])> for Fields {
    fn from_iter<I: IntoIterator<Item = (&'a [u8], &'a [u8])>>(fields: I) -> Self {
        let (mut bytes, mut lines) = (BytesMut::new(), Vec::new());
        let mut put = |part: &[u8]| {
            let start = bytes.len() as u32;
            bytes.extend_from_slice(part);
            (start, bytes.len() as u32)
        };
        for (name, value) in fields {
            lines.push(Line {
                known: FieldName::of(name),
                name: put(name),
                value: put(value),
            });
        }
        Self::new(bytes.freeze(), lines)
    }
}

impl From<&HeaderMap> for Fields {
    fn from(headers: &HeaderMap) -> Self {
        let fields = headers.iter();
        fields
            .map(|(name, value)| (name.as_str().as_bytes(), value.as_bytes()))
            .collect()
    }
}
