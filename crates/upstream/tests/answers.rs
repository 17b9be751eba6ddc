//! A member's responses in raw bytes, and their effect: the response or the error, and whether the connection is reused.

use std::{
    cell::Cell,
    fmt::Display,
    future::poll_fn,
    pin::pin,
    rc::Rc,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    task::{Context, Waker},
    time::Duration,
};

use bytes::Bytes;
use http::{Method, Uri};
use http_body_util::Empty;
use http1::Fields;
use identity::{ClientIdentity, HeaderForm, IdentityHeaders, OwnNames};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex},
    task::{LocalSet, consume_budget},
    time::{Instant, sleep, timeout},
};
use upstream::{
    AttemptError, Connections, Connector, ConnectorSpec, Crew, Exchange, MemberStream, OwnFields,
    Scrubbed, SendOptions, UpstreamSettings, cause,
};

/// The result of one exchange as a test sees it.
#[derive(Debug, PartialEq, Eq)]
enum Seen {
    /// Status code, body, and whether the connection is reused.
    Whole(u16, String, bool),
    /// The body broke off after this part, for this reason.
    Broken(u16, String, String),
    /// No response, for this reason.
    Nothing(String),
}

use Seen::{Broken, Nothing, Whole};

const OVERHEAD: &str = "malformed response body: too many bytes in chunk extensions or trailers";
const NOT_HTTP: &str = "malformed response: it does not begin with HTTP/1.0 or HTTP/1.1";
const NOT_A_FIELD: &str = "malformed response: a line of its head is not a header field";
const TOO_LARGE: &str = "malformed response: its head has more than 64 KiB";
const LENGTH: &str =
    "malformed response: its Content-Length is not a number, or is repeated with another value";
const CODING: &str =
    "malformed response: its Transfer-Encoding is not `chunked` alone, or its version is HTTP/1.0";
const CHUNK: &str = "malformed response body: invalid chunk";
const CLOSED: &str = "the member closed the connection before the response was complete";

#[test]
fn a_response_ends_by_its_framing() {
    get(ok("Content-Length: 3\r\n\r\nabc"), whole("abc", true));
    get(ok("Content-Length: 0\r\n\r\n"), whole("", true));
    get(
        ok("content-length: 3\r\nContent-Length: 3\r\n\r\nabc"),
        whole("abc", true),
    );
    get(chunked("3\r\nabc\r\n0\r\n\r\n"), whole("abc", true));
    get(
        chunked("1\r\na\r\n2;x\r\nbc\r\n0\r\nTrailer: x\r\n\r\n"),
        whole("abc", true),
    );
    get(
        ok("Transfer-Encoding: chunked\r\nContent-Length: 9\r\n\r\n3\r\nabc\r\n0\r\n\r\n"),
        whole("abc", false),
    );
    get(ok("\r\nabc"), whole("abc", false));
    get(
        "HTTP/1.0 200 OK\r\nContent-Length: 3\r\n\r\nabc",
        whole("abc", false),
    );
    get(
        "HTTP/1.0 200 OK\r\nContent-Length: 3\r\nConnection: keep-alive\r\n\r\nabc",
        whole("abc", true),
    );
    get(
        ok("Content-Length: 3\r\nConnection: close\r\n\r\nabc"),
        whole("abc", false),
    );
    head(ok("Content-Length: 3\r\n\r\n"), whole("", true));
    head(chunked(""), whole("", true));
    head(ok("\r\n"), whole("", true));
    get("HTTP/1.1 204 No Content\r\n\r\n", empty(204, true));
    get(
        "HTTP/1.1 304 Not Modified\r\nContent-Length: 3\r\n\r\n",
        empty(304, true),
    );
}

#[test]
fn bytes_behind_the_end_of_a_response_are_never_read() {
    get(ok("Content-Length: 3\r\n\r\nabcd"), whole("abc", false));
    get(
        ok("Content-Length: 3\r\n\r\nabcHTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil"),
        whole("abc", false),
    );
    get(chunked("0\r\n\r\nx"), whole("", false));
    head(ok("Content-Length: 3\r\n\r\nabc"), whole("", false));
    get("HTTP/1.1 304 Not Modified\r\n\r\nabc", empty(304, false));
    get(
        "HTTP/1.1 204 No Content\r\nContent-Length: 3\r\n\r\nabc",
        empty(204, false),
    );
    head(chunked("3\r\nabc\r\n0\r\n\r\n"), whole("", false));
    head(
        ok("Content-Length: 0\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"),
        whole("", false),
    );
}

#[test]
fn interim_responses_are_skipped_and_a_101_is_the_response() {
    let hint = "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n";
    let flood = hint.repeat((1 << 20) / hint.len() + 1);
    get(
        flood,
        nothing("the member sent interim responses without end"),
    );
    get(
        "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc",
        whole("abc", true),
    );
    get(
        "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
        whole("", true),
    );
    get(
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\nbytes",
        empty(101, false),
    );
    get("HTTP/1.1 103 Early Hints\r\n\r\n", nothing(CLOSED));
    get(
        "HTTP/1.1 100 Continue\r\nContent-Length: 3\r\n\r\nabcHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
        nothing(NOT_HTTP),
    );
    get(
        "HTTP/1.1 199 X\r\nTransfer-Encoding: chunked\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc",
        whole("abc", true),
    );
    get(
        "HTTP/1.1 101 Switching Protocols\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
        empty(101, false),
    );
}

#[test]
fn a_malformed_or_endless_head_is_an_error() {
    get("", nothing(CLOSED));
    get("H", nothing(CLOSED));
    get(ok("Content-Le"), nothing(CLOSED));
    get(ok("Content-Length: 3\r\n"), nothing(CLOSED));
    get("SSH-2.0-OpenSSH_9.2\r\n", nothing(NOT_HTTP));
    get("\r\nHTTP/1.1 200 OK\r\n\r\n", nothing(NOT_HTTP));
    get("HTTP/1.2 200 OK\r\n\r\n", nothing(NOT_HTTP));
    get(
        "HTTP/1.1 abc\r\n\r\n",
        nothing("malformed response: its status line has no status code with three digits"),
    );
    get(ok("no field\r\n\r\n"), nothing(NOT_A_FIELD));
    get(
        ok("A: b\r\n c\r\n\r\n"),
        nothing("malformed response: a header field continues on a second line (folding)"),
    );
    get(ok("A : b\r\n\r\n"), nothing(NOT_A_FIELD));
    get(ok("A: b\0\r\n\r\n"), nothing(NOT_A_FIELD));
    get(
        ok(format!("A: {}\r\n\r\n", "a".repeat(64 << 10))),
        nothing(TOO_LARGE),
    );
    get(
        ok(format!("A: {}", "a".repeat(1 << 20))),
        nothing(TOO_LARGE),
    );
    get(
        format!("HTTP/1.1 200 {}", "a".repeat(1 << 20)),
        nothing(TOO_LARGE),
    );
    get(
        format!(
            "HTTP/1.1 103 Early Hints\r\nA: {}\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
            "a".repeat(64 << 10)
        ),
        nothing(TOO_LARGE),
    );
    get(
        ok(format!("{}\r\n", "A: b\r\n".repeat(257))),
        nothing(
            "malformed response: its head has more than 256 header fields (response_fields_max)",
        ),
    );
}

#[test]
fn framing_that_readers_could_end_in_two_places_is_an_error() {
    get(
        ok("Content-Length: 3\r\nContent-Length: 4\r\n\r\nabcd"),
        nothing(LENGTH),
    );
    get(ok("Content-Length: 3, 4\r\n\r\nabcd"), nothing(LENGTH));
    get(ok("Content-Length: +3\r\n\r\nabc"), nothing(LENGTH));
    get(
        ok("Content-Length: 99999999999999999999\r\n\r\nabc"),
        nothing(LENGTH),
    );
    get(ok("Transfer-Encoding: gzip\r\n\r\nabc"), nothing(CODING));
    get(
        ok("Transfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n"),
        nothing(CODING),
    );
    get(
        ok("Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n"),
        nothing(CODING),
    );
    get(
        "HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        nothing(CODING),
    );
}

#[test]
fn a_body_that_does_not_end_as_its_framing_says_is_an_error() {
    get(ok("Content-Length: 5\r\n\r\nabc"), broken("abc", CLOSED));
    get(ok("Content-Length: 5\r\n\r\n"), broken("", CLOSED));
    get(chunked(""), broken("", CLOSED));
    get(chunked("5\r\nabc"), broken("abc", CLOSED));
    get(chunked("3\r\nabc\r\n"), broken("abc", CLOSED));
    get(chunked("3\r\nabc\r\n0\r\n"), broken("abc", CLOSED));
    get(chunked("xyz\r\n"), broken("", CHUNK));
    get(chunked("3\nabc\n"), broken("", CHUNK));
    get(chunked("fffffffffffffffff\r\n"), broken("", CHUNK));
    get(
        chunked(format!("0;{}", "x".repeat(1 << 20))),
        broken("", OVERHEAD),
    );
    get(
        chunked(format!("3{}", " ".repeat(1 << 20))),
        broken("", OVERHEAD),
    );
    get(
        chunked(format!("3\r\nabc\r\n0\r\n{}", "A: b\r\n".repeat(1 << 16))),
        broken("abc", OVERHEAD),
    );
    get(
        chunked("1;a\r\nx\r\n".repeat(1 << 16)),
        broken(&"x".repeat((16 << 10) / 2), OVERHEAD),
    );
    get(chunked("00000000000000003\r\nabc\r\n"), broken("", CHUNK));
    get(chunked("3\r\nabcd\r\n0\r\n\r\n"), broken("abc", CHUNK));
    get(chunked("3\r\nabc\r\n0\r\nA: b\r\n"), broken("abc", CLOSED));
    // The bytes after the last chunk are not a trailer, but may be data in another framing.
    get(chunked("0\r\n3\r\nabc\r\n0\r\n\r\n"), broken("", CHUNK));
}

#[test]
fn a_task_without_budget_still_notices_a_closed_connection() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime");
    let answer = Bytes::from_static(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
    LocalSet::new().block_on(&runtime, async {
        let dials = Arc::new(AtomicU32::new(0));
        let connector = member(answer, Arc::clone(&dials));
        let (connections, _) = Connections::new(&Arc::new(Crew::default()));
        for expected in 1..=2 {
            // From here on the task's reads stay pending until its next turn.
            let mut cx = Context::from_waker(Waker::noop());
            while pin!(consume_budget()).poll(&mut cx).is_ready() {}
            let exchanged = send(&connections, &connector, &Method::GET).await;
            exchanged.expect("an answer").body.give_back(Instant::now());
            assert_eq!(dials.load(Ordering::Relaxed), expected);
            // Meanwhile the member closes the connection.
            sleep(PATIENCE * 2).await;
        }
    });
}

fn get(answer: impl AsRef<[u8]>, expected: Seen) {
    check(&Method::GET, answer.as_ref(), &expected);
}

fn head(answer: impl AsRef<[u8]>, expected: Seen) {
    check(&Method::HEAD, answer.as_ref(), &expected);
}

fn check(method: &Method, answer: &[u8], expected: &Seen) {
    let shown = String::from_utf8_lossy(answer);
    assert_eq!(
        &exchange(method, answer),
        expected,
        "{method} {shown:.120?}"
    );
}

fn ok(rest: impl Display) -> String {
    format!("HTTP/1.1 200 OK\r\n{rest}")
}

fn chunked(body: impl Display) -> String {
    ok(format!("Transfer-Encoding: chunked\r\n\r\n{body}"))
}

fn empty(status: u16, serves_again: bool) -> Seen {
    Whole(status, String::new(), serves_again)
}

fn whole(body: &str, serves_again: bool) -> Seen {
    Whole(200, body.to_owned(), serves_again)
}

fn broken(body: &str, why: &'static str) -> Seen {
    Broken(200, body.to_owned(), why.to_owned())
}

fn nothing(why: &'static str) -> Seen {
    Nothing(why.to_owned())
}

/// How long a member waits after its response before it closes. The time is virtual, so a test reaches it only by waiting
/// without end.
const PATIENCE: Duration = Duration::from_secs(1);

/// Sends one request to a member that answers with these bytes. Returns the result, and whether the next request uses the same
/// connection.
fn exchange(method: &Method, answer: &[u8]) -> Seen {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime");
    let answer = Bytes::copy_from_slice(answer);
    LocalSet::new().block_on(&runtime, async {
        let dials = Arc::new(AtomicU32::new(0));
        let connector = member(answer, Arc::clone(&dials));
        let (connections, _) = Connections::new(&Arc::new(Crew::default()));
        let exchanged = match send(&connections, &connector, method).await {
            Ok(exchanged) => exchanged,
            Err(AttemptError::Ambiguous { source, .. }) => return Nothing(cause(&source)),
            Err(other) => panic!("{other:?}"),
        };
        let Exchange { head, mut body, .. } = exchanged;
        let mut text = String::new();
        while let Some(data) = poll_fn(|cx| body.poll_data(cx)).await {
            match data {
                Ok(data) => text.push_str(std::str::from_utf8(&data).expect("text")),
                Err(error) => return Broken(head.status.as_u16(), text, cause(&error)),
            }
        }
        body.give_back(Instant::now());
        // The member does not answer this request. The test needs to know only which connection the request uses.
        let _ = timeout(PATIENCE / 2, send(&connections, &connector, method)).await;
        Whole(
            head.status.as_u16(),
            text,
            dials.load(Ordering::Relaxed) == 1,
        )
    })
}

async fn send(
    connections: &Rc<Connections>,
    connector: &Arc<Connector>,
    method: &Method,
) -> Result<Exchange<Empty<Bytes>>, AttemptError> {
    let (scrubbed, _) = Scrubbed::new(Fields::default(), &OwnNames::default());
    let identity = IdentityHeaders::new(&ClientIdentity::Anonymous, None);
    let form = HeaderForm::default();
    let stamped = scrubbed.stamp(OwnFields::new(), &identity, &form, false);
    let options = SendOptions {
        fresh: false,
        now: Instant::now(),
        begun: &Cell::new(false),
    };
    let target = Uri::from_static("/");
    connections
        .send(connector, method, &target, stamped, Empty::new(), options)
        .await
}

/// A member that answers the first request of each connection with these bytes, and closes after a while.
fn member(answer: Bytes, dials: Arc<AtomicU32>) -> Arc<Connector> {
    let spec = ConnectorSpec {
        address: "member:8140",
        addresses: &[],
        server_name: None,
        tls: None,
        check: None,
        settings: UpstreamSettings::default(),
        slots: Arc::default(),
    };
    let connector = Connector::in_memory(spec, move || {
        dials.fetch_add(1, Ordering::Relaxed);
        let answer = answer.clone();
        async move {
            let (near, far) = duplex(4 << 20);
            tokio::spawn(answers(far, answer));
            Ok(Box::new(near) as Box<dyn MemberStream>)
        }
    });
    Arc::new(connector.expect("an address"))
}

async fn answers(mut stream: DuplexStream, answer: Bytes) {
    let mut request = Vec::new();
    while !request.ends_with(b"\r\n\r\n") {
        if stream.read_buf(&mut request).await.unwrap_or(0) == 0 {
            return;
        }
    }
    let _ = stream.write_all(&answer).await;
    sleep(PATIENCE).await;
}
