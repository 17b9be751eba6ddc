//! Requests to a pool whose only member restarts: most wait and are answered, and those that must not wait get 503 at
//! once.

use std::time::{Duration, Instant};

use serde_json::Value;
use testkit::{HeldPort, StandIn, TestConnection};

use crate::support::{
    self, Estate, EstateBuilder, LIMIT,
    paths::{CA_CERTIFICATE, CATALOG, FILE},
};

/// Less than the shortest wait that a test expects.
const AT_ONCE: Duration = Duration::from_secs(5);

/// One compiler. During a test, only requests notice that it is down, because probes are too rare.
fn estate() -> EstateBuilder {
    let estate = Estate::builder().compilers(1);
    estate.compiler_pool("check = { interval = \"60s\", rise = 1 }")
}

fn connection(estate: &Estate, certname: &str) -> TestConnection {
    let agent = estate.ca.agent(certname);
    estate.client(&agent).connect().expect("connects")
}

/// The pool of compilers in the status.
fn compilers(status: &Value) -> &Value {
    let mut pools = status["pools"].as_array().expect("pools").iter();
    let found = pools.find(|pool| pool["name"] == "compilers");
    found.expect("the pool exists")
}

#[track_caller]
fn wait_for_waiting(estate: &Estate, requests: u64) -> Value {
    let what = "the length of the queue";
    let met = |status: &Value| compilers(status)["waiting"] == requests;
    estate.wait_for_status(what, met)
}

/// Sends a request that waits, because the only compiler is down.
#[track_caller]
fn waiting(estate: &Estate) -> TestConnection {
    estate.compilers[0].kill();
    let mut first = connection(estate, "web01");
    first.send("GET", FILE, &[], b"").expect("sends");
    wait_for_waiting(estate, 1);
    first
}

#[track_caller]
fn assert_answered(connection: &mut TestConnection) {
    let answer = connection.read_response().expect("an answer");
    assert_eq!(answer.status, 200, "{answer:?}");
}

/// Asserts that a request gets 503 at once.
#[track_caller]
fn assert_refused(estate: &Estate, target: &str) {
    let began = Instant::now();
    let answer = connection(estate, "web09").get(target);
    assert_eq!(answer.status, 503, "{target}: {answer:?}");
    assert!(began.elapsed() < AT_ONCE, "{target}: {:?}", began.elapsed());
}

#[test]
fn requests_wait_while_the_only_compiler_restarts_and_the_status_is_503_at_once() {
    let estate = estate().start();
    let mut first = waiting(&estate);
    let facts = vec![b'f'; 300_000];
    let mut second = connection(&estate, "web01");
    let fields = [("X-Puppet-Version", "7.23.0")];
    second
        .send("POST", CATALOG, &fields, &facts)
        .expect("sends");
    let status = wait_for_waiting(&estate, 2);
    // The alarm is active before the wait ends.
    let mut alarms = status["alarms"].as_array().expect("alarms").iter();
    assert!(alarms.any(|alarm| alarm["key"] == "pool-unavailable:compilers"));
    let pool = [("pool", "compilers")];
    let length = estate
        .proxy
        .metrics()
        .sum("proscenium_pool_queue_length", &pool);
    assert_eq!(length, 2.0);
    // Load balancers in front of the proxy need the 503. The CA has a separate pool.
    assert_refused(&estate, "/status/v1/simple");
    assert_eq!(connection(&estate, "web09").get(CA_CERTIFICATE).status, 200);
    estate.forget();
    estate.compilers[0].restart();
    assert_answered(&mut first);
    assert_answered(&mut second);
    let requests = estate.compilers[0].requests();
    let catalogs: Vec<_> = requests.iter().filter(|r| r.target == CATALOG).collect();
    assert_eq!((requests.len(), catalogs.len()), (2, 1));
    assert!(catalogs[0].body.kept == facts, "the body is whole");
    let record = estate.wait_for_record(|r| r["method"] == "POST");
    assert!(record["queue_us"].as_u64() > Some(0), "{record}");
    assert_eq!(record["status"], 200);
    assert_eq!(record["attempts"], 1);
}

#[test]
fn what_the_only_compiler_cuts_off_as_it_dies_is_sent_again_if_it_is_safe() {
    for (method, target, waits) in [("GET", FILE, true), ("POST", CATALOG, false)] {
        let estate = estate().start();
        let compiler = &estate.compilers[0];
        compiler.hold();
        let mut first = connection(&estate, "web01");
        first.send(method, target, &[], b"").expect("sends");
        compiler.wait_for_request(1, LIMIT);
        // The proxy has not noticed yet that the compiler is down, and its connection is new.
        compiler.kill();
        if waits {
            wait_for_waiting(&estate, 1);
            compiler.restart();
            assert_answered(&mut first);
            continue;
        }
        let answer = first.read_response().expect("an answer");
        assert_eq!(answer.status, 502, "{answer:?}");
    }
}

#[test]
fn a_request_waits_no_longer_for_a_member_that_a_reload_has_removed() {
    let estate = estate().start();
    let mut first = waiting(&estate);
    let other = StandIn::start("c9");
    let (before, after) = (estate.compilers[0].address(), other.address());
    estate.edit_config(&before, &after);
    // With other rules, the pool gets a new queue.
    let table = "[pools.compilers]\n";
    let with_rule = format!("{table}forward_cert = false\n");
    estate.edit_config(table, &with_rule);
    estate.proxy.reload_applied();
    let began = Instant::now();
    let answer = first.read_response().expect("an answer");
    assert_eq!(answer.status, 503, "{answer:?}");
    assert!(began.elapsed() < AT_ONCE, "{:?}", began.elapsed());
    assert_eq!(connection(&estate, "web01").get(FILE).status, 200);
}

#[test]
fn the_wait_ends_after_unavailable_wait_max_with_503() {
    let estate = estate()
        .compiler_pool("unavailable_wait_max = \"700ms\"")
        .start();
    let began = Instant::now();
    let mut first = waiting(&estate);
    let mut second = connection(&estate, "web02");
    second.send("GET", FILE, &[], b"").expect("sends");
    for connection in [&mut first, &mut second] {
        let answer = connection.read_response().expect("an answer");
        assert_eq!(answer.status, 503, "{answer:?}");
        let text = "No server of the pool `compilers` is available for this request; nothing was sent. Try again later.\n";
        assert_eq!(answer.text(), text);
    }
    assert!(began.elapsed() >= Duration::from_millis(700));
    let record = estate.wait_for_record(|r| r["certname"] == "web01");
    assert_eq!(record["reason"], "connect-refused");
    let record = estate.wait_for_record(|r| r["certname"] == "web02");
    assert_eq!(record["reason"], "no-member-available");
    assert_refused(&estate, FILE);
    // After this, the pool is available again.
    estate.compilers[0].restart();
}

#[test]
fn with_zero_and_without_a_member_that_was_up_nothing_waits() {
    let off = estate()
        .compiler_pool("unavailable_wait_max = \"0s\"")
        .start();
    off.compilers[0].kill();
    assert_refused(&off, FILE);
    assert_refused(&off, FILE);
    let nothing_listens = HeldPort::take();
    let address = nothing_listens.address();
    let never = Estate::builder().unready().configuration(move |proxy, servers| {
        let ca = servers.ca_server.address();
        proxy.with(&format!(
            "[pools.ca]\nscheme = \"http\"\nmembers = [\"{ca}\"]\n[pools.compilers]\nscheme = \"http\"\nmembers = [\"{address}\"]\n"
        ))
    });
    assert_refused(&never.start(), FILE);
}

#[test]
fn requests_to_a_pool_whose_members_an_operator_took_out_are_refused_at_once() {
    for verb in ["drain", "maintenance"] {
        let estate = estate().start();
        let address = estate.compilers[0].address();
        support::set_state(&estate.proxy, verb, "compilers", &address);
        assert_refused(&estate, FILE);
    }
    // The member is drained while a request waits for it.
    let estate = estate().start();
    let address = estate.compilers[0].address();
    let mut first = waiting(&estate);
    support::set_state(&estate.proxy, "drain", "compilers", &address);
    let answer = first.read_response().expect("an answer");
    assert_eq!(answer.status, 503, "{answer:?}");
    assert_refused(&estate, FILE);
}

#[test]
fn a_client_that_leaves_while_it_waits_leaves_the_queue() {
    let estate = estate().start();
    drop(waiting(&estate));
    wait_for_waiting(&estate, 0);
    let record = estate.wait_for_record(|r| r["certname"] == "web01");
    assert_eq!(record["status"], 499, "{record}");
}

#[test]
fn a_reload_gives_waiting_requests_the_members_of_the_new_configuration() {
    let estate = estate().start();
    let other = StandIn::builder("c2").ca(&estate.ca).start();
    let mut first = waiting(&estate);
    estate.edit_config(&estate.compilers[0].address(), &other.address());
    estate.proxy.reload_applied();
    assert_answered(&mut first);
    assert_eq!(other.requests().len(), 1);
}

#[test]
fn a_process_that_has_handed_over_serves_what_waits_in_it() {
    let estate = estate().start();
    let mut first = waiting(&estate);
    let mut former = estate.proxy.take_over().unwrap_or_else(|o| panic!("{o:?}"));
    estate.compilers[0].restart();
    assert_answered(&mut first);
    drop(first);
    assert_eq!(former.wait_for_end(LIMIT * 3).code, Some(0));
}
