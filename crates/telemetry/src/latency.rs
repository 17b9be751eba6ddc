//! A histogram of durations without a lock: a few relaxed additions per observation.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use prometheus_client::encoding::{EncodeMetric, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::{MetricType, TypedMetric};

/// Durations counted in buckets. The bounds reach from a cached status response to the longest catalog.
#[derive(Clone, Debug, Default)]
pub struct Latency(Arc<Counts>);

#[derive(Debug, Default)]
struct Counts {
    /// One bucket for each bound, and one for longer durations.
    buckets: [AtomicU64; BOUNDS.len() + 1],
    sum_us: AtomicU64,
}

impl Latency {
    /// Counts one duration.
    pub fn observe(&self, duration: Duration) {
        let micros = u64::try_from(duration.as_micros()).unwrap_or(u64::MAX);
        let bucket = BOUNDS.partition_point(|bound| *bound < micros);
        self.0.buckets[bucket].fetch_add(1, Ordering::Relaxed);
        self.0.sum_us.fetch_add(micros, Ordering::Relaxed);
    }
}

/// The summed counts of histograms.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LatencyCounts {
    /// Upper bounds in microseconds, and the count of each range. The last range has no bound.
    pub buckets: Vec<(Option<u64>, u64)>,
    /// Sum of the durations in microseconds.
    pub sum_us: u64,
}

impl LatencyCounts {
    /// Adds the counts of a histogram.
    pub fn add(&mut self, latency: &Latency) {
        let bounds = BOUNDS.map(Some).into_iter().chain([None]);
        if self.buckets.is_empty() {
            self.buckets = bounds.map(|bound| (bound, 0)).collect();
        }
        for ((_, sum), count) in self.buckets.iter_mut().zip(&latency.0.buckets) {
            *sum += count.load(Ordering::Relaxed);
        }
        self.sum_us += latency.0.sum_us.load(Ordering::Relaxed);
    }

    /// The number of durations.
    pub fn requests(&self) -> u64 {
        self.buckets.iter().map(|(_, count)| count).sum()
    }
}

impl EncodeMetric for Latency {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> Result<(), fmt::Error> {
        let bounds = BOUNDS
            .iter()
            .map(|bound| *bound as f64 / 1e6)
            .chain([f64::INFINITY]);
        let counts = self
            .0
            .buckets
            .iter()
            .map(|count| count.load(Ordering::Relaxed));
        let buckets: Vec<(f64, u64)> = bounds.zip(counts).collect();
        let sum = self.0.sum_us.load(Ordering::Relaxed) as f64 / 1e6;
        let count = buckets.iter().map(|(_, count)| count).sum();
        encoder.encode_histogram::<NoLabelSet>(sum, count, &buckets, None)
    }

    fn metric_type(&self) -> MetricType {
        Self::TYPE
    }
}

impl TypedMetric for Latency {
    const TYPE: MetricType = MetricType::Histogram;
}

/// Upper bounds in microseconds. The last is the default first-byte timeout.
const BOUNDS: [u64; 16] = [
    1_000,
    2_500,
    5_000,
    10_000,
    25_000,
    50_000,
    100_000,
    250_000,
    500_000,
    1_000_000,
    2_500_000,
    10_000_000,
    30_000_000,
    60_000_000,
    300_000_000,
    660_000_000,
];
