//! A parsed scrape of the proxy's metrics.

use std::collections::BTreeMap;

/// Samples of a scrape.
#[derive(Clone, Debug, Default)]
pub struct ScrapedMetrics {
    samples: Vec<(String, BTreeMap<String, String>, f64)>,
}

impl ScrapedMetrics {
    /// Parses OpenMetrics or Prometheus text.
    ///
    /// # Panics
    /// A line is neither a comment nor a sample.
    pub fn parse(text: &str) -> Self {
        let lines = text
            .lines()
            .filter(|line| !line.is_empty() && !line.starts_with('#'));
        let sample =
            |line| Self::sample(line).unwrap_or_else(|| panic!("no metric sample: {line:?}"));
        Self {
            samples: lines.map(sample).collect(),
        }
    }

    /// The sum of the samples with this name and these labels; 0 if there are none.
    pub fn sum(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        self.matching(name, labels).sum()
    }

    /// Whether there is a sample with this name and these labels.
    pub fn has(&self, name: &str, labels: &[(&str, &str)]) -> bool {
        self.matching(name, labels).next().is_some()
    }

    /// The names of all samples, sorted and without duplicates.
    pub fn names(&self) -> Vec<String> {
        let mut names: Vec<_> = self.samples.iter().map(|(name, ..)| name.clone()).collect();
        names.sort();
        names.dedup();
        names
    }

    pub(crate) fn sum_of_prefix(&self, prefix: &str) -> f64 {
        let counted = |name: &str| name.starts_with(prefix) && name.ends_with("_total");
        self.samples
            .iter()
            .filter(|(name, ..)| counted(name))
            .map(|(_, _, value)| value)
            .sum()
    }

    fn matching<'a>(
        &'a self,
        name: &'a str,
        labels: &'a [(&str, &str)],
    ) -> impl Iterator<Item = f64> + 'a {
        let carries = |found: &BTreeMap<String, String>| {
            labels
                .iter()
                .all(|(key, value)| found.get(*key).is_some_and(|found| found == value))
        };
        self.samples
            .iter()
            .filter(move |(n, found, _)| n == name && carries(found))
            .map(|(_, _, value)| *value)
    }

    fn sample(line: &str) -> Option<(String, BTreeMap<String, String>, f64)> {
        let (series, value) = match line.split_once('}') {
            Some((series, rest)) => (series, rest),
            None => line.split_once(' ')?,
        };
        let value = value.split_whitespace().next()?.parse().ok()?;
        let (name, labels) = series.split_once('{').unwrap_or((series, ""));
        let labels = labels
            .split("\",")
            .filter(|label| !label.is_empty())
            .map(|label| {
                let (key, value) = label.split_once("=\"")?;
                Some((key.to_owned(), value.trim_end_matches('"').to_owned()))
            });
        Some((
            name.trim().to_owned(),
            labels.collect::<Option<_>>()?,
            value,
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_are_found_by_name_and_labels() {
        let metrics = ScrapedMetrics::parse(
            "# TYPE a counter\na_total{pool=\"x\",member=\"1:2\"} 3\na_total{pool=\"y\"} 4.5\nb 1 1700000000\n# EOF\n",
        );
        assert_eq!(metrics.sum("a_total", &[]), 7.5);
        assert_eq!(metrics.sum("a_total", &[("pool", "x")]), 3.0);
        assert!(metrics.has("b", &[]) && !metrics.has("b", &[("pool", "x")]));
    }
}
