//! Checks certificate subjects in every header format: which subjects the proxy accepts, that the format's grammar
//! reads the sent text back unchanged, and that Puppet's servers identify the right client from it.
//!
//! Input: a sequence of attributes. Each has one byte for the type, one byte for the string tag, and a length-prefixed
//! value. The high bit of the type byte adds the attribute to the preceding RDN.

use std::sync::Arc;

use http::HeaderMap;
use identity::{
    Agent, ChainVerified, ClientIdentity, DnFormat, HeaderForm, HeaderSet, IdentityHeaders,
    IdentitySettings, SubjectRule,
};
use testkit::{Headers, readers};

use crate::bytes::Bytes;
use crate::der;
use crate::reader::{self, Pair, Value};

pub(crate) fn check(input: &[u8]) {
    let subject = Subject::of(input);
    let leaf = certificate(&subject.name());
    let puppet = IdentitySettings {
        subject: SubjectRule::Puppet,
        ..IdentitySettings::default()
    };
    let accepted = Agent::from_leaf(&leaf, &puppet, ChainVerified::assertion()).is_ok();
    assert_eq!(accepted, subject.is_puppet_subject(), "{subject:?}");
    for format in FORMATS {
        let settings = IdentitySettings {
            subject: SubjectRule::SingleCn,
            dn_formats: [format].into_iter().collect(),
        };
        let agent = Agent::from_leaf(&leaf, &settings, ChainVerified::assertion());
        assert_eq!(
            agent.is_ok(),
            subject.is_sendable(format),
            "{agent:?}: {subject:?}"
        );
        if let Ok(agent) = agent {
            check_text(&subject, &leaf, agent, format);
        }
    }
}

fn check_text(subject: &Subject<'_>, leaf: &[u8], agent: Agent, format: DnFormat) {
    let cn = subject.only_cn().expect("tellable");
    assert_eq!(agent.certname().as_str(), cn);
    let headers = stamped(agent, leaf, format);
    let dn = headers.only("x-client-dn");
    assert!(dn.bytes().all(|byte| matches!(byte, b' '..=b'~')), "{dn:?}");
    assert_eq!(headers.only("x-client-verify"), "SUCCESS");
    let read = match format {
        DnFormat::OpenSsl => {
            reader::one_line(dn).map(|pairs| pairs.into_iter().map(|pair| vec![pair]).collect())
        }
        DnFormat::Rfc2253 | DnFormat::CnLast => reader::rfc4514(dn),
    };
    assert_eq!(read, Some(subject.as_sent(format)), "{dn}: {subject:?}");
    for (server, read) in readers::all(&headers) {
        let read = read.ok().and_then(|reading| reading.name);
        let is_meant = subject.is_plain() && readers::is_for(&format.to_string(), server);
        // On servers other than Puppet Server, a name that is not a possible certname matches no agent.
        let is_impossible_certname = |name: &str| {
            !is_meant && !server.starts_with("Puppet Server") && !readers::is_possible(name)
        };
        match read {
            Some(name) => assert!(
                name == cn || is_impossible_certname(&name),
                "{server} reads {name:?}: {dn}"
            ),
            None => assert!(!is_meant, "{server} reads no certname: {dn}"),
        }
    }
    let certificate = readers::escaped_certificate(&headers).expect("one certificate");
    assert_eq!(certificate.as_deref(), Some(leaf));
    check_envoy_header(subject, &headers, cn.contains(NOT_LITERAL));
}

/// Asserts that Envoy's header has one element with three keys (hash, certificate and subject), and that the subject
/// cannot break out of its quotes.
fn check_envoy_header(subject: &Subject<'_>, headers: &Headers, is_omitted: bool) {
    let name = "x-forwarded-client-cert";
    if is_omitted {
        return assert!(headers.all(name).is_empty());
    }
    let parts: Vec<_> = headers.only(name).split('"').collect();
    let [hash, certificate, middle, text, ""] = parts[..] else {
        panic!("{parts:?}");
    };
    assert_eq!((hash.len(), middle), (5 + 64 + 6, ";Subject="));
    assert!(certificate.bytes().all(|byte| byte.is_ascii_graphic()));
    let read = reader::rfc4514(text);
    assert_eq!(
        read,
        Some(subject.as_sent(DnFormat::Rfc2253)),
        "{subject:?}"
    );
}

fn stamped(agent: Agent, leaf: &[u8], format: DnFormat) -> Headers {
    let agent = agent.with_path([7; 32], Arc::default());
    let form = HeaderForm {
        sets: vec![HeaderSet::Puppet, HeaderSet::Xfcc],
        dn_format: format,
        ..HeaderForm::default()
    };
    let mut map = HeaderMap::new();
    IdentityHeaders::new(&ClientIdentity::Verified(Arc::new(agent)), Some(leaf))
        .stamp(&form, &mut map, true);
    lines(&map)
}

/// Converts headers to the type that the server readers expect.
pub(crate) fn lines(map: &HeaderMap) -> Headers {
    let line = |(name, value): (&http::HeaderName, &http::HeaderValue)| {
        let value = String::from_utf8_lossy(value.as_bytes()).into_owned();
        (name.as_str().to_owned(), value)
    };
    Headers(map.iter().map(line).collect())
}

#[derive(Debug)]
struct Subject<'a>(Vec<Vec<Attribute<'a>>>);

#[derive(Clone, Copy, Debug)]
struct Attribute<'a> {
    kind: &'static Kind,
    tag: u8,
    value: &'a [u8],
}

/// An attribute type: its arcs, its dotted OID, its name in RFC 4514, and its name in OpenSSL.
type Kind = (
    &'static [u32],
    &'static str,
    Option<&'static str>,
    Option<&'static str>,
);

impl<'a> Subject<'a> {
    fn of(input: &'a [u8]) -> Self {
        let mut rdns: Vec<Vec<Attribute<'a>>> = Vec::new();
        let mut bytes = Bytes(input);
        while !bytes.is_empty() {
            let (kind, tag) = (bytes.byte(), bytes.byte());
            let attribute = Attribute {
                kind: &KINDS[usize::from(kind & 0x7f) % KINDS.len()],
                tag: TAGS[usize::from(tag) % TAGS.len()],
                value: bytes.run(),
            };
            match rdns.last_mut() {
                Some(rdn) if kind & 0x80 != 0 => rdn.push(attribute),
                _ => rdns.push(vec![attribute]),
            }
        }
        Self(rdns)
    }

    fn name(&self) -> Vec<u8> {
        let rdn = |rdn: &Vec<Attribute<'_>>| {
            let attributes = rdn.iter().flat_map(|one| {
                let kind = der::tlv(0x06, &der::oid(one.kind.0));
                der::all(0x30, &[&kind, &one.encoded()])
            });
            der::tlv(0x31, &attributes.collect::<Vec<u8>>())
        };
        der::tlv(0x30, &self.0.iter().flat_map(rdn).collect::<Vec<u8>>())
    }

    fn all(&self) -> impl Iterator<Item = &Attribute<'a>> {
        self.0.iter().flatten()
    }

    /// The text of the CN, if the subject has exactly one CN and its RDN has no other attribute.
    fn only_cn(&self) -> Option<String> {
        let is_cn = |attribute: &&Attribute<'_>| attribute.kind.1 == CN;
        let rdn = self
            .0
            .iter()
            .find(|rdn| rdn.iter().any(|one| is_cn(&one)))?;
        let is_only = self.all().filter(is_cn).count() == 1 && rdn.len() == 1;
        is_only.then(|| rdn[0].text()).flatten()
    }

    fn is_sendable(&self, format: DnFormat) -> bool {
        let control = |text: String| text.chars().any(char::is_control);
        let Some(cn) = self.only_cn() else {
            return false;
        };
        let literal = match format {
            DnFormat::Rfc2253 => !cn.starts_with("# "),
            _ => !cn.contains(['<', '>', ';', '=', '#']),
        };
        let is_bounded = |one: &Attribute<'_>| match (one.kind.1, one.text()) {
            (CN, Some(text)) => text.len() <= 64,
            ("2.5.4.6", Some(text)) => {
                text.len() == 2 && text.bytes().all(|byte| byte.is_ascii_alphabetic())
            }
            _ => true,
        };
        literal
            && readers::is_possible(&cn)
            && !self.all().filter_map(Attribute::text).any(control)
            && self.all().all(Attribute::is_decoded)
            && (self.all().count() == 1 && !cn.contains(['<', '>', ';', '=', '#'])
                || self.all().all(is_bounded))
    }

    /// Whether the Puppet CA could have issued a certificate with this subject.
    fn is_puppet_subject(&self) -> bool {
        let part = |part: &str| {
            let fit = |byte: u8| {
                byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"_-".contains(&byte)
            };
            !part.is_empty() && part.bytes().all(fit)
        };
        let name =
            |cn: &String| cn.len() < 256 && cn.split('.').all(part) && cn.trim_matches('-') == cn;
        self.0.len() == 1 && self.only_cn().as_ref().is_some_and(name)
    }

    /// Whether the subject is so simple that every reader of a format must read it correctly.
    fn is_plain(&self) -> bool {
        let plain = |byte: &u8| byte.is_ascii_alphanumeric() || b".- ".contains(byte);
        let known = |kind: &str| [CN, "2.5.4.10", "2.5.4.11", "2.5.4.6", EMAIL].contains(&kind);
        self.0.iter().all(|rdn| rdn.len() == 1)
            && self.all().filter(|one| one.kind.1 == CN).count() == 1
            && self.all().all(|one| {
                one.tag == UTF8
                    && known(one.kind.1)
                    && !one.value.is_empty()
                    && one.value.trim_ascii() == one.value
                    && one.value.iter().all(plain)
                    && (one.kind.1 != "2.5.4.6"
                        || one.value.len() == 2 && one.value.iter().all(u8::is_ascii_alphabetic))
            })
    }

    fn as_sent(&self, format: DnFormat) -> Vec<Vec<Pair>> {
        let is_cn = |rdn: &&Vec<Attribute<'_>>| rdn.iter().any(|one| one.kind.1 == CN);
        let read = |rdn: &Vec<Attribute<'_>>| rdn.iter().map(Attribute::as_in_rfc4514).collect();
        match format {
            DnFormat::Rfc2253 => self.0.iter().rev().map(read).collect(),
            DnFormat::CnLast => {
                let others = self.0.iter().filter(|rdn| !is_cn(rdn));
                others
                    .chain(self.0.iter().filter(is_cn))
                    .map(read)
                    .collect()
            }
            DnFormat::OpenSsl => self.all().map(|one| vec![one.as_in_openssl()]).collect(),
        }
    }
}

impl Attribute<'_> {
    fn encoded(&self) -> Vec<u8> {
        der::tlv(self.tag, self.value)
    }

    /// The decoded text, if all readers decode it the same way.
    fn text(&self) -> Option<String> {
        match self.tag {
            UTF8 => std::str::from_utf8(self.value).ok().map(str::to_owned),
            0x12 | 0x13 | 0x16 | 0x1a if self.value.is_ascii() => {
                Some(String::from_utf8_lossy(self.value).into_owned())
            }
            0x1e if self.value.len().is_multiple_of(2) => {
                let units = self
                    .value
                    .chunks(2)
                    .map(|two| u16::from_be_bytes([two[0], two[1]]));
                let units: Vec<u16> = units.collect();
                let paired = units.iter().any(|unit| (0xd800..0xe000).contains(unit));
                String::from_utf16(&units).ok().filter(|_| !paired)
            }
            _ => None,
        }
    }

    /// Whether every parser can decode the value.
    fn is_decoded(&self) -> bool {
        let whole = match self.tag {
            0x04 | 0x0c | 0x12..=0x14 | 0x16 | 0x1a..=0x1c => true,
            0x03 => match self.value.first() {
                Some(0) => true,
                Some(unused) => *unused < 8 && self.value.len() > 1,
                None => false,
            },
            _ => false,
        };
        whole || self.text().is_some()
    }

    fn as_in_rfc4514(&self) -> Pair {
        let value = match (self.kind.2, self.text()) {
            (Some(_), Some(text)) => Value::Text(text.into_bytes()),
            _ => Value::Encoded(self.encoded()),
        };
        (self.kind.2.unwrap_or(self.kind.1).to_owned(), value)
    }

    fn as_in_openssl(&self) -> Pair {
        let value = match self.text() {
            Some(text) => Value::Text(text.into_bytes()),
            None => Value::Encoded(self.encoded()),
        };
        (self.kind.3.unwrap_or(self.kind.1).to_owned(), value)
    }
}

/// A certificate with the subject that the Puppet CA issues for this certname.
pub(crate) fn leaf_of(certname: &str) -> Vec<u8> {
    let attribute = Attribute {
        kind: &KINDS[0],
        tag: UTF8,
        value: certname.as_bytes(),
    };
    certificate(&Subject(vec![vec![attribute]]).name())
}

/// A minimal certificate with this subject and a signature of zeros.
fn certificate(subject: &[u8]) -> Vec<u8> {
    let algorithm = der::tlv(
        0x30,
        &der::tlv(0x06, &der::oid(&[1, 2, 840, 10045, 4, 3, 2])),
    );
    let day = der::tlv(0x17, b"250101000000Z");
    let key = der::all(
        0x30,
        &[
            &der::tlv(0x30, &der::tlv(0x06, &der::oid(&[1, 3, 101, 112]))),
            &der::tlv(0x03, &[0; 33]),
        ],
    );
    let signed = der::all(
        0x30,
        &[
            &der::tlv(0xa0, &der::tlv(0x02, &[2])),
            &der::tlv(0x02, &[5]),
            &algorithm,
            &der::tlv(0x30, &[]),
            &der::all(0x30, &[&day, &day]),
            subject,
            &key,
        ],
    );
    der::all(0x30, &[&signed, &algorithm, &der::tlv(0x03, &[0; 65])])
}

/// Printable characters that an accepted CN may contain but that are not sent literally. Envoy's header is omitted for
/// such a CN.
const NOT_LITERAL: [char; 5] = ['<', '>', ';', '=', '#'];

const FORMATS: [DnFormat; 3] = [DnFormat::Rfc2253, DnFormat::OpenSsl, DnFormat::CnLast];

const CN: &str = "2.5.4.3";
const EMAIL: &str = "1.2.840.113549.1.9.1";

const KINDS: &[Kind] = &[
    (&[2, 5, 4, 3], CN, Some("CN"), Some("CN")),
    (&[2, 5, 4, 10], "2.5.4.10", Some("O"), Some("O")),
    (&[2, 5, 4, 11], "2.5.4.11", Some("OU"), Some("OU")),
    (&[2, 5, 4, 6], "2.5.4.6", Some("C"), Some("C")),
    (
        &[1, 2, 840, 113_549, 1, 9, 1],
        EMAIL,
        None,
        Some("emailAddress"),
    ),
    (&[2, 5, 4, 7], "2.5.4.7", Some("L"), Some("L")),
    (&[2, 5, 4, 8], "2.5.4.8", Some("ST"), Some("ST")),
    (&[2, 5, 4, 9], "2.5.4.9", Some("STREET"), Some("street")),
    (
        &[0, 9, 2342, 19_200_300, 100, 1, 25],
        "0.9.2342.19200300.100.1.25",
        Some("DC"),
        Some("DC"),
    ),
    (
        &[0, 9, 2342, 19_200_300, 100, 1, 1],
        "0.9.2342.19200300.100.1.1",
        Some("UID"),
        Some("UID"),
    ),
    (&[2, 5, 4, 5], "2.5.4.5", None, None),
    (&[1, 2, 3, 4], "1.2.3.4", None, None),
    (&[2, 999, 1], "2.999.1", None, None),
];

const UTF8: u8 = 0x0c;

/// Tags of string types, followed by tags of other types.
const TAGS: [u8; 13] = [
    UTF8, 0x13, 0x16, 0x1e, 0x14, 0x1c, 0x12, 0x1a, 0x04, 0x05, 0x30, 0x80, 0x03,
];

pub(crate) const WORDS: &[&[u8]] = &[
    b"\x00\x00\x05web01",
    b"\x00\x00\x11web01.example.com",
    b"\x01\x00\x09CN=victim",
    b"\x81\x00\x09CN=victim",
    b"\x80\x00\x06victim",
    b"\x00\x03\x04\0w\0e",
    b"CN=victim",
    b"/CN=victim",
    b",CN=victim",
    b"+CN=victim",
    b";CN=victim",
    b"\\,CN=victim",
    b"\\2CCN\\3Dvictim",
    b"#0c06766963746d696d",
    b"OID.2.5.4.3=victim",
    b"\"",
    b"\\",
    b"#",
    b" ",
    b"=",
    b"\xc3\xa9",
    b"\xef\xbc\x9d",
    b"\0",
    b"\n",
    b"\x02\x00\x05.com/",
    b"\x01\x00\x02x ",
];
