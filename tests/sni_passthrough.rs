//! One port that passes some server names through and terminates TLS for every other.

use std::io::{Read, Write};

use testkit::{Ca, StandIn};

use crate::support::{
    Estate, assert_identity,
    layer4::{LoadBalancer, connect, read_to_end},
    passthrough::{pool, record},
    paths::CATALOG,
};

const PCP: &str = "pcp.example.com";

/// An estate whose one port passes `pcp.example.com` and names below `*.pcp.example.com` through to a TLS server.
fn by_name(lines: &str) -> (Estate, StandIn) {
    let ca = Ca::new();
    let below = format!("*.{PCP}");
    let credential = ca.leaf("broker").dns(PCP).dns(&below).issue();
    let broker = StandIn::builder("broker")
        .tls_wanting(&ca, &credential)
        .start();
    let own = ["other.example.com", "*.y.pcp.example.com", "localhost"];
    let own = own
        .into_iter()
        .fold(ca.leaf("puppet"), |leaf, name| leaf.dns(name));
    let own = own.dns("puppet").ip("127.0.0.1").issue();
    let tables = pool(&[broker.address()], "");
    let estate = Estate::builder()
        .ca(&ca)
        .compilers(1)
        .credential(&own)
        .listener(&format!(
            "sni_passthrough = [{{ server_names = [\"{PCP}\", \"*.{PCP}\"], pool = \"brokers\" }}]"
        ))
        .listener(lines)
        .with(&tables)
        .start();
    estate.wait_for_members(&["brokers"]);
    (estate, broker)
}

#[test]
fn one_port_passes_a_server_name_through_and_terminates_tls_for_every_other() {
    let (estate, broker) = by_name("");
    let agent = estate.ca.agent("web01");
    let passed = estate.client(&agent).server_name(PCP);
    assert_eq!(passed.get(CATALOG).status, 200);
    let asked = broker.last();
    assert_eq!(
        asked.peer_certificates,
        std::slice::from_ref(&agent.cert_der),
        "the client's own TLS"
    );
    for name in ["x-client-verify", "x-forwarded-for", "x-request-id"] {
        assert!(asked.headers.get(name).is_none(), "{}", asked.raw_text());
    }
    drop(passed);
    let record = record(&estate.proxy);
    assert_eq!(record["sni"], PCP, "{record}");
    assert!(record["tls"].is_null(), "{record}");
    assert_eq!(record["listener"], "agents");
    broker.forget();

    for name in [
        "puppet",
        "other.example.com",
        "x.y.pcp.example.com",
        "127.0.0.1",
    ] {
        estate.forget();
        // The proxy may present any of its certificates: the test only checks which side terminates TLS.
        let client = estate.client(&agent).server_name(name);
        assert_eq!(client.get(CATALOG).status, 200, "{name}");
        assert_identity(&estate.only_request(), "SUCCESS", Some("CN=web01"));
    }
    assert!(broker.requests().is_empty());
    for name in ["PCP.example.COM", "b1.pcp.example.com"] {
        let client = estate.client(&agent).server_name(name);
        assert_eq!(client.get(CATALOG).status, 200, "{name}");
    }
    assert_eq!(broker.requests().len(), 2);
}

#[test]
fn with_sni_strict_other_names_are_refused_and_never_passed_through() {
    let (estate, broker) = by_name("sni_strict = true");
    let agent = estate.ca.agent("web01");
    assert_eq!(
        estate.client(&agent).server_name(PCP).get(CATALOG).status,
        200
    );
    assert_eq!(estate.client(&agent).get(CATALOG).status, 200);
    broker.forget();
    for (name, reason) in [
        ("unknown.example.com", "unrecognized-name"),
        ("127.0.0.1", "no-server-name"),
    ] {
        let client = estate.client(&agent).server_name(name);
        assert!(client.connect().is_err(), "{name}");
        estate.wait_for_record(|record| record["reason"] == reason);
    }
    assert!(broker.requests().is_empty());
}

/// Splits a client's first bytes into the pieces that are sent.
type Cut = fn(Vec<u8>) -> Vec<Vec<u8>>;

#[test]
fn a_client_hello_is_read_however_it_is_fragmented() {
    let (estate, broker) = by_name("");
    let agent = estate.ca.agent("web01");
    let bytewise = |hello: Vec<u8>| hello.into_iter().map(|byte| vec![byte]).collect();
    let records = |hello: Vec<u8>| vec![in_records(&hello, 7)];
    let both = |hello: Vec<u8>| {
        in_records(&hello, 50)
            .into_iter()
            .map(|byte| vec![byte])
            .collect()
    };
    let ways: [(&str, Cut); 3] = [("segments", bytewise), ("records", records), ("both", both)];
    for (way, cut) in ways {
        let front = LoadBalancer::cutting(estate.proxy.address(), b"", cut);
        let client = |name: &str| estate.client(&agent).at(front.address()).server_name(name);
        assert_eq!(client(PCP).get(CATALOG).status, 200, "{way}");
        assert_eq!(
            broker.last().peer_certificates,
            std::slice::from_ref(&agent.cert_der),
            "{way}"
        );
        estate.forget();
        assert_eq!(client("puppet").get(CATALOG).status, 200, "{way}");
        assert_identity(&estate.only_request(), "SUCCESS", Some("CN=web01"));
    }
}

/// The handshake message of one record, split into records of this many bytes.
fn in_records(record: &[u8], bytes: usize) -> Vec<u8> {
    const HEAD_BYTES: usize = 5;
    let (head, message) = record.split_at(HEAD_BYTES);
    let pieces = message.chunks(bytes).flat_map(|piece| {
        let length = u16::try_from(piece.len())
            .expect("a short piece")
            .to_be_bytes();
        [&head[..3], &length, piece].concat()
    });
    pieces.collect()
}

#[test]
fn an_endless_client_hello_is_limited_by_size_and_time() {
    let (estate, broker) = by_name("handshake_timeout = \"500ms\"");
    // The first bytes announce a ClientHello of 60 KB.
    let mut long = vec![0x16, 3, 1, 0x40, 0, 1, 0, 0xea, 0x60, 3, 3];
    long.resize(5 + 0x4000, 0);
    let more = [&[0x16, 3, 1, 0x40, 0][..], &[0; 0x4000]].concat();
    let mut client = connect(estate.proxy.address());
    let _ = client.write_all(&[long, more].concat());
    estate.wait_for_record(|record| record["reason"] == "long-client-hello");
    assert!(matches!(client.read(&mut [0; 64]), Ok(0) | Err(_)));

    let mut slow = connect(estate.proxy.address());
    slow.write_all(&[0x16, 3, 1, 2]).expect("sends");
    assert!(matches!(slow.read(&mut [0; 64]), Ok(0) | Err(_)));
    estate.wait_for_record(|record| record["reason"] == "handshake-timeout");

    let mut other = connect(estate.proxy.address());
    other
        .write_all(b"\x16\x03\x01\x00\x05\x0b\x00\x00\x01\x00")
        .expect("sends");
    let mut alert = Vec::new();
    let _ = other.read_to_end(&mut alert);
    assert_eq!(alert.first(), Some(&21), "an alert: {alert:?}");
    estate.wait_for_record(|record| record["reason"] == "not-tls");

    let mut plain = connect(estate.proxy.address());
    plain
        .write_all(b"GET / HTTP/1.1\r\nHost: pcp.example.com\r\n\r\n")
        .expect("sends");
    assert!(String::from_utf8_lossy(&read_to_end(&mut plain)).starts_with("HTTP/1.1 400 "));
    assert!(broker.requests().is_empty());
}
