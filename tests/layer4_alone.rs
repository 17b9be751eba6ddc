//! A proxy that only passes connections through: without a certificate, a CA, a CRL, a route or the pools of Puppet.

use testkit::{Ca, HeldPort, ProxyBuilder, StandIn};

use crate::support::{
    layer4::{Broker, assert_echo, connect},
    paths::CATALOG,
    proxy,
};

const NAME: &str = "production.puppet.example.com";

/// A proxy with these tables, on a machine without files of an agent.
fn alone(ca: &Ca, tables: &str) -> ProxyBuilder {
    proxy(ca).whole(&format!(
        "ssldir = \"{{dir}}/absent\"\n{tables}\n\
         [access_log]\npath = \"{{dir}}/access.json\"\nformat = \"json\"\n\
         [admin]\nsocket = \"{{dir}}/admin.sock\"\n"
    ))
}

fn pool(name: &str, member: &str, lines: &str) -> String {
    format!("[pools.{name}]\nmembers = [\"{member}\"]\ncheck = {{ type = \"tcp\" }}\n{lines}\n")
}

#[test]
fn passthrough_needs_neither_files_nor_routes() {
    let (ca, broker) = (Ca::new(), Broker::echo());
    let other = HeldPort::take();
    let agents = "[listeners.agents]\naddress = \"127.0.0.1:{port}\"\npassthrough = \"agents\"\n";
    let pcp = format!("[listeners.pcp]\naddress = \"127.0.0.1:{other}\"\npassthrough = \"pcp\"\n");
    let pools = pool("agents", &broker.address(), "") + &pool("pcp", &broker.address(), "");
    let tables = format!("{agents}{pcp}{pools}");
    for top in ["", "builtin_routes = false\n"] {
        let checked = alone(&ca, &format!("{top}{tables}"))
            .argument("--strict")
            .check();
        assert_eq!(checked.code, Some(0), "{}", checked.stderr);
    }
    let proxy = alone(&ca, &tables).start();
    proxy.wait_for_members(&["agents", "pcp"]);
    let mut client = connect(proxy.address());
    assert_echo(&mut client, b"\x16\x03\x01 anything");
    let pcp_address = format!("127.0.0.1:{other}").parse().expect("an address");
    assert_echo(&mut connect(pcp_address), b"more");
    assert!(
        proxy.status()["alarms"]
            .as_array()
            .is_some_and(Vec::is_empty)
    );
    // A reload keeps the connections. A listener that redirects needs no file either.
    let redirect = HeldPort::take();
    proxy.write_config(&format!(
        "{}[listeners.plain]\naddress = \"127.0.0.1:{redirect}\"\nredirect_to_https = \"https://puppet\"\n",
        proxy.config_text()
    ));
    proxy.reload_applied();
    assert_echo(&mut client, b"still open");
    let doctored = proxy.command(&["doctor"], &[]);
    assert!(!doctored.stderr.contains("panicked"), "{}", doctored.stderr);
}

#[test]
fn server_names_are_passed_through_and_all_others_refused_without_a_certificate() {
    let ca = Ca::new();
    let credential = ca.leaf("broker").dns(NAME).dns("*.dev.example.com").issue();
    let broker = StandIn::builder("broker")
        .tls_wanting(&ca, &credential)
        .start();
    let gateway = |lines: &str| {
        format!(
            "builtin_routes = false\n[listeners.agents]\naddress = \"127.0.0.1:{{port}}\"\n{lines}\n\
             sni_passthrough = [{{ server_names = [\"{NAME}\", \"*.dev.example.com\"], pool = \"agents\" }}]\n{}",
            pool("agents", &broker.address(), "")
        )
    };
    let proxy = alone(&ca, &gateway("sni_strict = true")).start();
    proxy.wait_for_members(&["agents"]);
    let agent = ca.agent("web01");
    let client = proxy.client(Some(&agent));
    for name in [NAME, "a.dev.example.com"] {
        let passed = client.clone().server_name(name);
        assert_eq!(passed.get(CATALOG).status, 200, "{name}");
        let own = broker.last().peer_certificates;
        assert_eq!(own, std::slice::from_ref(&agent.cert_der), "its own TLS");
    }
    for (name, alert) in [
        (
            "other.example.com",
            rustls::AlertDescription::UnrecognisedName,
        ),
        (
            "a.b.dev.example.com",
            rustls::AlertDescription::UnrecognisedName,
        ),
        ("127.0.0.1", rustls::AlertDescription::MissingExtension),
    ] {
        broker.forget();
        let refused = client.clone().server_name(name).connect();
        let refused = refused.err().and_then(|error| error.alert());
        assert_eq!(refused, Some(alert), "{name}");
        assert!(broker.requests().is_empty(), "{name}");
    }
    let record = proxy.wait_for_record(|record| {
        let cause = record["cause"].as_str().unwrap_or_default();
        cause.contains("other.example.com") && cause.contains("does not pass through")
    });
    assert_eq!(record["listener"], "agents", "{record}");
    // Without `sni_strict`, the proxy would terminate TLS for all other names, although it has no route.
    let checked = alone(&ca, &gateway("")).check();
    assert_eq!(checked.code, Some(78), "{}", checked.stderr);
    for words in ["no routes", "set sni_strict = true"] {
        assert!(checked.stderr.contains(words), "{}", checked.stderr);
    }
}

#[test]
fn files_are_still_required_where_tls_is_used() {
    let ca = Ca::new();
    let passing = "[listeners.agents]\naddress = \"127.0.0.1:{port}\"\npassthrough = \"agents\"\n";
    let terminating = "[listeners.more]\naddress = \"127.0.0.1:0\"\n";
    let tcp = pool("agents", "127.0.0.1:9", "");
    let over_tls = "[pools.agents]\nmembers = [\"127.0.0.1:9\"]\ncheck = { type = \"http\" }\n";
    for (what, tables, words) in [
        (
            "a second listener that terminates TLS",
            format!("{passing}{terminating}{tcp}"),
            "no pool `ca`",
        ),
        (
            "one without routes",
            format!("builtin_routes = false\n{passing}{terminating}{tcp}"),
            "no routes",
        ),
        (
            "built-in routes that are asked for",
            format!("builtin_routes = true\n{passing}{tcp}"),
            "no pool `ca`",
        ),
        ("checks over TLS", format!("{passing}{over_tls}"), "ssldir"),
    ] {
        let checked = alone(&ca, &tables).check();
        assert_eq!(checked.code, Some(78), "{what}: {}", checked.stderr);
        assert!(checked.stderr.contains(words), "{what}: {}", checked.stderr);
    }
    let terminated = alone(&ca, &format!("{passing}{terminating}{tcp}")).try_start();
    assert!(terminated.is_err(), "it does not start open");
}
