//! Request bodies: 100-continue, early responses, and limits on size.

use std::time::Duration;

use testkit::Reply;

use crate::support::{
    LIMIT, NO_WAIT, assert_refused, assert_unavailable, certificate_request, connection,
    exchanges::{one_compiler, raw, streaming},
    http1_alone,
    paths::{CATALOG, FILE, REPORT},
};

const REQUEST: &str = "/puppet-ca/v1/certificate_request/web02";
/// Body limit of enrolment.
const ENROLMENT_BYTES_MAX: usize = 16 << 10;

#[test]
fn continue_is_sent_after_access_and_before_a_member_is_picked() {
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
fn expect_100_continue_without_a_body_keeps_the_connection_open() {
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
fn a_refusal_sends_no_100_continue() {
    let estate = one_compiler().compiler_pool(NO_WAIT).start();
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
        // The proxy never requested the body, so the next bytes could be a body or a request, and the connection must
        // close. Over HTTP/2 only the stream ends.
        assert!(response.says_close() || crate::protocol() == testkit::Protocol::Http2);
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
    // Routing and access rules allow the request, so the proxy asks for the body before it picks a member.
    let response = connection.read_head().expect("an interim answer");
    assert_eq!(response.status, 100);
    assert_unavailable(&raw(&mut connection, "{}"));
}

#[test]
fn an_early_response_arrives_and_the_rest_of_the_body_is_discarded() {
    let estate = streaming().start();
    let body = vec![b'x'; 1 << 20];
    // The first response comes from the proxy, the second one from a member.
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
fn no_more_than_discard_max_of_a_refused_body_is_discarded() {
    http1_alone!("a stream ends and nothing need be dropped");
    for (most, taken) in [("64KiB", false), ("2MiB", true)] {
        let estate = one_compiler()
            .with(&format!("[upstream]\ndiscard_max = \"{most}\""))
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
fn a_refused_body_is_read_no_longer_than_discard_timeout() {
    http1_alone!("a stream ends and nothing need be dropped");
    let estate = one_compiler()
        .with("[upstream]\ndiscard_timeout = \"50ms\"")
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

#[test]
fn an_enrolment_request_has_at_most_16_kib() {
    let estate = one_compiler().start();
    // Newlines after the block are not part of it.
    let padded = |bytes| {
        let mut request = certificate_request("web02");
        request.resize(bytes, b'\n');
        request
    };
    let whole = padded(ENROLMENT_BYTES_MAX);
    let more = padded(ENROLMENT_BYTES_MAX + 1);
    let put = |body: &[u8], chunked: bool| {
        let mut connection = estate.anonymous().connect().expect("connects");
        if chunked {
            connection.send_chunked("PUT", REQUEST, &[], &body.chunks(1000).collect::<Vec<_>>())
        } else {
            connection.send("PUT", REQUEST, &[], body)
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
    for request in estate.wait_for_records(2) {
        assert_eq!(request["status"], 413);
        assert_eq!(request["reason"], "body-too-large");
    }
    assert_eq!(put(&whole, false), 200);
    assert_eq!(
        put(&whole, true),
        400,
        "the CA has it already: it was whole"
    );
}

#[test]
fn only_its_route_limits_the_body_of_a_verified_agent() {
    let estate = one_compiler()
        .with("[[routes]]\nname = \"reports\"\npath = { prefix = \"/puppet/v3/report\" }\npool = \"compilers\"\nbody_max = \"1KiB\"")
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
fn a_route_can_lower_the_limit_of_enrolment_but_never_raise_it() {
    let estate = one_compiler()
        .with("[[routes]]\nname = \"ca\"\npath = { prefix = \"/puppet-ca\" }\npool = \"ca\"\nbody_max = \"32KiB\"")
        .start();
    let mut body = certificate_request("web02");
    body.resize(ENROLMENT_BYTES_MAX + 1, b'\n');
    let put = |body: &[u8]| estate.anonymous().request("PUT", REQUEST, &[], body).status;
    assert_eq!(put(&body), 413);
    assert_eq!(put(&body[..ENROLMENT_BYTES_MAX]), 200);
    estate.edit_config("body_max = \"32KiB\"", "body_max = \"64B\"");
    estate.proxy.reload_applied();
    assert_eq!(put(&body[..ENROLMENT_BYTES_MAX]), 413);
}
