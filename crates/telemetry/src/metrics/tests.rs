//! What a scrape sees.

use std::time::SystemTime;

use super::*;
use crate::readings::{
    BuildInfo, CaReading, CertificateReading, ChainReading, CrlFetchReading, CrlReading,
    ListenerReading, MemberReading, PoolReading, ProcessReading,
};

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
    listener.connections_open.inc();
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
    metrics.reloaded(ReloadResult::Refused);
    metrics.generation(3);
    metrics.identity_headers_scrubbed.inc_by(5);
    metrics.connections_revoked.inc();
    metrics.legacy_requests_refused.inc();
    metrics.access_records_dropped.inc();
    check(
        &metrics.encode(&Readings::default(), Exposition::OpenMetrics),
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
fn requests_are_told_by_code_and_only_those_seen() {
    let metrics = Metrics::default();
    let request = metrics.request("compile", "compilers", "catalog", Some(Work::Catalog));
    for code in [200, 200, 404, 418, 599, 999] {
        request.finished(code, Duration::from_millis(3));
    }
    metrics
        .request("compile", "compilers", "catalog", Some(Work::Catalog))
        .finished(499, Duration::from_secs(700));
    let text = metrics.encode(&Readings::default(), Exposition::OpenMetrics);
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
fn readings_are_told_as_gauges() {
    let at = |seconds| SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
    let readings = Readings {
        listeners: vec![ListenerReading {
            listener: "agents".to_owned(),
            handshakes: 2,
        }],
        pools: vec![PoolReading {
            pool: "compilers".to_owned(),
            available: 3,
            waiting: 2,
            longest_wait: Duration::from_millis(2_500),
        }],
        members: vec![MemberReading {
            pool: "compilers".to_owned(),
            member: "c1:8140".to_owned(),
            up: true,
            administrative_state: "drain",
            in_flight: 4,
            connections: 6,
            jrubies: None,
            ejections: 0,
            ejected: false,
            overloaded: false,
            warming: true,
            agent_check_failures: None,
        }],
        crls: vec![CrlReading {
            issuer: "CN=Puppet CA: puppet".to_owned(),
            age: Duration::from_secs(60),
            next_update: Some(at(2_000_000_000)),
            entries: 12,
            number: Some(34),
            expired: true,
            accepted_until: Some(at(2_000_259_200)),
        }],
        // Two CAs of one name: the one that ends first is what an alert is about.
        cas: [2_100_000_000, 2_150_000_000]
            .map(|end| CaReading {
                subject: "CN=Puppet CA: puppet".to_owned(),
                not_after: at(end),
            })
            .to_vec(),
        certificates: vec![CertificateReading {
            role: "listener",
            name: "agents".to_owned(),
            file: "puppet.pem".to_owned(),
            subject: "CN=puppet".to_owned(),
            not_after: at(2_200_000_000),
        }],
        crl_agent_copy_age: Some(Duration::from_millis(1_500)),
        chains: ChainReading {
            remembered: 7,
            hits: 8,
            misses: 9,
        },
        trust_alarms: 3,
        agents: [1, 2, 3, 4, 5, 6, 7],
        agents_evicted: 7,
        blocks: 2,
        body_buffer_bytes: 4096,
        materials_refused: true,
        crl_fetch: Some(CrlFetchReading {
            answered: Some(at(1_900_000_000)),
            failing: true,
            refused: vec![("CN=Puppet CA: puppet".to_owned(), 5)],
        }),
        edge_copies: vec![("crl", Duration::from_secs(7))],
        renewal_off: true,
        state_unusable: true,
        last_reload: Some((at(1_800_000_000), false)),
        process: ProcessReading {
            cpu: Some(Duration::from_millis(2_500)),
            open_fds: Some(11),
            ..ProcessReading::default()
        },
        build: BuildInfo {
            version: "1.2.3",
            commit: "4f5e6d",
            rustc: "1.95.0",
            tls: "rustls 0.23",
        },
    };
    let text = Metrics::default().encode(&readings, Exposition::OpenMetrics);
    let crl = r#"issuer="CN=Puppet CA: puppet""#;
    check(
        &text,
        &[
            r#"proscenium_handshakes_in_flight{listener="agents"} 2.0"#,
            "proscenium_trust_alarms 3",
            r#"proscenium_alarms{alarm="pool-unavailable"} 0"#,
            r#"proscenium_pool_members_available{pool="compilers"} 3.0"#,
            r#"proscenium_pool_queue_length{pool="compilers"} 2.0"#,
            r#"proscenium_pool_queue_longest_wait_seconds{pool="compilers"} 2.5"#,
            "proscenium_blocks 2",
            "proscenium_body_buffer_bytes 4096.0",
            r#"proscenium_agents{expires="expired"} 1.0"#,
            r#"proscenium_agents{expires="later"} 6.0"#,
            "proscenium_agents_evicted_total 7",
            "proscenium_materials_refused 1",
            "proscenium_crl_last_fetch_timestamp_seconds 1900000000.0",
            "proscenium_crl_fetch_failing 1",
            r#"proscenium_crl_refused_missing_revocations{issuer="CN=Puppet CA: puppet"} 5.0"#,
            r#"proscenium_edge_copy_age_seconds{document="crl"} 7.0"#,
            "proscenium_renewal_disabled 1",
            "proscenium_state_directory_unusable 1",
            r#"proscenium_member_up{pool="compilers",member="c1:8140"} 1.0"#,
            r#"proscenium_member_in_flight{pool="compilers",member="c1:8140"} 4.0"#,
            r#"proscenium_member_connections{pool="compilers",member="c1:8140"} 6.0"#,
            &format!("proscenium_crl_age_seconds{{{crl}}} 60.0"),
            &format!("proscenium_crl_next_update_timestamp_seconds{{{crl}}} 2000000000.0"),
            &format!("proscenium_crl_entries{{{crl}}} 12.0"),
            &format!("proscenium_crl_number{{{crl}}} 34.0"),
            &format!("proscenium_crl_expired{{{crl}}} 1.0"),
            &format!("proscenium_crl_accepted_until_timestamp_seconds{{{crl}}} 2000259200.0"),
            r#"proscenium_ca_not_after_timestamp_seconds{subject="CN=Puppet CA: puppet"} 2100000000.0"#,
            r#"proscenium_certificate_not_after_timestamp_seconds{role="listener",name="agents",file="puppet.pem",subject="CN=puppet"} 2200000000.0"#,
            "proscenium_crl_agent_copy_age_seconds 1.5",
            r#"proscenium_member_administrative_state{pool="compilers",member="c1:8140",state="drain"} 1.0"#,
            r#"proscenium_member_administrative_state{pool="compilers",member="c1:8140",state="ready"} 0.0"#,
            "proscenium_last_reload_timestamp_seconds 1800000000.0",
            "proscenium_last_reload_success 0",
            r#"proscenium_build_info{version="1.2.3",commit="4f5e6d",rustc="1.95.0",tls="rustls 0.23"} 1.0"#,
            "process_cpu_seconds_total 2.5",
            "process_open_fds 11.0",
            "proscenium_chain_cache_entries 7.0",
            r#"proscenium_chain_cache_lookups_total{result="hit"} 8"#,
            r#"proscenium_chain_cache_lookups_total{result="miss"} 9"#,
        ],
    );
    assert!(text.ends_with("# EOF\n"));
    assert_eq!(text.matches("# EOF").count(), 1);
}

#[test]
fn a_label_cannot_end_its_line() {
    let readings = Readings {
        cas: vec![CaReading {
            subject: "CN=a\\,\"b\"\nproscenium_generation 9".to_owned(),
            not_after: SystemTime::UNIX_EPOCH,
        }],
        ..Readings::default()
    };
    check(
        &Metrics::default().encode(&readings, Exposition::OpenMetrics),
        &[
            r#"proscenium_ca_not_after_timestamp_seconds{subject="CN=a\\,\"b\"\nproscenium_generation 9"} 0.0"#,
        ],
    );
}

#[test]
fn every_word_of_a_label_is_another() {
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
        metrics.member(pool, member);
        metrics
            .request("route", pool, "class", Some(Work::Other))
            .finished(200, Duration::ZERO);
    };
    for (pool, member) in [("ca", "ca1"), ("ca", "ca2"), ("extra", "x1")] {
        handles(pool, member);
    }
    let text = || metrics.encode(&Readings::default(), Exposition::OpenMetrics);
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
