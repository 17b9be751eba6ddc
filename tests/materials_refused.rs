//! Changed materials that the proxy refuses: the last valid ones stay active and an alarm is raised.

use std::{
    fs::{self},
    thread,
};

use testkit::{Ca, TestCredential, wait_until};

use crate::support::{
    Estate, LIMIT, assert_refused,
    materials::{
        CHECK_INTERVAL_MIN, CHECKS, IMPATIENT, MEMBER_TLS, NOT_VALID_YET, NOTIFY, PATIENT, REFUSED,
        estate, refusals, served, wait_for_alarm, wait_for_certificate, wait_for_crl,
        wait_for_end_of_alarm, wait_for_report, wait_for_words,
    },
    paths::CATALOG,
    wait_for,
};

#[test]
fn invalid_files_leave_the_last_valid_ones_active_with_an_alarm() {
    let estate = estate(&[NOTIFY, IMPATIENT].join("\n")).start();
    let (agent, bad) = (estate.ca.agent("web01"), estate.ca.agent("web01"));
    estate.ca.revoke(&bad);
    estate.proxy.write_crl();
    wait_for_crl(&estate.proxy, estate.ca.crl_number());
    let file = |name: &str| fs::read_to_string(estate.proxy.ssldir().join(name)).expect("is there");
    let (crl, ca, key) = (
        file("crl.pem"),
        file("certs/ca.pem"),
        file("private_keys/puppet.pem"),
    );
    let chain = file("certs/puppet.pem");
    let stranger = estate.ca.server("puppet").cert_pem;
    let root = root_alone(&crl);
    for (name, text, mode, good, good_mode, expected) in [
        ("crl.pem", "no CRL at all", 0o644, &crl, 0o644, "crl.pem"),
        (
            "crl.pem",
            &crl[..crl.len() - 60],
            0o644,
            &crl,
            0o644,
            "crl.pem",
        ),
        ("crl.pem", &root, 0o644, &crl, 0o644, "CRL of CN="),
        ("certs/ca.pem", "", 0o644, &ca, 0o644, "ca.pem"),
        (
            "certs/puppet.pem",
            "garbage",
            0o644,
            &chain,
            0o644,
            "puppet.pem",
        ),
        (
            "certs/puppet.pem",
            &stranger,
            0o644,
            &chain,
            0o644,
            "puppet.pem",
        ),
        (
            "private_keys/puppet.pem",
            &key,
            0o644,
            &key,
            0o640,
            "everyone",
        ),
    ] {
        let name = format!("ssl/{name}");
        let before = refusals(&estate.proxy);
        estate.proxy.write(&name, text, mode);
        let report = wait_for_alarm(&estate.proxy);
        assert!(report.contains(expected), "{expected:?} is not in {report}");
        assert!(estate.proxy.metrics().sum(REFUSED, &[]) == 1.0);
        assert!(refusals(&estate.proxy) > before);
        let status = estate.proxy.command(&["status"], &[]);
        assert!(status.stdout.contains("WARNING since"), "{}", status.stdout);
        estate.wait_for_event("changed materials are refused");
        assert_eq!(estate.client(&agent).get(CATALOG).status, 200, "{name}");
        assert_refused(&estate.client(&bad).get(CATALOG), 403, &["revoked"]);
        estate.proxy.write(&name, good, good_mode);
        wait_for_end_of_alarm(&estate.proxy);
    }
    assert_eq!(estate.proxy.generation(), 2);
    // The proxy also loads a new file that is valid.
    estate.proxy.write("ssl/crl.pem", "no CRL at all", 0o644);
    wait_for_alarm(&estate.proxy);
    let number = estate.ca.renew_crl();
    estate.proxy.write_crl();
    wait_for_crl(&estate.proxy, number);
    wait_for_end_of_alarm(&estate.proxy);
}

#[test]
fn a_certificate_that_agents_refuse_does_not_replace_a_valid_one() {
    let estate = estate(&[NOTIFY, IMPATIENT].join("\n")).start();
    let old = served(&estate.anonymous());
    let expired = estate.ca.leaf("puppet").expired().issue();
    let write = |credential: &TestCredential| {
        let proxy = &estate.proxy;
        proxy.write("ssl/private_keys/puppet.pem", &credential.key_pem, 0o640);
        proxy.write("ssl/certs/puppet.pem", &credential.chain_pem(), 0o644);
    };
    write(&expired);
    wait_for_report(&estate.proxy, |report| report.contains("expired on"));
    assert_eq!(served(&estate.anonymous()), old);
    assert_eq!(estate.proxy.generation(), 1);
    let valid = estate.ca.server("puppet");
    write(&valid);
    wait_for_certificate(&estate.anonymous(), &valid.cert_der);
    wait_for_end_of_alarm(&estate.proxy);
}

/// The revocation applies even before the proxy stops waiting for the rest of the change.
#[test]
fn a_revocation_applies_even_if_another_file_of_the_same_change_is_refused() {
    for waiting in [IMPATIENT, PATIENT] {
        let estate = estate(&[NOTIFY, waiting].join("\n")).start();
        let agent = estate.ca.agent("web01");
        for (name, text) in [
            ("ssl/certs/puppet.pem", "garbage"),
            ("ssl/certs/ca.pem", "garbage"),
            ("ssl/private_keys/puppet.pem", "garbage"),
        ] {
            let bad = estate.ca.agent("web01");
            assert_eq!(estate.client(&bad).get(CATALOG).status, 200);
            estate.proxy.write(name, text, 0o640);
            estate.ca.revoke(&bad);
            estate.proxy.write_crl();
            wait_for_crl(&estate.proxy, estate.ca.crl_number());
            assert_refused(&estate.client(&bad).get(CATALOG), 403, &["revoked"]);
            assert_eq!(estate.client(&agent).get(CATALOG).status, 200, "{name}");
        }
        if waiting == IMPATIENT {
            let output = |report: &str| {
                ["puppet.pem", "ca.pem"]
                    .iter()
                    .all(|name| report.contains(name))
            };
            wait_for_report(&estate.proxy, output);
            assert_eq!(estate.proxy.metrics().sum(REFUSED, &[]), 1.0);
        }
        assert_eq!(estate.proxy.generation(), 4);
    }
}

/// The other CRLs of a directory stay active if one of them cannot be read.
#[test]
fn each_file_of_a_directory_is_accepted_or_refused_separately() {
    let ca = Ca::new();
    let list = ca.crl_pem();
    let estate = Estate::builder()
        .ca(&ca)
        .materials(&[NOTIFY, IMPATIENT].join("\n"))
        .file("crls/all", &list, 0o644)
        .with("[trust]\ncrl = \"{dir}/crls\"")
        .start();
    let bad = estate.ca.agent("web01");
    let cut = &estate.ca.crl_pem()[..200];
    estate.proxy.write("crls/cut", cut, 0o644);
    estate.ca.revoke(&bad);
    estate
        .proxy
        .write("crls/newer", &estate.ca.crl_pem(), 0o644);
    wait_for_crl(&estate.proxy, estate.ca.crl_number());
    assert_refused(&estate.client(&bad).get(CATALOG), 403, &["revoked"]);
    wait_for_report(&estate.proxy, |report| report.contains("crls/cut"));
    fs::remove_file(estate.proxy.directory().join("crls/cut")).expect("is there");
    wait_for_end_of_alarm(&estate.proxy);
}

#[test]
fn a_key_pair_for_another_name_is_not_active_until_a_reload_accepts_it() {
    let estate = estate(&[NOTIFY, IMPATIENT].join("\n")).start();
    let (other, bad) = (
        estate.ca.leaf("elsewhere").issue(),
        estate.ca.agent("web01"),
    );
    let before = served(&estate.anonymous());
    estate.ca.revoke(&bad);
    for (name, text, mode) in [
        ("ssl/private_keys/puppet.pem", &other.key_pem, 0o640),
        ("ssl/certs/puppet.pem", &other.cert_pem, 0o644),
        ("ssl/crl.pem", &estate.ca.crl_pem(), 0o644),
    ] {
        estate.proxy.write(name, text, mode);
    }
    let report = wait_for_report(&estate.proxy, |report| report.contains("proscenium reload"));
    assert!(report.contains("puppet.pem\" is not valid for"), "{report}");
    assert_eq!(served(&estate.anonymous()), before);
    wait_for_crl(&estate.proxy, estate.ca.crl_number());
    assert_refused(&estate.client(&bad).get(CATALOG), 403, &["revoked"]);
    estate.proxy.reload_applied();
    assert!(estate.proxy.status()["materials"]["refused"].is_null());
    assert_eq!(
        served(&estate.anonymous().server_name("elsewhere")),
        other.cert_der
    );
}

/// No client has connected yet. The proxy's own certificate is sufficient reason to refuse the files.
#[test]
fn files_that_a_reload_has_applied_are_not_refused_later() {
    let waiting = "settle_max = \"20s\"";
    let estate = estate(&[NOTIFY, waiting].join("\n")).start();
    let strange = Ca::other();
    let (crl, bundle) = (strange.crl_pem(), strange.bundle_pem());
    for (times, (name, text)) in [("ssl/crl.pem", crl), ("ssl/certs/ca.pem", bundle)]
        .into_iter()
        .enumerate()
    {
        estate.proxy.write(name, &text, 0o644);
        wait_for_words(&estate.proxy, NOT_VALID_YET, times + 1);
    }
    estate.proxy.reload_applied();
    // While the proxy waits, it checks every 20 ms, and after that once an hour.
    let looks = || estate.proxy.metrics().sum(CHECKS, &[]);
    let stands_still = wait_until(LIMIT, || {
        let before = looks();
        thread::sleep(10 * CHECK_INTERVAL_MIN);
        (looks() == before).then_some(())
    });
    assert!(stands_still.is_some());
    let stderr = estate.proxy.stderr();
    assert!(
        !stderr.contains("changed materials are refused"),
        "{stderr}"
    );
    assert_eq!(refusals(&estate.proxy), 0.0);
    let last = estate.proxy.status()["last_reload"].clone();
    assert_eq!(last["result"], "applied", "{last}");
}

#[test]
fn last_reload_in_the_status_is_the_requested_one() {
    let estate = estate(&[NOTIFY, IMPATIENT].join("\n")).start();
    let success = || {
        let name = "proscenium_last_reload_success";
        estate.proxy.metrics().sum(name, &[])
    };
    estate.proxy.reload();
    assert_eq!(success(), 1.0);
    estate.proxy.write("ssl/crl.pem", "half", 0o644);
    wait_for_alarm(&estate.proxy);
    // The alarm names the invalid file, and the metric stays 1. The alarm ends when the file is valid.
    assert_eq!(success(), 1.0);
    estate.proxy.write_crl();
    wait_for_end_of_alarm(&estate.proxy);
    let right = estate.proxy.config_text();
    estate.write_config("nothing = 1");
    assert_eq!(estate.proxy.reload()["result"], "refused");
    let number = estate.ca.renew_crl();
    estate.proxy.write_crl();
    wait_for_crl(&estate.proxy, number);
    // The metric is still 0, because the configuration on disk is still invalid.
    assert_eq!(success(), 0.0);
    assert_eq!(estate.proxy.status()["last_reload"]["result"], "refused");
    estate.write_config(&right);
    estate.proxy.reload();
    assert_eq!(success(), 1.0);
}

#[test]
fn an_unrelated_ca_bundle_is_not_active_until_a_reload_accepts_it() {
    let estate = estate(&[NOTIFY, IMPATIENT].join("\n")).start();
    let (agent, strange) = (estate.ca.agent("web01"), Ca::other());
    let (ours, issuing) = (estate.ca.bundle_pem(), estate.ca.issuing_pem());
    for (bundle, lacks) in [
        (strange.bundle_pem(), "the proxy's certificate"),
        // The bundle is cut exactly between its two blocks.
        (issuing, "CN=Puppet Root CA: test"),
    ] {
        estate.proxy.write("ssl/certs/ca.pem", &bundle, 0o644);
        let report = wait_for_alarm(&estate.proxy);
        for words in ["proscenium reload", lacks] {
            assert!(report.contains(words), "{words:?} is not in {report}");
        }
        assert_eq!(estate.client(&agent).get(CATALOG).status, 200);
        estate.proxy.write("ssl/certs/ca.pem", &ours, 0o644);
        wait_for_end_of_alarm(&estate.proxy);
    }
    // CAs that change together with their CRL become active after a reload.
    let next = estate.ca.server("puppet");
    for (name, text, mode) in [
        ("ssl/crl.pem", strange.crl_pem(), 0o644),
        ("ssl/certs/ca.pem", strange.bundle_pem(), 0o644),
        ("ssl/private_keys/puppet.pem", next.key_pem.clone(), 0o640),
        ("ssl/certs/puppet.pem", next.cert_pem.clone(), 0o644),
    ] {
        estate.proxy.write(name, &text, mode);
    }
    // The proxy's renewed certificate is signed by the active CAs, so it is not refused together with the new CAs.
    wait_for_certificate(&estate.anonymous(), &next.cert_der);
    wait_for_report(&estate.proxy, |report| report.contains("proscenium reload"));
    assert_eq!(estate.client(&agent).get(CATALOG).status, 200);
    estate.proxy.reload_applied();
    assert_refused(&estate.client(&agent).get(CATALOG), 403, &["CA"]);
    assert!(estate.proxy.status()["materials"]["refused"].is_null());
}

#[test]
fn a_ca_with_recently_seen_agents_stays_in_the_bundle_after_a_restart() {
    let state = tempfile::TempDir::new().expect("a directory");
    let table = format!("[state]\ndirectory = {:?}", state.path());
    let (ours, theirs, third) = (Ca::new(), Ca::other(), Ca::named("third"));
    let (agent, other) = (theirs.agent("web01"), third.agent("web01"));
    let both = ours.bundle_pem() + &theirs.bundle_pem();
    let crls = ours.crl_pem() + &theirs.crl_pem() + &third.crl_pem();
    let start = |ca: &Ca| {
        let builder = Estate::builder()
            .ca(ca)
            .materials(&[NOTIFY, IMPATIENT].join("\n"))
            .file("ca.pem", &both, 0o644)
            .file("crl.pem", &crls, 0o644)
            .with("[trust]\nca = \"{dir}/ca.pem\"\ncrl = \"{dir}/crl.pem\"")
            .with(&table);
        builder.start()
    };
    let cut_is_refused = |estate: &Estate| {
        estate.proxy.write("ca.pem", &ours.bundle_pem(), 0o644);
        let report = wait_for_alarm(&estate.proxy);
        for words in [
            "proscenium reload",
            "CN=Puppet CA: elsewhere",
            "the last day",
        ] {
            assert!(report.contains(words), "{words:?} is not in {report}");
        }
        assert_eq!(estate.client(&agent).get(CATALOG).status, 200);
    };
    let estate = start(&ours);
    assert_eq!(estate.client(&agent).get(CATALOG).status, 200);
    cut_is_refused(&estate);
    // An additional CA is active at once.
    assert_eq!(estate.client(&other).get(CATALOG).status, 403);
    let more = both.clone() + &third.bundle_pem();
    estate.proxy.write("ca.pem", &more, 0o644);
    let accepted = wait_until(LIMIT, || {
        (estate.client(&other).get(CATALOG).status == 200).then_some(())
    });
    assert!(accepted.is_some(), "{}", estate.proxy.stderr());
    estate.proxy.terminate();
    estate.proxy.wait_for_end(LIMIT);

    // No agent has connected to this process.
    let estate = start(&ours);
    cut_is_refused(&estate);
    drop(estate);
    // Without the stored names, the proxy does not know that agents of that CA have connected.
    fs::remove_file(state.path().join("cas-seen")).expect("is stored");
    let estate = start(&ours);
    estate.proxy.write("ca.pem", &ours.bundle_pem(), 0o644);
    let dropped = wait_until(LIMIT, || (estate.proxy.generation() == 2).then_some(()));
    assert!(dropped.is_some(), "{}", estate.proxy.stderr());
    assert_eq!(estate.client(&agent).get(CATALOG).status, 403);
}

#[test]
fn a_bundle_that_does_not_verify_the_members_is_not_active_until_a_reload_accepts_it() {
    let (ca, strange) = (Ca::new(), Ca::other());
    let (credential, bundle) = (ca.agent("front"), ca.bundle_pem());
    let list = ca.crl_pem() + &strange.crl_pem();
    let estate = Estate::builder()
        .ca(&ca)
        .tls_members()
        .materials(&[NOTIFY, IMPATIENT].join("\n"))
        .file("members/chain.pem", &credential.cert_pem, 0o644)
        .file("members/key.pem", &credential.key_pem, 0o600)
        .file("members/ca.pem", &bundle, 0o644)
        .file("members/crl.pem", &list, 0o644)
        .with(MEMBER_TLS)
        .start();
    let agent = estate.ca.agent("web01");
    assert_eq!(estate.client(&agent).get(CATALOG).status, 200);
    estate
        .proxy
        .write("members/ca.pem", &strange.bundle_pem(), 0o644);
    let report = wait_for_alarm(&estate.proxy);
    for words in ["proscenium reload", "members"] {
        assert!(report.contains(words), "{words:?} is not in {report}");
    }
    assert_eq!(estate.client(&agent).get(CATALOG).status, 200);
    estate.proxy.reload_applied();
    wait_for("members are not verified any more", || {
        estate.client(&agent).get(CATALOG).status >= 500
    });
}

#[test]
fn a_crl_older_than_the_active_one_is_not_loaded_and_raises_an_alarm() {
    let estate = estate(NOTIFY).start();
    let bad = estate.ca.agent("web01");
    let old = estate.ca.crl_pem();
    estate.ca.revoke(&bad);
    estate.proxy.write_crl();
    wait_for_crl(&estate.proxy, estate.ca.crl_number());
    estate.proxy.write("ssl/crl.pem", &old, 0o644);
    estate.wait_for_status("an alarm", |status| {
        status["trust"]["alarms"].to_string().contains("older")
    });
    assert_refused(&estate.client(&bad).get(CATALOG), 403, &["revoked"]);
    wait_for_crl(&estate.proxy, estate.ca.crl_number());
}

#[test]
fn a_removed_crl_stays_active_until_a_reload() {
    let ca = Ca::new();
    let (issuing, root) = (ca.issuing_crl_pem(), root_alone(&ca.crl_pem()));
    let estate = Estate::builder()
        .ca(&ca)
        .materials(&[NOTIFY, IMPATIENT].join("\n"))
        .file("crls/root", &root, 0o644)
        .file("crls/issuing", &issuing, 0o644)
        .with("[trust]\ncrl = \"{dir}/crls\"\nunchecked = [\"*\"]")
        .start();
    let bad = estate.ca.agent("web01");
    estate.ca.revoke(&bad);
    // An additional file of the directory is used at once.
    estate
        .proxy
        .write("crls/newer", &estate.ca.issuing_crl_pem(), 0o644);
    wait_for_crl(&estate.proxy, estate.ca.crl_number());
    assert_refused(&estate.client(&bad).get(CATALOG), 403, &["revoked"]);
    let directory = estate.proxy.directory().join("crls");
    for name in ["newer", "issuing"] {
        fs::remove_file(directory.join(name)).expect("is there");
    }
    let report = wait_for_alarm(&estate.proxy);
    assert!(report.contains("proscenium reload"), "{report}");
    assert_refused(&estate.client(&bad).get(CATALOG), 403, &["revoked"]);
    // The whole directory is renamed, and another one takes its path.
    let away = estate.proxy.directory().join("crls.away");
    fs::rename(&directory, &away).expect("is renamed");
    let gone = |report: &str| report.contains("No such file");
    wait_for_report(&estate.proxy, gone);
    let number = estate.ca.renew_crl();
    fs::create_dir(&directory).expect("is made");
    estate.proxy.write("crls/all", &estate.ca.crl_pem(), 0o644);
    wait_for_crl(&estate.proxy, number);
    wait_for_end_of_alarm(&estate.proxy);
    // The reload confirms the change.
    let root = root_alone(&estate.ca.crl_pem());
    estate.proxy.write("crls/all", &root, 0o644);
    wait_for_alarm(&estate.proxy);
    estate.proxy.reload_applied();
    assert!(estate.proxy.status()["materials"]["refused"].is_null());
    // Further revocations are not in effect, and the earlier ones stay in effect.
    assert_refused(&estate.client(&bad).get(CATALOG), 403, &["revoked"]);
    let good = estate.ca.agent("web01");
    assert_eq!(estate.client(&good).get(CATALOG).status, 200);
}

/// The CRL of the root CA, which is the one after that of the issuing CA.
fn root_alone(lists: &str) -> String {
    let start = lists.rfind("-----BEGIN").expect("two lists");
    lists[start..].to_owned()
}
