//! Checks at the end of the run: requests, access records, attempts and retries must add up, and gauges must be 0.

use std::{
    collections::BTreeMap,
    fs::File,
    io::{BufRead, BufReader},
    path::Path,
    time::Duration,
};

use serde_json::Value;
use testkit::{Proxy, ScrapedMetrics, wait_until};

use super::tally::{Count, Tally};

/// Sums over the access records.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct RecordSums {
    /// Records of requests.
    pub(super) requests: u64,
    /// Records of handshakes that were refused or failed.
    pub(super) handshakes: u64,
    pub(super) attempts: u64,
    pub(super) retries: u64,
    by_status: BTreeMap<u64, u64>,
}

impl RecordSums {
    /// Sums over the records written so far.
    pub(super) fn of(log: &Path) -> Self {
        let mut sums = Self::default();
        let Ok(file) = File::open(log) else {
            return sums;
        };
        for line in BufReader::new(file).split(b'\n').map_while(Result::ok) {
            // The last line may not be complete yet.
            if let Ok(record) = serde_json::from_slice::<Value>(&line) {
                sums.add(&record);
            }
        }
        sums
    }

    fn add(&mut self, record: &Value) {
        let Some(status) = record["status"].as_u64() else {
            self.handshakes += 1;
            return;
        };
        self.requests += 1;
        *self.by_status.entry(status).or_default() += 1;
        let attempts = record["attempts"].as_u64().unwrap_or_default();
        self.attempts += attempts;
        self.retries += attempts.saturating_sub(1);
    }
}

/// Waits until the proxy is at rest. Reports every difference as a miss. `log` is the access log.
pub(super) fn check(proxy: &Proxy, log: &Path, tally: &Tally) -> RecordSums {
    let Some(metrics) = at_rest(proxy) else {
        tally.miss("the proxy has gone".to_owned());
        return RecordSums::of(log);
    };
    for gauge in GAUGES {
        let value = metrics.sum(gauge, &[]);
        if value != 0.0 {
            tally.miss(format!("{gauge} is {value} at rest"));
        }
    }
    let answered = metrics.sum("proscenium_requests_total", &[]);
    let mut sums = RecordSums::default();
    wait_until(REST_WITHIN, || {
        sums = RecordSums::of(log);
        (sums.requests as f64 >= answered).then_some(())
    });
    compare(&sums, &metrics, tally);
    sums
}

fn compare(sums: &RecordSums, metrics: &ScrapedMetrics, tally: &Tally) {
    let equal = |what: &str, recorded: u64, counter: &str, labels: &[(&str, &str)]| {
        let counted = metrics.sum(counter, labels);
        if counted != recorded as f64 {
            tally.miss(format!(
                "{recorded} {what} in access records, {counted} in {counter}{labels:?}"
            ));
        }
    };
    equal("requests", sums.requests, "proscenium_requests_total", &[]);
    equal("attempts", sums.attempts, "proscenium_attempts_total", &[]);
    equal("retries", sums.retries, "proscenium_retries_total", &[]);
    for (status, records) in &sums.by_status {
        let code = status.to_string();
        if metrics.has("proscenium_requests_total", &[("code", &code)]) {
            equal(
                "requests",
                *records,
                "proscenium_requests_total",
                &[("code", &code)],
            );
        }
    }
    equal("dropped", 0, "proscenium_access_records_dropped_total", &[]);
    let refused = [("result", "refused")];
    equal("refused reloads", 0, "proscenium_reloads_total", &refused);
    let (answered, sent) = (tally.counted(Count::Answered), tally.counted(Count::Sent));
    // The proxy may or may not have received a request on a connection that it closed because the agent is revoked.
    if !(answered..=sent).contains(&sums.requests) {
        tally.miss(format!(
            "{} access records of {sent} requests, {answered} of them answered",
            sums.requests
        ));
    }
}

/// The metrics once every gauge is 0, or the current ones after the limit. `None` if the proxy does not answer.
fn at_rest(proxy: &Proxy) -> Option<ScrapedMetrics> {
    let scrape = || {
        let answer = proxy.try_admin("GET", "/metrics").ok()?;
        Some(ScrapedMetrics::parse(&answer.text()))
    };
    let is_zero =
        |metrics: &ScrapedMetrics| GAUGES.iter().all(|gauge| metrics.sum(gauge, &[]) == 0.0);
    let rested = wait_until(REST_WITHIN, || match scrape() {
        Some(metrics) if !is_zero(&metrics) => None,
        other => Some(other),
    });
    rested.unwrap_or_else(scrape)
}

const GAUGES: &[&str] = &[
    "proscenium_connections_open",
    "proscenium_handshakes_in_flight",
    "proscenium_tunnels_open",
    "proscenium_pool_queue_length",
    "proscenium_member_in_flight",
    "proscenium_member_connections",
    "proscenium_body_buffer_bytes",
];
/// Longer than idle connections to members stay open and records are buffered.
const REST_WITHIN: Duration = Duration::from_secs(20);

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn request_records_and_handshake_records_are_summed_separately() {
        let mut sums = RecordSums::default();
        sums.add(&json!({ "status": 200, "attempts": 3 }));
        sums.add(&json!({ "status": 403, "attempts": 0 }));
        sums.add(&json!({ "status": null, "reason": "closed" }));
        let expected = RecordSums {
            requests: 2,
            handshakes: 1,
            attempts: 3,
            retries: 2,
            by_status: BTreeMap::from([(200, 1), (403, 1)]),
        };
        assert_eq!(sums, expected);
    }

    #[test]
    fn counters_that_differ_from_the_records_are_misses() {
        let mut sums = RecordSums::default();
        sums.add(&json!({ "status": 200, "attempts": 1 }));
        let tally = Tally::default();
        tally.count(Count::Sent);
        let metrics = |requests: u64| {
            ScrapedMetrics::parse(&format!(
                "proscenium_requests_total{{code=\"200\"}} {requests}\nproscenium_attempts_total 1\n"
            ))
        };
        compare(&sums, &metrics(1), &tally);
        assert_eq!(tally.missed(), 0);
        compare(&sums, &metrics(2), &tally);
        assert_eq!(tally.missed(), 2, "in total and by code");
    }
}
