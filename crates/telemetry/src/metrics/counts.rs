//! Counts of the whole process for the status of its traffic. They are sums over listeners and pools.

use std::collections::BTreeMap;

use balancing::Work;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;

use super::{
    FailureKind, HandshakeLabels, HandshakeResult, Limit, LimitLabels, Metrics, RefusalLabels,
    WorkLabels,
};
use crate::latency::LatencyCounts;

/// Counts since the start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TrafficCounts {
    /// Requests by kind of work.
    pub work: BTreeMap<&'static str, LatencyCounts>,
    /// Requests answered with an error of the proxy, by reason.
    pub refusals: BTreeMap<&'static str, u64>,
    /// Requests and handshakes refused because of a certificate, by reason.
    pub certificate_refusals: BTreeMap<&'static str, u64>,
    /// Requests and handshakes that failed, by kind.
    pub failures: BTreeMap<&'static str, u64>,
    /// Requests answered, by the first digit of the status code (`2xx`); `other` from 600 on.
    pub codes: BTreeMap<String, u64>,
    /// Limits that were hit.
    pub limits_hit: BTreeMap<&'static str, u64>,
    /// Handshakes by result.
    pub handshakes: BTreeMap<&'static str, u64>,
}

impl Metrics {
    /// The present counts. Series that do not exist are not created.
    pub fn traffic(&self) -> TrafficCounts {
        let named = self.named();
        let mut counts = TrafficCounts::default();
        for work in Work::ALL.map(Work::as_str).into_iter().chain(["-"]) {
            let pools = named.pools.iter().map(String::as_str).chain(["-"]);
            for pool in pools {
                let pool = pool.to_owned();
                if let Some(latency) = self.request_duration.get(&WorkLabels { pool, work }) {
                    counts.work.entry(work).or_default().add(&latency);
                }
            }
        }
        counts.refusals = by_reason(&self.refusals, &named.refusal_reasons);
        counts.certificate_refusals = by_reason(&self.certificate_refusals, &named.verdict_reasons);
        let failures = FailureKind::ALL.map(FailureKind::as_str).into_iter();
        counts.failures = failures
            .zip(self.failures.iter().map(Counter::get))
            .collect();
        counts.codes = self.requests.by_hundred();
        for listener in &named.listeners {
            for limit in Limit::ALL.map(Limit::as_str) {
                let listener = listener.clone();
                let count = self.limits_hit.get(&LimitLabels { listener, limit });
                *counts.limits_hit.entry(limit).or_default() +=
                    count.map_or(0, |count| count.get());
            }
            for result in HandshakeResult::ALL.map(HandshakeResult::as_str) {
                let listener = listener.clone();
                let count = self.handshakes.get(&HandshakeLabels { listener, result });
                *counts.handshakes.entry(result).or_default() +=
                    count.map_or(0, |count| count.get());
            }
        }
        counts
    }
}

fn by_reason(
    family: &Family<RefusalLabels, Counter>,
    reasons: &std::collections::BTreeSet<&'static str>,
) -> BTreeMap<&'static str, u64> {
    let counts = reasons.iter().filter_map(|&reason| {
        let count = family.get(&RefusalLabels { reason })?.get();
        Some((reason, count))
    });
    counts.collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::KnownLabels;

    #[test]
    fn counts_are_summed_over_pools_and_listeners_and_create_no_series() {
        let metrics = Metrics::default();
        metrics.start_at_zero(&KnownLabels {
            verdict_reasons: &["revoked"],
            csr_reasons: &[],
            refusal_reasons: &["no-route"],
            crl_fetch_results: &[],
            documents: &[],
        });
        for pool in ["compilers", "files"] {
            let request = metrics.request("agents", pool, "catalog", Some(Work::Catalog));
            request.finished(200, Duration::from_millis(3));
        }
        let invalid = metrics.request("agents", "files", "file", None);
        invalid.finished(999, Duration::from_millis(3));
        metrics.listener("agents").limit(Limit::Head);
        metrics.listener("other").limit(Limit::Head);
        metrics.listener("other").handshake(HandshakeResult::Ok);
        metrics.refused("no-route");
        metrics.certificate_refused("revoked");
        metrics.failed(FailureKind::Refused);
        let lines = || metrics.encode([], crate::Exposition::Text).lines().count();
        let before = lines();
        let counts = metrics.traffic();
        let catalogs = &counts.work["catalog"];
        assert_eq!((catalogs.requests(), catalogs.sum_us), (2, 6_000));
        assert_eq!(catalogs.buckets[4], (Some(3_000), 2));
        assert!(!counts.work.contains_key("file"));
        assert_eq!(counts.limits_hit["head"], 2);
        assert_eq!(counts.handshakes["ok"], 1);
        assert_eq!(counts.refusals["no-route"], 1);
        assert_eq!(counts.certificate_refusals["revoked"], 1);
        let failures = [("cut", 0), ("here", 0), ("member", 0), ("refused", 1)];
        assert_eq!(counts.failures, BTreeMap::from(failures));
        assert_eq!(
            counts.codes,
            BTreeMap::from([("2xx".to_owned(), 2), ("other".to_owned(), 1)])
        );
        assert_eq!(lines(), before);
    }
}
