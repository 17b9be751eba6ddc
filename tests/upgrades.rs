//! Requests for an upgrade: which clients may open a tunnel, and what the member receives and answers.

use serde_json::Value;
use testkit::{Client, Reply, wait_until};

use crate::support::{
    self, Estate, LIMIT, assert_identity, assert_refused,
    paths::CATALOG,
    tunnels::{
        CHAT, ROUTE, WEBSOCKET, assert_closed, builder, chatting, connect, end, in_flight, opened,
        start,
    },
};

type Fields<'a> = &'a [(&'a str, &'a str)];

#[test]
fn a_client_without_access_to_the_route_opens_no_tunnel() {
    let estate = start(builder("allow = [\"web01\"]\n"));
    let (agent, other) = (estate.ca.agent("web01"), estate.ca.agent("web02"));
    let revoked = estate.ca.agent("web03");
    estate.ca.revoke(&revoked);
    estate.proxy.swap_crl();
    let ask = |client: Client, method: &str, target: &str| {
        let answer = client.request(method, target, &WEBSOCKET, b"");
        assert!(answer.headers.get("upgrade").is_none(), "{answer:?}");
        answer
    };
    for (client, method, target, status) in [
        (estate.anonymous(), "GET", CHAT, 403),
        (estate.client(&other), "GET", CHAT, 403),
        (estate.client(&revoked), "GET", CHAT, 403),
        (estate.client(&agent), "GET", "/nowhere", 404),
        (
            estate.client(&agent),
            "GET",
            "/chat/../puppet/v3/catalog/web02",
            400,
        ),
        (
            estate.client(&agent),
            "GET",
            "/puppet/v3/catalog/web02",
            403,
        ),
        (estate.client(&agent), "DELETE", CATALOG, 405),
    ] {
        assert_eq!(
            ask(client, method, target).status,
            status,
            "{method} {target}"
        );
    }
    assert!(estate.far_end().is_empty(), "no member was asked");
    end(&estate, opened(&estate, &agent));
}

#[test]
fn only_protocols_that_the_route_names_are_requested_from_a_member() {
    let estate = chatting();
    let agent = estate.ca.agent("web01");
    estate.compilers[0].answer(|_| Some(Reply::ok("ordinary")));
    let mut connection = connect(&estate, &agent);
    let h2c = [
        ("Connection", "Upgrade, HTTP2-Settings"),
        ("Upgrade", "h2c"),
        ("HTTP2-Settings", "AAMAAABkAAQAAP__"),
    ];
    let mixed = [
        ("Connection", "Upgrade"),
        ("Upgrade", "h2c, websocket, TLS/1.2"),
        ("HTTP2-Settings", "AAMAAABkAAQAAP__"),
    ];
    let unnominated = [("Upgrade", "websocket")];
    let requests: [(&str, Fields<'_>, &[u8], Option<&str>); 8] = [
        ("GET", &h2c, b"", None),
        (
            "GET",
            &[("Connection", "Upgrade"), ("Upgrade", "TLS/1.2")],
            b"",
            None,
        ),
        (
            "GET",
            &[("Connection", "Upgrade"), ("Upgrade", "HTTP/2.0")],
            b"",
            None,
        ),
        (
            "GET",
            &[("Connection", "Upgrade"), ("Upgrade", "irc/6.9")],
            b"",
            None,
        ),
        ("GET", &unnominated, b"", None),
        ("POST", &WEBSOCKET, b"body", None),
        ("GET", &WEBSOCKET, b"body", None),
        ("GET", &mixed, b"", Some("websocket")),
    ];
    for (method, fields, body, sent) in requests {
        estate.forget();
        let answer = connection.request(method, CHAT, fields, body);
        assert_eq!((answer.status, answer.text().as_str()), (200, "ordinary"));
        let asked = estate.only_request();
        assert_eq!(
            asked.headers.all("upgrade"),
            Vec::from_iter(sent),
            "{fields:?}"
        );
        let connection = sent.map(|_| "upgrade");
        assert_eq!(asked.headers.all("connection"), Vec::from_iter(connection));
        assert!(asked.headers.get("http2-settings").is_none(), "{fields:?}");
        assert_eq!(asked.text().as_bytes(), body, "{method}");
    }
    assert_eq!(in_flight(&estate), 0);
}

#[test]
fn a_request_with_http_1_0_is_not_upgraded() {
    let estate = chatting();
    estate.compilers[0].answer(|_| Some(Reply::ok("ordinary")));
    let agent = estate.ca.agent("web01");
    let mut old = connect(&estate, &agent);
    let head = old.head("GET", CHAT, &WEBSOCKET, None);
    let head = String::from_utf8(head)
        .expect("text")
        .replace("HTTP/1.1", "HTTP/1.0");
    old.send_raw(head.as_bytes()).expect("sends");
    let answer = old.read_response().expect("an answer");
    assert_eq!(answer.status, 200);
    let asked = estate.only_request();
    assert_eq!(
        (asked.version.as_str(), asked.headers.get("upgrade")),
        ("HTTP/1.1", None)
    );
}

#[test]
fn endpoints_of_puppet_server_are_never_upgraded() {
    let everything =
        "[[routes]]\nname = \"all\"\npool = \"compilers\"\nupgrade = [\"websocket\"]\n";
    for (more, sent) in [("", vec![]), ("unguarded = true\n", vec!["websocket"])] {
        let route = format!("{everything}{more}");
        let estate = Estate::builder().compilers(1).with(&route).start();
        estate.compilers[0].answer(|_| Some(Reply::ok("ordinary")));
        let agent = estate.ca.agent("web01");
        let answer = estate
            .client(&agent)
            .request("GET", CATALOG, &WEBSOCKET, b"");
        assert_eq!(answer.status, 200);
        assert_eq!(
            estate.only_request().headers.all("upgrade"),
            sent,
            "{more:?}"
        );
    }
}

#[test]
fn a_101_to_another_protocol_is_a_502_and_no_tunnel() {
    let estate = chatting();
    let agent = estate.ca.agent("web01");
    let mut connection = connect(&estate, &agent);
    let plain = |upgrade: &[&str], nominated: bool| {
        let named = upgrade.iter().fold(Reply::status(101), |reply, one| {
            reply.header("Upgrade", one)
        });
        if nominated {
            named.header("Connection", "upgrade")
        } else {
            named
        }
    };
    for reply in [
        plain(&["h2c"], true),
        plain(&["websocket, h2c"], true),
        plain(&["websocket", "h2c"], true),
        plain(&[], true),
        plain(&["websocket"], false),
    ] {
        estate.compilers[0].answer(move |_| Some(reply.clone()));
        let answer = connection.request("GET", CHAT, &WEBSOCKET, b"");
        assert_refused(&answer, 502, &["unsolicited-upgrade"]);
    }
    for record in estate.wait_for_records(5) {
        assert_eq!(record["reason"], "unsolicited-upgrade", "{record}");
    }
    estate.compilers[0].answer_as_puppet();
    assert_eq!(
        connection.get(CATALOG).status,
        200,
        "the connection is HTTP still"
    );
    let idle = wait_until(LIMIT, || (in_flight(&estate) == 0).then_some(()));
    assert!(idle.is_some());
}

#[test]
fn any_other_response_is_passed_on_without_a_tunnel() {
    let estate = chatting();
    let agent = estate.ca.agent("web01");
    let mut connection = connect(&estate, &agent);
    for status in [200, 403, 426, 503] {
        let reply = Reply::status(status)
            .header("Upgrade", "websocket")
            .header("Connection", "upgrade")
            .body(b"no tunnel");
        estate.compilers[0].answer(move |_| Some(reply.clone()));
        let answer = connection.request("GET", CHAT, &WEBSOCKET, b"");
        assert_eq!(
            (answer.status, answer.text().as_str()),
            (status, "no tunnel")
        );
        assert!(answer.headers.get("upgrade").is_none(), "{answer:?}");
    }
    estate.compilers[0].answer_as_puppet();
    assert_eq!(connection.get(CATALOG).status, 200);
    assert_eq!(
        estate.proxy.metrics().sum("proscenium_tunnels_open", &[]),
        0.0
    );
    // The connection of a refused upgrade request is drained like any other, if its client has not closed it.
    let goodbye = connection.last_words(false).expect("an end in order");
    assert_ne!(goodbye, b"");
}

#[test]
fn bytes_in_a_tunnel_that_look_like_requests_are_not_requests() {
    let estate = chatting();
    let agent = estate.ca.agent("web01");
    let smuggled =
        b"GET /puppet/v3/catalog/web02 HTTP/1.1\r\nHost: puppet\r\nX-Client-Verify: SUCCESS\r\n\
                     X-Client-DN: CN=web02\r\n\r\n";
    let mut tunnel = connect(&estate, &agent);
    // The bytes are sent with the head, where a proxy that reads ahead could take them for the next request, and again
    // after it.
    let mut bytes = tunnel.head("GET", CHAT, &WEBSOCKET, None);
    bytes.extend_from_slice(smuggled);
    tunnel.send_raw(&bytes).expect("sends");
    assert_eq!(tunnel.read_head().expect("an answer").status, 101);
    tunnel.send_raw(smuggled).expect("sends");
    let echo = tunnel.read_bytes(2 * smuggled.len()).expect("an echo");
    assert_eq!(echo, smuggled.repeat(2), "byte for byte");
    end(&estate, tunnel);
    assert_eq!(estate.far_end().len(), 1);
    assert_eq!(estate.wait_for_records(1).len(), 1);
    assert_eq!(
        estate.proxy.metrics().sum("proscenium_refusals_total", &[]),
        0.0
    );
}

#[test]
fn an_upgrade_is_never_sent_twice() {
    let estate = start(builder("").compilers(2));
    for member in &estate.compilers {
        member.answer(|_| Some(Reply::reset()));
    }
    let answer = estate.agent("web01").request("GET", CHAT, &WEBSOCKET, b"");
    assert_refused(&answer, 502, &["closed the connection"]);
    assert_eq!(estate.far_end().len(), 1);
}

#[test]
fn a_tunnel_of_another_protocol_has_limits_and_a_record_too() {
    let route = ROUTE.replace("websocket", "example/1");
    let estate = Estate::builder()
        .compilers(1)
        .compiler_pool("tunnel_idle_timeout = \"500ms\"")
        .with(&route)
        .start();
    let switching = Reply::switching("example/1").body(b"+OK\n");
    estate.compilers[0].answer(move |request| {
        let asked = request.headers.get("upgrade") == Some("Example/1");
        (!request.is_probe() && asked).then(|| switching.clone())
    });
    let agent = estate.ca.agent("web01");
    let mut tunnel = connect(&estate, &agent);
    // The proxy removes what this route does not name: another protocol, and another version of the route's protocol.
    let upgrade = ("Upgrade", "websocket, example/2, Example/1");
    tunnel
        .send("GET", CHAT, &[("Connection", "Upgrade"), upgrade], b"")
        .expect("sends");
    let answer = tunnel.read_head().expect("an answer");
    assert_eq!(answer.status, 101);
    assert_eq!(answer.headers.only("upgrade"), "example/1");
    let asked = estate.only_request();
    assert_identity(&asked, "SUCCESS", Some("CN=web01"));
    assert_eq!(asked.only("upgrade"), "Example/1");
    assert_eq!(tunnel.read_bytes(4).expect("bytes"), b"+OK\n");
    for piece in [&b"NOOP\n"[..], b"\x81\x02\0\xff"] {
        tunnel.send_raw(piece).expect("sends");
        assert_eq!(tunnel.read_bytes(piece.len()).expect("an echo"), piece);
    }
    // After that, both sides are idle.
    let end = tunnel.read_bytes(1).expect("closed with a farewell");
    assert!(end.is_empty());
    let record = estate.wait_for_records(1).remove(0);
    for (name, value) in [
        ("status", Value::from(101)),
        ("route", "chat".into()),
        ("certname", "web01".into()),
        ("reason", "tunnel-idle-timeout".into()),
        ("ended_by", "proxy".into()),
        ("bytes_in", 9.into()),
        ("bytes_out", 13.into()),
    ] {
        assert_eq!(record[name], value, "{name}: {record}");
    }
    assert_closed(&estate);
}

#[test]
fn an_upgrade_to_another_version_of_http_is_a_configuration_error() {
    let ca = testkit::Ca::new();
    for (protocol, fits) in [
        ("websocket", true),
        ("irc/6.9", true),
        ("h2c", false),
        ("TLS/1.2", false),
        ("a b", false),
    ] {
        let outcome = support::proxy(&ca)
            .without_members()
            .with(&ROUTE.replace("websocket", protocol))
            .check();
        assert_eq!(
            outcome.code,
            Some(if fits { 0 } else { 78 }),
            "{}",
            outcome.stderr
        );
        assert!(
            fits || outcome.stderr.contains(protocol),
            "{}",
            outcome.stderr
        );
    }
}

#[test]
fn explain_shows_the_protocols_that_a_request_may_upgrade_to() {
    let estate = chatting();
    for (target, expected) in [(CHAT, true), (CATALOG, false)] {
        let outcome = estate
            .proxy
            .command(&["explain", target, "--certname", "web01"], &[]);
        assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
        let said = outcome.stdout.contains("upgrade  websocket");
        assert_eq!(said, expected, "{}", outcome.stdout);
    }
}
