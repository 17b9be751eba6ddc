//! JRuby counts that the proxy reads from the status service of compilers.

use serde_json::{Value, json};
use testkit::{Reply, StandIn, wait_until};

use crate::support::{Estate, QUICK_CHECK, done};

const LIMIT: std::time::Duration = std::time::Duration::from_secs(60);

/// The metrics in a response of Puppet Server 7.9.
fn metrics(count: &Value) -> Reply {
    Reply::jrubies(&json!({
        "num-jrubies": count, "num-free-jrubies": 1, "requested-count": 52, "borrow-count": 52,
        "borrow-retry-count": 0, "borrow-timeout-count": 0, "average-borrow-time": 321, "average-wait-time": 12,
        "requested-instances": [{ "duration-millis": 4, "reason": {}, "time": 0 }],
        "queue-limit-hit-count": 0, "queue-limit-hit-rate": 0.0,
    }))
}

fn answer(member: &StandIn, reply: Reply) {
    member.answer(move |request| request.is_jruby_reading().then(|| reply.clone()));
}

/// The JRubies of the first compiler in the status, once `met` is true for them.
#[track_caller]
fn jrubies(estate: &Estate, met: impl Fn(&Value) -> bool) -> Value {
    let shown = |status: &Value| {
        let pools = status["pools"].as_array().expect("pools").iter();
        let mut compilers = pools.filter(|pool| pool["name"] == "compilers");
        compilers.next().expect("a pool")["members"][0]["jrubies"].clone()
    };
    let status = estate.wait_for_status("the JRubies of a compiler", |status| met(&shown(status)));
    shown(&status)
}

#[test]
fn jruby_counts_are_read_over_one_persistent_connection_without_an_identity() {
    for members in [Estate::builder(), Estate::builder().tls_members()] {
        let estate = members.compilers(1).compiler_pool(QUICK_CHECK).start();
        let compiler = &estate.compilers[0];
        answer(compiler, metrics(&json!(4)));
        let known = jrubies(&estate, |jrubies| jrubies["count"] == 4);
        assert_eq!(
            (&known["free"], &known["waiting"]),
            (&json!(1), &json!(1)),
            "{known}"
        );
        assert_eq!(known["borrow_milliseconds"], 321);
        assert_eq!(known["wait_milliseconds"], 12);
        let readings = wait_until(LIMIT, || {
            let read = compiler.jruby_readings();
            let mut kept = read
                .iter()
                .filter(|reading| reading.connection == read[read.len() - 1].connection);
            (kept.by_ref().count() >= 3).then_some(read)
        });
        let readings = readings.expect("three readings over one connection");
        let reading = &readings[readings.len() - 1];
        assert_eq!(
            reading.target,
            "/status/v1/services/jruby-metrics?level=debug"
        );
        let raw = reading.raw_text().to_lowercase();
        assert!(!raw.contains("x-client") && !raw.contains("x-ssl"), "{raw}");
        let labels = [("pool", "compilers"), ("member", &compiler.address())];
        estate.wait_for_metric("proscenium_member_jrubies", &labels, 4.0);
        estate.wait_for_metric("proscenium_member_jrubies_free", &labels, 1.0);
        assert!(done(&estate.proxy, &["status"], &[]).contains("4 JRubies"));
        // The CA uses no JRuby for requests of agents.
        assert!(estate.ca_server.jruby_readings().is_empty());
    }
}

#[test]
fn a_member_that_forbids_its_counts_works_and_the_status_shows_the_rule_for_auth_conf() {
    let estate = Estate::builder()
        .compilers(1)
        .compiler_pool(QUICK_CHECK)
        .start();
    answer(
        &estate.compilers[0],
        Reply::status(403).body(b"Forbidden request"),
    );
    let rule = "match-request: { path: \"/status/v1/services/jruby-metrics\", type: path, method: get }, allow-unauthenticated: true";
    let has_rule = |jrubies: &Value| {
        let problem = jrubies["problem"].as_str();
        problem.is_some_and(|problem| problem.contains(rule))
    };
    let unknown = jrubies(&estate, has_rule);
    assert!(unknown["count"].is_null(), "{unknown}");
    assert!(done(&estate.proxy, &["status"], &[]).contains(rule));
    let agent = estate.ca.agent("web01");
    let response = estate
        .client(&agent)
        .get("/puppet/v3/file_content/modules/motd/motd");
    assert_eq!(response.status, 200);
    // The proxy requests the counts rarely: fewer than thirty times in the time of thirty probes.
    let (probes, readings) = (
        estate.compilers[0].probes().len(),
        estate.compilers[0].jruby_readings().len(),
    );
    wait_until(LIMIT, || {
        (estate.compilers[0].probes().len() >= probes + 30).then_some(())
    })
    .expect("probed");
    let asked = estate.compilers[0].jruby_readings().len() - readings;
    assert!(asked <= 8, "asked {asked} times");
}

#[test]
fn an_impossible_count_is_ignored_with_an_alarm() {
    let estate = Estate::builder()
        .compilers(1)
        .compiler_pool(QUICK_CHECK)
        .start();
    let compiler = &estate.compilers[0];
    answer(compiler, metrics(&json!(4)));
    jrubies(&estate, |jrubies| jrubies["count"] == 4);
    for bad in [json!(0), json!(1001), json!("many")] {
        answer(compiler, metrics(&bad));
        let unknown = jrubies(&estate, |jrubies| !jrubies["problem"].is_null());
        assert!(unknown["count"].is_null(), "{unknown}");
        let labels = [("alarm", "jruby-count")];
        estate.wait_for_metric("proscenium_alarms", &labels, 1.0);
        estate.wait_for_event("a count outside 1 to 1000 is ignored");
        answer(compiler, metrics(&json!(8)));
        jrubies(&estate, |jrubies| jrubies["count"] == 8);
        assert_eq!(
            estate.proxy.metrics().sum("proscenium_alarms", &labels),
            0.0
        );
    }
}

#[test]
fn the_jrubies_of_a_member_that_is_down_are_unknown() {
    let estate = Estate::builder()
        .compilers(1)
        .compiler_pool(QUICK_CHECK)
        .start();
    let compiler = &estate.compilers[0];
    let members = || estate.proxy.command(&["status"], &["--members"]).stdout;
    answer(compiler, metrics(&json!(4)));
    jrubies(&estate, |jrubies| jrubies["count"] == 4);
    let shown = members();
    assert!(shown.contains("1 of 4"), "{shown}");
    compiler.kill();
    estate.wait_for_health("compilers", &compiler.address(), "down");
    jrubies(&estate, Value::is_null);
    let shown = members();
    assert!(shown.contains("unknown"), "{shown}");
    let address = compiler.address();
    let member = [("member", address.as_str())];
    let metrics = estate.proxy.metrics();
    assert!(!metrics.has("proscenium_member_jrubies", &member));
}

#[test]
fn an_endless_response_or_one_without_counts_changes_nothing_else() {
    let estate = Estate::builder()
        .compilers(1)
        .compiler_pool(QUICK_CHECK)
        .start();
    for (reply, words) in [
        (Reply::stream(1 << 30), "longer than 262144 bytes"),
        (Reply::ok("running"), "has no JRuby counts"),
        (Reply::status(404), "answered 404"),
    ] {
        answer(&estate.compilers[0], reply);
        jrubies(&estate, |jrubies| {
            jrubies["problem"]
                .as_str()
                .is_some_and(|problem| problem.contains(words))
        });
    }
    let agent = estate.ca.agent("web01");
    let response = estate
        .client(&agent)
        .get("/puppet/v3/file_content/modules/motd/motd");
    assert_eq!(response.status, 200);
}

#[test]
fn a_count_is_dropped_when_it_is_no_longer_read() {
    let estate = Estate::builder()
        .compilers(1)
        .compiler_pool(QUICK_CHECK)
        .start();
    answer(&estate.compilers[0], metrics(&json!(4)));
    jrubies(&estate, |jrubies| jrubies["count"] == 4);
    let off = QUICK_CHECK.replace(" }", ", read_jrubies = false }");
    estate.edit_config(QUICK_CHECK, &off);
    estate.proxy.reload_applied();
    let gone = jrubies(&estate, |jrubies| jrubies.is_null());
    assert!(gone.is_null());
    let status = estate.proxy.status();
    assert!(
        !done(&estate.proxy, &["status"], &[]).contains("JRubies"),
        "{status}"
    );
}

#[test]
fn counts_are_not_read_where_disabled_and_agents_never_reach_the_status_service() {
    let line = "check = { interval = \"20ms\", read_jrubies = false }";
    let estate = Estate::builder().compilers(1).compiler_pool(line).start();
    let compiler = &estate.compilers[0];
    wait_until(LIMIT, || (compiler.probes().len() >= 30).then_some(())).expect("probed");
    let agent = estate.ca.agent("web01");
    let path = "/status/v1/services/jruby-metrics?level=debug";
    assert_eq!(estate.client(&agent).get(path).status, 403);
    assert!(compiler.jruby_readings().is_empty());
}
