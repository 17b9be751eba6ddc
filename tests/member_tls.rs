//! TLS to members: names, revocation, CAs and the credential of the proxy.

use std::{net::TcpListener, thread};

use rcgen::DnType;
use serde_json::Value;
use testkit::{Ca, Response, StandIn};

use crate::support::{
    Estate, assert_refused, connection,
    paths::FILE,
    pools::{UNPROBED, answer_once, odd, tls},
};

/// The response to a request for a file and its record, from a pool with a single member that uses TLS.
fn tls_member_of(ca: &Ca, member: &StandIn, lines: &str) -> (Response, Value) {
    let port = member.socket_address().port();
    let lines = lines.replace("{port}", &port.to_string());
    let estate = odd(&format!("{lines}\n{UNPROBED}")).ca(ca).start();
    let response = connection(&estate).get(FILE);
    let record = estate.wait_for_record(|record| record["route"] == "odd");
    (response, record)
}

#[track_caller]
fn assert_untrusted(answer: &(Response, Value), words: &[&str]) {
    let (response, record) = answer;
    assert_refused(response, 502, &["nothing was sent"]);
    assert_eq!(record["status"], 502, "{record}");
    assert_eq!(record["reason"], "member-tls-failed", "{record}");
    let cause = record["cause"].as_str().unwrap_or_default();
    for word in words {
        assert!(cause.contains(word), "{word:?} is not in {cause:?}");
    }
}

#[test]
fn a_members_certificate_must_have_its_configured_name() {
    let ca = Ca::new();
    let member = tls(
        &ca,
        &ca.leaf("c1.example.com").dns("c1.example.com").issue(),
    );
    assert_untrusted(
        &tls_member_of(&ca, &member, "members = [\"localhost:{port}\"]"),
        &["c1.example.com", "localhost"],
    );
    assert!(member.requests().is_empty());
    let named = "members = [{ address = \"localhost:{port}\", server_name = \"c1.example.com\" }]";
    assert_eq!(tls_member_of(&ca, &member, named).0.status, 200);
    let wrong = "members = [{ address = \"localhost:{port}\", server_name = \"c2.example.com\" }]";
    assert_untrusted(&tls_member_of(&ca, &member, wrong), &["c2.example.com"]);
}

#[test]
fn a_member_without_a_subject_alt_name_is_reported_as_such() {
    let ca = Ca::new();
    let member = tls(&ca, &ca.leaf("localhost").without_san().issue());
    assert_untrusted(
        &tls_member_of(&ca, &member, "members = [\"localhost:{port}\"]"),
        &["subjectAltName"],
    );
}

#[test]
fn a_member_without_a_subject_alt_name_is_accepted_by_its_cn_where_configured() {
    let ca = Ca::new();
    let from_cn = |lines: &str| format!("{lines}\ntls = {{ name_from_cn = true }}");
    let named = |name: &str| {
        from_cn(&format!(
            "members = [{{ address = \"localhost:{{port}}\", server_name = \"{name}\" }}]"
        ))
    };
    let old = ca.leaf("c1.example.com").without_san().issue();
    let member = tls(&ca, &old);
    for name in ["c1.example.com", "C1.example.com"] {
        assert_eq!(tls_member_of(&ca, &member, &named(name)).0.status, 200);
    }
    let upstream =
        "members = [{ address = \"localhost:{port}\", server_name = \"c1.example.com\" }]";
    assert_untrusted(&tls_member_of(&ca, &member, upstream), &["name_from_cn"]);
    member.forget();
    for name in ["example.com", "c1", "c11.example.com", "a.c1.example.com"] {
        let words = [name, "CN=c1.example.com", "server_name"];
        assert_untrusted(&tls_member_of(&ca, &member, &named(name)), &words);
    }
    // Neither a wildcard nor an address is accepted as a CN.
    for (cn, name) in [
        ("*.example.com", "c1.example.com"),
        ("127.0.0.1", "127.0.0.1"),
    ] {
        let member = tls(&ca, &ca.leaf(cn).without_san().issue());
        assert_untrusted(&tls_member_of(&ca, &member, &named(name)), &[cn]);
        assert!(member.requests().is_empty());
    }
    // With a subjectAltName the CN is ignored.
    let other = ca.leaf("other.example.com");
    let other = other.subject(&[(DnType::CommonName, "c1.example.com")]);
    let member_of_names = tls(&ca, &other.issue());
    assert_untrusted(
        &tls_member_of(&ca, &member_of_names, &named("c1.example.com")),
        &["other.example.com"],
    );
    assert!(member_of_names.requests().is_empty());
    // The chain is verified all the same.
    ca.revoke(&old);
    assert_untrusted(
        &tls_member_of(&ca, &member, &named("c1.example.com")),
        &["revoked"],
    );
    assert!(member.requests().is_empty());
}

#[test]
fn name_from_cn_of_a_pool_overrides_the_general_setting() {
    let ca = Ca::new();
    let member = tls(&ca, &ca.leaf("localhost").without_san().issue());
    let port = member.socket_address().port();
    for (above, own, status) in [
        ("true", "", 200),
        ("true", "tls = { name_from_cn = false }", 502),
        ("false", "tls = { name_from_cn = true }", 200),
    ] {
        let estate = odd(&format!(
            "members = [\"localhost:{port}\"]\n{own}\n{UNPROBED}"
        ))
        .ca(&ca)
        .with(&format!("[upstream.tls]\nname_from_cn = {above}"))
        .start();
        assert_eq!(
            connection(&estate).get(FILE).status,
            status,
            "{above} {own}"
        );
    }
}

#[test]
fn a_revoked_member_gets_no_requests() {
    let ca = Ca::new();
    let credential = ca.server("c1");
    let member = tls(&ca, &credential);
    let lines = "members = [\"127.0.0.1:{port}\"]";
    assert_eq!(tls_member_of(&ca, &member, lines).0.status, 200);
    ca.revoke(&credential);
    member.forget();
    assert_untrusted(&tls_member_of(&ca, &member, lines), &["revoked"]);
    assert!(member.requests().is_empty());
}

#[test]
fn a_member_of_another_ca_gets_no_requests_unless_its_pool_trusts_that_ca() {
    let (ca, other) = (Ca::new(), Ca::other());
    let member = StandIn::builder("tls")
        .tls(&ca, &other.server("c1"))
        .start();
    let lines = "members = [\"127.0.0.1:{port}\"]";
    assert_untrusted(&tls_member_of(&ca, &member, lines), &[]);
    assert!(member.requests().is_empty());
    for table in ["[pools.odd.tls]", "[upstream.tls]"] {
        let port = member.socket_address().port();
        let tables = format!(
            "[pools.odd]\nmembers = [\"127.0.0.1:{port}\"]\n{UNPROBED}\n{table}\nca = \"{{dir}}/other.pem\"\ncrl = \"{{dir}}/other-crl.pem\"\n\
             [[routes]]\nname = \"odd\"\npath = {{ prefix = \"/puppet/v3/file_content\" }}\npool = \"odd\""
        );
        let (bundle, crl) = (other.bundle_pem(), other.crl_pem());
        let estate = Estate::builder()
            .ca(&ca)
            .with(&tables)
            .file("other.pem", &bundle, 0o644)
            .file("other-crl.pem", &crl, 0o644)
            .start();
        assert_eq!(connection(&estate).get(FILE).status, 200, "{table}");
    }
}

#[test]
fn members_get_the_credential_that_is_configured_for_them() {
    let ca = Ca::new();
    let member = tls(&ca, &ca.server("c1"));
    let port = member.socket_address().port();
    for table in ["[pools.odd.tls]", "[upstream.tls]"] {
        let own = ca.agent("frontend");
        let tables = format!(
            "[pools.odd]\nmembers = [\"127.0.0.1:{port}\"]\n{UNPROBED}\n{table}\nchain = \"{{dir}}/own.pem\"\nkey = \"{{dir}}/own.key\"\n\
             [[routes]]\nname = \"odd\"\npath = {{ prefix = \"/puppet/v3/file_content\" }}\npool = \"odd\""
        );
        let (chain, key, der) = (own.chain_pem(), own.key_pem.clone(), own.cert_der.clone());
        let estate = Estate::builder()
            .ca(&ca)
            .with(&tables)
            .file("own.pem", &chain, 0o644)
            .file("own.key", &key, 0o600)
            .start();
        assert_eq!(connection(&estate).get(FILE).status, 200, "{table}");
        assert_eq!(
            member.last().peer_certificates.first(),
            Some(&der),
            "{table}"
        );
    }
}

#[test]
fn a_member_without_tls_is_a_502_and_gets_no_request() {
    let plain = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = plain.local_addr().expect("bound");
    thread::spawn(move || {
        for mut socket in plain.incoming().flatten() {
            answer_once(&mut socket);
        }
    });
    let estate = odd(&format!("members = [\"{address}\"]\n{UNPROBED}")).start();
    let response = connection(&estate).get(FILE);
    let record = estate.wait_for_record(|record| record["route"] == "odd");
    assert_untrusted(&(response, record), &[&address.to_string()]);
}
