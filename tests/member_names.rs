//! `rewrite_member_names`: the configured name of the proxy in the bodies and redirects of one route.

use testkit::{Reply, Response};

use crate::support::Estate;

const INSTALLER: &str = "/packages/current/install.bash";
const ROUTE: &str = "[[routes]]\nname = \"packages\"\npath = { prefix = \"/packages\" }\nclient = \"any\"\npool = \"compilers\"\nrewrite_member_names = \"puppet.example.net\"\n";

fn estate() -> Estate {
    Estate::builder()
        .compilers(1)
        .compiler(1, "server_name = \"c1.example.com\"")
        .with(ROUTE)
        .start()
}

/// The response that a client without a certificate receives for this response of the compiler.
fn answered(
    estate: &Estate,
    path: &str,
    reply: impl Fn() -> Reply + Send + Sync + 'static,
) -> Response {
    estate.forget();
    estate.compilers[0].answer(move |request| (!request.is_probe()).then(&reply));
    let asked = [
        ("Accept-Encoding", "gzip, br"),
        ("Range", "bytes=3-"),
        ("If-Range", "\"a\""),
    ];
    estate.anonymous().request("GET", path, &asked, b"")
}

fn text() -> Reply {
    Reply::status(200).header("Content-Type", "Text/x-sh; charset=utf-8")
}

#[test]
fn texts_and_redirects_get_the_configured_name_and_never_the_clients_host() {
    let estate = estate();
    let script = "curl https://C1.example.com:8140/packages/x # not myc1.example.com, c1.example.com.evil; c1.example.com.";
    let expected = "curl https://puppet.example.net:8140/packages/x # not myc1.example.com, c1.example.com.evil; puppet.example.net.";
    let response = answered(&estate, INSTALLER, move || {
        text()
            .header("ETag", "\"a\"")
            .header("Last-Modified", "Tue, 01 Sep 2026 00:00:00 GMT")
            .header("Content-MD5", "Q2hlY2sgSW50ZWdyaXR5IQ==")
            .header("Accept-Ranges", "bytes")
            .body(script.as_bytes())
    });
    assert_eq!((response.status, response.text()), (200, expected.into()));
    for name in [
        "content-length",
        "etag",
        "last-modified",
        "content-md5",
        "accept-ranges",
    ] {
        assert_eq!(response.headers.get(name), None, "{name}");
    }
    let asked = estate.compilers[0].last();
    assert_eq!(asked.only("accept-encoding"), "identity");
    for name in ["range", "if-range"] {
        assert!(asked.headers.all(name).is_empty(), "{name}");
    }
    for status in [301, 302, 307] {
        let redirect = answered(&estate, INSTALLER, move || {
            Reply::status(status).header("Location", "https://c1.example.com:8140/packages/a")
        });
        assert_eq!(
            redirect.headers.only("location"),
            "https://puppet.example.net:8140/packages/a"
        );
    }
}

#[test]
fn a_name_is_found_wherever_the_response_is_cut() {
    let estate = estate();
    for size in [1, 2, 5, 13] {
        let response = answered(&estate, INSTALLER, move || {
            let script = "a=c1.example.com\n".repeat(20) + "c1.example.com";
            let pieces: Vec<_> = script.as_bytes().chunks(size).collect();
            text().chunked(&pieces)
        });
        let expected = "a=puppet.example.net\n".repeat(20) + "puppet.example.net";
        assert_eq!(response.text(), expected, "pieces of {size}");
    }
    // The body is longer than a piece that the proxy rewrites at once.
    let response = answered(&estate, INSTALLER, || {
        text().body("c1.example.com\n".repeat(40_000).as_bytes())
    });
    assert!(response.text() == "puppet.example.net\n".repeat(40_000));
}

#[test]
fn a_response_in_an_encoding_that_cannot_be_searched_is_refused() {
    let estate = estate();
    for reply in [
        || text().header("Content-Encoding", "gzip").body(b"x"),
        || {
            let part = Reply::status(206).header("Content-Type", "text/plain");
            part.header("Content-Range", "bytes 0-0/2").body(b"x")
        },
    ] {
        assert_eq!(answered(&estate, INSTALLER, reply).status, 502);
        let record = estate.wait_for_record(|record| record["reason"] == "encoded-text");
        assert_eq!(record["route"], "packages");
    }
}

#[test]
fn packages_heads_and_other_routes_are_unchanged() {
    let estate = estate();
    let bytes = b"\x1f c1.example.com";
    for kind in [Some("application/gzip"), None] {
        let response = answered(&estate, "/packages/a.tar.gz", move || {
            let reply = Reply::status(200).header("ETag", "\"a\"").body(bytes);
            kind.into_iter()
                .fold(reply, |reply, kind| reply.header("Content-Type", kind))
        });
        assert_eq!(response.text().as_bytes(), bytes);
        assert_eq!(response.headers.only("etag"), "\"a\"");
        assert_eq!(response.headers.only("content-length"), "16");
    }
    // The proxy does not know the length of the rewritten body before it has sent it.
    estate.compilers[0].answer(|request| {
        (!request.is_probe()).then(|| text().header("Content-Length", "14").header("X-A", "b"))
    });
    let head = estate.anonymous().request("HEAD", INSTALLER, &[], b"");
    assert_eq!(
        (head.status, head.headers.get("content-length")),
        (200, None)
    );
    assert_eq!(head.headers.only("x-a"), "b");
    let response = answered(&estate, INSTALLER, || {
        Reply::status(304)
            .header("Content-Type", "text/plain")
            .header("ETag", "\"a\"")
    });
    assert_eq!(
        (response.status, response.headers.only("etag")),
        (304, "\"a\"")
    );
    // Another route, which is an endpoint of a Puppet server, is not rewritten.
    let agent = estate.agent("web01");
    estate.compilers[0]
        .answer(|request| (!request.is_probe()).then(|| text().body(b"c1.example.com")));
    let file = agent.get("/puppet/v3/file_content/modules/a/b");
    assert_eq!(file.text(), "c1.example.com");
}
