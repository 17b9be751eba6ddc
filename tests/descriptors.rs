//! File descriptors: the limit is raised at the start, clients leave a reserve, and a limit of this host takes no
//! member down.

use std::{fs, thread};

use rustix::process::{Pid, Resource, Rlimit, prlimit};
use serde_json::Value;
use testkit::{Ca, Proxy, Recorded, Reply};

use crate::support::{
    self, Estate, QUICK_CHECK, connection,
    paths::{CA_CERTIFICATE, FILE},
    pools::{answer_probes, probed, wait_for},
};

/// Connections that a process with 256 descriptors serves: half of them for clients, two for each.
const CLIENTS_MAX: usize = 64;

#[test]
fn a_probe_that_gets_no_descriptor_does_not_change_the_health_of_its_member() {
    let estate = probed("rise = 1, fall = 1");
    wait_for(&estate, "up");
    let before = limit_descriptors(&estate.proxy, Some(3));
    estate.wait_for_event("Too many open files");
    estate.wait_for_event("(EMFILE)");
    limit_descriptors(&estate.proxy, before);
    estate.wait_for_status("the alarm", |status| {
        has_alarm(status, "descriptors:process")
    });
    wait_for(&estate, "up");
    let log = estate.proxy.stderr();
    assert!(!log.contains("probes-failed"), "{log}");
    assert_eq!(log.matches("(EMFILE)").count(), 1, "{log}");
    assert_eq!(connection(&estate).get(FILE).status, 200);
    // The probes run again, so failed probes take the member down.
    answer_probes(&estate.compilers[0], Reply::status(503));
    wait_for(&estate, "down");
    // Events have the words of the status.
    estate.wait_for_event("from=up to=down cause=probes-failed");
}

#[test]
fn agents_beyond_the_descriptors_wait_while_probes_and_operators_are_served() {
    let estate = Estate::builder()
        .compilers(1)
        .compiler_pool(QUICK_CHECK)
        .ulimit("-n 256")
        .listener("idle_timeout = \"10m\"")
        .start();
    wait_for(&estate, "up");
    let mut open: Vec<_> = (0..CLIENTS_MAX)
        .map(|_| {
            let mut open = connection(&estate);
            assert_eq!(open.get(FILE).status, 200);
            open
        })
        .collect();
    thread::scope(|scope| {
        let waiting = scope.spawn(|| estate.anonymous().get(CA_CERTIFICATE).status);
        let limit = [("listener", "agents"), ("limit", "descriptors")];
        estate.wait_for_metric("proscenium_limits_hit_total", &limit, 1.0);
        let status = estate.wait_for_status("the alarm", |status| {
            has_alarm(status, "descriptors:clients")
        });
        let requests = estate.ca_server.requests();
        let of_a_client = |request: &Recorded| request.headers.get("x-forwarded-for").is_some();
        assert!(!requests.iter().any(of_a_client), "{status}");
        answer_probes(&estate.compilers[0], Reply::status(503));
        wait_for(&estate, "down");
        estate.compilers[0].answer_as_puppet();
        wait_for(&estate, "up");
        for one in &mut open {
            assert_eq!(
                one.get(FILE).status,
                200,
                "a client that is served stays so"
            );
        }
        open.truncate(CLIENTS_MAX / 2);
        assert_eq!(waiting.join().expect("a response"), 200);
    });
    estate.wait_for_status("no alarm", |status| {
        !has_alarm(status, "descriptors:clients")
    });
    let log = estate.proxy.stderr();
    assert_eq!(log.matches("64 clients are connected").count(), 2, "{log}");
    assert_eq!(log.matches("cleared: 64 clients").count(), 1, "{log}");
}

#[test]
fn a_start_raises_the_soft_limit_to_the_hard_one() {
    let estate = Estate::builder().ulimit("-S -n 200").start();
    let limits = fs::read_to_string(format!("/proc/{}/limits", estate.proxy.pid()));
    let limits = limits.expect("the process runs");
    let line = limits
        .lines()
        .find(|line| line.starts_with("Max open files"));
    let words: Vec<_> = line.expect("a limit").split_whitespace().collect();
    assert_eq!(words[3], words[4], "{words:?}");
}

#[test]
fn check_and_a_start_warn_if_connections_max_exceeds_the_descriptors() {
    let ca = Ca::new();
    for (connections_max, wanted, warned) in [
        (Some(20_001), 20_001, true),
        (Some(1000), 1000, true),
        (None, 1000, true),
        (Some(100), 100, false),
    ] {
        let proxy = || {
            let line = connections_max.map(|max| format!("connections_max = {max}"));
            let line = line.unwrap_or_default();
            support::proxy(&ca)
                .listener(&line)
                .without_members()
                .ulimit("-n 1024")
        };
        let words = format!("the listeners are for {wanted} connections");
        let check = proxy().check();
        let printed = format!("{}{}", check.stdout, check.stderr);
        assert_eq!(printed.contains(&words), warned, "{printed}");
        assert_eq!(printed.contains("LimitNOFILE="), warned, "{printed}");
        let started = proxy().start();
        assert_eq!(
            started.stderr().contains(&words),
            warned,
            "{}",
            started.stderr()
        );
    }
}

fn has_alarm(status: &Value, key: &str) -> bool {
    let alarms = status["alarms"].as_array().expect("alarms");
    alarms.iter().any(|alarm| alarm["key"] == key)
}

/// Sets the soft limit of open descriptors; returns the previous one.
fn limit_descriptors(proxy: &Proxy, current: Option<u64>) -> Option<u64> {
    let pid = Pid::from_raw(i32::try_from(proxy.pid()).expect("a process id"));
    let maximum = rustix::process::getrlimit(Resource::Nofile).maximum;
    let before = prlimit(pid, Resource::Nofile, Rlimit { current, maximum });
    before.expect("its limit can be set").current
}
