//! The queue of a pool: which requests wait, which are refused, and how the queue is shown.

use std::sync::Mutex;

use serde_json::Value;
use testkit::{
    Protocol, Recorded, Reply, ReplyGate, Response, TestConnection, http2::StreamOutcome,
};

use crate::support::{
    Estate, LIMIT,
    http2::{connect, get, wait_for_limit},
    paths::FILE,
};

/// A connection of an agent.
fn connection(estate: &Estate, certname: &str) -> TestConnection {
    let agent = estate.ca.agent(certname);
    estate.client(&agent).connect().expect("connects")
}

/// Sends an agent's request with this version of Puppet.
fn send(connection: &mut TestConnection, version: &str) {
    let fields = [("X-Puppet-Version", version)];
    connection.send("GET", FILE, &fields, b"").expect("sends");
}

/// The response to an agent's request with this version of Puppet.
fn response_to(estate: &Estate, certname: &str, version: &str) -> Response {
    let mut connection = connection(estate, certname);
    send(&mut connection, version);
    connection.read_response().expect("an answer")
}

/// The seconds of Retry-After.
#[track_caller]
fn seconds(response: &Response) -> u64 {
    assert_eq!(response.status, 503, "{response:?}");
    if crate::protocol() == Protocol::Http1 {
        assert_eq!(response.headers.only("connection"), "close");
    }
    let seconds = response.headers.only("retry-after").parse();
    seconds.expect("seconds")
}

/// Whether the alarm about the queue is active.
fn alarm(estate: &Estate) -> bool {
    let status = estate.proxy.status();
    let alarms = status["alarms"].as_array().expect("alarms");
    alarms
        .iter()
        .any(|alarm| alarm["key"] == "queue-full:compilers")
}

/// Sends the request of one agent, which its member receives and does not answer.
fn held(estate: &Estate) -> TestConnection {
    estate.compilers[0].hold();
    let mut first = connection(estate, "web00");
    first.send("GET", FILE, &[], b"").expect("sends");
    estate.compilers[0].wait_for_request(1, LIMIT);
    first
}

/// Waits until this many requests wait for a member.
#[track_caller]
fn wait_for_waiting(estate: &Estate, requests: u64) {
    estate.wait_for_status("the length of the queue", |status| {
        compilers(status)["waiting"] == requests
    });
}

/// The pool of compilers in the status.
fn compilers(status: &Value) -> &Value {
    let pools = status["pools"].as_array().expect("pools");
    let compilers = pools.iter().find(|pool| pool["name"] == "compilers");
    compilers.expect("the pool exists")
}

#[test]
fn the_queue_and_its_refusals_are_visible() {
    const LONGEST: &str = "proscenium_pool_queue_longest_wait_seconds";
    let estate = Estate::builder()
        .compiler(1, "max = 1")
        .compilers(1)
        .compiler_pool("queue_max = 1")
        .start();
    let pool = [("pool", "compilers")];
    let mut first = held(&estate);
    let mut second = connection(&estate, "web01");
    second.send("GET", FILE, &[], b"").expect("sends");
    wait_for_waiting(&estate, 1);
    assert!(estate.wait_for_metric(LONGEST, &pool, 0.01) > 0.0);
    let length = estate.proxy.metrics();
    assert_eq!(length.sum("proscenium_pool_queue_length", &pool), 1.0);
    assert_eq!(connection(&estate, "web02").get(FILE).status, 503);
    estate.compilers[0].release();
    assert_eq!(first.read_response().expect("an answer").status, 200);
    assert_eq!(second.read_response().expect("an answer").status, 200);
    let status = estate.proxy.status();
    assert_eq!(compilers(&status)["queue_refusals"]["queue-full"], 1);
    let shown = estate.proxy.command(&["status"], &[]).stdout;
    let refused = "refused by the queue since the start: 1 queue-full";
    assert!(shown.contains(refused), "{shown}");
    let metrics = estate.proxy.metrics();
    assert_eq!(metrics.sum(LONGEST, &pool), 0.0);
    let labels = [("pool", "compilers"), ("reason", "queue-full")];
    let refusals = metrics.sum("proscenium_pool_queue_refusals_total", &labels);
    assert_eq!(refusals, 1.0);
    let of = |certname| {
        let record = estate.wait_for_record(|r| r["certname"] == certname);
        (record["queue_us"].clone(), record["total_us"].clone())
    };
    assert_eq!(of("web00").0, Value::Null, "it ran at once");
    let (waited, total) = of("web01");
    assert!(waited.as_u64() > Some(10_000) && waited.as_u64() <= total.as_u64());
    assert_eq!(of("web02").0, Value::Null, "it did not wait");
}

/// Agents of this version send their request again after a 503.
const RETRIES: &str = "8.10.0";
/// Agents of this version fail their run on a 503 (PUP-11853).
const FAILS: &str = "7.23.0";

#[test]
fn agents_that_retry_are_refused_first_when_the_queue_is_full() {
    let estate = Estate::builder()
        .compiler(1, "max = 1")
        .compilers(1)
        .compiler_pool("queue_max = 3")
        .compiler_pool("retry_after_max = \"10m\"")
        .start();
    let mut first = held(&estate);
    let waits = |number, version| {
        let mut connection = connection(&estate, &format!("web0{number}"));
        send(&mut connection, version);
        wait_for_waiting(&estate, number);
        connection
    };
    let mut staying = waits(1, FAILS);
    let mut older = waits(2, RETRIES);
    let mut newer = waits(3, RETRIES);
    // A retrying agent does not displace another retrying agent.
    assert!((30..=600).contains(&seconds(&response_to(&estate, "web04", RETRIES))));
    assert!(!alarm(&estate), "no run fails");
    let mut fourth = connection(&estate, "web05");
    send(&mut fourth, FAILS);
    assert!((30..=600).contains(&seconds(&newer.read_response().expect("an answer"))));
    let mut fifth = connection(&estate, "web06");
    send(&mut fifth, FAILS);
    seconds(&older.read_response().expect("an answer"));
    let reasons = |certname| {
        let record = estate.wait_for_record(|r| r["certname"] == certname);
        record["reason"].clone()
    };
    assert_eq!(reasons("web02"), "queue-made-room");
    assert_eq!(reasons("web04"), "queue-full");
    assert!(!alarm(&estate), "no run has failed");
    let refused = response_to(&estate, "web07", FAILS);
    assert_eq!(refused.status, 503);
    assert!(refused.headers.get("retry-after").is_none(), "{refused:?}");
    assert!(alarm(&estate));
    estate.compilers[0].release();
    for kept in [&mut first, &mut staying, &mut fourth, &mut fifth] {
        assert_eq!(kept.read_response().expect("an answer").status, 200);
    }
}

#[test]
fn retry_after_is_spread_by_certname() {
    let estate = Estate::builder()
        .compiler(1, "max = 1")
        .compilers(1)
        .compiler_pool("queue_max = 0")
        .start();
    let mut first = held(&estate);
    let mut drawn: Vec<_> = (1..=12)
        .map(|n| seconds(&response_to(&estate, &format!("web{n:02}"), RETRIES)))
        .collect();
    assert!(drawn.iter().all(|s| (90..=1800).contains(s)), "{drawn:?}");
    assert_eq!(drawn[0], seconds(&response_to(&estate, "web01", RETRIES)));
    let (least, most) = (drawn.iter().min(), drawn.iter().max());
    let (least, most) = (*least.expect("some"), *most.expect("some"));
    assert!(most - least > 600, "{drawn:?}");
    drawn.sort_unstable();
    drawn.dedup();
    assert!(drawn.len() > 9, "{drawn:?}");
    // The proxy ignores an unreadable version, and does not treat a client without a version as an agent.
    for version in ["8.10.0.1", "many"] {
        let refused = response_to(&estate, "web01", version);
        assert_eq!(refused.status, 503);
        assert!(refused.headers.get("retry-after").is_none(), "{refused:?}");
    }
    let mut other = connection(&estate, "web01");
    let head = String::from_utf8(other.head("GET", FILE, &[], None)).expect("text");
    let head = head.replace("X-Puppet-Version: 8.10.0\r\n", "");
    other.send_raw(head.as_bytes()).expect("sends");
    let soon = other.read_response().expect("an answer");
    let soon: u64 = soon.headers.only("retry-after").parse().expect("seconds");
    assert!((10..=30).contains(&soon), "{soon}");
    estate.compilers[0].release();
    assert_eq!(first.read_response().expect("an answer").status, 200);
}

const LOOPING: &str = "/puppet/v3/file_content/modules/looping/motd";
const STATIC: &str = "/puppet/v3/static_file_content/modules/motd/motd?code_id=1";

/// An estate with two compilers. The first has four slots, and answers requests of the looping agent when the gate
/// opens.
fn with_looping(lines: &'static str) -> (Estate, ReplyGate) {
    let estate = Estate::builder()
        .compiler(1, "max = 4")
        .compilers(1)
        .listener("streams_max = 200")
        .with(lines)
        .start();
    let gate = hold_looping(&estate);
    (estate, gate)
}

/// Makes the compiler answer requests of the looping agent when the gate opens.
fn hold_looping(estate: &Estate) -> ReplyGate {
    let gate = ReplyGate::new();
    let held = gate.clone();
    estate.compilers[0].answer(move |request| {
        let looping = request.target.contains("looping");
        looping.then(|| Reply::ok("{}").gate(&held))
    });
    gate
}

/// Opens this many streams of the looping agent.
fn open(connection: &mut TestConnection, path: &str, streams: usize) -> Vec<u32> {
    let open = |_| connection.open(&get(path), true).expect("opens");
    (0..streams).map(open).collect()
}

#[track_caller]
fn wait_for_refusals(estate: &Estate, reason: &str, requests: f64) {
    const REFUSALS: &str = "proscenium_pool_queue_refusals_total";
    let labels = [("pool", "compilers"), ("reason", reason)];
    let refused = estate.wait_for_metric(REFUSALS, &labels, requests);
    assert_eq!(refused, requests);
}

#[test]
fn an_agent_in_a_loop_does_not_delay_other_agents_or_fill_the_queue() {
    let (estate, gate) = with_looping("[upstream]\nqueue_max = 10");
    let agent = estate.ca.agent("looping");
    let mut looping = connect(&estate, &agent);
    let streams = open(&mut looping, LOOPING, 200);
    wait_for_refusals(&estate, "agent-max", 194.0);
    wait_for_limit(&estate, "agent_max", 4.0);
    wait_for_waiting(&estate, 4);
    for n in 0..20 {
        let answer = connection(&estate, &format!("web{n:02}")).get(FILE);
        assert_eq!(answer.status, 200);
    }
    let records = estate.wait_for_records(194 + 20);
    let at_once = records.iter().filter(|record| {
        let certname = record["certname"].as_str();
        certname.is_some_and(|name| name.starts_with("web")) && record["queue_us"].is_null()
    });
    assert_eq!(at_once.count(), 20, "no other request has waited");
    gate.release();
    let mut statuses: Vec<_> = streams
        .iter()
        .map(|stream| match looping.outcome(*stream) {
            StreamOutcome::Answered(status) => status,
            other => panic!("{other:?}"),
        })
        .collect();
    statuses.sort_unstable();
    assert_eq!((statuses[5], statuses[6], statuses[199]), (200, 429, 429));
}

#[test]
fn a_request_beyond_agent_max_and_agent_queue_max_gets_429_whatever_the_agents_version() {
    let (estate, gate) = with_looping("[upstream]\nagent_max = 1\nagent_queue_max = 1");
    let mut runs = connection(&estate, "web01");
    runs.send("GET", LOOPING, &[], b"").expect("sends");
    estate.compilers[0].wait_for_request(1, LIMIT);
    let mut waits = connection(&estate, "web01");
    waits.send("GET", LOOPING, &[], b"").expect("sends");
    wait_for_waiting(&estate, 1);
    for version in [RETRIES, FAILS] {
        let refused = response_to(&estate, "web01", version);
        assert_eq!(refused.status, 429, "{refused:?}");
        let seconds: u64 = refused
            .headers
            .only("retry-after")
            .parse()
            .expect("seconds");
        assert!((10..=30).contains(&seconds), "{seconds}");
        assert!(refused.text().contains("agent_max"), "{refused:?}");
    }
    let record = estate.wait_for_record(|record| record["status"] == 429);
    assert_eq!(record["reason"], "agent-max");
    assert_eq!(response_to(&estate, "web02", FAILS).status, 200);
    gate.release();
    for kept in [&mut runs, &mut waits] {
        assert_eq!(kept.read_response().expect("an answer").status, 200);
    }
    assert_eq!(estate.compilers[0].requests().len(), 3);
}

#[test]
fn agent_max_does_not_limit_requests_without_a_jruby_or_exempt_agents() {
    const EXCEPT: &str = "agent_max_except = [\"ci*\"]";
    let (estate, gate) = with_looping(
        "[upstream]\nclient_share = \"100%\"\nagent_max = 1\nagent_queue_max = 0\nagent_max_except = [\"ci*\"]",
    );
    let statics = format!("{STATIC}&looping");
    let mut looping = connect(&estate, &estate.ca.agent("web01"));
    let mut streams = open(&mut looping, &statics, 2);
    let mut ci = connect(&estate, &estate.ca.agent("ci7"));
    let of_ci = open(&mut ci, LOOPING, 2);
    estate.compilers[0].wait_for_request(4, LIMIT);
    // The member is full: the agent's first request that holds a JRuby waits for it, a second one is refused.
    streams.extend(open(&mut looping, LOOPING, 1));
    wait_for_waiting(&estate, 1);
    let refused = open(&mut looping, LOOPING, 1)[0];
    assert_eq!(looping.outcome(refused), StreamOutcome::Answered(429));
    // A reload that removes the exception applies to open connections and their running requests too.
    estate.edit_config(EXCEPT, "agent_max_except = []");
    estate.proxy.reload_applied();
    let refused = open(&mut ci, LOOPING, 1)[0];
    assert_eq!(ci.outcome(refused), StreamOutcome::Answered(429));
    gate.release();
    for stream in streams {
        assert_eq!(looping.outcome(stream), StreamOutcome::Answered(200));
    }
    for stream in of_ci {
        assert_eq!(ci.outcome(stream), StreamOutcome::Answered(200));
    }
}

#[test]
fn a_pool_has_its_own_exempt_agents() {
    let (estate, gate) = with_looping(
        "[upstream]\nagent_max = 1\nagent_queue_max = 0\nclient_share = \"100%\"\nagent_max_except = [\"web*\"]",
    );
    let pools = "[pools.compilers]";
    let with_own = format!("{pools}\nagent_max_except = [\"ci*\"]");
    estate.edit_config(pools, &with_own);
    estate.proxy.reload_applied();
    let mut ci = connect(&estate, &estate.ca.agent("ci7"));
    let of_ci = open(&mut ci, LOOPING, 2);
    estate.compilers[0].wait_for_request(2, LIMIT);
    let mut web01 = connect(&estate, &estate.ca.agent("web01"));
    let runs = open(&mut web01, LOOPING, 1)[0];
    estate.compilers[0].wait_for_request(3, LIMIT);
    let refused = open(&mut web01, LOOPING, 1)[0];
    assert_eq!(web01.outcome(refused), StreamOutcome::Answered(429));
    gate.release();
    assert_eq!(web01.outcome(runs), StreamOutcome::Answered(200));
    for stream in of_ci {
        assert_eq!(ci.outcome(stream), StreamOutcome::Answered(200));
    }
}

#[test]
fn an_exempt_agent_is_limited_to_its_share_of_the_jrubies() {
    let estate = Estate::builder()
        .compiler(1, "jrubies = 8")
        .compilers(1)
        .compiler_pool("jruby_load_max = \"100%\"")
        .listener("streams_max = 200")
        .with("[upstream]\nclient_share = \"50%\"\nagent_max_except = [\"ci*\"]\nqueue_max = 16")
        .start();
    let gate = hold_looping(&estate);
    let mut ci = connect(&estate, &estate.ca.agent("ci7"));
    let compiling = open(&mut ci, LOOPING, 100);
    wait_for_refusals(&estate, "client-share", 94.0);
    wait_for_waiting(&estate, 2);
    estate.compilers[0].wait_for_request(4, LIMIT);
    // Requests without a JRuby have a limit of their own, which is much larger.
    let files = open(&mut ci, &format!("{STATIC}&looping"), 20);
    estate.compilers[0].wait_for_request(24, LIMIT);
    for n in 0..4 {
        let answer = connection(&estate, &format!("web{n:02}")).get(FILE);
        assert_eq!(answer.status, 200);
        let record = estate.wait_for_record(|record| record["certname"] == *format!("web{n:02}"));
        assert_eq!(record["queue_us"], Value::Null, "{record}");
    }
    gate.release();
    let answered = compiling.iter().chain(&files);
    let answered = answered.filter(|stream| ci.outcome(**stream) == StreamOutcome::Answered(200));
    assert_eq!(answered.count(), 6 + 20);
}

#[test]
fn a_client_that_disconnects_leaves_the_queue_at_once() {
    let estate = Estate::builder()
        .compiler(1, "max = 1")
        .compilers(1)
        .start();
    let mut first = held(&estate);
    for (certname, protocol) in [("web01", Protocol::Http1), ("web02", Protocol::Http2)] {
        let client = estate.agent(certname).protocol(protocol);
        let mut waits = client.connect().expect("connects");
        waits.send("GET", FILE, &[], b"").expect("sends");
        wait_for_waiting(&estate, 1);
        drop(waits);
        wait_for_waiting(&estate, 0);
        let record = estate.wait_for_record(|r| r["certname"] == certname);
        assert_eq!(record["status"], 499);
        assert_eq!(record["reason"], "client-gone");
        assert!(record["queue_us"].as_u64() > Some(0), "{record}");
    }
    estate.compilers[0].release();
    assert_eq!(first.read_response().expect("an answer").status, 200);
    assert_eq!(estate.compilers[0].requests().len(), 1);
}

#[test]
fn bodies_of_queued_requests_use_no_more_than_body_buffers_max() {
    const BUFFERED: &str = "proscenium_body_buffer_bytes";
    let estate = Estate::builder()
        .compiler(1, "max = 1")
        .compilers(1)
        .with("[upstream]\nbody_buffers_max = \"64KiB\"")
        .start();
    let mut first = held(&estate);
    let mut waiting: Vec<_> = (1..=12)
        .map(|n| {
            let mut connection = connection(&estate, &format!("web{n:02}"));
            let report = format!("/puppet/v3/report/web{n:02}?environment=production");
            connection
                .send("PUT", &report, &[], &[b'x'; 8 << 10])
                .expect("sends");
            connection
        })
        .collect();
    wait_for_waiting(&estate, 12);
    let buffered = estate.proxy.metrics().sum(BUFFERED, &[]);
    assert!((1.0..=65_536.0).contains(&buffered), "{buffered}");
    estate.compilers[0].release();
    assert_eq!(first.read_response().expect("an answer").status, 200);
    for connection in &mut waiting {
        assert_eq!(connection.read_response().expect("an answer").status, 200);
    }
}

/// A catalog of this agent.
fn catalog(certname: &str) -> String {
    format!("/puppet/v3/catalog/{certname}?environment=production")
}

/// The response of a Puppet Server whose own queue is full (`max-queued-requests`).
fn overloaded() -> Reply {
    let reply = Reply::status(503).header("X-Puppet-Version", "7.9.5");
    reply
        .header("Retry-After", "700")
        .body(b"its queue is full")
}

/// Makes a compiler answer the first request of each of these paths as if its queue were full.
fn overload_once(estate: &Estate, paths: &[String]) {
    let left = Mutex::new(paths.to_vec());
    estate.compilers[0].answer(move |request| {
        let mut left = left.lock().expect("no panic");
        let first = left.iter().position(|path| *path == request.target)?;
        left.remove(first);
        Some(overloaded())
    });
}

#[test]
fn a_members_503_for_a_full_queue_is_retried_for_agents_that_would_fail_on_it() {
    let estate = Estate::builder()
        .compilers(1)
        .with("[upstream]\nbody_buffer_max = \"64KiB\"")
        .start();
    let agents = ["waits", "returns", "streams"];
    overload_once(&estate, &agents.map(catalog));
    let request = |certname: &str, version, length: usize| {
        let client = estate.agent(certname);
        let fields = [("X-Puppet-Version", version)];
        let facts = vec![b'f'; length];
        let answer = client.request("POST", &catalog(certname), &fields, &facts);
        let of = |request: &Recorded| request.target == catalog(certname);
        let asked: Vec<_> = estate.compilers[0].requests();
        let asked: Vec<_> = asked.into_iter().filter(of).collect();
        for request in &asked {
            assert_eq!(request.body.length, length as u64, "{certname}");
            assert!(request.body.kept.iter().all(|byte| *byte == b'f'));
        }
        (answer, asked.len())
    };
    let (answer, asked) = request("waits", FAILS, 60_000);
    assert_eq!((answer.status, asked), (200, 2), "{answer:?}");
    let record = estate.wait_for_record(|record| record["certname"] == "waits");
    assert_eq!(record["attempts"], 2);
    assert!(record["queue_us"].as_u64() > Some(0), "{record}");
    let (answer, asked) = request("returns", RETRIES, 60_000);
    assert_eq!((answer.status, asked), (503, 1), "{answer:?}");
    assert_eq!(answer.text(), "its queue is full");
    assert_eq!(answer.headers.only("retry-after"), "700");
    // The body was larger than the buffer, so the request cannot be retried for that agent.
    let (answer, asked) = request("streams", FAILS, 200_000);
    assert_eq!((answer.status, asked), (503, 1), "{answer:?}");
    assert_eq!(answer.text(), "its queue is full");
    assert!(answer.headers.get("retry-after").is_none(), "{answer:?}");
}

#[test]
fn no_body_is_buffered_for_a_retry_while_half_of_body_buffers_max_is_used() {
    let estate = Estate::builder()
        .compiler(1, "max = 1")
        .compilers(1)
        .with("[upstream]\nbody_buffers_max = \"64KiB\"")
        .start();
    let agents = ["web01", "web02", "web03", "web04", "web05"];
    overload_once(&estate, &[catalog("web01"), catalog("web02")]);
    let mut first = held(&estate);
    let mut waiting: Vec<_> = agents
        .iter()
        .zip(1..)
        .map(|(certname, n)| {
            let mut connection = connection(&estate, certname);
            let fields = [("X-Puppet-Version", FAILS)];
            let facts = [b'f'; 7_500];
            connection
                .send("POST", &catalog(certname), &fields, &facts)
                .expect("sends");
            wait_for_waiting(&estate, n);
            connection
        })
        .collect();
    estate.compilers[0].release();
    assert_eq!(first.read_response().expect("an answer").status, 200);
    let statuses = waiting
        .iter_mut()
        .map(|connection| connection.read_response().expect("an answer").status);
    // Five bodies of 7,500 bytes exceed half of `body_buffers_max`, and four do not.
    assert_eq!(statuses.collect::<Vec<_>>(), [503, 200, 200, 200, 200]);
    assert_eq!(estate.compilers[0].requests().len(), 1 + 5 + 1);
}
