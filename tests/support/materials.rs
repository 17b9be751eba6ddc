//! Set-up of the tests about materials that change on disk.

use std::time::Duration;

use serde_json::Value;
use testkit::{Client, Proxy, wait_until};

use crate::support::{Estate, EstateBuilder, LIMIT};

/// Only the kernel reports changes: no periodic check is due during the test.
pub(crate) const NOTIFY: &str = "watch = \"notify\"\ninterval = \"1h\"\nsettle = \"20ms\"";
/// The proxy waits for longer than the test runs for invalid files to become valid.
pub(crate) const PATIENT: &str = "settle_max = \"1h\"";
/// Invalid files raise an alarm at once.
pub(crate) const IMPATIENT: &str = "settle_max = \"20ms\"";
pub(crate) const NOT_VALID_YET: &str = "not valid yet: waiting";
pub(crate) const REFUSED: &str = "proscenium_materials_refused";
pub(crate) const CHECKS: &str = "proscenium_materials_checks_total";
/// Minimum time between two checks.
pub(crate) const CHECK_INTERVAL_MIN: Duration = Duration::from_millis(50);
pub(crate) const MEMBER_TLS: &str = "[upstream.tls]\nchain = \"{dir}/members/chain.pem\"\nkey = \"{dir}/members/key.pem\"\n\
                          ca = \"{dir}/members/ca.pem\"\ncrl = \"{dir}/members/crl.pem\"";

/// An estate whose proxy watches its materials with these settings.
pub(crate) fn estate(watching: &str) -> EstateBuilder {
    Estate::builder().materials(watching)
}

#[track_caller]
pub(crate) fn wait_for_crl(proxy: &Proxy, number: u64) {
    let number = number.to_string();
    proxy.wait_for_status(&format!("CRL {number}"), |status| {
        let crls = status["trust"]["crls"].as_array().into_iter().flatten();
        crls.into_iter().any(|crl| crl["number"] == *number)
    });
}

#[track_caller]
pub(crate) fn wait_for_words(proxy: &Proxy, words: &str, times: usize) {
    let said = wait_until(LIMIT, || {
        (proxy.stderr().matches(words).count() >= times).then_some(())
    });
    assert!(
        said.is_some(),
        "{words:?} is not said {times} times:\n{}",
        proxy.stderr()
    );
}

#[track_caller]
pub(crate) fn wait_for_alarm(proxy: &Proxy) -> String {
    wait_for_report(proxy, |_| true)
}

#[track_caller]
pub(crate) fn wait_for_report(proxy: &Proxy, met: impl Fn(&str) -> bool) -> String {
    let report = |status: &Value| {
        let report = status["materials"]["refused"]["report"].as_str();
        report.filter(|report| met(report)).map(str::to_owned)
    };
    let status = proxy.wait_for_status("an alarm", |status| report(status).is_some());
    report(&status).expect("it is there")
}

#[track_caller]
pub(crate) fn wait_for_end_of_alarm(proxy: &Proxy) {
    proxy.wait_for_status("no alarm", |status| {
        status["materials"]["refused"].is_null()
    });
    assert_eq!(proxy.metrics().sum(REFUSED, &[]), 0.0);
}

pub(crate) fn refusals(proxy: &Proxy) -> f64 {
    let labels = [("result", "refused")];
    proxy.metrics().sum("proscenium_reloads_total", &labels)
}

pub(crate) fn served(client: &Client) -> Vec<u8> {
    let connection = client.clone().forgetful().connect().expect("connects");
    connection.peer_certificates().remove(0)
}

#[track_caller]
pub(crate) fn wait_for_certificate(client: &Client, certificate: &[u8]) {
    let seen = wait_until(LIMIT, || (served(client) == certificate).then_some(()));
    assert!(seen.is_some(), "the new certificate is not served");
}
