//! The active CRLs apply to every client, at its handshake and while its connection stays open.

use std::time::{Duration, Instant};

use testkit::{Ca, ProxyBuilder, TestCredential};

use crate::support::{
    self, Estate, EstateBuilder, LIMIT, assert_identity, assert_refused, paths::CATALOG,
};

#[test]
fn idle_connections_of_revoked_agents_are_closed_at_revoked_close_rate() {
    let estate = Estate::builder()
        .listener("idle_timeout = \"10m\"")
        .with("[trust]\nrevoked_close_rate = 10")
        .start();
    let (good, bad) = (estate.ca.agent("web02"), estate.ca.agent("web01"));
    let mut innocent = estate.client(&good).connect().expect("connects");
    let client = estate.client(&bad);
    let mut idle: Vec<_> = (0..21)
        .map(|_| client.connect().expect("connects"))
        .collect();
    for connection in &mut idle {
        assert_eq!(connection.get(CATALOG).status, 200);
    }
    estate.ca.revoke(&bad);
    let began = Instant::now();
    estate.proxy.swap_crl();
    for connection in &mut idle {
        assert!(
            connection.is_closed_within(LIMIT),
            "closed without an answer"
        );
    }
    // The proxy closes the first connection at once, and each further one 100 ms after the one before.
    assert!(
        began.elapsed() >= Duration::from_secs(2),
        "{:?}",
        began.elapsed()
    );
    estate.wait_for_metric("proscenium_connections_revoked_total", &[], 21.0);
    let answer = innocent.get("/puppet/v3/catalog/web02?environment=production");
    assert_eq!((answer.status, answer.says_close()), (200, false));
    assert_eq!(estate.proxy.status()["limits"]["revoked_close_rate"], 10);
}

#[test]
fn idle_clients_that_were_already_refused_do_not_delay_closing_revoked_ones() {
    let estate = Estate::builder()
        .listener("idle_timeout = \"10m\"")
        .with("[trust]\nrevoked_close_rate = 1")
        .start();
    let stranger = estate.client(&Ca::other().agent("web09"));
    let _refused: Vec<_> = (0..40)
        .map(|_| stranger.connect().expect("connects"))
        .collect();
    let agent = estate.ca.agent("web01");
    let mut idle = estate.client(&agent).connect().expect("connects");
    assert_eq!(idle.get(CATALOG).status, 200);
    // At this rate each CRL would take 40 seconds.
    estate.ca.revoke_strangers(1);
    estate.proxy.swap_crl();
    estate.ca.revoke(&agent);
    estate.proxy.swap_crl();
    assert!(idle.is_closed_within(LIMIT), "closed without an answer");
}

#[test]
fn removing_a_ca_from_the_bundle_refuses_its_clients_on_live_connections() {
    let (ours, theirs) = (Ca::new(), Ca::other());
    let both = format!("{}{}", ours.bundle_pem(), theirs.bundle_pem());
    let crls = format!("{}{}", ours.crl_pem(), theirs.crl_pem());
    let estate = trusting(&ours, "", &both, &crls).start();
    let (mine, foreign) = (ours.agent("web01"), theirs.agent("web01"));
    let mut stays = estate.client(&mine).connect().expect("connects");
    let mut goes = estate.client(&foreign).connect().expect("connects");
    let foreign_client = estate.client(&foreign);
    for connection in [&mut stays, &mut goes] {
        assert_eq!(connection.get(CATALOG).status, 200);
    }
    assert_eq!(foreign_client.get(CATALOG).status, 200);
    // A request is in flight during the swap, so its next request is the first to be refused.
    estate.compilers.iter().for_each(testkit::StandIn::hold);
    estate.forget();
    goes.send("GET", CATALOG, &[], b"").expect("is taken");
    let asked = testkit::wait_until(LIMIT, || (!estate.far_end().is_empty()).then_some(()));
    assert!(asked.is_some());
    estate.proxy.write("ca.pem", &ours.bundle_pem(), 0o644);
    estate.proxy.reload_applied();
    estate.compilers.iter().for_each(testkit::StandIn::release);
    assert_eq!(goes.read_response().expect("is answered").status, 200);
    let last = goes.get(CATALOG);
    assert_refused(&last, 403, &["CA"]);
    assert!(last.says_close());
    assert_eq!(stays.get(CATALOG).status, 200);
    // A resumed session is verified again as well.
    assert_eq!(foreign_client.get(CATALOG).status, 403);
    // The bundle returns to the previous one.
    estate.proxy.write("ca.pem", &both, 0o644);
    estate.proxy.reload_applied();
    assert_eq!(foreign_client.get(CATALOG).status, 200);
}

#[test]
fn crls_after_a_change_of_the_bundle_do_not_delay_closing_connections() {
    let (ours, theirs) = (Ca::new(), Ca::other());
    let both = format!("{}{}", ours.bundle_pem(), theirs.bundle_pem());
    let crls = || format!("{}{}", ours.crl_pem(), theirs.crl_pem());
    let estate = trusting(&ours, "revoked_close_rate = 1", &both, &crls())
        .listener("idle_timeout = \"10m\"")
        .start();
    let stays = estate.client(&ours.agent("web02"));
    let _accepted: Vec<_> = (0..5).map(|_| stays.connect().expect("connects")).collect();
    let foreign = estate.client(&theirs.agent("web01"));
    let mut goes = foreign.connect().expect("connects");
    assert_eq!(goes.get(CATALOG).status, 200);
    estate.proxy.write("ca.pem", &ours.bundle_pem(), 0o644);
    estate.proxy.reload_applied();
    for _ in 0..20 {
        ours.revoke_strangers(1);
        estate.proxy.write("crl.pem", &crls(), 0o644);
        estate.proxy.reload_applied();
    }
    assert!(goes.is_closed_within(LIMIT), "closed without an answer");
}

#[test]
fn an_expired_crl_is_used_with_an_alarm_or_refuses_its_clients() {
    for (policy, status) in [
        ("", 200),
        ("crl_expired = \"warn\"", 200),
        ("crl_expired = \"reject\"", 403),
    ] {
        let ca = Ca::new();
        ca.crl_next_update_days(-1);
        let bad = ca.agent("web01");
        ca.revoke(&bad);
        let estate = trusting(&ca, policy, &ca.bundle_pem(), &ca.crl_pem()).start();
        let answer = estate.client(&ca.agent("web01")).get(CATALOG);
        assert_eq!(answer.status, status, "{policy}: {answer:?}");
        assert_eq!(estate.client(&bad).get(CATALOG).status, 403, "{policy}");
        let trust = estate.proxy.status()["trust"].clone();
        assert!(
            trust["alarms"].to_string().contains("expired on"),
            "{trust:#}"
        );
        let expired = trust["crls"]
            .as_array()
            .into_iter()
            .flatten()
            .filter(|crl| crl["expired"] == true);
        assert_eq!(expired.count(), 1, "{trust:#}");
        assert!(estate.proxy.metrics().sum("proscenium_trust_alarms", &[]) >= 1.0);
        if status == 403 {
            estate.wait_for_record(|record| record["verdict"] == "FAILED:crl-expired");
        }
    }
}

#[test]
fn an_issuer_without_a_crl_is_refused_unless_unchecked_names_it() {
    let root = format!("CN={}", Ca::new().name().replace("CA:", "Root CA:"));
    for (policy, status) in [
        (String::new(), 403),
        (format!("unchecked = [\"{root}\"]"), 200),
        ("unchecked = [\"*\"]".to_owned(), 200),
        ("unchecked = [\"CN=another CA\"]".to_owned(), 403),
    ] {
        let ca = Ca::new();
        let bad = ca.agent("web01");
        ca.revoke(&bad);
        let estate = trusting(&ca, &policy, &ca.bundle_pem(), &ca.issuing_crl_pem()).start();
        let answer = estate.client(&ca.agent("web01")).get(CATALOG);
        assert_eq!(answer.status, status, "{policy}: {answer:?}");
        assert_refused(&estate.client(&bad).get(CATALOG), 403, &["web01"]);
        let trust = estate.proxy.status()["trust"].clone();
        let list = if status == 200 {
            "unchecked"
        } else {
            "crl_missing"
        };
        assert!(trust[list].to_string().contains("Root CA"), "{trust:#}");
        if status == 403 {
            assert_refused(&answer, 403, &["CRL", "Root CA"]);
            estate.wait_for_record(|record| record["verdict"] == "FAILED:crl-missing");
        }
    }
}

#[test]
fn depth_counts_the_intermediates_of_a_verified_path() {
    for (depth, status) in [(0, 403), (1, 200)] {
        let ca = Ca::new();
        let policy = format!("depth = {depth}");
        let estate = trusting(&ca, &policy, &ca.bundle_pem(), &ca.crl_pem()).start();
        let answer = estate.client(&ca.agent("web01")).get(CATALOG);
        assert_eq!(answer.status, status, "depth {depth}: {answer:?}");
        if status == 403 {
            estate.wait_for_record(|record| record["verdict"] == "FAILED:depth");
        }
    }
}

#[test]
fn the_newest_of_several_crls_of_one_issuer_is_used_in_any_order() {
    for newest_first in [true, false] {
        let ca = Ca::new();
        let (bad, good) = (ca.agent("web01"), ca.agent("web01"));
        let old = ca.crl_pem();
        ca.revoke(&bad);
        let new = ca.crl_pem();
        let crls = if newest_first { new + &old } else { old + &new };
        let estate = trusting(&ca, "", &ca.bundle_pem(), &crls).start();
        assert_refused(&estate.client(&bad).get(CATALOG), 403, &["revoked"]);
        assert_eq!(estate.client(&good).get(CATALOG).status, 200);
    }
}

#[test]
fn t10_an_incomplete_crl_is_not_used_and_the_reason_is_logged() {
    let ca = Ca::new();
    let (bad, good) = (ca.agent("web01"), ca.agent("web01"));
    ca.revoke(&bad);
    let part = ca.partitioned_crl_pem();
    let estate = trusting(&ca, "", &ca.bundle_pem(), &(ca.crl_pem() + &part)).start();
    assert_refused(&estate.client(&bad).get(CATALOG), 403, &["revoked"]);
    assert_eq!(estate.client(&good).get(CATALOG).status, 200);
    let trust = estate.proxy.status()["trust"].clone();
    assert!(
        trust["alarms"]
            .to_string()
            .contains("partitioned or indirect"),
        "{trust:#}"
    );
    // As the only CRL, the partial one is refused, and the previous CRL stays active.
    estate.proxy.write("crl.pem", &part, 0o644);
    let reload = estate.proxy.reload();
    assert_eq!(reload["result"], "refused", "{reload:#}");
    assert!(reload.to_string().contains("partitioned or indirect"));
    assert_refused(&estate.client(&bad).get(CATALOG), 403, &["revoked"]);
}

#[test]
fn every_crl_of_a_directory_is_used_whatever_its_name() {
    let ca = Ca::new();
    let (bad, good) = (ca.agent("web01"), ca.agent("web01"));
    ca.revoke(&bad);
    let (issuing, all) = (ca.issuing_crl_pem(), ca.crl_pem());
    let root = root_alone(&all);
    let estate = Estate::builder()
        .ca(&ca)
        .file("crls/3f2a.r0", &root, 0o644)
        .file("crls/no extension", &issuing, 0o644)
        .file("crls/README", "CRLs are put here.\n", 0o644)
        .with("[trust]\ncrl = \"{dir}/crls\"")
        .start();
    assert_refused(&estate.client(&bad).get(CATALOG), 403, &["revoked"]);
    assert_eq!(estate.client(&good).get(CATALOG).status, 200);
    assert_eq!(
        estate.proxy.metrics().sum("proscenium_crl_entries", &[]),
        1.0
    );
    // An additional file in the directory counts as a change, and its CRL is used.
    ca.revoke(&good);
    estate
        .proxy
        .write("crls/a newer one", &ca.issuing_crl_pem(), 0o644);
    estate.proxy.reload_applied();
    assert_refused(&estate.client(&good).get(CATALOG), 403, &["revoked"]);
}

#[test]
fn a_crl_whose_issuer_is_not_in_the_bundle_is_used_once_a_client_sends_that_issuer() {
    let ca = Ca::new();
    let with_intermediate = |mut agent: TestCredential| {
        agent.intermediates_pem = ca.issuing_pem();
        agent
    };
    let (good, bad) = (
        with_intermediate(ca.agent("web01")),
        with_intermediate(ca.agent("web01")),
    );
    ca.revoke(&bad);
    let estate = trusting(&ca, "", &ca.root_pem(), &ca.crl_pem()).start();
    assert_eq!(estate.client(&good).get(CATALOG).status, 200);
    assert_refused(&estate.client(&bad).get(CATALOG), 403, &["revoked"]);
    // When that CRL is removed, its issuer counts as one without a CRL.
    estate
        .proxy
        .write("crl.pem", &root_alone(&ca.crl_pem()), 0o644);
    estate.proxy.reload_applied();
    assert_refused(&estate.client(&good).get(CATALOG), 403, &["CRL"]);
    estate.wait_for_record(|record| record["verdict"] == "FAILED:crl-missing");
}

#[test]
fn the_refusal_names_the_certificate_the_fault_and_the_command_to_run() {
    let estate = Estate::start();
    let (agent, over) = (
        estate.ca.agent("web01"),
        estate.ca.leaf("web02").expired().issue(),
    );
    estate.ca.revoke(&agent);
    estate.proxy.swap_crl();
    let text = |credential| estate.client(credential).get(CATALOG).text();
    let number = estate.ca.crl_number();
    let revoked = text(&agent);
    for words in [
        "The certificate \"CN=web01\" (serial 0x",
        &format!("issued by \"CN={}\", valid ", estate.ca.name()),
        ") is revoked. It is on the CRL of CN=",
        &format!(", number {number}. "),
        "on the CA run puppetserver ca clean --certname web01, on the agent run puppet ssl clean",
    ] {
        assert!(revoked.contains(words), "{words:?} is not in {revoked}");
    }
    let expired = text(&over);
    for words in [
        "\"CN=web02\"",
        ") has expired. First, check the clocks of the agent and of the proxy. ",
        "ca clean --certname web02, ",
    ] {
        assert!(expired.contains(words), "{words:?} is not in {expired}");
    }
    // If only the proxy's administrator can fix the fault, the text tells that to the agent, without commands for the
    // proxy.
    let ca = &estate.ca;
    let lacking = trusting(ca, "", &ca.bundle_pem(), &root_alone(&ca.crl_pem())).start();
    let unchecked = lacking.client(&ca.agent("web03")).get(CATALOG).text();
    for words in [
        "the proxy has no CRL of its issuer",
        "Nothing is wrong with the agent's certificate",
        "administrator of the Puppet servers",
    ] {
        assert!(unchecked.contains(words), "{words:?} is not in {unchecked}");
    }
    for words in ["[trust]", "proscenium reload", "puppet ssl clean"] {
        assert!(!unchecked.contains(words), "{words:?} is in {unchecked}");
    }
    lacking
        .proxy
        .wait_for_event("provide its CRL in a file of `[trust] crl`, or on the CA server");
}

#[test]
fn a_start_without_a_crl_is_refused() {
    let ca = Ca::new();
    let outcome = configured(&ca).with("[trust]\ncrl = []").check();
    assert_eq!(outcome.code, Some(78), "{}", outcome.stderr);
    assert!(outcome.stderr.contains("crl"), "{}", outcome.stderr);
    // The CA bundle has its own directory, without a CRL, so there is no CRL to compare a fetched one with.
    let own = "[trust]\nca = \"{dir}/ssl/certs/ca.pem\"\n";
    let outcome = configured(&ca).with(own).fetch("enabled = true").check();
    assert_eq!(outcome.code, Some(78), "{}", outcome.stderr);
    for word in ["the proxy needs a first one", "ca_crl.pem", "[trust.fetch]"] {
        assert!(outcome.stderr.contains(word), "{}", outcome.stderr);
    }
    let outcome = configured(&ca)
        .with("[trust]\ncrl = []\nunchecked = [\"*\"]")
        .check();
    assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
}

/// The CRL of the root CA, which is the one after that of the issuing CA.
fn root_alone(crls: &str) -> String {
    let start = crls.rfind("-----BEGIN X509 CRL-----").expect("two CRLs");
    crls[start..].to_owned()
}

/// A proxy with the usual configuration, for `check`.
fn configured(ca: &Ca) -> ProxyBuilder {
    support::proxy(ca).without_members()
}

/// An estate that verifies clients with these files and this policy.
fn trusting(ca: &Ca, policy: &str, bundle: &str, crl: &str) -> EstateBuilder {
    let table =
        format!("[trust]\nca = [\"{{dir}}/ca.pem\"]\ncrl = [\"{{dir}}/crl.pem\"]\n{policy}");
    Estate::builder()
        .ca(ca)
        .file("ca.pem", bundle, 0o644)
        .file("crl.pem", crl, 0o644)
        .with(&table)
}

/// Puppet Server writes the name of an imported CA in UTF-8. Certificates of agents and compilers of such a CA have an
/// issuer that differs from their CA's subject in its bytes, but not in its value.
#[test]
fn a_ca_imported_with_another_string_type_in_its_name_verifies_its_certificates() {
    let ca = Ca::imported();
    let signed = |ca: &Ca, name| ca.leaf(name).issuer_in_utf8().issue();
    let (agent, bad) = (signed(&ca, "web01"), signed(&ca, "web02"));
    let issuer = |pem: &str| {
        let (_, pem) = x509_parser::pem::parse_x509_pem(pem.as_bytes()).expect("PEM");
        let certificate = pem.parse_x509().expect("a certificate");
        certificate.issuer().as_raw().to_vec()
    };
    let (_, shown) = x509_parser::pem::parse_x509_pem(ca.issuing_pem().as_bytes()).expect("PEM");
    let shown = shown.parse_x509().expect("a certificate");
    assert_ne!(shown.subject().as_raw(), issuer(&agent.cert_pem));

    let estate = Estate::builder().ca(&ca).tls_members().start();
    let client = estate.client(&bad);
    let path = "/puppet/v3/catalog/web02?environment=production";
    assert_eq!(estate.client(&agent).get(CATALOG).status, 200);
    let mut live = client.connect().expect("connects");
    assert_eq!(live.get(path).status, 200);
    assert_identity(
        estate.far_end().last().expect("a request"),
        "SUCCESS",
        Some("CN=web02"),
    );
    ca.revoke(&bad);
    estate.proxy.swap_crl();
    assert!(
        live.is_closed_within(LIMIT),
        "closed as one that is revoked"
    );
    assert_refused(&client.get(path), 403, &["is revoked"]);
    assert_eq!(estate.client(&agent).get(CATALOG).status, 200);
    let namesake = signed(&Ca::imported(), "web01");
    let refused = estate.client(&namesake).get(CATALOG);
    assert_refused(
        &refused,
        403,
        &["The CA's key did not sign this certificate"],
    );
}
