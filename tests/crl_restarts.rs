//! CRLs and decisions that are stored for the next start: the active ones and none from before, as soon as the
//! directory can be written.

use std::{
    fs,
    path::{Path, PathBuf},
};

use serde_json::Value;
use tempfile::TempDir;
use testkit::{Ca, Reply, wait_until};

use crate::support::{
    LIMIT, assert_refused,
    crl_fetch::{
        CRL_PATH, ON_REQUEST, answer_crl_requests, persisting, start_and_fetch, without_ca,
    },
    done,
    paths::CATALOG,
};

#[test]
fn t10_a_crl_that_the_operator_replaced_is_neither_stored_nor_served() {
    let state = TempDir::new().expect("a directory");
    let ca = Ca::new();
    let (lost, bad) = (ca.agent("web01"), ca.agent("web01"));
    let old = ca.crl_pem();
    ca.revoke(&lost);
    let builder = persisting(&ca, ON_REQUEST, &old, state.path());
    let estate = start_and_fetch(builder.with("[ca]\nedge_answers = true"));
    // The stand-in signs its CRL again for each request.
    ca.renew_crl();
    let replaced = ca.crl_pem();
    answer_crl_requests(&estate.ca_server, Reply::ok(&replaced));
    done(&estate.proxy, &["crl", "fetch"], &[]);
    // The CA is restored from a backup and continues with the old CRL.
    answer_crl_requests(&estate.ca_server, Reply::ok(&old));
    assert_eq!(estate.proxy.command(&["crl", "fetch"], &[]).code, Some(1));
    let issuer = format!("CN={}", ca.name());
    done(
        &estate.proxy,
        &["crl", "accept"],
        &[&issuer, "--why", "restored"],
    );
    let now = ca.other_crl_pem(ca.crl_number() + 1, &[&bad]);
    answer_crl_requests(&estate.ca_server, Reply::ok(&now));
    done(&estate.proxy, &["crl", "fetch"], &[]);
    assert_refused(&estate.client(&bad).get(CATALOG), 403, &["revoked"]);
    // A CA server that still has the replaced CRL answers.
    answer_crl_requests(&estate.ca_server, Reply::ok(&replaced));
    done(&estate.proxy, &["crl", "fetch"], &[]);
    assert_refused(&estate.client(&bad).get(CATALOG), 403, &["revoked"]);
    let answered = estate.anonymous().get(CRL_PATH);
    assert_eq!(answered.text(), now, "agents get the active CRL");
    let alarms = estate.proxy.status()["trust"]["alarms"].to_string();
    assert!(alarms.contains("an operator has replaced"), "{alarms}");
    drop(estate);
    // A start does not use the replaced CRL either, whatever the file contains.
    let front = without_ca(&ca, &old, state.path());
    assert_refused(&front.client(&bad).get(CATALOG), 403, &["revoked"]);
}

#[test]
fn t09_a_failed_store_is_repeated_until_it_succeeds() {
    let place = TempDir::new().expect("a directory");
    let state = place.path().join("state");
    fs::write(&state, "no directory").expect("is written");
    let ca = Ca::new();
    let (bad, lost, good) = (ca.agent("web01"), ca.agent("web02"), ca.agent("web01"));
    let old = ca.crl_pem();
    ca.revoke(&bad);
    let first = ca.crl_pem();
    let estate = start_and_fetch(persisting(&ca, ON_REQUEST, &first, &state));
    // Changes all three things that are stored: a decision, the CRL that it accepts, and a block.
    let accepted = ca.other_crl_pem(0, &[&good]);
    answer_crl_requests(&estate.ca_server, Reply::ok(&accepted));
    assert_eq!(estate.proxy.command(&["crl", "fetch"], &[]).code, Some(1));
    let issuer = format!("CN={}", ca.name());
    let verbs: [(&[&str], &[&str]); 2] = [
        (&["crl", "accept"], &[&issuer, "--why", "restored"]),
        (&["block"], &["web02", "--why", "stolen"]),
    ];
    for (words, arguments) in verbs {
        let outcome = estate.proxy.command(words, arguments);
        assert_eq!(outcome.code, Some(0), "{outcome:?}");
        assert!(outcome.stderr.contains("restart"), "{outcome:?}");
    }
    // From now on, the CA answers no fetch, and the operator blocks no certificate.
    estate.ca_server.stop();
    fs::remove_file(&state).expect("is removed");
    estate.wait_for_status("all is kept", |status| {
        status["state"]["unusable"].is_null()
    });
    drop(estate);
    let front = without_ca(&ca, &old, &state);
    assert_eq!(front.client(&bad).get(CATALOG).status, 200);
    assert_refused(&front.client(&good).get(CATALOG), 403, &["revoked"]);
    let catalog = CATALOG.replace("web01", "web02");
    assert_refused(&front.client(&lost).get(&catalog), 403, &["is blocked"]);
}

#[test]
fn a_stored_crl_that_was_deleted_is_written_again_at_the_next_fetch() {
    let state = TempDir::new().expect("a directory");
    let ca = Ca::new();
    ca.revoke(&ca.agent("web01"));
    let file = ca.crl_pem();
    let estate = start_and_fetch(persisting(&ca, ON_REQUEST, &file, state.path()));
    answer_crl_requests(&estate.ca_server, Reply::ok(&file));
    done(&estate.proxy, &["crl", "fetch"], &[]);
    let stored = stored_crl(state.path()).expect("is stored");
    let before = fs::read(&stored).expect("is read");
    fs::remove_file(&stored).expect("is removed");
    done(&estate.proxy, &["crl", "fetch"], &[]);
    assert_eq!(fs::read(&stored).expect("is written again"), before);
}

#[test]
fn the_alarm_about_the_state_lasts_until_everything_is_stored() {
    let state = TempDir::new().expect("a directory");
    let ca = Ca::single("alone");
    let bad = ca.agent("web01");
    let old = ca.crl_pem();
    let estate = start_and_fetch(persisting(&ca, ON_REQUEST, &old, state.path()));
    // A directory cannot be replaced by a file.
    let list = wait_until(LIMIT, || stored_crl(state.path())).expect("is kept");
    fs::remove_file(&list).expect("is removed");
    fs::create_dir(&list).expect("is made");
    ca.revoke(&bad);
    let output = done(&estate.proxy, &["crl", "fetch"], &[]);
    assert!(
        output.contains("it could not be saved for the next start"),
        "{output}"
    );
    done(&estate.proxy, &["block"], &["web07", "--why", "lost"]);
    let unusable = estate.proxy.status()["state"]["unusable"].to_string();
    assert!(unusable.contains("/crl-"), "{unusable}");
    estate.ca_server.stop();
    fs::remove_dir(&list).expect("is removed");
    estate.wait_for_status("all is kept", |status| {
        status["state"]["unusable"].is_null()
    });
    drop(estate);
    let front = without_ca(&ca, &old, state.path());
    assert_refused(&front.client(&bad).get(CATALOG), 403, &["revoked"]);
}

#[test]
fn t10_the_agents_copy_drops_no_fetched_revocation_now_or_after_a_restart() {
    let state = TempDir::new().expect("a directory");
    let ca = Ca::single("alone");
    let bad = ca.agent("web01");
    let old = ca.crl_pem();
    let estate = start_and_fetch(persisting(&ca, ON_REQUEST, &old, state.path()));
    ca.revoke(&bad);
    done(&estate.proxy, &["crl", "fetch"], &[]);
    assert_refused(&estate.client(&bad).get(CATALOG), 403, &["revoked"]);
    // From now on, the CA returns a CRL that the proxy refuses. The agent on this host accepts it.
    let lacking = ca.other_crl_pem(ca.crl_number() + 10, &[]);
    answer_crl_requests(&estate.ca_server, Reply::ok(&lacking));
    let fetch = || estate.proxy.command(&["crl", "fetch"], &[]).code;
    assert_eq!(fetch(), Some(1));
    estate.proxy.write("ssl/crl.pem", &lacking, 0o644);
    estate.proxy.reload_applied();
    let words = "a CRL drops revocations";
    assert_refused(&estate.client(&bad).get(CATALOG), 403, &["revoked"]);
    assert_eq!(fetch(), Some(1));
    let alarms = || estate.proxy.status()["trust"]["alarms"].to_string();
    assert!(alarms().contains(words), "{}", alarms());

    estate.proxy.terminate();
    let front = without_ca(&ca, &lacking, state.path());
    assert_refused(&front.client(&bad).get(CATALOG), 403, &["revoked"]);
    let alarms = front.status()["trust"]["alarms"].to_string();
    assert!(alarms.contains(words), "{alarms}");
    front.wait_for_event(words);
    front.reload();
    assert_refused(&front.client(&bad).get(CATALOG), 403, &["revoked"]);
    drop(front);

    // The operator's decision applies to both sources.
    let estate = start_and_fetch(persisting(&ca, ON_REQUEST, &lacking, state.path()));
    answer_crl_requests(&estate.ca_server, Reply::ok(&lacking));
    assert_eq!(estate.proxy.command(&["crl", "fetch"], &[]).code, Some(1));
    let issuer = format!("CN={}", ca.name());
    done(
        &estate.proxy,
        &["crl", "accept"],
        &[&issuer, "--why", "pruned"],
    );
    assert_eq!(estate.client(&bad).get(CATALOG).status, 200);
    let trust = estate.proxy.status()["trust"].clone();
    assert_eq!(trust["alarms"], Value::Array(Vec::new()), "{trust:#}");
}

#[test]
fn t09_a_start_uses_the_stored_crl_and_an_older_file_together() {
    let state = TempDir::new().expect("a directory");
    let ca = Ca::new();
    let (bad, other) = (ca.agent("web01"), ca.agent("web01"));
    let old = ca.crl_pem();
    let estate = start_and_fetch(persisting(&ca, ON_REQUEST, &old, state.path()));
    ca.revoke(&bad);
    ca.renew_crl();
    done(&estate.proxy, &["crl", "fetch"], &[]);
    drop(estate);
    let file = ca.other_crl_pem(ca.crl_number() - 1, &[&other]);
    let front = without_ca(&ca, &file, state.path());
    for agent in [&bad, &other] {
        assert_refused(&front.client(agent).get(CATALOG), 403, &["revoked"]);
    }
    // An outdated copy is found at every start, and raises no alarm.
    let alarms = front.status()["trust"]["alarms"].to_string();
    assert!(!alarms.contains("drops revocations"), "{alarms}");
}

#[test]
fn t10_an_accepted_crl_stays_accepted_after_a_restart() {
    let state = TempDir::new().expect("a directory");
    let ca = Ca::single("alone");
    let gone = ca.agent("web01");
    ca.revoke(&gone);
    let file = ca.crl_pem();
    let estate = start_and_fetch(persisting(&ca, ON_REQUEST, &file, state.path()));
    let pruned = ca.other_crl_pem(ca.crl_number() + 1, &[]);
    answer_crl_requests(&estate.ca_server, Reply::ok(&pruned));
    assert_eq!(estate.proxy.command(&["crl", "fetch"], &[]).code, Some(1));
    let issuer = format!("CN={}", ca.name());
    done(
        &estate.proxy,
        &["crl", "accept"],
        &[&issuer, "--why", "pruned"],
    );
    drop(estate);
    // The file is unchanged: no agent has refreshed it.
    let front = without_ca(&ca, &file, state.path());
    assert_eq!(front.client(&gone).get(CATALOG).status, 200);
    front.reload();
    assert_eq!(front.client(&gone).get(CATALOG).status, 200);
}

/// The CRL of the only CA.
fn stored_crl(state: &Path) -> Option<PathBuf> {
    let entries = fs::read_dir(state).ok()?;
    let mut paths = entries.map(|entry| entry.expect("an entry").path());
    paths.find(|path| path.extension().is_some_and(|extension| extension == "der"))
}
