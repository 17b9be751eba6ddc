//! Members that speak HTTP/1.0 (`http_version = "1.0"`), connections of one request, and URLs of members in responses.

use testkit::{Recorded, Reply};

use crate::support::{
    Estate, EstateBuilder, LIMIT, connection,
    paths::{FILE, REPORT},
};

fn http10() -> EstateBuilder {
    let builder = Estate::builder().compilers(1);
    builder.compiler_pool("http_version = \"1.0\"")
}

fn answer(estate: &Estate, reply: impl Fn() -> Reply + Send + Sync + 'static) {
    estate.compilers[0].answer(move |request: &Recorded| (!request.is_probe()).then(&reply));
}

#[test]
fn requests_to_an_http_1_0_member_have_the_length_of_every_body() {
    let estate = http10().start();
    let mut agent = connection(&estate);
    assert_eq!(agent.get(FILE).status, 200);
    assert_eq!(agent.request("PUT", REPORT, &[], b"report").status, 200);
    agent
        .send_chunked("PUT", REPORT, &[], &[b"in ", b"chunks"])
        .expect("sends");
    assert_eq!(agent.read_response().expect("an answer").status, 200);
    let empty: [&[u8]; 0] = [];
    agent
        .send_chunked("PUT", REPORT, &[], &empty)
        .expect("sends");
    assert_eq!(agent.read_response().expect("an answer").status, 200);
    let requests = estate.compilers[0].requests();
    let seen: Vec<_> = requests
        .iter()
        .map(|request| {
            assert_eq!(request.version, "HTTP/1.0", "{request:?}");
            assert_eq!(request.only("connection"), "keep-alive");
            assert_eq!(request.headers.get("transfer-encoding"), None);
            (
                request.headers.get("content-length").map(str::to_owned),
                request.text(),
            )
        })
        .collect();
    let sent = |length: &str, text: &str| (Some(length.to_owned()), text.to_owned());
    assert_eq!(seen[0], (None, String::new()));
    assert_eq!(
        seen[1..],
        [sent("6", "report"), sent("9", "in chunks"), sent("0", "")]
    );
    let probes = estate.compilers[0].probes();
    assert!(
        probes.iter().all(|probe| probe.version == "HTTP/1.0"),
        "{probes:#?}"
    );
}

#[test]
fn a_body_of_unknown_length_that_is_larger_than_the_buffer_is_refused_with_411() {
    let estate = http10()
        .with("[upstream]\nbody_buffer_max = \"1KiB\"")
        .start();
    let piece = [b'x'; 800];
    let mut agent = connection(&estate);
    agent
        .send_chunked("PUT", REPORT, &[], &[&piece, &piece, &piece])
        .expect("sends");
    assert_eq!(agent.read_response().expect("an answer").status, 411);
    assert!(estate.far_end().is_empty());
    let record = estate.wait_for_record(|record| record["status"] == 411);
    assert_eq!(record["reason"], "length-required");
    // A response with a length is streamed, whatever its size.
    let long = vec![b'x'; 100_000];
    assert_eq!(
        connection(&estate)
            .request("PUT", REPORT, &[], &long)
            .status,
        200
    );
    assert_eq!(estate.only_request().body.kept, long);
}

#[test]
fn a_connection_is_reused_only_where_the_member_allows_it_and_its_response_has_a_length() {
    for (reply, reused) in [
        (Reply::ok("x").header("Connection", "keep-alive"), true),
        (Reply::ok("x").header("Connection", "Keep-Alive"), true),
        (Reply::ok("x"), false),
        (Reply::ok("x").to_close(b"x"), false),
    ] {
        let estate = http10().start();
        let said = format!("{reply:?}");
        answer(&estate, move || reply.clone());
        let mut agent = connection(&estate);
        for _ in 0..3 {
            let response = agent.get(FILE);
            assert_eq!(
                (response.status, response.text().as_str()),
                (200, "x"),
                "{said}"
            );
        }
        let requests = estate.compilers[0].requests();
        let same = requests
            .iter()
            .all(|request| request.connection == requests[0].connection);
        assert_eq!(same, reused, "{said}");
    }
}

#[test]
fn a_response_that_http_1_0_does_not_allow_is_a_502() {
    for reply in [
        Reply::status(200).chunked(&[b"x"]),
        Reply::ok("x").interim(103, &[("Link", "</x>")]),
        Reply::ok("x").interim(100, &[]),
        Reply::switching("websocket"),
        Reply::raw("HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n\r\n"),
    ] {
        let estate = http10().start();
        let said = format!("{reply:?}");
        answer(&estate, move || reply.clone());
        let response = connection(&estate).get(FILE);
        assert_eq!(response.status, 502, "{said}: {response:?}");
        assert!(!response.text().contains("</x>"), "{said}");
    }
}

#[test]
fn responses_of_http_1_0_arrive_complete_and_a_truncated_one_stays_incomplete() {
    let estate = http10().start();
    answer(&estate, || {
        Reply::raw("HTTP/1.0 200 OK\r\nContent-Type: text/plain\r\n\r\nuntil the end")
    });
    let mut agent = connection(&estate);
    assert_eq!(agent.get(FILE).text(), "until the end");
    // The next request on the same client connection uses another connection to the member.
    answer(&estate, || {
        Reply::raw("HTTP/1.0 200 OK\r\nContent-Length: 5\r\nConnection: keep-alive\r\n\r\nwhole")
    });
    assert_eq!(agent.get(FILE).text(), "whole");
    for cut in [
        Reply::raw("HTTP/1.0 200 OK\r\nContent-Length: 50\r\n\r\nhalf"),
        Reply::ok(&"x".repeat(5000))
            .to_close(&[b'x'; 5000])
            .reset_after(1000),
    ] {
        let said = format!("{cut:?}").chars().take(60).collect::<String>();
        answer(&estate, move || cut.clone());
        agent.send("GET", FILE, &[], b"").expect("sends");
        let response = agent.read_response();
        assert!(response.is_err(), "{said}: {response:?}");
        agent = connection(&estate);
    }
    let cut = |record: &serde_json::Value| record["reason"] == "member-closed";
    assert_eq!(estate.wait_for_record(cut)["ended_by"], "member");
}

#[test]
fn without_keepalive_every_request_has_its_own_connection() {
    for version in ["1.0", "1.1"] {
        let estate = Estate::builder()
            .compilers(1)
            .compiler_pool(&format!("http_version = \"{version}\"\nkeepalive = \"0s\""))
            .start();
        answer(&estate, || {
            Reply::ok("x").header("Connection", "keep-alive")
        });
        let mut agent = connection(&estate);
        for _ in 0..3 {
            assert_eq!(agent.get(FILE).status, 200);
        }
        let requests = estate.compilers[0].wait_for_request(3, LIMIT);
        let connections: std::collections::BTreeSet<_> =
            requests.iter().map(|request| request.connection).collect();
        assert_eq!(connections.len(), 3, "HTTP/{version}");
        for request in &requests {
            assert_eq!(request.only("connection"), "close");
            assert_eq!(request.version, format!("HTTP/{version}"));
        }
    }
}

#[test]
fn urls_of_members_in_responses_become_the_proxys_where_configured() {
    for (setting, is_rewritten) in [("proxy_pass_reverse = true", true), ("", false)] {
        let estate = Estate::builder()
            .compilers(1)
            .compiler_pool(setting)
            .start();
        let member = format!("http://{}/moved?x=y", estate.compilers[0].address());
        let host = estate.anonymous().host();
        let front = format!("https://{host}/moved?x=y");
        for (url, rewritten) in [
            (member.clone(), &front),
            (format!("http://{host}/moved?x=y"), &front),
            (front.clone(), &front),
            (
                "https://other.example.com/x".to_owned(),
                &"https://other.example.com/x".to_owned(),
            ),
            ("/relative".to_owned(), &"/relative".to_owned()),
        ] {
            let sent = url.clone();
            answer(&estate, move || {
                let reply = Reply::status(302).header("Location", &sent);
                reply.header("Content-Location", &sent).header("URI", &sent)
            });
            let response = connection(&estate).get(FILE);
            let expected = if is_rewritten { rewritten } else { &url };
            for name in ["location", "content-location", "uri"] {
                assert_eq!(
                    response.headers.get(name),
                    Some(expected.as_str()),
                    "{setting} {name}"
                );
            }
        }
    }
}
