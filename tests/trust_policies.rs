//! The settings of `[trust]` and `[[trust.issuers]]` for an issuer apply to its certificates only.

use testkit::{Ca, TestCredential, wait_until};

use crate::support::{
    self, Estate, EstateBuilder, LIMIT, assert_identity, assert_refused, paths::CATALOG,
};

#[test]
fn t09_each_issuer_has_its_own_policy_for_an_expired_crl() {
    let of_theirs = |policy: &str| {
        let name = Ca::other().name();
        format!("[[trust.issuers]]\nname = \"CN={name}\"\ncrl_expired = \"{policy}\"")
    };
    for (policies, mine_is_in, theirs_is_in) in [
        (of_theirs("reject"), true, false),
        (of_theirs("grace:1m"), true, false),
        (of_theirs("grace:366d"), true, true),
        (
            format!("crl_expired = \"reject\"\n{}", of_theirs("warn")),
            false,
            true,
        ),
        ("crl_expired = \"grace:1m\"".to_owned(), false, false),
        ("crl_expired = \"grace:48h\"".to_owned(), true, true),
    ] {
        let (ours, theirs) = (Ca::new(), Ca::other());
        let revoked = [ours.agent("web01"), theirs.agent("web01")];
        ours.revoke(&revoked[0]);
        theirs.revoke(&revoked[1]);
        ours.crl_next_update_days(-1);
        theirs.crl_next_update_days(-1);
        let estate = verified_with_both(&ours, &theirs, &policies).start();
        for (ca, accepted) in [(&ours, mine_is_in), (&theirs, theirs_is_in)] {
            assert_verdict(&estate, &ca.agent("web01"), accepted, "crl-expired");
        }
        for agent in &revoked {
            assert_refused(&estate.client(agent).get(CATALOG), 403, &["is revoked"]);
        }
        let metrics = estate.proxy.metrics();
        let now = metrics.sum("proscenium_crl_next_update_timestamp_seconds", &[]);
        for ca in [&ours, &theirs] {
            let issuer = format!("CN={}", ca.name());
            let labels = [("issuer", issuer.as_str())];
            assert_eq!(metrics.sum("proscenium_crl_expired", &labels), 1.0);
            assert_eq!(metrics.sum("proscenium_crl_entries", &labels), 1.0);
            assert_eq!(metrics.sum("proscenium_crl_number", &labels), 2.0);
            assert!(metrics.sum("proscenium_crl_age_seconds", &labels) > 86_400.0);
            assert!(metrics.sum("proscenium_crl_next_update_timestamp_seconds", &labels) < now);
        }
        let root = format!("CN={}", ours.name().replace("CA:", "Root CA:"));
        assert_eq!(
            metrics.sum("proscenium_crl_expired", &[("issuer", &root)]),
            0.0
        );
    }
}

#[test]
fn after_the_grace_an_expired_crl_refuses_on_live_connections_and_each_step_is_an_event() {
    let ca = Ca::new();
    ca.crl_next_update_seconds(2);
    let estate = verified_with(&ca, "crl_expired = \"grace:8s\"").start();
    let mut live = estate
        .client(&ca.agent("web01"))
        .connect()
        .expect("connects");
    assert_eq!(live.get(CATALOG).status, 200);
    let issuer = format!("CN={}", ca.name());
    let metrics = estate.proxy.metrics();
    let until = |name| metrics.sum(name, &[("issuer", &issuer)]);
    let grace = until("proscenium_crl_accepted_until_timestamp_seconds")
        - until("proscenium_crl_next_update_timestamp_seconds");
    assert_eq!(grace, 8.0);
    for words in [
        "Z: it stays in use until",
        "Z: its issuer's certificates are refused",
    ] {
        let said = |text: &str| {
            let mut lines = text.lines();
            lines.any(|line| line.contains(&issuer) && line.contains(words))
        };
        let heard = wait_until(LIMIT, || said(&estate.proxy.stderr()).then_some(()));
        assert!(heard.is_some(), "{words:?}: {}", estate.proxy.stderr());
    }
    // The state becomes worse: the proxy logs an error, and the alarm stays active with its original start time.
    let stderr = estate.proxy.stderr();
    assert!(!stderr.contains("cleared: the CRL of"), "{stderr}");
    let refuses = |line: &&str| line.contains("Z: its issuer's certificates are refused");
    let line = stderr.lines().find(refuses).expect("it was found above");
    assert!(line.contains("ERROR"), "{line}");
    let alarms = estate.proxy.status()["alarms"].clone();
    let key = format!("agents-refused:CRL of {issuer}");
    assert_eq!(alarms[0]["key"], key, "{alarms:#}");
    let answer = live.get(CATALOG);
    let advice = "Nothing is wrong with the agent's certificate";
    assert_refused(&answer, 403, &["expired on", "grace period", advice]);
    assert!(!answer.text().contains("proscenium "), "{}", answer.text());
    assert!(answer.says_close());
    estate.wait_for_record(|record| record["verdict"] == "FAILED:crl-expired");
    let crl = &estate.proxy.status()["trust"]["crls"][0];
    assert_eq!(crl["expired"], true, "{crl:#}");
    assert!(crl["accepted_until"].is_string(), "{crl:#}");
    // A new CRL ends the alarm, which the proxy logs as an event.
    ca.crl_next_update_days(30);
    estate.proxy.write("crl.pem", &both_crls(&ca, None), 0o644);
    estate.proxy.reload_applied();
    assert_verdict(&estate, &ca.agent("web01"), true, "");
    let said = wait_until(LIMIT, || {
        let stderr = estate.proxy.stderr();
        stderr.contains("cleared: the CRL of").then_some(())
    });
    assert!(said.is_some(), "{}", estate.proxy.stderr());
}

#[test]
fn check_and_reload_refuse_crls_that_refuse_every_agent() {
    let ca = Ca::new();
    let lists = ca.crl_pem();
    let root = lists[lists.rfind("-----BEGIN").expect("two CRLs")..].to_owned();
    let foreign = Ca::other().crl_pem();
    ca.crl_next_update_days(-1);
    let expired = ca.crl_pem();
    let issuing = format!("CN={}", ca.name());
    for (list, policy, words) in [
        (&root, "", &*issuing),
        (&format!("{root}{foreign}"), "", &*issuing),
        (&foreign, "", "cannot be used"),
        (&expired, "crl_expired = \"reject\"", "has expired"),
    ] {
        let checked = support::proxy(&ca)
            .file("other.pem", list, 0o644)
            .with(&format!("[trust]\ncrl = \"{{dir}}/other.pem\"\n{policy}"))
            .without_members()
            .check();
        assert_eq!(checked.code, Some(78), "{}", checked.stderr);
        for words in ["every agent is refused", words] {
            assert!(checked.stderr.contains(words), "{}", checked.stderr);
        }
        let estate = verified_with(&ca, "").start();
        let agent = ca.agent("web01");
        assert_verdict(&estate, &agent, true, "");
        estate.proxy.write("other.pem", list, 0o644);
        let config = estate.proxy.config_text();
        let line = config.lines().find(|line| line.starts_with("crl = "));
        let line = line.expect("a CRL file").to_owned();
        let other = estate.proxy.directory().join("other.pem");
        let other = format!("crl = \"{}\"\n{policy}", other.display());
        estate.edit_config(&line, &other);
        let outcome = estate.proxy.reload();
        assert_eq!(outcome["result"], "refused", "{outcome:#}");
        let report = outcome["report"].as_str().unwrap_or_default();
        assert!(report.contains("every agent is refused"), "{report}");
        assert!(report.contains(words), "{report}");
        assert_verdict(&estate, &agent, true, "");
    }
}

#[test]
fn each_issuer_can_require_a_crl_or_not() {
    let ca = Ca::new();
    let root = format!("CN={}", ca.name().replace("CA:", "Root CA:"));
    for (policies, accepted) in [
        (String::new(), false),
        (own(&root, "unchecked = true"), true),
        (own(&format!("CN={}", ca.name()), "unchecked = true"), false),
        (
            format!("unchecked = [\"*\"]\n{}", own(&root, "unchecked = false")),
            false,
        ),
        (
            format!(
                "unchecked = [\"*\"]\n{}",
                own(&root, "crl_expired = \"reject\"")
            ),
            true,
        ),
    ] {
        let revoked = ca.agent("web01");
        ca.revoke(&revoked);
        let estate = trusting(&ca, &policies, &ca.bundle_pem(), &ca.issuing_crl_pem()).start();
        assert_verdict(&estate, &ca.agent("web01"), accepted, "crl-missing");
        // The CRL of the issuing CA is still used.
        assert_refused(&estate.client(&revoked).get(CATALOG), 403, &["is revoked"]);
    }
}

#[test]
fn with_leaf_a_revoked_ca_is_accepted_and_a_revoked_agent_refused() {
    let root = format!("CN={}", Ca::new().name().replace("CA:", "Root CA:"));
    let issuing = format!("CN={}", Ca::new().name());
    for (policies, accepted) in [
        (String::new(), false),
        ("revocation = \"chain\"".to_owned(), false),
        ("revocation = \"leaf\"".to_owned(), true),
        (own(&root, "revocation = \"leaf\""), true),
        (own(&issuing, "revocation = \"leaf\""), false),
        (
            format!(
                "revocation = \"leaf\"\n{}",
                own(&root, "revocation = \"chain\"")
            ),
            false,
        ),
    ] {
        let ca = Ca::new();
        ca.revoke_intermediate();
        let revoked = ca.agent("web01");
        ca.revoke(&revoked);
        let estate = verified_with(&ca, &policies).start();
        assert_verdict(&estate, &ca.agent("web01"), accepted, "revoked");
        assert_refused(&estate.client(&revoked).get(CATALOG), 403, &["is revoked"]);
        // Without a CRL of the root, the proxy reports a missing CRL only if the policy requires that CRL.
        drop(estate);
        let estate = trusting(&ca, &policies, &ca.bundle_pem(), &ca.issuing_crl_pem()).start();
        assert_verdict(&estate, &ca.agent("web01"), accepted, "crl-missing");
        let missing = estate.proxy.status()["trust"]["crl_missing"].clone();
        let is_missing = missing.to_string().contains("Root CA");
        assert_eq!(is_missing, !accepted, "{policies}: {missing}");
    }
}

#[test]
fn a_policy_for_an_unknown_ca_is_an_alarm() {
    let ca = Ca::new();
    let estate = verified_with(&ca, &own("CN=Puppet CA: tset", "crl_expired = \"reject\"")).start();
    let alarms = estate.proxy.status()["trust"]["alarms"].to_string();
    assert!(alarms.contains("Puppet CA: tset"), "{alarms}");
    assert_verdict(&estate, &ca.agent("web01"), true, "");
}

/// Asserts the result for an agent: accepted and forwarded as such, or refused for this reason without a request to a
/// member. A CA that cannot be used must not leave those below it trusted as roots of their own, where no CRL can
/// revoke them.
#[test]
fn no_client_below_an_unusable_root_is_accepted_and_a_start_logs_the_reason() {
    let (ours, theirs) = (Ca::new(), Ca::other());
    let unable = theirs.root_pem_for_lists_alone();
    let bundle = ours.bundle_pem() + &unable + &theirs.issuing_pem();
    let estate = trusting(&ours, "", &bundle, &both_crls(&ours, Some(&theirs))).start();
    assert_verdict(&estate, &ours.agent("web01"), true, "");
    assert_verdict(&estate, &theirs.agent("web01"), false, "unknown-issuer");

    let only = unable + &theirs.issuing_pem();
    let checked = support::proxy(&theirs)
        .file("ca.pem", &only, 0o644)
        .with("[trust]\nca = [\"{dir}/ca.pem\"]\nunchecked = [\"*\"]")
        .without_members()
        .check();
    assert_eq!(checked.code, Some(78), "{}", checked.stderr);
    for words in [
        "block 1 is not used as a CA: the key usage of",
        "block 2 is not used as a CA: its issuer",
        "no valid CA certificate",
    ] {
        assert!(checked.stderr.contains(words), "{}", checked.stderr);
    }
}

#[track_caller]
fn assert_verdict(estate: &Estate, agent: &TestCredential, accepted: bool, reason: &str) {
    estate.forget();
    let answer = estate.client(agent).get(CATALOG);
    if accepted {
        assert_eq!(answer.status, 200, "{answer:?}");
        assert_identity(&estate.only_request(), "SUCCESS", Some("CN=web01"));
    } else {
        assert_eq!(answer.status, 403, "{answer:?}");
        assert!(estate.far_end().is_empty());
        let verdict = format!("FAILED:{reason}");
        estate.wait_for_record(|record| record["verdict"] == verdict.as_str());
    }
}

fn own(issuer: &str, policy: &str) -> String {
    format!("[[trust.issuers]]\nname = \"{issuer}\"\n{policy}\n")
}

fn verified_with(ca: &Ca, policies: &str) -> EstateBuilder {
    trusting(ca, policies, &ca.bundle_pem(), &both_crls(ca, None))
}

fn verified_with_both(ours: &Ca, theirs: &Ca, policies: &str) -> EstateBuilder {
    let bundle = ours.bundle_pem() + &theirs.bundle_pem();
    trusting(ours, policies, &bundle, &both_crls(ours, Some(theirs)))
}

fn both_crls(ours: &Ca, theirs: Option<&Ca>) -> String {
    ours.crl_pem() + &theirs.map(Ca::crl_pem).unwrap_or_default()
}

/// An estate that verifies clients with these files and these policies.
fn trusting(ca: &Ca, policies: &str, bundle: &str, crl: &str) -> EstateBuilder {
    let table =
        format!("[trust]\nca = [\"{{dir}}/ca.pem\"]\ncrl = [\"{{dir}}/crl.pem\"]\n{policies}");
    Estate::builder()
        .ca(ca)
        .file("ca.pem", bundle, 0o644)
        .file("crl.pem", crl, 0o644)
        .with(&table)
}
