//! Materials that change on disk are taken by themselves, when they are whole and right, and never before.

#![allow(clippy::disallowed_methods, reason = "tests write files")]

use std::{
    fs::{self, File, OpenOptions},
    io::Write,
    os::unix::fs::symlink,
    path::Path,
    process::Command,
    sync::atomic::{AtomicBool, AtomicUsize, Ordering},
    thread,
    time::{Duration, Instant, SystemTime},
};

use serde_json::Value;
use testkit::{Ca, Client, Credential, Proxy, wait_until};

use crate::support::{Estate, EstateBuilder, LIMIT, assert_refused};

const CATALOG: &str = "/puppet/v3/catalog/web01?environment=production";
/// The kernel alone can have told of a change: no look is due before the test is over.
const NOTIFY: &str = "watch = \"notify\"\ninterval = \"1h\"\nsettle = \"20ms\"";
/// What is not right is waited for longer than the test takes.
const PATIENT: &str = "settle_max = \"1h\"";
/// What is not right is an alarm at once.
const IMPATIENT: &str = "settle_max = \"20ms\"";
const NOT_RIGHT_YET: &str = "not valid yet: waiting";
const REFUSED: &str = "proscenium_materials_refused";
const SWAPS: usize = 20;
const LOOKS: &str = "proscenium_materials_checks_total";
/// What is left between two of them at least.
const LOOKS_APART: Duration = Duration::from_millis(50);
/// So much is written beside a list before it changes, and at most.
const STORM_LEAST: usize = 2000;
const STORM_MAX: usize = 2_000_000;
const MEMBER_TLS: &str = "[upstream.tls]\nchain = \"{dir}/members/chain.pem\"\nkey = \"{dir}/members/key.pem\"\n\
                          ca = \"{dir}/members/ca.pem\"\ncrl = \"{dir}/members/crl.pem\"";

#[test]
fn a_storm_of_writes_beside_a_list_keeps_it_from_nobody_and_costs_few_looks() {
    let estate = estate(NOTIFY).start();
    let bad = estate.ca.agent("web01");
    assert_eq!(estate.client(&bad).get(CATALOG).status, 200);
    let looks = || estate.proxy.metrics().sum(LOOKS, &[]);
    let (began, before) = (Instant::now(), looks());
    let (beside, list) = (
        estate.proxy.ssldir().join("beside"),
        estate.proxy.ssldir().join("crl.pem"),
    );
    let (written, is_taken) = (AtomicUsize::new(0), AtomicBool::new(false));
    thread::scope(|scope| {
        scope.spawn(|| {
            while written.load(Ordering::SeqCst) < STORM_MAX && !is_taken.load(Ordering::SeqCst) {
                // Of this the kernel tells too, and it counts for nothing.
                fs::write(&beside, "text").expect("is written");
                fs::remove_file(&beside).expect("is removed");
                // This counts, and changes nothing.
                let opened = OpenOptions::new().append(true).open(&list);
                drop(opened.expect("is there"));
                written.fetch_add(1, Ordering::SeqCst);
            }
        });
        let storm = || (written.load(Ordering::SeqCst) > STORM_LEAST).then_some(());
        assert!(wait_until(LIMIT, storm).is_some());
        estate.ca.revoke(&bad);
        estate.proxy.write_crl();
        let taken = wait_until(LIMIT, || {
            (estate.client(&bad).get(CATALOG).status == 403).then_some(())
        });
        is_taken.store(true, Ordering::SeqCst);
        assert!(taken.is_some(), "{}", estate.proxy.stderr());
    });
    // A slow machine looks less often, so this is no matter of time.
    let looked = looks() - before;
    let most = began.elapsed().as_secs_f64() / LOOKS_APART.as_secs_f64() + 1.0;
    assert!(
        (1.0..=most).contains(&looked),
        "{looked} looks, {most} at most"
    );
}

#[test]
fn a_list_written_just_now_ends_the_connections_of_whom_it_revokes() {
    for watching in [
        NOTIFY.to_owned(),
        "watch = \"poll\"\ninterval = \"20ms\"\nsettle = \"20ms\"".to_owned(),
    ] {
        let estate = estate(&watching)
            .proxy(|proxy| proxy.listener("idle_timeout = \"10m\""))
            .start();
        let (good, bad) = (estate.ca.agent("web01"), estate.ca.agent("web01"));
        let mut stays = estate.client(&good).connect().expect("connects");
        let mut goes = estate.client(&bad).connect().expect("connects");
        for connection in [&mut stays, &mut goes] {
            assert_eq!(connection.get(CATALOG).status, 200);
        }
        let watch = watching.split('"').nth(1).expect("a word");
        estate
            .proxy
            .wait_for_status(watch, |status| status["materials"]["watch"] == watch);
        estate.ca.revoke(&bad);
        estate.proxy.write_crl();
        assert!(goes.is_closed_within(LIMIT), "{watching}");
        assert_refused(&estate.client(&bad).get(CATALOG), 403, &["revoked"]);
        assert_eq!(stays.get(CATALOG).status, 200);
        assert!(estate.proxy.stderr().contains("asked_by=materials"));
    }
}

#[test]
fn a_file_that_is_written_in_halves_is_waited_out() {
    let estate = estate(&[NOTIFY, PATIENT].join("\n")).start();
    // Cut within a list, and between the two: that one reads well, but an issuer's list is gone.
    let within = |list: &str| list.find("-----END").map(|end| end - 100);
    let between = |list: &str| list.rfind("-----BEGIN");
    for (turn, cut) in [(1, within as fn(&str) -> Option<usize>), (2, between)] {
        let number = estate.ca.renew_crl();
        let list = estate.ca.crl_pem();
        let (one, other) = list.split_at(cut(&list).expect("two lists"));
        let mut file = File::create(estate.proxy.ssldir().join("crl.pem")).expect("is ours");
        file.write_all(one.as_bytes()).expect("is written");
        wait_for_words(&estate.proxy, NOT_RIGHT_YET, turn);
        assert_eq!(
            estate.proxy.generation(),
            turn as u64,
            "half a file is not taken"
        );
        file.write_all(other.as_bytes()).expect("is written");
        wait_for_crl(&estate.proxy, number);
    }
    assert_eq!(refusals(&estate.proxy), 0.0);
    assert_eq!(estate.proxy.metrics().sum(REFUSED, &[]), 0.0);
}

#[test]
fn a_file_that_never_stands_still_is_read_all_the_same() {
    let estate =
        estate("watch = \"notify\"\ninterval = \"1h\"\nsettle = \"1h\"\nsettle_max = \"50ms\"")
            .start();
    let number = estate.ca.renew_crl();
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let _stopping = Stopping(&stop);
        scope.spawn(|| {
            while !stop.load(Ordering::SeqCst) {
                estate.proxy.write_crl();
            }
        });
        wait_for_crl(&estate.proxy, number);
    });
}

#[test]
fn a_certificate_is_taken_when_its_key_has_come_too_in_either_order() {
    let estate = estate(&[NOTIFY, PATIENT].join("\n")).start();
    for turn in 1..=2 {
        let renewed = estate.ca.server("puppet");
        let mut halves = [
            ("ssl/private_keys/puppet.pem", &renewed.key_pem, 0o640),
            ("ssl/certs/puppet.pem", &renewed.cert_pem, 0o644),
        ];
        if turn == 2 {
            halves.reverse();
        }
        let old = served(&estate.anonymous());
        let [(first, one, mode), (second, other, other_mode)] = halves;
        estate.proxy.write(first, one, mode);
        wait_for_words(&estate.proxy, NOT_RIGHT_YET, turn);
        assert_eq!(served(&estate.anonymous()), old);
        estate.proxy.write(second, other, other_mode);
        wait_for_certificate(&estate.anonymous(), &renewed.cert_der);
    }
    assert_eq!(estate.proxy.generation(), 3);
    assert!(!estate.proxy.stderr().contains("are refused"));
}

#[test]
fn what_is_not_right_keeps_the_last_good_with_an_alarm_until_it_is() {
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
    for (name, text, mode, good, good_mode, told) in [
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
        assert!(report.contains(told), "{told:?} is not in {report}");
        assert!(estate.proxy.metrics().sum(REFUSED, &[]) == 1.0);
        assert!(refusals(&estate.proxy) > before);
        let status = estate.proxy.command(&["status"], &[]);
        assert!(status.stdout.contains("ALARM since"), "{}", status.stdout);
        assert!(
            estate
                .proxy
                .stderr()
                .contains("changed materials are refused")
        );
        assert_eq!(estate.client(&agent).get(CATALOG).status, 200, "{name}");
        assert_refused(&estate.client(&bad).get(CATALOG), 403, &["revoked"]);
        estate.proxy.write(&name, good, good_mode);
        wait_for_end_of_alarm(&estate.proxy);
    }
    assert_eq!(estate.proxy.generation(), 2);
    // A good one that is new is taken as well.
    estate.proxy.write("ssl/crl.pem", "no CRL at all", 0o644);
    wait_for_alarm(&estate.proxy);
    let number = estate.ca.renew_crl();
    estate.proxy.write_crl();
    wait_for_crl(&estate.proxy, number);
    assert_eq!(estate.proxy.metrics().sum(REFUSED, &[]), 0.0);
}

#[test]
fn a_certificate_that_agents_refuse_does_not_take_the_place_of_a_valid_one() {
    let estate = estate(&[NOTIFY, IMPATIENT].join("\n")).start();
    let old = served(&estate.anonymous());
    let expired = estate.ca.leaf("puppet").expired().issue();
    let write = |credential: &Credential| {
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

/// Also before the wait for the rest of the change is over.
#[test]
fn a_revocation_is_active_whatever_other_file_of_the_same_change_is_refused() {
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
            let told = |report: &str| {
                ["puppet.pem", "ca.pem"]
                    .iter()
                    .all(|name| report.contains(name))
            };
            wait_for_report(&estate.proxy, told);
            assert_eq!(estate.proxy.metrics().sum(REFUSED, &[]), 1.0);
        }
        assert_eq!(estate.proxy.generation(), 4);
    }
}

/// One CRL of a directory that cannot be read keeps no other one from being active.
#[test]
fn each_file_of_a_directory_is_accepted_or_refused_by_itself() {
    let ca = Ca::new();
    let list = ca.crl_pem();
    let estate = Estate::builder()
        .ca(&ca)
        .proxy(move |proxy| {
            proxy
                .materials(&[NOTIFY, IMPATIENT].join("\n"))
                .file("crls/all", &list, 0o644)
                .with("[trust]\ncrl = \"{dir}/crls\"")
        })
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

/// Nobody has connected yet: the proxy's own certificate is reason enough.
#[test]
fn what_a_reload_has_applied_meanwhile_is_never_refused_later() {
    let waiting = "settle_max = \"20s\"";
    let estate = estate(&[NOTIFY, waiting].join("\n")).start();
    let strange = Ca::other();
    let (crl, bundle) = (strange.crl_pem(), strange.bundle_pem());
    for (times, (name, text)) in [("ssl/crl.pem", crl), ("ssl/certs/ca.pem", bundle)]
        .into_iter()
        .enumerate()
    {
        estate.proxy.write(name, &text, 0o644);
        wait_for_words(&estate.proxy, NOT_RIGHT_YET, times + 1);
    }
    estate.proxy.reload_applied();
    // It looks every 20 ms while it waits, and once an hour after that.
    let looks = || estate.proxy.metrics().sum(LOOKS, &[]);
    let stands_still = wait_until(LIMIT, || {
        let before = looks();
        thread::sleep(10 * LOOKS_APART);
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
fn the_last_reload_is_the_one_that_was_requested() {
    let estate = estate(&[NOTIFY, IMPATIENT].join("\n")).start();
    let success = || {
        let name = "proscenium_last_reload_success";
        estate.proxy.metrics().sum(name, &[])
    };
    estate.proxy.reload();
    assert_eq!(success(), 1.0);
    estate.proxy.write("ssl/crl.pem", "half", 0o644);
    wait_for_alarm(&estate.proxy);
    // The alarm says so, and ends when the file is right.
    assert_eq!(success(), 1.0);
    estate.proxy.write_crl();
    wait_for_end_of_alarm(&estate.proxy);
    let right = estate.proxy.config_text();
    estate.proxy.write_config("nothing = 1");
    assert_eq!(estate.proxy.reload()["result"], "refused");
    let number = estate.ca.renew_crl();
    estate.proxy.write_crl();
    wait_for_crl(&estate.proxy, number);
    // The configuration on disk is as wrong as before.
    assert_eq!(success(), 0.0);
    assert_eq!(estate.proxy.status()["last_reload"]["result"], "refused");
    estate.proxy.write_config(&right);
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
        // Cut exactly between its two blocks.
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
    // Together with their CRL, and meant.
    let next = estate.ca.server("puppet");
    for (name, text, mode) in [
        ("ssl/crl.pem", strange.crl_pem(), 0o644),
        ("ssl/certs/ca.pem", strange.bundle_pem(), 0o644),
        ("ssl/private_keys/puppet.pem", next.key_pem.clone(), 0o640),
        ("ssl/certs/puppet.pem", next.cert_pem.clone(), 0o644),
    ] {
        estate.proxy.write(name, &text, mode);
    }
    // The renewed certificate below the active CAs is not refused with them.
    wait_for_certificate(&estate.anonymous(), &next.cert_der);
    wait_for_report(&estate.proxy, |report| report.contains("proscenium reload"));
    assert_eq!(estate.client(&agent).get(CATALOG).status, 200);
    estate.proxy.reload_applied();
    assert_refused(&estate.client(&agent).get(CATALOG), 403, &["CA"]);
    assert!(estate.proxy.status()["materials"]["refused"].is_null());
}

#[test]
fn a_ca_whose_agents_were_seen_in_the_last_day_stays_in_the_bundle_over_a_restart() {
    let state = tempfile::TempDir::new().expect("a directory");
    let table = format!("[state]\ndirectory = {:?}", state.path());
    let (ours, theirs, third) = (Ca::new(), Ca::other(), Ca::named("third"));
    let (agent, other) = (theirs.agent("web01"), third.agent("web01"));
    let both = ours.bundle_pem() + &theirs.bundle_pem();
    let crls = ours.crl_pem() + &theirs.crl_pem() + &third.crl_pem();
    let start = |ca: &Ca| {
        let (table, both, crls) = (table.clone(), both.clone(), crls.clone());
        let builder = Estate::builder().ca(ca).proxy(move |proxy| {
            proxy
                .materials(&[NOTIFY, IMPATIENT].join("\n"))
                .file("ca.pem", &both, 0o644)
                .file("crl.pem", &crls, 0o644)
                .with("[trust]\nca = \"{dir}/ca.pem\"\ncrl = \"{dir}/crl.pem\"")
                .with(&table)
        });
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
    // One CA more is active at once.
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
    // Without what was stored no agent of that CA is known.
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
        .proxy(move |proxy| {
            proxy
                .materials(&[NOTIFY, IMPATIENT].join("\n"))
                .file("members/chain.pem", &credential.cert_pem, 0o644)
                .file("members/key.pem", &credential.key_pem, 0o600)
                .file("members/ca.pem", &bundle, 0o644)
                .file("members/crl.pem", &list, 0o644)
                .with(MEMBER_TLS)
        })
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
    let refused = wait_until(LIMIT, || {
        (estate.client(&agent).get(CATALOG).status >= 500).then_some(())
    });
    assert!(refused.is_some(), "members are not verified any more");
}

/// Reading a pipe would wait for a writer, with every reload behind it.
#[test]
fn what_is_no_file_is_refused_and_keeps_no_reload_waiting() {
    let estate = estate(&[NOTIFY, IMPATIENT].join("\n")).start();
    let list = estate.proxy.ssldir().join("crl.pem");
    let pipe = list.with_extension("pipe");
    let made = Command::new("mkfifo").arg(&pipe).status();
    assert!(made.expect("mkfifo is there").success());
    fs::rename(&pipe, &list).expect("is replaced");
    let report = wait_for_alarm(&estate.proxy);
    assert!(report.contains("neither a file"), "{report}");
    assert_eq!(estate.proxy.reload()["result"], "refused");
    let number = estate.ca.renew_crl();
    fs::remove_file(&list).expect("is removed");
    estate.proxy.write_crl();
    wait_for_crl(&estate.proxy, number);
    wait_for_end_of_alarm(&estate.proxy);
}

#[test]
fn a_list_older_than_the_one_in_force_is_not_taken_and_raises_its_alarm() {
    let estate = estate(NOTIFY).start();
    let bad = estate.ca.agent("web01");
    let old = estate.ca.crl_pem();
    estate.ca.revoke(&bad);
    estate.proxy.write_crl();
    wait_for_crl(&estate.proxy, estate.ca.crl_number());
    estate.proxy.write("ssl/crl.pem", &old, 0o644);
    estate.proxy.wait_for_status("an alarm", |status| {
        status["trust"]["alarms"].to_string().contains("older")
    });
    assert_refused(&estate.client(&bad).get(CATALOG), 403, &["revoked"]);
    wait_for_crl(&estate.proxy, estate.ca.crl_number());
}

#[test]
fn a_list_that_went_away_stays_in_force_until_a_reload_says_that_it_is_meant() {
    let ca = Ca::new();
    let (issuing, root) = (ca.issuing_crl_pem(), root_alone(&ca.crl_pem()));
    let estate = Estate::builder()
        .ca(&ca)
        .proxy(move |proxy| {
            proxy
                .materials(&[NOTIFY, IMPATIENT].join("\n"))
                .file("crls/root", &root, 0o644)
                .file("crls/issuing", &issuing, 0o644)
                .with("[trust]\ncrl = \"{dir}/crls\"\nunchecked = [\"*\"]")
        })
        .start();
    let bad = estate.ca.agent("web01");
    estate.ca.revoke(&bad);
    // One more file of a directory counts at once.
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
    // The whole directory renamed away, and one in its place.
    let away = estate.proxy.directory().join("crls.away");
    fs::rename(&directory, &away).expect("is renamed");
    let gone = |report: &str| report.contains("No such file");
    wait_for_report(&estate.proxy, gone);
    let number = estate.ca.renew_crl();
    fs::create_dir(&directory).expect("is made");
    estate.proxy.write("crls/all", &estate.ca.crl_pem(), 0o644);
    wait_for_crl(&estate.proxy, number);
    wait_for_end_of_alarm(&estate.proxy);
    // Meant.
    let root = root_alone(&estate.ca.crl_pem());
    estate.proxy.write("crls/all", &root, 0o644);
    wait_for_alarm(&estate.proxy);
    estate.proxy.reload_applied();
    assert!(estate.proxy.status()["materials"]["refused"].is_null());
    assert_eq!(
        estate.client(&bad).get(CATALOG).status,
        200,
        "nobody checks any more"
    );
}

/// As a ConfigMap or Secret is mounted: the files are links through `..data`, which is a link that is swapped.
#[test]
fn links_that_are_swapped_under_the_files_are_followed() {
    let ca = Ca::new();
    let list = ca.crl_pem();
    let estate = Estate::builder()
        .ca(&ca)
        .proxy(move |proxy| {
            proxy
                .materials(&[NOTIFY, PATIENT].join("\n"))
                .file("mount/..version_0/crl.pem", &list, 0o644)
                .link("mount/..data", "..version_0")
                .link("mount/crl.pem", "..data/crl.pem")
                .with("[trust]\ncrl = [\"{dir}/mount/crl.pem\", \"{dir}/mount\"]")
        })
        .start();
    let mount = estate.proxy.directory().join("mount");
    estate
        .proxy
        .wait_for_status("watched", |status| status["materials"]["watch"] == "notify");
    let mut watches = None;
    for turn in 1..=SWAPS {
        let number = estate.ca.renew_crl();
        publish(&mount, turn, &estate.ca.crl_pem());
        wait_for_crl(&estate.proxy, number);
        let watches = *watches.get_or_insert_with(|| inotify_watches(&estate.proxy));
        assert!(watches > 0);
        let same = wait_until(LIMIT, || {
            (inotify_watches(&estate.proxy) == watches).then_some(())
        });
        assert!(same.is_some(), "no more than {watches} watches");
    }
}

/// As certbot keeps its certificates: `live/NAME/chain.pem` is a link into an archive, and the parent may be replaced.
#[test]
fn a_directory_on_the_way_may_be_replaced() {
    let estate = estate(&[NOTIFY, PATIENT].join("\n")).start();
    let ssl = estate.proxy.ssldir();
    for turn in 0..3 {
        let renewed = estate.ca.server("puppet");
        let next = estate.proxy.directory().join(format!("ssl.{turn}"));
        estate.ca.write_ssldir_with(&next, &renewed);
        let away = estate.proxy.directory().join(format!("ssl.{turn}.away"));
        fs::rename(&ssl, away).expect("is renamed");
        // Once by a directory, then by links to one.
        match turn {
            0 => fs::rename(&next, &ssl).expect("is renamed"),
            1 => symlink(&next, &ssl).expect("is linked"),
            _ => symlink(next.file_name().expect("a name"), &ssl).expect("is linked"),
        }
        wait_for_certificate(&estate.anonymous(), &renewed.cert_der);
    }
}

#[test]
fn what_is_more_than_the_kernel_watches_is_seen_by_looking_and_said_so() {
    let looking = "watch = \"notify\"\ninterval = \"20ms\"\nsettle = \"20ms\"";
    let estate = estate(looking).start();
    let root = estate.proxy.directory();
    fs::create_dir(root.join("lists")).expect("is made");
    // One list, and beside it links that each lead elsewhere.
    for n in 0..600 {
        let way = root.join(format!("ways/{n}"));
        fs::create_dir_all(&way).expect("is made");
        let text = match n {
            0 => estate.ca.crl_pem(),
            _ => "no list".to_owned(),
        };
        fs::write(way.join("text"), text).expect("is written");
        symlink(way.join("text"), root.join(format!("lists/{n}"))).expect("is linked");
    }
    estate
        .proxy
        .edit_config("[pools.ca]", "[trust]\ncrl = \"{dir}/lists\"\n[pools.ca]");
    estate.proxy.reload_applied();
    wait_for_words(
        &estate.proxy,
        "does not report every change of materials",
        1,
    );
    let number = estate.ca.renew_crl();
    fs::write(root.join("ways/0/text"), estate.ca.crl_pem()).expect("is written");
    wait_for_crl(&estate.proxy, number);
}

#[test]
fn a_configuration_that_is_being_edited_does_not_go_live_with_a_list() {
    let estate = estate(NOTIFY).start();
    let agent = estate.ca.agent("web01");
    let text = estate.proxy.config_text();
    let edits = [
        format!("{text}\n[pools"),
        text.replace(
            "[pools.compilers]",
            "[pools.compilers]\nalgorithm = \"round-robin\"",
        ),
    ];
    for edited in edits {
        estate.proxy.write_config(&edited);
        let number = estate.ca.renew_crl();
        estate.proxy.write_crl();
        wait_for_crl(&estate.proxy, number);
        assert_eq!(estate.client(&agent).get(CATALOG).status, 200);
        let status = estate.proxy.status();
        let pools = status["pools"].as_array().expect("pools");
        assert!(pools.iter().all(|pool| pool["algorithm"] == "least-load"));
    }
    estate.proxy.reload_applied();
    let status = estate.proxy.status().to_string();
    assert!(status.contains("round-robin"));
}

#[test]
fn a_log_that_cannot_be_opened_keeps_no_list_from_being_taken() {
    let estate = estate(NOTIFY).start();
    let log = estate.proxy.directory().join("access.json");
    let away = estate.proxy.directory().join("away.json");
    fs::rename(&log, &away).expect("is renamed");
    fs::create_dir(&log).expect("is made");
    let number = estate.ca.renew_crl();
    estate.proxy.write_crl();
    wait_for_crl(&estate.proxy, number);
    fs::remove_dir(&log).expect("is empty");
    fs::rename(&away, &log).expect("is renamed");
}

#[test]
fn credential_and_lists_towards_members_are_taken_too() {
    let ca = Ca::new();
    let (credential, bundle, list) = (ca.agent("front"), ca.bundle_pem(), ca.crl_pem());
    let estate = Estate::builder()
        .ca(&ca)
        .tls_members()
        .proxy(move |proxy| {
            proxy
                .materials(&[NOTIFY, PATIENT].join("\n"))
                .file("members/chain.pem", &credential.cert_pem, 0o644)
                .file("members/key.pem", &credential.key_pem, 0o600)
                .file("members/ca.pem", &bundle, 0o644)
                .file("members/crl.pem", &list, 0o644)
                .with(MEMBER_TLS)
        })
        .start();
    let agent = estate.ca.agent("web01");
    assert_eq!(estate.client(&agent).get(CATALOG).status, 200);
    let renewed = estate.ca.agent("front");
    estate
        .proxy
        .write("members/chain.pem", &renewed.cert_pem, 0o644);
    estate
        .proxy
        .write("members/key.pem", &renewed.key_pem, 0o600);
    let shown = wait_until(LIMIT, || {
        estate.forget();
        assert_eq!(estate.client(&agent).get(CATALOG).status, 200);
        (estate.only_request().peer_certificates[0] == renewed.cert_der).then_some(())
    });
    assert!(shown.is_some(), "the far end sees the new certificate");
    // The members' issuer is revoked, for members alone.
    estate.ca.revoke_intermediate();
    estate
        .proxy
        .write("members/crl.pem", &estate.ca.crl_pem(), 0o644);
    let refused = wait_until(LIMIT, || {
        (estate.client(&agent).get(CATALOG).status >= 500).then_some(())
    });
    assert!(refused.is_some(), "members are no longer believed");
}

#[test]
fn twenty_swaps_under_load_lose_no_request() {
    let estate = estate(NOTIFY).one_agent_for_many().start();
    let agent = estate.ca.agent("web01");
    let client = estate.client(&agent);
    let (stop, asked) = (AtomicBool::new(false), AtomicUsize::new(0));
    thread::scope(|scope| {
        let _stopping = Stopping(&stop);
        for _ in 0..8 {
            scope.spawn(|| {
                let mut connection = client.connect().expect("connects");
                while !stop.load(Ordering::SeqCst) {
                    let answer = connection.request("POST", CATALOG, &[], b"facts");
                    assert_eq!((answer.status, answer.says_close()), (200, false));
                    asked.fetch_add(1, Ordering::SeqCst);
                }
            });
        }
        for turn in 0..SWAPS {
            let enough = asked.load(Ordering::SeqCst) + 8;
            if turn % 2 == 0 {
                let number = estate.ca.renew_crl();
                estate.proxy.write_crl();
                wait_for_crl(&estate.proxy, number);
            } else {
                let renewed = estate.ca.server("puppet");
                estate
                    .proxy
                    .write("ssl/private_keys/puppet.pem", &renewed.key_pem, 0o640);
                estate
                    .proxy
                    .write("ssl/certs/puppet.pem", &renewed.cert_pem, 0o644);
                wait_for_certificate(&estate.anonymous(), &renewed.cert_der);
            }
            wait_until(LIMIT, || {
                (asked.load(Ordering::SeqCst) >= enough).then_some(())
            });
        }
    });
    assert_eq!(estate.proxy.generation(), SWAPS as u64 + 1);
    let posts = estate.compilers.iter().flat_map(|c| c.requests());
    assert_eq!(
        posts.filter(|post| post.complete).count(),
        asked.load(Ordering::SeqCst),
        "each POST was seen once"
    );
}

#[test]
fn the_agents_copy_written_again_unchanged_is_young_again_and_no_reload() {
    let estate = estate(NOTIFY).start();
    let age = || {
        estate
            .proxy
            .metrics()
            .sum("proscenium_crl_agent_copy_age_seconds", &[])
    };
    let day = Duration::from_secs(86_400);
    let path = estate.proxy.ssldir().join("crl.pem");
    let file = OpenOptions::new()
        .append(true)
        .open(path)
        .expect("is there");
    for (written, range) in [
        (SystemTime::now() - 2 * day, 100_000.0..200_000.0),
        (SystemTime::now(), 0.0..1000.0),
    ] {
        file.set_modified(written).expect("is ours");
        let seen = wait_until(LIMIT, || range.contains(&age()).then_some(()));
        assert!(seen.is_some(), "{} s old", age());
    }
    assert_eq!(estate.proxy.generation(), 1);
    assert_eq!(
        estate.proxy.metrics().sum("proscenium_reloads_total", &[]),
        0.0
    );
}

#[test]
fn watching_begins_and_ends_with_a_reload() {
    let estate = Estate::start();
    assert_eq!(estate.proxy.status()["materials"]["watch"], "off");
    assert_eq!(inotify_watches(&estate.proxy), 0);
    for watch in ["poll", "notify"] {
        let text = estate.proxy.config_text();
        let from = text.split("[materials]\n").nth(1).expect("the table");
        let line = from.lines().next().expect("a line").to_owned();
        estate
            .proxy
            .edit_config(&line, &format!("watch = \"{watch}\""));
        estate.proxy.reload_applied();
        estate
            .proxy
            .wait_for_status(watch, |status| status["materials"]["watch"] == watch);
        assert_eq!(inotify_watches(&estate.proxy) > 0, watch == "notify");
    }
    let number = estate.ca.renew_crl();
    estate.proxy.write_crl();
    wait_for_crl(&estate.proxy, number);
    // What it watches is what is named.
    estate.proxy.write("other.pem", &estate.ca.crl_pem(), 0o644);
    estate.proxy.edit_config(
        "[pools.ca]",
        "[trust]\ncrl = \"{dir}/other.pem\"\n[pools.ca]",
    );
    estate.proxy.reload_applied();
    let number = estate.ca.renew_crl();
    estate.proxy.write("other.pem", &estate.ca.crl_pem(), 0o644);
    wait_for_crl(&estate.proxy, number);
}

/// An estate whose proxy watches its materials like this.
fn estate(watching: &str) -> EstateBuilder {
    let watching = watching.to_owned();
    Estate::builder().proxy(move |proxy| proxy.materials(&watching))
}

struct Stopping<'a>(&'a AtomicBool);

impl Drop for Stopping<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// A new version of what is mounted, put in place as Kubernetes does.
fn publish(mount: &Path, turn: usize, list: &str) {
    let version = format!("..version_{turn}");
    fs::create_dir(mount.join(&version)).expect("is made");
    fs::write(mount.join(&version).join("crl.pem"), list).expect("is written");
    symlink(&version, mount.join("..data_tmp")).expect("is linked");
    fs::rename(mount.join("..data_tmp"), mount.join("..data")).expect("is renamed");
    let before = mount.join(format!("..version_{}", turn - 1));
    fs::remove_dir_all(before).expect("was there");
}

/// The root's list, which comes after the issuing CA's.
fn root_alone(lists: &str) -> String {
    let start = lists.rfind("-----BEGIN").expect("two lists");
    lists[start..].to_owned()
}

#[track_caller]
fn wait_for_crl(proxy: &Proxy, number: u64) {
    let number = number.to_string();
    proxy.wait_for_status(&format!("CRL {number}"), |status| {
        let crls = status["trust"]["crls"].as_array().into_iter().flatten();
        crls.into_iter().any(|crl| crl["number"] == *number)
    });
}

#[track_caller]
fn wait_for_words(proxy: &Proxy, words: &str, times: usize) {
    let said = wait_until(LIMIT, || {
        (proxy.stderr().matches(words).count() >= times).then_some(())
    });
    assert!(
        said.is_some(),
        "{words:?} is not said {times} times:\n{}",
        proxy.stderr()
    );
}

#[track_caller]
fn wait_for_alarm(proxy: &Proxy) -> String {
    wait_for_report(proxy, |_| true)
}

#[track_caller]
fn wait_for_report(proxy: &Proxy, met: impl Fn(&str) -> bool) -> String {
    let report = |status: &Value| {
        let report = status["materials"]["refused"]["report"].as_str();
        report.filter(|report| met(report)).map(str::to_owned)
    };
    let status = proxy.wait_for_status("an alarm", |status| report(status).is_some());
    report(&status).expect("it is there")
}

#[track_caller]
fn wait_for_end_of_alarm(proxy: &Proxy) {
    proxy.wait_for_status("no alarm", |status| {
        status["materials"]["refused"].is_null()
    });
    assert_eq!(proxy.metrics().sum(REFUSED, &[]), 0.0);
}

fn refusals(proxy: &Proxy) -> f64 {
    let labels = [("result", "refused")];
    proxy.metrics().sum("proscenium_reloads_total", &labels)
}

fn served(client: &Client) -> Vec<u8> {
    let connection = client.clone().forgetful().connect().expect("connects");
    connection.peer_certificates().remove(0)
}

#[track_caller]
fn wait_for_certificate(client: &Client, certificate: &[u8]) {
    let seen = wait_until(LIMIT, || (served(client) == certificate).then_some(()));
    assert!(seen.is_some(), "the new certificate is not served");
}

/// What the kernel holds for the process: watches of all its inotify descriptors.
fn inotify_watches(proxy: &Proxy) -> usize {
    let directory = format!("/proc/{}/fdinfo", proxy.pid());
    let descriptors = fs::read_dir(directory).expect("it runs").flatten();
    let texts = descriptors.filter_map(|entry| fs::read_to_string(entry.path()).ok());
    texts.map(|text| text.matches("inotify wd:").count()).sum()
}
