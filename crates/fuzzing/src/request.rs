//! Sends a client's request head through hyper, the request watch and the proxy's own rules. The member must receive
//! exactly one request. It contains each of the proxy's identity headers once, and no client header with such a name.
//!
//! Input: one byte that selects the client's identity and the form of the identity headers, then the bytes of the
//! request head.

use std::{
    cell::RefCell,
    convert::Infallible,
    net::Ipv4Addr,
    pin::pin,
    rc::Rc,
    sync::{Arc, LazyLock},
};

use http::{Request, Response, request::Parts};
use http_body_util::Empty;
use http1::Framing;
use hyper::{
    body::{Body, Incoming},
    server::conn::http1::Builder,
    service::service_fn,
};
use hyper_util::rt::TokioIo;
use identity::{
    Agent, ChainVerified, ClientIdentity, HeaderForm, HeaderSet, IdentityHeaders, IdentityName,
    IdentitySettings, OwnNames,
};
use proxy::{RequestStamp, member_head};

use crate::{dn, scrub::seems_identity, watch};

pub(crate) fn check(input: &[u8]) {
    let Some((&how, bytes)) = input.split_first() else {
        return;
    };
    // The target `watch` checks the bytes after the head.
    let Some((head, framing)) = read_with_hyper(bytes) else {
        return;
    };
    let faults = watch::watched(&[bytes]).faults;
    let fault = faults.iter().find(|(number, _)| *number == 0);
    let fault = fault.map(|(_, fault)| *fault);
    let target = head.uri.path_and_query().map(ToString::to_string);
    let method = head.method.clone();
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
    let Ok(sent) = member_head(head, fault, framing, stamp) else {
        return;
    };
    assert_eq!(fault, None);
    let line = strict_line(bytes).expect("a request line that reads one way");
    let sent = ParsedRequest::read(&sent);
    assert_eq!(sent.method, method.as_str());
    assert_eq!(Some(&sent.target), target.as_ref());
    assert!(line.ends_with(&sent.target) || sent.target == "/", "{line}");
    check_fields(&sent, framing, (identity, form));
}

/// Each of the proxy's header fields is present once, and no other field can be mistaken for one of them.
fn check_fields(
    sent: &ParsedRequest,
    framing: Framing,
    (identity, form): (&IdentityHeaders, &HeaderForm),
) {
    let mut ours = http::HeaderMap::new();
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
    let (lengths, codings) = match framing {
        Framing::None => (0, 0),
        Framing::Length(_) => (1, 0),
        Framing::Chunked => (0, 1),
    };
    assert_eq!(sent.values("content-length").len(), lengths);
    assert_eq!(sent.values("transfer-encoding").len(), codings);
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
        // httparse is more lenient than the grammar. The request must not depend on that.
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

/// The target of a request line that consists of three words separated by single spaces.
fn strict_line(bytes: &[u8]) -> Option<String> {
    let blank = bytes
        .iter()
        .take_while(|byte| matches!(byte, b'\r' | b'\n'));
    let text = &bytes[blank.count()..];
    let end = text.windows(2).position(|two| two == b"\r\n")?;
    let line = std::str::from_utf8(&text[..end]).ok()?;
    let mut words = line.split(' ');
    let (_, target, version) = (words.next()?, words.next()?, words.next()?);
    let whole = words.next().is_none() && version.starts_with("HTTP/1.");
    whole.then(|| target.to_owned())
}

/// The first request that hyper parses from these bytes, and how its body is framed for the member.
fn read_with_hyper(bytes: &[u8]) -> Option<(Parts, Framing)> {
    let runtime = tokio::runtime::Builder::new_current_thread().build();
    runtime.expect("a runtime").block_on(async {
        let made = Rc::new(RefCell::new(None));
        let found = Rc::clone(&made);
        let service = service_fn(move |request: Request<Incoming>| {
            let (head, body) = request.into_parts();
            let framing = match body.size_hint().exact() {
                _ if body.is_end_stream() => Framing::None,
                Some(length) => Framing::Length(length),
                None => Framing::Chunked,
            };
            found.borrow_mut().get_or_insert((head, framing));
            // Never respond, so that hyper does not read a second request.
            std::future::pending::<Result<Response<Empty<bytes::Bytes>>, Infallible>>()
        });
        let transport = tokio::io::join(bytes, tokio::io::sink());
        let connection = Builder::new()
            .max_header_size(http1::HEAD_BYTES_MAX)
            .half_close(true)
            .serve_connection(TokioIo::new(transport), service);
        let mut connection = pin!(connection);
        std::future::poll_fn(|cx| {
            let _ = connection.as_mut().poll(cx);
            std::task::Poll::Ready(())
        })
        .await;
        made.take()
    })
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
