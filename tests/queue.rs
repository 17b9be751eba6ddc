//! The queue of a pool: who waits, who is refused and what is shown of it.

use serde_json::Value;
use testkit::{Connection, Protocol, Response};

use crate::support::{Estate, LIMIT};

const FILE: &str = "/puppet/v3/file_content/modules/motd/motd";

/// A connection of an agent.
fn connection(estate: &Estate, certname: &str) -> Connection {
    let agent = estate.ca.agent(certname);
    estate.client(&agent).connect().expect("connects")
}

/// Sends an agent's request, which states this version of Puppet.
fn send(connection: &mut Connection, version: &str) {
    let fields = [("X-Puppet-Version", version)];
    connection.send("GET", FILE, &fields, b"").expect("sends");
}

/// The answer to an agent's request with this version of Puppet.
fn ask(estate: &Estate, certname: &str, version: &str) -> Response {
    let mut connection = connection(estate, certname);
    send(&mut connection, version);
    connection.read_response().expect("an answer")
}

/// The seconds after which an agent that is sent away comes back.
#[track_caller]
fn seconds(response: &Response) -> u64 {
    assert_eq!(response.status, 503, "{response:?}");
    if crate::SPOKEN == Protocol::Http1 {
        assert_eq!(response.headers.only("connection"), "close");
    }
    let seconds = response.headers.only("retry-after").parse();
    seconds.expect("seconds")
}

/// Whether the queue's alarm is active.
fn alarm(estate: &Estate) -> bool {
    let status = estate.proxy.status();
    let alarms = status["alarms"].as_array().expect("alarms");
    alarms
        .iter()
        .any(|alarm| alarm["key"] == "queue-full:compilers")
}

/// One agent's request, which its member has and does not answer.
fn held(estate: &Estate) -> Connection {
    estate.compilers[0].hold();
    let mut first = connection(estate, "web00");
    first.send("GET", FILE, &[], b"").expect("sends");
    estate.compilers[0].wait_for_request(1, LIMIT);
    first
}

/// Waits until so many requests wait for a member.
#[track_caller]
fn wait_for_waiting(estate: &Estate, requests: u64) {
    estate
        .proxy
        .wait_for_status("the length of the queue", |status| {
            compilers(status)["waiting"] == requests
        });
}

/// What the status shows of the pool of compilers.
fn compilers(status: &Value) -> &Value {
    let pools = status["pools"].as_array().expect("pools");
    let compilers = pools.iter().find(|pool| pool["name"] == "compilers");
    compilers.expect("the pool exists")
}

#[test]
fn the_queue_and_what_it_refuses_are_visible() {
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
    assert!(estate.proxy.wait_for_metric(LONGEST, &pool, 0.01) > 0.0);
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
        let record = estate.proxy.wait_for_record(|r| r["certname"] == certname);
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
fn agents_that_come_back_make_room_in_a_full_queue_and_only_then_is_one_refused_that_fails() {
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
    // One that comes back does not push another one out.
    assert!((30..=600).contains(&seconds(&ask(&estate, "web04", RETRIES))));
    assert!(!alarm(&estate), "no run fails");
    let mut fourth = connection(&estate, "web05");
    send(&mut fourth, FAILS);
    assert!((30..=600).contains(&seconds(&newer.read_response().expect("an answer"))));
    let mut fifth = connection(&estate, "web06");
    send(&mut fifth, FAILS);
    seconds(&older.read_response().expect("an answer"));
    let reasons = |certname| {
        let record = estate.proxy.wait_for_record(|r| r["certname"] == certname);
        record["reason"].clone()
    };
    assert_eq!(reasons("web02"), "queue-made-room");
    assert_eq!(reasons("web04"), "queue-full");
    assert!(!alarm(&estate), "no run has failed");
    let refused = ask(&estate, "web07", FAILS);
    assert_eq!(refused.status, 503);
    assert!(refused.headers.get("retry-after").is_none(), "{refused:?}");
    assert!(alarm(&estate));
    estate.compilers[0].release();
    for kept in [&mut first, &mut staying, &mut fourth, &mut fifth] {
        assert_eq!(kept.read_response().expect("an answer").status, 200);
    }
}

#[test]
fn agents_that_are_sent_away_come_back_spread_by_their_certnames() {
    let estate = Estate::builder()
        .compiler(1, "max = 1")
        .compilers(1)
        .compiler_pool("queue_max = 0")
        .start();
    let mut first = held(&estate);
    let mut drawn: Vec<_> = (1..=12)
        .map(|n| seconds(&ask(&estate, &format!("web{n:02}"), RETRIES)))
        .collect();
    assert!(drawn.iter().all(|s| (90..=1800).contains(s)), "{drawn:?}");
    assert_eq!(drawn[0], seconds(&ask(&estate, "web01", RETRIES)));
    let (least, most) = (drawn.iter().min(), drawn.iter().max());
    let (least, most) = (*least.expect("some"), *most.expect("some"));
    assert!(most - least > 600, "{drawn:?}");
    drawn.sort_unstable();
    drawn.dedup();
    assert!(drawn.len() > 9, "{drawn:?}");
    // A version that cannot be read is not believed, and a client without one is not an agent.
    for version in ["8.10.0.1", "many"] {
        let refused = ask(&estate, "web01", version);
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
