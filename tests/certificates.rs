//! Several certificates and several listeners: which certificate a client gets, and that sessions are not shared
//! between listeners.

use rustls::{AlertDescription, SignatureScheme};
use serde_json::Value;
use testkit::{Ca, Client, HeldPort, Proxy, ProxyBuilder, TestCredential};

use crate::support::{self, Estate, assert_contains, fixtures};

#[test]
fn a_server_name_gets_its_certificate_and_an_unknown_one_the_first() {
    let ca = Ca::new();
    let first = ca.server("front.example.com");
    let wild = ca.leaf("sites").dns("*.sites.example.com").issue();
    let exact = ca.leaf("one.sites.example.com").issue();
    let proxy = estate(&ca)
        .with(&tls(&["first", "wild", "exact"]))
        .files(&[("first", &first), ("wild", &wild), ("exact", &exact)])
        .start();
    for version in [Client::tls12, Client::tls13] {
        let client = version(proxy.client(None));
        for (name, shown) in [
            ("front.example.com", &first),
            ("puppet", &first),
            ("FRONT.Example.com", &first),
            ("two.sites.example.com", &wild),
            ("Two.SITES.example.com", &wild),
            // The certificate with the exact name, although the wildcard comes first in the list.
            ("one.sites.example.com", &exact),
            // An address is not a name that a client can send in SNI.
            ("127.0.0.1", &first),
        ] {
            let connection = client.clone().server_name(name).connect();
            let connection = connection.unwrap_or_else(|error| panic!("{name}: {error}"));
            assert_eq!(connection.peer_certificates()[0], shown.cert_der, "{name}");
        }
        for name in [
            "unknown.example.com",
            "sites.example.com",
            "a.b.sites.example.com",
        ] {
            let client = client.clone().server_name(name);
            let error = client.connect().err().expect("not its name").to_string();
            assert!(error.contains("\"front.example.com\""), "{name}: {error}");
        }
    }
}

#[test]
fn the_clients_signature_algorithms_decide_between_certificates_of_one_name() {
    let ca = Ca::new();
    let ecdsa = ca.leaf("puppet.lab.test").issue();
    let rsa = rsa();
    let other = ca.server("other");
    let certificates = [("other", &other), ("ecdsa", &ecdsa), ("rsa", &rsa)];
    let proxy = estate(&ca)
        .with(&tls(&["other", "ecdsa", "rsa"]))
        .files(&certificates)
        .start();
    let bundle = ca.bundle_pem() + &fixtures::text("ca-bundle.pem");
    let client = Client::new(proxy.address(), &bundle, None)
        .protocol(crate::protocol())
        .server_name("puppet.lab.test");
    let both = [ECDSA, RSA].concat();
    for version in [Client::tls12, Client::tls13] {
        for (schemes, shown) in [(ECDSA, &ecdsa), (RSA, &rsa), (&both, &ecdsa)] {
            let client = version(client.clone()).checking(schemes);
            let connection = client.connect();
            let connection = connection.unwrap_or_else(|error| panic!("{schemes:?}: {error}"));
            assert_eq!(connection.peer_certificates()[0], shown.cert_der);
        }
        // For this name the listener has no RSA certificate, and it does not offer one for another name.
        let lost = version(client.clone().server_name("other")).checking(RSA);
        let alert = lost.connect().err().and_then(|error| error.alert());
        assert_eq!(alert, Some(AlertDescription::HandshakeFailure));
    }
}

#[test]
fn a_strict_listener_refuses_unknown_server_names() {
    let ca = Ca::new();
    let proxy = estate(&ca).listener("sni_strict = true").start();
    for version in [Client::tls12, Client::tls13] {
        let client = version(proxy.client(Some(&ca.agent("web01"))));
        assert_eq!(client.get("/nowhere").status, 404);
        let shouted = client.clone().server_name("PUPPET");
        assert_eq!(shouted.get("/nowhere").status, 404);
        for (name, alert) in [
            ("unknown.example.com", AlertDescription::UnrecognisedName),
            ("puppet.example.com", AlertDescription::UnrecognisedName),
            // A client that connects by address sends no server name.
            ("127.0.0.1", AlertDescription::MissingExtension),
        ] {
            let error = client.clone().server_name(name).connect().err();
            assert_eq!(error.and_then(|error| error.alert()), Some(alert), "{name}");
        }
    }
    let output = |reason: &str, words: &str| {
        proxy.wait_for_record(|record| {
            record["reason"] == reason
                && record["cause"]
                    .as_str()
                    .is_some_and(|cause| cause.contains(words))
        })
    };
    let record = output("unrecognized-name", "unknown.example.com");
    assert_eq!(record["status"], Value::Null);
    output("no-server-name", "no server name");
    proxy.wait_for_metric(
        "proscenium_handshakes_total",
        &[("listener", "agents"), ("result", "refused")],
        6.0,
    );
    // Input that is not TLS gets the same response as before.
    let mut noise = Client::plain(proxy.address()).connect().expect("connects");
    noise.send_raw(b"\0 / HTTP/1.1\r\n\r\n").expect("sent");
    noise.read_to_close();
    proxy.wait_for_record(|record| record["reason"] == "not-tls");
    // A reload turns the setting off.
    proxy.edit_config("sni_strict = true", "sni_strict = false");
    proxy.reload_applied();
    let client = proxy.client(None).server_name("127.0.0.1");
    assert!(client.connect().is_ok());
}

#[test]
fn sni_strict_without_a_certificate_that_has_a_name_is_an_error() {
    let ca = Ca::new();
    let nameless = ca.leaf("puppet").without_san().issue();
    let refused = estate(&ca)
        .credential(&nameless)
        .listener("sni_strict = true")
        .check();
    assert_eq!(refused.code, Some(78), "{}", refused.stdout);
    for words in ["listeners.agents", "sni_strict", "it could serve no client"] {
        assert!(refused.stderr.contains(words), "{}", refused.stderr);
    }
}

#[test]
fn check_lists_each_certificate_with_its_names_and_type_of_key() {
    let ca = Ca::new();
    let (ecdsa, rsa, nameless) = (
        ca.leaf("a.example.com").dns("b.example.com").issue(),
        rsa(),
        ca.leaf("old").without_san().issue(),
    );
    let port = HeldPort::take();
    let own = format!(
        "[listeners.others]\naddress = \"127.0.0.1:{port}\"\n{}",
        list(&["nameless"])
    );
    let checked = estate(&ca)
        .with(&tls(&["ecdsa", "rsa"]))
        .with(&own)
        .files(&[("ecdsa", &ecdsa), ("rsa", &rsa), ("nameless", &nameless)])
        .check();
    // Without names in the certificate, agents could not connect to the other listener.
    assert_eq!(checked.code, Some(78), "{}", checked.stderr);
    assert!(
        checked
            .stderr
            .contains("nameless.pem: it has no subjectAltName"),
        "{}",
        checked.stderr
    );
    for words in [
        "ecdsa.pem (CN=a.example.com, ECDSA P-256) is valid for a.example.com, b.example.com, from ",
        "rsa.pem (CN=puppet.lab.test, RSA 4096) is valid for puppet, puppet.lab.test, from ",
        "nameless.pem (CN=old, ECDSA P-256) is valid for no name on listener others, from ",
    ] {
        assert!(checked.stdout.contains(words), "{words}{}", checked.stdout);
    }
}

#[test]
fn a_certificate_from_another_ca_than_that_of_the_agents_is_a_warning() {
    let ca = Ca::new();
    let strange = Ca::named("another").server("puppet");
    let words = "ssl/certs/puppet.pem (CN=puppet): agents that trust the same CAs refuse it";
    let checked = estate(&ca).credential(&strange).check();
    assert_eq!(checked.code, Some(0), "{}", checked.stderr);
    assert!(checked.stderr.contains(words), "{}", checked.stderr);
    let proxy = estate(&ca).start();
    assert!(!proxy.stderr().contains(words), "{}", proxy.stderr());
    proxy.write("ssl/certs/puppet.pem", &strange.cert_pem, 0o644);
    proxy.write("ssl/private_keys/puppet.pem", &strange.key_pem, 0o640);
    let outcome = proxy.reload_applied();
    assert!(outcome["report"].to_string().contains(words), "{outcome:#}");
}

#[test]
fn a_listener_shows_its_own_certificates_and_a_reload_swaps_them() {
    let ca = Ca::new();
    let (first, own, renewed) = (ca.server("first"), ca.server("own"), ca.server("own"));
    let port = HeldPort::take();
    let others = format!(
        "[listeners.others]\naddress = \"127.0.0.1:{port}\"\n{}",
        list(&["own"])
    );
    let proxy = estate(&ca)
        .with(&tls(&["first"]))
        .with(&others)
        .files(&[("first", &first), ("own", &own)])
        .start();
    let shown = |client: Client| {
        let connection = client.forgetful().connect().expect("connects");
        connection.peer_certificates().remove(0)
    };
    let agents = proxy.client(None);
    let others = proxy.client(None).at(port.address());
    assert_eq!(shown(agents.clone()), first.cert_der);
    assert_eq!(shown(others.clone()), own.cert_der);
    proxy.write("own.pem", &renewed.cert_pem, 0o644);
    proxy.write("own.key", &renewed.key_pem, 0o640);
    proxy.reload_applied();
    assert_eq!(shown(agents), first.cert_der);
    assert_eq!(shown(others.clone()), renewed.cert_der);
    // A key that does not match changes nothing, and is reported under the listener's name.
    proxy.write("own.key", &own.key_pem, 0o640);
    let refused = proxy.reload();
    assert_eq!(refused["result"], "refused");
    let report = refused["report"].as_str().unwrap_or_default();
    assert!(
        report.contains("listeners.others.certificates[0]"),
        "{report}"
    );
    assert_eq!(shown(others), renewed.cert_der);
    let effective = proxy.command(&["config", "show"], &[]);
    assert_eq!(effective.code, Some(78), "{}", effective.stdout);
    proxy.write("own.key", &renewed.key_pem, 0o640);
    let effective = proxy.command(&["config", "show"], &[]);
    assert_contains(&effective.stdout, "own.key\" }]");
}

#[test]
fn no_session_of_one_listener_is_resumed_on_another() {
    let ca = Ca::new();
    let (twin, strict) = (HeldPort::take(), HeldPort::take());
    let proxy = estate(&ca)
        .with(&format!("[listeners.twin]\naddress = \"127.0.0.1:{twin}\""))
        .with(&format!(
            "[listeners.strict]\naddress = \"127.0.0.1:{strict}\"\nclient_cert = \"required\""
        ))
        .start();
    let agent = ca.agent("web01");
    for version in [Client::tls12, Client::tls13, Client::without_tickets] {
        for (credential, accepted) in [(None, false), (Some(&agent), true)] {
            let client = version(proxy.client(credential));
            // Tickets arrive with the first response.
            client.get("/nowhere");
            let again = client.connect().expect("connects");
            assert!(again.resumed(), "sessions are resumed at all");
            // The other listener has the same policy.
            let elsewhere = client.clone().at(twin.address());
            let full = elsewhere.connect().expect("connects");
            assert!(!full.resumed(), "not on another listener");
            client.get("/nowhere");
            let elsewhere = client.at(strict.address());
            match elsewhere.connect() {
                Ok(connection) => assert!(!connection.resumed(), "not under another policy"),
                Err(error) => assert!(!accepted, "{error}"),
            }
            let met = elsewhere.try_request("GET", "/nowhere", &[], b"");
            assert_eq!(met.is_ok(), accepted, "{met:?}");
        }
    }
}

/// The fixtures' RSA certificate of `puppet` and `puppet.lab.test`.
const NOT_AFTER: &str = "proscenium_certificate_not_after_timestamp_seconds";
const SOON: &str = "certificate-expiring";
const INVALID: &str = "certificate-invalid";

/// The message of the only active alarm, if it is of this kind.
fn alarm(status: &Value, kind: &str) -> Option<String> {
    let alarms = status["alarms"].as_array().expect("a list");
    assert!(alarms.len() < 2, "one for each file: {alarms:?}");
    let is_of_kind = |alarm: &&Value| {
        alarm["key"]
            .as_str()
            .is_some_and(|key| key.starts_with(kind))
    };
    let alarm = alarms.iter().find(is_of_kind)?;
    alarm["message"].as_str().map(str::to_owned)
}

fn write_own(proxy: &Proxy, credential: &TestCredential) {
    proxy.write("ssl/private_keys/puppet.pem", &credential.key_pem, 0o640);
    proxy.write("ssl/certs/puppet.pem", &credential.chain_pem(), 0o644);
}

#[test]
fn a_certificate_that_expires_soon_is_an_alarm_until_it_is_renewed() {
    let ca = Ca::new();
    let ending = ca.leaf("puppet").valid_days(-400, 20).issue();
    let estate = Estate::builder().ca(&ca).tls_members();
    let estate = estate.credential(&ending).start();
    let proxy = &estate.proxy;
    let message = alarm(&proxy.status(), SOON).expect("an alarm");
    for words in [
        "certs/puppet.pem (CN=puppet) of listener agents, pool ca, pool compilers expires on",
        "in less than 30 days",
    ] {
        assert!(message.contains(words), "{words}: {message}");
    }
    proxy.wait_for_event("in less than 30 days");
    assert_eq!(
        proxy.metrics().sum("proscenium_alarms", &[("alarm", SOON)]),
        1.0
    );
    let days_left = |role, name| {
        let labels = [("role", role), ("name", name), ("subject", "CN=puppet")];
        let now = std::time::SystemTime::UNIX_EPOCH
            .elapsed()
            .expect("after 1970");
        (proxy.metrics().sum(NOT_AFTER, &labels) - now.as_secs_f64()) / 86_400.0
    };
    for (role, name) in [
        ("listener", "agents"),
        ("pool", "ca"),
        ("pool", "compilers"),
    ] {
        let days = days_left(role, name);
        assert!((19.0..21.0).contains(&days), "{role} {name}: {days}");
    }
    let checked = proxy.command(&["check"], &[]);
    assert_eq!(checked.code, Some(0), "{}", checked.stderr);
    let printed = checked.stdout + &checked.stderr;
    for words in [
        "in less than 30 days",
        "is valid for puppet, from ",
        "(CN=puppet, ECDSA P-256) for members, valid from ",
    ] {
        assert!(printed.contains(words), "{words}: {printed}");
    }
    write_own(proxy, &ca.server("puppet"));
    proxy.reload_applied();
    assert_eq!(proxy.status()["alarms"], Value::Array(Vec::new()));
    proxy.wait_for_event("cleared: certificate ");
    assert!(days_left("listener", "agents") > 1000.0);
}

#[test]
fn an_expired_certificate_is_an_alarm_at_once_and_a_valid_one_is_served_instead() {
    let ca = Ca::new();
    let ending = ca.leaf("puppet").valid_seconds(-60, 3).issue();
    let watching = "watch = \"notify\"\ninterval = \"1h\"\nsettle = \"20ms\"\nsettle_max = \"1h\"";
    let estate = Estate::builder()
        .ca(&ca)
        .credential(&ending)
        .materials(watching);
    let estate = estate.start();
    let proxy = &estate.proxy;
    let status = proxy.wait_for_status("expiry", |status| alarm(status, INVALID).is_some());
    let message = alarm(&status, INVALID).expect("an alarm");
    assert!(message.contains("so agents refuse it"), "{message}");
    assert!(
        !proxy.stderr().contains("cleared: certificate"),
        "it does not end the alarm"
    );
    let request = estate
        .anonymous()
        .try_request("GET", "/puppet-ca/v1/certificate/ca", &[], b"");
    assert!(request.is_err(), "agents refuse it");
    write_own(proxy, &ca.server("puppet"));
    proxy.wait_for_status("no alarm", |status| alarm(status, INVALID).is_none());
    let agent = ca.agent("web01");
    assert_eq!(
        estate.client(&agent).get("/puppet/v3/catalog/web01").status,
        200
    );
}

#[test]
fn a_reload_onto_a_certificate_that_agents_refuse_is_refused_while_a_valid_one_is_active() {
    let estate = Estate::start();
    let (proxy, ca) = (&estate.proxy, &estate.ca);
    let agent = ca.agent("web01");
    for (credential, reason) in [
        (ca.leaf("puppet").expired().issue(), "expired on"),
        (
            ca.leaf("puppet").valid_days(1, 30).issue(),
            "is not valid before",
        ),
        (
            ca.leaf("puppet").without_san().issue(),
            "has no subjectAltName",
        ),
    ] {
        write_own(proxy, &credential);
        let refused = proxy.reload();
        let report = refused["report"].as_str().unwrap_or_default();
        assert_eq!(refused["result"], "refused", "{report}");
        assert!(report.contains(reason), "{reason}: {report}");
        assert_eq!(proxy.generation(), 1);
        assert_eq!(
            estate.client(&agent).get("/puppet/v3/catalog/web01").status,
            200
        );
        let command = proxy.command(&["reload"], &[]);
        assert_ne!(command.code, Some(0), "{}", command.stdout);
    }
    write_own(proxy, &ca.server("puppet"));
    proxy.reload_applied();
}

fn rsa() -> TestCredential {
    TestCredential::from_pem(
        "puppet.lab.test",
        &fixtures::text("server.pem"),
        &fixtures::text("server.key"),
    )
}

/// A proxy whose members do not exist.
fn estate(ca: &Ca) -> ProxyBuilder {
    support::proxy(ca).without_members()
}

/// `[tls]` with these certificates.
fn tls(names: &[&str]) -> String {
    format!("[tls]\n{}", list(names))
}

fn list(names: &[&str]) -> String {
    let entry =
        |name: &&str| format!("{{ chain = \"{{dir}}/{name}.pem\", key = \"{{dir}}/{name}.key\" }}");
    let entries: Vec<_> = names.iter().map(entry).collect();
    format!("certificates = [{}]", entries.join(", "))
}

trait Files {
    /// Writes each credential as `NAME.pem` and `NAME.key`.
    fn files(self, credentials: &[(&str, &TestCredential)]) -> Self;
}

impl Files for ProxyBuilder {
    fn files(self, credentials: &[(&str, &TestCredential)]) -> Self {
        credentials.iter().fold(self, |proxy, (name, credential)| {
            proxy
                .file(&format!("{name}.pem"), &credential.chain_pem(), 0o644)
                .file(&format!("{name}.key"), &credential.key_pem, 0o640)
        })
    }
}

const ECDSA: &[SignatureScheme] = &[SignatureScheme::ECDSA_NISTP256_SHA256];
const RSA: &[SignatureScheme] = &[
    SignatureScheme::RSA_PSS_SHA256,
    SignatureScheme::RSA_PKCS1_SHA256,
];

#[test]
fn an_agent_whose_clock_is_wrong_is_found_by_its_alert_about_the_proxys_certificate() {
    let estate = Estate::start();
    let examined = |list: &str| {
        let outcome = estate.proxy.command(&["doctor"], &["--json"]);
        let proof: Value = serde_json::from_str(&outcome.stdout).expect("JSON");
        let output = proof[list].as_array().expect("a list").clone();
        let of_clocks = |output: &&Value| output["check"] == "agent-clocks";
        output.iter().find(of_clocks).cloned()
    };
    let agent = estate.ca.agent("web01");
    let century = std::time::Duration::from_secs(100 * 366 * 86_400);
    let late = estate.client(&agent).clock_ahead(century);
    assert_eq!(
        estate.client(&agent).get("/puppet/v3/catalog/web01").status,
        200
    );
    assert!(examined("passed").is_some() && examined("findings").is_none());

    assert!(
        late.try_request("GET", "/puppet/v3/catalog/web01", &[], b"")
            .is_err()
    );
    estate.wait_for_record(|record| record["reason"] == "client-alert");
    let finding = examined("findings").expect("a finding");
    let found = finding["found"].as_str().unwrap_or_default();
    assert_eq!(finding["severity"], "warning");
    for word in ["1 handshakes", "127.0.0.1", "certificate_expired"] {
        assert!(found.contains(word), "{finding:#}");
    }
    let output = &estate.proxy.status()["listeners"][0]["certificate_rejected"];
    assert_eq!(output["count"], 1, "{output}");
}
