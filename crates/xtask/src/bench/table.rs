//! The median and percentiles of several figures.

use std::time::Duration;

/// The smallest value that at least this percentage of the values does not exceed.
pub(super) fn percentile(values: &[Duration], percent: usize) -> Duration {
    let mut sorted = values.to_vec();
    sorted.sort_unstable();
    let rank = (sorted.len() * percent).div_ceil(100);
    sorted
        .get(rank.saturating_sub(1))
        .copied()
        .unwrap_or_default()
}

/// The median.
pub(super) fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted[sorted.len() / 2]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_percentile_is_one_of_the_values() {
        let values: Vec<_> = (1..=200).rev().map(Duration::from_micros).collect();
        assert_eq!(percentile(&values, 99), Duration::from_micros(198));
        assert_eq!(percentile(&values, 50), Duration::from_micros(100));
        assert_eq!(percentile(&values[..1], 99), Duration::from_micros(200));
        assert_eq!(percentile(&[], 99), Duration::ZERO);
    }
}
