//! Values that are read when metrics are scraped: families that have no state of their own.

use std::sync::atomic::AtomicU64;

use prometheus_client::{
    metrics::{counter::Counter, family::Family, gauge::Gauge},
    registry::{Registry, Unit},
};

/// Label names and values of one series.
pub type Labels = Vec<(&'static str, String)>;

/// Metric families of one scrape. The caller reads the values, and [`crate::Metrics::encode`] writes them.
///
/// A name that ends with `_seconds` or `_bytes` has that unit. A family without series appears with its help text alone.
#[derive(Debug)]
pub struct Gauges(pub(crate) Registry);

impl Gauges {
    /// Families whose names start with `proscenium_`.
    pub fn of_proscenium() -> Self {
        Self(Registry::with_prefix(crate::metrics::PREFIX))
    }

    /// Families with names that every program exports (`process_…`).
    pub fn of_process() -> Self {
        Self(Registry::default())
    }

    /// A gauge with one integer value.
    pub fn integer(&mut self, name: &str, help: &str, value: u64) {
        let gauge = Gauge::<i64>::default();
        gauge.set(i64::try_from(value).unwrap_or(i64::MAX));
        self.0.register(name, help, gauge);
    }

    /// A gauge that is 1 while a condition is true, else 0.
    pub fn condition(&mut self, name: &str, help: &str, is_true: bool) {
        self.integer(name, help, is_true.into());
    }

    /// A gauge with one value; without a value there is no family.
    pub fn value(&mut self, name: &str, help: &str, value: Option<f64>) {
        if let Some(value) = value {
            let gauge = Gauge::<f64, AtomicU64>::default();
            gauge.set(value);
            self.register(name, help, gauge);
        }
    }

    /// A gauge with a value for each set of labels.
    pub fn series(
        &mut self,
        name: &str,
        help: &str,
        series: impl IntoIterator<Item = (Labels, f64)>,
    ) {
        let family = Family::<Labels, Gauge<f64, AtomicU64>>::default();
        for (labels, value) in series {
            family.get_or_create(&labels).set(value);
        }
        self.register(name, help, family);
    }

    /// A counter with a value for each set of labels; `_total` is added to its name.
    pub fn counters(
        &mut self,
        name: &str,
        help: &str,
        series: impl IntoIterator<Item = (Labels, u64)>,
    ) {
        let family = Family::<Labels, Counter>::default();
        for (labels, value) in series {
            family.get_or_create(&labels).inc_by(value);
        }
        self.register(name, help, family);
    }

    /// A counter with one value; `_total` is added to its name.
    pub fn count(&mut self, name: &str, help: &str, value: u64) {
        let counter = Counter::<u64>::default();
        counter.inc_by(value);
        self.0.register(name, help, counter);
    }

    /// A counter of seconds; without a value there is no family.
    pub fn seconds_counter(&mut self, name: &str, help: &str, seconds: Option<f64>) {
        if let Some(seconds) = seconds {
            let counter = Counter::<f64, AtomicU64>::default();
            counter.inc_by(seconds);
            self.register(name, help, counter);
        }
    }

    fn register(
        &mut self,
        name: &str,
        help: &str,
        family: impl prometheus_client::registry::Metric,
    ) {
        let unit = match name.rsplit_once('_') {
            Some((name, "seconds")) => Some((name, Unit::Seconds)),
            Some((name, "bytes")) => Some((name, Unit::Bytes)),
            _ => None,
        };
        match unit {
            Some((name, unit)) => self.0.register_with_unit(name, help, unit, family),
            None => self.0.register(name, help, family),
        }
    }
}
