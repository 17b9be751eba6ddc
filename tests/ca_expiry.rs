//! The expiry of the Puppet CA, and with it of every certificate: announced once, long before.

use serde_json::Value;
use testkit::{Ca, Proxy};

use crate::support::{Estate, done, paths::CATALOG};

const EXPIRING: &str = "ca-expiring";

fn alarms(status: &Value) -> Vec<(String, String)> {
    let alarms = status["alarms"].as_array().expect("a list");
    let text = |alarm: &Value, name: &str| alarm[name].as_str().unwrap_or_default().to_owned();
    let mut about_dates: Vec<_> = alarms
        .iter()
        .map(|alarm| (text(alarm, "key"), text(alarm, "message")))
        .filter(|(key, _)| key.contains("expiring") || key.contains("invalid"))
        .collect();
    about_dates.sort();
    about_dates
}

fn certificates(proxy: &Proxy) -> Value {
    let output = done(proxy, &["certificates"], &["--json"]);
    serde_json::from_str(&output).expect("JSON")
}

#[test]
fn a_ca_that_expires_in_less_than_a_week_is_critical() {
    let ca = Ca::expiring_in(6);
    let estate = Estate::builder().ca(&ca).tls_members().start();
    let critical = [("alarm", EXPIRING), ("severity", "critical")];
    estate.wait_for_metric("proscenium_alarms", &critical, 1.0);
}

#[test]
fn one_alarm_announces_the_end_of_a_ca_and_a_renewal_with_the_same_key_clears_it() {
    let ca = Ca::expiring_in(20);
    let estate = Estate::builder().ca(&ca).tls_members().start();
    let proxy = &estate.proxy;
    let agent = estate.client(&ca.agent("web01"));
    assert_eq!(agent.get(CATALOG).status, 200);
    let status = proxy.wait_for_status("the alarm", |status| {
        status["alarms"].to_string().contains(EXPIRING)
    });
    // One alarm, however many certificates the CA issued.
    let found = alarms(&status);
    let [(key, message)] = found.as_slice() else {
        panic!("{found:#?}");
    };
    assert!(
        key.starts_with("ca-expiring:CA CN=Puppet CA: expiring"),
        "{key}"
    );
    for words in [
        "in less than 30 days",
        "with the same key",
        "guides/ca-expiry.md",
    ] {
        assert!(message.contains(words), "{message}");
    }
    let metrics = proxy.metrics();
    let warning = [("alarm", EXPIRING), ("severity", "warning")];
    assert_eq!(metrics.sum("proscenium_alarms", &warning), 1.0);
    assert_eq!(metrics.sum("proscenium_agents", &[("expires", "30d")]), 1.0);
    let check = proxy.command(&["check"], &[]);
    assert!(check.stderr.contains("in less than 30 days"), "{check:?}");
    // All certificates expire with their CA.
    let listed = certificates(proxy);
    let ends: Vec<_> = ["cas", "proxy", "agents"]
        .iter()
        .flat_map(|list| listed[list].as_array().expect("a list"))
        .map(|of| of.get("certificate").unwrap_or(of)["not_after"].clone())
        .collect();
    assert!(ends.len() >= 3, "{listed:#}");
    assert!(ends.iter().all(|end| *end == ends[0]), "{listed:#}");
    let text = done(proxy, &["certificates"], &[]);
    assert!(
        text.contains("CN=Puppet CA: expiring") && text.contains("CA in"),
        "{text}"
    );

    let bundle = proxy.ssldir().join("certs/ca.pem");
    let renewed = ca.renewed_issuing_pem();
    std::fs::write(&bundle, format!("{}{renewed}", ca.bundle_pem())).expect("written");
    proxy.reload();
    proxy.wait_for_status("no alarm", |status| alarms(status).is_empty());
    let listed = certificates(proxy);
    for list in ["cas", "proxy", "agents"] {
        assert_eq!(listed[list], Value::Array(Vec::new()), "{listed:#}");
    }
    assert_eq!(agent.get(CATALOG).status, 200);
    assert!(!proxy.command(&["check"], &[]).stderr.contains("less than"));
}

#[test]
fn a_ca_that_is_valid_for_longer_raises_no_alarm() {
    for (days, announced) in [(89, true), (91, false)] {
        let ca = Ca::expiring_in(days);
        let estate = Estate::builder().ca(&ca).start();
        let check = estate.proxy.command(&["check"], &[]);
        let found = check.stderr.contains("in less than 90 days");
        assert_eq!(found, announced, "{days}: {check:?}");
    }
}
