//! Rare cases of HTTP/1.1: faults in the middle of a message, and clients that read slowly or not at all.

use std::time::Duration;

use proxy::{CaKind, LifecyclePhase};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    time::timeout,
};

use crate::support::{
    FILE, InMemoryEstate, REPORT, Setup, Wire, field, pass, run, settle, trusted,
};

const STATUS: &str = "/status/v1/simple";
const RENEWAL: &str = "/puppet-ca/v1/certificate_renewal";
const CONTINUE: &str = "HTTP/1.1 100 Continue\r\n\r\n";

/// A response without delay takes less than this.
const AT_ONCE: Duration = Duration::from_secs(1);

#[test]
fn overhead_that_ends_a_body_closes_the_connection() {
    // A chunk extension or a trailer is longer than allowed. The last piece also ends the body.
    let (most, more) = ("b".repeat(16_000), "b".repeat(1_000));
    for pieces in [
        [format!("0;a={most}"), more.clone()],
        [format!("0;a={most}"), format!("{more}\r\n\r\n")],
        [format!("0;a={most}{more}\r\n\r\n"), String::new()],
        [format!("0\r\nt: {most}"), format!("{more}\r\n\r\n")],
    ] {
        run(async {
            let estate = InMemoryEstate::new(|_| {});
            let mut client = estate.connect();
            client
                .send(
                    "POST /nowhere HTTP/1.1\r\nHost: puppet\r\nTransfer-Encoding: chunked\r\n\r\n",
                )
                .await;
            let refused = client.response().await;
            assert_eq!(refused.status, 404);
            assert_eq!(field(&refused.head, "connection"), None, "it stays open");
            settle().await;
            let put =
                format!("PUT {REPORT} HTTP/1.1\r\nHost: puppet\r\nContent-Length: 3\r\n\r\nabc");
            for piece in pieces.iter().chain([&put]) {
                // The write may fail, because the proxy may have closed already.
                let _ = client.try_send(piece).await;
                settle().await;
            }
            let rest = client.rest().await;
            assert_eq!(rest, "", "after {:?}", pieces.map(|piece| piece.len()));
            assert_eq!(estate.compilers[0].dials(), 0);
            assert_eq!(estate.record().await["status"], 404);
        });
    }
}

#[test]
fn a_100_continue_that_is_held_back_is_sent_when_the_client_reads() {
    // The first response fills the buffer of the network.
    let length = run(status_length());
    run(async {
        let estate = InMemoryEstate::new(|setup| {
            setup.client_buffer = length;
            setup.buffered = true;
        });
        let mut client = estate.connect();
        client.get(STATUS).await;
        client.send(&expecting_put(3)).await;
        settle().await;
        client.text(length).await;
        let interim = timeout(AT_ONCE, client.head()).await;
        let interim = interim.expect("it is sent at once").expect("an interim");
        assert_eq!(interim, CONTINUE.to_lowercase());
    });
}

#[test]
fn an_interim_response_is_never_cut_in_two() {
    let length = run(status_length());
    // The buffer of the network has room for only a part of the interim response.
    for part in 1..CONTINUE.len() {
        run(async {
            let mut estate = InMemoryEstate::new(|setup| {
                setup.client_buffer = length + part;
                setup.exchange.body_buffer_bytes_max = 0;
            });
            let mut client = estate.connect();
            client.get(STATUS).await;
            client.send(&expecting_put(30_000)).await;
            settle().await;
            // The member responds before it has received the body.
            let mut member = estate.compilers[0].accept().await;
            member.request().await;
            member.answer(200, "early").await;
            settle().await;
            client.text(length).await;
            let mut head = client.head().await.expect("a head");
            if head.starts_with("http/1.1 100 ") {
                assert_eq!(head, CONTINUE.to_lowercase());
                head = client.head().await.expect("a response");
            }
            assert!(head.starts_with("http/1.1 200 "), "after {part}: {head}");
            assert_eq!(client.text(5).await, "early");
        });
    }
}

/// Another task reads the rest of the body. Like every read, that sends the bytes that TLS holds.
#[test]
fn a_response_goes_on_while_the_rest_of_the_body_is_awaited() {
    const BODY: usize = 100_000;
    run(async {
        let mut estate = InMemoryEstate::new(|setup| {
            setup.client_buffer = 4 << 10;
            setup.sends_with_reads = true;
            setup.exchange.body_buffer_bytes_max = 0;
        });
        let mut client = estate.connect();
        client.put(REPORT, 1_000).await;
        client.send(&"r".repeat(100)).await;
        let mut member = estate.compilers[0].accept().await;
        member.request().await;
        member.answer(200, &"x".repeat(BODY)).await;
        settle().await;
        // Without that task, the timers of the connection would wake its own task only after a second.
        let response = timeout(AT_ONCE / 10, client.response()).await;
        assert_eq!(response.expect("without a pause").body.len(), BODY);
    });
}

/// The length of the response to a GET for `STATUS`, which the proxy itself answers.
async fn status_length() -> usize {
    let estate = InMemoryEstate::new(|_| {});
    let mut client = estate.connect();
    client.get(STATUS).await;
    let response = client.response().await;
    response.head.len() + response.body.len()
}

/// The head of a PUT that waits for `100 Continue`.
fn expecting_put(length: usize) -> String {
    format!(
        "PUT {REPORT} HTTP/1.1\r\nHost: puppet\r\nContent-Length: {length}\r\nExpect: 100-continue\r\n\r\n"
    )
}

#[test]
fn a_renewal_whose_body_is_cut_off_is_recorded() {
    for (method, path, route) in [
        ("PUT", REPORT, "builtin:own-documents"),
        ("POST", RENEWAL, "builtin:renewal"),
    ] {
        run(async {
            let estate = InMemoryEstate::new(allow_renewal);
            let _client = cut_in_a_body(&estate, method, path).await;
            pass(5).await;
            let records = estate.records().await;
            assert_eq!(records.len(), 1, "{path}: {records:?}");
            assert_eq!(records[0]["route"], route);
            assert_eq!(records[0]["ended_by"], "proxy");
        });
    }
}

#[test]
fn a_cut_renewal_releases_its_connection() {
    for (method, path) in [("PUT", REPORT), ("POST", RENEWAL)] {
        run(async {
            let estate = InMemoryEstate::new(allow_renewal);
            let _client = cut_in_a_body(&estate, method, path).await;
            pass(3).await;
            assert_eq!(estate.gate.inside(), 0, "{path}");
        });
    }
}

fn allow_renewal(setup: &mut Setup) {
    setup.ca.renewal = true;
    setup.ca.kind = Some(CaKind::PuppetServer);
    setup.routes.renewal = true;
}

/// Cuts all connections while a client sends a body. Returns the client's end.
async fn cut_in_a_body(estate: &InMemoryEstate, method: &str, path: &str) -> Wire {
    let mut client = estate.connect();
    client
        .send(&format!(
            "{method} {path} HTTP/1.1\r\nHost: puppet\r\nContent-Length: 10\r\n\r\nabc"
        ))
        .await;
    settle().await;
    assert_eq!(estate.gate.inside(), 1);
    estate.enter(LifecyclePhase::Draining);
    settle().await;
    estate.enter(LifecyclePhase::Cutting);
    client
}

#[test]
fn a_refused_head_whose_client_reads_nothing_has_one_record() {
    run(async {
        let estate = InMemoryEstate::new(|setup| setup.client_buffer = 50);
        let mut client = estate.connect();
        client.send("\u{1} / HTTP/1.1\r\n\r\n").await;
        pass(200).await;
        drop(client);
        let record = estate.record().await;
        assert_eq!(record["status"], 400);
        assert_eq!(record["reason"], "bad-head");
    });
}

/// A client pipelines two requests, and then reads the first response for longer than `head_timeout`.
#[test]
fn a_pipelined_request_does_not_cut_the_response_before_it() {
    const BODY: usize = 200_000;
    run(async {
        let mut estate = InMemoryEstate::new(|setup| setup.client_buffer = 4 << 10);
        let (mut io, _serving) = estate.open(Some(&trusted().web01), false);
        let get = format!("GET {FILE} HTTP/1.1\r\nHost: puppet\r\n\r\n");
        let sent = io.write_all(get.as_bytes()).await;
        sent.expect("the proxy reads");
        let mut member = estate.compilers[0].accept().await;
        member.request().await;
        member.answer(200, &"x".repeat(BODY)).await;
        settle().await;
        let sent = io.write_all(get.as_bytes()).await;
        sent.expect("the proxy reads");
        let (mut read, mut piece) = (Vec::new(), [0; 4 << 10]);
        while let Ok(Ok(length @ 1..)) = timeout(5 * AT_ONCE, io.read(&mut piece)).await {
            read.extend_from_slice(&piece[..length]);
            pass(1).await;
        }
        let head = read.windows(4).position(|four| four == b"\r\n\r\n");
        let body = &read[head.expect("a head") + 4..];
        assert_eq!(body.len(), BODY);
        assert!(body.iter().all(|byte| *byte == b'x'));
        drop(io);
        let records = estate.records().await;
        assert_eq!(records[0]["status"], 200, "{records:?}");
        assert_eq!(records[0]["bytes_out"], BODY);
    });
}

#[test]
fn a_request_line_that_cannot_become_one_is_refused_however_it_is_split() {
    for line in [
        "\u{1}\u{2}nonsense\r\n",
        "SSH-2.0-OpenSSH_9\r\n",
        "GET /a\tb c d HTTP/9\r\n",
    ] {
        for cut in 0..line.len() {
            run(async {
                let estate = InMemoryEstate::new(|_| {});
                let mut client = estate.connect();
                client.send(&line[..cut]).await;
                settle().await;
                // The write may fail, because the proxy may have refused the first part.
                let _ = client.try_send(&line[cut..]).await;
                let answer = timeout(AT_ONCE, client.response()).await;
                let answer = answer.unwrap_or_else(|_| panic!("{line:?} split at {cut}"));
                assert_eq!(answer.status, 400, "{line:?} split at {cut}");
                assert!(client.is_ended().await);
                assert_eq!(estate.record().await["reason"], "bad-head");
            });
        }
    }
}

#[test]
fn a_members_length_is_written_as_one_number() {
    for (method, fields, expected) in [
        ("GET", "Content-Length: 5\r\n", Some("5")),
        ("GET", "Content-Length: 5, 5\r\n", Some("5")),
        (
            "GET",
            "Content-Length: 5\r\nContent-Length: 5\r\n",
            Some("5"),
        ),
        ("GET", "Content-Length: 005\r\n", Some("5")),
        ("HEAD", "Content-Length: 5\r\n", Some("5")),
        ("HEAD", "Content-Length: 5, 5\r\n", Some("5")),
        // The length stays as written, because there is no body to count.
        ("HEAD", "Content-Length: 005\r\n", Some("005")),
        ("HEAD", "Content-Length: 5\r\nContent-Length: 7\r\n", None),
        ("HEAD", "Content-Length: +5,x\r\n", None),
    ] {
        run(async {
            let mut estate = InMemoryEstate::new(|_| {});
            let mut client = estate.connect();
            client
                .send(&format!("{method} {FILE} HTTP/1.1\r\nHost: puppet\r\n\r\n"))
                .await;
            let mut member = estate.compilers[0].accept().await;
            member.request().await;
            let body = if method == "GET" { "hello" } else { "" };
            member
                .send(&format!(
                    "HTTP/1.1 200 OK\r\nX-Puppet-Version: 8\r\n{fields}\r\n{body}"
                ))
                .await;
            let head = client.head().await.expect("a response");
            let lengths: Vec<_> = head
                .lines()
                .filter_map(|line| line.strip_prefix("content-length: "))
                .collect();
            assert_eq!(
                lengths,
                Vec::from_iter(expected),
                "{method} {fields:?}: {head}"
            );
            assert_eq!(client.text(body.len()).await, body);
        });
    }
}

/// Fields that identify a client, by the names that servers know.
const IDENTITY: [&str; 10] = [
    "x-client-verify",
    "x-client-dn",
    "x-client-cert",
    "x-forwarded-for",
    "forwarded",
    "x-real-ip",
    "x-request-id",
    "ssl-client-verify",
    "proxy",
    "x-forwarded-host",
];

/// Characters in a field name that a server may read as the hyphen.
const HYPHENS: &str = "-_.~|^`'!#$%&*+";

#[test]
fn no_spelling_of_a_clients_identity_reaches_a_member() {
    let mut reached: Vec<_> = IDENTITY
        .into_iter()
        .flat_map(|base| run(spellings_that_reach_a_member(base)))
        .collect();
    // Spellings of the request ID may reach a member, because it does not identify a client.
    let hyphens = HYPHENS.chars().filter(|hyphen| !"-_".contains(*hyphen));
    let mut expected: Vec<_> = hyphens
        .flat_map(|hyphen| {
            ["X-REQUEST-ID", "x-request-id"].map(|id| id.replace('-', &hyphen.to_string()))
        })
        .collect();
    reached.sort();
    expected.sort();
    assert_eq!(reached, expected);
}

async fn spellings_that_reach_a_member(base: &str) -> Vec<String> {
    let mut estate = InMemoryEstate::new(|_| {});
    let (mut client, mut member) = estate.ask_first().await;
    member.answer(200, "").await;
    client.response().await;
    let mut reached = Vec::new();
    for name in spellings(base) {
        // A client can also list fields in `Connection` that the proxy sets.
        let nominations =
            format!("Connection: {name}, x-client-dn, x-client-verify, host, content-length\r\n");
        for nominations in [&*nominations, ""] {
            client
                .send(&format!(
                    "GET {FILE} HTTP/1.1\r\nHost: puppet\r\n{nominations}{name}: evil\r\nX-A: 1\r\n{name}:\tevil\t\r\n\r\n"
                ))
                .await;
            let head = member.request().await;
            assert_eq!(field(&head, "x-a"), Some("1"), "{name}: {head}");
            for own in ["x-client-verify: success\r\n", "x-client-dn: ", "host: "] {
                let count = head.matches(&format!("\r\n{own}")).count();
                assert_eq!(count, 1, "{name}: {head}");
            }
            if head.contains("evil") {
                assert_eq!(nominations, "", "{name}: {head}");
                reached.push(name.clone());
            }
            member.answer(200, "").await;
            assert_eq!(client.response().await.status, 200, "{name}");
        }
    }
    reached
}

/// Spellings of a field's name that a server may read as the same name.
fn spellings(base: &str) -> Vec<String> {
    let mut spellings = Vec::new();
    for hyphen in HYPHENS.chars() {
        for prefix in ["", "HTTP_", "http-http_"] {
            let name = format!("{prefix}{}", base.replace('-', &hyphen.to_string()));
            spellings.extend([name.to_uppercase(), name]);
        }
    }
    spellings
}
