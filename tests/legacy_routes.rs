//! `legacy_routes`: agents of Puppet 0.25 to 3 together with current ones, through one port.

use std::{
    io::{Read, Write},
    net::TcpStream,
};

use testkit::{Client, wait_until};

use crate::support::{Estate, LIMIT, assert_refused, certificate_request, fixtures};

/// Method, path, and the content of its record: class, kind of work, and whether the CA serves it.
const ROWS: &[(&str, &str, &str, &str, bool)] = &[
    (
        "GET",
        "/production/certificate/ca",
        "enrolment",
        "other",
        true,
    ),
    (
        "GET",
        "/production/certificate/web01",
        "enrolment",
        "other",
        true,
    ),
    (
        "GET",
        "/production/certificate_request/web01",
        "enrolment",
        "other",
        true,
    ),
    (
        "GET",
        "/production/certificate_revocation_list/ca",
        "enrolment",
        "other",
        true,
    ),
    (
        "POST",
        "/production/catalog/web01",
        "own-documents",
        "catalog",
        false,
    ),
    (
        "GET",
        "/production/catalog/web01?facts_format=pson&facts=%7B%7D",
        "own-documents",
        "catalog",
        false,
    ),
    (
        "GET",
        "/production/node/web01",
        "own-documents",
        "other",
        false,
    ),
    (
        "PUT",
        "/production/facts/web01",
        "own-documents",
        "other",
        false,
    ),
    (
        "PUT",
        "/production/report/web01",
        "own-documents",
        "report",
        false,
    ),
    (
        "GET",
        "/production/file_metadata/modules/motd/motd?links=manage",
        "files",
        "file",
        false,
    ),
    (
        "GET",
        "/production/file_metadatas/plugins?recurse=true&ignore=.svn",
        "files",
        "file",
        false,
    ),
    (
        "GET",
        "/production/file_content/modules/ssl/certificates/foo%20bar.pem",
        "files",
        "file",
        false,
    ),
    (
        "GET",
        "/production/file_content/certificate/ca",
        "files",
        "file",
        false,
    ),
    (
        "PUT",
        "/production/file_bucket_file/md5/0123//etc/motd",
        "filebucket",
        "file",
        false,
    ),
    ("GET", "/v2.0/environments", "files", "other", false),
    ("GET", "/puppet/node/web01", "own-documents", "other", false),
];

/// Paths that stay closed to agents.
const CLOSED: &[(&str, &str)] = &[
    ("POST", "/RPC2"),
    ("GET", "/production/certificate_status/web01"),
    ("GET", "/production/certificate_statuses/all"),
    ("GET", "/production/certificate_requests/all"),
    ("PUT", "/production/certificate_revocation_list/ca"),
    ("DELETE", "/production/certificate_request/web01"),
    ("GET", "/production/key/web01"),
    ("GET", "/production/keys/all"),
    ("PUT", "/production/run/web01"),
    ("GET", "/production/resource/user/root"),
    ("GET", "/production/inventory/search"),
    ("GET", "/production/facts_search/search"),
    ("GET", "/production/status/no_key"),
    ("GET", "/production/anything/x"),
];

fn legacy(lines: &'static str) -> Estate {
    Estate::builder()
        .top("legacy_routes = true")
        .with(lines)
        .start()
}

#[test]
fn old_and_new_agents_are_served_through_one_port() {
    let estate = legacy("");
    let agent = estate.agent("web01");
    for (method, target, class, work, is_ca) in ROWS {
        estate.forget();
        let response = agent.request(method, target, &[], b"");
        assert_ne!(response.status, 403, "{method} {target}: {response:?}");
        let seen = estate.only_request();
        assert_eq!(
            (seen.method.as_str(), seen.target.as_str()),
            (*method, *target)
        );
        assert_eq!(estate.ca_server.requests().len() == 1, *is_ca, "{target}");
        let record = estate
            .wait_for_record(|record| record["target"] == *target && record["method"] == *method);
        assert_eq!(record["class"], (*class), "{record}");
        assert_eq!(record["work"], (*work), "{record}");
    }
    estate.forget();
    for target in [
        "/puppet/v3/catalog/web01?environment=production",
        "/puppet-ca/v1/certificate/ca",
    ] {
        assert_eq!(agent.get(target).status, 200, "{target}");
    }
    let identities = estate.far_end();
    assert_eq!(identities.len(), 2);
}

#[test]
fn each_legacy_path_is_for_the_clients_of_its_class() {
    let estate = legacy("");
    let other = estate.agent("web02");
    for (method, target, class, _, _) in ROWS {
        let passes = |client: &Client| {
            estate.forget();
            let status = client.request(method, target, &[], b"").status;
            assert_eq!(
                estate.far_end().len() == 1,
                status != 403,
                "{method} {target}"
            );
            status != 403
        };
        let expected = match *class {
            "enrolment" => [true, true],
            "own-documents" => [false, false],
            _ => [false, true],
        };
        let found = [&estate.anonymous(), &other].map(passes);
        assert_eq!(found, expected, "{method} {target}");
    }
    estate.forget();
    for (method, target) in CLOSED {
        for client in [&other, &estate.anonymous()] {
            let response = client.request(method, target, &[], b"");
            assert_refused(&response, 403, &["may not use this endpoint"]);
        }
    }
    for target in [
        "/production/cat%61log/web01",
        "/production/catalog/web%30%31",
        "/pr%6fduction/certificate/ca",
        "/production//catalog/web01",
        "/production/catalog/web02?environment=dev",
        "/production/catalog/web02?%65nvironment=dev",
        "/production/file_content/m/x?a=b;environment=dev",
    ] {
        assert_eq!(other.get(target).status, 400, "{target}");
    }
    assert!(estate.far_end().is_empty(), "{:#?}", estate.far_end());
    let record = estate.wait_for_record(|record| record["reason"] == "environment-mismatch");
    assert_eq!(record["status"], 400);
}

#[test]
fn a_legacy_certificate_request_is_checked_by_the_policy() {
    let estate = legacy("");
    let body = fixtures::text("request-cli-auth.pem").into_bytes();
    let target = "/production/certificate_request/cli-auth.lab.test";
    let refused = estate.anonymous().request("PUT", target, &[], &body);
    assert_refused(&refused, 403, &["pp_cli_auth"]);
    let target = "/production/certificate_request/web02";
    let of_another = estate
        .anonymous()
        .request("PUT", target, &[], &certificate_request("web01"));
    assert_eq!(of_another.status, 403, "{of_another:?}");
    assert!(estate.far_end().is_empty());
    let passed = estate
        .anonymous()
        .request("PUT", target, &[], &certificate_request("web02"));
    assert_eq!(passed.status, 200, "{passed:?}");
    assert_eq!(estate.only_request().target, target);
}

#[test]
fn access_rules_and_routes_apply_to_legacy_paths_too() {
    let estate = legacy(
        "[[access]]\nname = \"no-reports\"\naction = \"refuse\"\nclass = [\"own-documents\"]\ncertname = [\"web02\"]\n\
         [[access]]\nname = \"admin\"\naction = \"allow\"\nclass = [\"ca-administration\"]\ncertname = [\"admin\"]\n\
         [[routes]]\nname = \"files\"\npath = { prefix = \"/puppet/v3/file_content\" }\npool = \"compilers\"\nallow = [\"web01\"]\n",
    );
    let of = |certname: &str| estate.agent(certname);
    for (certname, target, status) in [
        ("web01", "/production/node/web01", 200),
        ("web02", "/production/node/web02", 403),
        ("web01", "/production/certificate_status/web01", 403),
        ("admin", "/production/certificate_status/web01", 200),
        ("web01", "/production/file_content/modules/a/b", 200),
        ("admin", "/production/file_content/modules/a/b", 403),
    ] {
        assert_eq!(
            of(certname).get(target).status,
            status,
            "{certname} {target}"
        );
    }
    let record = estate.wait_for_record(|record| record["cause"] == "access rule no-reports");
    assert_eq!(record["target"], "/production/node/web02");
}

#[test]
fn documents_of_the_ca_are_served_from_copies_on_legacy_paths_too() {
    let estate = Estate::builder()
        .top("legacy_routes = true")
        .fetch("")
        .with("[ca]\nedge_answers = true")
        .start();
    for target in [
        "/production/certificate/ca",
        "/dev/certificate_revocation_list/ca",
    ] {
        // Only a response from a copy has an `Age`.
        let copied = wait_until(LIMIT, || {
            let response = estate.anonymous().get(target);
            response.headers.get("age").map(|_| response.status)
        });
        assert_eq!(copied, Some(200), "{target}: {}", estate.proxy.stderr());
    }
}

#[test]
fn explain_shows_the_class_of_a_legacy_path() {
    let estate = legacy("");
    let explain = |arguments: &[&str]| estate.proxy.command(&["explain"], arguments).stdout;
    let shown = explain(&[
        "/production/catalog/web01",
        "--method",
        "POST",
        "--certname",
        "web01",
    ]);
    let class = "class: own-documents, of certname web01, in the URL layout of Puppet 0.25 to 3";
    assert!(
        shown.contains(class) && shown.contains("builtin:own-documents"),
        "{shown}"
    );
    let shown = explain(&[
        "/production/catalog/web01?environment=dev",
        "--certname",
        "web01",
    ]);
    assert!(
        shown.contains("environment: the path and the query name different ones"),
        "{shown}"
    );
    let shown = explain(&["/RPC2", "--method", "POST", "--certname", "web01"]);
    assert!(shown.contains("access: denied (class-closed)"), "{shown}");
    let off = Estate::start();
    let shown = |target: &str| {
        let arguments = [target, "--certname", "web01"];
        off.proxy.command(&["explain"], &arguments).stdout
    };
    let hint = "with legacy_routes = true, its modern equivalent decides";
    assert!(shown("/production/node/web01").contains(hint));
    assert!(!shown("/production/status/no_key").contains(hint));
}

#[test]
fn the_use_of_legacy_paths_is_logged_while_they_are_off() {
    let estate = Estate::start();
    let agent = estate.agent("web01");
    for target in [
        "/production/catalog/web01",
        "/v2.0/environments",
        "/production/certificate/ca",
    ] {
        assert_eq!(agent.get(target).status, 403, "{target}");
    }
    // These paths stay closed with the setting too.
    for target in ["/RPC2", "/production/certificate_statuses/all"] {
        assert_eq!(agent.get(target).status, 403, "{target}");
    }
    estate.wait_for_metric("proscenium_legacy_requests_refused_total", &[], 3.0);
    let expected = "agents use the URL layout of Puppet 0.25 to 3 and are refused, because legacy_routes is off";
    estate.wait_for_event(expected);
    let events = estate.proxy.stderr();
    let events: Vec<_> = events
        .lines()
        .filter(|line| line.contains(expected))
        .collect();
    assert!(
        events.len() == 1 && events[0].contains("web01"),
        "once a minute: {events:?}"
    );
}

#[test]
fn a_client_that_offers_less_than_tls_1_2_is_counted_and_logged() {
    let estate = Estate::start();
    for version in [0x00, 0x01, 0x02] {
        let mut stream = TcpStream::connect(estate.proxy.address()).expect("connects");
        stream.write_all(&old_hello(version)).expect("sends");
        let mut alert = Vec::new();
        let _ = stream.read_to_end(&mut alert);
        assert_eq!(alert.first(), Some(&0x15), "an alert: {alert:?}");
    }
    let old = [("listener", "agents"), ("result", "old-tls")];
    estate.wait_for_metric("proscenium_handshakes_total", &old, 3.0);
    let record = estate.wait_for_record(|record| record["reason"] == "old-tls-version");
    assert_eq!(record["status"], serde_json::Value::Null, "{record}");
    let expected = "clients offer less than TLS 1.2 and are refused";
    estate.wait_for_event(expected);
    let events = estate.proxy.stderr();
    assert_eq!(
        events
            .lines()
            .filter(|line| line.contains(expected))
            .count(),
        1,
        "once a minute"
    );
}

/// A ClientHello of SSL 3.0, TLS 1.0 or TLS 1.1, without extensions, as a Ruby with OpenSSL 0.9.8 sends it.
fn old_hello(version: u8) -> Vec<u8> {
    let suites = [0x00, 0x2f, 0x00, 0x35, 0x00, 0x0a];
    let mut body = vec![3, version];
    body.extend([7; 32]);
    body.extend([0, 0, suites.len() as u8]);
    body.extend(suites);
    body.extend([1, 0]);
    let mut handshake = vec![1, 0, 0, body.len() as u8];
    handshake.extend(body);
    let mut record = vec![0x16, 3, version, 0, handshake.len() as u8];
    record.extend(handshake);
    record
}
