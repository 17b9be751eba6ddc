//! What a scrape sees of a status.

use telemetry::{Exposition, Metrics};

use super::*;
use crate::{
    ActiveCa, AgentCheckStatus, AgentCounts, BuildStatus, ChainCacheStatus, FailingFetch,
    JrubyStatus, ProxyCertificateStatus, ShrunkCrlStatus, WarmingStatus, tests::samples,
};

#[track_caller]
fn check(status: &Status, lines: &[&str]) {
    let text = encode(status);
    for line in lines {
        assert!(
            text.lines().any(|found| found == *line),
            "no line {line} in\n{text}"
        );
    }
}

fn encode(status: &Status) -> String {
    let now = SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(60);
    Metrics::default().encode(gauges(status, now), Exposition::OpenMetrics)
}

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_unix_seconds(seconds)
}

#[test]
fn listeners_pools_and_members_have_gauges() {
    let mut status = samples::status();
    status.listeners[0].handshakes = 2;
    status.body_buffer_bytes = 4096;
    let pool = &mut status.pools[0];
    pool.available = 3;
    pool.waiting = 2;
    pool.longest_wait_milliseconds = Some(2_500);
    let member = &mut pool.members[0];
    member.ejections = 5;
    member.ejected_seconds = Some(7);
    member.warming = Some(WarmingStatus {
        progress_percent: 10,
        weight_percent: 20,
    });
    member.jrubies = Some(JrubyStatus {
        count: Some(4),
        free: Some(1),
        ..JrubyStatus::default()
    });
    // The agent check is stricter than the operator.
    member.agent_check = Some(AgentCheckStatus {
        state: AdministrativeState::Drain,
        down: false,
        weight_percent: 100,
        at: at(0),
        answer: None,
        failure: None,
        failures: 6,
    });
    check(
        &status,
        &[
            r#"proscenium_handshakes_in_flight{listener="agents"} 2.0"#,
            "proscenium_body_buffer_bytes 4096.0",
            r#"proscenium_pool_members_available{pool="compilers"} 3.0"#,
            r#"proscenium_pool_queue_length{pool="compilers"} 2.0"#,
            r#"proscenium_pool_queue_longest_wait_seconds{pool="compilers"} 2.5"#,
            r#"proscenium_member_up{pool="compilers",member="c1:8140"} 1.0"#,
            r#"proscenium_member_in_flight{pool="compilers",member="c1:8140"} 3.0"#,
            r#"proscenium_member_connections{pool="compilers",member="c1:8140"} 4.0"#,
            r#"proscenium_member_ejected{pool="compilers",member="c1:8140"} 1.0"#,
            r#"proscenium_member_ejections_total{pool="compilers",member="c1:8140"} 5"#,
            r#"proscenium_member_warming{pool="compilers",member="c1:8140"} 1.0"#,
            r#"proscenium_member_overloaded{pool="compilers",member="c1:8140"} 0.0"#,
            r#"proscenium_member_jrubies{pool="compilers",member="c1:8140"} 4.0"#,
            r#"proscenium_member_jrubies_free{pool="compilers",member="c1:8140"} 1.0"#,
            r#"proscenium_member_agent_check_failures_total{pool="compilers",member="c1:8140"} 6"#,
            r#"proscenium_member_administrative_state{pool="compilers",member="c1:8140",state="drain"} 1.0"#,
            r#"proscenium_member_administrative_state{pool="compilers",member="c1:8140",state="ready"} 0.0"#,
        ],
    );
}

#[test]
fn a_member_without_an_agent_check_or_known_jrubies_has_no_such_series() {
    let text = encode(&samples::status());
    for family in ["member_jrubies", "member_agent_check_failures_total"] {
        let series = format!("proscenium_{family}{{");
        assert!(!text.contains(&series), "{series} in\n{text}");
    }
}

#[test]
fn trust_has_gauges() {
    let mut status = samples::status();
    let trust = &mut status.trust;
    let name = "CN=Puppet CA: puppet";
    // Two CAs of one name: an alert is about the one that expires first.
    trust.cas = [2_150_000_000, 2_100_000_000]
        .map(|end| ActiveCa {
            subject: name.to_owned(),
            not_after: at(end),
            is_superseded: false,
            source: "ca.pem".to_owned(),
        })
        .to_vec();
    // A certificate that the same CA has renewed since.
    trust.cas.push(ActiveCa {
        not_after: at(2_000_000_000),
        is_superseded: true,
        ..trust.cas[0].clone()
    });
    trust.crls[0].issuer = name.to_owned();
    trust.crls[0].number = "34".to_owned();
    trust.crls[0].next_update = Some(at(2_000_000_000));
    trust.crls[0].accepted_until = Some(at(2_000_259_200));
    trust.alarms = vec!["one".to_owned(), "two".to_owned(), "three".to_owned()];
    trust.agent_copy_age_seconds = Some(90);
    trust.chain_cache = ChainCacheStatus {
        entries: 7,
        hits: 8,
        misses: 9,
    };
    trust.fetch = Some(CrlFetchStatus {
        last_attempt: None,
        last_answer: Some(at(1_900_000_000)),
        member: None,
        failing: Some(FailingFetch {
            since: at(0),
            why: "timeout".to_owned(),
        }),
        shrunk: vec![ShrunkCrlStatus {
            issuer: name.to_owned(),
            missing: 5,
            ..samples::shrunk_crl()
        }],
    });
    status.blocks = 2;
    check(
        &status,
        &[
            "proscenium_trust_alarms 3",
            "proscenium_blocks 2",
            "proscenium_crl_last_fetch_timestamp_seconds 1900000000.0",
            "proscenium_crl_fetch_failing 1",
            r#"proscenium_crl_missing_revocations{issuer="CN=Puppet CA: puppet"} 5.0"#,
            r#"proscenium_crl_age_seconds{issuer="CN=Puppet CA: puppet"} 60.0"#,
            r#"proscenium_crl_next_update_timestamp_seconds{issuer="CN=Puppet CA: puppet"} 2000000000.0"#,
            r#"proscenium_crl_entries{issuer="CN=Puppet CA: puppet"} 3.0"#,
            r#"proscenium_crl_number{issuer="CN=Puppet CA: puppet"} 34.0"#,
            r#"proscenium_crl_expired{issuer="CN=Puppet CA: puppet"} 1.0"#,
            r#"proscenium_crl_accepted_until_timestamp_seconds{issuer="CN=Puppet CA: puppet"} 2000259200.0"#,
            r#"proscenium_ca_not_after_timestamp_seconds{subject="CN=Puppet CA: puppet"} 2100000000.0"#,
            "proscenium_crl_agent_copy_age_seconds 90.0",
            "proscenium_chain_cache_entries 7.0",
            r#"proscenium_chain_cache_lookups_total{result="hit"} 8"#,
            r#"proscenium_chain_cache_lookups_total{result="miss"} 9"#,
        ],
    );
}

#[test]
fn the_process_and_its_files_have_gauges() {
    let mut status = samples::status();
    status.certificates = vec![ProxyCertificateStatus {
        role: "listener".to_owned(),
        name: "agents".to_owned(),
        file: "puppet.pem".to_owned(),
        subject: "CN=puppet".to_owned(),
        not_after: at(2_200_000_000),
    }];
    status.agents = AgentCounts {
        by_expiry: [("expired".to_owned(), 1), ("later".to_owned(), 6)].into(),
        expiring: 3,
        by_issuer: [("CN=new".to_owned(), 4), ("CN=old".to_owned(), 2)].into(),
        evicted: 7,
    };
    status.edge_copies = [("crl".to_owned(), 7)].into();
    status.state.unusable = Some("read-only".to_owned());
    status.build = BuildStatus {
        version: "1.2.3".into(),
        commit: "4f5e6d".into(),
        rustc: "1.95.0".into(),
        tls: "rustls 0.23".into(),
    };
    status.process.cpu_milliseconds = Some(2_500);
    status.process.open_fds = Some(11);
    check(
        &status,
        &[
            r#"proscenium_certificate_not_after_timestamp_seconds{role="listener",name="agents",file="puppet.pem",subject="CN=puppet"} 2200000000.0"#,
            r#"proscenium_agents{expires="expired"} 1.0"#,
            r#"proscenium_agents{expires="later"} 6.0"#,
            r#"proscenium_agents_by_issuer{issuer="CN=new"} 4.0"#,
            r#"proscenium_agents_by_issuer{issuer="CN=old"} 2.0"#,
            "proscenium_agents_expiring 3",
            "proscenium_agents_evicted_total 7",
            "proscenium_materials_refused 1",
            r#"proscenium_edge_copy_age_seconds{document="crl"} 7.0"#,
            "proscenium_renewal_disabled 1",
            "proscenium_state_directory_unusable 1",
            "proscenium_last_reload_timestamp_seconds 0.0",
            "proscenium_last_reload_success 0",
            r#"proscenium_build_info{version="1.2.3",commit="4f5e6d",rustc="1.95.0",tls="rustls 0.23"} 1.0"#,
            "process_cpu_seconds_total 2.5",
            "process_open_fds 11.0",
        ],
    );
    assert!(!encode(&status).contains("process_max_fds"));
}
