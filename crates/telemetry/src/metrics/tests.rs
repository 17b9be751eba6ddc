//! Tests of the text that a scrape returns.

use super::*;
use crate::gauges::Gauges;

#[track_caller]
fn check(text: &str, lines: &[&str]) {
    for line in lines {
        assert!(
            text.lines().any(|found| found == *line),
            "no line {line} in\n{text}"
        );
    }
}

#[test]
fn handles_count_into_their_families() {
    let metrics = Metrics::default();
    let listener = metrics.listener("agents");
    let _open = listener.opens();
    drop(listener.opens());
    listener.limit(Limit::Handshakes);
    listener.handshake(HandshakeResult::Ok);
    listener.limit(Limit::HeadTimeout);
    metrics.listener("agents").handshake(HandshakeResult::Ok);
    let pool = metrics.pool("compilers");
    metrics
        .member("compilers", "c1:8140")
        .attempt(AttemptResult::Connect);
    pool.retries.inc();
    metrics.refused("revoked");
    metrics.reloaded(CountedReload::Refused);
    metrics.generation(3);
    metrics.identity_headers_scrubbed.inc_by(5);
    metrics.connections_revoked.inc();
    metrics.legacy_requests_refused.inc();
    metrics.access_records_dropped.inc();
    check(
        &metrics.encode([], Exposition::OpenMetrics),
        &[
            r#"proscenium_connections_open{listener="agents"} 1"#,
            r#"proscenium_limits_hit_total{listener="agents",limit="handshakes_max"} 1"#,
            r#"proscenium_limits_hit_total{listener="agents",limit="connections_max"} 0"#,
            r#"proscenium_handshakes_total{listener="agents",result="ok"} 2"#,
            r#"proscenium_limits_hit_total{listener="agents",limit="head_timeout"} 1"#,
            r#"proscenium_attempts_total{pool="compilers",member="c1:8140",result="connect"} 1"#,
            r#"proscenium_retries_total{pool="compilers"} 1"#,
            r#"proscenium_refusals_total{reason="revoked"} 1"#,
            r#"proscenium_reloads_total{result="refused"} 1"#,
            "proscenium_generation 3",
            "proscenium_identity_headers_scrubbed_total 5",
            "proscenium_connections_revoked_total 1",
            "proscenium_legacy_requests_refused_total 1",
            "proscenium_access_records_dropped_total 1",
            "proscenium_access_log_errors_total 0",
            "proscenium_events_dropped_total 0",
            "proscenium_materials_checks_total 0",
        ],
    );
}

#[test]
fn requests_are_counted_by_code_and_only_seen_codes_are_shown() {
    let metrics = Metrics::default();
    let request = metrics.request("compile", "compilers", "catalog", Some(Work::Catalog));
    for code in [200, 200, 404, 418, 599, 999] {
        request.finished(code, Duration::from_millis(3));
    }
    metrics
        .request("compile", "compilers", "catalog", Some(Work::Catalog))
        .finished(499, Duration::from_secs(700));
    let text = metrics.encode([], Exposition::OpenMetrics);
    let labels = r#"route="compile",pool="compilers",class="catalog""#;
    for (code, count) in [
        ("200", 2),
        ("404", 1),
        ("4xx", 1),
        ("5xx", 1),
        ("other", 1),
        ("499", 1),
    ] {
        check(
            &text,
            &[&format!(
                "proscenium_requests_total{{{labels},code=\"{code}\"}} {count}"
            )],
        );
    }
    assert!(!text.contains("code=\"502\""));
    check(
        &text,
        &[
            "# TYPE proscenium_requests counter",
            "# TYPE proscenium_request_duration_seconds histogram",
            r#"proscenium_request_duration_seconds_count{pool="compilers",work="catalog"} 7"#,
            r#"proscenium_request_duration_seconds_sum{pool="compilers",work="catalog"} 700.018"#,
            r#"proscenium_request_duration_seconds_bucket{le="0.0025",pool="compilers",work="catalog"} 0"#,
            r#"proscenium_request_duration_seconds_bucket{le="0.005",pool="compilers",work="catalog"} 6"#,
            r#"proscenium_request_duration_seconds_bucket{le="660.0",pool="compilers",work="catalog"} 6"#,
            r#"proscenium_request_duration_seconds_bucket{le="+Inf",pool="compilers",work="catalog"} 7"#,
        ],
    );
}

#[test]
fn every_code_is_counted_somewhere() {
    let counts = CodeCounts::default();
    for code in 0..=u16::MAX {
        counts.count(code);
    }
    assert_eq!(counts.seen().map(|(_, count)| count).sum::<u64>(), 65_536);
    assert!(CODES.is_sorted_by_key(|(code, _)| *code));
    assert!(CODES.iter().all(|(code, word)| code.to_string() == *word));
}

#[test]
fn gauges_of_a_scrape_follow_the_metrics() {
    let mut gauges = Gauges::of_proscenium();
    gauges.integer("blocks", "Active blocks", 2);
    gauges.value("body_buffer_bytes", "Bytes in buffers", Some(4096.0));
    gauges.value("absent", "Not known", None);
    let mut process = Gauges::of_process();
    process.seconds_counter("process_cpu_seconds", "CPU time", Some(2.5));
    let text = Metrics::default().encode([gauges, process], Exposition::OpenMetrics);
    check(
        &text,
        &[
            "proscenium_blocks 2",
            "# UNIT proscenium_body_buffer_bytes bytes",
            "proscenium_body_buffer_bytes 4096.0",
            "process_cpu_seconds_total 2.5",
            r#"proscenium_alarms{alarm="pool-unavailable",severity="critical",caused_by=""} 0"#,
        ],
    );
    assert!(!text.contains("absent"));
    assert!(text.ends_with("# EOF\n"));
    assert_eq!(text.matches("# EOF").count(), 1);
}

#[test]
fn a_label_cannot_end_its_line() {
    let mut gauges = Gauges::of_proscenium();
    let subject = "CN=a\\,\"b\"\nproscenium_generation 9".to_owned();
    gauges.series("ca", "CAs", [(vec![("subject", subject)], 0.0)]);
    check(
        &Metrics::default().encode([gauges], Exposition::OpenMetrics),
        &[r#"proscenium_ca{subject="CN=a\\,\"b\"\nproscenium_generation 9"} 0.0"#],
    );
}

#[test]
fn words_of_a_label_are_unique() {
    fn check<const N: usize>(words: [&str; N]) {
        let mut sorted = words.to_vec();
        sorted.sort_unstable();
        sorted.dedup();
        assert_eq!(sorted.len(), N, "{words:?}");
    }
    check(Limit::ALL.map(Limit::as_str));
    check(HandshakeResult::ALL.map(HandshakeResult::as_str));
    check(AttemptResult::ALL.map(AttemptResult::as_str));
}

#[test]
fn the_series_of_a_pool_or_member_go_with_it() {
    let metrics = Metrics::default();
    let handles = |pool: &str, member: &str| {
        metrics.pool(pool);
        let counters = metrics.member(pool, member);
        counters.took(Work::Catalog, Duration::ZERO);
        metrics
            .request("route", pool, "class", Some(Work::Other))
            .finished(200, Duration::ZERO);
    };
    for (pool, member) in [("ca", "ca1"), ("ca", "ca2"), ("extra", "x1")] {
        handles(pool, member);
    }
    let text = || metrics.encode([], Exposition::OpenMetrics);
    let before = text();
    handles("passing", "p1");
    metrics.retain_pools(|pool, member| pool == "ca" && member != Some("ca2"));
    for name in ["ca2", "extra", "x1", "passing", "p1"] {
        assert!(!text().contains(&format!("=\"{name}\"")), "{}", text());
    }
    assert!(text().contains("\"ca1\"") && text().contains("pool=\"ca\""));
    for (pool, member) in [("ca", "ca2"), ("extra", "x1")] {
        handles(pool, member);
    }
    assert_eq!(text().lines().count(), before.lines().count());
}
