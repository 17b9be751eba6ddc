//! Addresses of listeners: several addresses, and binding to an interface.

use std::{
    fs,
    net::{SocketAddr, TcpListener},
};

use testkit::HeldPort;

use crate::support::{Estate, LIMIT, assert_contains, paths::CATALOG, proxy};

fn more(addresses: &str) -> String {
    format!("[listeners.more]\naddress = {addresses}\n")
}

fn at(host: &str, port: &HeldPort) -> SocketAddr {
    format!("{host}:{port}").parse().expect("an address")
}

/// An estate with a second listener at these addresses.
fn estate(addresses: &str) -> Estate {
    let more = more(addresses);
    Estate::builder().compilers(1).with(&more).start()
}

fn status_of_more(estate: &Estate) -> serde_json::Value {
    let status = estate.proxy.status();
    let listeners = status["listeners"].as_array().expect("a list");
    let named: Vec<_> = listeners
        .iter()
        .filter(|listener| listener["name"] == "more")
        .collect();
    assert_eq!(named.len(), 1, "{status}");
    named[0].clone()
}

#[test]
fn a_reload_adds_and_removes_one_address_and_leaves_the_others_open() {
    let port = HeldPort::take();
    let before = format!("[\"127.0.0.1:{port}\", \"[::1]:{port}\"]");
    let estate = estate(&before);
    let agent = estate.ca.agent("web01");
    let client = |host| estate.client(&agent).at(at(host, &port));
    let mut open = ["127.0.0.1", "[::1]"].map(|host| client(host).connect().expect("connects"));
    for connection in &mut open {
        assert_eq!(connection.get(CATALOG).status, 200);
    }
    let record = estate.wait_for_records(2).remove(1);
    assert_eq!(record["listener"], "more", "{record}");
    let status = status_of_more(&estate);
    assert_eq!(status["connections"], 2, "of both addresses: {status}");

    let after = format!("[\"127.0.0.2:{port}\", \"127.0.0.1:{port}\"]");
    estate.edit_config(&before, &after);
    estate.proxy.reload_applied();
    for connection in &mut open {
        assert_eq!(connection.get(CATALOG).status, 200, "it stays open");
    }
    for host in ["127.0.0.1", "127.0.0.2"] {
        assert_eq!(client(host).get(CATALOG).status, 200, "{host}");
    }
    assert!(client("[::1]").connect().is_err(), "no longer an address");
    let status = status_of_more(&estate);
    let mut addresses = status["addresses"].as_array().expect("a list").clone();
    addresses.sort_by_key(ToString::to_string);
    let expected = ["127.0.0.1", "127.0.0.2"].map(|host| at(host, &port).to_string());
    assert_eq!(addresses, expected, "{status}");
    let handshakes = [("listener", "more"), ("result", "ok")];
    let name = "proscenium_handshakes_total";
    estate.wait_for_metric(name, &handshakes, 4.0);
    drop(open);
    estate.proxy.terminate();
    let ended = estate.proxy.wait_for_end(LIMIT);
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
}

#[test]
fn either_all_addresses_are_bound_or_none() {
    let (free, taken) = (HeldPort::take(), HeldPort::take());
    let _other = TcpListener::bind(taken.address()).expect("ours to listen on");
    let addresses = format!("[\"127.0.0.1:{free}\", \"127.0.0.1:{taken}\"]");
    let estate = estate("\"127.0.0.1:0\"");
    estate.edit_config(&more("\"127.0.0.1:0\""), &more(&addresses));
    let outcome = estate.proxy.reload();
    assert_eq!(outcome["result"], "refused", "{outcome}");
    let report = outcome.to_string();
    assert!(
        report.contains(&format!("cannot listen on 127.0.0.1:{taken}")),
        "{report}"
    );
    assert!(!free.is_listened_on());
    let addresses = more(&addresses);
    let refused = Estate::builder().compilers(1).with(&addresses).try_start();
    assert_contains(&refused.stderr, "listeners.more.address");
    assert!(!free.is_listened_on());
}

#[test]
fn an_ipv4_address_with_the_ipv6_wildcard_receives_the_ipv4_connections() {
    let port = HeldPort::take();
    let one = format!("\"[::]:{port}\"");
    let estate = estate(&one);
    let agent = estate.ca.agent("web01");
    let both = format!("[\"0.0.0.0:{port}\", \"[::]:{port}\"]");
    for (before, after) in [(&one, &both), (&both, &one), (&one, &both)] {
        for host in ["127.0.0.1", "[::1]"] {
            let client = estate.client(&agent).at(at(host, &port));
            assert_eq!(client.get(CATALOG).status, 200, "{host} with {before}");
            let record = estate.wait_for_record(|record| record["listener"] == "more");
            assert!(record["client"].is_string(), "{record}");
        }
        estate.edit_config(before, after);
        estate.proxy.reload_applied();
    }
}

/// The lines of a listener on all addresses that accepts connections of this interface only.
fn by(interface: &str, port: &HeldPort) -> String {
    more(&format!("\"0.0.0.0:{port}\"\ninterface = \"{interface}\""))
}

#[test]
fn a_listener_on_an_interface_accepts_only_connections_of_that_interface() {
    let port = HeldPort::take();
    let lines = by("lo", &port);
    let estate = Estate::builder().compilers(1).with(&lines).start();
    let agent = estate.ca.agent("web01");
    let client = || estate.client(&agent).at(at("127.0.0.1", &port));
    let mut open = client().connect().expect("connects");
    assert_eq!(open.get(CATALOG).status, 200);
    assert_eq!(client().get(CATALOG).status, 200);

    // A wrong name is reported before anything changes.
    estate.edit_config("\"lo\"", "\"nosuchif0\"");
    let missing = "interface nosuchif0: No such device";
    let checked = estate.proxy.command(&["check"], &[]);
    let said = format!("{}{}", checked.stdout, checked.stderr);
    assert!(said.contains("listeners.more.interface"), "{said}");
    assert!(
        said.contains(missing) && said.contains("`ip link`"),
        "{said}"
    );
    let outcome = estate.proxy.reload();
    assert_eq!(outcome["result"], "refused", "{outcome}");
    assert!(outcome.to_string().contains(missing), "{outcome}");
    assert_eq!(client().get(CATALOG).status, 200);

    // Connections to loopback do not arrive on another interface.
    let mut names = fs::read_dir("/sys/class/net").expect("interfaces");
    let other = names.find_map(|entry| {
        let name = entry.ok()?.file_name().into_string().ok()?;
        (name != "lo").then_some(name)
    });
    let Some(other) = other else { return };
    estate.edit_config("nosuchif0", &other);
    estate.proxy.reload_applied();
    assert!(client().connect().is_err(), "it listens on {other} only");
    assert_eq!(open.get(CATALOG).status, 200, "it stays open");
}

#[test]
fn a_start_fails_on_a_missing_interface() {
    let lines = by("nosuchif0", &HeldPort::take());
    let refused = Estate::builder().compilers(1).with(&lines).try_start();
    let said = refused.stderr;
    assert!(said.contains("listeners.more.interface"), "{said}");
    assert!(said.contains("No such device"), "{said}");
}

#[test]
fn listeners_on_different_interfaces_may_have_the_same_address() {
    let ca = testkit::Ca::new();
    let check = |one: &str, two: &str| {
        let listener = |name: &str, line: &str| {
            format!("[listeners.{name}]\naddress = \"0.0.0.0:9140\"\n{line}\n")
        };
        let lines = [listener("one", one), listener("two", two)].concat();
        let outcome = proxy(&ca).with(&lines).argument("--files-only").check();
        format!("{}{}", outcome.stdout, outcome.stderr)
    };
    let same = "listener `one` has the same address";
    let said = check("interface = \"eth1\"", "interface = \"eth2\"");
    assert!(!said.contains(same), "{said}");
    for one in ["", "interface = \"eth2\""] {
        let said = check(one, "interface = \"eth2\"");
        assert!(said.contains(same), "{said}");
    }
    let said = check("", "interface = \"eth2/3\"");
    assert!(said.contains("is not the name of an interface"), "{said}");
}

#[test]
fn check_refuses_addresses_that_share_connections() {
    let ca = testkit::Ca::new();
    for (addresses, expected) in [
        ("[]", "expected at least one address"),
        (
            "[\"127.0.0.1:9140\", \"127.0.0.1:9140\"]",
            "127.0.0.1:9140 is in the list twice",
        ),
        (
            "[\"127.0.0.1:9140\", \"0.0.0.0:9140\"]",
            "127.0.0.1:9140 and 0.0.0.0:9140 accept the same connections",
        ),
        (
            "[\"127.0.0.1:9140\", \"puppet\"]",
            "\"puppet\" is not an address to listen on",
        ),
    ] {
        let outcome = proxy(&ca)
            .with(&more(addresses))
            .argument("--files-only")
            .check();
        let said = format!("{}{}", outcome.stdout, outcome.stderr);
        assert!(said.contains(expected), "{addresses}: {said}");
    }
}
