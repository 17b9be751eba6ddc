//! `doctor` on members: reachability, TLS, clocks, status and the role of each pool.

use serde_json::{Value, json};
use testkit::{Ca, Manner, Recorded, Reply, StandIn};

use crate::support::doctor::{Clinic, assert_not_passed, remedies};

#[test]
fn a_pool_of_other_servers_is_only_connected_to() {
    let mut clinic = Clinic::new();
    let database = StandIn::builder("db")
        .tls(&clinic.front, &clinic.ca.server("db"))
        .start();
    database.answer(|request| {
        let status = request.path().starts_with("/status/");
        Some(if status {
            Reply::ok("running")
        } else {
            Reply::status(404)
        })
    });
    clinic.more = format!(
        "[pools.database]\nmembers = [{:?}]\n[pools.database.tls]\n\
         chain = \"{{dir}}/to-compilers.pem\"\nkey = \"{{dir}}/to-compilers.key\"\n",
        database.address()
    );
    let (proof, _) = clinic.examined(&[]);
    let about = format!("{} in pool database", database.address());
    let passed = proof["passed"].as_array().expect("a list");
    let reached =
        |passed: &Value| passed["check"] == "member-reached" && passed["about"] == about.as_str();
    assert!(passed.iter().any(reached), "{proof:#}");
    let findings = proof["findings"].as_array().expect("a list");
    let about_it = |finding: &&Value| finding["about"] == about.as_str();
    assert_eq!(findings.iter().find(about_it), None);
}

#[test]
fn a_member_that_is_down_is_found() {
    let clinic = Clinic::new();
    clinic.compiler.kill();
    let address = clinic.compiler.address();
    clinic.assert_found(
        "member-reached",
        "failure",
        &[&address, "in pool compilers", "cannot connect"],
    );
}

#[test]
fn t05_a_member_that_is_down_with_another_port_open_is_found_for_both() {
    let clinic = Clinic::new();
    clinic.compiler.kill();
    let open = StandIn::start("c1");
    open.behave(Manner::headers());
    let port = open.socket_address().port().to_string();
    let ports = &["--plain-port", &*port];
    clinic.assert_found_with(ports, "member-reached", "failure", &["cannot connect"]);
    let found = &[
        "in pool compilers",
        "in plain HTTP on port",
        &port,
        "trusts the identity headers",
    ];
    clinic.assert_found_with(ports, "outside-plain", "failure", found);
}

#[test]
fn the_ports_of_a_member_that_is_down_are_not_reported_as_closed() {
    let clinic = Clinic::new();
    clinic.compiler.kill();
    let proof = clinic.assert_found("member-reached", "failure", &["cannot connect"]);
    for check in ["outside-plain", "outside-anonymous", "outside-agent"] {
        assert_not_passed(&proof, check, "in pool compilers");
    }
}

#[test]
fn a_member_with_another_protocol_than_its_pool_is_found() {
    let clinic = Clinic::with_compiler(|_, _| StandIn::start("c1"));
    let found = &["it uses plain HTTP there, but this pool uses TLS"];
    clinic.assert_found("member-reached", "failure", found);
    let mut clinic = Clinic::new();
    clinic.pool = Clinic::plain_pool;
    let found = &["it uses TLS there, but this pool uses plain HTTP"];
    let proof = clinic.assert_found("member-reached", "failure", found);
    let remedies = remedies(&proof, "member-reached");
    assert!(remedies.contains("scheme = \"https\""), "{remedies}");
}

#[test]
fn a_member_with_another_name_or_an_expired_certificate_is_found() {
    let other = |ca: &Ca, front: &Ca| {
        StandIn::builder("c1")
            .tls(front, &ca.agent("c9.example.com"))
            .start()
    };
    let clinic = Clinic::with_compiler(other);
    let found = &["127.0.0.1", "c9.example.com"];
    let proof = clinic.assert_found("member-certificate", "failure", found);
    let remedy = remedies(&proof, "member-certificate");
    assert!(remedy.contains("`server_name`"), "{remedy}");
    let ended = |ca: &Ca, front: &Ca| {
        let ended = ca.leaf("c1").ip("127.0.0.1").valid_days(-9, -1).issue();
        StandIn::builder("c1").tls(front, &ended).start()
    };
    let found = &["127.0.0.1", "expired"];
    let proof = Clinic::with_compiler(ended).assert_found("member-certificate", "failure", found);
    let remedy = remedies(&proof, "member-certificate");
    assert!(
        remedy.contains("renew its certificate on that server"),
        "{remedy}"
    );
    let ending = |ca: &Ca, front: &Ca| {
        let ending = ca.leaf("c1").ip("127.0.0.1").valid_days(-30, 3).issue();
        StandIn::builder("c1").tls(front, &ending).start()
    };
    Clinic::with_compiler(ending).assert_found(
        "member-certificate",
        "warning",
        &["CN=c1", "it expires on"],
    );
}

#[test]
fn a_member_that_refuses_the_proxys_certificate_is_found() {
    let compiler = |ca: &Ca, _: &Ca| {
        StandIn::builder("c1")
            .tls(&Ca::named("Another proxy's"), &ca.server("c1"))
            .start()
    };
    let clinic = Clinic::with_compiler(compiler);
    clinic.assert_found("credential-accepted", "failure", &["in pool compilers"]);
}

#[test]
fn a_compiler_in_the_ca_pool_and_a_ca_in_the_compiler_pool_are_found() {
    let clinic = Clinic::new();
    clinic.ca_server.answer(|request| {
        request
            .path()
            .starts_with("/puppet-ca/")
            .then(|| Reply::status(404))
    });
    clinic.assert_found("service", "failure", &["in pool ca", "answered 404"]);
    clinic.compiler.answer(|request| {
        request
            .path()
            .starts_with("/puppet-ca/")
            .then(|| Reply::ok("-----BEGIN CERTIFICATE-----"))
    });
    clinic.assert_found("service", "warning", &["in pool compilers", "CA service"]);
}

#[test]
fn a_clock_that_differs_is_found() {
    let clinic = Clinic::new();
    clinic.compiler.behave(Manner::headers().clock_ahead(3600));
    clinic.ca_server.behave(Manner::peer().clock_ahead(-120));
    clinic.assert_found(
        "clock",
        "failure",
        &["in pool compilers", "ahead of the clock of this host"],
    );
    clinic.assert_found(
        "clock",
        "warning",
        &["in pool ca", "behind the clock of this host"],
    );
}

#[test]
fn an_invalid_status_is_found() {
    let clinic = Clinic::new();
    for (reply, words) in [
        (
            Reply::status(404),
            ["answered 404", "expected 200 `running`"],
        ),
        (
            Reply::status(503).body(b"starting"),
            ["answered 503", "`starting`"],
        ),
        (Reply::ok("It works!"), ["answered 200", "`It works!`"]),
        (Reply::ok("not running"), ["answered 200", "`not running`"]),
    ] {
        clinic.compiler.answer(move |request| {
            request
                .path()
                .starts_with("/status/")
                .then(|| reply.clone())
        });
        clinic.assert_found("status", "failure", &words);
    }
}

#[test]
fn a_compiler_that_reads_only_short_heads_is_found() {
    let clinic = Clinic::new();
    clinic
        .compiler
        .behave(Manner::headers().head_bytes_max(4096));
    clinic.assert_found("head-room", "warning", &["forward_cert_max", "431"]);
    clinic
        .compiler
        .behave(Manner::headers().head_bytes_max(1024));
    clinic.assert_found(
        "head-room",
        "failure",
        &["the proxy's own certificate takes"],
    );
}

#[test]
fn t07_a_ca_server_whose_status_is_not_served_is_not_reported_as_good() {
    let clinic = Clinic::new();
    clinic.ca_server.behave(Manner::headers());
    // The member serves no status, so its status endpoint reads no headers. The other endpoints do.
    clinic.ca_server.answer(|request| {
        request
            .path()
            .starts_with("/status/")
            .then(|| Reply::status(404))
    });
    let proof = clinic.assert_found("ca-headers", "warning", &["in pool ca", "answered 404"]);
    assert_not_passed(&proof, "ca-headers", "in pool ca");
    assert_not_passed(&proof, "outside-agent", "in pool ca, with");
    clinic.assert_found("outside-agent", "note", &["in pool ca", "answered 404"]);
}

#[test]
fn t07_a_ca_server_in_a_pool_of_any_name_is_examined_as_a_ca_server() {
    let mut clinic = Clinic::new();
    let issuing = StandIn::builder("issuing")
        .ca(&clinic.ca)
        .tls(&clinic.ca, &clinic.ca.server("issuing"))
        .start();
    issuing.behave(Manner::headers());
    clinic.more = format!(
        "[pools.issuing]\nmembers = [{:?}]\n\
         [[routes]]\nname = \"issuing\"\npath = {{ prefix = \"/puppet-ca\" }}\npool = \"issuing\"\n",
        issuing.address()
    );
    clinic.assert_found(
        "ca-headers",
        "failure",
        &["in pool issuing", "trusts headers"],
    );
    issuing.behave(Manner::peer());
    let (proof, code) = clinic.examined(&[]);
    assert_eq!(code, Some(0), "{proof:#}");
    let remedies = proof["findings"].to_string();
    assert!(!remedies.contains("allow-header-cert-info: true"));
}

#[test]
fn t05_a_port_that_has_answered_once_is_not_reported_as_closed() {
    let broken = |request: &Recorded| request.headers.get("x-client-cert") == Some("%zz");
    let compiler = |ca: &Ca, front: &Ca| {
        let wanting = StandIn::builder("c1").tls_wanting(front, &ca.server("c1"));
        wanting.start()
    };
    let clinic = Clinic::with_compiler(compiler);
    let refuses_once = |request: &Recorded| {
        let node = request.path().starts_with("/puppet/v3/node/");
        let reply = if node {
            Reply::status(403)
        } else {
            Reply::hang_up()
        };
        request.peer_certificates.is_empty().then_some(reply)
    };
    clinic.compiler.answer(refuses_once);
    clinic.assert_found(
        "outside-anonymous",
        "warning",
        &["in pool compilers", "answers 403"],
    );
    clinic
        .ca_server
        .answer(move |request| broken(request).then(Reply::hang_up));
    let proof = clinic.assert_found("outside-agent", "note", &["in pool ca", "not tested"]);
    assert_not_passed(&proof, "outside-agent", "in pool ca, with");
    let open = StandIn::start("c1");
    open.answer(refuses_once);
    let port = open.socket_address().port().to_string();
    clinic.assert_found_with(
        &["--plain-port", &port],
        "outside-plain",
        "note",
        &["not tested", &port],
    );
}

#[test]
fn a_compiler_that_hangs_up_on_node_requests_is_examined_all_the_same() {
    let mut clinic = Clinic::new();
    let batch = StandIn::builder("batch")
        .tls(&clinic.front, &clinic.ca.server("batch"))
        .start();
    batch.behave(Manner::peer());
    batch.answer(|request| {
        let node = request.path().starts_with("/puppet/v3/node/");
        node.then(Reply::hang_up)
    });
    clinic.more = format!(
        "[pools.batch]\nmembers = [{:?}]\n[pools.batch.tls]\n\
         chain = \"{{dir}}/to-compilers.pem\"\nkey = \"{{dir}}/to-compilers.key\"\n",
        batch.address()
    );
    clinic.assert_found(
        "headers-read",
        "failure",
        &["in pool batch", "does not read the trusted headers"],
    );
    clinic.assert_found("unknown-client", "warning", &["in pool batch"]);
}

#[test]
fn a_compiler_that_forbids_its_jruby_counts_is_found_with_the_rule_for_its_auth_conf() {
    let clinic = Clinic::new();
    clinic
        .compiler
        .answer(|request| request.is_jruby_reading().then(|| Reply::status(403)));
    let words = ["in pool compilers", "balances without JRuby counts"];
    let proof = clinic.assert_found("jrubies", "note", &words);
    assert_not_passed(&proof, "jrubies", "in pool compilers");
    let findings = proof["findings"].to_string();
    let rule = "match-request: { path: \\\"/status/v1/services/jruby-metrics\\\", type: path, method: get }";
    assert!(findings.contains(rule), "{findings}");
}

#[test]
fn a_ca_server_that_refuses_to_serve_its_crls_is_found() {
    let clinic = Clinic::new();
    clinic.ca_server.answer(|request| {
        let lists = request.path().contains("/certificate_revocation_list/");
        lists.then(|| Reply::status(403))
    });
    let found = &["in pool ca", "certificate_revocation_list/ca answered 403"];
    let proof = clinic.assert_found("crl-fresh", "warning", found);
    assert_not_passed(&proof, "crl-fresh", "in pool ca");
}

#[test]
fn environments_that_a_compiler_parses_for_each_request_are_named() {
    let clinic = Clinic::new();
    let answer = |reply: Reply| {
        clinic.compiler.answer(move |request| {
            (request.path() == "/puppet/v3/environments").then(|| reply.clone())
        });
    };
    let environment = |timeout: Value| json!({ "settings": { "environment_timeout": timeout } });
    let environments = |production: Value| {
        Reply::json(&json!({
            "search_paths": [],
            "environments": {
                "development": environment(json!("unlimited")),
                "production": environment(production),
            },
        }))
    };
    answer(environments(json!(0)));
    let found = &["`environment_timeout` is 0 in production:"];
    let proof = clinic.assert_found("environments", "note", found);
    let remedy = remedies(&proof, "environments");
    assert!(remedy.contains("`postrun` of r10k"), "{remedy}");
    let request = clinic.compiler.requests();
    let request = request
        .iter()
        .find(|request| request.path() == "/puppet/v3/environments");
    assert_eq!(
        request.expect("one").headers.get("x-client-dn"),
        Some("CN=puppet")
    );
    answer(environments(json!(300)));
    let (proof, _) = clinic.examined(&[]);
    assert_eq!(remedies(&proof, "environments"), "");
    answer(Reply::ok("<html>"));
    clinic.assert_found("environments", "warning", &["answered with something else"]);
}
