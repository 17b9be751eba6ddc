//! Set-up and assertions of the tests about frames of HTTP/2.

use testkit::{Protocol, TestConnection, TestCredential, http2::StreamOutcome};

pub(crate) use super::paths::CATALOG;
use super::{Estate, EstateBuilder};

pub(crate) const FILE: &str = "/puppet/v3/file_content/modules/m/f?environment=production";
/// Error codes (RFC 9113, 7).
pub(crate) const NO_ERROR: u32 = 0;
pub(crate) const PROTOCOL_ERROR: u32 = 1;
pub(crate) const CANCEL: u32 = 8;
pub(crate) const ENHANCE_YOUR_CALM: u32 = 11;

pub(crate) fn with_listener(lines: &'static str) -> EstateBuilder {
    let builder = Estate::builder().one_agent_for_many();
    builder.listener(lines)
}

/// An estate and the connection of one of its agents.
pub(crate) fn begin(builder: EstateBuilder) -> (Estate, TestConnection) {
    let estate = builder.one_agent_for_many().start();
    let connection = connect(&estate, &estate.ca.agent("web01"));
    (estate, connection)
}

pub(crate) fn connect(estate: &Estate, agent: &TestCredential) -> TestConnection {
    let client = estate.client(agent).protocol(Protocol::Http2);
    client.connect().expect("connects")
}

/// The fields of a GET, which a test may change.
pub(crate) fn get(path: &str) -> Vec<(String, String)> {
    [
        (":method", "GET"),
        (":scheme", "https"),
        (":authority", "puppet"),
        (":path", path),
    ]
    .map(|(name, value)| (name.to_owned(), value.to_owned()))
    .to_vec()
}

/// The fields of a PUT, which a test may change.
pub(crate) fn put(path: &str) -> Vec<(String, String)> {
    let mut fields = get(path);
    fields[0].1 = "PUT".to_owned();
    fields
}

#[track_caller]
pub(crate) fn wait_for_limit(estate: &Estate, limit: &str, least: f64) {
    let labels = [("limit", limit)];
    let proxy = &estate.proxy;
    proxy.wait_for_metric("proscenium_limits_hit_total", &labels, least);
}

pub(crate) fn limit(estate: &Estate, limit: &str) -> f64 {
    let labels = [("limit", limit)];
    let metrics = estate.proxy.metrics();
    metrics.sum("proscenium_limits_hit_total", &labels)
}

/// Waits for the record of a connection whose bytes never became a request.
#[track_caller]
pub(crate) fn wait_for_reason(estate: &Estate, reason: &str) {
    let record = estate.wait_for_record(|record| record["reason"] == reason);
    let output = (&record["http_version"], &record["certname"]);
    assert_eq!(output, (&"HTTP/2".into(), &"web01".into()), "{record}");
}

/// Asserts that the peer closed the connection with ENHANCE_YOUR_CALM.
#[track_caller]
pub(crate) fn assert_enhance_your_calm(connection: &mut TestConnection) {
    let last = connection.reserve_stream();
    let outcome = connection.outcome(last);
    assert_eq!(outcome, StreamOutcome::GoneAway(ENHANCE_YOUR_CALM));
}

/// Asserts that other clients are served as before.
#[track_caller]
pub(crate) fn assert_others_go_on(estate: &Estate) {
    let client = estate.agent("web01");
    assert_eq!(client.get(CATALOG).status, 200);
}

#[track_caller]
pub(crate) fn assert_grown_less(estate: &Estate, before: u64, kib: u64) {
    let grown = estate.proxy.memory_growth_kib(before);
    assert!(grown < kib, "{grown} KiB");
}
