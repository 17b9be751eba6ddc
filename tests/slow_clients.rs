//! One client that sends slowly, does not read or opens no window: the member answers every request of another agent
//! during the attack.

use std::time::Duration;

use testkit::{Attacker, Client, ClientError, Protocol, Reply, TestCredential, wait_until};

use crate::support::{Estate, LIMIT, http2::wait_for_limit, paths::REPORT, wait_for};

const CATALOG: &str = "/puppet/v3/catalog/web02?environment=production";
const LARGE: &str = "/puppet/v3/file_content/modules/m/large?environment=production";
/// More than the connections of a member.
const ATTACKERS: usize = 20;
/// Requests of the other agent during each attack.
const VICTIM_REQUESTS: usize = 20;
/// How long a slow client waits between two bytes.
const STEP: Duration = Duration::from_millis(50);

/// One compiler with eight connections, of which the share of one client is two. `agent_max` limits no client.
fn estate(listener: &'static str, upstream: &str) -> Estate {
    let upstream = format!("[upstream]\nagent_max_except = [\"*\"]\n{upstream}");
    let estate = Estate::builder()
        .compilers(1)
        .compiler_pool("connections_max = 8")
        .listener(listener)
        .with(&upstream)
        .start();
    for member in &estate.compilers {
        member.answer(|request| {
            let large = request.target.contains("large");
            large.then(|| Reply::stream(64 << 20))
        });
    }
    estate
}

/// Connections of one agent, each of which starts the same attack.
fn attackers(
    estate: &Estate,
    begin: impl Fn(&Client) -> Result<Attacker, ClientError>,
) -> Vec<Attacker> {
    let client = estate.agent("web01");
    (0..ATTACKERS)
        .map(|_| begin(&client).expect("begins"))
        .collect()
}

/// Every request of another agent reaches the member and is answered.
#[track_caller]
fn assert_victim_is_served(estate: &Estate) {
    let victim = estate.agent("web02");
    for _ in 0..VICTIM_REQUESTS {
        assert_eq!(victim.get(CATALOG).status, 200);
    }
    let served = estate.compilers[0].requests();
    let served = served.iter().filter(|request| request.target == CATALOG);
    assert_eq!(served.count(), VICTIM_REQUESTS);
}

#[test]
fn slow_heads_take_no_connection_of_a_member() {
    let estate = estate("", "");
    let mut attackers = attackers(&estate, |client| Attacker::slow_head(client, LARGE));
    for attacker in &mut attackers {
        attacker.step().expect("sends");
    }
    assert_victim_is_served(&estate);
    let asked = estate.compilers[0].requests().len();
    assert_eq!(asked, VICTIM_REQUESTS, "no head has reached the member");
}

/// Asserts that another agent is served while clients send heads slowly, and that `head_timeout` closes their
/// connections.
#[track_caller]
fn assert_slow_heads_end(step: impl Fn(&mut Attacker) -> bool) {
    let estate = estate("head_timeout = \"1s\"\nidle_timeout = \"10m\"", "");
    let mut attackers = attackers(&estate, |client| Attacker::slow_head(client, LARGE));
    assert_victim_is_served(&estate);
    for attacker in &mut attackers {
        let ended = wait_until(LIMIT, || {
            let ended = step(attacker) || attacker.connection.is_closed_within(STEP);
            ended.then_some(())
        });
        assert!(ended.is_some(), "the head goes on");
    }
    wait_for_limit(&estate, "head_timeout", ATTACKERS as f64);
    let late = |record: &&serde_json::Value| record["reason"] == "head-timeout";
    let recorded = wait_until(LIMIT, || {
        let records = estate.proxy.records();
        (records.iter().filter(late).count() == ATTACKERS).then_some(())
    });
    assert!(recorded.is_some(), "a record each");
    assert_eq!(estate.compilers[0].requests().len(), VICTIM_REQUESTS);
}

#[test]
fn heads_that_stop_halfway_are_closed_after_head_timeout() {
    assert_slow_heads_end(|_| false);
}

#[test]
fn heads_that_arrive_byte_by_byte_are_closed_after_head_timeout() {
    assert_slow_heads_end(|attacker| attacker.step().is_err());
}

#[test]
fn slow_bodies_take_no_connection_of_a_member() {
    let estate = estate("", "");
    let mut attackers = attackers(&estate, |client| {
        Attacker::slow_body(client, REPORT, 30_000, 1)
    });
    assert_victim_is_served(&estate);
    let asked = estate.compilers[0].requests().len();
    assert_eq!(asked, VICTIM_REQUESTS, "no upload has reached the member");
    // If the client sends the rest of a body, the whole body is forwarded.
    let upload = &mut attackers[0].connection;
    upload.send_raw(&vec![b'x'; 29_999]).expect("sends");
    assert_eq!(upload.read_response().expect("an answer").status, 200);
    let requests = estate.compilers[0].requests();
    let report = requests.iter().find(|request| request.target == REPORT);
    assert_eq!(report.expect("it was sent").body.kept.len(), 30_000);
}

#[test]
fn buffered_bytes_of_bodies_are_a_metric() {
    const BUFFERED: &str = "proscenium_body_buffer_bytes";
    let estate = estate("", "");
    let mut attackers = attackers(&estate, |client| {
        Attacker::slow_body(client, REPORT, 30_000, 1000)
    });
    let all = 1000.0 * ATTACKERS as f64;
    assert_eq!(estate.wait_for_metric(BUFFERED, &[], all), all);
    // Bytes that the proxy has forwarded or dropped do not count as buffered.
    let upload = &mut attackers[0].connection;
    upload.send_raw(&vec![b'x'; 29_000]).expect("sends");
    assert_eq!(upload.read_response().expect("an answer").status, 200);
    drop(attackers);
    wait_for("freed", || estate.proxy.metrics().sum(BUFFERED, &[]) == 0.0);
}

#[test]
fn slow_bodies_beyond_the_buffer_hold_no_more_than_a_share() {
    let estate = estate("", "body_buffer_max = \"1KiB\"");
    let _attackers = attackers(&estate, |client| {
        Attacker::slow_body(client, REPORT, 1 << 20, 4096)
    });
    wait_for_limit(&estate, "client_share", (ATTACKERS - 2) as f64);
    assert_victim_is_served(&estate);
}

#[test]
fn clients_that_do_not_read_hold_no_more_than_a_share() {
    let estate = estate("", "");
    let _attackers = attackers(&estate, |client| Attacker::without_reading(client, LARGE));
    wait_for_limit(&estate, "client_share", (ATTACKERS - 2) as f64);
    assert_victim_is_served(&estate);
}

/// A connection on which no stream may send a byte.
fn without_window(estate: &Estate, agent: &TestCredential, streams: usize) -> Attacker {
    let client = estate.client(agent).protocol(Protocol::Http2);
    Attacker::without_window(&client, LARGE, streams).expect("begins")
}

#[test]
fn streams_without_a_window_hold_no_more_than_a_share() {
    let estate = estate("", "");
    let agent = estate.ca.agent("web01");
    let _attackers = [(); 2].map(|()| without_window(&estate, &agent, 50));
    wait_for_limit(&estate, "client_share", 98.0);
    assert_victim_is_served(&estate);
}

const STATIC: &str =
    "/puppet/v3/static_file_content/modules/m/files/large?code_id=1&environment=production";

/// Downloads of one agent that reads nothing, over either protocol.
fn downloads(estate: &Estate, certname: &str, count: usize, protocol: Protocol) -> Vec<Attacker> {
    let client = estate.agent(certname).protocol(protocol);
    match protocol {
        Protocol::Http1 => (0..count)
            .map(|_| Attacker::without_reading(&client, STATIC).expect("begins"))
            .collect(),
        Protocol::Http2 => vec![Attacker::without_window(&client, STATIC, count).expect("begins")],
    }
}

/// One compiler with this many connections, which sends large files.
fn files(connections_max: usize) -> Estate {
    let estate = Estate::builder()
        .compilers(1)
        .compiler_pool(&format!("connections_max = {connections_max}"))
        .start();
    estate.compilers[0].answer(|request| {
        let large = request.target.contains("large");
        large.then(|| Reply::stream(64 << 20))
    });
    estate
}

#[test]
fn agents_that_collude_and_do_not_read_leave_connections_to_others() {
    const CONNECTIONS: usize = 128;
    for protocol in [Protocol::Http1, Protocol::Http2] {
        for agents in [4, 16, 64] {
            let estate = files(CONNECTIONS);
            let _attackers: Vec<_> = (0..agents)
                .flat_map(|agent| {
                    let certname = format!("evil{agent:02}");
                    downloads(&estate, &certname, CONNECTIONS / agents, protocol)
                })
                .collect();
            wait_for_limit(&estate, "client_share", 1.0);
            let victim = estate.agent("web02");
            for _ in 0..VICTIM_REQUESTS {
                assert_eq!(victim.get(CATALOG).status, 200, "{agents} {protocol:?}");
            }
        }
    }
}

#[test]
fn a_request_that_waits_for_a_connection_ends_the_slowest_download_beyond_the_fair_part() {
    for protocol in [Protocol::Http1, Protocol::Http2] {
        let estate = files(16);
        let mut attackers = Vec::new();
        // The first clients open their share of four connections each, until a quarter is left. The others open one
        // each.
        for (agent, count) in [4, 4, 4, 1, 1, 1, 1].into_iter().enumerate() {
            attackers.extend(downloads(&estate, &format!("evil{agent}"), count, protocol));
            let begun = [4, 8, 12, 13, 14, 15, 16][agent];
            estate.compilers[0].wait_for_request(begun, LIMIT);
        }
        for round in 1..=3 {
            let victim = estate.agent("web02");
            assert_eq!(victim.get(CATALOG).status, 200, "{protocol:?}");
            // An attacker occupies the connection again.
            attackers.extend(downloads(&estate, &format!("more{round}"), 1, protocol));
            estate.compilers[0].wait_for_request(16 + 2 * round, LIMIT);
        }
        let ended = |record: &&serde_json::Value| record["reason"] == "read-displaced";
        let records = wait_until(LIMIT, || {
            let records = estate.proxy.records();
            (records.iter().filter(ended).count() >= 3).then_some(records)
        });
        let records = records.unwrap_or_else(|| panic!("{protocol:?}"));
        for record in records.iter().filter(ended) {
            assert!(
                ["evil0", "evil1", "evil2"].contains(&record["certname"].as_str().expect("a name")),
                "{record}"
            );
            assert_eq!(record["ended_by"], "proxy", "{record}");
        }
    }
}

/// The shares of three agents leave the last quarter free, in which every client may have one request at a time.
#[test]
fn a_second_request_of_a_client_ends_a_download_beyond_the_fair_part_in_the_last_quarter() {
    for protocol in [Protocol::Http1, Protocol::Http2] {
        let estate = files(16);
        let mut held = Vec::new();
        for agent in ["evil0", "evil1", "evil2"] {
            held.extend(downloads(&estate, agent, 4, protocol));
        }
        estate.compilers[0].wait_for_request(12, LIMIT);
        // This agent also reads one file slowly, and requests another one.
        held.extend(downloads(&estate, "web02", 1, protocol));
        estate.compilers[0].wait_for_request(13, LIMIT);
        let victim = estate.agent("web02");
        let small = STATIC.replace("large", "small");
        assert_eq!(victim.get(&small).status, 200, "{protocol:?}");
        let record = estate.wait_for_record(|record| record["reason"] == "read-displaced");
        let certname = record["certname"].as_str().expect("a name");
        assert!(certname.starts_with("evil"), "{record}");
    }
}

#[test]
fn a_request_beyond_the_share_is_answered_when_another_of_its_client_ends() {
    let estate = estate("", "");
    let agent = estate.ca.agent("web01");
    let holding = without_window(&estate, &agent, 2);
    // Both requests are at the member before the third is sent, which would otherwise get one of their slots.
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
    // Bytes in any buffer between the proxy and the client count as read. At this rate, all these buffers last for
    // milliseconds only.
    let estate = estate(
        "rate_grace = \"300ms\"\nread_rate_min = \"1GiB\"\nwrite_timeout = \"10m\"",
        "",
    );
    let agent = estate.ca.agent("web01");
    let _zero = without_window(&estate, &agent, 1);
    let client = estate.client(&agent).protocol(Protocol::Http1);
    let _slow = Attacker::without_reading(&client, LARGE).expect("begins");
    wait_for_limit(&estate, "read_rate_min", 2.0);
    let records = wait_until(LIMIT, || {
        let records = estate.proxy.records();
        let slow = |record: &&serde_json::Value| record["reason"] == "read-too-slow";
        (records.iter().filter(slow).count() == 2).then_some(records)
    });
    let records = records.expect("a record each");
    assert!(records.iter().all(|record| record["ended_by"] == "proxy"));
    let released = wait_until(LIMIT, || {
        let metrics = estate.proxy.metrics();
        let leases = metrics.sum("proscenium_member_in_flight", &[]);
        (leases == 0.0).then_some(())
    });
    assert!(released.is_some());
}

#[test]
fn a_body_below_the_minimum_rate_is_answered_408() {
    let estate = estate("rate_grace = \"300ms\"", "");
    let client = estate.agent("web01");
    let mut slow = Attacker::slow_body(&client, REPORT, 1000, 1).expect("begins");
    let response = slow.connection.read_response().expect("an answer");
    assert_eq!(response.status, 408);
    assert!(response.text().contains("body_rate_min"));
    wait_for_limit(&estate, "body_rate_min", 1.0);
    let record = estate.wait_for_record(|record| record["reason"] == "body-too-slow");
    assert_eq!(record["certname"], "web01");
    assert!(estate.compilers[0].requests().is_empty());
}

#[test]
fn without_buffer_space_a_body_is_streamed() {
    let estate = estate("", "body_buffers_max = \"0B\"");
    let client = estate.agent("web01");
    let mut attacker = Attacker::slow_body(&client, REPORT, 1000, 1).expect("begins");
    wait_for_limit(&estate, "body_buffers_max", 1.0);
    let upload = &mut attacker.connection;
    upload.send_raw(&[b'x'; 999]).expect("sends");
    assert_eq!(upload.read_response().expect("an answer").status, 200);
    let requests = estate.compilers[0].requests();
    assert_eq!(requests[0].body.kept.len(), 1000);
}
