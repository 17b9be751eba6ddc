//! The queue of a pool: who waits, who is refused and what is shown of it.

use serde_json::Value;
use testkit::Connection;

use crate::support::{Estate, LIMIT};

const FILE: &str = "/puppet/v3/file_content/modules/motd/motd";

/// A connection of an agent.
fn connection(estate: &Estate, certname: &str) -> Connection {
    let agent = estate.ca.agent(certname);
    estate.client(&agent).connect().expect("connects")
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
