//! `doctor` on files, certificates, CAs and CRLs of the proxy.

use std::path::PathBuf;

use rcgen::DnType;
use testkit::command_line;

use crate::support::{
    BINARY,
    doctor::{Clinic, remedies},
};

#[test]
fn a_key_that_everyone_may_read_is_found() {
    let clinic = Clinic::new();
    clinic.chmod("ssl/private_keys/puppet.pem", 0o644);
    let path = clinic
        .path("ssl/private_keys/puppet.pem")
        .display()
        .to_string();
    let proof = clinic.assert_found("configuration", "failure", &[&path, "open to everyone"]);
    let remedy = proof["findings"][0]["remedy"].as_str().unwrap_or_default();
    assert!(remedy.contains("chmod o="), "{proof:#}");
    assert!(
        clinic.compiler.requests().is_empty(),
        "a refused configuration causes no request"
    );
}

#[test]
fn a_crl_that_everyone_may_write_is_found() {
    let clinic = Clinic::new();
    clinic.chmod("crl.pem", 0o666);
    clinic.assert_found("files", "failure", &["crl.pem", "every user", "0666"]);
}

#[test]
fn a_directory_that_everyone_may_write_is_found() {
    let clinic = Clinic::new();
    clinic.chmod("ssl/certs", 0o777);
    clinic.assert_found(
        "files",
        "failure",
        &["certs/ca.pem", "its directory", "0777"],
    );
}

#[test]
fn a_parent_or_linked_directory_that_everyone_may_write_is_found() {
    let clinic = Clinic::new();
    clinic.chmod("ssl", 0o777);
    let ssl = clinic.path("ssl").display().to_string();
    let found = &["certs/ca.pem", &ssl, "on its path", "0777"];
    clinic.assert_found("files", "failure", found);
    clinic.chmod("ssl", 0o755);
    let open = clinic.path("open");
    std::fs::create_dir(&open).expect("a directory of the test's own");
    clinic.write("open/crl.pem", &clinic.ca.crl_pem(), 0o644);
    clinic.chmod("open", 0o777);
    std::fs::remove_file(clinic.path("crl.pem")).expect("it is there");
    std::os::unix::fs::symlink(open.join("crl.pem"), clinic.path("crl.pem")).expect("a link");
    let open = open.display().to_string();
    clinic.assert_found(
        "files",
        "failure",
        &["crl.pem", &open, "every user", "0777"],
    );
}

#[test]
fn faults_of_the_state_directory_are_found() {
    let clinic = Clinic::new();
    std::fs::create_dir(clinic.path("state")).expect("a directory of the test's own");
    clinic.chmod("state", 0o700);
    clinic.write("state/blocks.json", "{\"version\": 1", 0o600);
    let found = &["blocks.json", "the proxy would not start"];
    clinic.assert_found("files", "failure", found);
    clinic.write("state/blocks.json", "{\"version\":1,\"blocks\":[]}", 0o600);
    let (proof, code) = clinic.examined(&[]);
    assert_eq!(code, Some(0), "{proof:#}");
    clinic.write("state/members.json", "{\"version\":1,\"members\":[", 0o600);
    clinic.write("state/persistence-key", "short", 0o600);
    let found = &["members.json", "would be ready after a start"];
    clinic.assert_found("files", "warning", found);
    let found = &["persistence-key", "wrong length"];
    clinic.assert_found("files", "warning", found);
    clinic.write(
        "state/members.json",
        "{\"version\":1,\"members\":[]}",
        0o600,
    );
    clinic.write("state/persistence-key", &"k".repeat(32), 0o600);
    let (proof, code) = clinic.examined(&[]);
    assert_eq!(code, Some(0), "{proof:#}");
    let mut clinic = clinic;
    clinic.fetches = true;
    clinic.write("state/crl-accepted.json", "no JSON", 0o600);
    let found = &["crl-accepted.json", "cannot read which CRLs"];
    clinic.assert_found("files", "warning", found);
}

#[test]
fn an_expired_or_expiring_certificate_of_the_proxy_is_found() {
    let clinic = Clinic::new();
    clinic.write_own(&clinic.ca.leaf("puppet").expired().issue());
    clinic.assert_found(
        "certificate-dates",
        "failure",
        &["puppet.pem", "expired on"],
    );
    clinic.write_own(&clinic.ca.leaf("puppet").valid_days(-60, 7).issue());
    clinic.assert_found("certificate-dates", "warning", &["puppet.pem", "days"]);
}

#[test]
fn a_certificate_of_the_proxy_with_rights_on_members_is_found() {
    let clinic = Clinic::new();
    let pp_cli_auth = [1, 3, 6, 1, 4, 1, 34380, 1, 3, 39];
    clinic.write_own(
        &clinic
            .ca
            .leaf("puppet")
            .extension(&pp_cli_auth, "true")
            .issue(),
    );
    clinic.assert_found("configuration", "failure", &["pp_cli_auth"]);
}

#[test]
fn an_expired_crl_and_an_expiring_one_are_found() {
    let clinic = Clinic::new();
    clinic.ca.crl_next_update_days(-1);
    clinic.write("crl.pem", &clinic.ca.crl_pem(), 0o644);
    let issuer = format!("CN={}", clinic.ca.name());
    clinic.assert_found("crl", "failure", &[&issuer, "expired on"]);
    clinic.ca.crl_next_update_seconds(6 * 3600);
    clinic.write("crl.pem", &clinic.ca.crl_pem(), 0o644);
    clinic.assert_found("crl", "warning", &[&issuer, "expires"]);
}

#[test]
fn an_expired_ca_is_found_by_doctor_and_check_and_a_renewed_one_is_harmless() {
    let clinic = Clinic::new();
    let bundle = |cas: &[&str]| {
        let text = clinic.ca.bundle_pem() + &cas.concat();
        clinic.write("ssl/certs/ca.pem", &text, 0o644);
    };
    let ended = ca_pem("Puppet CA: old", 2001);
    bundle(&[&ended]);
    clinic.assert_found("ca-dates", "failure", &["CN=Puppet CA: old", "expired on"]);
    let config = clinic.path("proscenium.toml").display().to_string();
    let check = || command_line(&PathBuf::from(BINARY), &["check", "--config", &config]);
    let expected = "CA CN=Puppet CA: old expired on 2001";
    assert!(check().stderr.contains(expected), "{}", check().stderr);
    bundle(&[&ended, &ca_pem("Puppet CA: old", 2999)]);
    let found = &["CN=Puppet CA: old", "another CA certificate with that name"];
    clinic.assert_found("ca-dates", "warning", found);
    bundle(&[]);
    assert!(!check().stderr.contains("expired"), "{}", check().stderr);
    // The same for a CA that verifies only members.
    let mut clinic = clinic;
    let members = clinic.ca.bundle_pem() + &ended;
    clinic.write("members-ca.pem", &members, 0o644);
    clinic.pool = |clinic| {
        let dir = clinic.directory.path().display();
        format!("{}ca = \"{dir}/members-ca.pem\"\n", clinic.tls_pool())
    };
    clinic.more = "crl = \"{dir}/crl.pem\"\n".to_owned();
    let found = &["CN=Puppet CA: old", "members-ca.pem", "expired on"];
    clinic.assert_found("ca-dates", "failure", found);
    let expected = "which verifies members, is expired or not valid yet";
    assert!(check().stderr.contains(expected), "{}", check().stderr);
}

/// A CA with this name that expires at the end of this year.
fn ca_pem(name: &str, until: i32) -> String {
    let mut ca = rcgen::CertificateParams::default();
    ca.distinguished_name.push(DnType::CommonName, name);
    ca.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    ca.not_before = rcgen::date_time_ymd(2000, 1, 1);
    ca.not_after = rcgen::date_time_ymd(until, 12, 31);
    let key = rcgen::KeyPair::generate().expect("a key");
    ca.self_signed(&key).expect("a certificate").pem()
}

#[test]
fn a_ca_without_a_crl_is_found() {
    let clinic = Clinic::new();
    clinic.write("crl.pem", &clinic.ca.issuing_crl_pem(), 0o644);
    let proof = clinic.assert_found("crl", "failure", &["no CRL of this CA"]);
    assert!(
        remedies(&proof, "crl").contains("`[trust] crl`"),
        "{proof:#}"
    );
    // Without that CRL, the certificates of members cannot be checked either. Another certificate would not help.
    let remedies = remedies(&proof, "member-certificate");
    assert!(remedies.contains("fix that CRL"), "{proof:#}");
    assert!(!remedies.contains("issue a certificate"), "{proof:#}");
}

#[test]
fn a_crl_that_revokes_the_proxy_is_found() {
    let clinic = Clinic::new();
    let own = clinic.ca.server("puppet");
    clinic.write_own(&own);
    clinic.ca.revoke(&own);
    clinic.write("crl.pem", &clinic.ca.crl_pem(), 0o644);
    clinic.assert_found("own-certificate", "failure", &["puppet.pem", "revoked"]);
}

#[test]
fn a_crl_older_than_the_cas_own_is_found() {
    let clinic = Clinic::new();
    clinic.ca.revoke(&clinic.ca.agent("web09"));
    clinic.assert_found(
        "crl-fresh",
        "warning",
        &["in pool ca", "number 1", "the proxy uses an older one"],
    );
}
