//! Faults in a client's bytes that many parsers accept.

use std::future::poll_fn;

use bytes::Bytes;
use http::Request;

use crate::support::{FILE, InMemoryEstate, REPORT, field, pass, run, settle};

const FILE_PATH: &str = "/puppet/v3/file_content/modules/m/f";

#[test]
fn a_head_that_is_read_in_two_ways_is_refused_and_its_connection_ends() {
    let get = format!("GET {FILE} HTTP/1.1\r\nHost: puppet\r\n\r\n");
    let put = format!("PUT {REPORT} HTTP/1.1\r\nHost: puppet\r\n");
    for (head, status, reason) in [
        (get.replace("puppet\r\n", "puppet\n"), 400, "bad-head"),
        (get.replace("HTTP/1.1\r\n", "HTTP/1.1\n"), 400, "bad-head"),
        (get.replace("\r\n\r\n", "\r\n\n"), 400, "bad-head"),
        (get.replace(" HTTP", "#part HTTP"), 400, "bad-target"),
        (
            get.replace("?environment", "#?environment"),
            400,
            "bad-target",
        ),
        (
            format!("{put}Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
            400,
            "bad-framing",
        ),
        (
            format!("{put}transfer-encoding:chunked\r\ncontent-length:0\r\n\r\n0\r\n\r\n"),
            400,
            "bad-framing",
        ),
        (
            format!("{put}Content-Length: 3\r\ncontent-length: 3\r\n\r\nabc"),
            400,
            "bad-framing",
        ),
    ] {
        // The head is the second request of a connection, in one piece or in two.
        for cut in [0, 1, 20, head.len() - 1] {
            run(async {
                let mut estate = InMemoryEstate::new(|_| {});
                let (mut client, mut member) = estate.ask_first().await;
                member.answer(200, "").await;
                client.response().await;
                client.send(&head[..cut]).await;
                settle().await;
                client.send(&head[cut..]).await;
                let answer = client.response().await;
                assert_eq!(answer.status, status, "{head:?}: {answer:?}");
                assert!(answer.head.contains("connection: close"), "{answer:?}");
                assert!(client.is_ended().await);
                assert_eq!(estate.compilers[0].in_flight(), 0);
                let records = estate.records().await;
                assert_eq!(records.len(), 2);
                assert_eq!(records[1]["reason"], reason, "{head:?}");
            });
        }
    }
}

#[test]
fn raw_bytes_of_a_query_are_encoded_in_pieces_of_any_size_and_those_of_a_path_are_refused() {
    const QUERY: &str = "environment=%3C\"a\"&b=<c>?\"";
    const ENCODED: &str = "environment=%3C%22a%22&b=%3Cc%3E?%22";
    let request = format!(
        "GET {FILE_PATH}?{QUERY} HTTP/1.1\r\nHost: puppet\r\nReferer: /?\"<>\r\nContent-Length: 9\r\n\r\nGET /?\"<>"
    );
    for piece in (1..request.len()).step_by(7).chain([1 << 20]) {
        run(async {
            let mut estate = InMemoryEstate::new(|_| {});
            let mut client = estate.connect();
            for bytes in request.as_bytes().chunks(piece) {
                client.send_bytes(bytes).await;
                settle().await;
            }
            let mut member = estate.compilers[0].accept().await;
            let head = member.request().await;
            let line = format!("get {FILE_PATH}?{ENCODED} http/1.1\r\n").to_lowercase();
            assert!(head.starts_with(&line), "pieces of {piece}: {head}");
            assert!(head.contains("referer: /?\"<>\r\n"), "{head}");
            assert_eq!(member.text(9).await, "GET /?\"<>");
            member.answer(200, "").await;
            assert_eq!(client.response().await.status, 200);
            client.get("/puppet/v3/file_content/modules/a/b<c").await;
            assert_eq!(client.response().await.status, 400, "a path stays strict");
            let records = estate.records().await;
            let target = records[0]["target"].as_str().expect("a target");
            assert_eq!(target, format!("{FILE_PATH}?{ENCODED}"));
        });
    }
}

/// Once encoded, the raw bytes need more room than the buffer of a read has.
#[test]
fn a_long_query_of_raw_bytes_is_encoded_and_counts_as_encoded_towards_the_limit() {
    for (count, status) in [(2_000, 200), (3_000, 431)] {
        run(async {
            let mut estate = InMemoryEstate::new(|setup| setup.listener.head_bytes_max = 8 << 10);
            let mut client = estate.connect();
            let raw = "\"".repeat(count);
            client
                .send(&format!(
                    "GET {FILE_PATH}?environment={raw} HTTP/1.1\r\nHost: puppet\r\n\r\n"
                ))
                .await;
            if status == 200 {
                let mut member = estate.compilers[0].accept().await;
                let head = member.request().await;
                let encoded = format!("?environment={} http", "%22".repeat(count));
                assert!(head.contains(&encoded), "{head}");
                member.answer(200, "").await;
            }
            assert_eq!(client.response().await.status, status, "{count}");
        });
    }
}

#[test]
fn a_malformed_head_gets_a_text_and_the_id_of_its_record() {
    let get = format!("GET {FILE} HTTP/1.1\r\nHost: puppet\r\n\r\n");
    let large = get.replace("puppet", &"p".repeat(300 << 10));
    let many = get.replace("Host", &format!("{}Host", "A: b\r\n".repeat(101)));
    let long = get.replace(" HTTP", &format!("{} HTTP", "a".repeat(70_000)));
    for (head, status, text) in [
        (get.replace("HTTP/1.1", "HTTP/9.1"), 400, "malformed"),
        (get.replace("Host", "Ho st"), 400, "malformed"),
        (get.replace("Host: puppet", "Host"), 400, "malformed"),
        ("\x16\x03\x01\r\n\r\n".to_owned(), 400, "malformed"),
        (get.replace("/puppet", "/<puppet"), 400, "malformed"),
        (large, 431, "head_max"),
        (many, 431, "100 headers"),
        (long, 414, "64 KiB"),
    ] {
        // The request is the first of a connection, the second, or the second in one write with the first.
        for before in 0..3 {
            run(async {
                let mut estate = InMemoryEstate::new(|setup| {
                    setup.listener.head_bytes_max = 256 << 10;
                });
                let mut client = estate.connect();
                let mut all = head.clone();
                if before > 0 {
                    if before == 2 {
                        all = format!("{get}{head}");
                    } else {
                        client.send(&get).await;
                    }
                }
                if before == 1 {
                    let mut member = estate.compilers[0].accept().await;
                    member.request().await;
                    member.answer(200, "first").await;
                    assert_eq!(client.response().await.body, "first");
                }
                client.send_beside(all);
                if before == 2 {
                    let mut member = estate.compilers[0].accept().await;
                    member.request().await;
                    member.answer(200, "first").await;
                    assert_eq!(client.response().await.body, "first");
                }
                let answer = client.response().await;
                assert_eq!(answer.status, status, "{answer:?}");
                assert!(answer.body.contains(text), "{answer:?}");
                assert!(answer.head.contains("connection: close"), "{answer:?}");
                assert_eq!(answer.head.matches("content-length").count(), 1);
                let id = field(&answer.head, "x-request-id")
                    .expect("an id")
                    .to_owned();
                assert_eq!(client.rest().await, "");
                let records = estate.records().await;
                let record = records.last().expect("a record");
                assert_eq!(
                    (&record["status"], &record["id"]),
                    (&status.into(), &id.into())
                );
            });
        }
    }
}

/// A body that reads like a response of the proxy itself is passed on unchanged.
#[test]
fn no_byte_of_a_members_response_is_replaced() {
    const BODY: &str = "HTTP/1.1 400 Bad Request\r\nconnection: close\r\ncontent-length: 0\r\ndate: Thu, 01 Jan 1970 00:00:00 GMT\r\n\r\n";
    run(async {
        let mut estate = InMemoryEstate::new(|_| {});
        let (mut client, mut member) = estate.ask_first().await;
        let length = 3 * BODY.len();
        member
            .send(&format!(
                "HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n"
            ))
            .await;
        let head = client.head().await.expect("a head");
        assert!(head.starts_with("http/1.1 200"), "{head}");
        for _ in 0..3 {
            settle().await;
            member.send(BODY).await;
            assert_eq!(client.text(BODY.len()).await, BODY);
        }
    });
    run(async {
        let mut estate = InMemoryEstate::new(|_| {});
        let (mut client, mut member) = estate.ask_first().await;
        member
            .send("HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")
            .await;
        let answer = client.response().await;
        assert_eq!((answer.status, answer.body.as_str()), (400, ""));
    });
}

#[test]
fn a_request_before_one_that_is_refused_is_answered() {
    run(async {
        let mut estate = InMemoryEstate::new(|_| {});
        let mut client = estate.connect();
        let get = format!("GET {FILE} HTTP/1.1\r\nHost: puppet\r\n\r\n");
        client
            .send(&format!("{get}{}", get.replace("puppet\r\n", "puppet\n")))
            .await;
        let mut member = estate.compilers[0].accept().await;
        member.request().await;
        member.answer(200, "first").await;
        assert_eq!(client.response().await.body, "first");
        assert_eq!(client.response().await.status, 400);
        assert!(client.is_ended().await);
    });
}

#[test]
fn chunks_that_break_the_grammar_end_a_request_before_a_member_has_all_of_it() {
    for chunks in [
        "3 \r\nrep\r\n0\r\n\r\n",
        "3;\r\nrep\r\n0\r\n\r\n",
        "3;a b\r\nrep\r\n0\r\n\r\n",
        "3\r\nrep\r\n0\r\nA: b\n\r\n",
        "3\nrep\r\n0\r\n\r\n",
    ] {
        run(async {
            let estate = InMemoryEstate::new(|_| {});
            let mut client = estate.connect();
            let head = format!(
                "PUT {REPORT} HTTP/1.1\r\nHost: puppet\r\nTransfer-Encoding: chunked\r\n\r\n"
            );
            client.send(&format!("{head}{chunks}")).await;
            let answer = client.response().await;
            assert_eq!(answer.status, 400, "{chunks:?}");
            assert!(client.is_ended().await);
            assert_eq!(estate.compilers[0].dials(), 0, "{chunks:?}");
            assert_eq!(estate.record().await["reason"], "body-broken");
        });
    }
}

#[test]
fn trace_is_refused_for_every_target() {
    run(async {
        let estate = InMemoryEstate::new(|_| {});
        for path in [FILE, REPORT, "/", "/elsewhere", "/status/v1/simple"] {
            let mut client = estate.connect();
            client
                .send(&format!("TRACE {path} HTTP/1.1\r\nHost: puppet\r\n\r\n"))
                .await;
            let answer = client.response().await;
            assert_eq!(answer.status, 405, "{path}");
            assert!(answer.head.contains("allow: get"), "{answer:?}");
        }
        assert_eq!(estate.compilers[0].dials(), 0);
    });
}

#[test]
fn a_stream_with_more_data_than_it_says_is_never_complete_for_a_member() {
    run(async {
        let mut estate = InMemoryEstate::new(|_| {});
        let (mut client, _connection) = estate.connect_http2(1 << 20).await;
        let request = |length: usize| {
            let uri = format!("https://puppet{REPORT}");
            let request = Request::put(uri).header("content-length", length);
            request.body(()).expect("a request")
        };
        // The declared number of bytes, followed by another frame.
        let (answer, mut body) = client.send_request(request(6), false).expect("sent");
        body.send_data(Bytes::from("report"), false).expect("sent");
        settle().await;
        assert_eq!(estate.compilers[0].dials(), 0, "the stream has not ended");
        body.send_data(Bytes::from("more"), true).expect("sent");
        assert!(answer.await.is_err(), "the stream is reset");
        settle().await;
        assert_eq!(estate.compilers[0].dials(), 0);
        // An empty frame that ends the stream adds no data.
        let (answer, mut body) = client.send_request(request(6), false).expect("sent");
        body.send_data(Bytes::from("report"), false).expect("sent");
        body.send_data(Bytes::new(), false).expect("sent");
        body.send_data(Bytes::new(), true).expect("sent");
        let mut member = estate.compilers[0].accept().await;
        member.request().await;
        assert_eq!(member.text(6).await, "report");
        member.answer(200, "").await;
        assert_eq!(answer.await.expect("an answer").status(), 200);
        poll_fn(|cx| client.poll_ready(cx)).await.expect("it stays");
    });
}

/// Requests of every kind on one connection: one after an empty line, bodies with a length and in chunks with trailers, a GET
/// with a body, and a HEAD. Also returns the bodies that a member gets.
fn mixed() -> (String, Vec<&'static str>) {
    let host = "Host: puppet\r\n";
    let bytes = format!(
        "\r\nGET {FILE} HTTP/1.1\r\n{host}\r\n\r\n\
         PUT {REPORT} HTTP/1.1\r\n{host}Content-Length: 6\r\n\r\n\n\r\n#ab\
         PUT {REPORT} HTTP/1.1\r\n{host}transfer-encoding: Chunked\r\n\r\n\
         2;a=\"b;c\"\r\n\r\n\r\n001\r\n#\r\n0\r\nA: b\r\n\r\n\
         GET {FILE} HTTP/1.1\r\n{host}Content-Length: 4\r\n\r\nGET \
         HEAD {FILE} HTTP/1.1\r\n{host}\r\n"
    );
    (bytes, vec!["", "\n\r\n#ab", "\r\n#", "GET ", ""])
}

#[test]
fn requests_on_one_connection_are_framed_alike_in_pieces_of_any_size() {
    let (bytes, bodies) = mixed();
    let cuts = (0..bytes.len()).step_by(3).map(|cut| (cut, bytes.len()));
    // The bytes also arrive in pieces of one and of seven bytes, and the last head may have a fault.
    for (cut, piece) in cuts.chain([(0, 1), (0, 7)]) {
        for fault in [false, true] {
            let mut bytes = bytes.clone();
            if fault {
                bytes.truncate(bytes.len() - 2);
                bytes.push('\n');
            }
            run(async {
                let mut estate = InMemoryEstate::new(|_| {});
                let mut client = estate.connect();
                let (first, second) = bytes.split_at(cut);
                let sends = async {
                    for bytes in [first, second] {
                        for piece in bytes.as_bytes().chunks(piece) {
                            client
                                .send(std::str::from_utf8(piece).expect("ASCII"))
                                .await;
                            tokio::task::yield_now().await;
                        }
                        settle().await;
                    }
                };
                let answers = async {
                    let mut member = estate.compilers[0].accept().await;
                    for (number, body) in bodies.iter().enumerate() {
                        if fault && number + 1 == bodies.len() {
                            break;
                        }
                        let head = member.request().await;
                        assert_eq!(member.text(body.len()).await, *body, "{head}");
                        let text = if head.starts_with("head") {
                            ""
                        } else {
                            "answer"
                        };
                        member.answer(200 + number as u16, text).await;
                    }
                    member
                };
                let (member, ()) = tokio::join!(answers, sends);
                for number in 0..bodies.len() - 1 {
                    let status = client.response().await.status;
                    assert_eq!(
                        status,
                        200 + number as u16,
                        "cut at {cut}, pieces of {piece}"
                    );
                }
                // The last request is a HEAD, whose response has no body.
                let head = client.head().await.expect("an answer");
                let expected = if fault { "400" } else { "204" };
                assert_eq!(&head[9..12], expected, "cut at {cut}, pieces of {piece}");
                assert_eq!(estate.compilers[0].dials(), 1);
                drop(member);
            });
        }
    }
}

#[test]
fn a_fault_among_thousands_of_pipelined_requests_belongs_to_its_own_request() {
    const REQUESTS: usize = 3000;
    run(async {
        let estate = InMemoryEstate::new(|_| {});
        let mut client = estate.connect();
        let get = "GET /status/v1/simple HTTP/1.1\r\nHost: puppet\r\n\r\n";
        let bad = get.replace("puppet\r\n", "puppet\n");
        client.send_beside(format!("{}{bad}{get}", get.repeat(REQUESTS)));
        for _ in 0..REQUESTS {
            assert_eq!(client.response().await.status, 200);
        }
        assert_eq!(client.response().await.status, 400);
        assert!(client.is_ended().await);
    });
}

#[test]
fn the_maximum_size_of_a_head_is_exact_in_pieces_of_any_size() {
    const MAX: usize = 8 << 10;
    let head = |length: usize, end: &str| {
        let begin = "GET /status/v1/simple HTTP/1.1\r\nHost: puppet\r\nA: ";
        let fill = length - begin.len() - end.len();
        format!("{begin}{}{end}", "a".repeat(fill))
    };
    let cases = [
        (MAX, "\r\n\r\n", 200),
        (MAX, "\n\r\n", 400),
        (MAX + 1, "\r\n\r\n", 431),
    ];
    for (length, end, status) in cases {
        for cut in [0, 1, MAX - 4, MAX - 3, MAX - 2, MAX - 1] {
            run(async {
                let estate = InMemoryEstate::new(|setup| setup.listener.head_bytes_max = MAX);
                let mut client = estate.connect();
                let head = head(length, end);
                client.send(&head[..cut]).await;
                settle().await;
                client.send(&head[cut..]).await;
                assert_eq!(
                    client.response().await.status,
                    status,
                    "{end:?} cut at {cut}"
                );
            });
        }
    }
}

#[test]
fn a_body_that_was_not_requested_never_becomes_a_request() {
    let hidden = format!("GET {FILE} HTTP/1.1\r\nHost: puppet\r\n\r\n");
    let length = hidden.len();
    for framing in [
        format!("Content-Length: {length}"),
        "Transfer-Encoding: chunked".to_owned(),
    ] {
        for expect in ["", "Expect: 100-continue\r\n"] {
            run(async {
                let estate = InMemoryEstate::new(|_| {});
                let mut client = estate.connect();
                // The request is refused after its head, because no route has this path.
                client
                    .send(&format!(
                        "PUT /elsewhere HTTP/1.1\r\nHost: puppet\r\n{expect}{framing}\r\n\r\n"
                    ))
                    .await;
                let answer = client.response().await;
                assert_eq!(answer.status, 404, "{answer:?}");
                let body = if framing.starts_with('T') {
                    format!("{length:x}\r\n{hidden}\r\n0\r\n\r\n")
                } else {
                    hidden.clone()
                };
                let _ = client.try_send(&body).await;
                let _ = client
                    .try_send("GET /elsewhere HTTP/1.1\r\nHost: puppet\r\n\r\n")
                    .await;
                let rest = client.rest().await;
                assert!(!rest.contains("HTTP/1.1 200"), "{rest}");
                assert_eq!(estate.compilers[0].dials(), 0, "{framing} {expect}");
            });
        }
    }
}

#[test]
fn chunks_that_break_the_grammar_after_100_continue_end_the_connection() {
    run(async {
        let estate = InMemoryEstate::new(|_| {});
        let mut client = estate.connect();
        client
            .send(&format!(
                "PUT {REPORT} HTTP/1.1\r\nHost: puppet\r\nExpect: 100-continue\r\n\
                 Transfer-Encoding: chunked\r\n\r\n"
            ))
            .await;
        assert_eq!(client.response().await.status, 100);
        client.send("3\r\nrep\r\n").await;
        client.send("0 \r\n\r\n").await;
        assert_eq!(client.response().await.status, 400);
        assert!(client.is_ended().await);
        assert_eq!(estate.compilers[0].dials(), 0);
    });
}

#[test]
fn a_persistent_http_1_0_connection_is_inspected_like_any_other() {
    run(async {
        let mut estate = InMemoryEstate::new(|_| {});
        let mut client = estate.connect();
        let get = format!("GET {FILE} HTTP/1.0\r\nHost: puppet\r\nConnection: keep-alive\r\n\r\n");
        client.send(&get).await;
        let mut member = estate.compilers[0].accept().await;
        for _ in 0..2 {
            member.request().await;
            member.answer(200, "x").await;
            assert_eq!(client.response().await.status, 200);
            pass(3).await;
            client.send(&get).await;
        }
        member.request().await;
        member.answer(200, "x").await;
        assert_eq!(client.response().await.status, 200);
        client.send(&get.replace("puppet\r\n", "puppet\n")).await;
        assert_eq!(client.response().await.status, 400);
        assert!(client.is_ended().await);
    });
}

#[test]
fn a_path_with_a_fragment_is_refused_over_http_2_and_the_next_request_is_not() {
    run(async {
        let mut estate = InMemoryEstate::new(|_| {});
        let (mut client, _) = estate.connect_speaking(Some(&crate::support::trusted().web01), true);
        // SETTINGS, and then heads that insert their path, refer to it, or have another path.
        let get = |stream: u8, path: &[u8]| {
            let block = [b"\x82\x87\x41\x06puppet", path].concat();
            let head = [0, 0, block.len() as u8, 1, 5, 0, 0, 0, stream];
            [&head[..], &block].concat()
        };
        let literal = |path: &str| [&[0x44, path.len() as u8], path.as_bytes()].concat();
        let bytes = [
            b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0".to_vec(),
            get(1, &literal(&format!("{FILE}#part"))),
            get(3, b"\xbf"),
            get(5, &literal(FILE)),
        ]
        .concat();
        client
            .send(std::str::from_utf8(&bytes[..24]).expect("ASCII"))
            .await;
        client.send_bytes(&bytes[24..]).await;
        let mut member = estate.compilers[0].accept().await;
        let head = member.request().await;
        assert!(head.starts_with(&format!("get {FILE} http")), "{head}");
        member.answer(200, "").await;
        settle().await;
        assert_eq!(estate.compilers[0].dials(), 1);
        drop(client);
        let records = estate.records().await;
        let reasons: Vec<_> = records.iter().map(|record| &record["reason"]).collect();
        let refused = reasons.iter().filter(|reason| **reason == "bad-target");
        assert_eq!(refused.count(), 2, "{reasons:?}");
        assert_eq!(records.len(), 3);
    });
}

#[test]
fn rules_on_heads_are_the_same_over_http_2() {
    run(async {
        let estate = InMemoryEstate::new(|_| {});
        let (mut client, _connection) = estate.connect_http2(1 << 20).await;
        for (method, fields, status) in [
            ("TRACE", &[][..], 405),
            ("PUT", &[("content-length", "")], 400),
            (
                "PUT",
                &[("content-length", "0"), ("content-length", "0")],
                400,
            ),
        ] {
            let mut request = Request::builder()
                .method(method)
                .uri(format!("https://puppet{REPORT}"));
            for (name, value) in fields {
                request = request.header(*name, *value);
            }
            let request = request.body(()).expect("a request");
            let (answer, _) = client.send_request(request, true).expect("sent");
            let answer = answer.await.expect("an answer");
            assert_eq!(answer.status(), status, "{method} {fields:?}");
            poll_fn(|cx| client.poll_ready(cx)).await.expect("it stays");
        }
        assert_eq!(estate.compilers[0].dials(), 0);
    });
}

#[test]
fn a_stream_with_less_data_than_it_says_is_never_complete_for_a_member() {
    run(async {
        let estate = InMemoryEstate::new(|_| {});
        let (mut client, _connection) = estate.connect_http2(1 << 20).await;
        for data in ["", "repor"] {
            let request = Request::put(format!("https://puppet{REPORT}"))
                .header("content-length", 6)
                .body(())
                .expect("a request");
            let (answer, mut body) = client.send_request(request, false).expect("sent");
            settle().await;
            body.send_data(Bytes::from(data), true).expect("sent");
            let refused = match answer.await {
                Ok(answer) => answer.status() == 400,
                Err(_) => true,
            };
            assert!(refused, "{data}");
            poll_fn(|cx| client.poll_ready(cx)).await.expect("it stays");
        }
        settle().await;
        assert_eq!(estate.compilers[0].dials(), 0);
    });
}
