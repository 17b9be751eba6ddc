//! Fetched CRLs in the state directory: a start without the CA uses them.

use std::{fs, os::unix::fs::PermissionsExt, path::PathBuf};

use serde_json::Value;
use tempfile::TempDir;
use testkit::{Ca, Proxy, Reply, TestCredential, wait_until};

use crate::support::{
    Estate, LIMIT, assert_refused,
    crl_fetch::{
        FAILING, ON_REQUEST, answer_crl_requests, fetch, fetching, persisting, start_and_fetch,
        state_table, without_ca,
    },
    paths::CATALOG,
};

#[test]
fn t09_a_start_without_the_ca_uses_the_stored_crl_and_never_an_older_one() {
    let state = TempDir::new().expect("a directory");
    let ca = Ca::new();
    let (bad, late) = (ca.agent("web01"), ca.agent("web01"));
    let first = ca.crl_pem();
    let estate = start_and_fetch(persisting(&ca, ON_REQUEST, &first, state.path()));
    ca.revoke(&bad);
    fetch(&estate.proxy);
    drop(estate);
    for file in stored_crls(&state) {
        let mode = fs::metadata(&file).expect("is there").permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{}", file.display());
    }

    let front = without_ca(&ca, &first, state.path());
    assert_refused(&front.client(&bad).get(CATALOG), 403, &["revoked"]);
    assert_eq!(front.client(&late).get(CATALOG).status, 200);
    front.wait_for_metric(FAILING, &[], 1.0);
    let crls = front.status()["trust"]["crls"].to_string();
    assert!(crls.contains("/crl-"), "{crls}");
    // `check` uses the same CRL before a start.
    let explained = front.command(&["explain"], &["--cert", &written(&front, &bad), CATALOG]);
    assert!(explained.stdout.contains("revoked"), "{explained:?}");
    front.reload();
    assert_refused(&front.client(&bad).get(CATALOG), 403, &["revoked"]);
    drop(front);

    // A file with a newer CRL than the stored one is used, whatever it contains.
    ca.revoke(&late);
    let front = without_ca(&ca, &ca.crl_pem(), state.path());
    for agent in [&bad, &late] {
        assert_refused(&front.client(agent).get(CATALOG), 403, &["revoked"]);
    }
}

#[test]
fn t09_a_stored_crl_that_is_foreign_or_damaged_is_not_used_and_raises_an_alarm() {
    let ca = Ca::new();
    let (bad, other) = (ca.agent("web01"), ca.agent("web01"));
    ca.revoke(&bad);
    let file = ca.crl_pem();
    let state = TempDir::new().expect("a directory");
    let table = state_table(state.path());
    ca.revoke(&other);
    let estate = fetching(&ca, ON_REQUEST).with(&table).start();
    let kept = wait_until(LIMIT, || {
        let kept = stored_crls(&state);
        (kept.len() == 2).then_some(kept)
    });
    let kept = kept.expect("one for each CA");
    drop(estate);
    let whole: Vec<_> = kept
        .iter()
        .map(|file| fs::read(file).expect("is read"))
        .collect();
    let bent: Vec<_> = whole
        .iter()
        .map(|bytes| with_a_bit_flipped(bytes))
        .collect();
    let swapped: Vec<_> = whole.iter().rev().cloned().collect();
    let halves: Vec<_> = whole
        .iter()
        .map(|bytes| bytes[..bytes.len() / 2].to_vec())
        .collect();
    let garbage = vec![b"garbage".to_vec(); 2];
    for (what, contents, mode) in [
        ("one bit", bent, 0o600),
        ("each other's", swapped, 0o600),
        ("halves", halves, 0o600),
        ("garbage", garbage, 0o600),
        ("nothing", vec![Vec::new(); 2], 0o600),
        ("world-writable", whole, 0o666),
    ] {
        for (file, bytes) in kept.iter().zip(contents) {
            fs::write(file, bytes).expect("is written");
            // Where the CRL was signed again meanwhile, the serials are stored too.
            let _ = fs::remove_file(file.with_extension("serials"));
            fs::set_permissions(file, fs::Permissions::from_mode(mode)).expect("is ours");
        }
        let front = without_ca(&ca, &file, state.path());
        // The CRL file applies, as if no CRL had been stored.
        assert_refused(&front.client(&bad).get(CATALOG), 403, &["revoked"]);
        assert_eq!(front.client(&other).get(CATALOG).status, 200, "{what}");
        let alarms = front.status()["trust"]["alarms"].to_string();
        assert!(alarms.contains("the saved CRL of"), "{what}: {alarms}");
        front.wait_for_event("the saved CRL of");
    }
    // The next fetch replaces the damaged CRL.
    let table = state_table(state.path());
    let estate = fetching(&ca, ON_REQUEST).with(&table).start();
    estate.wait_for_status("no alarm is left", |status| {
        status["trust"]["alarms"] == Value::Array(Vec::new())
    });
    drop(estate);
    let front = without_ca(&ca, &file, state.path());
    assert_refused(&front.client(&other).get(CATALOG), 403, &["revoked"]);
}

#[test]
fn a_fetched_crl_that_cannot_be_stored_is_active_with_an_alarm() {
    let ca = Ca::new();
    let agent = ca.agent("web01");
    let estate = start_and_fetch(
        fetching(&ca, ON_REQUEST)
            .file("occupied", "a file", 0o600)
            .with("[state]\ndirectory = \"{dir}/occupied\""),
    );
    ca.revoke(&agent);
    let output = fetch(&estate.proxy);
    assert!(
        output.contains("it could not be saved for the next start"),
        "{output}"
    );
    assert_refused(&estate.client(&agent).get(CATALOG), 403, &["revoked"]);
    let state = estate.proxy.status()["state"].clone();
    assert!(state["unusable"].is_string(), "{state}");
}

/// The CRL is longer than the data that may arrive with the head of a response; a CRL with 20,000 entries is as long.
#[test]
fn a_crl_of_several_megabytes_is_fetched_and_stored() {
    let ca = Ca::new();
    let (bad, good) = (ca.agent("web01"), ca.agent("web01"));
    let (state, small) = (TempDir::new().expect("a directory"), ca.crl_pem());
    let table = state_table(state.path());
    let estate = start_and_fetch(fetching(&ca, ON_REQUEST).with(&table));
    ca.revoke_strangers(60_000);
    ca.revoke(&bad);
    assert!(ca.crl_pem().len() > 2 << 20);
    fetch(&estate.proxy);
    assert_refused(&estate.client(&bad).get(CATALOG), 403, &["revoked"]);
    assert_eq!(estate.client(&good).get(CATALOG).status, 200);
    drop(estate);
    let front = without_ca(&ca, &small, state.path());
    assert_refused(&front.client(&bad).get(CATALOG), 403, &["revoked"]);
}

#[test]
fn t08_a_ca_that_leaves_the_bundle_and_returns_has_its_fetched_crl() {
    let ca = Ca::new();
    let (bad, good) = (ca.agent("web01"), ca.agent("web01"));
    // A bundle without any CRL is refused.
    let other = Ca::other();
    let file = ca.crl_pem() + &other.crl_pem();
    let estate = start_and_fetch(fetching(&ca, ON_REQUEST).file("ssl/crl.pem", &file, 0o644));
    ca.revoke(&bad);
    fetch(&estate.proxy);
    assert_refused(&estate.client(&bad).get(CATALOG), 403, &["revoked"]);
    // From now on no fetch can succeed, and the file is older than the stored CRL.
    estate.ca_server.stop();
    for (bundle, reason, status) in [
        (other.bundle_pem(), "CA", 403),
        (ca.bundle_pem(), "revoked", 200),
    ] {
        estate.proxy.write("ssl/certs/ca.pem", &bundle, 0o644);
        estate.proxy.reload_applied();
        assert_refused(&estate.client(&bad).get(CATALOG), 403, &[reason]);
        assert_eq!(estate.client(&good).get(CATALOG).status, status);
    }
}

fn stored_crls(state: &TempDir) -> Vec<PathBuf> {
    let entries = fs::read_dir(state.path()).expect("a directory");
    let mut files: Vec<_> = entries
        .map(|entry| entry.expect("an entry").path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "der"))
        .collect();
    files.sort();
    files
}

fn written(proxy: &Proxy, credential: &TestCredential) -> String {
    proxy.write("agent.pem", &credential.cert_pem, 0o644);
    proxy.directory().join("agent.pem").display().to_string()
}

fn with_a_bit_flipped(bytes: &[u8]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    let last = bytes.len() - 3;
    bytes[last] ^= 1;
    bytes
}

#[test]
fn a_stored_crl_above_a_limit_of_responses_that_was_lowered_since_is_used() {
    let state = TempDir::new().expect("a directory");
    let ca = Ca::new();
    let (bad, file) = (ca.agent("web01"), ca.crl_pem());
    let large = ca.other_crl_pem(100, &[&bad; 100]) + &file;
    let with_limit = |limit: &str| {
        let lines = format!("{ON_REQUEST}\n{limit}");
        let estate = start_and_fetch(persisting(&ca, &lines, &file, state.path()));
        answer_crl_requests(&estate.ca_server, Reply::ok(&large));
        estate
    };
    let estate = with_limit("");
    fetch(&estate.proxy);
    drop(estate);
    let estate = with_limit("body_max = \"1KiB\"");
    assert_refused(&estate.client(&bad).get(CATALOG), 403, &["revoked"]);
}

#[test]
fn what_a_crl_lists_again_outlasts_a_failure_to_store_that_crl() {
    let state = TempDir::new().expect("a directory");
    let ca = Ca::new();
    let [dropped, other] = ["a", "b"].map(|_| ca.agent("web01"));
    let root = ca.crl_pem();
    let estate = start_and_fetch(persisting(&ca, ON_REQUEST, &root, state.path()));
    let fetch_of = |number, revoked: &[&TestCredential]| {
        let crl = ca.other_crl_pem(number, revoked) + &root;
        answer_crl_requests(&estate.ca_server, Reply::ok(&crl));
        estate.proxy.command(&["crl", "fetch"], &[])
    };
    fetch_of(100, &[&dropped]);
    fetch_of(101, &[&other]);
    // Nothing can be renamed to the name of a directory.
    for file in stored_crls(&state) {
        fs::remove_file(&file).expect("is there");
        fs::create_dir(&file).expect("is created");
    }
    fetch_of(102, &[&dropped, &other]);
    drop(estate);
    let front = without_ca(&ca, &root, state.path());
    assert_refused(&front.client(&dropped).get(CATALOG), 403, &["revoked"]);
}

#[test]
fn a_damaged_record_of_accepted_crls_is_kept_with_an_alarm_until_an_operator_acts() {
    let state = TempDir::new().expect("a directory");
    let ca = Ca::new();
    let file = ca.crl_pem();
    let start = || start_and_fetch(persisting(&ca, ON_REQUEST, &file, state.path()));
    drop(start());
    let accepted = state.path().join("crl-accepted.json");
    let aside = state.path().join("crl-accepted.json.damaged");
    fs::write(&accepted, "no JSON").expect("is written");
    let alarms = |estate: &Estate| {
        let alarms = estate.proxy.status()["trust"]["alarms"].to_string();
        alarms
            .matches("cannot read which CRLs operators have accepted")
            .count()
    };
    for _ in 0..2 {
        let estate = start();
        estate.proxy.command(&["crl", "fetch"], &[]);
        assert!(alarms(&estate) > 0);
        assert_eq!(fs::read_to_string(&aside).expect("is there"), "no JSON");
        assert_ne!(
            fs::read_to_string(&accepted).ok().as_deref(),
            Some("no JSON")
        );
    }
    let estate = start();
    fs::remove_file(&aside).expect("is there");
    estate.proxy.reload();
    estate.wait_for_status("the alarm ends", |status| {
        let alarms = status["trust"]["alarms"].to_string();
        !alarms.contains("cannot read which CRLs")
    });
}

/// During a rotation, the agent's file on this machine may lack the CRL of the new CA. The proxy has fetched and stored
/// that CRL.
#[test]
fn check_and_doctor_count_the_stored_crl_of_a_new_ca() {
    let state = TempDir::new().expect("a directory");
    let (ca, new) = (Ca::new(), Ca::other());
    let both = format!("{}{}", ca.bundle_pem(), new.bundle_pem());
    let builder = persisting(&ca, ON_REQUEST, &ca.crl_pem(), state.path());
    let estate = start_and_fetch(builder.file("ssl/certs/ca.pem", &both, 0o644));
    let missing = "no CRL of CA";
    let printed = || {
        ["check", "doctor"].map(|verb| {
            let outcome = estate.proxy.command(&[verb], &[]);
            outcome.stdout + &outcome.stderr
        })
    };
    for printed in printed() {
        assert!(printed.contains(missing), "{printed}");
    }
    let served = format!("{}{}", ca.crl_pem(), new.crl_pem());
    answer_crl_requests(&estate.ca_server, Reply::ok(&served));
    fetch(&estate.proxy);
    for printed in printed() {
        assert!(!printed.contains(missing), "{printed}");
    }
}
