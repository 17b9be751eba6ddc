//! Every limit of a listener closes, refuses or delays the connections that exceed it, and does not affect other
//! clients.

use std::{
    fs,
    io::{ErrorKind, Read, Write},
    net::{Shutdown, TcpStream},
    thread,
    time::{Duration, Instant},
};

use testkit::{Ca, HeldPort, Proxy, Reply, Seed, TestConnection, wait_until};

use crate::support::{
    self, Estate, LIMIT, http1_alone,
    paths::{CA_CERTIFICATE, CATALOG},
};

const LIMITS_HIT: &str = "proscenium_limits_hit_total";
const HANDSHAKES: &str = "proscenium_handshakes_total";
/// Sends the beginning of a TLS handshake record, and nothing more.
const HALF_A_HELLO: &[u8] = &[0x16, 0x03, 0x01, 0x02, 0x00, 0x01];

#[test]
fn a_connection_beyond_connections_max_waits_for_a_slot() {
    let estate = with_listener("connections_max = 2");
    let client = estate.agent("web01");
    estate.compilers.iter().for_each(testkit::StandIn::hold);
    thread::scope(|scope| {
        let holding: Vec<_> = (0..2)
            .map(|_| scope.spawn(|| client.get(CATALOG).status))
            .collect();
        heads(&estate, 2);
        let waiting = scope.spawn(|| client.get(CA_CERTIFICATE).status);
        assert_limit(&estate, "connections_max");
        assert_eq!(
            estate.ca_server.requests().len(),
            0,
            "no connection is served beyond the limit"
        );
        estate.compilers.iter().for_each(testkit::StandIn::release);
        for client in holding {
            assert_eq!(client.join().expect("asks"), 200);
        }
        assert_eq!(waiting.join().expect("asks"), 200);
    });
}

#[test]
fn the_last_slot_serves_one_connection_after_another_on_any_thread() {
    let estate = Estate::builder()
        .top("workers = 4")
        .listener("connections_max = 1")
        .start();
    for _ in 0..16 {
        assert_eq!(estate.anonymous().get(CA_CERTIFICATE).status, 200);
    }
}

#[test]
fn workers_sets_the_number_of_threads() {
    for workers in [1, 3] {
        let estate = Estate::builder()
            .top(&format!("workers = {workers}"))
            .start();
        let tasks = fs::read_dir(format!("/proc/{}/task", estate.proxy.pid())).expect("it runs");
        let name = |task: fs::DirEntry| fs::read_to_string(task.path().join("comm")).ok();
        let names = tasks.flatten().filter_map(name);
        assert_eq!(
            names.filter(|name| name.starts_with("worker-")).count(),
            workers
        );
    }
}

#[test]
fn a_probe_that_only_connects_is_counted_and_leaves_no_record() {
    let estate = with_listener("handshakes_max = 1\nhandshake_timeout = \"10m\"");
    let closed = [("listener", "agents"), ("result", "closed")];
    drop(connected(&estate.proxy));
    estate.wait_for_metric(HANDSHAKES, &closed, 1.0);
    // Load balancers end their probes with a reset.
    rustix::net::connect_unspec(connected(&estate.proxy)).expect("a reset");
    estate.wait_for_metric(HANDSHAKES, &closed, 2.0);
    // One byte starts a handshake, even if the connection closes with it.
    let mut spoken = connected(&estate.proxy);
    spoken.write_all(&HALF_A_HELLO[..1]).expect("is taken");
    spoken.shutdown(Shutdown::Write).expect("is open");
    read_to_end(&mut spoken);
    estate.wait_for_metric(HANDSHAKES, &closed, 3.0);
    let records = estate.wait_for_records(1);
    assert_eq!(records.len(), 1, "{records:?}");
    assert_eq!(records[0]["reason"], "connection-lost");
}

#[test]
fn a_handshake_that_exceeds_its_timeout_is_closed() {
    let estate = with_listener("handshake_timeout = \"500ms\"");
    let longer = default_listener(&estate);
    let mut longer = TcpStream::connect(longer.address()).expect("connects");
    longer.write_all(HALF_A_HELLO).expect("is taken");
    for mut stream in [connected(&estate.proxy), half_handshake(&estate.proxy)] {
        read_to_end(&mut stream);
    }
    longer.set_nonblocking(true).expect("a socket takes it");
    let open = longer.read(&mut [0]).map_err(|error| error.kind());
    assert_eq!(
        open,
        Err(ErrorKind::WouldBlock),
        "begun before, and allowed more"
    );
    let timeouts = [("listener", "agents"), ("result", "timeout")];
    estate.wait_for_metric(HANDSHAKES, &timeouts, 2.0);
    let record = estate.wait_for_record(|record| record["reason"] == "handshake-timeout");
    assert_eq!(record["ended_by"], "proxy");
    assert_eq!(estate.anonymous().get(CA_CERTIFICATE).status, 200);
}

#[test]
fn the_time_limit_of_a_head_starts_at_its_first_byte() {
    http1_alone!("a head is frames; see http2.rs");
    let estate = with_listener("head_timeout = \"1s\"\nidle_timeout = \"10m\"");
    let mut connection = estate.agent("web01").connect().expect("connects");
    // The connection is idle for longer than the time limit for a head. An idle connection has not begun a head.
    assert!(!connection.is_closed_within(Duration::from_millis(1500)));
    assert_eq!(connection.get(CATALOG).status, 200);
    let began = Instant::now();
    connection
        .send_raw(b"GET / HTTP/1.1\r\nX-Slow: ")
        .expect("is taken");
    // Sending a single byte now and then does not extend the time limit.
    while !connection.is_closed_within(Duration::from_millis(100)) {
        assert!(began.elapsed() < LIMIT, "the head goes on for ever");
        if connection.send_raw(b"x").is_err() {
            break;
        }
    }
    assert!(began.elapsed() >= Duration::from_secs(1));
    assert_limit(&estate, "head_timeout");
    assert_eq!(limit(&estate, "idle_timeout"), 0.0);
    let record = estate.wait_for_record(|record| record["reason"] == "head-timeout");
    assert_eq!(record["certname"], "web01");
    assert_eq!(record["ended_by"], "proxy");
}

#[test]
fn an_idle_connection_is_closed_after_the_idle_timeout_and_a_head_is_not_idle() {
    let estate = with_listener("idle_timeout = \"5s\"\nhead_timeout = \"10m\"");
    let agent = estate.ca.agent("web01");
    let longer = default_listener(&estate);
    let began = Instant::now();
    let mut slow = estate.client(&agent).connect().expect("connects");
    let mut fresh = estate.client(&agent).connect().expect("connects");
    let mut idle = estate.client(&agent).connect().expect("connects");
    assert_eq!(idle.get(CATALOG).status, 200);
    let longer = estate.client(&agent).at(longer.address());
    let mut longer = longer.connect().expect("connects");
    assert_eq!(longer.get(CATALOG).status, 200);
    assert_eq!(idle.get(CATALOG).status, 200);
    let head = slow.head("GET", CATALOG, &[], None);
    slow.send_raw(&head[..10]).expect("is taken");
    for connection in [&mut idle, &mut fresh] {
        assert!(connection.is_closed_within(LIMIT));
        assert!(
            began.elapsed() >= Duration::from_secs(5),
            "an agent reuses one for 4 s"
        );
    }
    // This connection was idle for the same time, on a listener that allows more.
    assert!(!longer.is_closed_within(Duration::from_millis(1)));
    estate.wait_for_metric(LIMITS_HIT, &[("limit", "idle_timeout")], 2.0);
    slow.send_raw(&head[10..]).expect("is taken");
    assert_eq!(slow.read_response().expect("is answered").status, 200);
    assert_eq!(limit(&estate, "head_timeout"), 0.0);
}

#[test]
fn an_idle_timeout_below_five_seconds_is_refused() {
    for (time, code) in [("4999ms", Some(78)), ("5s", Some(0))] {
        let outcome = support::proxy(&Ca::new())
            .listener(&format!("idle_timeout = \"{time}\""))
            .without_members()
            .check();
        assert_eq!(outcome.code, code, "{}{}", outcome.stdout, outcome.stderr);
        assert_eq!(
            outcome.stderr.contains("idle_timeout"),
            code == Some(78),
            "{}",
            outcome.stderr
        );
    }
}

#[test]
fn a_head_beyond_head_max_is_431_with_a_record() {
    let estate = with_listener("head_max = \"16KiB\"");
    let client = estate.agent("web01");
    let ask = |bytes: usize| {
        let value = "x".repeat(bytes);
        client
            .request("GET", CATALOG, &[("X-Long", &value)], b"")
            .status
    };
    assert_eq!(ask(12 << 10), 200);
    assert_eq!(ask(17 << 10), 431);
    assert_limit(&estate, "head");
    let record = estate.wait_for_record(|record| record["status"] == 431);
    assert_eq!(record["reason"], "head-too-large");
    assert_eq!(record["certname"], "web01");
    assert_eq!(estate.far_end().len(), 1);
}

#[test]
fn a_request_with_more_than_100_fields_is_431_and_a_response_with_more_than_256_is_502() {
    let estate = Estate::start();
    let client = estate.agent("web01");
    let names: Vec<_> = (0..100).map(|n| format!("X-Field-{n}")).collect();
    // The client adds Host, Accept and X-Puppet-Version.
    let ask = |count: usize| {
        let fields: Vec<_> = names[..count - 3]
            .iter()
            .map(|name| (name.as_str(), "1"))
            .collect();
        client.request("GET", CATALOG, &fields, b"").status
    };
    assert_eq!((ask(100), ask(101)), (200, 431));
    assert_limit(&estate, "head");
    for compiler in &estate.compilers {
        compiler.answer(|_| {
            let many = Reply::ok("many");
            Some((0..256).fold(many, |reply, _| reply.header("X-Many", "1")))
        });
    }
    assert_eq!(ask(10), 502);
}

#[test]
fn a_client_that_reads_nothing_of_its_response_is_disconnected() {
    let estate = with_listener("write_timeout = \"500ms\"\nidle_timeout = \"10m\"");
    let agent = estate.ca.agent("web01");
    for compiler in &estate.compilers {
        compiler.answer(|_| Some(Reply::stream(64 << 20)));
    }
    let client = estate.client(&agent).receive_buffer(4096);
    let mut deaf = client.connect().expect("connects");
    deaf.send("GET", CATALOG, &[], b"").expect("is taken");
    assert_limit(&estate, "write_timeout");
    let record = estate.wait_for_record(|record| record["reason"] == "write-timeout");
    assert_eq!(record["status"], 200);
    assert_eq!(record["ended_by"], "proxy");
    assert_eq!(estate.anonymous().get(CA_CERTIFICATE).status, 200);
}

#[test]
fn stalled_clients_do_not_delay_other_clients() {
    let estate = Estate::builder()
        .one_agent_for_many()
        .top("workers = 1")
        .start();
    let client = estate.agent("web01");
    for compiler in &estate.compilers {
        compiler.answer(|request| {
            request
                .target
                .contains("big")
                .then(|| Reply::stream(64 << 20))
        });
    }
    let mut raw = Vec::new();
    let mut open = Vec::new();
    for _ in 0..20 {
        raw.push(connected(&estate.proxy));
        raw.push(half_handshake(&estate.proxy));
        let hang = |bytes: &[u8]| {
            let mut connection = client
                .clone()
                .receive_buffer(4096)
                .connect()
                .expect("connects");
            connection.send_raw(bytes).expect("is taken");
            connection
        };
        open.push(hang(b""));
        open.push(hang(b"GET /puppet/v3/cata"));
        let mut posting = hang(b"");
        let head = posting.head("POST", CATALOG, &[], Some(1000));
        posting.send_raw(&head).expect("is taken");
        open.push(posting);
        let mut deaf = hang(b"");
        deaf.send("GET", "/puppet/v3/catalog/web01?environment=big", &[], b"")
            .expect("is taken");
        open.push(deaf);
    }
    for _ in 0..10 {
        assert_eq!(client.get(CATALOG).status, 200);
        assert_eq!(estate.anonymous().get(CA_CERTIFICATE).status, 200);
    }
    drop((raw, open));
}

#[test]
fn bytes_that_are_not_tls_end_only_their_own_connection() {
    let estate = with_listener("handshake_timeout = \"500ms\"");
    let mut seed = Seed::from_env_or_random();
    for _ in 0..300 {
        let mut stream = connected(&estate.proxy);
        let mut bytes = noise(&mut seed);
        if seed.once_in(2) {
            // The bytes may look like the beginning of a record, which the proxy then waits for.
            bytes.splice(..bytes.len().min(3), [0x16, 0x03, 0x01]);
        }
        // The proxy may close it before everything is written.
        let _ = stream.write_all(&bytes);
        let _ = stream.shutdown(Shutdown::Write);
        read_to_end(&mut stream);
    }
    let agent = estate.ca.agent("web01");
    assert_eq!(estate.client(&agent).get(CATALOG).status, 200);
    assert_eq!(estate.far_end().len(), 1);
    // Each of these connections has one record, except those that closed before the first byte.
    let record = |record: &serde_json::Value| record["reason"] == "not-tls";
    assert_eq!(
        estate.wait_for_record(record)["status"],
        serde_json::Value::Null
    );
}

#[test]
fn plain_http_on_the_tls_port_gets_a_readable_400() {
    let estate = Estate::start();
    for (request, close) in [
        ("GET / HTTP/1.1\r\nHost: puppet\r\n\r\n", false),
        ("PUT /puppet/v3/report/web01 HTTP/1.1\r\n", true),
        ("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", false),
    ] {
        let mut stream = connected(&estate.proxy);
        stream.write_all(request.as_bytes()).expect("sends");
        if close {
            stream.shutdown(Shutdown::Write).expect("closes");
        }
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).expect("a whole answer");
        let answer = String::from_utf8_lossy(&answer);
        assert!(answer.starts_with("HTTP/1.1 400 "), "{answer}");
        assert!(answer.contains("https://"), "{answer}");
        let mut lines = answer.lines();
        let id = lines.find_map(|line| line.strip_prefix("X-Request-Id: "));
        let id = id.unwrap_or_else(|| panic!("no id in {answer}"));
        let record = estate.wait_for_record(|record| record["id"] == id);
        assert_eq!(record["reason"], "plain-http", "{record}");
        assert_eq!(record["status"], 400, "{record}");
    }
    for other in ["PROXY TCP4 192.0.2.1 192.0.2.2 1 2\r\n", "SSH-2.0-x\r\n"] {
        let mut stream = connected(&estate.proxy);
        stream.write_all(other.as_bytes()).expect("sends");
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        assert!(!answer.starts_with(b"HTTP"), "{answer:?}");
    }
    let record = estate.wait_for_record(|record| record["reason"] == "not-tls");
    assert_eq!(record["status"], serde_json::Value::Null, "{record}");
    let plain = [("listener", "agents"), ("result", "plain-http")];
    estate.wait_for_metric(HANDSHAKES, &plain, 3.0);
    assert!(estate.far_end().is_empty());
    let agent = estate.ca.agent("web01");
    assert_eq!(estate.client(&agent).get(CATALOG).status, 200);
}

#[test]
fn bytes_that_are_not_a_request_end_only_their_own_connection() {
    http1_alone!("spoiled bytes; of frames see http2.rs");
    let estate = Estate::start();
    let mut seed = Seed::from_env_or_random();
    let client = estate.agent("web01");
    for _ in 0..300 {
        let mut connection = client.connect().expect("connects");
        let bytes = spoiled_head(&connection, &mut seed);
        let _ = connection.send_raw(&bytes);
        connection.half_close();
        let answer = connection.read_to_close();
        assert!(
            answer.is_empty() || answer.starts_with(b"HTTP/1.1 "),
            "{:?} to {:?}",
            String::from_utf8_lossy(&answer),
            String::from_utf8_lossy(&bytes)
        );
    }
    for request in estate.far_end() {
        assert_eq!(
            request.only("x-client-verify"),
            "SUCCESS",
            "{}",
            request.raw_text()
        );
        assert_eq!(
            request.only("x-client-dn"),
            "CN=web01",
            "{}",
            request.raw_text()
        );
    }
    assert_eq!(client.get(CATALOG).status, 200);
}

/// A valid head with some bytes replaced, or random bytes only.
fn spoiled_head(connection: &TestConnection, seed: &mut Seed) -> Vec<u8> {
    if seed.once_in(5) {
        return noise(seed);
    }
    let mut bytes = connection.head(
        "GET",
        CATALOG,
        &[("X-Client-DN", "CN=forged"), ("TE", "trailers")],
        None,
    );
    for _ in 0..=seed.below(4) {
        if bytes.is_empty() {
            break;
        }
        let at = seed.below(bytes.len());
        match seed.below(4) {
            0 => bytes[at] = seed.number() as u8,
            1 => drop(bytes.remove(at)),
            2 => bytes.insert(at, *seed.pick(b"\r\n :\0\t\xff/%;,")),
            _ => bytes.truncate(at.max(1)),
        }
    }
    bytes
}

fn noise(seed: &mut Seed) -> Vec<u8> {
    (0..=seed.below(600)).map(|_| seed.number() as u8).collect()
}

fn with_listener(lines: &'static str) -> Estate {
    Estate::builder().listener(lines).start()
}

/// A second listener, with the default limits.
fn default_listener(estate: &Estate) -> HeldPort {
    let port = HeldPort::take();
    let text = estate.proxy.config_text();
    let table = format!("[listeners.second]\naddress = \"127.0.0.1:{port}\"\n");
    estate.write_config(&format!("{text}\n{table}"));
    estate.proxy.reload_applied();
    port
}

fn connected(proxy: &Proxy) -> TcpStream {
    let stream = TcpStream::connect(proxy.address()).expect("connects");
    stream
        .set_read_timeout(Some(LIMIT))
        .expect("a limit that is not zero");
    stream
}

/// A handshake that has begun and does not continue.
fn half_handshake(proxy: &Proxy) -> TcpStream {
    let mut stream = connected(proxy);
    stream.write_all(HALF_A_HELLO).expect("is taken");
    stream
}

/// Reads until the connection ends in any way; fails if it does not end in time.
#[track_caller]
fn read_to_end(stream: &mut TcpStream) {
    let mut bytes = Vec::new();
    if let Err(error) = stream.read_to_end(&mut bytes) {
        assert_ne!(error.kind(), ErrorKind::WouldBlock, "still open");
    }
}

#[track_caller]
fn assert_limit(estate: &Estate, name: &str) {
    let labels = [("listener", "agents"), ("limit", name)];
    estate.wait_for_metric(LIMITS_HIT, &labels, 1.0);
}

fn limit(estate: &Estate, name: &str) -> f64 {
    estate.proxy.metrics().sum(LIMITS_HIT, &[("limit", name)])
}

/// Waits until the compilers have received this many heads.
#[track_caller]
fn heads(estate: &Estate, n: usize) {
    let seen = || {
        estate
            .compilers
            .iter()
            .map(|c| c.requests().len())
            .sum::<usize>()
    };
    assert!(
        wait_until(LIMIT, || (seen() >= n).then_some(())).is_some(),
        "{} heads",
        seen()
    );
}

#[test]
fn the_connection_limit_applies_to_each_address_separately() {
    let estate = with_listener("connections_max_per_address = 1");
    let agent = estate.ca.agent("web01");
    let mut first = estate.client(&agent).connect().expect("connects");
    assert_eq!(first.get(CATALOG).status, 200);
    let mut second = connected(&estate.proxy);
    read_to_end(&mut second);
    assert_limit(&estate, "connections_max_per_address");
    let elsewhere = estate.client(&agent).source([127, 0, 0, 2].into());
    assert_eq!(elsewhere.get(CATALOG).status, 200);
    drop(first);
    let freed = wait_until(LIMIT, || estate.client(&agent).connect().ok());
    assert_eq!(freed.expect("a place").get(CATALOG).status, 200);
}

#[test]
fn an_exempt_network_has_no_limit_per_address() {
    let estate = with_listener(
        "connections_max_per_address = 1\nhandshakes_max_per_address = 1\n\
         per_address_exempt = [\"127.0.0.0/8\"]",
    );
    let _begun: Vec<_> = (0..3).map(|_| half_handshake(&estate.proxy)).collect();
    assert_eq!(estate.anonymous().get(CA_CERTIFICATE).status, 200);
    assert_eq!(limit(&estate, "connections_max_per_address"), 0.0);
    assert_eq!(limit(&estate, "handshakes_max_per_address"), 0.0);
}
