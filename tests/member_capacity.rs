//! Causes other than the check that reduce the capacity of members: agent checks, ejection, and the retry budget.

use std::{
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

use serde_json::{Value, json};
use testkit::{Reply, Response, wait_until};

use crate::support::{Estate, NO_WAIT, agent_check::CheckAgent, done, http1_alone, paths::FILE};

const LIMIT: Duration = Duration::from_secs(60);

fn get(estate: &Estate) -> Response {
    let agent = estate.ca.agent("web01");
    estate.client(&agent).get(FILE)
}

/// The first compiler in the status, once `met` is true for it.
#[track_caller]
fn compiler(estate: &Estate, met: impl Fn(&Value) -> bool) -> Value {
    let shown = |status: &Value| {
        let pools = status["pools"].as_array().expect("pools").iter();
        let mut compilers = pools.filter(|pool| pool["name"] == "compilers");
        compilers.next().expect("a pool")["members"][0].clone()
    };
    let status = estate.wait_for_status("a compiler", |status| met(&shown(status)));
    shown(&status)
}

#[test]
fn an_agent_check_reduces_capacity_and_nothing_else() {
    let agent = CheckAgent::start();
    let lines = format!(
        "check = {{ interval = \"20ms\", rise = 1, fall = 1 }}\nagent_check = {{ port = {}, interval = \"20ms\" }}",
        agent.port
    );
    let estate = Estate::builder().compilers(1).compiler_pool(&lines).start();
    let answer = |line: &'static [u8], met: &dyn Fn(&Value) -> bool| {
        agent.say(line);
        compiler(&estate, |member| met(&member["agent_check"]))
    };
    for line in [
        &b"drain\n"[..],
        b"ready maint\n",
        b"down # broken\n",
        b"ready up 0%\n",
    ] {
        let wanted: &[&str] = match line {
            b"drain\n" => &["drain"],
            b"ready maint\n" => &["maintenance"],
            _ => &["ready", "maintenance"],
        };
        answer(line, &|agent| {
            let state = agent["state"].as_str().unwrap_or_default();
            let down = line.starts_with(b"down");
            let weight = if line.ends_with(b"0%\n") { 0 } else { 100 };
            wanted.contains(&state) && agent["down"] == down && agent["weight_percent"] == weight
        });
        assert_eq!(
            get(&estate).status,
            503,
            "{}",
            String::from_utf8_lossy(line)
        );
    }
    answer(b"up ready 50%\n", &|agent| agent["weight_percent"] == 50);
    // After the maintenance, the result of the check applies again.
    let address = estate.compilers[0].address();
    estate.wait_for_health("compilers", &address, "up");
    assert_eq!(get(&estate).status, 200);
    // A reply that cannot be parsed changes nothing; it is counted and shown.
    let unreadable = answer(b"GO AWAY\n", &|agent| !agent["failure"].is_null());
    assert_eq!(
        unreadable["agent_check"]["weight_percent"], 50,
        "{unreadable}"
    );
    let labels = [("pool", "compilers"), ("member", &*address)];
    estate.wait_for_metric("proscenium_member_agent_check_failures_total", &labels, 2.0);
    assert_eq!(get(&estate).status, 200);
}

#[test]
fn a_truncated_or_too_long_reply_to_an_agent_check_changes_nothing() {
    let agent = CheckAgent::start();
    let lines = format!(
        "check = {{ interval = \"20ms\" }}\nagent_check = {{ port = {}, interval = \"20ms\" }}",
        agent.port
    );
    let estate = Estate::builder().compilers(1).compiler_pool(&lines).start();
    static LONG: [u8; 300] = *b"drain                                                                                                                                                                                                                                                                                                       ";
    agent.say(&LONG);
    let shown = compiler(&estate, |member| {
        let failure = member["agent_check"]["failure"].as_str();
        failure.is_some_and(|why| why.contains("no end of line within 256 bytes"))
    });
    assert_eq!(shown["agent_check"]["state"], "ready", "{shown}");
    assert_eq!(get(&estate).status, 200);
}

#[test]
fn a_member_of_weight_zero_counts_as_unavailable_for_alarms_and_drains() {
    let agent = CheckAgent::start();
    let lines = format!(
        "check = {{ interval = \"20ms\" }}\nagent_check = {{ port = {}, interval = \"20ms\" }}",
        agent.port
    );
    let estate = Estate::builder().compilers(1).compiler_pool(&lines).start();
    let address = estate.compilers[0].address();
    agent.say(b"0%\n");
    let labels = [("alarm", "pool-unavailable")];
    estate.wait_for_metric("proscenium_alarms", &labels, 1.0);
    // The pool already has no available member, so `--force` is not needed.
    done(&estate.proxy, &["drain", &address], &[]);
    let ready = done(&estate.proxy, &["ready", &address], &[]);
    let why = format!("{address}: its agent check says `0%`: ready, weight 0 %");
    assert!(ready.contains(&why), "{ready}");
    agent.say(b"100%\n");
    estate.wait_for_metric("proscenium_alarms", &labels, 0.0);
}

#[test]
fn an_agent_check_overrides_neither_the_operator_nor_a_failed_check() {
    let agent = CheckAgent::start();
    let lines = format!(
        "check = {{ interval = \"20ms\", rise = 1, fall = 1 }}\nagent_check = {{ port = {}, interval = \"20ms\" }}",
        agent.port
    );
    let estate = Estate::builder().compilers(1).compiler_pool(&lines);
    let estate = estate.compiler_pool(NO_WAIT).start();
    let address = estate.compilers[0].address();
    agent.say(b"up ready 100%\n");
    let before = compiler(&estate, |member| {
        member["agent_check"]["answer"] == "up ready 100%"
    });
    let drained = estate
        .proxy
        .command(&["drain"], &["compilers", &address, "--force"]);
    let drained = match drained.code {
        Some(0) => drained,
        _ => estate.proxy.command(&["drain"], &["compilers", &address]),
    };
    assert_eq!(drained.code, Some(0), "{}", drained.stderr);
    // Wait for a reply `ready` that the agent sends after the drain.
    let at = before["agent_check"]["at"].clone();
    compiler(&estate, |member| member["agent_check"]["at"] != at);
    assert_eq!(get(&estate).status, 503);
    assert_eq!(compiler(&estate, |_| true)["administrative_state"], "drain");
    assert_eq!(
        estate
            .proxy
            .command(&["ready"], &["compilers", &address])
            .code,
        Some(0)
    );
    assert_eq!(get(&estate).status, 200);
    estate.compilers[0].answer(|request| request.is_probe().then(|| Reply::status(503)));
    estate.wait_for_health("compilers", &address, "down");
    assert_eq!(get(&estate).status, 503);
    estate.compilers[0].answer_as_puppet();
    estate.wait_for_health("compilers", &address, "up");
    // Without its agent check a member gets back the weight that the check removed.
    agent.say(b"drain\n");
    compiler(&estate, |member| member["agent_check"]["state"] == "drain");
    let line = format!(
        "agent_check = {{ port = {}, interval = \"20ms\" }}",
        agent.port
    );
    estate.edit_config(&line, "");
    estate.proxy.reload_applied();
    estate.wait_for_health("compilers", &address, "up");
    let served = wait_until(LIMIT, || (get(&estate).status == 200).then_some(()));
    assert!(served.is_some());
    let member = compiler(&estate, |_| true);
    assert!(member["agent_check"].is_null(), "{member}");
}

/// Two compilers. The first answers probes, and closes the connection on every other request.
fn failing(lines: &str) -> Estate {
    let lines = format!("check = {{ interval = \"20ms\" }}\nalgorithm = \"round-robin\"\n{lines}");
    let estate = Estate::builder().compilers(2).compiler_pool(&lines).start();
    estate.compilers[0].answer(|request| (!request.is_probe()).then(Reply::hang_up));
    estate
}

/// A catalog of another agent each time, because a single client cannot eject a member.
fn catalog(estate: &Estate) -> Response {
    static AGENTS: AtomicUsize = AtomicUsize::new(0);
    let number = AGENTS.fetch_add(1, Ordering::Relaxed);
    catalog_of(estate, &format!("host{number}"))
}

fn catalog_of(estate: &Estate, certname: &str) -> Response {
    let agent = estate.ca.agent(certname);
    let target = format!("/puppet/v3/catalog/{certname}?environment=production");
    let client = estate.client(&agent);
    client.request("POST", &target, &[], b"facts")
}

fn ejections(estate: &Estate) -> f64 {
    let metrics = estate.proxy.metrics();
    metrics.sum("proscenium_member_ejections_total", &[])
}

#[test]
fn a_member_with_failing_requests_is_ejected_although_its_check_passes() {
    let estate = failing(
        "ejection = { consecutive_failures = 3, eject_time = \"1h\", eject_time_max = \"2h\" }",
    );
    let statuses: Vec<_> = (0..12).map(|_| catalog(&estate).status).collect();
    assert_eq!(
        statuses.iter().filter(|status| **status == 502).count(),
        3,
        "{statuses:?}"
    );
    let member = compiler(&estate, |member| !member["ejected_seconds"].is_null());
    assert_eq!(member["health"], "up", "{member}");
    let address = estate.compilers[0].address();
    let labels = [("pool", "compilers"), ("member", &*address)];
    estate.wait_for_metric("proscenium_member_ejections_total", &labels, 1.0);
    estate.wait_for_event("member ejected");
    // The last available member is never ejected. When it fails, the ejected one is used again.
    estate.compilers[1].answer(|request| (!request.is_probe()).then(Reply::hang_up));
    assert!((0..6).all(|_| catalog(&estate).status == 502));
    estate.compilers[0].answer_as_puppet();
    estate.compilers[1].kill();
    let served = wait_until(LIMIT, || (catalog(&estate).status == 200).then_some(()));
    assert!(served.is_some(), "better an ejected member than none");
}

#[test]
fn an_ejection_ends_and_a_rate_of_failures_ejects_too() {
    let estate = failing(
        "ejection = { consecutive_failures = 10000, error_rate = \"60%\", window = \"1h\", eject_time = \"50ms\", ejected_max = \"50%\" }",
    );
    let ejected = wait_until(LIMIT, || {
        let _ = catalog(&estate);
        let metrics = estate.proxy.metrics();
        (metrics.sum("proscenium_member_ejections_total", &[]) >= 2.0).then_some(())
    });
    assert!(ejected.is_some(), "ejected, used again and ejected again");
    let estate = failing("ejection = { enabled = false, consecutive_failures = 1 }");
    assert_eq!(
        (0..20).filter(|_| catalog(&estate).status == 502).count(),
        10
    );
    let metrics = estate.proxy.metrics();
    assert_eq!(metrics.sum("proscenium_member_ejections_total", &[]), 0.0);
}

#[test]
fn no_client_alone_ejects_a_member_by_requests_that_make_it_hang_up() {
    let estate = failing("ejection = { consecutive_failures = 2, error_rate = \"1%\" }");
    let failed = (0..40).filter(|_| catalog_of(&estate, "web01").status == 502);
    assert_eq!(failed.count(), 20);
    assert_eq!(ejections(&estate), 0.0);
    // Unfinished request bodies do not eject a member either, however many certificates the client has.
    http1_alone!("the test sends a part of a body by hand");
    let estate = failing("ejection = { consecutive_failures = 1 }");
    for compiler in &estate.compilers {
        compiler.answer_early(|request| (request.method == "POST").then(Reply::reset));
    }
    for n in 0..6 {
        let certname = format!("web0{n}");
        let agent = estate.ca.agent(&certname);
        let mut connection = estate.client(&agent).connect().expect("connects");
        let target = format!("/puppet/v3/catalog/{certname}?environment=production");
        let begun = connection.head("POST", &target, &[], Some(50 << 20));
        let piece = vec![b'x'; 4 << 20];
        let _ = connection.send_raw(&[begun, piece].concat());
        drop(connection.read_response());
    }
    let attempts = estate.proxy.metrics();
    let broken = [("pool", "compilers"), ("result", "receive")];
    assert_eq!(attempts.sum("proscenium_attempts_total", &broken), 6.0);
    assert_eq!(ejections(&estate), 0.0);
}

#[test]
fn error_responses_of_puppet_server_eject_no_member() {
    let estate = failing("ejection = { consecutive_failures = 1 }");
    for reply in [
        Reply::status(500),
        Reply::status(503).header("Retry-After", "1"),
        Reply::status(404),
    ] {
        estate.compilers[0].answer(move |request| (!request.is_probe()).then(|| reply.clone()));
        (0..6).for_each(|_| _ = catalog(&estate));
    }
    let metrics = estate.proxy.metrics();
    assert_eq!(metrics.sum("proscenium_member_ejections_total", &[]), 0.0);
}

#[test]
fn ejected_members_are_used_again_below_the_panic_threshold() {
    let lines = "check = { interval = \"20ms\" }\nalgorithm = \"round-robin\"\n\
        ejection = { consecutive_failures = 1, eject_time = \"1h\", eject_time_max = \"2h\", panic_threshold = \"60%\" }";
    let estate = Estate::builder().compilers(3).compiler_pool(lines).start();
    estate.compilers[0].answer(|request| (!request.is_probe()).then(Reply::hang_up));
    let address = estate.compilers[0].address();
    let labels = [("pool", "compilers"), ("member", &*address)];
    let gauge = "proscenium_member_ejected";
    let ejected = wait_until(LIMIT, || {
        let _ = catalog(&estate);
        (ejections(&estate) == 1.0).then_some(())
    });
    assert!(ejected.is_some(), "two of three are 67 %");
    estate.wait_for_metric(gauge, &labels, 1.0);
    let second = estate.compilers[1].address();
    let drained = estate.proxy.command(&["drain"], &["compilers", &second]);
    assert_eq!(drained.code, Some(0), "{}", drained.stderr);
    estate.wait_for_metric(gauge, &labels, 0.0);
    estate.wait_for_event("ejections ended");
    assert!((0..9).any(|_| catalog(&estate).status == 502));
    assert_eq!(ejections(&estate), 1.0, "one of three would be left");
}

#[test]
fn a_restarted_member_starts_slowly_until_it_has_answered_enough() {
    let estate = Estate::builder()
        .compilers(2)
        .compiler_pool(
            "check = { interval = \"20ms\", rise = 1, fall = 1 }\njrubies = 2\nslow_start = \"1h\"\nslow_start_requests = 20",
        )
        .start();
    let address = estate.compilers[0].address();
    let labels = [("pool", "compilers"), ("member", &*address)];
    let gauge = "proscenium_member_warming";
    assert_eq!(get(&estate).status, 200);
    estate.wait_for_metric(gauge, &labels, 0.0);
    estate.compilers[0].kill();
    estate.wait_for_health("compilers", &address, "down");
    estate.compilers[0].restart();
    estate.wait_for_health("compilers", &address, "up");
    let cold = compiler(&estate, |member| !member["warming"].is_null());
    assert_eq!(cold["warming"]["weight_percent"], 10, "{cold}");
    estate.wait_for_metric(gauge, &labels, 1.0);
    let shown = estate.proxy.command(&["status"], &[]).stdout;
    let line = format!("{address}: warming after a restart, 0 %, weight 10 %");
    assert!(shown.contains(&line), "{shown}");
    // As the only member it gets every request, and 40 requests end the warm-up.
    estate.compilers[1].kill();
    let other = estate.compilers[1].address();
    estate.wait_for_health("compilers", &other, "down");
    assert!((0..39).all(|_| catalog(&estate).status == 200));
    let nearly = compiler(&estate, |_| true);
    assert_eq!(nearly["warming"]["progress_percent"], 97, "{nearly}");
    assert_eq!(catalog(&estate).status, 200);
    estate.wait_for_metric(gauge, &labels, 0.0);
    assert!(compiler(&estate, |_| true)["warming"].is_null());
}

/// Whether the first compiler is warming, once the status shows it.
fn is_warming(estate: &Estate) -> Value {
    compiler(estate, |member| !member["warming"].is_null())["warming"].clone()
}

#[test]
fn a_restart_is_detected_by_jettys_404_and_by_reset_counters() {
    let estate = Estate::builder()
        .compilers(1)
        .compiler_pool("check = { interval = \"20ms\" }")
        .start();
    assert_eq!(catalog(&estate).status, 200);
    let jetty = || {
        Reply::status(404)
            .header("Cache-Control", "must-revalidate,no-cache,no-store")
            .header("Content-Type", "text/html;charset=iso-8859-1")
            .body(b"<html>HTTP ERROR 404 Not Found</html>")
    };
    estate.compilers[0].answer(move |request| (!request.is_probe()).then(jetty));
    assert_ne!(catalog(&estate).status, 200);
    // Without `slow_start`, the status shows the restart, and the member has its full weight.
    assert_eq!(is_warming(&estate)["weight_percent"], 100);

    let estate = Estate::builder()
        .compilers(1)
        .compiler_pool("check = { interval = \"20ms\" }")
        .start();
    let counters = |borrows: u64| {
        let metrics = json!({ "num-jrubies": 2, "borrow-count": borrows });
        let reply = Reply::jrubies(&metrics);
        estate.compilers[0]
            .answer(move |request| request.is_jruby_reading().then(|| reply.clone()));
        let read = estate.compilers[0].jruby_readings().len();
        let again = || (estate.compilers[0].jruby_readings().len() > read + 1).then_some(());
        assert!(wait_until(LIMIT, again).is_some());
    };
    counters(500);
    counters(501);
    assert!(compiler(&estate, |_| true)["warming"].is_null());
    counters(3);
    is_warming(&estate);
}

#[test]
fn an_overloaded_member_is_shown_with_its_cause_and_its_learned_limit() {
    let estate = Estate::builder()
        .compilers(1)
        .compiler_pool("check = { interval = \"20ms\" }")
        .start();
    let address = estate.compilers[0].address();
    let labels = [("pool", "compilers"), ("member", &*address)];
    let gauge = "proscenium_member_overloaded";
    assert_eq!(catalog(&estate).status, 200);
    estate.wait_for_metric(gauge, &labels, 0.0);
    let reading = |refused: u64, timeouts: u64, free: u32| {
        let metrics = json!({
            "num-jrubies": 4, "num-free-jrubies": free, "borrow-timeout-count": timeouts,
            "average-borrow-time": 100.0, "average-wait-time": 200.0, "queue-limit-hit-count": refused,
            "requested-instances": [{ "duration-millis": 4 }],
        });
        let reply = Reply::jrubies(&metrics);
        estate.compilers[0]
            .answer(move |request| request.is_jruby_reading().then(|| reply.clone()));
    };
    // An increase of a counter is shown until the next reading. A JRuby wait is shown as long as it lasts.
    reading(0, 0, 0);
    let waits = compiler(&estate, |member| !member["overloaded"].is_null());
    assert_eq!(
        waits["overloaded"],
        json!({ "why": "jruby-wait", "limit": null })
    );
    estate.wait_for_metric(gauge, &labels, 1.0);
    reading(7, 0, 4);
    estate.wait_for_event("queue-limit");
    reading(7, 1, 4);
    estate.wait_for_event("borrow-timeout");
    compiler(&estate, |member| member["overloaded"].is_null());
    estate.compilers[0].answer(|request| {
        let full = Reply::status(503).header("X-Puppet-Version", "7.9.5");
        let full = full.header("Retry-After", "900");
        request.target.contains("catalog").then_some(full)
    });
    let client = estate.agent("web01");
    let target = "/puppet/v3/catalog/web01?environment=production";
    let returns = [("X-Puppet-Version", "8.10.0")];
    let came = client.request("POST", target, &returns, b"facts");
    assert_eq!(came.status, 503);
    let full = compiler(&estate, |member| !member["overloaded"].is_null());
    assert_eq!(
        full["overloaded"],
        json!({ "why": "queue-full", "limit": 1 })
    );
    estate.wait_for_event("member overloaded: its own queue is full");
    let shown = estate.proxy.command(&["status"], &[]).stdout;
    let line = format!("{address}: overloaded (queue-full), at most 1 in flight that hold a JRuby");
    assert!(shown.contains(&line), "{shown}");
}

#[test]
fn a_pool_makes_no_more_retries_than_its_budget_allows() {
    let estate = failing("retry_budget = \"0%\"\nejection = { enabled = false }");
    estate.compilers[1].answer(|request| (!request.is_probe()).then(Reply::hang_up));
    let record = wait_until(LIMIT, || {
        assert_eq!(get(&estate).status, 502);
        let records = estate.proxy.records();
        records
            .into_iter()
            // The budget's minimum may grow while a request makes its second attempt.
            .find(|record| record["reason"] == "retry-budget" && record["attempts"] == 1)
    });
    let record = record.expect("the floor is used up");
    assert_eq!(record["status"], 502, "{record}");
    let cause = record["cause"].as_str().unwrap_or_default();
    assert!(cause.starts_with("member-closed"), "{cause}");
    // With a budget of one retry per request, each request can be retried.
    let estate = failing("retry_budget = \"100%\"\nejection = { enabled = false }");
    assert!((0..60).all(|_| get(&estate).status == 200));
}
