//! One request and its response, as client and member see them: framing, hosts, fields, HTTP/1.0, HEAD.

use testkit::{BodyFraming, Reply};

use crate::support::{
    LIMIT, connection,
    exchanges::{one_compiler, raw},
    http1_alone,
    paths::{CATALOG, FILE, REPORT},
    version,
};

const BUCKET: &str = "/puppet/v3/file_bucket_file/sha256/abc//etc/motd";

#[test]
fn a_body_arrives_as_it_was_sent_by_length_and_by_chunks() {
    let estate = one_compiler().start();
    let mut connection = connection(&estate);
    let body: Vec<u8> = (0..200_000u32).map(|n| n as u8).collect();
    assert_eq!(connection.request("PUT", REPORT, &[], &body).status, 200);
    // Chunks that fit the buffer are complete when a member is picked, so their length is known.
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
fn a_response_arrives_as_it_was_sent_by_length_by_chunks_and_by_close() {
    let estate = one_compiler().start();
    let mut connection = connection(&estate);
    for (reply, framing) in [
        (Reply::ok("hello"), BodyFraming::Length(5)),
        (
            Reply::status(200).chunked(&[b"hel", b"lo"]),
            BodyFraming::Chunked,
        ),
        (Reply::status(200).to_close(b"hello"), BodyFraming::Chunked),
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
fn trailers_of_a_request_are_not_forwarded() {
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
fn trailers_of_a_response_are_not_forwarded() {
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
fn ambiguous_framing_is_refused_and_the_connection_closed() {
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
fn a_length_with_chunks_is_not_forwarded_and_the_connection_closed() {
    http1_alone!("HTTP/2 has no chunks");
    // RFC 9112, 6.1: neither the member nor a later request may see the length.
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
fn a_broken_chunk_is_a_client_error_and_never_a_complete_body() {
    http1_alone!("HTTP/2 has no chunks");
    let estate = one_compiler().start();
    let mut connection = connection(&estate);
    let head = connection.head("PUT", REPORT, &[("Transfer-Encoding", "chunked")], None);
    connection.send_raw(&head).expect("sends");
    connection.send_raw(b"2\r\n{}\r\nzz\r\n").expect("sends");
    // A member that got half a body must not cause a successful response.
    assert_eq!(connection.read_response().expect("an answer").status, 400);
    assert!(connection.is_closed_within(LIMIT));
    assert!(estate.far_end().iter().all(|request| !request.complete));
    let record = estate.wait_for_record(|record| record["method"] == "PUT");
    assert_eq!(record["reason"], "body-broken", "{record}");
    assert_eq!(record["status"], 400, "{record}");
    estate.wait_for_health("compilers", &estate.compilers[0].address(), "up");
}

#[test]
fn a_request_needs_one_valid_host() {
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
fn pipelined_requests_are_answered_in_order() {
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
fn a_body_after_a_pipelined_request_belongs_to_its_own_request() {
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

#[test]
fn a_client_with_http_1_0_gets_a_response_it_can_read() {
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
        (200, BodyFraming::ToClose),
        "chunks are of 1.1"
    );
    assert_eq!(response.text(), "hello");
    assert_eq!(estate.only_request().version, "HTTP/1.1");
}

#[test]
fn a_client_with_http_1_0_may_reuse_its_connection_and_omit_host() {
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
            matches!(response.framing, BodyFraming::Length(_)),
            "{response:?}"
        );
    }
    for request in estate.far_end() {
        assert_eq!(request.only("host"), estate.compilers[0].address());
        assert!(request.headers.get("connection").is_none());
    }
}

#[test]
fn responses_of_a_member_with_http_1_0_are_passed_on_as_1_1() {
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
            (version(), "hello"),
            "{answer}"
        );
        assert!(response.headers.get("connection").is_none());
    }
}

#[test]
fn the_absolute_form_is_accepted_for_the_same_host_and_forwarded_as_a_path() {
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
fn the_asterisk_form_is_for_options_and_answered_by_the_proxy() {
    let estate = one_compiler().start();
    let mut connection = connection(&estate);
    let response = connection.request("OPTIONS", "*", &[], b"");
    assert_eq!((response.status, response.body.length), (200, 0));
    assert!(response.headers.only("allow").contains("GET"));
    assert_eq!(connection.request("GET", "*", &[], b"").status, 400);
    assert!(estate.far_end().is_empty());
}

#[test]
fn a_response_to_head_has_the_fields_and_no_body() {
    let estate = one_compiler().start();
    let mut connection = connection(&estate);
    estate.compilers[0].answer(|_| Some(Reply::ok("hello")));
    let head = connection.request("HEAD", FILE, &[], b"");
    assert_eq!((head.status, head.body.length), (200, 0));
    assert_eq!(head.headers.only("content-length"), "5");
    assert_eq!(connection.get(FILE).text(), "hello");
    // A chunked response has no length, and the proxy must not invent one.
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
fn responses_without_a_body_leave_the_connection_open() {
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
fn escapes_and_double_slashes_are_forwarded_unchanged() {
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

#[test]
fn a_query_with_a_byte_that_request_targets_must_not_have_is_refused() {
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
fn a_raw_query_is_forwarded_encoded_and_a_refused_head_has_a_text() {
    http1_alone!("http2.rs has the counterpart, and h2 refuses malformed heads itself");
    let estate = one_compiler().start();
    let mut client = connection(&estate);
    let request = |target: &str| format!("GET {target} HTTP/1.1\r\nHost: puppet\r\n\r\n");
    let response = raw(&mut client, &request(&format!("{FILE}?x=\"<a>\"")));
    assert_eq!(response.status, 200, "{response:?}");
    let forwarded = estate.only_request().target;
    assert_eq!(forwarded, format!("{FILE}?x=%22%3Ca%3E%22"));
    for path in [
        "/puppet/v3/file_content/modules/a/<b",
        "/puppet/v3/file_content/modules/a/>b",
    ] {
        let response = raw(&mut connection(&estate), &request(path));
        assert_eq!(response.status, 400, "{path}: {response:?}");
        assert!(response.text().starts_with("Bad request"), "{response:?}");
        let id = response.headers.only("x-request-id").to_owned();
        let record = estate.wait_for_record(|record| record["id"] == id);
        assert_eq!(record["status"], 400, "{record}");
    }
}

#[test]
fn puppets_own_fields_pass_in_both_directions() {
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
fn every_response_has_the_request_id_of_its_record() {
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
        let record = estate.wait_for_record(|record| record["id"] == id);
        assert_eq!(record["status"], status, "{target}: {record}");
        for request in estate.far_end() {
            assert_eq!(request.only("x-request-id"), id);
        }
    }
}

#[test]
fn hop_by_hop_fields_are_not_forwarded() {
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
fn the_pool_decides_whether_host_is_the_clients_or_the_members() {
    for (line, of_member) in [("host = \"keep\"", false), ("host = \"member\"", true)] {
        let estate = one_compiler().compiler_pool(line).start();
        let client = estate.agent("web01");
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

#[test]
fn a_file_put_into_the_filebucket_is_found_again() {
    let estate = one_compiler().start();
    let mut connection = connection(&estate);
    assert_eq!(connection.request("PUT", BUCKET, &[], b"motd").status, 200);
    assert_eq!(connection.request("HEAD", BUCKET, &[], b"").status, 200);
    assert_eq!(connection.get(BUCKET).text(), "motd");
}
