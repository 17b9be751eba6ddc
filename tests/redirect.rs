//! Listeners that redirect plain HTTP to HTTPS (`redirect_to_https`).

use std::{
    io::{Read, Write},
    net::SocketAddr,
};

use testkit::Ca;

use crate::support::{
    Estate,
    layer4::{connect, listener_address},
    proxy,
};

const HTTP: &str = "[listeners.http]\naddress = \"127.0.0.1:0\"\nredirect_to_https = \"https://puppet.example.com:8140\"\n";

/// Sends bytes and reads the response to its end.
fn exchange_bytes(to: SocketAddr, bytes: &[u8]) -> String {
    let mut stream = connect(to);
    let _ = stream.write_all(bytes);
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    String::from_utf8_lossy(&answer).into_owned()
}

fn estate(lines: &str) -> (Estate, SocketAddr) {
    let tables = format!("{HTTP}{lines}");
    let estate = Estate::builder().compilers(1).with(&tables).start();
    let address = listener_address(&estate.proxy, "http");
    (estate, address)
}

#[test]
fn every_request_is_redirected_to_the_configured_name() {
    let (estate, http) = estate("");
    let forged = "Host: evil.example\r\nX-Client-Verify: SUCCESS\r\nX-Client-DN: CN=web01\r\n";
    for (request, status, path) in [
        (
            "GET /puppet/v3/catalog/web01?environment=production HTTP/1.1",
            301,
            "/puppet/v3/catalog/web01?environment=production",
        ),
        ("HEAD / HTTP/1.0", 301, "/"),
        (
            "PUT /puppet/v3/report/web01 HTTP/1.1",
            308,
            "/puppet/v3/report/web01",
        ),
        ("GET http://evil.example/a HTTP/1.1", 301, "/a"),
        ("GET //evil.example/a HTTP/1.1", 301, "//evil.example/a"),
    ] {
        // A body that the proxy does not read does not prevent the response.
        let text = exchange_bytes(
            http,
            format!("{request}\r\n{forged}Content-Length: 9\r\n\r\nsome body").as_bytes(),
        );
        assert!(text.starts_with(&format!("HTTP/1.1 {status} ")), "{text}");
        let location = format!("\r\nLocation: https://puppet.example.com:8140{path}\r\n");
        assert!(text.contains(&location), "{text}");
        assert!(text.contains("\r\nConnection: close\r\n"), "{text}");
        let id = text
            .lines()
            .find_map(|line| line.strip_prefix("X-Request-Id: "));
        let record = estate.wait_for_record(|record| record["id"] == id.expect("an id"));
        assert_eq!(record["class"], "redirect", "{record}");
        assert_eq!(record["listener"], "http", "{record}");
        assert_eq!(record["status"], status, "{record}");
        assert!(
            record["certname"].is_null() && record["verdict"].is_null(),
            "{record}"
        );
    }
    let redirects = [("class", "redirect"), ("code", "301")];
    estate.wait_for_metric("proscenium_requests_total", &redirects, 4.0);
    assert!(estate.far_end().is_empty(), "no request reaches a member");
}

#[test]
fn requests_that_cannot_be_redirected_are_refused() {
    let (estate, http) = estate("head_max = \"8KiB\"\n");
    let long = format!("GET / HTTP/1.1\r\nX: {}", "x".repeat(8 << 10));
    for (request, status, reason) in [
        ("GET @evil.example/ HTTP/1.1\r\n\r\n", 400, "bad-head"),
        ("CONNECT evil.example:443 HTTP/1.1\r\n\r\n", 400, "bad-head"),
        ("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 400, "bad-head"),
        (long.as_str(), 431, "head-too-large"),
    ] {
        let text = exchange_bytes(http, request.as_bytes());
        assert!(text.starts_with(&format!("HTTP/1.1 {status} ")), "{text}");
        assert!(!text.contains("Location"), "{text}");
        let record = estate
            .wait_for_record(|record| record["status"] == status && record["reason"] == reason);
        assert_eq!(record["class"], "redirect", "{record}");
    }
    // A ClientHello is not HTTP.
    assert_eq!(exchange_bytes(http, b"\x16\x03\x01\x00\x05hello"), "");
    let record = estate.wait_for_record(|record| record["reason"] == "not-http");
    assert!(record["status"].is_null(), "{record}");
}

#[test]
fn the_limits_of_the_listener_apply() {
    let (estate, http) = estate("connections_max_per_address = 1\n");
    let mut slow = connect(http);
    slow.write_all(b"GET / HTTP/1.1\r\n").expect("sends");
    estate.wait_for_status("the slow client", |status| {
        let mut listeners = status["listeners"].as_array().expect("a list").iter();
        listeners.any(|listener| listener["name"] == "http" && listener["connections"] == 1)
    });
    // The only connection allowed for the address goes to the client that sends its request.
    let text = exchange_bytes(http, b"GET / HTTP/1.1\r\n\r\n");
    assert!(text.starts_with("HTTP/1.1 301 "), "{text}");
    let closed = slow.read(&mut [0]);
    assert!(!matches!(closed, Ok(1..)), "{closed:?}");
    estate.wait_for_record(|record| record["reason"] == "handshake-displaced");
}

#[test]
fn an_endless_head_is_closed_after_the_time_limit() {
    let (estate, http) = estate("handshake_timeout = \"200ms\"\n");
    assert_eq!(
        exchange_bytes(http, b"GET / HTTP/1.1\r\nHost: puppet\r\n"),
        ""
    );
    estate.wait_for_record(|record| record["reason"] == "handshake-timeout");
}

#[test]
fn check_reports_what_a_redirecting_listener_needs() {
    let ca = Ca::new();
    let check = |lines: &str| {
        let tables = format!("[listeners.http]\naddress = \"127.0.0.1:0\"\n{lines}\n");
        proxy(&ca).with(&tables).check()
    };
    for (lines, expected) in [
        (
            "redirect_to_https = \"http://puppet\"",
            "expected `https://` and a host name",
        ),
        (
            "redirect_to_https = \"https://puppet/x\"",
            "leave out the path",
        ),
        (
            "redirect_to_https = \"https://puppet:x\"",
            "expected `https://` and a host name",
        ),
        (
            "redirect_to_https = \"https://puppet\"\nclient_cert = \"required\"",
            "no effect: this listener redirects every request",
        ),
        (
            "redirect_to_https = \"https://puppet\"\npassthrough = \"compilers\"",
            "not both",
        ),
    ] {
        let outcome = check(lines);
        let said = format!("{}{}", outcome.stdout, outcome.stderr);
        assert!(said.contains(expected), "{lines}: {said}");
    }
}
