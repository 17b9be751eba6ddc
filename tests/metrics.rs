//! Every metric family changes with what it measures, and no client can create more series.

use std::{collections::BTreeSet, io::Write, net::TcpStream, process::Stdio};

use testkit::{Ca, Proxy, Reply, ReplyGate, ScrapedMetrics, Seed, Tool};

use crate::support::{
    Estate, LIMIT, QUICK_CHECK,
    paths::{CA_CERTIFICATE, CATALOG},
};

/// Every family with its samples. A family that is missing here is not covered by any test.
const FAMILIES: &[&str] = &[
    "process_cpu_seconds_total",
    "process_max_fds",
    "process_open_fds",
    "process_resident_memory_bytes",
    "process_start_time_seconds",
    "process_virtual_memory_bytes",
    "proscenium_access_log_errors_total",
    "proscenium_access_records_dropped_total",
    "proscenium_agents",
    "proscenium_agents_by_issuer",
    "proscenium_agents_evicted_total",
    "proscenium_agents_expiring",
    "proscenium_alarms",
    "proscenium_attempt_duration_seconds_bucket",
    "proscenium_attempt_duration_seconds_count",
    "proscenium_attempt_duration_seconds_sum",
    "proscenium_attempts_total",
    "proscenium_blocks",
    "proscenium_body_buffer_bytes",
    "proscenium_build_info",
    "proscenium_ca_not_after_timestamp_seconds",
    "proscenium_certificate_not_after_timestamp_seconds",
    "proscenium_certificate_refusals_total",
    "proscenium_certificate_requests_observed_total",
    "proscenium_certificates_omitted_total",
    "proscenium_chain_cache_entries",
    "proscenium_chain_cache_lookups_total",
    "proscenium_connections_open",
    "proscenium_connections_revoked_total",
    "proscenium_crl_age_seconds",
    "proscenium_crl_agent_copy_age_seconds",
    "proscenium_crl_entries",
    "proscenium_crl_expired",
    "proscenium_crl_fetches_total",
    "proscenium_crl_next_update_timestamp_seconds",
    "proscenium_crl_number",
    "proscenium_edge_answers_total",
    "proscenium_events_dropped_total",
    "proscenium_failures_total",
    "proscenium_generation",
    "proscenium_handshakes_in_flight",
    "proscenium_handshakes_total",
    "proscenium_identity_headers_scrubbed_total",
    "proscenium_last_reload_success",
    "proscenium_last_reload_timestamp_seconds",
    "proscenium_legacy_requests_refused_total",
    "proscenium_limits_hit_total",
    "proscenium_materials_checks_total",
    "proscenium_materials_refused",
    "proscenium_member_administrative_state",
    "proscenium_member_connections",
    "proscenium_member_ejected",
    "proscenium_member_ejections_total",
    "proscenium_member_failed_responses_total",
    "proscenium_member_in_flight",
    "proscenium_member_overloaded",
    "proscenium_member_up",
    "proscenium_member_warming",
    "proscenium_persistence_moves_total",
    "proscenium_pool_members_available",
    "proscenium_pool_queue_length",
    "proscenium_pool_queue_longest_wait_seconds",
    "proscenium_pool_queue_refusals_total",
    "proscenium_refusals_total",
    "proscenium_reloads_total",
    "proscenium_renewal_disabled",
    "proscenium_request_duration_seconds_bucket",
    "proscenium_request_duration_seconds_count",
    "proscenium_request_duration_seconds_sum",
    "proscenium_requests_total",
    "proscenium_retries_total",
    "proscenium_state_directory_unusable",
    "proscenium_trust_alarms",
    "proscenium_tunnels_open",
];

#[test]
fn the_metric_families_are_exactly_these() {
    let estate = Estate::start();
    let agent = estate.ca.agent("web01");
    assert_eq!(estate.client(&agent).get(CATALOG).status, 200);
    estate.anonymous().get("/nowhere");
    estate.proxy.reload();
    assert_eq!(estate.proxy.metrics().names(), FAMILIES);
}

#[test]
fn promtool_reports_no_problem() {
    let Some(mut promtool) = Tool::Promtool.command() else {
        return;
    };
    let estate = Estate::start();
    let agent = estate.ca.agent("web01");
    assert_eq!(estate.client(&agent).get(CATALOG).status, 200);
    let mut promtool = promtool
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("promtool starts");
    let text = estate.proxy.admin("GET", "/metrics").text();
    let mut input = promtool.stdin.take().expect("is piped");
    input.write_all(text.as_bytes()).expect("is read");
    drop(input);
    let output = promtool.wait_with_output().expect("ends");
    let said = format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    assert!(output.status.success() && said.is_empty(), "{said}");
}

#[test]
fn known_series_start_at_zero_and_a_refused_certificate_counts_by_its_verdict() {
    let estate = Estate::start();
    let start = estate.proxy.metrics();
    for (name, label, value) in [
        ("reloads", "result", "refused"),
        ("crl_fetches", "result", "failed"),
        ("certificate_refusals", "reason", "revoked"),
        ("certificate_requests_observed", "reason", "csr-altnames"),
        ("refusals", "reason", "csr-name"),
        ("refusals", "reason", "refused-certificate"),
        ("refusals", "reason", "client-share"),
        ("refusals", "reason", "body-too-slow"),
        ("refusals", "reason", "member-starting"),
        ("refusals", "reason", "head-timeout"),
        ("refusals", "reason", "bad-head"),
        ("refusals", "reason", "no-route"),
        ("refusals", "reason", "name-unresolved"),
        ("edge_answers", "document", "crl"),
    ] {
        let name = format!("proscenium_{name}_total");
        assert!(start.has(&name, &[(label, value)]), "{name} {value}");
        assert_eq!(start.sum(&name, &[]), 0.0, "{name}");
    }
    let stranger = Ca::other().agent("web01");
    assert_eq!(estate.client(&stranger).get(CATALOG).status, 403);
    let refused = "proscenium_certificate_refusals_total";
    let reason = [("reason", "unknown-issuer")];
    estate.wait_for_metric(refused, &reason, 1.0);
    assert_eq!(estate.proxy.metrics().sum(refused, &[]), 1.0);
}

#[test]
fn connections_and_handshakes_are_counted() {
    let estate = Estate::start();
    let agent = estate.ca.agent("web01");
    let listener = [("listener", "agents")];
    let mut connection = estate.client(&agent).connect().expect("connects");
    assert_eq!(connection.get(CATALOG).status, 200);
    let metrics = estate.proxy.metrics();
    assert_eq!(metrics.sum("proscenium_connections_open", &listener), 1.0);
    assert_eq!(handshakes(&metrics, "ok"), 1.0);
    drop(connection);
    let begun = TcpStream::connect(estate.proxy.address()).expect("connects");
    (&begun).write_all(&[0x16, 0x03, 0x01]).expect("is taken");
    let gauge = "proscenium_handshakes_in_flight";
    assert_eq!(estate.wait_for_metric(gauge, &listener, 1.0), 1.0);
    drop(begun);
    estate.wait_for_metric(HANDSHAKES, &[("result", "closed")], 1.0);
    let mut garbage = TcpStream::connect(estate.proxy.address()).expect("connects");
    garbage
        .write_all(b"\0GET / HTTP/1.0\r\n\r\n")
        .expect("is taken");
    estate.wait_for_metric(HANDSHAKES, &[("result", "failed")], 1.0);
    let none_open =
        |metrics: &ScrapedMetrics| metrics.sum("proscenium_connections_open", &[]) == 0.0;
    let closed = testkit::wait_until(LIMIT, || none_open(&estate.proxy.metrics()).then_some(()));
    assert!(closed.is_some());
}

#[test]
fn handshakes_that_the_proxy_refuses_are_counted_separately() {
    let estate = Estate::builder()
        .listener(
            "client_cert = \"required\"\non_invalid = \"abort\"\nhandshake_timeout = \"300ms\"",
        )
        .start();
    estate
        .anonymous()
        .try_request("GET", CATALOG, &[], b"")
        .expect_err("no certificate");
    let stranger = Ca::other().agent("web01");
    estate
        .client(&stranger)
        .try_request("GET", CATALOG, &[], b"")
        .expect_err("a stranger");
    estate.wait_for_metric(HANDSHAKES, &[("result", "refused")], 2.0);
    let silent = TcpStream::connect(estate.proxy.address()).expect("connects");
    estate.wait_for_metric(HANDSHAKES, &[("result", "timeout")], 1.0);
    drop(silent);
}

#[test]
fn requests_and_members_are_counted() {
    let estate = Estate::builder()
        .compilers(1)
        .compiler_pool(QUICK_CHECK)
        .start();
    let client = estate.agent("web01");
    let gate = ReplyGate::new();
    gate.hold();
    let held = gate.clone();
    estate.compilers[0]
        .answer(move |request| (!request.is_probe()).then(|| Reply::ok("catalog").gate(&held)));
    let mut connection = client.connect().expect("connects");
    connection
        .send("GET", CATALOG, &[("X-Client-DN", "CN=forged")], b"")
        .expect("is taken");
    estate.compilers[0].wait_for_head(1, LIMIT);
    let address = estate.compilers[0].address();
    let member = [("pool", "compilers"), ("member", address.as_str())];
    let metrics = estate.proxy.metrics();
    for (name, value) in [("up", 1.0), ("in_flight", 1.0), ("connections", 1.0)] {
        assert_eq!(
            metrics.sum(&format!("proscenium_member_{name}"), &member),
            value,
            "{name}"
        );
    }
    assert_eq!(
        metrics.sum("proscenium_identity_headers_scrubbed_total", &[]),
        1.0
    );
    gate.release();
    assert_eq!(connection.read_response().expect("is answered").status, 200);
    assert_eq!(client.request("DELETE", CATALOG, &[], b"").status, 405);
    let labels = [
        ("pool", "compilers"),
        ("class", "own-documents"),
        ("code", "200"),
    ];
    estate.wait_for_metric("proscenium_requests_total", &labels, 1.0);
    estate.wait_for_metric("proscenium_requests_total", &[("code", "405")], 1.0);
    estate.wait_for_metric("proscenium_refusals_total", &[("reason", "method")], 1.0);
    let metrics = estate.proxy.metrics();
    let pool = [("pool", "compilers")];
    assert_eq!(
        metrics.sum("proscenium_request_duration_seconds_count", &pool),
        1.0
    );
    assert!(metrics.sum("proscenium_request_duration_seconds_sum", &pool) > 0.0);
    assert_eq!(metrics.sum("proscenium_member_in_flight", &member), 0.0);
    estate.compilers[0].kill();
    estate.wait_for_health("compilers", &address, "down");
    // The proxy notices within a second that the member closed idle connections.
    for name in ["up", "connections"] {
        let name = format!("proscenium_member_{name}");
        let sum = || estate.proxy.metrics().sum(&name, &member);
        testkit::wait_until(LIMIT, || (sum() == 0.0).then_some(())).expect("it is 0 in time");
    }
}

#[test]
fn attempts_are_counted_by_their_result() {
    let pool = |name: &str, rest: &str| {
        format!(
            "[pools.{name}]\n{rest}\ncheck = {{ type = \"none\" }}\n[[routes]]\nname = \"{name}\"\n\
             path = {{ prefix = \"/{name}\" }}\nunguarded = true\npool = \"{name}\""
        )
    };
    let nameless = "scheme = \"https\"\nmembers = [\"no-such-host.invalid:8140\"]";
    let estate = Estate::builder()
        .compilers(2)
        .compiler_pool("first_byte_timeout = \"300ms\"\ncheck = { type = \"none\" }")
        .ca_pool("check = { type = \"none\" }")
        .with(&pool(
            "refusing",
            "scheme = \"http\"\nmembers = [\"127.0.0.1:1\"]",
        ))
        .with(&pool("nameless", nameless))
        .start();
    let client = estate.agent("web01");
    let attempted = |pool: &str, result: &str, least: f64| {
        let labels = [("pool", pool), ("result", result)];
        estate.wait_for_metric("proscenium_attempts_total", &labels, least);
    };
    assert_eq!(client.get(CATALOG).status, 200);
    attempted("compilers", "ok", 1.0);
    assert_eq!(client.get("/refusing").status, 503);
    attempted("refusing", "connect", 1.0);
    assert_eq!(client.get("/nameless").status, 503);
    attempted("nameless", "resolve", 1.0);
    // The second member answers a safe GET if the first one closes the connection.
    for compiler in &estate.compilers {
        compiler.answer(|_| Some(Reply::hang_up()));
    }
    assert_eq!(client.request("POST", CATALOG, &[], b"facts").status, 502);
    attempted("compilers", "receive", 1.0);
    estate.compilers.iter().for_each(|compiler| {
        compiler.answer_as_puppet();
        compiler.hold();
    });
    assert_eq!(client.get(CATALOG).status, 504);
    attempted("compilers", "timeout", 1.0);
    estate.forget();
    let mut gone = client.connect().expect("connects");
    estate.ca_server.hold();
    gone.send("GET", CA_CERTIFICATE, &[], b"")
        .expect("is taken");
    estate.ca_server.wait_for_head(1, LIMIT);
    gone.reset();
    attempted("ca", "abandoned", 1.0);
    estate.members().for_each(testkit::StandIn::release);
}

#[test]
fn a_members_failed_tls_handshake_and_a_retry_are_counted_separately() {
    let estate = Estate::builder()
        .tls_members()
        .compiler_pool("algorithm = \"round-robin\"\ncheck = { type = \"none\" }")
        .start();
    let client = estate.agent("web01");
    // The member stops between requests: a refused connect is retried on another member.
    estate.compilers[0].kill();
    for _ in 0..2 {
        assert_eq!(client.get(CATALOG).status, 200);
    }
    estate.wait_for_metric("proscenium_retries_total", &[("pool", "compilers")], 1.0);
    let foreign = Ca::other().server("c3");
    let stand_in = testkit::StandIn::builder("c3")
        .tls(&estate.ca, &foreign)
        .start();
    let members: Vec<_> = estate
        .compilers
        .iter()
        .map(testkit::StandIn::address)
        .collect();
    let alone = [stand_in.address()];
    estate.edit_config(
        &format!("members = {members:?}"),
        &format!("members = {alone:?}"),
    );
    estate.proxy.reload_applied();
    assert_eq!(client.get(CATALOG).status, 502);
    estate.wait_for_metric(
        "proscenium_attempts_total",
        &[("pool", "compilers"), ("result", "handshake")],
        1.0,
    );
}

#[test]
fn limits_of_bodies_are_counted() {
    let estate = Estate::builder()
        .compilers(1)
        .compiler_pool("idle_timeout = \"300ms\"")
        .start();
    let client = estate.agent("web01");
    let hit = |limit: &str, least: f64| {
        let labels = [("listener", "agents"), ("limit", limit)];
        estate.wait_for_metric("proscenium_limits_hit_total", &labels, least);
    };
    let request = "/puppet-ca/v1/certificate_request/web02";
    let large = vec![b'x'; 20 << 10];
    let answer = estate.anonymous().request("PUT", request, &[], &large);
    assert_eq!(answer.status, 413);
    hit("body", 1.0);
    // First a client stops in the middle of its body, then a member in the middle of its response.
    let mut stopping = client.connect().expect("connects");
    let head = stopping.head("POST", CATALOG, &[], Some(1000));
    stopping.send_raw(&head).expect("is taken");
    stopping.send_raw(b"facts").expect("is taken");
    assert_eq!(stopping.read_response().expect("is answered").status, 408);
    hit("body_timeout", 1.0);
    let gate = ReplyGate::new();
    gate.hold();
    let held = gate.clone();
    estate.compilers[0].answer(move |_| Some(Reply::stream(300_000).gate_after(100_000, &held)));
    client
        .try_request("GET", CATALOG, &[], b"")
        .expect_err("breaks off");
    hit("body_timeout", 2.0);
    let record =
        |record: &serde_json::Value| record["reason"] == "body-timeout" && record["status"] == 200;
    assert_eq!(estate.wait_for_record(record)["ended_by"], "member");
    gate.release();
}

#[test]
fn metrics_show_the_trust_store_and_the_generation() {
    let estate = Estate::builder().listener("idle_timeout = \"10m\"").start();
    let bad = estate.ca.agent("web01");
    let mut idle = estate.client(&bad).connect().expect("connects");
    assert_eq!(idle.get(CATALOG).status, 200);
    let before = estate.proxy.metrics();
    assert_eq!(before.sum("proscenium_generation", &[]), 1.0);
    assert!(before.sum("proscenium_ca_not_after_timestamp_seconds", &[]) > 0.0);
    assert!(before.sum("proscenium_crl_next_update_timestamp_seconds", &[]) > 0.0);
    assert!(before.sum("proscenium_crl_age_seconds", &[]) > 0.0);
    assert!(before.has("proscenium_crl_agent_copy_age_seconds", &[]));
    estate.ca.crl_next_update_days(-1);
    estate.ca.revoke(&bad);
    estate.proxy.swap_crl();
    assert!(idle.is_closed_within(LIMIT));
    estate.wait_for_metric("proscenium_connections_revoked_total", &[], 1.0);
    let after = estate.proxy.metrics();
    let rose = |name: &str| after.sum(name, &[]) - before.sum(name, &[]);
    assert_eq!(rose("proscenium_generation"), 1.0);
    assert_eq!(rose("proscenium_crl_entries"), 1.0);
    assert_eq!(rose("proscenium_crl_number"), 2.0);
    assert_eq!(rose("proscenium_trust_alarms"), 1.0);
    assert!(rose("proscenium_crl_next_update_timestamp_seconds") < 0.0);
    assert_eq!(
        after.sum("proscenium_reloads_total", &[("result", "applied")]),
        1.0
    );
    // A CRL from another CA is not the agent's copy.
    let crl = estate.ca.crl_pem();
    estate.proxy.write("elsewhere.pem", &crl, 0o644);
    let text = estate.proxy.config_text();
    let path = estate
        .proxy
        .directory()
        .join("elsewhere.pem")
        .display()
        .to_string();
    estate.write_config(&format!("{text}\n[trust]\ncrl = \"{path}\"\n"));
    estate.proxy.reload_applied();
    assert!(
        !estate
            .proxy
            .metrics()
            .has("proscenium_crl_agent_copy_age_seconds", &[])
    );
}

#[test]
fn no_client_can_create_more_series() {
    let estate = Estate::start();
    let mut seed = Seed::from_env_or_random();
    strange_requests(&estate, &mut seed, 0..20);
    let before = series(&estate.proxy);
    strange_requests(&estate, &mut seed, 20..150);
    let after = series(&estate.proxy);
    let new: Vec<_> = after.difference(&before).collect();
    assert!(new.is_empty(), "{new:#?}");
}

/// Sends one request of each kind per round, with words that no earlier request had.
fn strange_requests(estate: &Estate, seed: &mut Seed, turns: std::ops::Range<u32>) {
    for turn in turns {
        let word = format!("w{turn}x{}", seed.number());
        let agent = estate.ca.agent(&word);
        let client = estate.client(&agent);
        let headers = [("User-Agent", word.as_str()), ("Host", word.as_str())];
        for (method, target) in [
            ("GET", format!("/{word}")),
            (
                "GET",
                format!("/puppet/v3/catalog/{word}?environment={word}"),
            ),
            ("GET", format!("/puppet/v3/{word}/x")),
            ("GET", format!("/puppet-ca/v1/certificate/{word}")),
            (word.as_str(), CATALOG.to_owned()),
        ] {
            client.request(method, &target, &headers, b"");
        }
    }
}

/// Name and labels of every sample.
fn series(proxy: &Proxy) -> BTreeSet<String> {
    let text = proxy.admin("GET", "/metrics").text();
    let samples = text.lines().filter(|line| !line.starts_with('#'));
    samples
        .filter_map(|line| line.rsplit_once(' ').map(|(series, _)| series.to_owned()))
        .collect()
}

fn handshakes(metrics: &ScrapedMetrics, result: &str) -> f64 {
    metrics.sum(HANDSHAKES, &[("result", result)])
}

const HANDSHAKES: &str = "proscenium_handshakes_total";
