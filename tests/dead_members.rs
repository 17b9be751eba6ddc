//! Connections to a member whose host fails silently: TCP keep-alive closes them. A server that is only busy, or is
//! stopped, keeps its requests.

use std::{
    io::{ErrorKind, Read, Write},
    net::{TcpListener, TcpStream},
};

use serde_json::Value;
use testkit::{Reply, cut_off, has_own_namespaces};

use crate::support::{
    Estate, LIMIT,
    layer4::{Broker, assert_echo, connect},
    passthrough::{passing, record, start},
    paths::CATALOG,
    tunnels,
};

/// Without probes, only the connection itself shows that the member fails.
const UNPROBED: &str = "check = { type = \"none\" }";

/// A pool with one member that never accepts a connection, so that only its kernel answers, and a route to that pool.
fn alive(member: &TcpListener) -> String {
    let address = member.local_addr().expect("an address");
    format!(
        "[[routes]]\nname = \"alive\"\npath = {{ prefix = \"/alive\" }}\npool = \"alive\"\n\
         [pools.alive]\nmembers = [\"{address}\"]\nscheme = \"http\"\n{UNPROBED}\ndown_wait = \"2s\"\n"
    )
}

/// Reads a request to its end, and answers it.
fn answer(stream: &mut TcpStream) {
    stream.set_read_timeout(Some(LIMIT)).expect("a socket");
    let mut read = Vec::new();
    let mut piece = vec![0; 64 << 10];
    let is_complete = |read: &[u8]| {
        let end = read.windows(4).position(|bytes| bytes == b"\r\n\r\n");
        end.is_some_and(|end| {
            let head = String::from_utf8_lossy(&read[..end]).to_ascii_lowercase();
            let length = head
                .lines()
                .find_map(|line| line.strip_prefix("content-length: "));
            let body: usize = length.and_then(|length| length.parse().ok()).expect("one");
            read.len() >= end + 4 + body
        })
    };
    while !is_complete(&read) {
        let length = stream.read(&mut piece).expect("the rest of the request");
        assert!(length > 0, "the proxy closed after {} bytes", read.len());
        read.extend_from_slice(&piece[..length]);
    }
    let reply = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";
    stream.write_all(reply).expect("it is written");
}

#[test]
fn a_post_ends_when_its_members_host_is_gone_and_not_when_a_server_does_not_read() {
    if !has_own_namespaces(
        "dead_members::a_post_ends_when_its_members_host_is_gone_and_not_when_a_server_does_not_read",
    ) {
        return;
    }
    let stopped = TcpListener::bind("127.0.0.1:0").expect("a port");
    let route = alive(&stopped);
    let estate = Estate::builder()
        .compilers(2)
        .compiler_pool("algorithm = \"first\"")
        .compiler_pool(UNPROBED)
        // Longer than the wait for the server that does not read, so its requests outlive this wait.
        .compiler_pool("down_wait = \"4s\"")
        .with(&route)
        .start();
    let [gone, other] = &estate.compilers[..] else {
        unreachable!("two compilers")
    };
    let client = estate.agent("web01");
    // The first body fits into the window of its connection. The second does not, so that window becomes zero.
    let bodies = [vec![b'x'; 100], vec![b'x'; 400 << 10]];
    let mut waiting = Vec::new();
    for body in &bodies {
        let mut connection = client.connect().expect("connects");
        connection
            .send("POST", "/alive", &[], body)
            .expect("it sends");
        waiting.push(connection);
    }
    gone.hold();
    let mut catalog = client.connect().expect("connects");
    catalog
        .send("POST", CATALOG, &[], b"facts")
        .expect("it sends");
    gone.wait_for_request(1, LIMIT);
    cut_off(gone.socket_address());
    let response = catalog.read_response().expect("a response");
    assert_eq!(response.status, 502, "{response:?}");
    let text = response.text();
    for expected in [
        &*gone.address(),
        "no longer answers on this connection",
        "TCP keep-alive",
        "down_wait",
        "may have acted",
        "not sent to another server",
    ] {
        assert!(text.contains(expected), "{expected}: {text}");
    }
    assert!(other.requests().is_empty(), "it was not repeated");
    let record = estate.wait_for_record(|record| record["status"] == 502);
    assert_eq!(record["reason"], "down-wait", "{record}");
    assert_eq!(record["attempts"], 1, "{record}");
    assert_eq!(record["member"], gone.address(), "{record}");
    // The proxy may have connected in another order than the clients sent in.
    for _ in &bodies {
        let (mut stream, _) = stopped.accept().expect("a connection that waited");
        answer(&mut stream);
    }
    for connection in &mut waiting {
        let response = connection.read_response().expect("a response");
        assert_eq!(response.status, 200, "{response:?}");
    }
    gone.release();
}

#[test]
fn a_post_on_a_kept_connection_to_a_dead_host_ends_without_any_acknowledgement() {
    if !has_own_namespaces(
        "dead_members::a_post_on_a_kept_connection_to_a_dead_host_ends_without_any_acknowledgement",
    ) {
        return;
    }
    for is_tls in [false, true] {
        let builder = Estate::builder()
            .compilers(1)
            .compiler_pool(UNPROBED)
            .compiler_pool("down_wait = \"3s\"");
        let estate = if is_tls {
            builder.tls_members().start()
        } else {
            builder.start()
        };
        let mut connection = estate.agent("web01").connect().expect("connects");
        let mut post = || {
            connection
                .send("POST", CATALOG, &[], b"facts")
                .expect("it sends");
            connection.read_response().expect("a response")
        };
        assert_eq!(post().status, 200);
        cut_off(estate.compilers[0].socket_address());
        assert_eq!(post().status, 502);
        let record = estate.wait_for_record(|record| record["status"] == 502);
        assert_eq!(record["reason"], "down-wait", "TLS {is_tls}: {record}");
        assert_eq!(estate.compilers[0].requests().len(), 1);
    }
}

#[test]
fn a_get_whose_members_host_is_gone_is_sent_to_another_member() {
    if !has_own_namespaces(
        "dead_members::a_get_whose_members_host_is_gone_is_sent_to_another_member",
    ) {
        return;
    }
    let estate = Estate::builder()
        .compilers(2)
        .compiler_pool("algorithm = \"first\"")
        .compiler_pool(UNPROBED)
        .compiler_pool("down_wait = \"2s\"")
        .start();
    let [gone, other] = &estate.compilers[..] else {
        unreachable!("two compilers")
    };
    let agent = estate.ca.agent("web01");
    gone.hold();
    let mut connection = estate.client(&agent).connect().expect("connects");
    let target = "/puppet/v3/file_metadata/modules/a/b?environment=production";
    connection.send("GET", target, &[], b"").expect("it sends");
    gone.wait_for_request(1, LIMIT);
    cut_off(gone.socket_address());
    assert_eq!(connection.read_response().expect("a response").status, 200);
    assert_eq!(other.requests().len(), 1);
    gone.release();
}

fn assert_unanswered(record: &Value) {
    assert_eq!(record["ended_by"], "member", "{record}");
    assert_eq!(record["reason"], "down-wait", "{record}");
}

#[test]
fn a_passed_through_connection_to_a_dead_host_ends() {
    if !has_own_namespaces("dead_members::a_passed_through_connection_to_a_dead_host_ends") {
        return;
    }
    let broker = Broker::echo();
    let lines = format!("{UNPROBED}\ndown_wait = \"2s\"");
    let (estate, pcp) = start(passing(&[&broker], &lines));
    let mut client = connect(pcp);
    assert_echo(&mut client, b"hello");
    cut_off(broker.address().parse().expect("an address"));
    // Not a clean close: bytes may be missing.
    let error = client.read(&mut [0]).expect_err("a reset");
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
    assert_unanswered(&record(&estate.proxy));
}

#[test]
fn an_upgraded_tunnel_to_a_dead_host_ends() {
    if !has_own_namespaces("dead_members::an_upgraded_tunnel_to_a_dead_host_ends") {
        return;
    }
    let builder = tunnels::builder("")
        .compiler_pool(UNPROBED)
        .compiler_pool("down_wait = \"2s\"");
    let estate = tunnels::start(builder);
    estate.compilers[0].answer(|_| Some(Reply::switching("websocket")));
    let mut tunnel = tunnels::opened(&estate, &estate.ca.agent("web01"));
    tunnel.send_raw(b"hello").expect("sends");
    assert_eq!(tunnel.read_bytes(5).expect("an echo"), b"hello");
    cut_off(estate.compilers[0].socket_address());
    assert!(tunnel.read_bytes(1).unwrap_or_default().is_empty());
    assert_unanswered(&estate.wait_for_records(1).remove(0));
}
