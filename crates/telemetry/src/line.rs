//! Formats one access record as a line, or as the datagram that a log daemon receives.

use std::fmt::Write as _;
use std::net::IpAddr;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime};

use balancing::Work;
use time::OffsetDateTime;
use time::macros::format_description;

use crate::escape::{self, EscapeContext};
use crate::journal;
use crate::line_cache::LineCache;
use crate::log_format::{Directive, Part};
use crate::record::AccessRecord;
use crate::request_fields::FieldText;
use crate::settings::Format;
use crate::syslog::{self, Severity};

/// The form of a record for its destination.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Form {
    pub(crate) format: Format,
    pub(crate) framing: Framing,
}

/// What precedes and follows the text of a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Framing {
    Line,
    /// A datagram that starts with these bytes.
    Syslog(Arc<[u8]>),
    /// A datagram with fields.
    Journal,
}

/// The name of a field, with the characters around it in each form.
#[derive(Clone, Copy)]
struct Key {
    name: &'static str,
    combined: &'static str,
    json: &'static str,
    /// Whether the field's value is a sentence, which the combined form puts in quotes.
    is_sentence: bool,
}

macro_rules! key {
    ($name:literal) => {
        Key {
            name: $name,
            combined: concat!(" ", $name, "="),
            json: concat!(",\"", $name, "\":"),
            is_sentence: matches!($name.as_bytes(), b"cause"),
        }
    };
}

/// Writes records in one form. It caches the last second that it formatted.
#[derive(Debug)]
pub(crate) struct LineWriter {
    form: Form,
    second: i64,
    spelled: String,
    ways: LineCache,
}

impl LineWriter {
    pub(crate) fn new(form: Form) -> Self {
        Self {
            form,
            second: i64::MIN,
            spelled: String::new(),
            ways: LineCache::default(),
        }
    }

    /// Appends the record: a line with its end, or a datagram after its length (see [`datagrams`]).
    pub(crate) fn push(&mut self, line: &mut Vec<u8>, record: &AccessRecord) {
        match &self.form.framing {
            Framing::Line => {
                self.push_text(line, record);
                line.push(b'\n');
            }
            Framing::Syslog(head) => {
                let head = Arc::clone(head);
                push_datagram(line, |line| {
                    let start = line.len();
                    line.extend_from_slice(&head);
                    self.push_text(line, record);
                    syslog::cut(line, start);
                });
            }
            Framing::Journal => push_datagram(line, |line| self.push_entry(line, record)),
        }
    }

    fn push_text(&mut self, line: &mut Vec<u8>, record: &AccessRecord) {
        match &self.form.format {
            Format::Combined => self.push_combined(line, record),
            Format::Json => self.push_json(line, record),
            Format::Apache(format) => {
                let parts = Arc::clone(format.parts());
                for part in &*parts {
                    match part {
                        Part::Text(text) => line.extend_from_slice(text.as_bytes()),
                        Part::Directive(directive) => self.push_directive(line, record, *directive),
                    }
                }
            }
        }
    }

    /// The line as the field `MESSAGE`, then the fields of the record. Missing fields are left out.
    fn push_entry(&mut self, entry: &mut Vec<u8>, record: &AccessRecord) {
        journal::begin(entry, Severity::Info);
        journal::push_field(entry, "", "MESSAGE", |entry| self.push_text(entry, record));
        let client = record.client.ip();
        journal::push_field(entry, journal::PREFIX, "client", |entry| {
            push_address(entry, client)
        });
        let mut field = |key: Key, value: Value<'_>| {
            if !value.is_missing() {
                journal::push_field(entry, journal::PREFIX, key.name, |entry| {
                    push_value(entry, value, EscapeContext::Quoted);
                });
            }
        };
        for_each_apache_field(record, &mut field);
        for_each_field(record, field);
    }

    /// `host - user [time] "request" status bytes "referer" "user agent"`, then `key=value`, `-` for missing values.
    fn push_combined(&mut self, line: &mut Vec<u8>, record: &AccessRecord) {
        let known = record.known_client.as_deref();
        let known = known.map(|known| known.text(record));
        push_known(line, known.map(|known| &known.client), |line| {
            push_client(line, record)
        });
        self.push_time(line, record.when);
        line.extend_from_slice(b"] \"");
        push_request(line, record);
        line.extend_from_slice(b"\" ");
        push_value(line, Value::count(record.status), EscapeContext::Bare);
        line.push(b' ');
        push_value(
            line,
            Value::count(record.has_bytes().then_some(record.bytes_out)),
            EscapeContext::Bare,
        );
        for kept in [
            record.request_fields.referer(),
            record.request_fields.user_agent(),
        ] {
            line.extend_from_slice(b" \"");
            push_value(line, Value::Text(kept), EscapeContext::Quoted);
            line.push(b'"');
        }
        request_fields(record, &mut |key, value| push_field(line, key, value));
        push_known(line, known.map(|known| &known.socket), |line| {
            socket_fields(record, &mut |key, value| push_field(line, key, value));
        });
        host_fields(record, &mut |key, value| push_field(line, key, value));
        push_known(line, known.map(|known| &known.identity), |line| {
            identity_fields(record, &mut |key, value| push_field(line, key, value));
        });
        outcome_fields(record, &mut |key, value| push_field(line, key, value));
        let write = |text: &mut Vec<u8>| {
            way_fields(record, &mut |key, value| push_field(text, key, value));
        };
        match self.ways.text(record, write) {
            Some(text) => line.extend_from_slice(text),
            None => write(line),
        }
        count_fields(record, &mut |key, value| push_field(line, key, value));
        push_known(line, known.map(|known| &known.tls), |line| {
            tls_fields(record, &mut |key, value| push_field(line, key, value));
        });
        end_fields(record, &mut |key, value| push_field(line, key, value));
    }

    /// Writes the value of a directive, as Apache does. No text from a client can end a field, in quotes or without.
    fn push_directive(&mut self, line: &mut Vec<u8>, record: &AccessRecord, directive: Directive) {
        let tls = record.tls.as_deref();
        let bytes = record.status.map(|_| record.bytes_out);
        let value = match directive {
            Directive::Address => return push_address(line, record.client.ip()),
            Directive::Time => {
                line.push(b'[');
                self.push_time(line, record.when);
                return line.push(b']');
            }
            Directive::Request => return push_request(line, record),
            Directive::Path => return push_path(line, record),
            Directive::Missing => Value::Missing,
            Directive::User => Value::name(record.proven_certname()),
            Directive::Method => Value::Text(record.request_fields.method()),
            Directive::LogProtocol => Value::word(record.http_version),
            Directive::Status => Value::count(record.status),
            Directive::Bytes => Value::count(bytes.filter(|bytes| *bytes > 0)),
            Directive::BytesOrZero => Value::count(bytes.or(Some(0))),
            Directive::Micros => Value::micros(record.times.total),
            Directive::Referer => Value::Text(record.request_fields.referer()),
            Directive::UserAgent => Value::Text(record.request_fields.user_agent()),
            Directive::Host => Value::Text(record.request_fields.host()),
            Directive::RequestId => Value::Text(record.request_fields.request_id()),
            Directive::TlsVersion => Value::word(tls.map(|tls| tls.version)),
            Directive::TlsCipher => Value::word(tls.map(|tls| tls.cipher)),
            Directive::TlsServerName => Value::name(tls.and_then(|tls| tls.sni.as_deref())),
            Directive::Certname => Value::name(record.certname.as_deref()),
            Directive::Verdict => Value::name(record.verdict.as_deref()),
        };
        let place = match directive {
            Directive::Referer | Directive::UserAgent => EscapeContext::Quoted,
            _ => EscapeContext::Bare,
        };
        push_value(line, value, place);
    }

    fn push_json(&mut self, line: &mut Vec<u8>, record: &AccessRecord) {
        line.extend_from_slice(b"{\"time\":\"");
        self.push_time(line, record.when);
        line.extend_from_slice(b"\",\"client\":\"");
        push_address(line, record.client.ip());
        line.push(b'"');
        let mut member = |key: Key, value: Value<'_>| {
            line.extend_from_slice(key.json.as_bytes());
            push_json_value(line, value);
        };
        for_each_apache_field(record, &mut member);
        for_each_field(record, member);
        line.push(b'}');
    }

    fn push_time(&mut self, line: &mut Vec<u8>, when: SystemTime) {
        let when = OffsetDateTime::from(when);
        let second = when.unix_timestamp();
        if second != self.second {
            self.second = second;
            self.spelled = spell(when, &self.form.format);
        }
        line.extend_from_slice(self.spelled.as_bytes());
        if self.form.format == Format::Json {
            line.push(b'.');
            push_text(line, &format_args!("{:06}Z", when.microsecond()));
        }
    }
}

/// The text that the combined lines of all records of one connection have in common. It is written with the first record.
///
/// All records that share a value must have equal `client`, `peer`, `listener`, `certname`, `verdict` and `tls`, and must not
/// belong to a passed-through connection.
#[derive(Debug, Default)]
pub struct KnownClient(OnceLock<KnownText>);

#[derive(Debug)]
struct KnownText {
    client: Vec<u8>,
    socket: Vec<u8>,
    identity: Vec<u8>,
    tls: Vec<u8>,
}

impl KnownClient {
    fn text(&self, record: &AccessRecord) -> &KnownText {
        let written = |write: &dyn Fn(&mut Vec<u8>)| {
            let mut text = Vec::new();
            write(&mut text);
            text
        };
        self.0.get_or_init(|| KnownText {
            client: written(&|text| push_client(text, record)),
            socket: written(&|text| {
                socket_fields(record, &mut |key, value| push_field(text, key, value));
            }),
            identity: written(&|text| {
                identity_fields(record, &mut |key, value| push_field(text, key, value));
            }),
            tls: written(&|text| {
                tls_fields(record, &mut |key, value| push_field(text, key, value));
            }),
        })
    }
}

fn push_known(line: &mut Vec<u8>, known: Option<&Vec<u8>>, write: impl FnOnce(&mut Vec<u8>)) {
    match known {
        Some(text) => line.extend_from_slice(text),
        None => write(line),
    }
}

/// Writes everything that precedes the time.
fn push_client(line: &mut Vec<u8>, record: &AccessRecord) {
    push_address(line, record.client.ip());
    line.extend_from_slice(b" - ");
    push_value(
        line,
        Value::name(record.proven_certname()),
        EscapeContext::Bare,
    );
    line.extend_from_slice(b" [");
}

/// Writes a field of the combined form that follows Apache's fields.
fn push_field(line: &mut Vec<u8>, key: Key, value: Value<'_>) {
    line.extend_from_slice(key.combined.as_bytes());
    if key.is_sentence {
        push_sentence(line, value)
    } else {
        push_value(line, value, EscapeContext::Bare)
    }
}

/// Formats a time in Apache's form, or in RFC 3339 to the second. Both are in UTC.
fn spell(when: OffsetDateTime, format: &Format) -> String {
    let combined =
        format_description!("[day]/[month repr:short]/[year]:[hour]:[minute]:[second] +0000");
    let json = format_description!("[year]-[month]-[day]T[hour]:[minute]:[second]");
    let spelled = match format {
        Format::Combined | Format::Apache(_) => when.format(combined),
        Format::Json => when.format(json),
    };
    spelled.unwrap_or_default()
}

/// The target without its query.
fn push_path(line: &mut Vec<u8>, record: &AccessRecord) {
    let target = record.request_fields.target();
    let end = target.bytes.iter().position(|byte| *byte == b'?');
    let path = FieldText {
        bytes: &target.bytes[..end.unwrap_or(target.bytes.len())],
        cut: target.cut && end.is_none(),
    };
    push_value(line, Value::Text(path), EscapeContext::Bare);
}

/// Method, target and version.
fn push_request(line: &mut Vec<u8>, record: &AccessRecord) {
    let spoken = &record.request_fields;
    if spoken.method().bytes.is_empty() && spoken.target().bytes.is_empty() {
        line.push(b'-');
    } else {
        // The value has no quotes, so spaces are escaped: the request has three parts whatever the target contains.
        push_value(line, Value::Text(spoken.method()), EscapeContext::Bare);
        line.push(b' ');
        push_value(line, Value::Text(spoken.target()), EscapeContext::Bare);
        line.push(b' ');
        push_value(line, Value::word(record.http_version), EscapeContext::Bare);
    }
}

/// The datagrams of a batch, which has the length of each before it.
pub(crate) fn datagrams(mut batch: &[u8]) -> impl Iterator<Item = &[u8]> {
    std::iter::from_fn(move || {
        let (length, rest) = batch.split_first_chunk()?;
        let (datagram, rest) = rest.split_at_checked(u32::from_le_bytes(*length) as usize)?;
        batch = rest;
        Some(datagram)
    })
}

fn push_datagram(batch: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) {
    let length_at = batch.len();
    batch.extend_from_slice(&[0; size_of::<u32>()]);
    let start = batch.len();
    write(batch);
    let length = u32::try_from(batch.len() - start).expect("a record's parts are bounded");
    batch[length_at..start].copy_from_slice(&length.to_le_bytes());
}

/// The fields that have fixed positions in Apache's form, except time and address.
fn for_each_apache_field<'a>(record: &'a AccessRecord, field: &mut impl FnMut(Key, Value<'a>)) {
    let spoken = &record.request_fields;
    field(key!("user"), Value::name(record.proven_certname()));
    field(key!("method"), Value::Text(spoken.method()));
    field(key!("target"), Value::Text(spoken.target()));
    field(key!("http_version"), Value::word(record.http_version));
    field(key!("status"), Value::count(record.status));
    field(
        key!("bytes_out"),
        Value::count(record.has_bytes().then_some(record.bytes_out)),
    );
    field(key!("referer"), Value::Text(spoken.referer()));
    field(key!("user_agent"), Value::Text(spoken.user_agent()));
}

fn for_each_field<'a>(record: &'a AccessRecord, mut field: impl FnMut(Key, Value<'a>)) {
    request_fields(record, &mut field);
    socket_fields(record, &mut field);
    host_fields(record, &mut field);
    identity_fields(record, &mut field);
    outcome_fields(record, &mut field);
    way_fields(record, &mut field);
    count_fields(record, &mut field);
    tls_fields(record, &mut field);
    end_fields(record, &mut field);
}

fn request_fields<'a>(record: &'a AccessRecord, field: &mut impl FnMut(Key, Value<'a>)) {
    field(key!("id"), Value::Text(record.request_fields.request_id()));
}

fn socket_fields<'a>(record: &'a AccessRecord, field: &mut impl FnMut(Key, Value<'a>)) {
    field(key!("port"), Value::count(Some(record.client.port())));
    field(
        key!("peer"),
        record.peer.map_or(Value::Missing, Value::Address),
    );
    field(key!("listener"), Value::name(Some(&record.listener)));
}

fn host_fields<'a>(record: &'a AccessRecord, field: &mut impl FnMut(Key, Value<'a>)) {
    field(key!("host"), Value::Text(record.request_fields.host()));
}

fn identity_fields<'a>(record: &'a AccessRecord, field: &mut impl FnMut(Key, Value<'a>)) {
    field(key!("certname"), Value::name(record.certname.as_deref()));
    field(key!("verdict"), Value::name(record.verdict.as_deref()));
}

fn outcome_fields<'a>(record: &'a AccessRecord, field: &mut impl FnMut(Key, Value<'a>)) {
    field(key!("reason"), Value::word(record.reason));
    field(key!("ended_by"), Value::Word(record.ended_by.as_str()));
}

/// The fields of the route. If they change, [`LineCache`] must compare the same fields.
fn way_fields<'a>(record: &'a AccessRecord, field: &mut impl FnMut(Key, Value<'a>)) {
    field(key!("route"), Value::name(record.route.as_deref()));
    field(key!("class"), Value::word(record.class));
    field(key!("work"), Value::word(record.work.map(Work::as_str)));
    field(key!("pool"), Value::name(record.pool.as_deref()));
    field(key!("member"), Value::name(record.member.as_deref()));
}

fn count_fields<'a>(record: &'a AccessRecord, field: &mut impl FnMut(Key, Value<'a>)) {
    field(key!("attempts"), Value::count(Some(record.attempts)));
    field(
        key!("bytes_in"),
        Value::count(record.has_bytes().then_some(record.bytes_in)),
    );
    field(key!("handshake_us"), Value::micros(record.times.handshake));
    field(key!("queue_us"), Value::micros(record.times.queue));
    field(key!("connect_us"), Value::micros(record.times.connect));
    field(
        key!("first_byte_us"),
        Value::micros(record.times.first_byte),
    );
    field(key!("total_us"), Value::micros(record.times.total));
}

fn tls_fields<'a>(record: &'a AccessRecord, field: &mut impl FnMut(Key, Value<'a>)) {
    let tls = record.tls.as_deref();
    field(key!("tls"), Value::word(tls.map(|tls| tls.version)));
    field(key!("cipher"), Value::word(tls.map(|tls| tls.cipher)));
    field(
        key!("resumed"),
        tls.map_or(Value::Missing, |tls| Value::Flag(tls.resumed)),
    );
    field(key!("sni"), Value::name(record.server_name()));
}

fn end_fields<'a>(record: &'a AccessRecord, field: &mut impl FnMut(Key, Value<'a>)) {
    field(key!("observed"), Value::name(record.observed.as_deref()));
    field(key!("cause"), Value::name(record.cause.as_deref()));
}

enum Value<'a> {
    /// A constant of the program, which needs no escape.
    Word(&'static str),
    Text(FieldText<'a>),
    Count(u64),
    Flag(bool),
    Address(IpAddr),
    Missing,
}

impl<'a> Value<'a> {
    fn name(name: Option<&'a str>) -> Self {
        name.map_or(Self::Missing, |name| Self::Text(name.into()))
    }

    fn is_missing(&self) -> bool {
        match self {
            Self::Text(text) => text.bytes.is_empty(),
            Self::Missing => true,
            Self::Word(_) | Self::Count(_) | Self::Flag(_) | Self::Address(_) => false,
        }
    }

    fn word(word: Option<&'static str>) -> Self {
        word.map_or(Self::Missing, Self::Word)
    }

    fn count(count: Option<impl Into<u64>>) -> Self {
        count.map_or(Self::Missing, |count| Self::Count(count.into()))
    }

    fn micros(duration: Option<Duration>) -> Self {
        Self::count(
            duration.map(|duration| u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)),
        )
    }
}

fn push_value(line: &mut Vec<u8>, value: Value<'_>, place: EscapeContext) {
    match value {
        Value::Text(text) if !text.bytes.is_empty() => escape::push(line, text, place),
        Value::Word(word) => line.extend_from_slice(word.as_bytes()),
        Value::Text(_) | Value::Missing => line.push(b'-'),
        Value::Count(count) => push_count(line, count),
        Value::Flag(flag) => line.extend_from_slice(if flag { b"yes" } else { b"no" }),
        Value::Address(address) => push_address(line, address),
    }
}

/// Writes a value in quotes, if it is present. Not inlined, because only one field uses it.
#[inline(never)]
fn push_sentence(line: &mut Vec<u8>, value: Value<'_>) {
    if value.is_missing() {
        return line.push(b'-');
    }
    line.push(b'"');
    push_value(line, value, EscapeContext::Quoted);
    line.push(b'"');
}

fn push_json_value(line: &mut Vec<u8>, value: Value<'_>) {
    match value {
        Value::Text(text) if !text.bytes.is_empty() => {
            line.push(b'"');
            escape::push(line, text, EscapeContext::Json);
            line.push(b'"');
        }
        Value::Word(word) => {
            line.push(b'"');
            line.extend_from_slice(word.as_bytes());
            line.push(b'"');
        }
        Value::Text(_) | Value::Missing => line.extend_from_slice(b"null"),
        Value::Count(count) => push_count(line, count),
        Value::Flag(flag) => line.extend_from_slice(if flag { b"true" } else { b"false" }),
        Value::Address(address) => {
            line.push(b'"');
            push_address(line, address);
            line.push(b'"');
        }
    }
}

/// Writes decimal digits without the formatting machinery, because a line has a dozen numbers.
fn push_count(line: &mut Vec<u8>, mut count: u64) {
    let mut digits = [0; 20];
    let mut at = digits.len();
    loop {
        at -= 1;
        digits[at] = b'0' + (count % 10) as u8;
        count /= 10;
        if count == 0 {
            break;
        }
    }
    line.extend_from_slice(&digits[at..]);
}

fn push_address(line: &mut Vec<u8>, address: IpAddr) {
    match address {
        IpAddr::V4(address) => {
            let [first, rest @ ..] = address.octets();
            push_count(line, u64::from(first));
            for octet in rest {
                line.push(b'.');
                push_count(line, u64::from(octet));
            }
        }
        IpAddr::V6(_) => push_text(line, &address),
    }
}

fn push_text(line: &mut Vec<u8>, text: &dyn std::fmt::Display) {
    let mut spelled = String::new();
    write!(spelled, "{text}").expect("writing to a String cannot fail");
    line.extend_from_slice(spelled.as_bytes());
}

#[cfg(test)]
mod tests;
