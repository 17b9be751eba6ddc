//! Requests as a member receives them, in raw bytes: their framing, and bodies that differ from their declared length.

use std::{
    cell::Cell,
    collections::VecDeque,
    convert::Infallible,
    pin::Pin,
    rc::Rc,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Uri, header};
use http_body::{Body, Frame, SizeHint};
use http1::Fields;
use identity::{ClientIdentity, HeaderForm, IdentityHeaders, OwnNames};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex},
    sync::mpsc,
    task::LocalSet,
    time::{Instant, timeout},
};
use upstream::{
    AttemptError, Connections, Connector, ConnectorSpec, Crew, Exchange, MemberStream, OwnFields,
    Scrubbed, SendOptions, UpstreamSettings, cause, settings::HttpVersion,
};

/// A body that arrives in these pieces, with its declared length.
struct Pieces {
    left: VecDeque<Bytes>,
    length: Option<u64>,
}

impl Pieces {
    fn of(pieces: &[&[u8]], length: Option<u64>) -> Self {
        let left = pieces.iter().map(|piece| Bytes::copy_from_slice(piece));
        Self {
            left: left.collect(),
            length,
        }
    }
}

impl Body for Pieces {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Poll::Ready(self.left.pop_front().map(|piece| Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.left.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        self.length
            .map_or_else(SizeHint::default, SizeHint::with_exact)
    }
}

const HEAD: &str = "POST /a?b=c HTTP/1.1\r\naccept: */*\r\nx-client-verify: NONE\r\n";
const OK: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";

#[test]
fn a_body_is_framed_by_its_known_length_or_in_chunks() {
    let large = vec![b'x'; 100_000];
    type Case<'a> = (&'a [&'a [u8]], Option<u64>, String);
    let cases: &[Case<'_>] = &[
        (&[], None, format!("{HEAD}\r\n")),
        (
            &[b"abc"],
            Some(3),
            format!("{HEAD}content-length: 3\r\n\r\nabc"),
        ),
        (
            &[b"a", b"", b"bc"],
            Some(3),
            format!("{HEAD}content-length: 3\r\n\r\nabc"),
        ),
        (
            &[b"a", b"", b"bc"],
            None,
            format!("{HEAD}transfer-encoding: chunked\r\n\r\n1\r\na\r\n2\r\nbc\r\n0\r\n\r\n"),
        ),
        (
            &[&large, b"end"],
            Some(100_003),
            format!(
                "{HEAD}content-length: 100003\r\n\r\n{}end",
                "x".repeat(100_000)
            ),
        ),
        (
            &[b"begin", &large, b"end"],
            None,
            format!(
                "{HEAD}transfer-encoding: chunked\r\n\r\n5\r\nbegin\r\n186a0\r\n{}\r\n3\r\nend\r\n0\r\n\r\n",
                "x".repeat(100_000)
            ),
        ),
    ];
    for (pieces, length, expected) in cases {
        // Both with a transport that accepts few bytes at once, and with a larger one.
        for room in [64, 1 << 20] {
            let body = Pieces::of(pieces, *length);
            let (sent, _) = posted(body, &[], HttpVersion::Http11, (OK, usize::MAX, room));
            assert_eq!(sent, *expected, "{length:?} {room}");
        }
    }
}

#[test]
fn the_clients_framing_is_not_forwarded_and_an_empty_body_stays_empty() {
    let fields = [("content-length", "0"), ("transfer-encoding", "chunked")];
    let (sent, _) = posted(
        Pieces::of(&[], None),
        &fields,
        HttpVersion::Http11,
        (OK, usize::MAX, 1 << 20),
    );
    assert_eq!(sent, format!("{HEAD}content-length: 0\r\n\r\n"));
    let (sent, _) = posted(
        Pieces::of(&[], None),
        &[],
        HttpVersion::Http10,
        (OK, usize::MAX, 1 << 20),
    );
    let head = HEAD.replace("HTTP/1.1", "HTTP/1.0");
    assert_eq!(
        sent,
        format!("{head}connection: keep-alive\r\ncontent-length: 0\r\n\r\n")
    );
}

#[test]
fn a_body_that_differs_from_its_declared_length_closes_the_connection() {
    for (pieces, sent_of_it) in [(&[&b"ab"[..]][..], "ab"), (&[b"ab", b"cd"], "ab")] {
        let body = Pieces::of(pieces, Some(3));
        let (sent, seen) = posted(body, &[], HttpVersion::Http11, (b"", usize::MAX, 1 << 20));
        assert!(
            format!("{HEAD}content-length: 3\r\n\r\n{sent_of_it}").starts_with(&sent),
            "{sent}"
        );
        assert_eq!(seen, Err("the request was not sent completely".to_owned()));
    }
}

#[test]
fn a_response_to_half_a_request_is_forwarded_and_its_connection_is_not_reused() {
    let large = vec![b'x'; 100_000];
    let answer = b"HTTP/1.1 413 Too Large\r\nContent-Length: 0\r\n\r\n";
    // The member reads the head and a part of the body, answers, and reads no more.
    let half = Pieces::of(&[&large], Some(100_000));
    let (_, seen) = posted(half, &[], HttpVersion::Http11, (answer, 1000, 64));
    assert_eq!(seen, Ok((413, false)));
    let whole = Pieces::of(&[b"abc"], Some(3));
    let (_, seen) = posted(
        whole,
        &[],
        HttpVersion::Http11,
        (answer, usize::MAX, 1 << 20),
    );
    assert_eq!(seen, Ok((413, true)));
}

/// Status code, and whether the connection is reused. Without a response, the reason.
type Seen = Result<(u16, bool), String>;

/// Posts a body to a member that reads at most this many bytes before it answers, over a transport with this capacity. Returns
/// the bytes that the member received, and the result.
fn posted(
    body: Pieces,
    fields: &[(&str, &str)],
    version: HttpVersion,
    (answer, reads_max, room): (&'static [u8], usize, usize),
) -> (String, Seen) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime");
    LocalSet::new().block_on(&runtime, async {
        let (sender, mut received) = mpsc::channel(8);
        let dials = Arc::new(AtomicU32::new(0));
        let dialled = Arc::clone(&dials);
        let connector = member(version, room, move |stream| {
            dialled.fetch_add(1, Ordering::Relaxed);
            tokio::spawn(reads(stream, answer, reads_max, sender.clone()));
        });
        let (connections, _) = Connections::new(&Arc::new(Crew::default()));
        let seen = exchange(&connections, &connector, body, fields).await;
        let seen = seen.map(|status| (status, dials.load(Ordering::Relaxed) == 1));
        drop((connections, connector));
        let got: Vec<u8> = received.recv().await.expect("what the member got");
        (String::from_utf8(got).expect("text"), seen)
    })
}

async fn exchange(
    connections: &Rc<Connections>,
    connector: &Arc<Connector>,
    body: Pieces,
    fields: &[(&str, &str)],
) -> Result<u16, String> {
    let mut headers = HeaderMap::new();
    headers.insert(header::ACCEPT, HeaderValue::from_static("*/*"));
    let (mut scrubbed, _) = Scrubbed::new(Fields::from(&headers), &OwnNames::default());
    for (name, value) in fields {
        // The fields are added after the scrub, to show that the writer ignores them for the framing.
        let mut headers = HeaderMap::new();
        for field in scrubbed.fields().iter() {
            let value = HeaderValue::from_bytes(field.value).expect("a value");
            headers.append(HeaderName::from_bytes(field.name).expect("a name"), value);
        }
        let name: HeaderName = name.parse().expect("a name");
        headers.insert(name, HeaderValue::from_str(value).expect("a value"));
        scrubbed = Scrubbed::new(Fields::from(&headers), &OwnNames::default()).0;
    }
    let identity = IdentityHeaders::new(&ClientIdentity::Anonymous, None);
    let form = HeaderForm::default();
    let options = SendOptions {
        fresh: false,
        now: Instant::now(),
        begun: &Cell::new(false),
    };
    let stamped = scrubbed.stamp(OwnFields::new(), &identity, &form, false);
    let target = Uri::from_static("/a?b=c");
    let sent = connections.send(connector, &Method::POST, &target, stamped, body, options);
    match sent.await {
        Ok(Exchange { head, body, .. }) => {
            body.give_back(Instant::now());
            let stamped = scrubbed.stamp(OwnFields::new(), &identity, &form, false);
            let again = Pieces::of(&[], None);
            let again = connections.send(connector, &Method::GET, &target, stamped, again, options);
            // The member does not answer this request. The dials show whether it uses a new connection.
            let _ = timeout(Duration::from_millis(1), again).await;
            Ok(head.status.as_u16())
        }
        Err(AttemptError::Ambiguous { source, .. } | AttemptError::Unsent { source, .. }) => {
            Err(cause(&source))
        }
        Err(AttemptError::Dial(error)) => panic!("{error}"),
    }
}

fn member(
    http_version: HttpVersion,
    room: usize,
    takes: impl Fn(DuplexStream) + Send + Sync + 'static,
) -> Arc<Connector> {
    let spec = ConnectorSpec {
        address: "member:8140",
        addresses: &[],
        server_name: None,
        tls: None,
        check: None,
        settings: UpstreamSettings {
            http_version,
            ..UpstreamSettings::default()
        },
        slots: Arc::default(),
    };
    let connector = Connector::in_memory(spec, move || {
        let (near, far) = duplex(room);
        takes(far);
        async move { Ok(Box::new(near) as Box<dyn MemberStream>) }
    });
    Arc::new(connector.expect("an address"))
}

/// Reads until no byte arrives for a while, or up to the maximum. Then answers, and passes on the bytes that it received.
async fn reads(
    mut stream: DuplexStream,
    answer: &'static [u8],
    reads_max: usize,
    sender: mpsc::Sender<Vec<u8>>,
) {
    let silence = Duration::from_millis(1);
    let mut got = Vec::new();
    while got.len() < reads_max
        && timeout(silence, stream.read_buf(&mut got))
            .await
            .is_ok_and(|read| read.unwrap_or(0) > 0)
    {}
    let _ = stream.write_all(answer).await;
    let _ = sender.send(got).await;
    std::future::pending::<()>().await;
}
