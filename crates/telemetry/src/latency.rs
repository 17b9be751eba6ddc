//! A histogram of durations without a lock: a few relaxed additions per observation.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use prometheus_client::encoding::{EncodeMetric, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::{MetricType, TypedMetric};

/// Number of ranges of durations: one for each bound, and one for longer durations.
pub(crate) const RANGES: usize = BOUNDS.len() + 1;

/// Durations counted in ranges. The bounds reach from a cached status response to the longest catalog.
#[derive(Clone, Debug, Default)]
pub struct Latency(Arc<Counts>);

#[derive(Debug)]
struct Counts {
    ranges: [AtomicU64; RANGES],
    sum_us: AtomicU64,
}

impl Default for Counts {
    fn default() -> Self {
        Self {
            ranges: [const { AtomicU64::new(0) }; RANGES],
            sum_us: AtomicU64::new(0),
        }
    }
}

impl Latency {
    /// Counts one duration.
    pub fn observe(&self, duration: Duration) {
        let micros = u64::try_from(duration.as_micros()).unwrap_or(u64::MAX);
        let range = BOUNDS.partition_point(|bound| *bound < micros);
        self.0.ranges[range].fetch_add(1, Ordering::Relaxed);
        self.0.sum_us.fetch_add(micros, Ordering::Relaxed);
    }

    /// The present count of each range.
    pub(crate) fn counts(&self) -> impl Iterator<Item = u64> {
        let ranges = self.0.ranges.iter();
        ranges.map(|count| count.load(Ordering::Relaxed))
    }

    /// Whether no duration has been counted.
    pub(crate) fn is_empty(&self) -> bool {
        self.counts().all(|count| count == 0)
    }

    /// The present counts, with the bounds of the exposition.
    pub(crate) fn encode_into(&self, encoder: &mut MetricEncoder<'_>) -> Result<(), fmt::Error> {
        let mut counts = BOUNDS.iter().zip(self.counts()).peekable();
        let mut buckets: Vec<(f64, u64)> = Vec::with_capacity(EXPORTED_BOUNDS.len() + 1);
        for exported in EXPORTED_BOUNDS {
            let mut count = 0;
            while let Some((_, more)) = counts.next_if(|(bound, _)| **bound <= exported) {
                count += more;
            }
            buckets.push((exported as f64 / 1e6, count));
        }
        let longest = self.counts().last().unwrap_or_default();
        buckets.push((f64::INFINITY, longest));
        let sum = self.0.sum_us.load(Ordering::Relaxed) as f64 / 1e6;
        let count = buckets.iter().map(|(_, count)| count).sum();
        encoder.encode_histogram::<NoLabelSet>(sum, count, &buckets, None)
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
        if self.buckets.is_empty() {
            self.buckets = bounds().map(|bound| (bound, 0)).collect();
        }
        for ((_, sum), count) in self.buckets.iter_mut().zip(latency.counts()) {
            *sum += count;
        }
        self.sum_us += latency.0.sum_us.load(Ordering::Relaxed);
    }

    /// The number of durations.
    pub fn requests(&self) -> u64 {
        self.buckets.iter().map(|(_, count)| count).sum()
    }
}

/// The upper bound of each range in microseconds. The last range has none.
pub(crate) fn bounds() -> impl Iterator<Item = Option<u64>> + Clone {
    BOUNDS.iter().copied().map(Some).chain([None])
}

/// The duration in microseconds that `percent` of the counted durations did not exceed, estimated from the upper bound (if it
/// has one) and the count of each range. Within a range, durations are assumed to be spread evenly. The last range has no
/// bound, and its lower bound is used.
pub fn percentile_us(
    ranges: impl Iterator<Item = (Option<u64>, u64)> + Clone,
    percent: u64,
) -> u64 {
    let all: u64 = ranges.clone().map(|(_, count)| count).sum();
    if all == 0 {
        return 0;
    }
    let wanted = (all * percent).div_ceil(100);
    let (mut below, mut lower) = (0, 0);
    for (bound, count) in ranges {
        let upper = bound.unwrap_or(lower);
        if count > 0 && below + count >= wanted {
            return lower + (upper - lower) * (wanted - below) / count;
        }
        below += count;
        lower = upper;
    }
    lower
}

impl EncodeMetric for Latency {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> Result<(), fmt::Error> {
        self.encode_into(&mut encoder)
    }

    fn metric_type(&self) -> MetricType {
        Self::TYPE
    }
}

impl TypedMetric for Latency {
    const TYPE: MetricType = MetricType::Histogram;
}

/// Upper bounds in microseconds: from 1 ms, nine in each power of ten, so that an estimate of a percentile is wrong by half
/// at most. The last is the default first-byte timeout.
const BOUNDS: [u64; 54] = {
    const STEPS: [u64; 9] = [10, 15, 20, 25, 30, 40, 50, 60, 80];
    let mut bounds = [660_000_000; 54];
    let mut index = 0;
    while index < bounds.len() - 1 {
        let power = 10_u64.pow((index / STEPS.len()) as u32);
        bounds[index] = STEPS[index % STEPS.len()] * 100 * power;
        index += 1;
    }
    bounds
};

/// The bounds of the exposition, which a time series database stores for each pool and member. Each is one of [`BOUNDS`].
const EXPORTED_BOUNDS: [u64; 16] = [
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_rise_in_small_steps_and_include_those_of_the_exposition() {
        for pair in BOUNDS.windows(2) {
            assert!(pair[0] < pair[1] && pair[1] * 2 <= pair[0] * 3, "{pair:?}");
        }
        for bound in EXPORTED_BOUNDS {
            assert!(BOUNDS.contains(&bound), "{bound}");
        }
    }

    #[test]
    fn a_percentile_is_estimated_within_its_range() {
        for (durations, percent, expected) in [
            (&[][..], 95, 0),
            (&[500], 50, 1_000),
            (&[2_900; 20], 95, 2_975),
            (&[2_900; 20], 50, 2_750),
            (&[700_000_000], 95, 660_000_000),
        ] {
            let latency = Latency::default();
            for micros in durations {
                latency.observe(Duration::from_micros(*micros));
            }
            let ranges: Vec<_> = bounds().zip(latency.counts()).collect();
            let estimated = percentile_us(ranges.into_iter(), percent);
            assert_eq!(estimated, expected, "{durations:?} {percent}");
        }
    }
}
