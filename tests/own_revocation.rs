//! Revocation of a certificate that the proxy presents: an alarm, an event and a warning of `check`.

use testkit::{Ca, HeldPort, Proxy, ProxyBuilder, TestCredential};

use crate::support;

const INVALID: &str = "certificate-invalid";

#[test]
fn a_revoked_certificate_of_the_proxy_is_an_alarm_wherever_it_is_presented_until_it_is_replaced() {
    let ca = Ca::new();
    let other = HeldPort::take();
    let own = ["one", "two", "three"].map(|name| ca.leaf(name).dns("puppet").issue());
    let [towards_agents, of_a_listener, towards_members] = &own;
    let certificate = |name| {
        format!(
            "certificates = [{{ chain = \"{{dir}}/{name}.pem\", key = \"{{dir}}/{name}.key\" }}]"
        )
    };
    let proxy = with_files(
        support::proxy(&ca),
        &[
            ("one", towards_agents),
            ("two", of_a_listener),
            ("three", towards_members),
        ],
    )
    .with(&format!("[tls]\n{}", certificate("one")))
    .with(&format!(
        "[listeners.other]\naddress = \"127.0.0.1:{other}\"\n{}",
        certificate("two")
    ))
    .with("[upstream.tls]\nchain = \"{dir}/three.pem\"\nkey = \"{dir}/three.key\"")
    .with("[pools.ca]\nmembers = [\"127.0.0.1:1\"]\n[pools.compilers]\nmembers = [\"127.0.0.1:2\"]")
    .start();
    assert_eq!(revoked(&proxy), [""; 0]);
    for (certificate, used_by) in own.iter().zip([
        "one.pem (CN=one) of listener agents is revoked, so agents",
        "two.pem (CN=two) of listener other is revoked, so agents",
        "three.pem (CN=three) of pool ca, pool compilers is revoked, so members",
    ]) {
        let before = revoked(&proxy).len();
        ca.revoke(certificate);
        proxy.write_crl();
        proxy.reload_applied();
        let found = revoked(&proxy);
        assert_eq!(found.len(), before + 1, "{found:?}");
        let number = format!("number {}.", ca.crl_number());
        let message = found.iter().find(|message| message.contains(used_by));
        let message = message.unwrap_or_else(|| panic!("{used_by}: {found:?}"));
        for words in ["It is on the CRL of CN=", &number, "Request a new one"] {
            assert!(message.contains(words), "{words}: {message}");
        }
        proxy.wait_for_event(used_by);
        let checked = proxy.command(&["check"], &[]);
        let printed = checked.stdout + &checked.stderr;
        assert_eq!(checked.code, Some(0), "{printed}");
        assert!(printed.contains(used_by), "{printed}");
    }
    let next = ca.leaf("one").dns("puppet").issue();
    proxy.write("one.pem", &next.chain_pem(), 0o644);
    proxy.write("one.key", &next.key_pem, 0o640);
    proxy.reload_applied();
    proxy.wait_for_event("cleared: certificate ");
    assert_eq!(revoked(&proxy).len(), 2);
}

/// With this CRL, agents refuse every certificate of the estate. The operator sees the alarm of the proxy before that.
#[test]
fn a_revoked_ca_above_the_certificate_of_the_proxy_is_an_alarm() {
    let ca = Ca::new();
    let proxy = support::proxy(&ca)
        .without_members()
        .materials("watch = \"notify\"\ninterval = \"1h\"\nsettle = \"20ms\"")
        .start();
    ca.revoke_intermediate();
    proxy.write_crl();
    proxy.wait_for_event("is revoked, so agents");
    let found = revoked(&proxy);
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].contains("is that of a CA above"), "{found:?}");
    assert!(
        found[0].contains("`puppet ssl bootstrap --ssldir "),
        "{found:?}"
    );
}

/// The messages of the alarms about revoked certificates.
fn revoked(proxy: &Proxy) -> Vec<String> {
    let status = proxy.status();
    let alarms = status["alarms"].as_array().into_iter().flatten();
    let alarms = alarms.filter(|alarm| {
        alarm["key"]
            .as_str()
            .is_some_and(|key| key.starts_with(INVALID))
    });
    let messages = alarms.map(|alarm| alarm["message"].as_str().unwrap_or_default().to_owned());
    messages
        .filter(|message| message.contains("is revoked"))
        .collect()
}

fn with_files(proxy: ProxyBuilder, credentials: &[(&str, &TestCredential)]) -> ProxyBuilder {
    credentials.iter().fold(proxy, |proxy, (name, credential)| {
        proxy
            .file(&format!("{name}.pem"), &credential.chain_pem(), 0o644)
            .file(&format!("{name}.key"), &credential.key_pem, 0o640)
    })
}
