//! Random requests on one connection, in random pieces, to a member that responds at random moments.

use std::{cell::RefCell, iter::repeat_with, rc::Rc, time::Duration};

use testkit::Seed;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, DuplexStream, WriteHalf, split},
    task::{JoinHandle, spawn_local},
    time::{Instant, timeout},
};

use crate::support::{
    InMemoryEstate, REPORT, Setup, TestMember, Wire, field, pass, run, settle, trusted,
};

/// Number of connections in each test. All of them together take about two seconds.
const CONNECTIONS: usize = 120;
/// Virtual time after which a response counts as missing.
const RESPONSE_MAX: Duration = Duration::from_secs(20);

struct Exchange {
    request: String,
    request_body: String,
    status: u16,
    response: String,
    response_body: String,
    /// Whether the member responds before it has read the body of the request.
    is_early: bool,
    /// Whether the client waits before it reads the next response.
    pauses_after: bool,
}

impl Exchange {
    /// Generates the exchange with this number on its connection. Both bodies consist of one letter, which depends on the
    /// number.
    fn generate(seed: &mut Seed, number: usize) -> Self {
        let letter = char::from(b'a' + (number % 26) as u8).to_string();
        let request_body = letter.repeat(*seed.pick(&[0, 1, 700, 20_000, 300_000]));
        let response_body = letter.repeat(*seed.pick(&[0, 5, 50_000, 400_000]));
        let (path, status) = *seed.pick(&[
            ("/nowhere", 404),
            ("/status/v1/simple", 405),
            (REPORT, 200),
            (REPORT, 200),
            (REPORT, 200),
            (REPORT, 200),
        ]);
        let expects = seed.once_in(6) && !request_body.is_empty();
        let expect = if expects {
            "Expect: 100-continue\r\n"
        } else {
            ""
        };
        let start = format!("PUT {path} HTTP/1.1\r\nHost: puppet\r\nX-N: {number}\r\n{expect}");
        let request = if seed.once_in(2) {
            with_length(&start, &request_body)
        } else {
            chunked(&start, &request_body, seed)
        };
        let start = format!("HTTP/1.1 200 OK\r\nX-Puppet-Version: 8\r\nX-N: {number}\r\n");
        let response = if seed.once_in(2) {
            with_length(&start, &response_body)
        } else {
            chunked(&start, &response_body, seed)
        };
        Self {
            request,
            request_body,
            status,
            response,
            response_body,
            is_early: seed.once_in(4),
            pauses_after: seed.once_in(4),
        }
    }
}

fn with_length(start: &str, body: &str) -> String {
    format!("{start}Content-Length: {}\r\n\r\n{body}", body.len())
}

fn chunked(start: &str, body: &str, seed: &mut Seed) -> String {
    let mut text = format!("{start}Transfer-Encoding: chunked\r\n\r\n");
    let mut left = body;
    while !left.is_empty() {
        let (chunk, rest) = left.split_at((1 + seed.below(50_000)).min(left.len()));
        let extension = if seed.once_in(3) { ";a=\"b\"" } else { "" };
        text += &format!("{:x}{extension}\r\n{chunk}\r\n", chunk.len());
        left = rest;
    }
    text + *seed.pick(&["0\r\n\r\n", "0\r\nT: x\r\n\r\n"])
}

/// Sets limits and buffers to random sizes.
fn vary(setup: &mut Setup, seed: &mut Seed) {
    if seed.once_in(2) {
        setup.exchange.body_buffer_bytes_max = 10_000;
    }
    setup.client_buffer = *seed.pick(&[300, 5_000, 64 << 10]);
    setup.member_buffer = *seed.pick(&[700, 64 << 10]);
    setup.buffered = seed.once_in(3);
}

/// Faults that a member found in the requests that it got.
type Faults = Rc<RefCell<Vec<String>>>;

/// Serves the proxy's connections one after the other. Drops those whose element in `drops` is true.
async fn serve(
    mut member: TestMember,
    exchanges: Rc<[Exchange]>,
    drops: Vec<bool>,
    faults: Faults,
) {
    for is_dropped in drops.into_iter().cycle() {
        let wire = member.accept().await;
        if !is_dropped {
            spawn_local(serve_connection(
                wire,
                Rc::clone(&exchanges),
                Rc::clone(&faults),
            ));
        }
    }
}

async fn serve_connection(mut wire: Wire, exchanges: Rc<[Exchange]>, faults: Faults) {
    while let Some(head) = wire.head().await {
        let number = field(&head, "x-n").and_then(|number| number.parse::<usize>().ok());
        let Some(exchange) = number.and_then(|number| exchanges.get(number)) else {
            faults
                .borrow_mut()
                .push(format!("a head without its number: {head}"));
            return;
        };
        if exchange.is_early && wire.try_send(&exchange.response).await.is_err() {
            return;
        }
        let Some(body) = wire.try_body(&head).await else {
            return;
        };
        if body != exchange.request_body {
            faults.borrow_mut().push(format!("another body: {head}"));
        }
        if !exchange.is_early && wire.try_send(&exchange.response).await.is_err() {
            return;
        }
    }
}

/// Random sizes of pieces, with `length` as their sum.
fn pieces(seed: &mut Seed, mut length: usize) -> Vec<usize> {
    let mut pieces = Vec::new();
    while length > 0 {
        let size_max = *seed.pick(&[3, 900, 100_000]);
        let size = (1 + seed.below(size_max)).min(length);
        pieces.push(size);
        length -= size;
    }
    pieces
}

/// Writes the bytes in these pieces, some of them after a pause, as far as the proxy reads them.
async fn write(writer: &mut WriteHalf<DuplexStream>, mut bytes: &[u8], pieces: Vec<usize>) {
    for (index, size) in pieces.into_iter().enumerate() {
        if writer.write_all(&bytes[..size]).await.is_err() {
            return;
        }
        bytes = &bytes[size..];
        if index % 5 == 0 && bytes.len() < 50_000 {
            settle().await;
        }
    }
}

#[test]
fn random_requests_get_their_own_responses() {
    let mut seed = Seed::from_env_or_random();
    for _ in 0..CONNECTIONS {
        run(get_own_responses(&mut seed));
    }
}

async fn get_own_responses(seed: &mut Seed) {
    let mut estate = InMemoryEstate::new(|setup| vary(setup, seed));
    let count = 1 + seed.below(6);
    let exchanges: Rc<[_]> = (0..count)
        .map(|number| Exchange::generate(seed, number))
        .collect();
    let all: String = exchanges
        .iter()
        .map(|exchange| &*exchange.request)
        .collect();
    let pieces = pieces(seed, all.len());
    let faults = Faults::default();
    let compiler = estate.compilers.remove(0);
    spawn_local(serve(
        compiler,
        Rc::clone(&exchanges),
        vec![false],
        Rc::clone(&faults),
    ));
    let mut client = estate.connect();
    let mut writer = client.take_writer();
    let writing = spawn_local(async move {
        write(&mut writer, all.as_bytes(), pieces).await;
        std::future::pending::<()>().await;
    });
    let mut responses = 0;
    for (number, exchange) in exchanges.iter().enumerate() {
        let read = timeout(RESPONSE_MAX, read_response(&mut client, number, exchange));
        responses += 1;
        if read.await.expect("a response") {
            break;
        }
    }
    // Only a close is a reason for fewer responses, and nothing may follow the last response.
    let rest = timeout(Duration::from_millis(1), client.try_text(1)).await;
    assert!(matches!(rest, Err(_) | Ok(None)), "{rest:?}");
    writing.abort();
    drop(client);
    settle().await;
    assert_eq!(*faults.borrow(), Vec::<String>::new());
    estate.assert_at_rest().await;
    // Time passes, so that an exchange that is still in progress reaches its limits.
    pass(700).await;
    assert_eq!(estate.records().await.len(), responses);
}

/// Reads the response of an exchange. Returns whether the proxy closes the connection.
async fn read_response(client: &mut Wire, number: usize, exchange: &Exchange) -> bool {
    let mut head = client.head().await.expect("a head");
    while head.starts_with("http/1.1 100 ") {
        head = client.head().await.expect("a head");
    }
    let status = format!("http/1.1 {} ", exchange.status);
    assert!(head.starts_with(&status), "{number}: {head}");
    let body = client.try_body(&head).await.expect("a body");
    if exchange.status == 200 {
        assert_eq!(field(&head, "x-n"), Some(&*number.to_string()));
        assert!(body == exchange.response_body, "{number}: another body");
    }
    if exchange.pauses_after {
        settle().await;
    }
    field(&head, "connection") == Some("close")
}

/// How the client of a random connection stops.
#[derive(Clone, Copy)]
enum ClientEnd {
    /// It closes its direction, and continues to read.
    HalfCloses,
    /// It reads until the proxy has been silent for a second.
    Leaves,
    /// It reads until the proxy has been silent for longer than most limits.
    Waits,
}

/// At random moments, clients leave, members drop connections, and bytes are wrong.
#[test]
fn random_ends_leave_nothing_behind() {
    let mut seed = Seed::from_env_or_random();
    for _ in 0..CONNECTIONS {
        run(leave_nothing_behind(&mut seed));
    }
}

async fn leave_nothing_behind(seed: &mut Seed) {
    let mut estate = InMemoryEstate::new(|setup| vary(setup, seed));
    let exchanges: Rc<[_]> = (0..1 + seed.below(4))
        .map(|number| Exchange::generate(seed, number))
        .collect();
    let bytes = broken_requests(seed, &exchanges);
    let drops = repeat_with(|| seed.once_in(5)).take(20).collect();
    let compiler = estate.compilers.remove(0);
    // The member's faults are ignored, because a changed byte may belong to a body.
    spawn_local(serve(compiler, exchanges, drops, Faults::default()));
    if seed.once_in(4) {
        estate.drop_after(1 + seed.below(30) as u32);
    }
    let (io, serving) = estate.open(Some(&trusted().web01), false);
    let (mut reader, writer) = split(io);
    let end = *seed.pick(&[ClientEnd::HalfCloses, ClientEnd::Leaves, ClientEnd::Waits]);
    let pieces = pieces(seed, bytes.len());
    let writing = write_beside(writer, bytes, pieces, end);
    let patience = match end {
        ClientEnd::Waits => Duration::from_secs(100),
        ClientEnd::HalfCloses | ClientEnd::Leaves => Duration::from_secs(1),
    };
    let (mut left, mut piece) = (seed.below(2_000_000), vec![0; 1 + seed.below(70_000)]);
    while left > 0 {
        let Ok(Ok(read @ 1..)) = timeout(patience, reader.read(&mut piece)).await else {
            break;
        };
        left = left.saturating_sub(read);
    }
    writing.abort();
    let _ = writing.await;
    drop(reader);
    let left_at = Instant::now();
    while estate.gate.inside() > 0 {
        assert!(left_at.elapsed() < RELEASE_MAX, "the connection stays");
        pass(1).await;
    }
    serving.await.expect("its task does not panic");
    estate.assert_at_rest().await;
    estate.records().await;
}

/// How long a connection may stay after its client has left.
const RELEASE_MAX: Duration = Duration::from_secs(2);

/// The bytes of the requests. Some requests have a wrong byte, and the last one may be incomplete.
fn broken_requests(seed: &mut Seed, exchanges: &[Exchange]) -> Vec<u8> {
    let mut all = Vec::new();
    for exchange in exchanges {
        let start = all.len();
        all.extend_from_slice(exchange.request.as_bytes());
        if seed.once_in(6) {
            let at = start + seed.below(exchange.request.len());
            all[at] = *seed.pick(b"\r\n\0 :;9,");
        }
    }
    if seed.once_in(3) {
        all.truncate(seed.below(all.len()));
    }
    all
}

fn write_beside(
    mut writer: WriteHalf<DuplexStream>,
    bytes: Vec<u8>,
    pieces: Vec<usize>,
    end: ClientEnd,
) -> JoinHandle<()> {
    spawn_local(async move {
        write(&mut writer, &bytes, pieces).await;
        if let ClientEnd::HalfCloses = end {
            let _ = writer.shutdown().await;
        }
        std::future::pending::<()>().await;
    })
}
