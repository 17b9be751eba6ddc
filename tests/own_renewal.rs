//! Renewal of the proxy's own certificates at the Puppet CA: a due certificate is replaced by its next one without a restart,
//! and anything else leaves it as it is, with an alarm that says what to do.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

use rustix::process::Signal;
use serde_json::Value;
use tempfile::TempDir;
use testkit::{Ca, LeafBuilder, Proxy, Recorded, Renewing, Reply, TestCredential, wait_until};

use crate::support::{
    Estate, EstateBuilder, LIMIT,
    materials::{NOTIFY, served, wait_for_certificate, wait_for_words},
    paths::CATALOG,
};

const RENEWAL: &str = "/puppet-ca/v1/certificate_renewal";
const OFF: &str = "renew = false";
const ON: &str = "renew = true";
const SOON: &str = "certificate-expiring";

/// A leaf with the names of the proxy.
fn named(ca: &Ca) -> LeafBuilder {
    ca.leaf("puppet").dns("localhost").ip("127.0.0.1")
}

/// A certificate of the proxy that expires in 20 days.
fn due(ca: &Ca) -> TestCredential {
    named(ca).valid_days(-400, 20).issue()
}

/// An estate whose proxy has this certificate. Its renewal is still off.
fn presenting(ca: &Ca, present: &TestCredential) -> EstateBuilder {
    Estate::builder()
        .ca(ca)
        .compilers(1)
        .tls_members()
        .credential(present)
        .with(&format!("[tls]\n{OFF}"))
}

/// A CA that renews the certificate of its TLS client.
fn renewing(estate: &Estate) {
    estate.ca_server.renew(Renewing::Inventory(Vec::new()));
}

fn enable(proxy: &Proxy) {
    proxy.edit_config(OFF, ON);
    proxy.reload_applied();
}

fn chain_file(proxy: &Proxy) -> PathBuf {
    proxy.ssldir().join("certs/puppet.pem")
}

fn temporary(chain: &Path) -> PathBuf {
    chain.with_file_name(".puppet.pem.renewed")
}

fn renewals(requests: &[Recorded]) -> Vec<Recorded> {
    let renewals = requests.iter().filter(|request| request.path() == RENEWAL);
    renewals.cloned().collect()
}

/// The messages of the alarms about certificates that expire soon.
fn expiring(status: &Value) -> String {
    let alarms = status["alarms"].as_array().expect("a list");
    let of_kind = alarms.iter().filter(|alarm| {
        let key = alarm["key"].as_str().unwrap_or_default();
        key.starts_with(SOON)
    });
    let messages: Vec<_> = of_kind
        .filter_map(|alarm| alarm["message"].as_str())
        .collect();
    messages.join("\n")
}

#[track_caller]
fn wait_for_alarm(proxy: &Proxy, words: &str) -> String {
    let status = proxy.wait_for_status(words, |status| expiring(status).contains(words));
    expiring(&status)
}

/// The subject, the names and the key of a certificate.
fn identity(der: &[u8]) -> (String, String, Vec<u8>) {
    let (_, certificate) = x509_parser::parse_x509_certificate(der).expect("a certificate");
    let names = certificate.subject_alternative_name().expect("valid");
    let names = names.map(|names| format!("{:?}", names.value.general_names));
    (
        certificate.subject().to_string(),
        names.unwrap_or_default(),
        certificate.public_key().raw.to_vec(),
    )
}

/// Waits until the proxy serves a different certificate, and returns it.
#[track_caller]
fn wait_for_next(estate: &Estate, present: &TestCredential) -> Vec<u8> {
    let client = estate.anonymous();
    let next = wait_until(LIMIT, || {
        Some(served(&client)).filter(|served| *served != present.cert_der)
    });
    next.unwrap_or_else(|| panic!("not renewed:\n{}", estate.proxy.stderr()))
}

#[test]
fn certificates_of_a_listener_and_towards_members_are_renewed_too() {
    let ca = Ca::new();
    let (own, listener, members) = (named(&ca).issue(), due(&ca), due(&ca));
    let files = [("listener", &listener), ("members", &members)]
        .map(|(name, credential)| (name, credential.chain_pem(), credential.key_pem.clone()));
    let builder = Estate::builder().ca(&ca).compilers(1).tls_members();
    let builder = files.iter().fold(builder, |builder, (name, chain, key)| {
        builder.file(&format!("own/{name}.pem"), chain, 0o644).file(
            &format!("own/{name}.key"),
            key,
            0o640,
        )
    });
    let estate = builder
        .credential(&own)
        .listener(
            "certificates = [{ chain = \"{dir}/own/listener.pem\", key = \"{dir}/own/listener.key\" }]",
        )
        .with(&format!(
            "[tls]\n{OFF}\n[upstream.tls]\nchain = \"{{dir}}/own/members.pem\"\nkey = \"{{dir}}/own/members.key\""
        ))
        .start();
    renewing(&estate);
    enable(&estate.proxy);
    for (name, chain, _) in files {
        let file = estate.proxy.directory().join(format!("own/{name}.pem"));
        let renewed = wait_until(LIMIT, || {
            let now = fs::read_to_string(&file).expect("a chain");
            (now != chain).then_some(())
        });
        assert!(renewed.is_some(), "{name}: {}", estate.proxy.stderr());
    }
    assert_ne!(wait_for_next(&estate, &listener), listener.cert_der);
}

#[test]
fn a_due_certificate_is_renewed_with_its_key_and_served_without_a_restart() {
    let ca = Ca::new();
    let present = due(&ca);
    let estate = presenting(&ca, &present).materials(NOTIFY).start();
    renewing(&estate);
    let (proxy, chain) = (&estate.proxy, chain_file(&estate.proxy));
    // Off by default: the alarm says which command renews it.
    let command = format!(
        "`puppet ssl bootstrap --hostcert_renewal_interval 90d --ssldir {} --certname puppet --ca_server 127.0.0.1 --ca_port ",
        proxy.ssldir().display()
    );
    wait_for_alarm(proxy, &command);
    assert!(estate.ca_server.requests().is_empty());
    enable(proxy);
    let next = wait_for_next(&estate, &present);
    assert_eq!(identity(&next), identity(&present.cert_der));
    // One POST without a body and without an identity, authenticated by the certificate itself.
    let requests = estate.ca_server.requests();
    let [request] = requests.as_slice() else {
        panic!("{requests:#?}");
    };
    assert_eq!((request.method.as_str(), request.path()), ("POST", RENEWAL));
    assert_eq!(request.only("content-length"), "0");
    assert!(
        !request.raw_text().to_lowercase().contains("x-client"),
        "{}",
        request.raw_text()
    );
    assert_eq!(request.peer_certificates[0], present.cert_der);
    // The file contains the next certificate, with the mode of the old file.
    let stored = TestCredential::from_pem("puppet", &fs::read_to_string(&chain).expect("read"), "");
    assert_eq!(stored.cert_der, next);
    let mode = fs::metadata(&chain).expect("is there").permissions().mode();
    assert_eq!(mode & 0o777, 0o644);
    assert!(!temporary(&chain).exists());
    // The alarm is cleared, and members get the new certificate too.
    proxy.wait_for_status("no alarm", |status| expiring(status).is_empty());
    proxy.wait_for_event("renewed the certificate");
    let agent = ca.agent("web01");
    assert_eq!(estate.client(&agent).get(CATALOG).status, 200);
    assert_eq!(estate.compilers[0].last().peer_certificates[0], next);
    // The files on disk are the active ones, and nothing is due any more.
    assert_eq!(proxy.reload()["result"], "unchanged");
    assert_eq!(served(&estate.anonymous()), next);
    assert_eq!(renewals(&estate.ca_server.requests()).len(), 1);
    assert!(
        !proxy.stderr().contains("are refused"),
        "{}",
        proxy.stderr()
    );
}

#[test]
fn any_other_answer_leaves_the_certificate_and_the_alarm_says_what_to_do() {
    let ca = Ca::new();
    let present = due(&ca);
    let estate = presenting(&ca, &present).start();
    let (proxy, chain) = (&estate.proxy, chain_file(&estate.proxy));
    let over = |leaf: LeafBuilder| leaf.issue_with_key_of(&present).cert_pem;
    let good = over(named(&ca));
    let lacking = over(ca.leaf("puppet").ip("127.0.0.1"));
    let pem = |pem: String| Reply::ok(&pem);
    let cases = [
        (
            "another key",
            pem(named(&ca).issue().cert_pem),
            "another key",
        ),
        ("a lost name", pem(lacking), "not valid for localhost"),
        ("another subject", pem(over(ca.leaf("other"))), "CN=other"),
        (
            "another CA",
            pem(over(named(&Ca::other()))),
            "which did not issue the present",
        ),
        (
            "a CA of the same name",
            pem(over(named(&ca.namesake()))),
            "no CA of [trust] ca verifies it",
        ),
        (
            "an earlier end",
            pem(over(named(&ca).valid_days(-400, 19))),
            "not later than the present",
        ),
        (
            "not valid yet",
            pem(over(named(&ca).valid_days(1, 900))),
            "it is not valid before",
        ),
        (
            "other purposes",
            pem(over(named(&ca).for_clients_alone())),
            "not valid for the same purposes",
        ),
        (
            "rights on servers",
            pem(over(
                named(&ca).extension(&[1, 3, 6, 1, 4, 1, 34380, 1, 3, 39], "true"),
            )),
            "authorization extensions",
        ),
        ("two", pem(good.repeat(2)), "something other than base64"),
        // The alarm of each case has different words from the one before, so the test can wait for it.
        (
            "a page",
            Reply::ok("<html>"),
            "it does not begin with the line",
        ),
        (
            "an endless text",
            pem(good.repeat(200)),
            "more than 65536 bytes",
        ),
        (
            "a coded text",
            pem(good.clone()).header("Content-Encoding", "gzip"),
            "Content-Encoding",
        ),
        (
            "403",
            Reply::status(403).body(b"Forbidden"),
            "403 Forbidden (Forbidden); on the CA server, auth.conf must allow",
        ),
        (
            "400",
            Reply::status(400).body(b"No cert"),
            "400 Bad Request (No cert); on the CA server",
        ),
        (
            "503",
            Reply::status(503).body(b"busy"),
            "503 Service Unavailable (busy); the proxy tries again",
        ),
        (
            "a redirect",
            Reply::status(302).header("Location", "/"),
            "answered 302",
        ),
        ("no answer", Reply::hang_up(), "did not answer"),
        (
            "404",
            Reply::status(404).body(b"Not Found"),
            "`puppet ssl bootstrap --ssldir ",
        ),
    ];
    let before = fs::read(&chain).expect("is there");
    let mut is_on = false;
    for (what, reply, words) in cases {
        estate.forget();
        estate
            .ca_server
            .answer(move |request| (request.path() == RENEWAL).then(|| reply.clone()));
        match is_on {
            // A reload by the operator tries again at once.
            true => assert_eq!(proxy.reload()["result"], "unchanged"),
            false => enable(proxy),
        }
        is_on = true;
        let message = wait_for_alarm(proxy, words);
        assert!(message.contains("in less than 30 days"), "{message}");
        assert!(message.contains("`puppet ssl "), "{what}: {message}");
        proxy.wait_for_event(words);
        assert_eq!(served(&estate.anonymous()), present.cert_der, "{what}");
        assert_eq!(fs::read(&chain).expect("is there"), before, "{what}");
        assert!(!temporary(&chain).exists(), "{what}");
        assert_eq!(renewals(&estate.far_end()).len(), 1, "{what}");
        assert_eq!(proxy.generation(), 2, "{what}");
    }
    estate.ca_server.answer_as_puppet();
    renewing(&estate);
    assert_eq!(proxy.reload()["result"], "unchanged");
    wait_for_next(&estate, &present);
    proxy.wait_for_status("no alarm", |status| expiring(status).is_empty());
}

#[test]
fn a_ca_that_is_down_is_an_alarm_and_the_same_failure_is_logged_once() {
    let ca = Ca::new();
    let present = due(&ca);
    let estate = presenting(&ca, &present).start();
    renewing(&estate);
    estate.ca_server.stop();
    enable(&estate.proxy);
    let words = "is due for renewal";
    wait_for_alarm(
        &estate.proxy,
        "the proxy tries again; otherwise run `puppet ssl bootstrap --hostcert_renewal_interval 90d",
    );
    assert_eq!(estate.proxy.reload()["result"], "unchanged");
    estate.ca_server.restart();
    estate.proxy.reload();
    wait_for_next(&estate, &present);
    assert_eq!(estate.proxy.stderr().matches(words).count(), 1);
}

#[test]
fn a_file_that_cannot_be_replaced_uses_up_no_serial_of_the_ca() {
    let ca = Ca::new();
    let present = due(&ca);
    let estate = presenting(&ca, &present).start();
    renewing(&estate);
    // Whatever the account of this test may write, it cannot replace a directory with a file.
    let obstacle = temporary(&chain_file(&estate.proxy));
    fs::create_dir(&obstacle).expect("is made");
    enable(&estate.proxy);
    let message = wait_for_alarm(&estate.proxy, "cannot replace");
    assert!(message.contains("writable for the account"), "{message}");
    assert!(estate.ca_server.requests().is_empty());
    assert_eq!(served(&estate.anonymous()), present.cert_der);
    fs::remove_dir(&obstacle).expect("is removed");
    estate.proxy.reload();
    wait_for_next(&estate, &present);
}

#[test]
fn a_certificate_with_its_key_in_one_file_or_with_rights_on_servers_is_not_renewed() {
    let ca = Ca::new();
    let present = due(&ca);
    let both = format!("{}{}", present.cert_pem, present.key_pem);
    let rights = named(&ca).extension(&[1, 3, 6, 1, 4, 1, 34380, 1, 3, 39], "true");
    let rights = rights.valid_days(-400, 20).issue();
    let entries = [("both.pem", "both.pem"), ("rights.pem", "rights.key")]
        .map(|(chain, key)| format!("{{ chain = \"{{dir}}/{chain}\", key = \"{{dir}}/{key}\" }}"));
    let certificates = format!("[tls]\n{OFF}\ncertificates = [{}]", entries.join(", "));
    let estate = Estate::builder().ca(&ca).tls_members();
    let estate = estate
        .file("both.pem", &both, 0o600)
        .file("rights.pem", &rights.cert_pem, 0o644)
        .file("rights.key", &rights.key_pem, 0o600)
        .with(&certificates);
    let estate = estate.start();
    renewing(&estate);
    enable(&estate.proxy);
    wait_for_alarm(&estate.proxy, "put the key in a file of its own");
    wait_for_alarm(&estate.proxy, "does not present to servers");
    assert!(estate.ca_server.requests().is_empty());
}

#[test]
fn each_due_certificate_is_renewed_with_itself_and_no_other_is_requested() {
    let ca = Ca::new();
    let far = named(&ca).valid_days(-400, 46).issue();
    let strange = Ca::other().leaf("strange").valid_days(-400, 20).issue();
    let mut one = ca.leaf("one.example.com").valid_days(-400, 44).issue();
    let two = ca.leaf("two.example.com").valid_days(-400, 5).issue();
    // A chain that contains the certificate of its CA keeps that certificate.
    one.intermediates_pem = ca.issuing_pem();
    let files = [
        ("far", &far),
        ("strange", &strange),
        ("one", &one),
        ("two", &two),
    ];
    let entries = files.map(|(name, _)| {
        format!("{{ chain = \"{{dir}}/{name}.pem\", key = \"{{dir}}/{name}.key\" }}")
    });
    let certificates = format!("[tls]\n{OFF}\ncertificates = [{}]", entries.join(", "));
    let builder = Estate::builder().ca(&ca).tls_members().with(&certificates);
    let builder = files.iter().fold(builder, |builder, (name, credential)| {
        builder
            .file(&format!("{name}.pem"), &credential.chain_pem(), 0o644)
            .file(&format!("{name}.key"), &credential.key_pem, 0o600)
    });
    let estate = builder.start();
    renewing(&estate);
    enable(&estate.proxy);
    wait_for_words(&estate.proxy, "renewed the certificate", 2);
    let presented: Vec<_> = renewals(&estate.ca_server.requests())
        .iter()
        .map(|request| request.peer_certificates[0].clone())
        .collect();
    assert_eq!(presented, [&one, &two].map(|due| due.cert_der.clone()));
    for present in [&one, &two] {
        let client = estate.anonymous().server_name(&present.certname);
        let next = served(&client);
        assert_ne!(next, present.cert_der);
        assert_eq!(identity(&next), identity(&present.cert_der));
    }
    let client = estate.anonymous().server_name("one.example.com");
    let sent = client.forgetful().connect().expect("connects");
    assert_eq!(sent.peer_certificates().len(), 2);
    let chain = fs::read_to_string(estate.proxy.directory().join("one.pem")).expect("read");
    assert!(chain.ends_with(&ca.issuing_pem()), "{chain}");
    assert_eq!(served(&estate.anonymous()), far.cert_der);
    // The alarm about the certificate from another CA stays.
    let alarms = expiring(&estate.proxy.status());
    assert!(
        alarms.contains("strange.pem") && !alarms.contains("two.pem"),
        "{alarms}"
    );
}

#[test]
fn a_killed_proxy_leaves_a_usable_file_and_renews_after_the_next_start() {
    let place = TempDir::new().expect("a directory");
    let (chain, key) = (
        place.path().join("puppet.pem"),
        place.path().join("puppet.key"),
    );
    let ca = Ca::new();
    let present = due(&ca);
    fs::write(&chain, &present.cert_pem).expect("is written");
    fs::write(&key, &present.key_pem).expect("is written");
    fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).expect("is ours");
    let start = || {
        let certificates =
            format!("[tls]\n{OFF}\ncertificates = [{{ chain = {chain:?}, key = {key:?} }}]");
        let estate = Estate::builder().ca(&ca).tls_members();
        let estate = estate.with(&certificates).start();
        renewing(&estate);
        estate
    };
    let kill = |estate: Estate| {
        estate.proxy.signal(Signal::KILL);
        estate.proxy.wait_for_end(LIMIT);
    };
    // The proxy is killed while the CA renews: the old certificate is complete.
    let estate = start();
    estate.ca_server.hold();
    enable(&estate.proxy);
    estate.ca_server.wait_for_request(1, LIMIT);
    assert!(temporary(&chain).exists());
    kill(estate);
    assert_eq!(
        fs::read_to_string(&chain).expect("is there"),
        present.cert_pem
    );
    // The proxy is killed as soon as the file has changed: the new certificate is complete.
    let estate = start();
    assert_eq!(served(&estate.anonymous()), present.cert_der);
    enable(&estate.proxy);
    let stored = wait_until(LIMIT, || {
        let stored = fs::read_to_string(&chain).expect("is there at any time");
        (stored != present.cert_pem).then_some(stored)
    });
    kill(estate);
    let next = TestCredential::from_pem("puppet", &stored.expect("is renewed"), "");
    assert!(!temporary(&chain).exists());
    let estate = start();
    wait_for_certificate(&estate.anonymous(), &next.cert_der);
    assert_eq!(identity(&next.cert_der), identity(&present.cert_der));
    enable(&estate.proxy);
    assert!(estate.ca_server.requests().is_empty());
}

#[test]
fn renewal_needs_a_ca_over_tls() {
    for (lines, words) in [
        (ON, "the CA knows from TLS which certificate it renews"),
        ("renew_before = \"20d\"", "no effect with renew = false"),
    ] {
        let lines = format!("[tls]\n{lines}");
        let checked = crate::support::proxy(&Ca::new())
            .with(&lines)
            .without_members()
            .check();
        assert!(checked.stderr.contains(words), "{}", checked.stderr);
    }
}
