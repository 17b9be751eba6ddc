//! Legacy signatures: SHA-1 and small RSA keys are accepted for the CAs that are named, for clients and members, and
//! for no other CA.

use rustls::AlertDescription;
use testkit::{Ca, Client, ClientError, ProxyBuilder, StandIn, TestCredential};

use crate::support::{self, Estate, LIMIT, assert_refused, fixtures};

#[test]
fn chains_of_a_named_ca_are_accepted_and_those_of_other_cas_refused() {
    for (named, passing) in [
        ("", &[][..]),
        (OLD, &["old-agent", "old-sub-agent"]),
        // A CA that is not named signed its own certificate with SHA-1.
        (BELOW_OLD, &[]),
        (SMALL, &["small-agent"]),
        // Only the signature of the agent's certificate is SHA-1.
        (LAB, &["sha1"]),
    ] {
        let estate = estate(named);
        for agent in ["old-agent", "old-sub-agent", "small-agent", "sha1"] {
            let expected = if passing.contains(&agent) {
                "SUCCESS"
            } else {
                "FAILED:unsupported-algorithm"
            };
            for version in [Client::tls12, Client::tls13] {
                let client = version(estate.client(&credential(agent)));
                let verdict = verdict(&estate, &client).expect("served");
                assert_eq!(verdict, expected, "{agent} with {named:?} named");
            }
        }
        // Clients that need no exception are accepted as before.
        let verdict = verdict(&estate, &estate.client(&credential("rsa2048")));
        assert_eq!(verdict.expect("served"), "SUCCESS");
    }
}

#[test]
fn a_sha1_crl_of_a_named_ca_is_used() {
    let estate = Estate::builder()
        .proxy(|proxy| trusting(proxy, OLD, "old-crl-revoked.pem"))
        .start();
    let agents = [
        ("old-agent", "FAILED:revoked"),
        ("old-sub-agent", "SUCCESS"),
    ];
    for (agent, expected) in agents {
        let verdict = verdict(&estate, &estate.client(&credential(agent)));
        assert_eq!(verdict.expect("served"), expected, "{agent}");
    }
}

#[test]
fn removing_the_name_refuses_live_connections_and_resumed_sessions() {
    let estate = estate(OLD);
    let client = estate.client(&credential("old-agent"));
    let mut live = client.connect().expect("connects");
    assert_eq!(live.get(CATALOG).status, 200);
    estate.edit_config(&format!("[\"{OLD}\"]"), "[]");
    estate.proxy.reload_applied();
    estate.forget();
    assert!(
        live.is_closed_within(LIMIT),
        "the connection is closed before its next request"
    );
    let mut resumed = client.connect().expect("connects");
    assert!(resumed.resumed());
    assert_refused(&resumed.get(CATALOG), 403, &["old-agent"]);
    assert!(estate.far_end().is_empty());
}

#[test]
fn small_keys_of_a_named_ca_are_accepted_in_tls_1_2_only() {
    let (old, lab) = (credential("old-small"), credential("rsa1024"));
    for (named, agent, forwarded_verdict) in [
        (OLD, &old, Some("SUCCESS")),
        (LAB, &lab, Some("SUCCESS")),
        (OLD, &lab, None),
        (LAB, &old, None),
        ("", &old, None),
    ] {
        let estate = estate(named);
        let client = estate.proxy.small_client(agent);
        match (forwarded_verdict, verdict(&estate, &client.clone().tls12())) {
            (Some(expected), verdict) => assert_eq!(verdict.expect("served"), expected),
            (None, verdict) => assert!(verdict.err().is_some_and(|error| error.alert().is_some())),
        }
        // TLS 1.3 has no signature algorithm with which such a key could be verified.
        let error = client.tls13().try_request("GET", CA, &[], b"");
        assert!(error.is_err_and(|error| error.alert().is_some()));
        let record = estate.wait_for_record(|record| record["reason"] == "unsupported-algorithm");
        assert_eq!(record["status"], serde_json::Value::Null);
    }
}

#[test]
fn a_stolen_certificate_of_a_small_key_ends_the_handshake() {
    let estate = estate(OLD);
    let thief = credential("old-small").with_key_of(&credential("small-server"));
    let client = estate.proxy.small_client(&thief).tls12();
    let error = verdict(&estate, &client).expect_err("refused");
    assert_eq!(error.alert(), Some(AlertDescription::DecryptError));
    assert!(estate.far_end().is_empty());
}

#[test]
fn members_of_a_named_ca_get_requests_and_those_of_other_cas_do_not() {
    let (old, small) = (credential("old-server"), credential("small-server"));
    let ca = Ca::new();
    let old = StandIn::builder("old").tls(&ca, &old).start();
    let small = StandIn::builder("small").small_tls(&small).start();
    for (named, member, ca_files, status) in [
        (OLD, &old, "old", 200),
        (SMALL, &old, "old", 502),
        ("", &old, "old", 502),
        (SMALL, &small, "small", 200),
        (OLD, &small, "small", 502),
    ] {
        let tables = format!(
            "[pools.odd]\nmembers = [\"{}\"]\ncheck = {{ type = \"none\" }}\n\
             tls = {{ ca = {:?}, crl = {:?} }}\n\
             [trust]\nlegacy_signatures = {}\n\
             [[routes]]\nname = \"odd\"\npath = {{ prefix = \"/puppet/v3/file_content\" }}\npool = \"odd\"",
            member.address(),
            fixtures::path(&format!("{ca_files}-ca.pem")),
            fixtures::path(&format!("{ca_files}-crl.pem")),
            list(named),
        );
        let estate = Estate::builder().ca(&ca).with(&tables).start();
        let response = estate.client(&ca.agent("web01")).get(FILE);
        assert_eq!(response.status, status, "{named:?}: {response:?}");
        if status == 502 {
            let verdict = |record: &serde_json::Value| record["reason"] == "member-tls-failed";
            estate.wait_for_record(verdict);
        }
    }
}

#[test]
fn check_lists_the_cas_whose_legacy_signatures_are_accepted() {
    let ca = Ca::new();
    let checked = trusting(proxy(&ca), OLD, "old-crl.pem").check();
    assert_eq!(checked.code, Some(0), "{}", checked.stderr);
    let fact = format!(
        "outdated signatures (SHA-1, RSA under 2048 bits) of {OLD} are accepted in certificates of clients\n"
    );
    assert!(checked.stdout.contains(&fact), "{}", checked.stdout);
    for words in ["trust.legacy_signatures", "forgeable signatures"] {
        assert!(checked.stderr.contains(words), "{}", checked.stderr);
    }
    let strange = trusting(proxy(&ca), "CN=Unknown", "old-crl.pem").check();
    assert_eq!(strange.code, Some(0), "{}", strange.stderr);
    for words in [
        "has the subject \"CN=Unknown\"",
        // The CRL is not used either, and the message names the setting that it needs.
        "old-crl.pem\" block 1 is not used: it is signed with SHA-1 or an RSA key under 2048 bits, and `legacy_signatures` does not name CN=Puppet CA: old.lab.test",
        "small-crl.pem\" block 1 is not used: it is signed with SHA-1",
    ] {
        assert!(strange.stderr.contains(words), "{}", strange.stderr);
    }
    // The setting cannot name all CAs at once.
    let all = trusting(proxy(&ca), "*", "old-crl.pem").check();
    assert_eq!(all.code, Some(78), "{}", all.stderr);
}

/// A proxy that has every CA of the fixtures in its bundle; `named` allows legacy signatures for one or none.
fn estate(named: &'static str) -> Estate {
    Estate::builder()
        .proxy(move |proxy| trusting(proxy, named, "old-crl.pem"))
        .start()
}

fn trusting(proxy: ProxyBuilder, named: &str, old_crl: &str) -> ProxyBuilder {
    let paths = |files: &[&str]| {
        let paths: Vec<_> = files.iter().map(|file| fixtures::path(file)).collect();
        format!("{paths:?}")
    };
    let ca = paths(&[
        "ca-bundle.pem",
        "old-ca.pem",
        "old-sub-ca.pem",
        "small-ca.pem",
    ]);
    let crl = paths(&["crl-before.pem", old_crl, "small-crl.pem"]);
    proxy.listener("on_invalid = \"forward\"").with(&format!(
        "[trust]\nca = {ca}\ncrl = {crl}\nlegacy_signatures = {}",
        list(named)
    ))
}

/// A proxy whose members do not exist.
fn proxy(ca: &Ca) -> ProxyBuilder {
    support::proxy(ca).without_members()
}

fn list(named: &str) -> String {
    match named {
        "" => "[]".to_owned(),
        named => format!("[\"{named}\"]"),
    }
}

fn credential(file: &str) -> TestCredential {
    let part = |kind: &str| fixtures::text(&format!("{file}.{kind}"));
    TestCredential::from_pem(file, &part("pem"), &part("key"))
}

/// The identity that the member gets for a client.
fn verdict(estate: &Estate, client: &Client) -> Result<String, ClientError> {
    estate.forget();
    client.try_request("GET", CA, &[], b"")?;
    Ok(estate.only_request().only("x-client-verify").to_owned())
}

const OLD: &str = "CN=Puppet CA: old.lab.test";
const BELOW_OLD: &str = "CN=Puppet CA: below old.lab.test";
const SMALL: &str = "CN=Puppet CA: small.lab.test";
/// The issuer of the fixtures' ordinary agents.
const LAB: &str = "CN=Puppet CA: lab";
const CA: &str = "/puppet-ca/v1/certificate/ca";
const CATALOG: &str = "/puppet/v3/catalog/old-agent.lab.test?environment=production";
const FILE: &str = "/puppet/v3/file_content/modules/a/b";
