//! `doctor` examines each endpoint of `[fleet]`: the connection, the certificate, the rights and the database.

use serde_json::Value;
use testkit::{EtcdCluster, HeldPort, Tool, wait_until};

use crate::support::{LIMIT, doctor::Clinic};

/// An estate whose proxy is part of a fleet with this etcd and a further endpoint. `None` without etcd and etcdctl.
fn clinic(members: usize, options: &[&str], further: &str) -> Option<(Clinic, EtcdCluster)> {
    Tool::Etcdctl.command()?;
    let mut clinic = Clinic::new();
    let store = EtcdCluster::start_with(&clinic.ca, members, options)?;
    let endpoints = store.endpoints().replace(']', &format!("{further}]"));
    clinic.more = store.fleet_table_of(&endpoints);
    Some((clinic, store))
}

fn about(proof: &Value, list: &str, check: &str) -> Vec<String> {
    let found = proof[list].as_array().into_iter().flatten();
    let found = found.filter(|found| found["check"] == check);
    let about = found.filter_map(|found| found["about"].as_str().map(str::to_owned));
    about.collect()
}

#[test]
fn each_endpoint_of_the_fleet_is_examined_and_nothing_is_left_in_it() {
    let dead = HeldPort::take();
    let further = format!(", \"https://{}\"", dead.address());
    let Some((clinic, store)) = clinic(1, &[], &further) else {
        return;
    };
    let reached = vec![format!("etcd {}", store.address(0))];
    // Without users, each certificate of the CA has all rights.
    let proof = clinic.assert_found("fleet-other-keys", "warning", &["etcd has no users"]);
    for check in [
        "fleet-reached",
        "fleet-certificate",
        "fleet-rights",
        "fleet-database",
    ] {
        assert_eq!(about(&proof, "passed", check), reached, "{check}");
    }
    let dead = dead.address().to_string();
    clinic.assert_found("fleet-reached", "warning", &[&dead, "cannot connect"]);
    assert_eq!(store.keys("/"), Vec::<String>::new());
    store.kill(0);
    clinic.assert_found("fleet-reached", "failure", &[&dead, "cannot connect"]);
}

#[test]
fn rights_in_etcd_are_compared_with_what_the_proxy_needs() {
    let Some((clinic, store)) = clinic(1, &[], "") else {
        return;
    };
    let control = |words: &str| store.execute(words);
    control("user add root --no-password");
    control("user grant-role root root");
    control("role add proscenium");
    control("role grant-permission proscenium --prefix=true readwrite /proscenium/");
    control("auth enable");
    // No user has the name of the proxy's certificate.
    clinic.assert_found("fleet-rights", "failure", &["refuses this proxy"]);
    control("user add puppet --no-password");
    clinic.assert_found("fleet-rights", "failure", &["permission denied"]);
    control("user grant-role puppet proscenium");
    let (proof, _) = clinic.examined(&[]);
    let reached = vec![format!("etcd {}", store.address(0))];
    for check in ["fleet-rights", "fleet-other-keys"] {
        assert_eq!(
            about(&proof, "passed", check),
            reached,
            "{check}: {proof:#}"
        );
    }
    control("role grant-permission proscenium --prefix=true readwrite /");
    clinic.assert_found("fleet-other-keys", "warning", &["role is too wide"]);
}

#[test]
fn a_full_database_and_a_certificate_that_expires_are_found() {
    let Some((clinic, store)) = clinic(1, &["--quota-backend-bytes=4194304"], "") else {
        return;
    };
    let megabyte = vec![b'x'; 1 << 20];
    let is_full = wait_until(LIMIT, || {
        let put = store.try_control(&[0], &["put", "/other"], &megabyte);
        (!put.status.success()).then_some(())
    });
    assert!(is_full.is_some(), "etcd has a quota");
    clinic.assert_found("fleet-database", "failure", &["NOSPACE"]);
    let soon = clinic.ca.leaf("etcd").ip("127.0.0.1").valid_days(-1000, 10);
    store.write_credential(&soon.issue());
    clinic.assert_found("fleet-certificate", "warning", &["CN=etcd", "expires on"]);
}
