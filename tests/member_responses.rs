//! Responses of members that need care: interim, malformed, 503, and 404 while a server starts.

use testkit::Reply;

use crate::support::{
    assert_refused, assert_unavailable, connection,
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
    let record = estate
        .proxy
        .wait_for_record(|record| record["status"] == 502);
    assert_eq!(record["reason"], "unsolicited-upgrade");
}

#[test]
fn a_malformed_response_is_a_502_that_names_the_member() {
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
fn a_members_503_gets_a_retry_after() {
    let estate = one_compiler().start();
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
    for record in estate.proxy.wait_for_records(3) {
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
