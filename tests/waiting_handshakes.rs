//! A handshake that waits for its client delays no other client. At a limit, the proxy closes the one that has waited
//! longest.

use std::{
    io::{ErrorKind, Read, Write},
    net::TcpStream,
    sync::Arc,
};

use rustls::{ClientConfig, ClientConnection, RootCertStore, SupportedProtocolVersion, version};
use rustls_pki_types::{CertificateDer, pem::PemObject};
use testkit::wait_until;

use crate::support::{Estate, LIMIT, layer4::LoadBalancer, paths::CATALOG};

/// The beginning of a TLS handshake record.
const HALF_A_HELLO: &[u8] = &[0x16, 0x03, 0x01, 0x02, 0x00, 0x01];
const PROXY: &str = "proxy_protocol = { from = [\"127.0.0.1\"] }";
const LIMITS_HIT: &str = "proscenium_limits_hit_total";
const WAITING: &str = "proscenium_handshakes_in_flight";

/// The bytes that a client sends before it keeps its handshake waiting.
#[derive(Clone, Copy, Debug)]
enum Sends {
    Nothing,
    HalfAHello,
    /// A ClientHello of TLS 1.2 or 1.3.
    Hello(&'static SupportedProtocolVersion),
    /// The first half of the client's answer to the proxy's messages in TLS 1.2.
    HalfAnAnswer,
}

const ALL: [Sends; 5] = [
    Sends::Nothing,
    Sends::HalfAHello,
    Sends::Hello(&version::TLS12),
    Sends::Hello(&version::TLS13),
    Sends::HalfAnAnswer,
];

impl Sends {
    /// Opens a connection and sends `header`, then these bytes, and nothing more.
    fn connect(self, estate: &Estate, header: &[u8]) -> TcpStream {
        let mut stream = TcpStream::connect(estate.proxy.address()).expect("connects");
        stream
            .set_read_timeout(Some(LIMIT))
            .expect("a limit that is not zero");
        stream.write_all(header).expect("is taken");
        match self {
            Self::Nothing => {}
            Self::HalfAHello => stream.write_all(HALF_A_HELLO).expect("is taken"),
            Self::Hello(version) => {
                tls(estate, version)
                    .write_tls(&mut stream)
                    .expect("is taken");
            }
            Self::HalfAnAnswer => {
                let mut tls = tls(estate, &version::TLS12);
                tls.write_tls(&mut stream).expect("is taken");
                while !tls.wants_write() {
                    assert!(tls.read_tls(&mut stream).expect("an answer") > 0);
                    tls.process_new_packets().expect("TLS");
                }
                let mut answer = Vec::new();
                while tls.wants_write() {
                    tls.write_tls(&mut answer).expect("memory");
                }
                stream
                    .write_all(&answer[..answer.len() / 2])
                    .expect("is taken");
            }
        }
        stream
    }
}

fn tls(estate: &Estate, version: &'static SupportedProtocolVersion) -> ClientConnection {
    let mut roots = RootCertStore::empty();
    let bundle = estate.ca.bundle_pem();
    roots.add_parsable_certificates(CertificateDer::pem_slice_iter(bundle.as_bytes()).flatten());
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[version])
        .expect("a version of the provider")
        .with_root_certificates(roots)
        .with_no_client_auth();
    let name = "puppet".try_into().expect("a name");
    ClientConnection::new(Arc::new(config), name).expect("TLS")
}

/// Whether the proxy has not closed the connection.
fn is_open(mut stream: &TcpStream) -> bool {
    stream.set_nonblocking(true).expect("a socket");
    loop {
        match stream.read(&mut [0; 4096]) {
            Ok(1..) => {}
            Ok(0) => return false,
            Err(error) => return error.kind() == ErrorKind::WouldBlock,
        }
    }
}

fn estate(lines: &str) -> Estate {
    let lines = format!("{lines}\nhandshake_timeout = \"10m\"");
    Estate::builder().listener(&lines).start()
}

fn header(client: &str) -> Vec<u8> {
    format!("PROXY TCP4 {client} 198.51.100.1 40000 8140\r\n").into_bytes()
}

#[test]
fn handshakes_that_wait_for_their_clients_delay_no_other_client() {
    const LIMITS: &str = "handshakes_max = 8\nhandshakes_max_per_address = 8";
    let direct = estate(LIMITS);
    let behind = estate(&format!("{LIMITS}\n{PROXY}"));
    for sends in ALL {
        for (estate, is_behind) in [(&direct, false), (&behind, true)] {
            let agent = estate.ca.agent("web01");
            let attackers: Vec<_> = (0..8)
                .map(|attacker| {
                    let header = if is_behind {
                        header(["192.0.2.66", "192.0.2.67"][attacker % 2])
                    } else {
                        Vec::new()
                    };
                    sends.connect(estate, &header)
                })
                .collect();
            let labels = [("listener", "agents")];
            estate.wait_for_metric(WAITING, &labels, 8.0);
            // From the address of the attackers, and from another one.
            for (client, header) in [
                ([127, 0, 0, 1], header("192.0.2.66")),
                ([127, 0, 0, 2], header("192.0.2.1")),
            ] {
                let client = if is_behind {
                    let front = LoadBalancer::start(estate.proxy.address(), &header);
                    estate.client(&agent).at(front.address())
                } else {
                    estate.client(&agent).source(client.into())
                };
                assert_eq!(client.get(CATALOG).status, 200, "{sends:?}");
            }
            // On a slow machine, each client that connected may have displaced one waiting handshake.
            assert!(attackers.iter().any(is_open), "{sends:?}");
            drop(attackers);
            let ended = wait_until(LIMIT, || {
                (estate.proxy.metrics().sum(WAITING, &[]) == 0.0).then_some(())
            });
            assert!(ended.is_some(), "{sends:?}");
        }
    }
}

#[test]
fn at_a_limit_the_handshake_that_has_waited_longest_is_closed() {
    for (limit, is_of_address) in [
        ("handshakes_max", false),
        ("handshakes_max_per_address", true),
    ] {
        let estate = estate(&format!("{limit} = 1\n{PROXY}"));
        let connect = |client| Sends::HalfAHello.connect(&estate, &header(client));
        let other = is_of_address.then(|| connect("192.0.2.1"));
        let longest = connect("192.0.2.2");
        let labels = [("listener", "agents")];
        let least = if is_of_address { 2.0 } else { 1.0 };
        estate.wait_for_metric(WAITING, &labels, least);
        let mut further = Vec::new();
        // The proxy closes a handshake only after it has waited for a second.
        let closed = wait_until(LIMIT, || {
            further.push(connect("192.0.2.2"));
            (!is_open(&longest)).then_some(())
        });
        assert!(closed.is_some(), "{limit}");
        assert!(other.as_ref().is_none_or(is_open), "{limit}");
        let record = estate.wait_for_record(|record| record["reason"] == "handshake-displaced");
        assert_eq!(record["client"], "192.0.2.2", "{record}");
        assert_eq!(record["ended_by"], "proxy", "{record}");
        let labels = [("listener", "agents"), ("limit", limit)];
        estate.wait_for_metric(LIMITS_HIT, &labels, 1.0);
        let labels = [("listener", "agents"), ("result", "displaced")];
        let handshakes = "proscenium_handshakes_total";
        estate.wait_for_metric(handshakes, &labels, 1.0);
    }
}

#[test]
fn waiting_handshakes_make_room_at_the_limits_of_connections() {
    for limit in ["connections_max", "connections_max_per_address"] {
        for sends in ALL {
            let estate = estate(&format!("{limit} = 16"));
            let agent = estate.ca.agent("web01");
            let attackers: Vec<_> = (0..16).map(|_| sends.connect(&estate, b"")).collect();
            let labels = [("listener", "agents")];
            estate.wait_for_metric(WAITING, &labels, 16.0);
            let mut agent = estate.client(&agent).connect().expect("connects");
            assert_eq!(agent.get(CATALOG).status, 200, "{limit} {sends:?}");
            assert!(attackers.iter().any(is_open), "{limit} {sends:?}");
            let labels = [("listener", "agents"), ("limit", limit)];
            estate.wait_for_metric(LIMITS_HIT, &labels, 1.0);
        }
    }
}
