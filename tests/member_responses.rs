//! Responses of members that need care: interim, malformed, 503, and 404 while a server starts.

use testkit::Reply;

use crate::support::{
    NO_WAIT, assert_refused, assert_unavailable, connection,
    exchanges::one_compiler,
    http1_alone,
    paths::{CATALOG, FILE},
};

#[test]
fn interim_responses_of_a_member_do_not_affect_the_final_one() {
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
fn a_member_that_switches_protocols_without_an_upgrade_request_is_a_502() {
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
    let record = estate.wait_for_record(|record| record["status"] == 502);
    assert_eq!(record["reason"], "unsolicited-upgrade");
}

#[test]
fn a_malformed_response_is_a_502_that_names_the_member_and_the_fault() {
    let estate = one_compiler().start();
    let mut connection = connection(&estate);
    let large = format!("HTTP/1.1 200 OK\r\nX: {}\r\n\r\n", "x".repeat(70_000));
    let interim = "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n".repeat(30_000);
    let cases: [(&str, &str); 12] = [
        ("HTTP/1.1 abc\r\n\r\n", "no status code"),
        (
            "SSH-2.0-OpenSSH\r\n",
            "does not begin with HTTP/1.0 or HTTP/1.1",
        ),
        (
            "HTTP/2.0 200 OK\r\n\r\n",
            "does not begin with HTTP/1.0 or HTTP/1.1",
        ),
        ("HTTP/1.1 200 OK\r\nno field\r\n\r\n", "not a header field"),
        (
            "HTTP/1.1 200 OK\r\nX-A: b\r\n c\r\nContent-Length: 2\r\n\r\nok",
            "continues on a second line (folding)",
        ),
        (
            "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
            "Content-Length",
        ),
        (
            "HTTP/1.1 200 OK\r\nContent-Length: two\r\n\r\nab",
            "Content-Length",
        ),
        (
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
            "Transfer-Encoding",
        ),
        (
            "HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            "Transfer-Encoding",
        ),
        (&large, "more than 64 KiB"),
        (&with_fields(257), "more than 256 header fields"),
        (&interim, "interim responses"),
    ];
    for (answer, fault) in cases {
        let before = estate.proxy.records().len();
        let reply = Reply::raw(answer);
        estate.compilers[0].answer(move |_| Some(reply.clone()));
        let response = connection.request("POST", CATALOG, &[], b"facts");
        let member = estate.compilers[0].address();
        assert_refused(
            &response,
            502,
            &[&member, "sent a malformed response", fault],
        );
        assert!(!response.text().contains("closed"), "{}", response.text());
        let record = estate.wait_for_records(before + 1).remove(before);
        assert_eq!(record["reason"], "member-malformed", "{record}");
        let cause = record["cause"].as_str().expect("a cause");
        assert!(cause.contains(fault), "{record}");
    }
    // The connection ends within the head.
    estate.compilers[0].answer(|_| {
        Some(Reply::raw(
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\nContent-",
        ))
    });
    let response = connection.request("POST", CATALOG, &[], b"facts");
    assert_refused(&response, 502, &["closed the connection"]);
}

#[test]
fn a_body_with_malformed_chunks_is_recorded_as_malformed() {
    let estate = one_compiler().start();
    estate.compilers[0].answer(|_| {
        Some(Reply::raw(
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\nnot a size\r\n",
        ))
    });
    let cut = connection(&estate).try_request("GET", FILE, &[], b"");
    assert!(cut.is_err(), "{cut:?}");
    let record = estate.wait_for_records(1).remove(0);
    assert_eq!(record["reason"], "member-malformed", "{record}");
    assert_eq!(record["ended_by"], "member", "{record}");
    assert_eq!(
        record["cause"], "malformed response body: invalid chunk",
        "{record}"
    );
}

#[test]
fn the_number_of_fields_of_a_response_has_a_limit_that_a_pool_can_change() {
    for (tables, max) in [("", 256), ("response_fields_max = 300", 300)] {
        let estate = one_compiler().compiler_pool(tables).start();
        let mut connection = connection(&estate);
        for (count, status) in [(max, 200), (max + 1, 502), (120, 200)] {
            let reply = Reply::raw(with_fields(count));
            estate.compilers[0].answer(move |_| Some(reply.clone()));
            let response = connection.request("GET", FILE, &[], b"");
            assert_eq!(response.status, status, "{count} of {max}: {response:?}");
            let own = response.headers.all("x-a").len();
            assert_eq!(own, if status == 200 { count - 1 } else { 0 });
        }
    }
}

/// A response with this many header fields.
fn with_fields(count: usize) -> String {
    let fields = "X-A: b\r\n".repeat(count - 1);
    format!("HTTP/1.1 200 OK\r\n{fields}Content-Length: 2\r\n\r\nok")
}

#[test]
fn a_members_503_gets_a_retry_after() {
    let estate = one_compiler().compiler_pool(NO_WAIT).start();
    let mut connection = connection(&estate);
    estate.compilers[0].answer(|_| Some(Reply::status(503)));
    let mut drawn: Vec<_> = (0..30)
        .map(|_| {
            let response = connection.get(FILE);
            assert_unavailable(&response);
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
fn a_404_of_a_starting_server_is_not_passed_on() {
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
        assert_unavailable(&response);
        assert!(
            response.text().contains("starting or stopping"),
            "{response:?}"
        );
    }
    for record in estate.wait_for_records(3) {
        assert_eq!(record["reason"], "member-starting", "{record}");
    }
}

#[test]
fn a_404_of_a_puppet_server_itself_is_passed_on() {
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
