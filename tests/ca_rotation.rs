//! A rotation of the Puppet CA, in the steps of docs/guides/ca-rotation.md: first the new CA beside the old one, then
//! the new one only.

use serde_json::Value;
use testkit::{Ca, Client, Proxy, TestCredential};

use crate::support::{
    Estate, LIMIT, assert_contains, assert_refused, done,
    materials::{IMPATIENT, NOTIFY, estate, wait_for_certificate, wait_for_report},
    paths::CATALOG,
};

/// The kinds of the active alarms: their keys without the object.
fn kinds(status: &Value) -> Vec<String> {
    let alarms = status["alarms"].as_array().into_iter().flatten();
    let kinds = alarms.filter_map(|alarm| alarm["key"].as_str()?.split(':').next());
    kinds.map(str::to_owned).collect()
}

#[track_caller]
fn wait_for_kinds(proxy: &Proxy, expected: &[&str]) {
    proxy.wait_for_status(&format!("{expected:?}"), |status| kinds(status) == expected);
}

#[test]
fn a_new_ca_is_added_beside_the_old_one_which_is_then_removed() {
    let estate = estate(&[NOTIFY, IMPATIENT].join("\n")).start();
    let (old, new, proxy) = (&estate.ca, Ca::other(), &estate.proxy);
    let (first, second) = (old.agent("web01"), new.agent("web02"));
    let bundle = old.bundle_pem() + &new.bundle_pem();
    // An agent has the bundle of both CAs, as in the steps, and each request uses a new connection.
    let client = |agent: &TestCredential| Client::new(proxy.address(), &bundle, Some(agent));
    let get =
        |agent: &TestCredential| client(agent).get(&CATALOG.replace("web01", &agent.certname));
    let status = |agent: &TestCredential| get(agent).status;
    let crls = || old.crl_pem() + &new.crl_pem();
    let write = |name: &str, text: &str| proxy.write(&format!("ssl/{name}"), text, 0o640);
    assert_eq!(status(&first), 200);
    assert_refused(&get(&second), 403, &[]);

    // Step 1: the bundle of both CAs, and only then their CRLs. The agents of the old CA notice nothing.
    write("certs/ca.pem", &bundle);
    wait_for_kinds(proxy, &["agents-refused", "agents-refused"]);
    assert_eq!(status(&first), 200);
    assert_refused(&get(&second), 403, &["crl"]);
    write("crl.pem", &crls());
    wait_for_kinds(proxy, &[]);
    assert_eq!((status(&first), status(&second)), (200, 200));
    let checked = proxy.command(&["check"], &[]);
    assert_eq!(checked.code, Some(0), "{}", checked.stderr);
    assert_contains(&checked.stderr, "CAs that do not sign each other");

    // Each CA revokes its own certificates.
    let revoked = [old.agent("web03"), new.agent("web04")];
    for (ca, agent) in [old, &new].into_iter().zip(&revoked) {
        assert_eq!(status(agent), 200);
        ca.revoke(agent);
        write("crl.pem", &crls());
        proxy.wait_for_status("the CRL", |_| status(agent) == 403);
        assert_refused(&get(agent), 403, &["revoked"]);
    }
    assert_eq!((status(&first), status(&second)), (200, 200));

    // Step 2: a certificate of the new CA for the proxy, once all agents trust both CAs.
    let own = new.server("puppet");
    write("private_keys/puppet.pem", &own.key_pem);
    write("certs/puppet.pem", &own.chain_pem());
    wait_for_certificate(&client(&first), &own.cert_der);
    assert_eq!((status(&first), status(&second)), (200, 200));
    // An agent that still trusts only the old CA cannot connect.
    assert!(estate.client(&first).connect().is_err());

    // Step 3: the old CA is removed. Its agents still connect, so the proxy asks for a decision.
    write("crl.pem", &new.crl_pem());
    write("certs/ca.pem", &new.bundle_pem());
    let report = wait_for_report(proxy, |report| report.contains("reload"));
    assert!(report.contains(&old.name()), "{report}");
    assert_eq!(status(&second), 200);
    let reloaded = done(proxy, &["reload"], &[]);
    assert!(reloaded.contains("trust store"), "{reloaded}");
    wait_for_kinds(proxy, &[]);
    assert_refused(&get(&first), 403, &["unknown-issuer"]);
    assert_eq!(status(&second), 200);
    proxy.assert_settled();
}

/// The trust store has its own files, as the guide configures them, and each step is a reload.
#[test]
fn a_rotation_by_reloads_ends_the_connections_of_the_removed_ca() {
    let (old, new) = (Ca::new(), Ca::other());
    let files =
        [("old", &old), ("new", &new)].map(|(name, ca)| (name, ca.bundle_pem(), ca.crl_pem()));
    let builder = Estate::builder().ca(&old);
    let builder = files.iter().fold(builder, |builder, (name, ca, crl)| {
        let builder = builder.file(&format!("{name}-ca.pem"), ca, 0o644);
        builder.file(&format!("{name}-crl.pem"), crl, 0o644)
    });
    let estate = builder
        .with("[trust]\nca = [\"{dir}/old-ca.pem\"]\ncrl = [\"{dir}/old-crl.pem\"]\n")
        .start();
    let proxy = &estate.proxy;
    let (first, second) = (old.agent("web01"), new.agent("web02"));
    let get = |agent: &TestCredential| {
        let target = CATALOG.replace("web01", &agent.certname);
        estate.client(agent).get(&target)
    };
    let reload = || {
        let checked = proxy.command(&["check"], &[]);
        assert_eq!(checked.code, Some(0), "{}", checked.stderr);
        let reloaded = done(proxy, &["reload"], &[]);
        assert!(reloaded.contains("trust store"), "{reloaded}");
        checked.stderr
    };
    assert_eq!(get(&first).status, 200);
    let directory = proxy.directory().display();
    let names = |kind: &str, names: &[&str]| {
        let paths = names
            .iter()
            .map(|name| format!("\"{directory}/{name}-{kind}.pem\""));
        format!("{kind} = [{}]", paths.collect::<Vec<_>>().join(", "))
    };
    let configure = |from: &[&str], to: &[&str]| {
        for kind in ["ca", "crl"] {
            proxy.edit_config(&names(kind, from), &names(kind, to));
        }
        reload()
    };
    let warnings = configure(&["old"], &["old", "new"]);
    assert!(
        warnings.contains("CAs that do not sign each other"),
        "{warnings}"
    );
    assert_eq!((get(&first).status, get(&second).status), (200, 200));
    let shown = done(proxy, &["crl", "show"], &[]);
    for ca in [&old, &new] {
        assert!(shown.contains(&ca.name()), "{shown}");
    }
    let who = done(proxy, &["who"], &["web02"]);
    assert!(who.contains(&new.name()), "{who}");
    let counted = done(proxy, &["status"], &[]);
    let (_, counted) = counted.split_once("agents by CA\n").expect("a count");
    let metrics = proxy.metrics();
    for ca in [&old, &new] {
        let issuer = format!("CN={}", ca.name());
        let mut lines = counted.lines().map(|line| line.trim().rsplit_once("  "));
        let one = |line: Option<(&str, &str)>| {
            line.is_some_and(|(ca, n)| (ca.trim(), n) == (&issuer, "1"))
        };
        assert!(lines.any(one), "{counted}");
        let labels = [("issuer", &*issuer)];
        assert_eq!(metrics.sum("proscenium_agents_by_issuer", &labels), 1.0);
    }
    let mut open = estate.client(&first).connect().expect("connects");
    assert_eq!(open.get(CATALOG).status, 200);
    configure(&["old", "new"], &["new"]);
    assert_eq!(kinds(&proxy.status()), [""; 0]);
    assert_refused(&get(&first), 403, &["unknown-issuer"]);
    assert_eq!(get(&second).status, 200);
    assert!(open.is_closed_within(LIMIT), "{}", proxy.stderr());
    // A reload restores the bundle of both CAs.
    configure(&["new"], &["old", "new"]);
    assert_eq!((get(&first).status, get(&second).status), (200, 200));
}
