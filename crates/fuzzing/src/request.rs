//! Sends the bytes of a client's connection, in any division into pieces, through the codec and the proxy's own rules.
//! For each request of the client, the member must receive exactly one. That request contains each of the proxy's
//! identity headers once, and no client header with such a name.
//!
//! Input: one byte that selects the client's identity and the form of the identity headers, then everything that the
//! client sends on its connection.

use std::{
    net::Ipv4Addr,
    sync::{Arc, LazyLock},
};

use bytes::BytesMut;
use http::HeaderMap;
use http1::{BodyKind, Decoder, Framing, RequestHead, RequestHeadReader};
use identity::{
    Agent, ChainVerified, ClientIdentity, HeaderForm, HeaderSet, IdentityHeaders, IdentityName,
    IdentitySettings, OwnNames,
};
use proxy::{RequestStamp, member_head};

use crate::{
    dn,
    former_front::{BodyEnd, encoded},
    requests::read_body,
    scrub::seems_identity,
};

pub(crate) fn check(input: &[u8]) {
    let Some((&how, bytes)) = input.split_first() else {
        return;
    };
    let sent = member_requests(how, bytes, bytes.len().max(1));
    for piece in [1, usize::from(how >> 3) + 2] {
        let divided = member_requests(how, bytes, piece);
        assert_eq!(divided, sent, "pieces of {piece}");
    }
}

/// The head and the body of each request that members receive from a client whose bytes arrive in pieces.
fn member_requests(how: u8, bytes: &[u8], piece: usize) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut sent = Vec::new();
    let mut reader = RequestHeadReader::new(http1::HEAD_BYTES_MAX);
    let mut buffer = BytesMut::new();
    let mut pieces = bytes.chunks(piece);
    loop {
        let unread = buffer.clone();
        let head = match reader.read(&mut buffer) {
            Ok(Some(head)) => head,
            Ok(None) => match pieces.next() {
                Some(piece) => {
                    buffer.extend_from_slice(piece);
                    continue;
                }
                None => return sent,
            },
            Err(_) => return sent,
        };
        let (kind, keeps_alive) = (head.body, head.keeps_alive);
        let head = sent_head(how, head);
        let (body, end) = read_body(Decoder::of_request(kind), &mut buffer, &mut pieces);
        if let Some((head, target)) = head {
            // With smaller pieces, a part of the head is no longer in the buffer.
            if piece >= bytes.len() {
                let line = strict_line(&unread).expect("a request line that reads one way");
                assert!(line.ends_with(&target) || target == "/", "{line}");
            }
            sent.push((head, body));
        }
        if end != BodyEnd::Complete || !keeps_alive {
            return sent;
        }
    }
}

/// The head that the member receives, and its target. `None` if the request is refused.
fn sent_head(how: u8, head: RequestHead) -> Option<(Vec<u8>, String)> {
    let framing = match head.body {
        BodyKind::Length(0) | BodyKind::UntilClose => Framing::None,
        BodyKind::Length(length) => Framing::Length(length),
        BodyKind::Chunked => Framing::Chunked,
    };
    let (method, fault) = (head.method.clone(), head.fault);
    let target = head.target.path_and_query().map(ToString::to_string);
    let known = &*FIXTURES;
    let (identity, form) = (
        &known.identities[usize::from(how & 1)],
        &known.forms[usize::from(how >> 1) % known.forms.len()],
    );
    let stamp = RequestStamp {
        identity,
        form,
        own_names: &known.own_names,
        address: Ipv4Addr::new(192, 0, 2, 7).into(),
        request_id: "ours",
    };
    let bytes = member_head(head, framing, stamp).ok()?;
    assert_eq!(fault, None);
    let sent = ParsedRequest::read(&bytes);
    assert_eq!(sent.method, method.as_str());
    assert_eq!(Some(&sent.target), target.as_ref());
    check_fields(&sent, framing, (identity, form));
    Some((bytes, sent.target))
}

/// Asserts that each of the proxy's header fields is present once, and that no other field can be mistaken for one of
/// them.
fn check_fields(
    sent: &ParsedRequest,
    framing: Framing,
    (identity, form): (&IdentityHeaders, &HeaderForm),
) {
    let mut ours = HeaderMap::new();
    identity.stamp(form, &mut ours, true);
    for (name, value) in &ours {
        assert_eq!(sent.values(name.as_str()), [value.as_bytes()], "{name}");
    }
    for (name, value) in [
        ("x-forwarded-for", "192.0.2.7"),
        ("x-real-ip", "192.0.2.7"),
        ("x-forwarded-proto", "https"),
        ("x-request-id", "ours"),
    ] {
        assert_eq!(sent.values(name), [value.as_bytes()], "{name}");
    }
    assert_eq!(sent.values("host").len(), 1);
    let (length, coding) = match framing {
        Framing::None => (None, None),
        Framing::Length(length) => (Some(length.to_string()), None),
        Framing::Chunked => (None, Some("chunked".to_owned())),
    };
    for (name, value) in [("content-length", length), ("transfer-encoding", coding)] {
        let expected: Vec<_> = value.iter().map(String::as_bytes).collect();
        assert_eq!(sent.values(name), expected, "{name}");
    }
    let forwarded = [
        "x-forwarded-for",
        "x-real-ip",
        "x-forwarded-proto",
        "x-forwarded-host",
    ];
    for (name, _) in &sent.fields {
        let is_ours = ours.contains_key(name.as_str()) || forwarded.contains(&name.as_str());
        let seems = FIXTURES
            .own
            .iter()
            .any(|own| seems_identity(name, Some(own)));
        assert!(is_ours || !seems, "{name}");
        assert!(is_ours || !name.contains('_'), "{name}");
        for hop in [
            "connection",
            "keep-alive",
            "proxy-connection",
            "te",
            "trailer",
            "upgrade",
            "expect",
        ] {
            assert_ne!(name, hop);
        }
    }
}

/// A request as a strict server parses it.
struct ParsedRequest {
    method: String,
    target: String,
    fields: Vec<(String, Vec<u8>)>,
}

impl ParsedRequest {
    /// Parses the bytes with httparse, then compares the result with the lines of the request.
    fn read(bytes: &[u8]) -> Self {
        let mut fields = [httparse::EMPTY_HEADER; FIELDS_MAX];
        let mut request = httparse::Request::new(&mut fields);
        let parsed = request.parse(bytes);
        assert_eq!(
            parsed,
            Ok(httparse::Status::Complete(bytes.len())),
            "{:?}",
            bytes.escape_ascii().to_string()
        );
        assert_eq!(request.version, Some(1));
        let read = Self {
            method: request.method.expect("parsed").to_owned(),
            target: request.path.expect("parsed").to_owned(),
            fields: request
                .headers
                .iter()
                .map(|field| (field.name.to_owned(), field.value.to_vec()))
                .collect(),
        };
        // httparse is more lenient than the grammar, so the result must not depend on its leniency.
        let end = bytes.len() - 4;
        assert!(bytes.ends_with(b"\r\n\r\n"));
        let is_line_end = |at: usize| bytes[at..].starts_with(b"\r\n");
        let mut lines = Vec::new();
        let mut start = 0;
        for at in 0..=end {
            match bytes[at] {
                b'\r' => assert!(is_line_end(at)),
                b'\n' => assert!(is_line_end(at - 1)),
                0 | 0x7f => panic!("a control character"),
                byte => assert!(byte >= b' ' || byte == b'\t'),
            }
            if is_line_end(at) {
                lines.push(&bytes[start..at]);
                start = at + 2;
            }
        }
        assert_eq!(lines.len(), read.fields.len() + 1);
        assert_eq!(
            lines[0],
            format!("{} {} HTTP/1.1", read.method, read.target).as_bytes()
        );
        for (line, (name, value)) in lines[1..].iter().zip(&read.fields) {
            let sent = [name.as_bytes(), b": ", value].concat();
            // Trailing whitespace is not part of the value.
            assert_eq!(line.trim_ascii_end(), sent.trim_ascii_end());
        }
        read
    }

    fn values(&self, name: &str) -> Vec<&[u8]> {
        let fields = self.fields.iter();
        let same = fields.filter(|(other, _)| other.eq_ignore_ascii_case(name));
        same.map(|(_, value)| value.as_slice()).collect()
    }
}

/// The target, with an encoded query, of a request line that consists of three words separated by single spaces.
fn strict_line(bytes: &[u8]) -> Option<String> {
    let blank = bytes
        .iter()
        .take_while(|byte| matches!(byte, b'\r' | b'\n'));
    let text = &bytes[blank.count()..];
    let end = text.windows(2).position(|two| two == b"\r\n")?;
    let line = String::from_utf8(encoded(&text[..end])).ok()?;
    let mut words = line.split(' ');
    let (_, target, version) = (words.next()?, words.next()?, words.next()?);
    let whole = words.next().is_none() && version.starts_with("HTTP/1.");
    whole.then(|| target.to_owned())
}

/// Client identities and header forms, built once.
struct Fixtures {
    identities: [IdentityHeaders; 2],
    forms: Vec<HeaderForm>,
    own: Vec<IdentityName>,
    own_names: OwnNames,
}

static FIXTURES: LazyLock<Fixtures> = LazyLock::new(|| {
    let leaf = dn::leaf_of("web01");
    let agent = Agent::from_leaf(
        &leaf,
        &IdentitySettings::default(),
        ChainVerified::assertion(),
    );
    let agent = agent.expect("the CA writes such subjects");
    let above: Arc<[u8]> = leaf.as_slice().into();
    let agent = ClientIdentity::Verified(Arc::new(agent.with_path([7; 32], Arc::new([above]))));
    let name = IdentityName::parse("X-Agent-Name").expect("a name");
    let forms = vec![
        HeaderForm::default(),
        HeaderForm {
            dn: vec![name.clone()],
            ..HeaderForm::default()
        },
        HeaderForm {
            sets: vec![
                HeaderSet::ClientCert,
                HeaderSet::ClientCertChain,
                HeaderSet::Xfcc,
            ],
            ..HeaderForm::default()
        },
    ];
    Fixtures {
        identities: [
            IdentityHeaders::new(&agent, Some(&leaf)),
            IdentityHeaders::new(&ClientIdentity::Anonymous, None),
        ],
        own_names: OwnNames::of(&forms),
        own: vec![name],
        forms,
    }
});

const FIELDS_MAX: usize = 200;

pub(crate) const WORDS: &[&[u8]] = &[
    b"GET /puppet/v3/catalog/web01 HTTP/1.1\r\n",
    b"GET http://puppet/a HTTP/1.1\r\n",
    b"OPTIONS * HTTP/1.1\r\n",
    b"TRACE / HTTP/1.1\r\n",
    b"Host: puppet\r\n",
    b"X-Client-DN: CN=ca\r\n",
    b"x-client-verify: SUCCESS\r\n",
    b"X_Client_Verify: SUCCESS\r\n",
    b"X-Agent-Name: CN=ca\r\n",
    b"X-Forwarded-Client-Cert: a\r\n",
    b"Client-Cert: :YQ==:\r\n",
    b"X-Forwarded-For: 10.0.0.1\r\n",
    b"X-Request-Id: theirs\r\n",
    b"Connection: host, x-client-verify\r\n",
    b"Content-Length: 3\r\n",
    b"Transfer-Encoding: chunked\r\n",
    b"0\r\n\r\n",
    b"3\r\nabc\r\n",
    b"GET / HTTP/1.1\r\nHost: puppet\r\n\r\n",
    b"Expect: 100-continue\r\n",
    b"Upgrade: h2c\r\n",
    b"\r\n\r\n",
    b"\r\n",
    b"\n",
    b"#",
    b"%2f",
    b"..",
    b"//",
    b"?",
    b" ",
    b"\t",
];
