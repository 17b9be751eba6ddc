//! The PROXY protocol: read from load balancers in front of a listener, and written to members behind it.

use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
    time::Duration,
};

use testkit::Client;

use crate::support::{
    Estate, EstateBuilder, assert_identity,
    layer4::{Broker, LoadBalancer, assert_echo, connect, listener_address, read_to_end},
    paths::CATALOG,
    wait_for,
};

const V1: &[u8] = b"PROXY TCP4 192.0.2.77 198.51.100.1 40000 8140\r\n";
/// Load balancers on loopback: connections come from 127.0.0.1.
const FROM: &str = "proxy_protocol = { from = [\"127.0.0.1\"] }";

/// Version 2 from 192.0.2.78:40001, with TLVs that claim a verified client.
fn v2() -> Vec<u8> {
    let addresses = [192, 0, 2, 78, 198, 51, 100, 1, 0x9c, 0x41, 0x1f, 0xcc];
    // PP2_TYPE_SSL: a verified client certificate with this common name.
    let ssl = b"\x20\x00\x0c\x07\x00\x00\x00\x00\x22\x00\x04root";
    // PP2_TYPE_AUTHORITY.
    let authority = b"\x02\x00\x05admin";
    let rest = [&addresses[..], ssl, authority].concat();
    let length = u16::try_from(rest.len()).expect("short").to_be_bytes();
    [&b"\r\n\r\n\0\r\nQUIT\n\x21\x11"[..], &length, &rest].concat()
}

fn local() -> Vec<u8> {
    b"\r\n\r\n\0\r\nQUIT\n\x20\x00\x00\x00".to_vec()
}

fn behind(front: &LoadBalancer, client: Client) -> Client {
    client.at(front.address())
}

fn estate() -> EstateBuilder {
    Estate::builder().compilers(1).listener(FROM)
}

#[test]
fn the_proxy_header_changes_the_clients_address_and_nothing_else() {
    let estate = estate()
        .with("[[access]]\nname = \"far\"\naction = \"refuse\"\nsource = [\"192.0.2.78\"]\n")
        .start();
    let agent = estate.ca.agent("web01");
    let port = estate.proxy.address().port().to_string();
    for (header, client, status) in [
        (V1.to_vec(), "192.0.2.77", 200),
        (v2(), "192.0.2.78", 403),
        (
            b"PROXY TCP6 2001:db8::7 ::1 40000 8140\r\n".to_vec(),
            "2001:db8::7",
            200,
        ),
    ] {
        estate.forget();
        let front = LoadBalancer::start(estate.proxy.address(), &header);
        let answer = behind(&front, estate.client(&agent)).get(CATALOG);
        assert_eq!(answer.status, status, "{client}: {}", answer.text());
        let record = estate.wait_for_record(|record| record["client"] == client);
        assert_eq!(record["peer"], "127.0.0.1");
        assert_eq!(record["certname"], "web01", "by the certificate");
        assert_eq!(record["sni"], "puppet", "by the handshake");
        if status != 200 {
            assert!(estate.far_end().is_empty());
            continue;
        }
        let asked = estate.only_request();
        assert_identity(&asked, "SUCCESS", Some("CN=web01"));
        assert_eq!(asked.only("x-forwarded-for"), client);
        assert_eq!(asked.only("x-real-ip"), client);
        assert_eq!(asked.only("x-forwarded-port"), port, "that of the listener");
    }
    // Without a certificate no client is verified, whatever a TLV claims.
    let front = LoadBalancer::start(estate.proxy.address(), &v2());
    assert_eq!(behind(&front, estate.anonymous()).get(CATALOG).status, 403);
    let combined = estate.proxy.records();
    assert!(!format!("{combined:?}").contains("root"), "no TLV is read");
}

#[test]
fn a_load_balancers_own_connection_keeps_its_own_address() {
    let estate = estate().start();
    let agent = estate.ca.agent("web01");
    for header in [
        local(),
        b"PROXY UNKNOWN\r\n".to_vec(),
        b"PROXY UNKNOWN ::1 ::2 1 2\r\n".to_vec(),
    ] {
        estate.forget();
        let front = LoadBalancer::start(estate.proxy.address(), &header);
        assert_eq!(
            behind(&front, estate.client(&agent)).get(CATALOG).status,
            200
        );
        assert_eq!(estate.only_request().only("x-forwarded-for"), "127.0.0.1");
    }
    let record = estate.wait_for_records(3).remove(0);
    assert_eq!(record["client"], "127.0.0.1");
    assert!(record["peer"].is_null());
    // A health check of the load balancer may end after its header.
    let mut probe = connect(estate.proxy.address());
    probe.write_all(&local()).expect("sends");
    drop(probe);
    drop(connect(estate.proxy.address()));
    assert_eq!(estate.proxy.records().len(), 3, "neither leaves a record");
}

/// Sends these bytes and returns all received bytes.
fn exchange_bytes(to: SocketAddr, bytes: &[u8]) -> Vec<u8> {
    let mut stream = connect(to);
    let _ = stream.write_all(bytes);
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    answer
}

#[test]
fn a_connection_without_a_valid_proxy_header_is_refused() {
    let estate = estate().listener("handshake_timeout = \"500ms\"").start();
    let address = estate.proxy.address();
    let agent = estate.ca.agent("web01");
    assert!(
        estate.client(&agent).connect().is_err(),
        "TLS without a header"
    );
    let mut long = b"\r\n\r\n\0\r\nQUIT\n\x21\x11\xff\xff".to_vec();
    long.resize(16 << 10, 0);
    for bytes in [
        &b"GET / HTTP/1.1\r\nHost: puppet\r\n\r\n"[..],
        b"PROXY TCP4 192.0.2.77 198.51.100.1 40000\r\n",
        b"PROXY TCP4 192.0.2.77 198.51.100.1 40000 8140 and more than the 107 bytes that the line of a header of version 1 may have at most\r\n",
        &long,
    ] {
        assert_eq!(exchange_bytes(address, bytes), b"", "not a byte of an answer");
    }
    estate.wait_for_records(5);
    let records = estate.proxy.records();
    for record in &records {
        assert_eq!(record["reason"], "proxy-header", "{record}");
        assert!(
            record["cause"]
                .as_str()
                .is_some_and(|cause| cause.contains("PROXY protocol"))
        );
    }
    // A header without an end.
    assert_eq!(exchange_bytes(address, b"PROXY TCP4 192.0.2.77"), b"");
    estate.wait_for_record(|record| record["reason"] == "handshake-timeout");
    // A second header is refused, because it is not TLS.
    let front = LoadBalancer::start(address, &[V1, V1].concat());
    assert!(behind(&front, estate.client(&agent)).connect().is_err());
    assert!(estate.far_end().is_empty());
}

#[test]
fn a_peer_that_is_not_a_load_balancer_is_refused_with_or_without_a_header() {
    let from = "proxy_protocol = { from = [\"192.0.2.0/24\", \"2001:db8::1\"] }";
    let estate = Estate::builder().compilers(1).listener(from).start();
    let agent = estate.ca.agent("web01");
    assert_eq!(exchange_bytes(estate.proxy.address(), V1), b"");
    assert!(estate.client(&agent).connect().is_err());
    let records = estate.wait_for_records(2);
    for record in records {
        assert_eq!(record["reason"], "proxy-peer");
        assert_eq!(record["client"], "127.0.0.1");
    }
    let refused = [("listener", "agents"), ("result", "refused")];
    assert_eq!(
        estate
            .proxy
            .metrics()
            .sum("proscenium_handshakes_total", &refused),
        2.0
    );
}

#[test]
fn a_listener_without_proxy_protocol_accepts_no_header() {
    let estate = Estate::builder().compilers(1).start();
    let agent = estate.ca.agent("web01");
    for header in [V1.to_vec(), v2()] {
        let front = LoadBalancer::start(estate.proxy.address(), &header);
        assert!(behind(&front, estate.client(&agent)).connect().is_err());
    }
    let record = estate.wait_for_records(2).remove(0);
    assert_eq!(record["client"], "127.0.0.1");
    assert!(record["peer"].is_null());
}

#[test]
fn limits_per_address_apply_to_clients_and_not_to_load_balancers() {
    let estate = estate().listener("connections_max_per_address = 1").start();
    let agent = estate.ca.agent("web01");
    let front = |header: &[u8]| LoadBalancer::start(estate.proxy.address(), header);
    let [one, other] = [front(V1), front(&v2())];
    let first = behind(&one, estate.client(&agent))
        .connect()
        .expect("the first of its address");
    let second = behind(&other, estate.client(&agent))
        .connect()
        .expect("the first of its address");
    assert!(
        behind(&one, estate.client(&agent)).connect().is_err(),
        "the second of its address"
    );
    let limit = [
        ("listener", "agents"),
        ("limit", "connections_max_per_address"),
    ];
    assert_eq!(
        estate
            .proxy
            .metrics()
            .sum("proscenium_limits_hit_total", &limit),
        1.0
    );
    drop((first, second));
    wait_for("its place is free again", || {
        behind(&one, estate.client(&agent)).connect().is_ok()
    });
}

/// An estate with a listener that passes everything through to this broker; `listener` and `pool` are additional lines.
fn passing(broker: &Broker, listener: &str, pool: &str) -> (Estate, SocketAddr) {
    let tables = format!(
        "[listeners.pcp]\naddress = \"127.0.0.1:0\"\npassthrough = \"brokers\"\n{listener}\n\
         [pools.brokers]\nmembers = [{:?}]\ntrusted_headers_off = true\n{pool}\n",
        broker.address()
    );
    let estate = Estate::builder().compilers(1).with(&tables).start();
    estate.wait_for_members(&["brokers"]);
    let address = listener_address(&estate.proxy, "pcp");
    (estate, address)
}

/// A broker that records everything until its peer closes.
fn recording_broker() -> Broker {
    Broker::start(|stream, keep| {
        let mut all = Vec::new();
        let _ = stream.read_to_end(&mut all);
        keep(&all);
    })
}

fn send(to: SocketAddr, bytes: &[u8]) -> TcpStream {
    let mut client = connect(to);
    client.write_all(bytes).expect("sends");
    client
        .shutdown(std::net::Shutdown::Write)
        .expect("a socket");
    client
}

/// The bytes of the first connection that was not a probe.
fn received(broker: &Broker) -> Vec<u8> {
    let is_probe = |bytes: &Vec<u8>| *bytes == local() || bytes == b"PROXY UNKNOWN\r\n";
    let mut found = None;
    wait_for("a connection that is not a probe", || {
        found = broker.received().into_iter().find(|bytes| !is_probe(bytes));
        found.is_some()
    });
    found.expect("it was found")
}

#[test]
fn a_member_gets_a_header_of_version_1() {
    let broker = recording_broker();
    let (_estate, pcp) = passing(&broker, "", "send_proxy = \"v1\"");
    let client = send(pcp, b"hello");
    let (from, to) = (client.local_addr().expect("an address"), pcp);
    let expected = format!(
        "PROXY TCP4 127.0.0.1 127.0.0.1 {} {}\r\nhello",
        from.port(),
        to.port()
    );
    assert_eq!(String::from_utf8_lossy(&received(&broker)), expected);
    // The header of a probe declares that the proxy itself opened the connection.
    wait_for("a probe", || {
        broker.received().contains(&b"PROXY UNKNOWN\r\n".to_vec())
    });
}

#[test]
fn a_member_gets_a_header_of_version_2_with_the_clients_address_and_no_tlv_of_the_client() {
    let broker = recording_broker();
    let (estate, pcp) = passing(&broker, FROM, "send_proxy = \"v2\"");
    drop(send(pcp, &[&v2()[..], b"hello"].concat()));
    let bytes = received(&broker);
    let record = estate.wait_for_record(|record| record["class"] == "passthrough");
    assert_eq!(record["client"], "192.0.2.78");
    assert_eq!(record["peer"], "127.0.0.1");
    assert_eq!(record["bytes_in"], 5, "headers do not count");
    let id = record["id"].as_str().expect("an id");
    let port = pcp.port().to_be_bytes();
    let addresses = [&[192, 0, 2, 78, 127, 0, 0, 1, 0x9c, 0x41][..], &port].concat();
    let rest = [&addresses[..], b"\x05\x00\x20", id.as_bytes()].concat();
    let length = u16::try_from(rest.len()).expect("short").to_be_bytes();
    let header = [&b"\r\n\r\n\0\r\nQUIT\n\x21\x11"[..], &length, &rest].concat();
    assert_eq!(bytes, [&header[..], b"hello"].concat());
    wait_for("a probe", || broker.received().contains(&local()));
}

#[test]
fn version_2_contains_the_server_name_that_chose_the_pool() {
    let broker = recording_broker();
    let tables = format!(
        "[pools.brokers]\nmembers = [{:?}]\ntrusted_headers_off = true\nsend_proxy = \"v2\"\n",
        broker.address()
    );
    let estate = Estate::builder()
        .compilers(1)
        .listener(
            "sni_passthrough = [{ server_names = [\"pcp.example.com\"], pool = \"brokers\" }]",
        )
        .with(&tables)
        .start();
    estate.wait_for_members(&["brokers"]);
    let client = estate.anonymous().server_name("pcp.example.com");
    // The broker does not answer, so the client stops waiting.
    let _ = client.timeout(Duration::from_millis(200)).connect();
    let bytes = received(&broker);
    let authority = b"\x02\x00\x0fpcp.example.com";
    assert_eq!(bytes[16 + 12..][..authority.len()], *authority);
    let behind = 16 + usize::from(u16::from_be_bytes([bytes[14], bytes[15]]));
    assert_eq!(
        bytes[behind..][..3],
        [0x16, 3, 1],
        "then the client's hello"
    );
}

#[test]
fn bytes_in_the_same_segment_as_the_header_are_not_lost() {
    let broker = Broker::echo();
    let (_estate, pcp) = passing(&broker, FROM, "");
    let mut client = connect(pcp);
    client.write_all(&[V1, b"hello"].concat()).expect("sends");
    let mut back = [0; 5];
    client.read_exact(&mut back).expect("an echo");
    assert_eq!(&back, b"hello");
    assert_echo(&mut client, b"again");
    client
        .shutdown(std::net::Shutdown::Write)
        .expect("a socket");
    assert_eq!(read_to_end(&mut client), b"");
}
