//! `doctor` on members that believe identity headers or certificates that they must not believe.

use rcgen::DnType;
use serde_json::Value;
use testkit::{Ca, Manner, Reply, StandIn};

use crate::support::doctor::{Clinic, assert_not_passed};

#[test]
fn t05_a_compiler_that_believes_headers_without_a_client_certificate_is_found() {
    let compiler = |ca: &Ca, front: &Ca| {
        StandIn::builder("c1")
            .tls_wanting(front, &ca.server("c1"))
            .start()
    };
    let clinic = Clinic::with_compiler(compiler);
    let found = &[
        "trusts the identity headers",
        "without a certificate",
        "/puppet/v3/node/puppet",
    ];
    clinic.assert_found("outside-anonymous", "failure", found);
    clinic.assert_only_asked();
    // Rules that refuse node requests to every client do not hide that the member trusts the headers of any client.
    clinic.compiler.answer(|request| {
        request
            .path()
            .starts_with("/puppet/v3/node/")
            .then(|| Reply::status(403))
    });
    clinic.assert_found("outside-anonymous", "failure", &["answered 400"]);
    // A compiler that trusts no headers but serves every client is open to every client.
    clinic.compiler.behave(Manner::peer());
    clinic.assert_found("outside-anonymous", "warning", &["answers 403"]);
}

#[test]
fn t05_a_compiler_that_believes_headers_from_any_agent_is_found() {
    let compiler = |ca: &Ca, _: &Ca| StandIn::builder("c1").tls(ca, &ca.server("c1")).start();
    let clinic = Clinic::with_compiler(compiler);
    clinic.write_credential("to-compilers", &clinic.ca.agent("proscenium"));
    clinic.assert_found(
        "outside-agent",
        "failure",
        &["with an ordinary agent's certificate"],
    );
    clinic.assert_only_asked();
    // Without an agent's certificate, `doctor` reports that this was not tested, and does not fail.
    let outcome = clinic.run(&[]);
    assert_eq!(outcome.code, Some(0), "{}", outcome.stdout);
    for expected in [
        "note     outside-agent",
        "not tested",
        "--agent-cert",
        "passed: configuration, files",
    ] {
        assert!(
            outcome.stdout.contains(expected),
            "{expected} is not in {}",
            outcome.stdout
        );
    }
}

#[test]
fn t05_a_plain_port_that_believes_headers_is_found() {
    let clinic = Clinic::new();
    let open = StandIn::start("c1");
    open.behave(Manner::headers());
    let port = open.socket_address().port().to_string();
    let found = &[
        "in plain HTTP on port",
        &port,
        "trusts the identity headers",
    ];
    clinic.assert_found_with(&["--plain-port", &port], "outside-plain", "failure", found);
}

#[test]
fn t05_the_tls_port_of_a_compiler_reached_in_plain_http_is_found() {
    let mut clinic = Clinic::with_compiler(|_, _| StandIn::start("c1"));
    clinic.pool = Clinic::plain_pool;
    clinic.assert_found("outside-plain", "note", &["plain HTTP on loopback"]);
    let open = StandIn::builder("c1")
        .tls_wanting(&clinic.ca, &clinic.ca.server("c1"))
        .start();
    open.behave(Manner::headers());
    let port = open.socket_address().port().to_string();
    let found = &["over TLS on port", &port, "trusts the identity headers"];
    clinic.assert_found_with(
        &["--tls-port", &port],
        "outside-anonymous",
        "failure",
        found,
    );
    clinic.assert_found_with(&["--tls-port", &port], "outside-agent", "failure", found);
}

#[test]
fn t05_another_tls_port_of_a_compilers_host_that_believes_headers_is_found() {
    let clinic = Clinic::new();
    let open = StandIn::builder("c1")
        .tls_wanting(&clinic.ca, &clinic.ca.server("c1"))
        .start();
    open.behave(Manner::headers());
    let port = open.socket_address().port().to_string();
    let found = &[
        "over TLS on port",
        &port,
        "trusts the identity headers",
        "in pool compilers",
    ];
    for check in ["outside-anonymous", "outside-agent"] {
        clinic.assert_found_with(&["--tls-port", &port], check, "failure", found);
    }
    // The port of another service, which accepts agents, is not a finding about the compiler.
    open.behave(Manner::peer());
    let (proof, code) = clinic.examined(&["--tls-port", &port]);
    assert_eq!(code, Some(0), "{proof:#}");
}

#[test]
fn a_compiler_that_ignores_the_headers_and_uses_the_proxys_certificate_is_found() {
    let clinic = Clinic::new();
    clinic.compiler.behave(Manner::peer());
    clinic.assert_found(
        "headers-read",
        "failure",
        &["does not read the trusted headers"],
    );
    clinic.assert_found("own-node", "failure", &["answered 403"]);
    // If both certificates had the same name, the compiler would seem to use the headers.
    clinic.write_credential("to-compilers", &clinic.front.agent("puppet"));
    let found = &[
        "for an unverified client",
        "uses the identity of the proxy's certificate",
    ];
    clinic.assert_found("unknown-client", "failure", found);
}

#[test]
fn a_compiler_that_gives_an_agent_the_documents_of_another_is_found() {
    let clinic = Clinic::new();
    clinic.compiler.answer(|request| {
        let known = request.headers.get("x-client-verify") == Some("SUCCESS");
        let node = request.path().starts_with("/puppet/v3/node/");
        (known && node).then(|| Reply::ok("{}"))
    });
    clinic.assert_found(
        "others-node",
        "failure",
        &["serves the documents of another node to puppet"],
    );
}

#[test]
fn t07_a_ca_server_that_believes_headers_is_found() {
    let clinic = Clinic::new();
    clinic.ca_server.behave(Manner::headers());
    clinic.assert_found("ca-headers", "failure", &["in pool ca", "trusts headers"]);
    clinic.assert_found(
        "outside-agent",
        "failure",
        &["trusts headers", "ordinary agent"],
    );
}

#[test]
fn a_ca_server_that_the_proxy_may_administer_is_found() {
    let clinic = Clinic::new();
    clinic.ca_server.answer(|request| {
        let status = request.path().contains("/certificate_status/");
        status.then(|| Reply::ok("{}"))
    });
    clinic.assert_found(
        "ca-rights",
        "failure",
        &["administer", "certificate_status/puppet"],
    );
}

#[test]
fn a_certificate_that_is_not_an_ordinary_agents_proves_nothing() {
    let clinic = Clinic::new();
    let pp_cli_auth = [1, 3, 6, 1, 4, 1, 34380, 1, 3, 39];
    for (agent, words) in [
        (clinic.ca.agent("puppet"), "the name of this proxy"),
        (
            Ca::named("Unrelated").agent("web01"),
            "was not issued by a CA",
        ),
        (
            clinic
                .ca
                .leaf("web01")
                .extension(&pp_cli_auth, "true")
                .issue(),
            "authorization extension",
        ),
    ] {
        clinic.write_credential("agent", &agent);
        clinic.assert_found("agent-certificate", "warning", &["agent.pem", words]);
    }
}

#[test]
fn a_status_that_is_not_served_proves_nothing_about_headers() {
    let clinic = Clinic::new();
    for status in [400, 404] {
        clinic.compiler.answer(move |request| {
            request
                .path()
                .starts_with("/status/")
                .then(|| Reply::status(status))
        });
        let answered = format!("answered {status}");
        let proof =
            clinic.assert_found("headers-read", "warning", &["in pool compilers", &answered]);
        assert_not_passed(&proof, "headers-read", "in pool compilers");
    }
}

#[test]
fn a_pool_with_other_headers_is_reported_as_not_proved() {
    let mut clinic = Clinic::new();
    clinic.more = "[pools.compilers.identity]\nverify_header = \"X-Front-Verify\"\n".to_owned();
    clinic.assert_found("headers-read", "note", &["in pool compilers", "not tested"]);
}

#[test]
fn an_own_name_that_could_be_read_as_another_is_not_sent() {
    let mut clinic = Clinic::new();
    clinic.more = "[identity]\nsubject = \"single-cn\"\n".to_owned();
    for name in ["web01?x=", "web01#", "web01%2f", "a b"] {
        let own = clinic.ca.leaf("puppet");
        clinic.write_own(&own.subject(&[(DnType::CommonName, name)]).issue());
        clinic.assert_found(
            "own-name",
            "note",
            &["could not send requests in the proxy's name"],
        );
    }
    let requests = clinic.compiler.requests().into_iter();
    for request in requests.chain(clinic.ca_server.requests()) {
        let text = request.raw_text();
        assert!(!text.contains("web01") && !text.contains("a b"), "{text}");
    }
}

/// A passthrough pool with this member, beside the compilers.
fn passing(member: &StandIn) -> String {
    format!(
        "[listeners.pcp]\naddress = \"127.0.0.1:8142\"\npassthrough = \"brokers\"\n\
         [pools.brokers]\nmembers = [{{ address = {:?}, server_name = \"localhost\" }}]\n\
         trusted_headers_off = true\n",
        member.address()
    )
}

#[test]
fn t18_forged_headers_are_tested_through_each_passthrough_pool() {
    let mut clinic = Clinic::new();
    let broker = StandIn::builder("b1")
        .tls_wanting(&clinic.ca, &clinic.ca.server("b1"))
        .start();
    // The broker uses the certificate of its peer, as a message broker does.
    broker.behave(Manner::peer());
    clinic.more = passing(&broker);
    let (proof, code) = clinic.examined(&[]);
    let passed = proof["passed"].as_array().expect("a list");
    for how in [
        "without a certificate",
        "with an ordinary agent's",
        "in plain HTTP",
    ] {
        let is_passed = |passed: &&Value| {
            let about = passed["about"].as_str().unwrap_or_default();
            passed["check"] == "passthrough" && about.contains(how)
        };
        assert!(
            passed.iter().any(|passed| is_passed(&passed)),
            "{how}: {proof:#}"
        );
    }
    assert_eq!(code, Some(0), "{proof:#}");
    assert!(!broker.requests().is_empty(), "it was asked");

    // A compiler that was left on that port trusts headers from any client.
    broker.behave(Manner::headers());
    let found = &[
        "in pool brokers",
        "passed through",
        "trusts the identity headers",
        "without a certificate",
    ];
    clinic.assert_found("passthrough", "failure", found);
}

#[test]
fn a_passthrough_member_that_cannot_be_verified_is_not_reported_as_safe() {
    let mut clinic = Clinic::new();
    let elsewhere = Ca::new();
    let broker = StandIn::builder("b1")
        .tls_wanting(&elsewhere, &elsewhere.server("b1"))
        .start();
    clinic.more = passing(&broker);
    let proof = clinic.assert_found("passthrough", "note", &["not tested over TLS"]);
    assert_not_passed(&proof, "passthrough", "over TLS");
}
