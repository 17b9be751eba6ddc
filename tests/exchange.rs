//! One request and its answer as both ends see them: framing, early answers, limits on size and time, who is blamed.

use std::{
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    sync::{
        Arc, Barrier,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};

use testkit::{Connection, Framing, Gate, Reply, Response, wait_until};

use crate::support::{
    Estate, EstateBuilder, LIMIT, VERSION, assert_refused, certificate_request, http1_alone,
};

const CATALOG: &str = "/puppet/v3/catalog/web01?environment=production";
const REPORT: &str = "/puppet/v3/report/web01?environment=production";
const FILE: &str = "/puppet/v3/file_content/modules/motd/motd";
const BUCKET: &str = "/puppet/v3/file_bucket_file/sha256/abc//etc/motd";
const REQUEST: &str = "/puppet-ca/v1/certificate_request/web02";
/// Body limit of enrolment.
const ENROLMENT_BYTES_MAX: usize = 16 << 10;

/// An agent's open connection.
fn connection(estate: &Estate) -> Connection {
    let agent = estate.ca.agent("web01");
    estate.client(&agent).connect().expect("connects")
}

/// One compiler, and a proxy that streams every body to it.
fn streaming() -> EstateBuilder {
    one_compiler().proxy(|proxy| proxy.with("[upstream]\nbody_buffer_max = \"0B\""))
}

fn one_compiler() -> EstateBuilder {
    Estate::builder().compilers(1)
}

#[track_caller]
fn raw(connection: &mut Connection, bytes: &str) -> Response {
    connection.send_raw(bytes.as_bytes()).expect("sends");
    connection.read_response().expect("an answer")
}

#[track_caller]
fn assert_later(response: &Response) {
    assert_eq!(response.status, 503, "{response:?}");
    let seconds: u64 = response
        .headers
        .only("retry-after")
        .parse()
        .expect("seconds");
    assert!((10..=30).contains(&seconds), "{seconds}");
}

// Framing.

#[test]
fn a_body_arrives_as_it_was_sent_by_length_and_by_chunks() {
    let estate = one_compiler().start();
    let mut connection = connection(&estate);
    let body: Vec<u8> = (0..200_000u32).map(|n| n as u8).collect();
    assert_eq!(connection.request("PUT", REPORT, &[], &body).status, 200);
    // Chunks that fit the buffer are complete when a member is asked, so their length is known.
    let large = [&body[..], &body[..]].concat();
    for body in [&body, &large] {
        let pieces: Vec<_> = body.chunks(7001).collect();
        connection
            .send_chunked("PUT", REPORT, &[], &pieces)
            .expect("sends");
        assert_eq!(connection.read_response().expect("an answer").status, 200);
    }
    let requests = estate.far_end();
    assert_eq!(requests[0].only("content-length"), "200000");
    assert_eq!(requests[1].only("content-length"), "200000");
    assert_eq!(requests[2].only("transfer-encoding"), "chunked");
    for (request, body) in requests.iter().zip([&body, &body, &large]) {
        let same = body.starts_with(&request.body.kept);
        assert!(request.complete && same && request.body.length == body.len() as u64);
    }
}

#[test]
fn a_get_with_a_body_in_chunks_keeps_its_framing() {
    let estate = one_compiler().start();
    let mut connection = connection(&estate);
    connection
        .send_chunked("GET", FILE, &[], &[b"unusual"])
        .expect("sends");
    assert_eq!(connection.read_response().expect("an answer").status, 200);
    assert_eq!(estate.only_request().text(), "unusual");
    assert_eq!(connection.get(FILE).status, 200);
}

#[test]
fn an_answer_arrives_as_it_was_given_by_length_by_chunks_and_by_the_end() {
    let estate = one_compiler().start();
    let mut connection = connection(&estate);
    for (reply, framing) in [
        (Reply::ok("hello"), Framing::Length(5)),
        (
            Reply::status(200).chunked(&[b"hel", b"lo"]),
            Framing::Chunked,
        ),
        (Reply::status(200).to_close(b"hello"), Framing::Chunked),
    ] {
        estate.compilers[0].answer(move |_| Some(reply.clone()));
        let response = connection.get(FILE);
        assert_eq!(
            (response.text().as_str(), response.framing),
            ("hello", framing)
        );
        assert!(
            !response.says_close(),
            "the client's connection is another one than the member's"
        );
    }
}

#[test]
fn trailers_of_a_request_go_no_further() {
    http1_alone!("trailers are frames; see http2.rs");
    let estate = one_compiler().start();
    let mut connection = connection(&estate);
    let head = connection.head(
        "PUT",
        REPORT,
        &[
            ("Transfer-Encoding", "chunked"),
            ("Trailer", "X-Client-Verify, X-Sum"),
        ],
        None,
    );
    connection.send_raw(&head).expect("sends");
    let response = raw(
        &mut connection,
        "2\r\n{}\r\n0\r\nX-Client-Verify: SUCCESS\r\nX-Sum: 1\r\n\r\n",
    );
    assert_eq!(response.status, 200);
    let request = estate.only_request();
    assert_eq!(request.text(), "{}");
    assert!(
        request.body.trailers.names().is_empty(),
        "{:?}",
        request.body.trailers
    );
    assert!(request.headers.get("trailer").is_none());
}

#[test]
fn trailers_of_an_answer_go_no_further() {
    let estate = one_compiler().start();
    let reply = Reply::status(200)
        .header("Trailer", "X-Sum")
        .chunked(&[b"abc"])
        .trailer("X-Sum", "1");
    estate.compilers[0].answer(move |_| Some(reply.clone()));
    let response = connection(&estate).get(FILE);
    assert_eq!(response.text(), "abc");
    assert!(response.body.trailers.names().is_empty() && response.headers.get("trailer").is_none());
}

#[test]
fn framing_that_reads_two_ways_is_refused_and_the_connection_ends() {
    http1_alone!("HTTP/2 has one framing");
    let estate = one_compiler().start();
    for (fields, body) in [
        (
            "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
            "0\r\n\r\n",
        ),
        ("Transfer-Encoding: gzip, chunked\r\n", "0\r\n\r\n"),
        ("Transfer-Encoding: chunked, identity\r\n", "0\r\n\r\n"),
        ("Content-Length: 3\r\nContent-Length: 4\r\n", "abcd"),
        ("Content-Length: 3, 3\r\n", "abc"),
        ("Content-Length: +3\r\n", "abc"),
        ("Content-Length : 3\r\n", "abc"),
    ] {
        let mut connection = connection(&estate);
        let next = format!("GET {FILE} HTTP/1.1\r\nHost: puppet\r\n\r\n");
        let response = raw(
            &mut connection,
            &format!("PUT {REPORT} HTTP/1.1\r\nHost: puppet\r\n{fields}\r\n{body}{next}"),
        );
        assert_eq!(response.status, 400, "{fields}");
        assert!(response.says_close(), "{fields}: {response:?}");
        assert!(
            connection.read_to_close().is_empty(),
            "{fields}: what follows would be read as a request"
        );
        assert!(estate.far_end().is_empty(), "{fields}");
    }
}

#[test]
fn a_length_beside_chunks_goes_no_further_and_the_connection_ends() {
    http1_alone!("HTTP/2 has no chunks");
    // hyper drops the length (RFC 9112, 6.1); what must not be is that a member or a next request sees it.
    let estate = one_compiler().start();
    let mut connection = connection(&estate);
    let head = format!(
        "PUT {REPORT} HTTP/1.1\r\nHost: puppet\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n"
    );
    let response = raw(
        &mut connection,
        &(head + "2\r\n{}\r\n0\r\n\r\nGET / HTTP/1.1\r\nHost: puppet\r\n\r\n"),
    );
    assert!([200, 400].contains(&response.status), "{response:?}");
    assert!(connection.read_to_close().is_empty());
    for request in estate.far_end() {
        assert_ne!(request.headers.get("content-length"), Some("3"));
        assert_eq!(request.text(), "{}");
    }
}

#[test]
fn a_broken_chunk_is_an_error_of_the_client_and_never_a_whole_body() {
    http1_alone!("HTTP/2 has no chunks");
    let estate = one_compiler().start();
    let mut connection = connection(&estate);
    let head = connection.head("PUT", REPORT, &[("Transfer-Encoding", "chunked")], None);
    connection.send_raw(&head).expect("sends");
    connection.send_raw(b"2\r\n{}\r\nzz\r\n").expect("sends");
    // A member that got half a body must not be answered for.
    assert_eq!(connection.read_response().expect("an answer").status, 400);
    assert!(connection.is_closed_within(LIMIT));
    assert!(estate.far_end().iter().all(|request| !request.complete));
    let record = estate
        .proxy
        .wait_for_record(|record| record["method"] == "PUT");
    assert_eq!(
        (&record["reason"], &record["status"]),
        (&"body-broken".into(), &400.into()),
        "{record}"
    );
    estate
        .proxy
        .wait_for_health("compilers", &estate.compilers[0].address(), "up");
}

#[test]
fn host_is_there_once_and_is_a_host() {
    http1_alone!("HTTP/2 has an authority; see http2.rs");
    let estate = one_compiler().start();
    for hosts in [
        "",
        "Host: a\r\nHost: a\r\n",
        "Host: \r\n",
        "Host: a/b\r\n",
        "Host: a@b\r\n",
    ] {
        let mut connection = connection(&estate);
        let response = raw(
            &mut connection,
            &format!("GET {CATALOG} HTTP/1.1\r\n{hosts}\r\n"),
        );
        assert_eq!(response.status, 400, "{hosts:?}");
    }
    assert!(estate.far_end().is_empty());
}

#[test]
fn requests_sent_at_once_are_answered_in_order() {
    let estate = one_compiler().start();
    let mut connection = connection(&estate);
    let heads: Vec<u8> = (0..5)
        .flat_map(|n| connection.head("GET", &format!("{FILE}{n}"), &[], None))
        .collect();
    connection.send_raw(&heads).expect("sends");
    for n in 0..5 {
        let text = connection.read_response().expect("an answer").text();
        assert!(text.ends_with(&format!("motd{n}")), "{text}");
    }
}

#[test]
fn a_body_behind_a_pipelined_request_stays_its_own() {
    http1_alone!("streams run at the same time and in no order");
    let estate = one_compiler().start();
    let mut connection = connection(&estate);
    let put = [connection.head("PUT", REPORT, &[], Some(2)), b"{}".to_vec()].concat();
    let get = connection.head("GET", FILE, &[], None);
    connection
        .send_raw(&[put.clone(), get, put].concat())
        .expect("sends");
    for _ in 0..3 {
        assert_eq!(connection.read_response().expect("an answer").status, 200);
    }
    let bodies: Vec<_> = estate
        .far_end()
        .iter()
        .map(testkit::Recorded::text)
        .collect();
    assert_eq!(bodies, ["{}", "", "{}"]);
}

// Versions, forms of the target, methods.

#[test]
fn a_client_of_http_1_0_gets_an_answer_it_can_read() {
    http1_alone!("clients of HTTP/1.0");
    let estate = one_compiler().start();
    estate.compilers[0].answer(|_| Some(Reply::status(200).chunked(&[b"hel", b"lo"])));
    let mut connection = connection(&estate);
    let response = raw(
        &mut connection,
        &format!("GET {FILE} HTTP/1.0\r\nHost: puppet\r\n\r\n"),
    );
    assert_eq!(
        (response.status, response.framing),
        (200, Framing::ToClose),
        "chunks are of 1.1"
    );
    assert_eq!(response.text(), "hello");
    assert_eq!(estate.only_request().version, "HTTP/1.1");
}

#[test]
fn a_client_of_http_1_0_may_keep_its_connection_and_say_no_host() {
    http1_alone!("clients of HTTP/1.0");
    let estate = one_compiler().start();
    let mut connection = connection(&estate);
    for _ in 0..2 {
        let response = raw(
            &mut connection,
            &format!("GET {FILE} HTTP/1.0\r\nConnection: keep-alive\r\n\r\n"),
        );
        assert_eq!(response.status, 200);
        assert!(
            matches!(response.framing, Framing::Length(_)),
            "{response:?}"
        );
    }
    for request in estate.far_end() {
        assert_eq!(request.only("host"), estate.compilers[0].address());
        assert!(request.headers.get("connection").is_none());
    }
}

#[test]
fn a_member_of_http_1_0_is_understood_and_answers_as_1_1() {
    let estate = one_compiler().start();
    let mut connection = connection(&estate);
    for answer in [
        "HTTP/1.0 200 OK\r\nContent-Length: 5\r\n\r\nhello",
        "HTTP/1.0 200 OK\r\nX-Puppet-Version: 8\r\n\r\nhello",
        "HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 5\r\n\r\nhello",
    ] {
        estate.compilers[0].answer(move |_| Some(Reply::raw(answer)));
        let response = connection.get(FILE);
        assert_eq!(
            (response.version.as_str(), response.text().as_str()),
            (VERSION, "hello"),
            "{answer}"
        );
        assert!(response.headers.get("connection").is_none());
    }
}

#[test]
fn the_absolute_form_is_taken_where_it_names_the_host_and_goes_on_as_a_path() {
    http1_alone!("HTTP/2 has one form");
    let estate = one_compiler().start();
    for (authority, host, status) in [
        ("https://puppet", "puppet", 200),
        ("http://puppet:8140", "puppet:8140", 200),
        ("https://PUPPET", "puppet", 200),
        ("https://other", "puppet", 400),
        ("https://puppet:1", "puppet", 400),
        ("ftp://puppet", "puppet", 400),
    ] {
        estate.forget();
        let mut connection = connection(&estate);
        let response = raw(
            &mut connection,
            &format!("GET {authority}{FILE} HTTP/1.1\r\nHost: {host}\r\n\r\n"),
        );
        assert_eq!(response.status, status, "{authority}");
        let targets: Vec<_> = estate
            .far_end()
            .into_iter()
            .map(|request| request.target)
            .collect();
        let expected: &[&str] = if status == 200 { &[FILE] } else { &[] };
        assert_eq!(targets, expected, "{authority}");
    }
}

#[test]
fn the_asterisk_is_for_options_and_answered_here() {
    let estate = one_compiler().start();
    let mut connection = connection(&estate);
    let response = connection.request("OPTIONS", "*", &[], b"");
    assert_eq!((response.status, response.body.length), (200, 0));
    assert!(response.headers.only("allow").contains("GET"));
    assert_eq!(connection.request("GET", "*", &[], b"").status, 400);
    assert!(estate.far_end().is_empty());
}

#[test]
fn an_answer_to_head_has_the_fields_and_no_body() {
    let estate = one_compiler().start();
    let mut connection = connection(&estate);
    estate.compilers[0].answer(|_| Some(Reply::ok("hello")));
    let head = connection.request("HEAD", FILE, &[], b"");
    assert_eq!((head.status, head.body.length), (200, 0));
    assert_eq!(head.headers.only("content-length"), "5");
    assert_eq!(connection.get(FILE).text(), "hello");
    // One in chunks says no length, and none may be made up for it.
    estate.compilers[0].answer(|request| {
        (request.method == "HEAD")
            .then(|| Reply::raw("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"))
    });
    let head = connection.request("HEAD", FILE, &[], b"");
    assert_eq!(
        (head.status, head.headers.get("content-length")),
        (200, None)
    );
    assert_eq!(connection.get(FILE).status, 200);
}

#[test]
fn a_refusal_of_head_has_no_body() {
    let estate = one_compiler().start();
    let mut connection = connection(&estate);
    let head = connection.request("HEAD", "/puppet/v3/node/other", &[], b"");
    assert_eq!((head.status, head.body.length), (403, 0));
    assert_eq!(connection.get(FILE).status, 200, "no stray bytes follow");
}

#[test]
fn answers_without_a_body_have_none_and_the_connection_goes_on() {
    let estate = one_compiler().start();
    let mut connection = connection(&estate);
    for (status, reply) in [
        (204, Reply::status(204)),
        (304, Reply::status(304).header("ETag", "\"1\"")),
        (304, Reply::status(304).header("Content-Length", "5")),
    ] {
        estate.compilers[0].answer(move |_| Some(reply.clone()));
        let response = connection.get(FILE);
        assert_eq!((response.status, response.body.length), (status, 0));
        assert!(response.headers.get("transfer-encoding").is_none());
        assert!(
            status != 204 || response.headers.get("content-length").is_none(),
            "RFC 9110, 8.6"
        );
    }
    estate.compilers[0].answer_as_puppet();
    assert_eq!(connection.get(FILE).status, 200);
}

#[test]
fn escapes_and_double_slashes_go_on_as_they_came() {
    let estate = one_compiler().start();
    let mut connection = connection(&estate);
    for target in [
        "/puppet/v3/file_bucket_file/sha256/abc//etc/motd",
        "/puppet/v3/file_content/modules/a/b%20c",
        "/puppet/v3/file_content/modules/a/b%2Bc+d",
        "/puppet/v3/file_metadata/modules/a/%c3%A4?checksum_type=sha256&x=%2F%2e..//",
        "/puppet/v3/file_content/modules/a/~b'(c)*!$&=:@,;d",
        "/puppet/v3/environments?",
    ] {
        estate.forget();
        assert_ne!(connection.get(target).status, 400, "{target}");
        assert_eq!(estate.only_request().target, target);
    }
}

// Fields.

#[test]
fn a_query_holds_no_byte_that_no_request_target_may_hold() {
    let estate = one_compiler().start();
    let mut connection = connection(&estate);
    let response = raw(
        &mut connection,
        &format!("GET {CATALOG}&x=\u{e4} HTTP/1.1\r\nHost: puppet\r\n\r\n"),
    );
    assert_eq!(
        (response.status, &*response.text()),
        (
            400,
            "Bad request: The query contains the byte 0xc3, which is not allowed in a request target.\n"
        )
    );
    assert!(estate.far_end().is_empty());
}

#[test]
fn puppets_own_fields_pass_both_ways() {
    let estate = one_compiler().start();
    let reply = Reply::ok("")
        .header("X-Puppet-Version", "8.7.0")
        .header("X-Puppet-Compiler-Name", "c1.example.com")
        .header("X-Odd", "1")
        .header("X-Odd", "2");
    estate.compilers[0].answer(move |_| Some(reply.clone()));
    let sent = [
        ("X-Puppet-Version", "7.30.0"),
        ("X-Puppet-Anything", "a, b"),
        ("Accept-Encoding", "gzip;q=1.0"),
    ];
    let response = connection(&estate).request("GET", FILE, &sent, b"");
    for (name, value) in sent {
        assert_eq!(estate.only_request().only(name), value);
    }
    assert_eq!(response.headers.only("X-Puppet-Version"), "8.7.0");
    assert_eq!(
        response.headers.only("X-Puppet-Compiler-Name"),
        "c1.example.com"
    );
    assert_eq!(response.headers.all("X-Odd"), ["1", "2"]);
}

#[test]
fn every_answer_carries_the_request_id_of_its_record() {
    let estate = one_compiler().start();
    let reply = Reply::ok("")
        .header("X-Request-Id", "a member's own")
        .header("X-Request-Id", "and another");
    estate.compilers[0].answer(move |_| Some(reply.clone()));
    let mut connection = connection(&estate);
    for (method, target, status) in [
        ("GET", FILE, 200),
        ("GET", "/puppet/v3/node/web02", 403),
        ("GET", "/nowhere", 404),
        ("GET", "/puppet/v3/%6eode/web01", 400),
        ("GET", "/status/v1/simple", 200),
    ] {
        estate.forget();
        let response = connection.request(method, target, &[("X-Request-Id", "mine")], b"");
        assert_eq!(response.status, status, "{target}: {response:?}");
        let id = response.headers.only("x-request-id").to_owned();
        let record = estate.proxy.wait_for_record(|record| record["id"] == id);
        assert_eq!(record["status"], status, "{target}: {record}");
        for request in estate.far_end() {
            assert_eq!(request.only("x-request-id"), id);
        }
    }
}

#[test]
fn fields_of_one_hop_stay_on_it() {
    http1_alone!("HTTP/2 has no such fields; what members say of them see http2.rs");
    let estate = one_compiler().start();
    let reply = Reply::ok("")
        .header("Connection", "X-Mine")
        .header("X-Mine", "1")
        .header("Keep-Alive", "timeout=5")
        .header("Proxy-Authenticate", "Basic")
        .header("Upgrade", "h2c");
    estate.compilers[0].answer(move |_| Some(reply.clone()));
    let sent = [
        ("Connection", "keep-alive, X-Mine"),
        ("X-Mine", "1"),
        ("TE", "trailers"),
        ("Keep-Alive", "timeout=5"),
        ("Upgrade", "websocket"),
        ("Proxy-Connection", "keep-alive"),
    ];
    let response = connection(&estate).request("GET", FILE, &sent, b"");
    let request = estate.only_request();
    for name in [
        "X-Mine",
        "TE",
        "Keep-Alive",
        "Upgrade",
        "Proxy-Connection",
        "Proxy-Authenticate",
        "Connection",
    ] {
        assert!(request.headers.get(name).is_none(), "{name} went up");
        assert!(response.headers.get(name).is_none(), "{name} came down");
    }
}

#[test]
fn host_is_the_clients_or_the_members_as_the_pool_says() {
    for (line, of_member) in [("host = \"keep\"", false), ("host = \"member\"", true)] {
        let estate = one_compiler().compiler_pool(line).start();
        let agent = estate.ca.agent("web01");
        let client = estate.client(&agent);
        assert_eq!(client.get(FILE).status, 200);
        let expected = if of_member {
            estate.compilers[0].address()
        } else {
            client.host()
        };
        let request = estate.only_request();
        assert_eq!(request.only("host"), expected);
        assert_eq!(request.only("x-forwarded-host"), client.host());
    }
}

// Expect, early answers, what is left unread.

#[test]
fn continue_is_sent_once_access_has_passed_and_the_member_is_not_asked_for_it() {
    let estate = one_compiler().start();
    let mut connection = connection(&estate);
    let head = connection.head("PUT", REPORT, &[("Expect", "100-continue")], Some(2));
    connection.send_raw(&head).expect("sends");
    assert_eq!(
        connection.read_head().expect("an interim answer").status,
        100
    );
    let response = raw(&mut connection, "{}");
    assert_eq!((response.status, response.interim.len()), (200, 0));
    let request = estate.only_request();
    assert!(request.headers.get("expect").is_none());
    assert_eq!(request.text(), "{}");
}

#[test]
fn who_expects_to_be_told_and_has_nothing_to_send_keeps_its_connection() {
    let estate = one_compiler().start();
    let mut connection = connection(&estate);
    let expect = [("Expect", "100-continue")];
    for (method, target, status) in [
        ("GET", FILE, 200),
        ("PUT", "/puppet/v3/report/other", 403),
        ("GET", FILE, 200),
    ] {
        let response = connection.request(method, target, &expect, b"");
        assert_eq!((response.status, response.says_close()), (status, false));
    }
}

#[test]
fn no_continue_comes_with_a_refusal() {
    let estate = one_compiler().start();
    let expect = [("Expect", "100-continue")];
    for (target, status) in [
        ("/puppet/v3/report/other", 403),
        ("/nowhere", 404),
        ("/puppet/v3/../report/web01", 400),
        (FILE, 405),
    ] {
        let mut connection = connection(&estate);
        let head = connection.head("PUT", target, &expect, Some(2));
        connection.send_raw(&head).expect("sends");
        let response = connection.read_response().expect("an answer");
        assert_eq!(
            (response.status, response.interim.len()),
            (status, 0),
            "{target}"
        );
        // The body was never asked for: what comes next could be it or a request, so nothing may. Over HTTP/2 the
        // stream ends, and no other is concerned.
        assert!(response.says_close() || crate::SPOKEN == testkit::Protocol::Http2);
        assert!(connection.is_closed_within(LIMIT), "{target}");
    }
    let mut anyone = estate.anonymous().connect().expect("connects");
    let head = anyone.head("PUT", REQUEST, &expect, Some(ENROLMENT_BYTES_MAX + 1));
    anyone.send_raw(&head).expect("sends");
    let response = anyone.read_response().expect("an answer");
    assert_eq!((response.status, response.interim.len()), (413, 0));
    estate.compilers[0].kill();
    let mut connection = connection(&estate);
    let head = connection.head("PUT", REPORT, &expect, Some(2));
    connection.send_raw(&head).expect("sends");
    // Routing and access have passed: the proxy takes the body before it asks a member.
    let response = connection.read_head().expect("an interim answer");
    assert_eq!(response.status, 100);
    assert_later(&raw(&mut connection, "{}"));
}

#[test]
fn an_early_answer_arrives_and_the_rest_of_the_body_is_dropped() {
    let estate = streaming().start();
    let body = vec![b'x'; 1 << 20];
    // Ours, and a member's.
    estate.compilers[0].answer_early(|request| {
        (request.method == "PUT").then(|| Reply::status(409).body(b"early").close())
    });
    for (target, status) in [("/puppet/v3/report/other", 403), (REPORT, 409)] {
        let mut connection = connection(&estate);
        let head = connection.head("PUT", target, &[], Some(body.len()));
        connection.send_raw(&head).expect("sends");
        assert_eq!(
            connection.read_response().expect("an early answer").status,
            status
        );
        connection.send_raw(&body).expect("the rest is taken");
        assert_eq!(
            connection.get(FILE).status,
            200,
            "after {status} the connection goes on"
        );
    }
}

#[test]
fn no_more_of_a_refused_body_is_dropped_than_discard_max() {
    http1_alone!("a stream ends and nothing need be dropped");
    for (most, taken) in [("64KiB", false), ("2MiB", true)] {
        let estate = one_compiler()
            .proxy(move |proxy| proxy.with(&format!("[upstream]\ndiscard_max = \"{most}\"")))
            .start();
        let mut connection = connection(&estate);
        let body = vec![b'x'; 1 << 20];
        let head = connection.head("PUT", "/puppet/v3/report/other", &[], Some(body.len()));
        connection.send_raw(&head).expect("sends");
        assert_eq!(
            connection.read_response().expect("an early answer").status,
            403
        );
        let sent = connection
            .send_raw(&body)
            .and_then(|()| connection.try_request("GET", FILE, &[], b""));
        assert_eq!(sent.is_ok(), taken, "{most}: {sent:?}");
        let hits = estate
            .proxy
            .metrics()
            .sum("proscenium_limits_hit_total", &[("limit", "discard")]);
        assert_eq!(hits > 0.0, !taken, "{most}");
    }
}

#[test]
fn no_longer_is_a_refused_body_waited_for_than_discard_timeout() {
    http1_alone!("a stream ends and nothing need be dropped");
    let estate = one_compiler()
        .proxy(|proxy| proxy.with("[upstream]\ndiscard_timeout = \"50ms\""))
        .start();
    let mut connection = connection(&estate);
    let head = connection.head("PUT", "/puppet/v3/report/other", &[], Some(10));
    connection.send_raw(&head).expect("sends");
    assert_eq!(
        connection.read_response().expect("an early answer").status,
        403
    );
    let took = connection.closed_after(LIMIT).expect("it ends");
    assert!(
        took < Duration::from_secs(4),
        "the default is 5 s: {took:?}"
    );
    assert_eq!(
        estate
            .proxy
            .metrics()
            .sum("proscenium_limits_hit_total", &[("limit", "discard")]),
        1.0
    );
}

// Limits on size.

#[test]
fn an_enrolment_request_has_at_most_16_kib() {
    let estate = one_compiler().start();
    // Newlines after the block are none of it.
    let padded = |bytes| {
        let mut request = certificate_request("web02");
        request.resize(bytes, b'\n');
        request
    };
    let whole = padded(ENROLMENT_BYTES_MAX);
    let more = padded(ENROLMENT_BYTES_MAX + 1);
    let put = |body: &[u8], chunked: bool| {
        let mut connection = estate.anonymous().connect().expect("connects");
        match chunked {
            true => {
                connection.send_chunked("PUT", REQUEST, &[], &body.chunks(1000).collect::<Vec<_>>())
            }
            false => connection.send("PUT", REQUEST, &[], body),
        }
        .expect("sends");
        connection.read_response().expect("an answer").status
    };
    assert_eq!(put(&more, false), 413);
    assert!(
        estate.far_end().is_empty(),
        "a length that is too large is refused at once"
    );
    assert_eq!(put(&more, true), 413);
    assert!(
        estate.far_end().iter().all(|request| !request.complete),
        "never as a whole request"
    );
    for request in estate.proxy.wait_for_records(2) {
        assert_eq!(
            (&request["status"], &request["reason"]),
            (&413.into(), &"body-too-large".into())
        );
    }
    assert_eq!(put(&whole, false), 200);
    assert_eq!(
        put(&whole, true),
        400,
        "the CA has it already: it was whole"
    );
}

#[test]
fn a_verified_agents_body_has_no_limit_but_that_of_its_route() {
    let estate = one_compiler()
        .proxy(|proxy| {
            proxy.with("[[routes]]\nname = \"reports\"\npath = { prefix = \"/puppet/v3/report\" }\npool = \"compilers\"\nbody_max = \"1KiB\"")
        })
        .start();
    let mut connection = connection(&estate);
    let body = vec![b'x'; 1 << 20];
    assert_eq!(connection.request("POST", CATALOG, &[], &body).status, 200);
    assert_eq!(
        connection.request("PUT", REPORT, &[], &body[..1024]).status,
        200
    );
    let response = connection.request("PUT", REPORT, &[], &body[..1025]);
    assert_refused(&response, 413, &["1024 bytes"]);
}

#[test]
fn a_route_can_allow_enrolment_less_and_a_certificate_request_never_more() {
    let estate = one_compiler()
        .proxy(|proxy| {
            proxy.with("[[routes]]\nname = \"ca\"\npath = { prefix = \"/puppet-ca\" }\npool = \"ca\"\nbody_max = \"32KiB\"")
        })
        .start();
    let mut body = certificate_request("web02");
    body.resize(ENROLMENT_BYTES_MAX + 1, b'\n');
    let put = |body: &[u8]| estate.anonymous().request("PUT", REQUEST, &[], body).status;
    assert_eq!(put(&body), 413);
    assert_eq!(put(&body[..ENROLMENT_BYTES_MAX]), 200);
    estate
        .proxy
        .edit_config("body_max = \"32KiB\"", "body_max = \"64B\"");
    estate.proxy.reload_applied();
    assert_eq!(put(&body[..ENROLMENT_BYTES_MAX]), 413);
}

// Answers that are no plain answers.

#[test]
fn interim_answers_of_a_member_do_not_disturb_the_final_one() {
    let estate = one_compiler().start();
    let mut connection = connection(&estate);
    for status in [100, 102, 103] {
        estate.compilers[0]
            .answer(move |_| Some(Reply::ok("final").interim(status, &[("Link", "x")])));
        let response = connection.get(FILE);
        assert_eq!(
            (response.status, response.text().as_str()),
            (200, "final"),
            "after {status}"
        );
    }
}

#[test]
fn a_member_that_switches_protocols_unasked_is_a_502() {
    http1_alone!("HTTP/2 has no Upgrade field");
    let estate = one_compiler().start();
    estate.compilers[0].answer(|_| {
        Some(Reply::raw(
            "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\nbytes",
        ))
    });
    let mut connection = connection(&estate);
    let asked = [("Connection", "upgrade"), ("Upgrade", "x")];
    for fields in [&asked[..0], &asked[..]] {
        let response = connection.request("GET", FILE, fields, b"");
        assert_refused(
            &response,
            502,
            &[&estate.compilers[0].address(), "unsolicited-upgrade"],
        );
    }
    estate.compilers[0].answer_as_puppet();
    assert_eq!(
        connection.get(FILE).status,
        200,
        "none of its bytes came through"
    );
    let record = estate
        .proxy
        .wait_for_record(|record| record["status"] == 502);
    assert_eq!(record["reason"], "unsolicited-upgrade");
}

#[test]
fn an_answer_that_is_none_is_a_502_that_says_who() {
    let estate = one_compiler().start();
    let mut connection = connection(&estate);
    for answer in [
        "HTTP/1.1 abc\r\n\r\n",
        "SSH-2.0-OpenSSH\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\nContent-",
    ] {
        estate.compilers[0].answer(move |_| Some(Reply::raw(answer)));
        let response = connection.request("POST", CATALOG, &[], b"facts");
        assert_refused(
            &response,
            502,
            &[&estate.compilers[0].address(), "closed the connection"],
        );
    }
    let record = estate
        .proxy
        .wait_for_record(|record| record["status"] == 502);
    assert_eq!(
        (&record["reason"], record["cause"].is_string()),
        (&"member-closed".into(), true),
        "{record}"
    );
}

#[test]
fn a_members_503_says_when_to_come_back() {
    let estate = one_compiler().start();
    let mut connection = connection(&estate);
    estate.compilers[0].answer(|_| Some(Reply::status(503)));
    let mut drawn: Vec<_> = (0..30)
        .map(|_| {
            let response = connection.get(FILE);
            assert_later(&response);
            response.headers.only("retry-after").to_owned()
        })
        .collect();
    drawn.sort();
    drawn.dedup();
    assert!(drawn.len() > 1, "a herd spreads");
    estate.compilers[0].answer(|_| Some(Reply::status(503).header("Retry-After", "7")));
    assert_eq!(
        connection.get(FILE).headers.only("retry-after"),
        "7",
        "its own stays"
    );
}

#[test]
fn a_starting_servers_404_is_not_passed_on() {
    let estate = one_compiler().start();
    let jetty = || {
        Reply::status(404)
            .header("Cache-Control", "must-revalidate,no-cache,no-store")
            .header("Content-Type", "text/html;charset=iso-8859-1")
            .body(b"<html>HTTP ERROR 404 Not Found</html>")
    };
    estate.compilers[0].answer(move |_| Some(jetty()));
    estate.ca_server.answer(move |_| Some(jetty()));
    let agent = estate.ca.agent("web01");
    for response in [
        estate.client(&agent).get(CATALOG),
        estate.client(&agent).get(FILE),
        estate.anonymous().get("/puppet-ca/v1/certificate/web01"),
    ] {
        assert_later(&response);
        assert!(
            response.text().contains("starting or stopping"),
            "{response:?}"
        );
    }
    for record in estate.proxy.wait_for_records(3) {
        assert_eq!(record["reason"], "member-starting", "{record}");
    }
}

#[test]
fn a_puppet_servers_own_404_is_passed_on() {
    let estate = one_compiler().start();
    let own = |text: &'static str| {
        move |_: &testkit::Recorded| {
            Some(
                Reply::status(404)
                    .header("X-Puppet-Version", "8.7.0")
                    .header("Content-Type", "text/plain")
                    .body(text.as_bytes()),
            )
        }
    };
    estate
        .ca_server
        .answer(own("Not Found: Could not find certificate web01"));
    estate.compilers[0].answer(own("{\"message\":\"Not Found\"}"));
    let agent = estate.ca.agent("web01");
    let response = estate.anonymous().get("/puppet-ca/v1/certificate/web01");
    assert_refused(&response, 404, &["Could not find certificate web01"]);
    assert_refused(&estate.client(&agent).get(FILE), 404, &["Not Found"]);
}

// Limits on time.

/// An estate whose compilers have this setting, by `[upstream]` and by the pool over a generous `[upstream]`.
fn with_setting(line: &'static str, generous: &'static str, test: impl Fn(&Estate)) {
    test(
        &one_compiler()
            .proxy(move |proxy| proxy.with(&format!("[upstream]\n{line}")))
            .start(),
    );
    test(
        &one_compiler()
            .compiler_pool(line)
            .proxy(move |proxy| proxy.with(&format!("[upstream]\n{generous}")))
            .start(),
    );
}

#[test]
fn a_member_that_does_not_answer_in_time_is_a_504() {
    with_setting(
        "first_byte_timeout = \"150ms\"",
        "first_byte_timeout = \"10m\"",
        |estate| {
            estate.compilers[0].hold();
            let response = connection(estate).request("POST", CATALOG, &[], b"facts");
            estate.compilers[0].release();
            assert_refused(
                &response,
                504,
                &[&estate.compilers[0].address(), "first_byte_timeout"],
            );
            let record = estate
                .proxy
                .wait_for_record(|record| record["status"] == 504);
            assert_eq!(
                (&record["reason"], &record["attempts"]),
                (&"first-byte-timeout".into(), &1.into())
            );
        },
    );
}

/// Each would be in time alone, and both together are not.
#[test]
fn all_attempts_share_the_time_to_the_first_byte() {
    let estate = Estate::builder()
        .compiler_pool("first_byte_timeout = \"4s\"\nidle_timeout = \"200ms\"")
        .start();
    let failed = Arc::new(AtomicBool::new(false));
    for compiler in &estate.compilers {
        let failed = Arc::clone(&failed);
        compiler.answer(move |request| {
            (!request.is_probe()).then(|| match failed.swap(true, Ordering::SeqCst) {
                false => Reply::reset().delay(Duration::from_secs(2)),
                true => Reply::ok("second").delay(Duration::from_secs(3)),
            })
        });
    }
    let answer = connection(&estate).get(FILE);
    assert_refused(&answer, 504, &["first_byte_timeout"]);
    let record = estate
        .proxy
        .wait_for_record(|record| record["status"] == 504);
    assert_eq!(record["attempts"], 2);
}

#[test]
fn a_member_that_stops_within_its_answer_is_given_up() {
    with_setting(
        "idle_timeout = \"150ms\"",
        "idle_timeout = \"10m\"",
        |estate| {
            let gate = Gate::new();
            let reply = Reply::ok("0123456789").gate_after(4, &gate);
            estate.compilers[0].answer(move |_| Some(reply.clone()));
            let mut connection = connection(estate);
            assert!(
                connection.try_request("GET", FILE, &[], b"").is_err(),
                "never a whole answer"
            );
            gate.release();
            let record = estate
                .proxy
                .wait_for_record(|record| record["method"] == "GET");
            assert_eq!(
                (&record["reason"], &record["ended_by"]),
                (&"body-timeout".into(), &"member".into()),
                "{record}"
            );
            assert_eq!(record["bytes_out"], 4);
        },
    );
}

#[test]
fn a_client_that_stops_within_its_body_is_given_up() {
    with_setting(
        "idle_timeout = \"150ms\"",
        "idle_timeout = \"10m\"",
        |estate| {
            let mut connection = connection(estate);
            let head = connection.head("PUT", REPORT, &[], Some(10));
            connection
                .send_raw(&[head, b"0123".to_vec()].concat())
                .expect("sends");
            let response = connection.read_response().expect("an answer");
            assert_refused(&response, 408, &["sent no data"]);
            assert!(connection.is_closed_within(LIMIT));
            let record = estate
                .proxy
                .wait_for_record(|record| record["status"] == 408);
            assert_eq!(
                (&record["reason"], &record["bytes_in"]),
                (&"body-timeout".into(), &4.into()),
                "{record}"
            );
            estate
                .proxy
                .wait_for_health("compilers", &estate.compilers[0].address(), "up");
        },
    );
}

#[test]
fn an_enrolment_request_that_never_ends_takes_no_connection_to_the_ca() {
    let estate = Estate::builder().ca_pool("idle_timeout = \"1s\"").start();
    let mut connection = estate.anonymous().connect().expect("connects");
    let target = "/puppet-ca/v1/certificate_request/web01";
    let head = connection.head("PUT", target, &[], Some(100));
    connection
        .send_raw(&[head, b"-----BEGIN".to_vec()].concat())
        .expect("sends");
    let response = connection.read_response().expect("an answer");
    assert_refused(&response, 408, &["sent no data"]);
    assert!(estate.ca_server.requests().is_empty(), "the CA saw it");
    let record = estate
        .proxy
        .wait_for_record(|record| record["status"] == 408);
    assert_eq!(record["attempts"], 0, "no member was asked: {record}");
}

#[test]
fn a_member_that_takes_nothing_of_a_body_is_given_up() {
    with_setting(
        "idle_timeout = \"1s\"",
        "idle_timeout = \"10m\"",
        |estate| {
            let gate = Gate::new();
            let reply = Reply::ok("late").gate(&gate).close();
            estate.compilers[0]
                .answer_early(move |request| (request.method == "PUT").then(|| reply.clone()));
            let mut connection = connection(estate);
            // More than all buffers on the way hold.
            let body = vec![b'x'; 32 << 20];
            let head = connection.head("PUT", REPORT, &[], Some(body.len()));
            let _ = connection.send_raw(&[head, body].concat());
            let record = estate
                .proxy
                .wait_for_record(|record| record["method"] == "PUT");
            gate.release();
            assert_eq!(
                (&record["status"], &record["reason"]),
                (&504.into(), &"body-timeout".into()),
                "{record}"
            );
        },
    );
}

#[test]
fn a_member_that_takes_no_handshake_in_time_is_given_up() {
    // Connections are taken by the system and stand there.
    let silent = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = silent.local_addr().expect("bound").to_string();
    for (upstream, pool) in [
        ("connect_timeout = \"100ms\"", ""),
        ("connect_timeout = \"10m\"", "connect_timeout = \"100ms\""),
    ] {
        let tables = format!(
            "[upstream]\n{upstream}\n[pools.slow]\nmembers = [\"{address}\"]\ncheck = {{ type = \"none\" }}\n{pool}\n\
             [[routes]]\nname = \"slow\"\npath = {{ prefix = \"/slow\" }}\npool = \"slow\""
        );
        let estate = one_compiler()
            .proxy(move |proxy| proxy.with(&tables))
            .start();
        let response = connection(&estate).get("/slow");
        assert_later(&response);
        let record = estate
            .proxy
            .wait_for_record(|record| record["route"] == "slow");
        assert_eq!(
            (&record["reason"], &record["status"]),
            (&"connect-timeout".into(), &503.into()),
            "{record}"
        );
        assert!(
            record["cause"]
                .as_str()
                .is_some_and(|cause| cause.contains(&address) && cause.contains("100ms")),
            "{record}"
        );
    }
}

// Who went away.

#[test]
fn a_client_that_goes_before_the_answer_is_a_499_and_no_member_is_blamed() {
    let estate = one_compiler().start();
    for end in [
        Connection::reset as fn(Connection),
        |mut connection: Connection| connection.half_close(),
    ] {
        estate.forget();
        estate.compilers[0].hold();
        let before = estate.proxy.records().len();
        let mut connection = connection(&estate);
        connection
            .send("POST", CATALOG, &[], b"facts")
            .expect("sends");
        estate.compilers[0].wait_for_request(1, LIMIT);
        end(connection);
        let record = estate.proxy.wait_for_records(before + 1).remove(before);
        assert_eq!(
            (&record["status"], &record["reason"]),
            (&499.into(), &"client-gone".into()),
            "{record}"
        );
        assert_eq!(
            (&record["ended_by"], &record["attempts"]),
            (&"client".into(), &1.into()),
            "{record}"
        );
        estate.compilers[0].release();
        assert_eq!(
            estate
                .proxy
                .metrics()
                .sum("proscenium_limits_hit_total", &[]),
            0.0
        );
        estate
            .proxy
            .wait_for_health("compilers", &estate.compilers[0].address(), "up");
    }
}

#[test]
fn a_client_that_goes_within_its_body_is_a_499_and_the_member_gets_no_whole_body() {
    let estate = streaming().start();
    for chunked in [false, true] {
        estate.forget();
        let before = estate.proxy.records().len();
        let mut connection = connection(&estate);
        let (head, part) = match chunked {
            false => (connection.head("PUT", REPORT, &[], Some(10)), "0123"),
            true => (
                connection.head("PUT", REPORT, &[("Transfer-Encoding", "chunked")], None),
                "4\r\n0123\r\n",
            ),
        };
        connection
            .send_raw(&[head, part.as_bytes().to_vec()].concat())
            .expect("sends");
        estate.compilers[0].wait_for_head(1, LIMIT);
        connection.reset();
        let record = estate.proxy.wait_for_records(before + 1).remove(before);
        assert_eq!(
            (&record["status"], &record["reason"]),
            (&499.into(), &"client-gone".into()),
            "{record}"
        );
        assert_eq!(record["ended_by"], "client", "{record}");
        let closed = wait_until(LIMIT, || {
            (estate.compilers[0].connections_open() == 0).then_some(())
        });
        assert!(closed.is_some(), "its connection is not used again");
        assert!(estate.far_end().iter().all(|request| !request.complete));
    }
}

#[test]
fn a_client_that_goes_within_the_answer_is_told_of_and_the_member_let_go() {
    let estate = one_compiler().start();
    estate.compilers[0].answer(|_| Some(Reply::stream(256 << 20)));
    let mut connection = connection(&estate);
    connection.send("GET", FILE, &[], b"").expect("sends");
    assert_eq!(connection.read_head().expect("a head").status, 200);
    connection.reset();
    let record = estate
        .proxy
        .wait_for_record(|record| record["method"] == "GET");
    assert_eq!(
        (&record["reason"], &record["ended_by"]),
        (&"client-gone".into(), &"client".into()),
        "{record}"
    );
    assert_eq!(record["status"], 200, "what was said");
    let closed = wait_until(LIMIT, || {
        (estate.compilers[0].connections_open() == 0).then_some(())
    });
    assert!(closed.is_some(), "the member is not left sending");
}

#[test]
fn a_member_that_goes_within_the_answer_never_makes_a_whole_one() {
    let estate = one_compiler().start();
    for reply in [
        Reply::ok("0123456789").close_after(4),
        Reply::ok("0123456789").reset_after(4),
        Reply::status(200)
            .chunked(&[b"0123", b"456789"])
            .close_after(4),
    ] {
        let before = estate.proxy.records().len();
        estate.compilers[0].answer(move |_| Some(reply.clone()));
        let mut connection = connection(&estate);
        assert!(connection.try_request("GET", FILE, &[], b"").is_err());
        let record = estate.proxy.wait_for_records(before + 1).remove(before);
        assert_eq!(
            (&record["reason"], &record["ended_by"]),
            (&"member-closed".into(), &"member".into()),
            "{record}"
        );
        assert_eq!(record["attempts"], 1, "bytes of it had come");
    }
}

// Memory.

/// Transfers at once, and the size of each; issue-size ones are the benchmark's.
const TRANSFERS: usize = 8;
const TRANSFER_BYTES: u64 = 24 << 20;
/// Growth allowed for one.
const GROWTH_KIB_MAX: u64 = 2048;
/// A reader takes this much, then rests.
const PIECE_BYTES: usize = 64 << 10;
const REST: Duration = Duration::from_millis(2);

#[track_caller]
fn assert_grows_little(estate: &Estate, transfer: impl Fn(&Barrier) + Send + Sync + 'static) {
    let barrier = Arc::new(Barrier::new(TRANSFERS));
    let transfer = Arc::new(transfer);
    // What handshakes and first requests cost once is no transfer's.
    assert_eq!(connection(estate).get(FILE).status, 200);
    let before = estate.proxy.memory_peak_kib();
    let running: Vec<_> = (0..TRANSFERS)
        .map(|_| {
            let (barrier, transfer) = (Arc::clone(&barrier), Arc::clone(&transfer));
            thread::spawn(move || transfer(&barrier))
        })
        .collect();
    for transfer in running {
        transfer.join().expect("a whole transfer");
    }
    let growth = estate.proxy.memory_peak_kib() - before;
    assert!(
        growth < GROWTH_KIB_MAX * TRANSFERS as u64,
        "{growth} KiB for {TRANSFERS} transfers"
    );
}

/// Reads slowly on purpose.
fn read_slowly(mut read: impl FnMut(&mut [u8]) -> usize) -> u64 {
    let mut piece = vec![0; PIECE_BYTES];
    let mut total = 0;
    loop {
        let n = read(&mut piece);
        if n == 0 {
            return total;
        }
        total += n as u64;
        thread::sleep(REST);
    }
}

#[test]
fn large_answers_to_slow_readers_take_no_memory() {
    http1_alone!("slow readers of bytes; of streams see http2.rs");
    let estate = one_compiler().one_agent_for_many().start();
    estate.compilers[0].answer(|request| {
        request
            .target
            .ends_with("large")
            .then(|| Reply::stream(TRANSFER_BYTES))
    });
    let agent = estate.ca.agent("web01");
    let client = estate.client(&agent).receive_buffer(PIECE_BYTES);
    assert_grows_little(&estate, move |together| {
        let mut connection = client.connect().expect("connects");
        let fields = [("Connection", "close")];
        connection
            .send("GET", "/puppet/v3/file_content/large", &fields, b"")
            .expect("sends");
        assert_eq!(connection.read_head().expect("a head").status, 200);
        together.wait();
        let total = read_slowly(|piece| connection.read_some(piece).unwrap_or(0));
        // The head's read may have taken the first bytes along.
        assert!(total > TRANSFER_BYTES - (64 << 10), "{total}");
    });
}

#[test]
fn large_bodies_to_a_slow_member_take_no_memory() {
    let slow = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let tables = format!(
        "[pools.slow]\nscheme = \"http\"\nmembers = [\"{}\"]\ncheck = {{ type = \"none\" }}\n\
         [[routes]]\nname = \"slow\"\npath = {{ prefix = \"/slow\" }}\npool = \"slow\"",
        slow.local_addr().expect("bound")
    );
    thread::spawn(move || {
        for socket in slow.incoming().flatten() {
            thread::spawn(move || take_slowly(socket));
        }
    });
    let estate = one_compiler()
        .proxy(move |proxy| proxy.with(&tables))
        .start();
    let agent = estate.ca.agent("web01");
    let client = estate.client(&agent);
    assert_grows_little(&estate, move |together| {
        let mut connection = client.connect().expect("connects");
        together.wait();
        let head = connection.head("PUT", "/slow", &[], Some(TRANSFER_BYTES as usize));
        connection.send_raw(&head).expect("sends");
        let piece = vec![b'x'; 1 << 20];
        for _ in 0..TRANSFER_BYTES >> 20 {
            connection.send_raw(&piece).expect("sends");
        }
        assert_eq!(
            connection.read_response().expect("an answer").text(),
            TRANSFER_BYTES.to_string()
        );
    });
}

/// A member that takes a body slowly and says how long it was.
fn take_slowly(mut socket: TcpStream) {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") && socket.read(&mut byte).is_ok_and(|n| n == 1) {
        head.push(byte[0]);
    }
    let mut left = TRANSFER_BYTES as usize;
    let total = read_slowly(|piece| {
        let most = piece.len().min(left);
        let n = if most == 0 {
            0
        } else {
            socket.read(&mut piece[..most]).unwrap_or(0)
        };
        left -= n;
        n
    })
    .to_string();
    let _ = write!(
        socket,
        "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{total}",
        total.len()
    );
}

#[test]
fn a_filebuckets_put_is_found_again() {
    let estate = one_compiler().start();
    let mut connection = connection(&estate);
    assert_eq!(connection.request("PUT", BUCKET, &[], b"motd").status, 200);
    assert_eq!(connection.request("HEAD", BUCKET, &[], b"").status, 200);
    assert_eq!(connection.get(BUCKET).text(), "motd");
}
