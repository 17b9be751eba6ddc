//! Certificates and CRLs that a reload loads.

use std::{
    fs,
    sync::atomic::{AtomicBool, AtomicUsize, Ordering},
    thread,
};

use testkit::Ca;

use crate::support::{
    Estate, assert_refused, done,
    paths::{CA_CERTIFICATE, CATALOG},
    reload::{Stopping, crl_numbers, renew_certificate, send_until, served_certificate},
    wait_for,
};

#[test]
fn a_certificate_renewed_under_its_name_is_served_after_a_reload() {
    let estate = Estate::start();
    let old = served_certificate(&estate.anonymous());
    let new = renew_certificate(&estate);
    assert_eq!(
        served_certificate(&estate.anonymous()),
        old,
        "not before the reload"
    );
    let outcome = estate.proxy.hang_up();
    assert_eq!(outcome["result"], "applied");
    assert!(
        outcome["report"]
            .as_str()
            .is_some_and(|report| report.contains("materials"))
    );
    assert_eq!(served_certificate(&estate.anonymous()), new);
}

#[test]
fn a_reload_refuses_a_crl_older_than_the_active_one_with_an_alarm() {
    // Once with another CRL in the same reload, and once with no other change.
    for ca in [Ca::new(), Ca::single("alone")] {
        let estate = Estate::builder().ca(&ca).start();
        let agent = ca.agent("web01");
        let old = ca.crl_pem();
        ca.revoke(&agent);
        estate.proxy.swap_crl();
        let before = estate.proxy.metrics().sum("proscenium_trust_alarms", &[]);
        estate.proxy.write("ssl/crl.pem", &old, 0o644);
        estate.proxy.reload();
        let number = ca.crl_number().to_string();
        assert!(
            crl_numbers(&estate.proxy).contains(&number),
            "the newer one stays"
        );
        assert_refused(&estate.client(&agent).get(CATALOG), 403, &["revoked"]);
        let metrics = estate.proxy.metrics();
        assert!(metrics.sum("proscenium_trust_alarms", &[]) > before);
        let alarms = estate.proxy.status()["trust"]["alarms"].to_string();
        assert!(alarms.contains("older"), "{alarms}");
        // The alarm ends when the file is fixed.
        estate.proxy.write("ssl/crl.pem", &ca.crl_pem(), 0o644);
        estate.proxy.reload();
        let alarms = estate.proxy.status()["trust"]["alarms"].to_string();
        assert!(!alarms.contains("older"), "{alarms}");
    }
}

#[test]
fn a_configuration_replaced_by_a_pipe_is_refused_without_waiting_for_a_writer() {
    let estate = Estate::start();
    let agent = estate.ca.agent("web01");
    let (path, text) = (estate.proxy.config_path(), estate.proxy.config_text());
    fs::remove_file(&path).expect("is removed");
    rustix::fs::mknodat(
        rustix::fs::CWD,
        &path,
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::from_raw_mode(0o600),
        0,
    )
    .expect("is made");
    let output = estate.proxy.reload();
    assert_eq!(output["result"], "refused", "{output}");
    assert!(
        output.to_string().contains("it is not a regular file"),
        "{output}"
    );
    // `block` reads the file too.
    fs::remove_file(&path).expect("is removed");
    estate.write_config(&text);
    done(&estate.proxy, &["block"], &["web01", "--why", "stolen"]);
    assert_refused(&estate.client(&agent).get(CATALOG), 403, &["is blocked"]);
}

#[test]
fn a_crl_of_a_hundred_thousand_entries_is_loaded_while_requests_run() {
    let estate = Estate::start();
    let (good, bad) = (estate.ca.agent("web01"), estate.ca.agent("web02"));
    estate.ca.revoke_strangers(100_000);
    estate.ca.revoke(&bad);
    let client = estate.client(&good);
    let (stop, asked) = (AtomicBool::new(false), AtomicUsize::new(0));
    thread::scope(|scope| {
        let _stopping = Stopping(&stop);
        for _ in 0..4 {
            scope.spawn(|| send_until(&stop, &asked, &client, CA_CERTIFICATE));
        }
        estate.proxy.write_crl();
        let reload = scope.spawn(|| estate.proxy.reload());
        // Requests continue while the proxy reads the CRL.
        let before = asked.load(Ordering::SeqCst);
        wait_for("went on", || asked.load(Ordering::SeqCst) > before + 20);
        assert_eq!(reload.join().expect("reloads")["result"], "applied");
    });
    assert_eq!(estate.client(&good).get(CATALOG).status, 200);
    assert_refused(&estate.client(&bad).get(CATALOG), 403, &["revoked"]);
    let entries = estate.proxy.metrics().sum("proscenium_crl_entries", &[]);
    assert_eq!(entries, 100_001.0);
}

/// With one worker, so that a connection that waited for the CRL would not be served before the read ends.
#[test]
fn no_handshake_and_no_request_waits_while_a_crl_is_read() {
    let estate = Estate::builder().top("workers = 1").start();
    let client = estate.agent("web01");
    let mut kept = client.connect().expect("connects");
    estate.ca.revoke_strangers(400_000);
    estate.proxy.write_crl();
    let mut served = 0;
    thread::scope(|scope| {
        let reload = scope.spawn(|| estate.proxy.reload());
        loop {
            // A whole handshake with its verdict, and a request on an open connection.
            assert_eq!(client.clone().forgetful().get(CATALOG).status, 200);
            assert_eq!(kept.get(CATALOG).status, 200);
            if reload.is_finished() {
                break;
            }
            served += 1;
        }
        assert_eq!(reload.join().expect("reloads")["result"], "applied");
    });
    assert!(served >= 1, "none served while the list was read");
    let entries = estate.proxy.metrics().sum("proscenium_crl_entries", &[]);
    assert_eq!(entries, 400_000.0);
}

#[test]
fn a_reload_without_the_crl_of_a_ca_is_refused() {
    let estate = Estate::builder()
        .with("[trust]\nca = \"{dir}/ssl/certs/ca.pem\"\ncrl = \"{dir}/ssl/crl.pem\"")
        .start();
    let (good, bad) = (estate.ca.agent("web01"), estate.ca.agent("web02"));
    estate.ca.revoke(&bad);
    estate.proxy.swap_crl();
    estate
        .proxy
        .write("ssl/crl.pem", &Ca::other().crl_pem(), 0o644);
    let outcome = estate.proxy.reload();
    assert_eq!(outcome["result"], "refused", "{outcome:#}");
    let report = outcome["report"].as_str().unwrap_or_default();
    for expected in [&*estate.ca.name(), "Restore the file", "`unchecked`"] {
        assert!(report.contains(expected), "{expected} is not in {report}");
    }
    let target = |name: &str| format!("/puppet/v3/node/{name}");
    assert_eq!(estate.client(&good).get(&target("web01")).status, 200);
    assert_eq!(estate.client(&bad).get(&target("web02")).status, 403);
    // Another edit of the table `[trust]` does not make the reload accept the CRL.
    estate.edit_config("[trust]\n", "[trust]\nrevoked_close_rate = 900\n");
    assert_eq!(estate.proxy.reload()["result"], "refused");
    // The setting `unchecked` makes the reload accept the CRL. Revoked certificates stay revoked.
    estate.edit_config("[trust]\n", "[trust]\nunchecked = [\"*\"]\n");
    estate.proxy.reload_applied();
    assert_eq!(estate.client(&good).get(&target("web01")).status, 200);
    assert_eq!(estate.client(&bad).get(&target("web02")).status, 403);
}
