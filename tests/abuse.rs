//! One client that sends slowly, does not read or opens no window: every request of another agent is answered by the
//! member while the attack lasts.

use testkit::{Connection, Credential, Protocol, Reply, http2::kind, wait_until};

use crate::support::{Estate, LIMIT, http1_alone, http2::wait_for_limit};

const CATALOG: &str = "/puppet/v3/catalog/web02?environment=production";
const LARGE: &str = "/puppet/v3/file_content/modules/m/large?environment=production";
const REPORT: &str = "/puppet/v3/report/web01?environment=production";
const EXPECT: [(&str, &str); 1] = [("Expect", "100-continue")];
/// More than a member has connections.
const ATTACKERS: usize = 20;
/// Requests of the other agent during each attack.
const VICTIM_REQUESTS: usize = 20;

/// One compiler with eight connections: the share of one client is two.
fn estate(listener: &'static str, upstream: &'static str) -> Estate {
    let estate = Estate::builder()
        .compilers(1)
        .compiler_pool("connections_max = 8")
        .proxy(move |proxy| proxy.listener(listener).with(upstream))
        .start();
    for member in &estate.compilers {
        member.answer(|request| {
            let large = request.target.contains("large");
            large.then(|| Reply::stream(64 << 20))
        });
    }
    estate
}

/// Connections of one agent, or of an agent each.
fn attackers(estate: &Estate, agent: &Credential) -> Vec<Connection> {
    let client = estate.client(agent).receive_buffer(4096);
    (0..ATTACKERS)
        .map(|_| client.connect().expect("connects"))
        .collect()
}

/// Every request of another agent reaches the member and is answered.
#[track_caller]
fn assert_victim_is_served(estate: &Estate) {
    let victim = estate.client(&estate.ca.agent("web02"));
    for _ in 0..VICTIM_REQUESTS {
        assert_eq!(victim.get(CATALOG).status, 200);
    }
    let served = estate.compilers[0].requests();
    let served = served.iter().filter(|request| request.target == CATALOG);
    assert_eq!(served.count(), VICTIM_REQUESTS);
}

/// Begins uploads that the proxy waits for: it has told the client to send.
fn begin_uploads(connections: &mut [Connection], length: usize, sent: &[u8]) {
    for connection in connections {
        let head = connection.head("PUT", REPORT, &EXPECT, Some(length));
        connection.send_raw(&head).expect("sends");
        let interim = connection.read_head().expect("an interim answer");
        assert_eq!(interim.status, 100);
        connection.send_raw(sent).expect("sends");
    }
}

#[test]
fn slow_heads_take_no_connection_of_a_member() {
    http1_alone!("a head is frames, which h2 gathers before it makes a request");
    let estate = estate("", "");
    let mut connections = attackers(&estate, &estate.ca.agent("web01"));
    for connection in &mut connections {
        let head = connection.head("GET", LARGE, &[], None);
        connection.send_raw(&head[..20]).expect("sends");
    }
    assert_victim_is_served(&estate);
}

#[test]
fn slow_bodies_take_no_connection_of_a_member() {
    let estate = estate("", "");
    let mut connections = attackers(&estate, &estate.ca.agent("web01"));
    begin_uploads(&mut connections, 30_000, b"x");
    assert_victim_is_served(&estate);
    let asked = estate.compilers[0].requests().len();
    assert_eq!(asked, VICTIM_REQUESTS, "no upload has reached the member");
    // One that goes on is sent whole.
    connections[0].send_raw(&vec![b'x'; 29_999]).expect("sends");
    assert_eq!(
        connections[0].read_response().expect("an answer").status,
        200
    );
    let requests = estate.compilers[0].requests();
    let report = requests.iter().find(|request| request.target == REPORT);
    assert_eq!(report.expect("it was sent").body.kept.len(), 30_000);
}

#[test]
fn slow_bodies_beyond_the_buffer_hold_a_share_and_no_more() {
    let estate = estate("", "[upstream]\nbody_buffer_max = \"1KiB\"");
    let mut connections = attackers(&estate, &estate.ca.agent("web01"));
    begin_uploads(&mut connections, 1 << 20, &[b'x'; 4096]);
    wait_for_limit(&estate, "client_share", (ATTACKERS - 2) as f64);
    assert_victim_is_served(&estate);
}

#[test]
fn clients_that_do_not_read_hold_a_share_and_no_more() {
    let estate = estate("", "");
    let mut connections = attackers(&estate, &estate.ca.agent("web01"));
    for connection in &mut connections {
        if crate::SPOKEN == Protocol::Http2 {
            connection
                .open(&crate::support::http2::get(LARGE), true)
                .expect("opens");
        } else {
            let head = connection.head("GET", LARGE, &[], None);
            connection.send_raw(&head).expect("sends");
        }
    }
    wait_for_limit(&estate, "client_share", (ATTACKERS - 2) as f64);
    assert_victim_is_served(&estate);
}

/// A connection on which no stream may send a byte (SETTINGS_INITIAL_WINDOW_SIZE = 0).
fn without_window(estate: &Estate, agent: &Credential, streams: usize) -> Connection {
    let client = estate.client(agent).protocol(Protocol::Http2);
    let mut connection = client.connect().expect("connects");
    connection
        .send_frame(kind::SETTINGS, 0, 0, &[0, 4, 0, 0, 0, 0])
        .expect("sends");
    for _ in 0..streams {
        connection
            .open(&crate::support::http2::get(LARGE), true)
            .expect("opens");
    }
    connection
}

#[test]
fn windows_of_nothing_hold_a_share_and_no_more() {
    let estate = estate("", "");
    let agent = estate.ca.agent("web01");
    let _connections = [(); 2].map(|()| without_window(&estate, &agent, 50));
    wait_for_limit(&estate, "client_share", 98.0);
    assert_victim_is_served(&estate);
}

#[test]
fn a_request_beyond_the_share_is_answered_when_one_of_its_client_ends() {
    let estate = estate("", "");
    let agent = estate.ca.agent("web01");
    let holding = without_window(&estate, &agent, 2);
    // Both are at the member before the third is sent, which would take a place of theirs otherwise.
    estate.compilers[0].wait_for_request(2, LIMIT);
    let answered = std::thread::scope(|scope| {
        let waiting = scope.spawn(|| {
            let path = "/puppet/v3/catalog/web01?environment=production";
            estate.client(&agent).get(path).status
        });
        wait_for_limit(&estate, "client_share", 1.0);
        drop(holding);
        waiting.join().expect("asks")
    });
    assert_eq!(answered, 200);
}

#[test]
fn a_client_that_reads_too_slowly_loses_the_members_connection() {
    let estate = estate("rate_grace = \"300ms\"\nwrite_timeout = \"10m\"", "");
    let agent = estate.ca.agent("web01");
    let _zero = without_window(&estate, &agent, 1);
    let mut slow = estate
        .client(&agent)
        .protocol(Protocol::Http1)
        .receive_buffer(4096)
        .connect()
        .expect("connects");
    let head = slow.head("GET", LARGE, &[], None);
    slow.send_raw(&head).expect("sends");
    wait_for_limit(&estate, "read_rate_min", 2.0);
    let records = wait_until(LIMIT, || {
        let records = estate.proxy.records();
        let slow = |record: &&serde_json::Value| record["reason"] == "read-too-slow";
        (records.iter().filter(slow).count() == 2).then_some(records)
    });
    let records = records.expect("a record each");
    assert!(records.iter().all(|record| record["ended_by"] == "proxy"));
    let in_flight = wait_until(LIMIT, || {
        let metrics = estate.proxy.metrics();
        let in_flight = metrics.sum("proscenium_member_in_flight", &[]);
        (in_flight == 0.0).then_some(())
    });
    assert!(in_flight.is_some());
}

#[test]
fn a_body_below_the_minimum_rate_is_answered_408() {
    let estate = estate("rate_grace = \"300ms\"", "");
    let agent = estate.ca.agent("web01");
    let mut slow = [estate.client(&agent).connect().expect("connects")];
    begin_uploads(&mut slow, 1000, b"x");
    let response = slow[0].read_response().expect("an answer");
    assert_eq!(response.status, 408);
    assert!(response.text().contains("body_rate_min"));
    wait_for_limit(&estate, "body_rate_min", 1.0);
    let record = estate
        .proxy
        .wait_for_record(|record| record["reason"] == "body-too-slow");
    assert_eq!(record["certname"], "web01");
    assert!(estate.compilers[0].requests().is_empty());
}

#[test]
fn without_room_for_buffers_a_body_is_streamed() {
    let estate = estate("", "[upstream]\nbody_buffers_max = \"0B\"");
    let mut upload = [estate
        .client(&estate.ca.agent("web01"))
        .connect()
        .expect("connects")];
    begin_uploads(&mut upload, 1000, b"x");
    wait_for_limit(&estate, "body_buffers_max", 1.0);
    let [upload] = &mut upload;
    upload.send_raw(&[b'x'; 999]).expect("sends");
    assert_eq!(upload.read_response().expect("an answer").status, 200);
    let requests = estate.compilers[0].requests();
    assert_eq!(requests[0].body.kept.len(), 1000);
}
