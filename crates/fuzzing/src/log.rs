//! Checks access records in every format and for every log receiver. Each record is one line or one datagram of
//! printable ASCII, and parsing it returns the original field values.
//!
//! Input: one byte of flags, then the values that clients and certificates supply. Each value is a length and that many
//! bytes.

use std::{
    collections::HashMap,
    net::SocketAddr,
    sync::Arc,
    time::{Duration, SystemTime},
};

use telemetry::{
    AccessRecord, Format, KnownClient, LogReceiver, RequestFields, RequestFieldsCopy, TlsFacts,
    written,
};

use crate::bytes::Bytes;

pub(crate) fn check(input: &[u8]) {
    let values = UntrustedValues::of(input);
    let record = values.record();
    check_combined(&values, &record);
    check_json(&values, &record);
    check_apache(&values, &record);
    let shared = AccessRecord {
        known_client: Some(Arc::<KnownClient>::default()),
        ..record.clone()
    };
    assert_eq!(
        written(&shared, Format::Combined, LogReceiver::File),
        written(&record, Format::Combined, LogReceiver::File)
    );
    for format in [Format::Combined, Format::Json] {
        let line = written(&record, format.clone(), LogReceiver::File);
        let line = line.strip_suffix(b"\n").expect("an end of line");
        check_syslog(&written(&record, format.clone(), LogReceiver::Syslog), line);
        let fields = journal_fields(&written(&record, format, LogReceiver::Journal));
        assert_eq!(fields["MESSAGE"], line);
        for (key, text) in values.fields() {
            let name = format!("PROSCENIUM_{}", key.to_uppercase());
            assert_eq!(
                fields.get(&name).map(|value| unescaped(value, b'"')),
                text,
                "{key}"
            );
        }
    }
}

/// The untrusted values of one record. A record treats an empty value like a missing one.
#[derive(Debug)]
struct UntrustedValues<'a> {
    method: &'a [u8],
    target: &'a [u8],
    host: &'a [u8],
    referer: &'a [u8],
    user_agent: &'a [u8],
    request_id: &'a [u8],
    certname: String,
    sni: String,
    cause: String,
    verified: bool,
    status: Option<u16>,
}

impl<'a> UntrustedValues<'a> {
    fn of(input: &'a [u8]) -> Self {
        let mut bytes = Bytes(input);
        let how = bytes.byte();
        // A flag multiplies the length by 16, so that some values exceed the maximum length of their field.
        let mut run = |bit: u8| {
            let factor = if how & bit == 0 { 1 } else { 16 };
            let length = usize::from(bytes.byte()) * factor;
            bytes.take(length)
        };
        let (method, target, host) = (run(4), run(8), run(16));
        let (referer, user_agent, request_id) = (run(32), run(64), run(128));
        let mut text = || String::from_utf8_lossy(run(8)).into_owned();
        Self {
            method,
            target,
            host,
            referer,
            user_agent,
            request_id,
            certname: text(),
            sni: text(),
            cause: text(),
            verified: how & 1 == 1,
            status: (how & 2 == 2).then_some(200),
        }
    }

    fn record(&self) -> AccessRecord {
        let client = SocketAddr::from(([192, 0, 2, 7], 51_234));
        let when = SystemTime::UNIX_EPOCH + Duration::from_micros(1_795_267_325_000_123);
        AccessRecord {
            certname: Some(self.certname.as_str().into()),
            verdict: self.verified.then(|| "SUCCESS".into()),
            tls: Some(Arc::new(TlsFacts {
                version: "TLSv1.3",
                cipher: "TLS13_AES_128_GCM_SHA256",
                resumed: false,
                sni: Some(self.sni.as_str().into()),
            })),
            request_fields: RequestFieldsCopy::of(&RequestFields {
                method: Some(self.method),
                target: Some(self.target),
                host: Some(self.host),
                referer: Some(self.referer),
                user_agent: Some(self.user_agent),
                request_id: Some(self.request_id),
            }),
            http_version: Some("HTTP/1.1"),
            status: self.status,
            cause: Some(self.cause.as_str().into()),
            ..AccessRecord::new(when, "agents".into(), client)
        }
    }

    /// The user: the certname, but only if the certificate was verified.
    fn user(&self) -> Option<Vec<u8>> {
        truncated(self.certname.as_bytes(), 512).filter(|_| self.verified)
    }

    /// Each field's key and its value, truncated to the maximum length of the field.
    fn fields(&self) -> [(&'static str, Option<Vec<u8>>); 10] {
        [
            ("method", truncated(self.method, 32)),
            ("target", truncated(self.target, 2048)),
            ("host", truncated(self.host, 256)),
            ("referer", truncated(self.referer, 512)),
            ("user_agent", truncated(self.user_agent, 512)),
            ("id", truncated(self.request_id, 128)),
            ("certname", truncated(self.certname.as_bytes(), 512)),
            ("sni", truncated(self.sni.as_bytes(), 512)),
            ("cause", truncated(self.cause.as_bytes(), 512)),
            ("user", self.user()),
        ]
    }

    fn field(&self, key: &str) -> Option<Vec<u8>> {
        let mut fields = self.fields().into_iter();
        fields.find(|(name, _)| *name == key).expect("a field").1
    }
}

/// The value truncated to `limit` bytes, or `None` if it is empty.
fn truncated(text: &[u8], limit: usize) -> Option<Vec<u8>> {
    let cut: &[u8] = if text.len() > limit { b"..." } else { b"" };
    (!text.is_empty()).then(|| [&text[..text.len().min(limit)], cut].concat())
}

/// The text of a line. It must not contain a second line end or control characters for a terminal.
fn one_line(line: &[u8]) -> &str {
    let text = line.strip_suffix(b"\n").expect("an end of line");
    assert!(text.iter().all(|byte| matches!(byte, b' '..=b'~')));
    std::str::from_utf8(text).expect("ASCII")
}

/// Decodes the escapes in a value. The value must not contain `end`.
fn unescaped(value: &[u8], end: u8) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut rest = value;
    while let Some((byte, after)) = rest.split_first() {
        assert!(*byte != end && matches!(byte, b' '..=b'~'));
        if *byte == b'\\' {
            let digits = std::str::from_utf8(&after[1..3]).expect("digits");
            assert_eq!(after[0], b'x');
            bytes.push(u8::from_str_radix(digits, 16).expect("digits"));
            rest = &after[3..];
        } else {
            bytes.push(*byte);
            rest = after;
        }
    }
    bytes
}

/// The first word or quoted string of `text`, whether it is quoted, and the text after the space that follows it.
fn word(text: &str) -> (Vec<u8>, bool, &str) {
    if let Some(text) = text.strip_prefix('"') {
        let (value, rest) = text.split_once('"').expect("a closing quote");
        return (
            unescaped(value.as_bytes(), b'"'),
            true,
            rest.strip_prefix(' ').unwrap_or(rest),
        );
    }
    let (value, rest) = text.split_once(' ').unwrap_or((text, ""));
    (unescaped(value.as_bytes(), b' '), false, rest)
}

/// The text, or a hyphen if it is missing.
fn or_hyphen(text: Option<Vec<u8>>) -> Vec<u8> {
    text.unwrap_or_else(|| b"-".to_vec())
}

fn check_combined(values: &UntrustedValues<'_>, record: &AccessRecord) {
    let line = written(record, Format::Combined, LogReceiver::File);
    let rest = one_line(&line).strip_prefix("192.0.2.7 - ");
    let (user, _, rest) = word(rest.expect("the address"));
    assert_eq!(user, or_hyphen(values.user()));
    let rest = rest.strip_prefix("[21/Nov/2026:13:22:05 +0000] \"");
    let (request, rest) = rest.and_then(|rest| rest.split_once("\" ")).expect("time");
    check_request(values, request);
    let (status, _, rest) = word(rest);
    assert_eq!(
        status,
        if values.status.is_some() {
            &b"200"[..]
        } else {
            b"-"
        }
    );
    let (_, _, rest) = word(rest);
    let (referer, quoted, rest) = word(rest);
    assert!(quoted);
    assert_eq!(referer, or_hyphen(values.field("referer")));
    let (agent, quoted, mut rest) = word(rest);
    assert!(quoted);
    assert_eq!(agent, or_hyphen(values.field("user_agent")));
    let mut fields = HashMap::new();
    while !rest.is_empty() {
        let (key, after) = rest.split_once('=').expect("a field");
        assert!(
            key.bytes()
                .all(|byte| byte.is_ascii_lowercase() || byte == b'_')
        );
        let (value, _, after) = word(after);
        assert_eq!(fields.insert(key, value), None, "{key} is repeated");
        rest = after;
    }
    for key in ["id", "host", "certname", "sni", "cause"] {
        assert_eq!(fields[key], or_hyphen(values.field(key)), "{key}");
    }
}

fn check_request(values: &UntrustedValues<'_>, request: &str) {
    let (method, target) = (values.field("method"), values.field("target"));
    if method.is_none() && target.is_none() {
        return assert_eq!(request, "-");
    }
    let words: Vec<_> = request.split(' ').collect();
    assert_eq!(words.len(), 3, "{request}");
    assert_eq!(unescaped(words[0].as_bytes(), b'"'), or_hyphen(method));
    assert_eq!(unescaped(words[1].as_bytes(), b'"'), or_hyphen(target));
    assert_eq!(words[2], "HTTP/1.1");
}

fn check_json(values: &UntrustedValues<'_>, record: &AccessRecord) {
    let line = written(record, Format::Json, LogReceiver::File);
    let text = one_line(&line);
    let value: serde_json::Value = serde_json::from_str(text).expect("JSON");
    let object = value.as_object().expect("an object");
    // The parser would hide a repeated key, so count the keys in the text. Strings contain no quotation marks.
    let between: Vec<_> = text.split('"').step_by(2).collect();
    let names = between.iter().filter(|text| text.starts_with(':'));
    assert_eq!(names.count(), object.len());
    assert_eq!(object["client"], "192.0.2.7");
    assert_eq!(object["time"], "2026-11-21T13:22:05.000123Z");
    for (key, text) in values.fields() {
        let read = object[key].as_str();
        assert_eq!(
            read.map(|read| unescaped(read.as_bytes(), b'"')),
            text,
            "{key}"
        );
    }
}

fn check_apache(values: &UntrustedValues<'_>, record: &AccessRecord) {
    let parts = [
        ("%u", values.user()),
        ("%m", values.field("method")),
        ("\"%{Referer}i\"", values.field("referer")),
        ("\"%{User-Agent}i\"", values.field("user_agent")),
        ("%{Host}i", values.field("host")),
        ("%{X-Request-Id}o", values.field("id")),
        ("%{SSL_TLS_SNI}x", values.field("sni")),
        ("%{SSL_CLIENT_S_DN_CN}x", values.field("certname")),
    ];
    let format = parts.iter().map(|(directive, _)| *directive);
    let format: Vec<_> = format.chain(["%U", "\"%r\""]).collect();
    let format = format.join(" ").parse().expect("a format");
    let line = written(record, Format::Apache(format), LogReceiver::File);
    let mut rest = one_line(&line);
    for (directive, expected) in parts {
        let (value, _, after) = word(rest);
        assert_eq!(value, or_hyphen(expected), "{directive}");
        rest = after;
    }
    let (path, _, rest) = word(rest);
    let target = values.field("target").unwrap_or_default();
    let end = target.iter().position(|byte| *byte == b'?');
    let expected = target[..end.unwrap_or(target.len())].to_vec();
    assert_eq!(
        path,
        or_hyphen(Some(expected).filter(|path| !path.is_empty()))
    );
    let request = rest
        .strip_prefix('"')
        .and_then(|rest| rest.strip_suffix('"'));
    check_request(values, request.expect("quotes"));
}

/// Asserts that the datagram begins with its priority and contains the line, which may be truncated.
fn check_syslog(datagram: &[u8], line: &[u8]) {
    assert!(datagram.len() <= 8 << 10);
    let text = datagram.strip_prefix(b"<30>proscenium[1]: ");
    let text = text.expect("a priority and a tag");
    let whole = text == line;
    let cut = text.strip_suffix(b"...");
    assert!(whole || cut.is_some_and(|cut| line.starts_with(cut)));
}

/// The fields of an entry in the journal's native protocol. A field name must not be repeated.
fn journal_fields(mut entry: &[u8]) -> HashMap<String, Vec<u8>> {
    let mut fields = HashMap::new();
    while !entry.is_empty() {
        let end = entry.iter().position(|byte| *byte == b'\n');
        let (first, rest) = entry.split_at(end.expect("an end of line"));
        let first = std::str::from_utf8(first).expect("a name");
        let rest = &rest[1..];
        let (name, value) = match first.split_once('=') {
            Some((name, value)) => {
                entry = rest;
                (name, value.as_bytes().to_vec())
            }
            None => {
                let (length, rest) = rest.split_first_chunk().expect("a length");
                let (value, rest) = rest.split_at(u64::from_le_bytes(*length) as usize);
                entry = rest.strip_prefix(b"\n").expect("an end of the value");
                (first, value.to_vec())
            }
        };
        let known = |byte: u8| byte.is_ascii_uppercase() || byte == b'_';
        assert!(name.bytes().all(known), "{name}");
        assert_eq!(fields.insert(name.to_owned(), value), None, "{name}");
    }
    fields
}

pub(crate) const WORDS: &[&[u8]] = &[
    b"\n",
    b"\r\n",
    b"\x1b[31m",
    b"\"",
    b"\\",
    b"\\x0a",
    b" certname=ca",
    b"\" 200 1 \"",
    b"\",\"verdict\":\"SUCCESS",
    b"-",
    b"...",
    b"\xff\xfe",
    b"\xe2\x80\xa8",
    b"\0",
    b"=",
    b"?",
    b" ",
];
