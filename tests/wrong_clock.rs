//! A wrong clock is one alarm, and the alarms about dates that follow from it name it.

use serde_json::Value;
use testkit::{Ca, Manner, Proxy, StandIn, wait_until};

use crate::support::{Estate, LIMIT, QUICK_CHECK};

const CLOCK: &str = "clock-offset";
const DAY: i64 = 86_400;
const TCP: &str = "check = { type = \"tcp\", interval = \"20ms\", rise = 1, fall = 1 }";

fn alarms(proxy: &Proxy) -> Vec<Value> {
    let status = proxy.status();
    status["alarms"].as_array().expect("alarms").clone()
}

/// Waits until the alarms whose keys begin like this are active. The flag is whether the alarm follows from the clock.
#[track_caller]
fn wait_for(proxy: &Proxy, expected: &[(&str, bool)]) {
    let shown = || {
        let mut shown: Vec<_> = alarms(proxy)
            .iter()
            .filter_map(|alarm| {
                let kind = alarm["key"].as_str()?.split(':').next()?.to_owned();
                let follows = alarm["caused_by"] == CLOCK;
                (kind == CLOCK || kind == "certificate-invalid").then_some((kind, follows))
            })
            .collect();
        shown.sort();
        shown
    };
    let expected: Vec<_> = expected
        .iter()
        .map(|(kind, follows)| ((*kind).to_owned(), *follows))
        .collect();
    let met = wait_until(LIMIT, || (shown() == expected).then_some(()));
    assert!(met.is_some(), "{expected:?}: {:#?}", alarms(proxy));
}

/// The members' clocks show how wrong the proxy's clock is. Only alarms that would end with their time follow from it.
#[test]
fn alarms_that_the_members_clocks_explain_are_shown_under_the_alarm_about_the_clock() {
    let ca = Ca::new();
    let future = ca.leaf("puppet").valid_seconds(2 * DAY, 100 * DAY).issue();
    let outdated = ca.leaf("outdated").ip("127.0.0.1").expired().issue();
    let outdated = StandIn::builder("outdated").tls(&ca, &outdated).start();
    let pool = format!(
        "[pools.outdated]\nmembers = [{:?}]\n{QUICK_CHECK}\n",
        outdated.address()
    );
    let estate = Estate::builder()
        .ca(&ca)
        .compilers(2)
        .compiler_pool(QUICK_CHECK)
        .ca_pool(TCP)
        .credential(&future)
        .with(&pool)
        .start();
    let proxy = &estate.proxy;
    wait_for(proxy, &[("certificate-invalid", false)]);
    let set = |ahead: i64| {
        for compiler in &estate.compilers {
            compiler.behave(Manner::headers().clock_ahead(ahead));
        }
    };
    let both = [("certificate-invalid", true), (CLOCK, false)];
    set(3 * DAY);
    wait_for(proxy, &both);
    // The clock is behind, which is not why a certificate has expired.
    proxy.wait_for_event("has expired (expired)");
    let of_pool = alarms(proxy).into_iter();
    let of_pool: Vec<_> = of_pool
        .filter(|alarm| alarm["key"] == "pool-unavailable:outdated")
        .map(|alarm| alarm["caused_by"].clone())
        .collect();
    assert_eq!(of_pool, [Value::Null]);
    // Both alarms are counted, and the status shows one below the other.
    let metrics = proxy.metrics();
    for kind in [CLOCK, "certificate-invalid"] {
        assert_eq!(metrics.sum("proscenium_alarms", &[("alarm", kind)]), 1.0);
    }
    let status = proxy.command(&["status"], &[]).stdout;
    let lines: Vec<_> = status
        .lines()
        .filter(|line| line.contains("since 2"))
        .collect();
    let clock = lines
        .iter()
        .position(|line| line.starts_with("CRITICAL") && line.contains("timedatectl"));
    let below = lines
        .iter()
        .position(|line| line.starts_with("  follows from it: CRITICAL"));
    assert_eq!(clock.map(|at| at + 1), below, "{status}");
    // With a clock that is an hour behind, the certificate is still not valid.
    set(3600);
    wait_for(proxy, &[("certificate-invalid", false), (CLOCK, false)]);
    set(3 * DAY);
    wait_for(proxy, &both);
    set(0);
    wait_for(proxy, &[("certificate-invalid", false)]);
}

/// No member shows its clock here.
#[test]
fn several_certificates_that_are_not_valid_yet_are_a_wrong_clock_and_one_is_not() {
    for (second, expected) in [
        (-DAY, &[("certificate-invalid", false)][..]),
        (
            2 * DAY,
            &[
                ("certificate-invalid", true),
                ("certificate-invalid", true),
                (CLOCK, false),
            ],
        ),
    ] {
        let ca = Ca::new();
        let future = ca.leaf("puppet").valid_seconds(2 * DAY, 100 * DAY).issue();
        let second = ca.leaf("other").valid_seconds(second, 100 * DAY).issue();
        let two = ["ssl/certs/puppet.pem", "second.pem"];
        let keys = ["ssl/private_keys/puppet.pem", "second.key"];
        let late = ca.leaf("late").ip("127.0.0.1");
        let late = late.valid_seconds(2 * DAY, 100 * DAY).issue();
        let late = StandIn::builder("late").tls(&ca, &late).start();
        let pool = format!(
            "[pools.late]\nmembers = [{:?}]\n{QUICK_CHECK}\n",
            late.address()
        );
        let tables = two.iter().zip(keys).map(|(chain, key)| {
            format!("[[tls.certificates]]\nchain = \"{{dir}}/{chain}\"\nkey = \"{{dir}}/{key}\"\n")
        });
        let estate = Estate::builder()
            .ca(&ca)
            .compiler_pool(TCP)
            .ca_pool(TCP)
            .credential(&future)
            .file("second.pem", &second.chain_pem(), 0o644)
            .file("second.key", &second.key_pem, 0o640)
            .with(&(tables.collect::<String>() + &pool))
            .start();
        wait_for(&estate.proxy, expected);
        // The member's certificate is not valid yet either.
        let is_wrong = expected.len() > 1;
        let cause = if is_wrong { CLOCK.into() } else { Value::Null };
        estate.proxy.wait_for_status("the pool", |status| {
            let alarms = status["alarms"].as_array().expect("alarms");
            let mut of_pool = alarms
                .iter()
                .filter(|alarm| alarm["key"] == "pool-unavailable:late");
            let is_caused = of_pool.any(|alarm| alarm["caused_by"] == cause);
            is_caused && (alarms[0]["key"] == CLOCK) == is_wrong
        });
        if expected.len() > 1 {
            let message = alarms(&estate.proxy)
                .iter()
                .find(|alarm| alarm["key"] == CLOCK)
                .map(|alarm| alarm["message"].to_string())
                .expect("it is raised");
            for words in ["behind", "not valid yet", "second.pem", "timedatectl"] {
                assert!(message.contains(words), "{words}: {message}");
            }
        }
    }
}
