//! Requests in flight are completed when the process stops or a member is drained.

use std::{
    fs,
    net::TcpStream,
    thread,
    time::{Duration, Instant},
};

use rustix::process::Signal;
use testkit::{Client, HeldPort, Proxy, Reply, ReplyGate, Response, StandIn, wait_until};

use crate::support::{
    self, Estate, LIMIT, QUICK_CHECK, http1_alone,
    paths::{CA_CERTIFICATE, CATALOG},
};

/// How long an idle connection stays open: an agent reuses a connection for 4 s and does not retry.
const SILENCE: Duration = Duration::from_secs(5);

#[test]
fn every_response_after_the_stop_closes_its_connection() {
    let estate = patient();
    let agent = estate.ca.agent("web01");
    let requests = [
        ("GET", CATALOG, 200),
        ("GET", "/puppet/v3/catalog/web02", 403),
        ("GET", "/nowhere", 404),
        ("GET", "/puppet/v3/../x", 400),
        ("DELETE", CATALOG, 405),
        ("GET", "/status/v1/simple", 200),
    ];
    let mut open: Vec<_> = requests
        .iter()
        .map(|_| {
            let mut connection = estate.client(&agent).connect().expect("connects");
            let before = connection.get(CATALOG);
            assert_eq!((before.status, before.says_close()), (200, false));
            connection
        })
        .collect();
    drain(&estate.proxy);
    for (connection, (method, target, status)) in open.iter_mut().zip(requests) {
        let answer = connection.request(method, target, &[], b"");
        assert_eq!(
            (answer.status, answer.says_close()),
            (status, true),
            "{method} {target}"
        );
        assert!(connection.is_closed_within(LIMIT), "{method} {target}");
    }
    assert_ends(&estate.proxy);
}

#[test]
fn idle_connections_and_new_handshakes_stay_open_for_seconds_after_a_stop() {
    http1_alone!("an HTTP/2 client gets GOAWAY, and its connection closes at once");
    let estate = patient();
    let agent = estate.ca.agent("web01");
    let began = Instant::now();
    let mut fresh = estate.client(&agent).connect().expect("connects");
    let mut idle = estate.client(&agent).connect().expect("connects");
    assert_eq!(idle.get(CATALOG).status, 200);
    // In TLS 1.3 the client completes its handshake before the server does: wait until the proxy counts both
    // connections.
    estate.wait_for_metric("proscenium_connections_open", &[], 2.0);
    drain(&estate.proxy);
    for connection in [&mut fresh, &mut idle] {
        assert!(connection.is_closed_within(LIMIT), "closed without a word");
        assert!(began.elapsed() >= SILENCE, "{:?}", began.elapsed());
    }
    assert_ends(&estate.proxy);
}

#[test]
fn a_post_in_flight_is_answered_and_the_process_ends_with_it() {
    let estate = patient();
    let client = estate.agent("web01");
    estate.compilers[0].hold();
    thread::scope(|scope| {
        let posting = scope.spawn(|| client.request("POST", CATALOG, &[], b"facts"));
        estate.compilers[0].wait_for_request(1, LIMIT);
        drain(&estate.proxy);
        estate.compilers[0].release();
        let answer = posting.join().expect("asks");
        assert_eq!((answer.status, answer.says_close()), (200, true));
    });
    let stderr = assert_ends(&estate.proxy);
    assert!(stderr.contains("finished=1 cut=0"), "{stderr}");
}

#[test]
fn a_response_that_has_begun_arrives_complete() {
    http1_alone!("an HTTP/2 client gets GOAWAY and opens no more streams");
    let estate = patient();
    let agent = estate.ca.agent("web01");
    let gate = ReplyGate::new();
    gate.hold();
    let held = gate.clone();
    estate.compilers[0].answer(move |_| Some(Reply::stream(300_000).gate_after(100_000, &held)));
    let mut connection = estate.client(&agent).connect().expect("connects");
    connection.send("GET", CATALOG, &[], b"").expect("is taken");
    let head = connection.read_head().expect("a head");
    assert!(!head.says_close(), "the stop had not begun");
    drain(&estate.proxy);
    gate.release();
    let answer = connection.read_body_of(head).expect("a whole body");
    assert_eq!(answer.body.length, 300_000);
    let ended = Instant::now();
    // The connection may be reused for a moment, although the client sent its last byte long ago.
    let again = connection.get(CA_CERTIFICATE);
    assert_eq!(
        (again.status, again.says_close()),
        (200, true),
        "{:?}",
        ended.elapsed()
    );
    assert_ends(&estate.proxy);
}

#[test]
fn a_connection_whose_response_has_begun_stays_open_for_seconds_after_a_stop() {
    http1_alone!("an HTTP/2 client gets GOAWAY, and its connection closes at once");
    let estate = patient();
    let agent = estate.ca.agent("web01");
    let gate = ReplyGate::new();
    gate.hold();
    let held = gate.clone();
    estate.compilers[0].answer(move |_| Some(Reply::stream(300_000).gate_after(100_000, &held)));
    let mut connection = estate.client(&agent).connect().expect("connects");
    connection.send("GET", CATALOG, &[], b"").expect("is taken");
    let head = connection.read_head().expect("a head");
    drain(&estate.proxy);
    let released = Instant::now();
    gate.release();
    connection.read_body_of(head).expect("a whole body");
    assert!(
        connection.is_closed_within(LIMIT),
        "not only after idle_timeout"
    );
    assert!(released.elapsed() >= SILENCE, "{:?}", released.elapsed());
    assert_ends(&estate.proxy);
}

#[test]
fn connections_in_the_accept_queue_are_served() {
    let estate = Estate::builder()
        .compilers(1)
        .top("drain_grace = \"10m\"")
        .listener("connections_max = 1")
        .start();
    let client = estate.agent("web01");
    estate.compilers[0].hold();
    thread::scope(|scope| {
        let first = scope.spawn(|| client.get(CATALOG).status);
        estate.compilers[0].wait_for_head(1, LIMIT);
        let waiting: Vec<_> = (0..8)
            .map(|_| scope.spawn(|| client.try_request("GET", CA_CERTIFICATE, &[], b"")))
            .collect();
        let port = estate.proxy.address().port();
        let connected = wait_until(LIMIT, || (established_to(port) == 9).then_some(()));
        assert!(connected.is_some(), "{} connected", established_to(port));
        assert!(
            waiting.iter().all(|client| !client.is_finished()),
            "one place, and it is taken"
        );
        drain(&estate.proxy);
        for client in waiting {
            let answer = client.join().expect("asks").expect("is answered");
            assert_eq!((answer.status, answer.says_close()), (200, true));
        }
        estate.compilers[0].release();
        assert_eq!(first.join().expect("asks"), 200);
    });
    assert_ends(&estate.proxy);
}

#[test]
fn queued_requests_are_served_during_the_grace_and_then_get_503() {
    let estate = Estate::builder()
        .compiler(1, "max = 1")
        .compilers(1)
        .top("drain_grace = \"10m\"")
        .listener("idle_timeout = \"10m\"")
        .start();
    let gates = [(); 3].map(|()| ReplyGate::new());
    let held = gates.clone();
    estate.compilers[0].answer(move |request| {
        let of = |n: &usize| request.target.contains(&format!("/catalog/web0{n}"));
        let n = (0..held.len()).find(of)?;
        Some(Reply::ok("{}").gate(&held[n]))
    });
    let mut asking: Vec<_> = (0..5)
        .map(|n| {
            let agent = estate.ca.agent(&format!("web0{n}"));
            let mut connection = estate.client(&agent).connect().expect("connects");
            let path = format!("/puppet/v3/catalog/web0{n}?environment=production");
            // Depending on the version, an agent retries after a 503 or fails its run on it.
            let version = [("X-Puppet-Version", ["7.23.0", "8.10.0"][n % 2])];
            connection.send("GET", &path, &version, b"").expect("sends");
            match n {
                0 => drop(estate.compilers[0].wait_for_request(1, LIMIT)),
                _ => wait_for_waiting(&estate.proxy, n),
            }
            connection
        })
        .collect();
    drain(&estate.proxy);
    for (connection, gate) in asking[..2].iter_mut().zip(&gates) {
        gate.release();
        let answer = connection.read_response().expect("an answer");
        assert_eq!((answer.status, answer.says_close()), (200, true));
    }
    wait_for_waiting(&estate.proxy, 2);
    drop(estate.compilers[0].wait_for_request(3, LIMIT));
    estate.proxy.terminate();
    assert!(asking[2].read_response().is_err(), "its member had it");
    for (connection, comes_back) in asking[3..].iter_mut().zip([true, false]) {
        let answer = connection.read_response().expect("an answer");
        assert_eq!((answer.status, answer.says_close()), (503, true));
        assert!(answer.text().contains("stopping"), "{answer:?}");
        let retry_after = answer.headers.get("retry-after");
        assert_eq!(retry_after.is_some(), comes_back, "{answer:?}");
    }
    assert_ends(&estate.proxy);
    gates[2].release();
    let records = estate.proxy.records();
    let refused = records.iter().filter(|record| record["status"] == 503);
    assert!(
        refused
            .clone()
            .all(|record| record["reason"] == "drain-grace")
    );
    assert_eq!(refused.count(), 2);
}

#[test]
fn the_grace_limit_cuts_the_remaining_exchanges_and_logs_their_number() {
    let estate = Estate::builder()
        .compilers(1)
        .top("drain_grace = \"1s\"")
        .start();
    assert_cut(&estate, || ());
}

#[test]
fn a_second_signal_cuts_all_exchanges_at_once() {
    let estate = patient();
    assert_cut(&estate, || estate.proxy.terminate());
}

/// Asserts that the grace limit, or the call of `then`, cuts two endless exchanges.
fn assert_cut(estate: &Estate, then: impl FnOnce()) {
    let client = estate.agent("web01");
    estate.compilers[0].hold();
    thread::scope(|scope| {
        let posting: Vec<_> = (0..2)
            .map(|_| scope.spawn(|| client.try_request("POST", CATALOG, &[], b"facts")))
            .collect();
        estate.compilers[0].wait_for_request(2, LIMIT);
        estate.proxy.terminate();
        let output = wait_until(LIMIT, || {
            estate.proxy.stderr().contains("draining").then_some(())
        });
        assert!(output.is_some(), "{}", estate.proxy.stderr());
        then();
        for client in posting {
            assert!(
                client
                    .join()
                    .expect("asks")
                    .expect_err("is cut")
                    .is_closed()
            );
        }
    });
    let stderr = assert_ends(&estate.proxy);
    assert!(stderr.contains("finished=0 cut=2"), "{stderr}");
    for record in estate.proxy.records() {
        assert_eq!(record["reason"], "drain-grace");
        assert_eq!(record["ended_by"], "proxy");
    }
    assert_eq!(estate.proxy.records().len(), 2);
    estate.compilers[0].release();
}

#[test]
fn a_process_without_connections_ends_at_once_and_removes_its_socket() {
    let estate = patient();
    let socket = estate.proxy.admin_socket();
    estate.proxy.terminate();
    assert_ends(&estate.proxy);
    assert!(!socket.exists());
}

#[test]
fn a_draining_process_accepts_no_connections_and_no_reload() {
    let estate = patient();
    let mut open = estate.agent("web01").connect().expect("connects");
    assert_eq!(open.get(CATALOG).status, 200);
    drain(&estate.proxy);
    assert_eq!(estate.proxy.reload()["result"], "stopping");
    let refused = wait_until(LIMIT, || TcpStream::connect(estate.proxy.address()).err());
    assert!(refused.is_some());
    assert_eq!(open.get(CATALOG).status, 200);
    assert_ends(&estate.proxy);
}

#[test]
fn a_stop_during_a_reload_cancels_the_reload() {
    let estate = patient();
    let mut open = estate.agent("web01").connect().expect("connects");
    assert_eq!(open.get(CATALOG).status, 200);
    // A new pool is probed before it is used; while its member does not answer, the reload is still running.
    let (slow, gate) = (StandIn::start("slow"), ReplyGate::new());
    gate.hold();
    let held = gate.clone();
    slow.answer(move |_| Some(Reply::ok("running").gate(&held)));
    let port = HeldPort::take();
    let more = format!(
        "[listeners.more]\naddress = \"127.0.0.1:{port}\"\n\
         [pools.slow]\nscheme = \"http\"\nmembers = [\"{}\"]\n\
         check = {{ interval = \"30s\", timeout = \"20s\" }}\n[pools.ca]",
        slow.address()
    );
    estate.edit_config("[pools.ca]", &more);
    estate.proxy.signal(Signal::HUP);
    let asked = wait_until(LIMIT, || (!slow.probes().is_empty()).then_some(()));
    assert!(asked.is_some(), "{}", estate.proxy.stderr());
    drain(&estate.proxy);
    gate.release();
    let refused = wait_until(LIMIT, || TcpStream::connect(port.address()).err());
    assert!(refused.is_some(), "new connections are refused");
    assert_eq!(estate.proxy.generation(), 1);
    assert_eq!(open.get(CATALOG).status, 200);
    assert_ends(&estate.proxy);
}

#[test]
fn a_drained_member_finishes_its_requests_and_is_not_picked() {
    let estate = Estate::builder().compiler_pool(QUICK_CHECK).start();
    let client = estate.agent("web01");
    let [drained, other] = &estate.compilers[..] else {
        unreachable!("two compilers")
    };
    other.stop();
    estate.wait_for_health("compilers", &other.address(), "down");
    drained.hold();
    thread::scope(|scope| {
        let running = scope.spawn(|| client.request("POST", CATALOG, &[], b"facts").status);
        drained.wait_for_request(1, LIMIT);
        other.restart();
        estate.wait_for_health("compilers", &other.address(), "up");
        set(&estate.proxy, "drain", drained);
        for _ in 0..10 {
            assert_eq!(client.get(CATALOG).status, 200);
        }
        assert_eq!((drained.requests().len(), other.requests().len()), (1, 10));
        assert_eq!(in_flight(&estate.proxy, drained), 1);
        drained.release();
        assert_eq!(running.join().expect("asks"), 200);
    });
    let address = drained.address();
    estate.wait_for_status("in flight run out", |status| {
        let member = member(status, &address);
        member["in_flight"] == 0 && member["administrative_state"] == "drain"
    });
    set(&estate.proxy, "ready", drained);
    set(&estate.proxy, "drain", other);
    assert_eq!(client.get(CATALOG).status, 200);
    assert_eq!(drained.requests().len(), 2);
}

#[test]
fn a_draining_member_finishes_its_requests() {
    let estate = Estate::builder().compilers(1).start();
    let [compiler] = &estate.compilers[..] else {
        unreachable!("one compiler")
    };
    let client = estate.agent("web01");
    compiler.hold();
    thread::scope(|scope| {
        let running = scope.spawn(|| client.get(CATALOG).status);
        compiler.wait_for_head(1, LIMIT);
        let drained = set_by_api(&estate.proxy, "drain", compiler);
        assert_eq!(drained.status, 200);
        assert_eq!(drained.json()["in_flight"], 1);
        let turned_away = client.get(CATALOG);
        assert_eq!(turned_away.status, 503);
        turned_away.headers.only("retry-after");
        compiler.release();
        assert_eq!(running.join().expect("asks"), 200);
    });
    estate.wait_for_status("nothing in flight", |status| {
        member(status, &compiler.address())["in_flight"] == 0
    });
    assert_eq!(compiler.requests().len(), 1);
}

#[test]
fn a_drained_member_gets_no_more_requests_until_it_is_ready() {
    let estate = Estate::builder()
        .compilers(1)
        .compiler_pool(QUICK_CHECK)
        .start();
    let agent = estate.ca.agent("web01");
    let address = estate.compilers[0].address();
    let ask = || estate.client(&agent).get(CATALOG).status;
    assert_eq!(ask(), 200);
    for (verb, status) in [
        ("drain", 503),
        ("ready", 200),
        ("maintenance", 503),
        ("ready", 200),
    ] {
        let stdout = support::set_state(&estate.proxy, verb, "compilers", &address);
        let expected = format!("{address} in compilers: {verb}, 0 in flight\n");
        assert!(stdout.starts_with(&expected), "{stdout}");
        if verb == "ready" {
            estate.wait_for_members(&["compilers"]);
        }
        assert_eq!(ask(), status, "after {verb}");
        let table = estate.proxy.command(&["status"], &[]).stdout;
        let line = table.lines().find(|line| line.contains(&address));
        assert!(line.is_some_and(|line| line.contains(verb)), "{table}");
    }
}

/// An estate with one compiler, and with timeouts so long that only the drain closes a connection soon.
fn patient() -> Estate {
    Estate::builder()
        .compilers(1)
        .top("drain_grace = \"10m\"")
        .listener("idle_timeout = \"10m\"")
        .start()
}

fn drain(proxy: &Proxy) {
    proxy.terminate();
    proxy.wait_for_status("draining", |status| status["phase"] == "draining");
}

/// Waits until this many requests wait for a compiler.
#[track_caller]
fn wait_for_waiting(proxy: &Proxy, requests: usize) {
    proxy.wait_for_status("the length of the queue", |status| {
        let pools = status["pools"].as_array().into_iter().flatten();
        let mut compilers = pools.filter(|pool| pool["name"] == "compilers");
        compilers
            .next()
            .is_some_and(|pool| pool["waiting"] == requests)
    });
}

/// Asserts that the process exits with 0 long before the end of the grace; returns its standard error.
#[track_caller]
fn assert_ends(proxy: &Proxy) -> String {
    let outcome = proxy.wait_for_end(LIMIT);
    assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
    outcome.stderr
}

fn set(proxy: &Proxy, verb: &str, member: &StandIn) {
    support::set_state(proxy, verb, "compilers", &member.address());
}

fn set_by_api(proxy: &Proxy, state: &str, member: &StandIn) -> Response {
    let target = format!("/v1/pools/compilers/members/{}", member.address());
    let body = format!("{{\"state\": \"{state}\", \"force\": true}}");
    Client::unix(&proxy.admin_socket()).request("POST", &target, &[], body.as_bytes())
}

fn in_flight(proxy: &Proxy, of: &StandIn) -> u64 {
    member(&proxy.status(), &of.address())["in_flight"]
        .as_u64()
        .expect("a number")
}

fn member(status: &serde_json::Value, address: &str) -> serde_json::Value {
    let pools = status["pools"].as_array().into_iter().flatten();
    let mut members = pools.flat_map(|pool| pool["members"].as_array().into_iter().flatten());
    members
        .find(|member| member["address"] == address)
        .cloned()
        .unwrap_or_default()
}

/// Connections of this machine to a loopback port, as listed by the kernel.
fn established_to(port: u16) -> usize {
    let table = fs::read_to_string("/proc/net/tcp").expect("the kernel tells");
    let (peer, established) = (format!("0100007F:{port:04X}"), "01");
    let to = |line: &&str| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        fields.get(2) == Some(&peer.as_str()) && fields.get(3) == Some(&established)
    };
    table.lines().filter(to).count()
}
